"""``dse trace``: timeline of the step of one design, as a file for trace viewers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dse.cli import show
from dse.cli.evaluate import design_line, design_of, leaf_values
from dse.cli.options import AnyOption, Devices, Force, Settings, Stack, System, Workload
from dse.cli.status import report_errors


@report_errors
def trace(
    workload: Workload,
    system: System,
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON file to write, for ui.perfetto.dev.")],
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    force: Force = False,
) -> None:
    """Write one step of a design as a timeline.

    Every pass of every stage by its schedule, messages, and memory by part: a Chrome trace in JSON, which
    ui.perfetto.dev and chrome://tracing show. Prints the step time event by event, and that of the closed forms of
    dse evaluate.
    """
    from dse.doors.study_training import TRAINING
    from dse.io.outputs import checked
    from dse.views.trace import memory, perfetto
    from dse.views.trace.step import step_of

    checked(output, force)
    to_serve = "leave it out: a trace is one of a training step"
    asked = design_of(workload, system, settings, n_devices, software, any_option, TRAINING, to_serve)
    for text in asked.readings:
        show.note(text)
    step, described = step_of(asked.design), design_line(workload, system, asked.stack, asked.design, TRAINING)
    times = {"step_time": step.total, "model_step_time": step.model_time}
    about = {"design": described.strip(), **times, "leaves": leaf_values(asked.design)}
    perfetto.write(step, about, output, force, memory.uses(step, asked.design))
    passes = sum(len(event.slot) for event in step.timeline.events)
    difference = step.total / step.model_time - 1.0
    print(described.strip())
    print(
        f"step {show.seconds(step.total)} event by event, {show.seconds(step.model_time)} in closed form: "
        f"{100.0 * difference:+.2f} %"
    )
    print(f"written: {output} ({passes:,} passes on {len(step.plan.orders)} stages)")
