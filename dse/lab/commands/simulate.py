"""``dse simulate``: requests served one by one by a design."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from dse.cli import cautions, show
from dse.cli.evaluate import EvaluateRequest, design_line, design_of
from dse.cli.options import AnyOption, Devices, Force, Json, Settings, Stack, System, Workload
from dse.cli.panels import Registration
from dse.cli.status import NOTHING_FEASIBLE, report_errors
from dse.errors import InputError

if TYPE_CHECKING:
    from dse.lab.simulator import RequestList
    from dse.types import Design

#: Requests that are drawn by default.
_COUNT = 10_000

#: Leaves of requests, of which a trace replaces all but limits; some contradict it.
_OF_REQUESTS = ("workload.requests.", "workload.reuse.")
_ARRIVALS = {"load", "request_rate", "arrival_variation", "concurrency", "queue", "burst"}
_LIMITS = {"first_token_limit", "token_limit"}

#: Further figures of the closed forms in --json.
_SHARED = ("output_tokens_per_second", "requests_per_second", "cache_hit_rate")

#: Latencies of the printed table by heading.
_LATENCIES = {
    "time to first token": "time_to_first_token",
    "time per output token": "time_per_output_token",
    "request latency": "request_latency",
}


@report_errors
def simulate(
    workload: Workload,
    system: System,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Requests: arrival_s, prompt_tokens, answer_tokens [, prefix_id, prefix_tokens, session_id] "
            "[default: drawn by load, request_rate, prompt_tokens, output_tokens, length_spread, answer_spread].",
        ),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, max=10_000_000, help="Drawn requests [default: 10000].")
    ] = None,
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
    from dse.designs.calibrated import range_note
    from dse.doors import SERVING, serve
    from dse.lab.simulator import files, simulate as run, statistics

    _check_outputs(output, timeline, trace, force)
    request = design_of(workload, system, settings, n_devices, software, any_option, SERVING)
    trace_requests, heading, request = _read_trace(trace, request, requests) if trace else (None, "", request)
    for text in (*request.readings, *cautions.chip_cautions(request.design)):
        show.note(text)
    closed_form = {name: float(value) for name, value in vars(serve(request.design)).items()}
    if not trace and (problem := _memory_error(request.design, closed_form)):
        show.error(problem)
        return NOTHING_FEASIBLE
    start_s = time.perf_counter()
    simulation = run(request.design, trace_requests, requests or _COUNT, seed, timeline is not None)
    wall_seconds = time.perf_counter() - start_s
    figures = statistics(simulation)
    description = design_line(workload, system, request.stack, request.design, SERVING).strip() + heading
    attributes = {"design": description, "seed": seed}
    if output:
        files.write(simulation, output, attributes, force)
    if timeline:
        files.write_timeline(simulation, timeline, attributes, force)
    closed_figures = {} if trace else _closed_form_figures(closed_form)
    range_cautions = cautions.range_cautions(request.design, request.stack, system, closed_form)
    caution_texts = cautions.all_cautions(
        request.design, (workload, system, request.stack), request.set_leaves, closed_form, SERVING
    )
    overload = list(filter(None, [_overload_text(figures, closed_form)]))
    if as_json:
        show.document(
            {
                **attributes,
                "feasible": True,
                "seconds": wall_seconds,
                **figures,
                "closed_form": closed_figures,
                "outside": range_cautions,
                "cautions": [*caution_texts, *overload],
            }
        )
    else:
        ranges = [range_note(range_cautions)] if range_cautions else []
        _print(
            description,
            [*ranges, *caution_texts, *overload],
            figures,
            closed_figures,
            wall_seconds,
            simulation.column("arrival").size,
        )
    return 0


def _read_trace(path: Path, request: EvaluateRequest, count: int | None) -> tuple[RequestList, str, EvaluateRequest]:
    """Read a trace to its requests, a line for the heading, and the design with these requests' means."""
    from dse.lab.simulator import as_requests, read

    set_leaves = {name.rpartition(".")[2] for name in request.set_leaves if name.startswith(_OF_REQUESTS)}
    if conflicts := [*sorted(set_leaves & _ARRIVALS), *["--requests"] * (count is not None)]:
        raise InputError(
            "--trace",
            f"{', '.join(conflicts)} too",
            "arrivals of the trace alone",
            "leave it out, or leave out --trace",
        )
    trace_requests, design = read(path), request.design
    assert design.workload.requests is not None, "complete the design before"
    requests = as_requests(trace_requests, design.workload.requests)
    seconds, sessions = (
        float(trace_requests.arrival[-1] - trace_requests.arrival[0]),
        len(set(trace_requests.session.tolist()) - {-1}),
    )
    prefixes = show.counted(len(set(trace_requests.prefix.tolist()) - {-1}), "prefix", "prefixes")
    unread = ", ".join(sorted(set_leaves - _LIMITS))
    heading = (
        f"\ntrace {path}: {show.counted(trace_requests.size, 'request')} in {show.seconds(seconds)}, "
        f"with arrivals, lengths and {prefixes}{' and ' + show.counted(sessions, 'session') if sessions else ''}"
        f"{f'; not read: {unread}' * bool(unread)}"
    )
    workload = dataclasses.replace(design.workload, requests=requests, reuse=None)
    return trace_requests, heading, request._replace(design=dataclasses.replace(design, workload=workload))


