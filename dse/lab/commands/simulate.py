"""``dse.simulate``: requests served one by one by a design."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dse.capabilities.designs import DesignOptions, DesignRequest, chip_notes
from dse.errors import InputError
from dse.io import counted, digits, seconds
from dse.reports import Column, Line, Option, Report, Table, capability, caution
from dse.reports.options import Force
from dse.reports.report import NOTHING_FEASIBLE
from dse.reports.tables import Section, Style

if TYPE_CHECKING:
    from dse.lab.simulator import RequestList
    from dse.types import Design

#: Requests that are drawn by default.
_COUNT = 10_000

#: Leaves of requests, of which a trace replaces all but limits; some contradict it.
_OF_REQUESTS = ("workload.requests.", "workload.reuse.")
_ARRIVALS = {"load", "request_rate", "arrival_variation", "concurrency", "queue", "burst"}
_LIMITS = {"first_token_limit", "token_limit"}

#: Further figures of the closed forms in the document.
_SHARED = ("output_tokens_per_second", "requests_per_second", "cache_hit_rate")

#: Latencies of the table by heading, and their statistics.
_LATENCIES = {
    "time to first token": "time_to_first_token",
    "time per output token": "time_per_output_token",
    "request latency": "request_latency",
}
_STATISTICS = ("mean", "p50", "p90", "p95", "p99")


@capability("Serve")
def simulate(
    *,
    trace: Annotated[Path | None, Option(metavar="FILE.csv")] = None,
    requests: Annotated[int | None, Option(low=1, high=10_000_000)] = None,
    seed: Annotated[int, Option(low=0)] = 0,
    output: Annotated[Path | None, Option(short="-o")] = None,
    timeline: Annotated[Path | None, Option(metavar="FILE.json")] = None,
    design: DesignOptions,
    force: Force = False,
) -> Report:
    """Simulate a serving engine request by request.

    Chunked prompts, admission by cache blocks, preemption, prefix cache: with the step times of the model. Has
    percentiles of latency, throughput, and use of engine and cache, with those of the closed forms.

    Args:
        trace: Requests: arrival_s, prompt_tokens, answer_tokens [, prefix_id, prefix_tokens, session_id] [default:
            drawn by load, request_rate, prompt_tokens, output_tokens, length_spread, answer_spread].
        requests: Drawn requests [default: 10000].
        seed: Seed of what is drawn.
        output: File with the times of every request, .nc or .csv [default: none].
        timeline: Steps and requests for ui.perfetto.dev [default: none].
        design: Options of the design.
        force: Replace a file that dse has not written.
    """
    from dse.designs.calibrated import range_note
    from dse.doors import SERVING, serve
    from dse.lab.simulator import files, simulate as run, statistics

    _check_outputs(output, timeline, trace, force)
    request = design.request(SERVING)
    trace_requests, trace_text, request = _read_trace(trace, request, requests) if trace else (None, "", request)
    notes = [*request.readings, *chip_notes(request.design)]
    closed_form = {name: float(value) for name, value in vars(serve(request.design)).items()}
    description = request.description(request.stack).strip() + trace_text
    if not trace and (text := _memory_text(request.design, closed_form)):
        document = {"design": description, "seed": seed, "feasible": False, "reason": text}
        lines = [Line(description), Line("cannot run", Style.fault), Line(f"  {text}")]
        fix = "more devices (tp, pp), or narrower weights leave room for the cache of a request"
        return Report(document, [*lines, Line(f"  {fix}")], notes, status=NOTHING_FEASIBLE)
    start_s = time.perf_counter()
    simulation = run(request.design, trace_requests, requests or _COUNT, seed, timeline is not None)
    wall_seconds = time.perf_counter() - start_s
    figures = statistics(simulation)
    attributes = {"design": description, "seed": seed}
    if output:
        files.write(simulation, output, attributes, force)
    if timeline:
        files.write_timeline(simulation, timeline, attributes, force)
    closed_figures = {} if trace else _closed_form_figures(closed_form)
    uncalibrated = request.uncalibrated(closed_form)
    cautions = [*request.cautions(closed_form), *filter(None, [_overload_text(figures, closed_form)])]
    document = {**attributes, "feasible": True, "seconds": wall_seconds, **figures}
    document |= {"closed_form": closed_figures, "outside": uncalibrated, "cautions": cautions}
    count = simulation.column("arrival").size
    sections: list[Section] = [
        Line(description),
        *map(caution, [*([range_note(uncalibrated)] if uncalibrated else []), *cautions]),
        _latency_table(figures, closed_figures),
        *map(Line, _use_texts(figures, closed_figures)),
        Line(f"simulated in {wall_seconds:.2f} s: {60 * count / max(wall_seconds, 1e-9):,.0f} requests a minute"),
    ]
    return Report(document, sections, notes, files=[path for path in (output, timeline) if path])


def _read_trace(path: Path, request: DesignRequest, count: int | None) -> tuple[RequestList, str, DesignRequest]:
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
    duration = float(trace_requests.arrival[-1] - trace_requests.arrival[0])
    sessions = len(set(trace_requests.session.tolist()) - {-1})
    prefixes = counted(len(set(trace_requests.prefix.tolist()) - {-1}), "prefix", "prefixes")
    unread = ", ".join(sorted(set_leaves - _LIMITS))
    heading = (
        f"\ntrace {path}: {counted(trace_requests.size, 'request')} in {seconds(duration)}, "
        f"with arrivals, lengths and {prefixes}{' and ' + counted(sessions, 'session') if sessions else ''}"
        f"{f'; not read: {unread}' * bool(unread)}"
    )
    workload = dataclasses.replace(design.workload, requests=requests, reuse=None)
    return trace_requests, heading, request._replace(design=dataclasses.replace(design, workload=workload))


def _memory_text(design: Design, closed_form: Mapping[str, float]) -> str:
    """Return the numbers of a design without memory for a cache, "" for others."""
    from dse.doors import SERVING
    from dse.views.studies import presentation_of

    lacks_memory = int(closed_form["infeasible_reason"]) & int(SERVING.memory_reasons)
    return presentation_of(SERVING).reason_numbers(design, closed_form)["memory"] if lacks_memory else ""


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
            f"overloaded: {digits(rate)} requests/s arrive, {utilisation:.3g} times what can be served; {queue}: "
            "latencies grow with the length of the run"
        )
    return f"the queue grows: {digits(rate)} requests/s arrive; {queue}" if queue_grows(figures) else ""


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


def _latency_table(figures: Mapping[str, Any], closed_figures: Mapping[str, float]) -> Table:
    """Return the table of latencies by statistic, each above that of the closed forms where there are any."""
    rows = []
    for heading, name in _LATENCIES.items():
        rows.append({"latency": heading, **{column: figures[f"{column}_{name}"] for column in _STATISTICS}})
        if closed_figures:
            names = {column: name if column == "mean" else f"{column}_{name}" for column in _STATISTICS}
            values = {column: closed_figures.get(closed_name) for column, closed_name in names.items()}
            rows.append({"latency": "  closed form", **values})
    columns = [Column(name, name, _seconds_text) for name in _STATISTICS]
    return Table("latencies", [Column("", "latency", left=True), *columns], rows)


def _use_texts(figures: Mapping[str, Any], closed_figures: Mapping[str, float]) -> Iterator[str]:
    """Yield lines on throughput, engine and cache."""
    rate = f"{figures['requests_per_second']:,.3g} requests/s, {figures['output_tokens_per_second']:,.1f} tokens/s"
    hits = f"{100 * figures['cache_hit_rate']:.1f} % of prompt tokens found in it"
    if closed_figures:
        rate += f" (closed form: {closed_figures['output_tokens_per_second']:,.1f} tokens/s)"
        hits += f" (closed form: {100 * closed_figures['cache_hit_rate']:.1f} %)"
    yield f"{rate}; {counted(figures['requests'], 'request')} counted"
    yield (
        f"engine busy {100 * figures['busy']:.1f} % of the time, {figures['decoding']:,.1f} sequences decode at once, "
        f"{100 * figures['prefill_share']:.1f} % of {counted(figures['steps'], 'step')} with prompts"
    )
    preempted = counted(figures["preemptions"], "preemption")
    yield (
        f"cache: {100 * figures['cache_use']:.1f} % used, {100 * figures['peak_cache_use']:.1f} % at peak; "
        f"{hits}; {preempted}"
    )


def _seconds_text(value: float) -> str:
    """Format seconds, "no end" where infinite."""
    return seconds(value) if math.isfinite(value) else "no end"
