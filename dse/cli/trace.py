"""``dse trace``: timeline of the step of one design, as a file for trace viewers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dse.cli import show
from dse.cli.evaluate import design_line, design_of, leaf_values
from dse.cli.options import AnyOption, Devices, Force, Settings, Stack, System, Workload
from dse.cli.status import report_errors

if TYPE_CHECKING:
    from dse.types import Design
    from dse.views.trace.step import Step


@report_errors
def trace(
    workload: Workload,
    system: System,
    output: Annotated[Path, typer.Option("--output", "-o", help="JSON file to write, for ui.perfetto.dev.")],
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    kineto: Annotated[
        bool, typer.Option("--kineto", help="Write what a profile of PyTorch has: kernels and messages of one rank.")
    ] = False,
    rank: Annotated[int, typer.Option(min=0, help="Rank whose profile is written.")] = 0,
    force: Force = False,
) -> None:
    """Write one step of a design as a timeline.

    Every pass of every stage by its schedule, and messages: a Chrome trace in JSON, which ui.perfetto.dev and
    chrome://tracing show. Prints the step time event by event, and that of the closed forms of dse evaluate.
    With --kineto every kernel and message of one rank, as the PyTorch profiler writes them: dse diagnose and
    dse validate --profile read it.
    """
    from dse.doors.study_training import TRAINING
    from dse.io.outputs import checked
    from dse.views.trace import perfetto
    from dse.views.trace.step import step_of

    checked(output, force)
    to_serve = "leave it out: a trace is one of a training step"
    asked = design_of(workload, system, settings, n_devices, software, any_option, TRAINING, to_serve)
    for text in asked.readings:
        show.note(text)
    step, described = step_of(asked.design), design_line(workload, system, asked.stack, asked.design, TRAINING)
    times = {"step_time": step.total, "model_step_time": step.model_time}
    about = {"design": described.strip(), **times, "leaves": leaf_values(asked.design)}
    if kineto:
        written = _write_kineto(step, asked.design, rank, system, about, output, force)
    else:
        perfetto.write(step, about, output, force)
        passes = sum(len(event.slot) for event in step.timeline.events)
        written = f"{passes:,} passes on {len(step.plan.orders)} stages"
    difference = step.total / step.model_time - 1.0
    print(described.strip())
    print(
        f"step {show.seconds(step.total)} event by event, {show.seconds(step.model_time)} in closed form: "
        f"{100.0 * difference:+.2f} %"
    )
    print(f"written: {output} ({written})")


def _write_kineto(
    step: Step, design: Design, rank: int, system: str, about: dict[str, Any], output: Path, force: bool
) -> str:
    """Write the step of a rank, and say what is written."""
    from dse.designs.calibrated import accelerator_of
    from dse.errors import InputError
    from dse.views.trace import kineto
    from dse.views.trace.kernels import device_step

    place = kineto.place_of(design, rank)
    if rank >= place.world:
        raise InputError("--rank", str(rank), f"0 to {place.world - 1}", "name a rank of the design")
    found = device_step(design, place.stage, step)
    device = "NVIDIA " + (accelerator_of(system) or system).upper().replace("-", " ")
    kineto.write(found, design, rank, output, device, about, force)
    return f"{len(found.kernels):,} kernels of rank {rank}, stage {place.stage} of {len(step.plan.orders)}"
