"""``dse trace``: timeline of the step of one design, as a file for trace viewers, or as traces of its ranks."""

from __future__ import annotations

from enum import StrEnum
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


class TraceFormat(StrEnum):
    """What a trace is for: viewers, readers of profiles of PyTorch, or network simulators."""

    chrome = "chrome"
    kineto = "kineto"
    chakra = "chakra"


@report_errors
def trace(
    workload: Workload,
    system: System,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="JSON file to write; of chakra PREFIX of PREFIX.RANK.et.")
    ],
    settings: Settings = None,
    n_devices: Devices = None,
    software: Stack = None,
    any_option: AnyOption = False,
    written_as: Annotated[
        TraceFormat,
        typer.Option("--format", help="chrome: the stages; kineto: kernels of one rank; chakra: nodes of all ranks."),
    ] = TraceFormat.chrome,
    rank: Annotated[int, typer.Option(min=0, help="Rank, of kineto.")] = 0,
    force: Force = False,
) -> None:
    """Write one step of a design as a timeline.

    Every pass of every stage by its schedule, messages, and memory by part: a Chrome trace in JSON, which
    ui.perfetto.dev and chrome://tracing show. Prints the step time event by event, and that of the closed forms of
    dse evaluate. As kineto every kernel and message of one rank, as the PyTorch profiler writes them: dse diagnose and
    dse validate --profile read it. As chakra compute and messages of every rank, as Chakra execution traces, which
    network simulators (ASTRA-sim) replay.
    """
    from dse.doors.study_training import TRAINING
    from dse.io.outputs import checked
    from dse.views.trace import chakra, memory, perfetto
    from dse.views.trace.step import step_of

    checked(output, force)
    to_serve = "leave it out: a trace is one of a training step"
    asked = design_of(workload, system, settings, n_devices, software, any_option, TRAINING, to_serve)
    for text in asked.readings:
        show.note(text)
    step, described = step_of(asked.design), design_line(workload, system, asked.stack, asked.design, TRAINING)
    times = {"step_time": step.total, "model_step_time": step.model_time}
    about = {"design": described.strip(), **times, "leaves": leaf_values(asked.design)}
    match written_as:
        case TraceFormat.kineto:
            written = _write_kineto(step, asked.design, rank, system, about, output, force)
        case TraceFormat.chakra:
            ranks, nodes = chakra.write(step, asked.design, described.strip(), output, force)
            written = f"{nodes:,} nodes of {ranks:,} ranks"
        case _:
            perfetto.write(step, about, output, force, memory.uses(step, asked.design))
            passes = sum(len(event.slot) for event in step.timeline.events)
            written = f"{passes:,} passes on {show.counted(len(step.plan.orders), 'stage')}"
    difference = step.total / step.model_time - 1.0
    print(described.strip())
    print(
        f"step {show.seconds(step.total)} event by event, {show.seconds(step.model_time)} in closed form: "
        f"{100.0 * difference:+.2f} %"
    )
    print(f"written: {output} ({written})")
    _say_infeasible(asked.design)


def _say_infeasible(design: Design) -> None:
    """Say why a design cannot run, whose trace shows all the same what a step would be."""
    from dse.doors.scalars import evaluate
    from dse.doors.study_training import TRAINING

    metrics = evaluate(design)
    held = {name: float(getattr(metrics, name)) for name in ("peak_memory", "host_memory")}
    numbers = TRAINING.reason_numbers(design, held)
    for name in TRAINING.reasons_in(int(metrics.infeasible_reason)):
        show.note(f"cannot run: {numbers.get(name, TRAINING.reason_meanings[name])}")


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
    kernels = show.counted(len(found.kernels), "kernel")
    return f"{kernels} of rank {rank}, stage {place.stage} of {len(step.plan.orders)}"
