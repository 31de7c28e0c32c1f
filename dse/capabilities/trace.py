"""``dse trace``: timeline of the step of one design, as a file for trace viewers, or as traces of its ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from dse.capabilities.designs import DesignOptions, leaf_values
from dse.errors import InputError, unknown_name
from dse.io import counted, plugins, seconds
from dse.reports import Line, Option, Report, capability
from dse.reports.options import Force

if TYPE_CHECKING:
    from dse.types import Design
    from dse.views.trace import ScheduledStep

#: Format of ``--format`` for viewers; others are written by entry points.
CHROME = "chrome"


class TraceRequest(NamedTuple):
    """Arguments of a writer of ``dse.exchange``, which writes ``output`` and describes what it wrote."""

    step: ScheduledStep
    design: Design
    system: str  #: as the user named it
    rank: int
    description: str  #: the design in one line
    about: dict[str, Any]  #: attributes of the file: the design, its leaves and its times
    output: Path
    force: bool


@capability("Show", local="writes a file")
def trace(
    design: DesignOptions,
    output: Annotated[Path, Option(short="-o")],
    written_as: Annotated[str, Option(flag="--format")] = CHROME,
    rank: Annotated[int, Option(low=0)] = 0,
    force: Force = False,
) -> Report:
    """Write one step of a design as a timeline.

    Every pass of every stage by its schedule, messages, and memory by part: a Chrome trace in JSON, which
    ui.perfetto.dev and chrome://tracing show; to .png, .svg or .pdf a picture of the passes with the critical path.
    Prints the step time event by event, and that of the closed forms of dse evaluate. As kineto every kernel and
    message of one rank, as the PyTorch profiler writes them: dse diagnose and dse validate --profile read it. As chakra
    compute and messages of every rank, as Chakra execution traces, which network simulators (ASTRA-sim) replay.

    Args:
        design: Options of the design.
        output: JSON, or a picture (.png, .svg, .pdf); of chakra PREFIX of PREFIX.RANK.et.
        written_as: chrome: the stages; kineto: kernels of one rank; chakra: nodes of all ranks.
        rank: Rank, of kineto.
        force: Replace a file that dse has not written.
    """
    from dse.doors import TRAINING
    from dse.io import check_output
    from dse.views.plot.style import ENDINGS
    from dse.views.trace import schedule_step

    _check_format(written_as)
    if written_as != CHROME and output.suffix.lower() in ENDINGS:
        raise InputError("dse trace --output", f"a picture of {written_as}", f"--format {CHROME}", "leave out --format")
    check_output(output, force)
    to_serve = "leave it out: a trace is one of a training step"
    request = design.request(TRAINING, to_serve)
    step, description = schedule_step(request.design), request.description(request.stack)
    times = {"step_time": step.total, "model_step_time": step.model_time}
    about = {"design": description, **times, "leaves": leaf_values(request.design)}
    contents = _write(
        written_as, TraceRequest(step, request.design, request.system, rank, description, about, output, force)
    )
    times_text = f"step {seconds(step.total)} event by event, {seconds(step.model_time)} in closed form"
    difference = f"{100.0 * (step.total / step.model_time - 1.0):+.2f} %"
    reasons = list(_reasons(request.design))
    document = {**about, "format": written_as, "contents": contents, "output": output, "reasons": reasons}
    lines = (description, f"{times_text}: {difference}", contents)
    notes = [*request.readings, *(f"cannot run: {reason}" for reason in reasons)]
    return Report(document, [*map(Line, lines)], notes, files=[output])


def _check_format(name: str) -> None:
    """Raise an InputError for a format that nothing writes."""
    formats = [CHROME, *plugins.plugins(plugins.EXCHANGE)]
    if name not in formats:
        raise unknown_name("dse trace --format", name, formats, "names")


def _write(written_as: str, request: TraceRequest) -> str:
    """Write a step in a format, or as a picture, and return what the file has."""
    from dse.views.plot.style import ENDINGS
    from dse.views.trace import memory, perfetto

    step, output, force = request.step, request.output, request.force
    if written_as != CHROME:
        return str(plugins.load(plugins.plugins(plugins.EXCHANGE)[written_as])(request))
    if output.suffix.lower() in ENDINGS:
        _draw(step, output, force)
    else:
        perfetto.write(step, request.about, output, force, memory.memory_uses(step, request.design))
    passes = sum(len(event.slot) for event in step.timeline.events)
    return f"{passes:,} passes on {counted(len(step.plan.orders), 'stage')}"


def _draw(step: ScheduledStep, output: Path, force: bool) -> None:
    """Write a picture of a step; raise an InputError without matplotlib."""
    from dse.views.figures import missing_requirement

    if error := missing_requirement():
        raise error
    from dse.views.plot import save, timeline

    save(timeline(step), output, force)


def _reasons(design: Design) -> Iterator[str]:
    """Yield texts on why a design cannot run, none for one that can."""
    from dse.doors import TRAINING, evaluate
    from dse.views.studies import presentation_of

    metrics = evaluate(design)
    memory_metrics = {name: float(getattr(metrics, name)) for name in ("peak_memory", "host_memory")}
    numbers = presentation_of(TRAINING).reason_numbers(design, memory_metrics)
    for name in TRAINING.reasons_in(int(metrics.infeasible_reason)):
        yield numbers.get(name, TRAINING.reason_meanings[name])
