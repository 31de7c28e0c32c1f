"""``dse trace``: timeline of the step of one design, as a file for trace viewers, or as traces of its ranks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dse.cli import show
from dse.cli.evaluate import design_line, design_of, leaf_values
from dse.cli.options import AnyOption, Devices, Force, Settings, Stack, System, Workload
from dse.cli.status import report_errors
from dse.errors import InputError, unknown_name
from dse.io import plugins

if TYPE_CHECKING:
    from dse.types import Design
    from dse.views.trace import ScheduledStep


#: Format of ``--format`` for viewers; others are written by entry points.
CHROME = "chrome"


def _check_format(name: str) -> str:
    """Return the name of a format; raise an InputError for one that nothing writes."""
    formats = [CHROME, *plugins.plugins(plugins.EXCHANGE)]
    if name not in formats:
        raise unknown_name("dse trace --format", name, formats, "names")
    return name


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


@report_errors
def trace(
    workload: Workload,
    system: System,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="JSON, or a picture (.png, .svg, .pdf); of chakra PREFIX of PREFIX.RANK.et."
        ),
    ],
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    written_as: Annotated[
        str,
        typer.Option("--format", help="chrome: the stages; kineto: kernels of one rank; chakra: nodes of all ranks."),
    ] = CHROME,
    rank: Annotated[int, typer.Option(min=0, help="Rank, of kineto.")] = 0,
    force: Force = False,
) -> None:
    """Write one step of a design as a timeline.

    Every pass of every stage by its schedule, messages, and memory by part: a Chrome trace in JSON, which
    ui.perfetto.dev and chrome://tracing show; to .png, .svg or .pdf a picture of the passes with the critical path.
    Prints the step time event by event, and that of the closed forms of dse evaluate. As kineto every kernel and
    message of one rank, as the PyTorch profiler writes them: dse diagnose and dse validate --profile read it. As chakra
    compute and messages of every rank, as Chakra execution traces, which network simulators (ASTRA-sim) replay.
    """
    from dse.doors import TRAINING
    from dse.io import check_output
    from dse.views.plot.style import ENDINGS
    from dse.views.trace import memory, perfetto, schedule_step

    _check_format(written_as)
    if written_as != CHROME and output.suffix.lower() in ENDINGS:
        raise InputError("dse trace --output", f"a picture of {written_as}", f"--format {CHROME}", "leave out --format")
    check_output(output, force)
    to_serve = "leave it out: a trace is one of a training step"
    request = design_of(workload, system, settings, n_devices, software, any_option, TRAINING, to_serve)
    for text in request.readings:
        show.note(text)
    step, description = (
        schedule_step(request.design),
        design_line(workload, system, request.stack, request.design, TRAINING),
    )
    times = {"step_time": step.total, "model_step_time": step.model_time}
    attributes = {"design": description.strip(), **times, "leaves": leaf_values(request.design)}
    if written_as == CHROME:
        if output.suffix.lower() in ENDINGS:
            _draw(step, output, force)
        else:
            perfetto.write(step, attributes, output, force, memory.memory_uses(step, request.design))
        passes = sum(len(event.slot) for event in step.timeline.events)
        summary_text = f"{passes:,} passes on {show.counted(len(step.plan.orders), 'stage')}"
    else:
        write = plugins.load(plugins.plugins(plugins.EXCHANGE)[written_as])
        summary_text = write(
            TraceRequest(step, request.design, system, rank, description.strip(), attributes, output, force)
        )
    difference = step.total / step.model_time - 1.0
    print(description.strip())
    print(
        f"step {show.seconds(step.total)} event by event, {show.seconds(step.model_time)} in closed form: "
        f"{100.0 * difference:+.2f} %"
    )
    print(f"written: {output} ({summary_text})")
    _print_reasons(request.design)


def _draw(step: ScheduledStep, output: Path, force: bool) -> None:
    """Write a picture of a step; raise an InputError without matplotlib."""
    from dse.views.figures import missing_requirement

    if error := missing_requirement():
        raise error
    from dse.views.plot import save, timeline

    save(timeline(step), output, force)


def _print_reasons(design: Design) -> None:
    """Print on standard error why a design cannot run, a line per reason; nothing for one that can."""
    from dse.doors import TRAINING, evaluate

    metrics = evaluate(design)
    memory_metrics = {name: float(getattr(metrics, name)) for name in ("peak_memory", "host_memory")}
    numbers = TRAINING.reason_numbers(design, memory_metrics)
    for name in TRAINING.reasons_in(int(metrics.infeasible_reason)):
        show.note(f"cannot run: {numbers.get(name, TRAINING.reason_meanings[name])}")
