"""``dse simulate``: requests served one by one by a design."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from dse.cli import show
from dse.cli.evaluate import design_line, design_of
from dse.cli.options import AnyOption, Devices, Force, Json, Settings, Stack, System, Workload
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

#: Latencies of the printed table by heading.
_LATENCIES = {
    "time to first token": "time_to_first_token", "time per output token": "time_per_output_token",
    "request latency": "request_latency",
}  # fmt: skip


@report_errors
def simulate(
    workload: Workload,
    system: System,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Requests: arrival_s, prompt_tokens, answer_tokens [, prefix_id, prefix_tokens] "
            "[default: drawn by load, request_rate, prompt_tokens, output_tokens, length_spread, answer_spread].",
        ),
    ] = None,
    requests: Annotated[int, typer.Option(min=1, max=10_000_000, help="Drawn requests.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of what is drawn.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File with the times of every request, .nc or .csv [default: none]."),
    ] = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Steps and requests for ui.perfetto.dev [default: none].")
    ] = None,
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    force: Force = False,
    as_json: Json = False,
) -> int:
    """Simulate a serving engine request by request.

    Chunked prompts, admission by cache blocks, preemption, prefix cache: with the step times of the model. Prints
    percentiles of latency, throughput, and use of engine and cache, with those of the closed forms.
    """
    from dse.doors.scalars import serve
    from dse.doors.study_serving import SERVING
    from dse.simulate import files
    from dse.simulate.load import read
    from dse.simulate.run import simulate as run
    from dse.simulate.statistics import statistics

    _check_outputs(output, timeline, trace, force)
    asked = design_of(workload, system, settings, n_devices, software, any_option, SERVING)
    for text in asked.readings:
        show.note(text)
    closed = serve(asked.design)
    if not (feasible := int(closed.infeasible_reason) & int(SERVING.memory_reasons) == 0):
        show.note("infeasible: no room for a cache; dse evaluate --serving has the reason")
        return NOTHING_FEASIBLE
    started = time.perf_counter()
    found = run(asked.design, read(trace) if trace else None, requests, seed, timeline is not None)
    taken = time.perf_counter() - started
    figures = statistics(found)
    steady = {} if trace else {name: float(value) for name, value in vars(closed).items() if _is_shared(name)}
    described = design_line(workload, system, asked.stack, asked.design, SERVING).strip()
    about = {"design": described, "seed": seed}
    if output:
        files.write(found, output, about, force)
    if timeline:
        files.write_timeline(found, timeline, about, force)
    if as_json:
        show.document({**about, "feasible": feasible, "seconds": taken, **figures, "closed_form": steady})
    else:
        _print(described, figures, steady, taken, found.column("arrival").size)
    return 0


def _check_outputs(output: Path | None, timeline: Path | None, trace: Path | None, force: bool) -> None:
    """Refuses files that must not be written before anything is computed."""
    from dse.io.outputs import checked
    from dse.simulate.files import format_of

    if output:
        format_of(output)
    if output and timeline and output.resolve() == timeline.resolve():
        raise InputError("--timeline", str(timeline), "another file than --output", "name another file")
    for path in filter(None, (output, timeline)):
        checked(path, force, [trace] if trace else [])


def _is_shared(name: str) -> bool:
    """Whether a metric of the closed forms is one of the printed figures."""
    name = name.removeprefix("mean_")
    return name.endswith(tuple(_LATENCIES.values())) or name in ("output_tokens_per_second", "requests_per_second")


def _print(design: str, figures: dict[str, Any], steady: dict[str, float], taken: float, count: int) -> None:
    out = show.console()
    print(design)
    columns = ["", "mean", "p50", "p90", "p95", "p99"]
    rows = []
    for heading, name in _LATENCIES.items():
        rows.append([heading, *(show.seconds(figures[f"{column}_{name}"]) for column in columns[1:])])
        known = [steady.get(name), *(steady.get(f"{column}_{name}") for column in columns[2:])]
        if steady:
            rows.append(["  closed form", *("" if value is None else show.seconds(value) for value in known)])
    show.print_table(out, columns, rows, left=[""])
    rate = f"{figures['requests_per_second']:,.3g} requests/s, {figures['output_tokens_per_second']:,.1f} tokens/s"
    if steady:
        rate += f" (closed form: {steady['output_tokens_per_second']:,.1f} tokens/s)"
    print(f"{rate}; {figures['requests']:,} requests counted")
    print(
        f"engine busy {100 * figures['busy']:.1f} % of the time, {figures['decoding']:,.1f} sequences decode at once, "
        f"{100 * figures['prefill_share']:.1f} % of {figures['steps']:,} steps with prompts"
    )
    print(
        f"cache: {100 * figures['cache_use']:.1f} % used, {100 * figures['peak_cache_use']:.1f} % at peak; "
        f"{100 * figures['cache_hit_rate']:.1f} % of prompt tokens found in it; {figures['preemptions']:,} preemptions"
    )
    print(f"simulated in {taken:.2f} s: {60 * count / max(taken, 1e-9):,.0f} requests a minute")