def _memory_error(design: Design, closed_form: dict[str, float]) -> InputError | None:
    """Return the InputError of a design without memory for a cache, None for others."""
    from dse.doors import SERVING

    if not int(closed_form["infeasible_reason"]) & int(SERVING.memory_reasons):
        return None
    return InputError(
        "memory",
        SERVING.reason_numbers(design, closed_form)["memory"],
        "room for the cache of a request",
        "more devices (tp, pp), or narrower weights",
    )


def _closed_form_figures(closed_form: dict[str, float]) -> dict[str, float]:
    """Return name → value of the printed figures of the closed forms, infinite latencies above capacity."""
    endless = ("time_to_first_token", "request_latency") if closed_form["utilisation"] > 1.0 else ()
    return {
        name: math.inf if endless and name.endswith(endless) else value
        for name, value in closed_form.items()
        if _is_shared(name)
    }


def _overload_text(figures: dict[str, Any], closed_form: dict[str, float]) -> str:
    """Return a line on an overload or a growing queue, "" for neither."""
    from dse.lab.simulator import queue_grows

    if "waiting_at_end" not in figures:
        return ""
    rate, utilisation = figures["offered_requests_per_second"], closed_form["utilisation"]
    queue = f"{figures['waiting_at_end']:,} wait at the last arrival, {figures['waiting_at_half']:,} at the middle one"
    if utilisation > 1.0:
        return (
            f"overloaded: {show.digits(rate)} requests/s arrive, {utilisation:.3g} times what can be served; {queue}: "
            "latencies grow with the length of the run"
        )
    return f"the queue grows: {show.digits(rate)} requests/s arrive; {queue}" if queue_grows(figures) else ""


def _check_outputs(output: Path | None, timeline: Path | None, trace: Path | None, force: bool) -> None:
    """Raise an InputError for files that must not be written, before anything is computed."""
    from dse.io import check_output
    from dse.lab.simulator import files

    if output:
        files.format_of(output)
    if output and timeline and output.resolve() == timeline.resolve():
        raise InputError("--timeline", str(timeline), "another file than --output", "name another file")
    for path in filter(None, (output, timeline)):
        check_output(path, force, [trace] if trace else [])


def _is_shared(name: str) -> bool:
    """Return True if a metric of the closed forms is one of the printed figures."""
    name = name.removeprefix("mean_")
    return name.endswith(tuple(_LATENCIES.values())) or name in _SHARED


def _print(
    design: str,
    notes: list[str],
    figures: dict[str, Any],
    closed_figures: dict[str, float],
    wall_seconds: float,
    count: int,
) -> None:
    """Print the figures of a simulation, next to those of the closed forms where there are any."""
    out = show.console()
    print(design)
    for text in notes:
        out.print(Text(text, "yellow"), soft_wrap=True)
    columns = ["", "mean", "p50", "p90", "p95", "p99"]
    rows = []
    for heading, name in _LATENCIES.items():
        rows.append([heading, *(show.seconds(figures[f"{column}_{name}"]) for column in columns[1:])])
        closed_values = [closed_figures.get(name), *(closed_figures.get(f"{column}_{name}") for column in columns[2:])]
        if closed_figures:
            rows.append(["  closed form", *map(_seconds_text, closed_values)])
    show.print_table(out, columns, rows, left=[""])
    rate = f"{figures['requests_per_second']:,.3g} requests/s, {figures['output_tokens_per_second']:,.1f} tokens/s"
    hits = f"{100 * figures['cache_hit_rate']:.1f} % of prompt tokens found in it"
    hits += f" (closed form: {100 * closed_figures['cache_hit_rate']:.1f} %)" if closed_figures else ""
    if closed_figures:
        rate += f" (closed form: {closed_figures['output_tokens_per_second']:,.1f} tokens/s)"
    print(f"{rate}; {show.counted(figures['requests'], 'request')} counted")
    print(
        f"engine busy {100 * figures['busy']:.1f} % of the time, {figures['decoding']:,.1f} sequences decode at once, "
        f"{100 * figures['prefill_share']:.1f} % of {show.counted(figures['steps'], 'step')} with prompts"
    )
    preempted = show.counted(figures["preemptions"], "preemption")
    print(
        f"cache: {100 * figures['cache_use']:.1f} % used, {100 * figures['peak_cache_use']:.1f} % at peak; "
        f"{hits}; {preempted}"
    )
    print(f"simulated in {wall_seconds:.2f} s: {60 * count / max(wall_seconds, 1e-9):,.0f} requests a minute")


def _seconds_text(value: float | None) -> str:
    """Format seconds, "" for None, "no end" where infinite."""
    return "" if value is None else show.seconds(value) if math.isfinite(value) else "no end"


REGISTRATION = Registration("Serve", simulate)
