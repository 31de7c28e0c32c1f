"""Timeline of one design: its schedule with the times of the model, and the end of the step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from dse.doors import TRAINING, evaluate
from dse.equations import ScalarFunction
from dse.errors import InputError
from dse.types import Design, Infeasible, Schedule
from dse.types.trees import tree_map
from dse.views.studies import presentation_of
from dse.views.trace.orders import PipelineOrders, pipeline_orders
from dse.views.trace.timeline import Durations, Timeline, simulate

#: Maximum passes of a timeline, whose trace then has a hundred megabytes.
MOST_PASSES = 200_000

#: Reasons without a schedule; all others leave one.
_NO_SCHEDULE = Infeasible.layers_not_divisible | Infeasible.batch_not_divisible | Infeasible.interleave_not_divisible

#: Kinds of messages of a layer, by the fields of :class:`dse.model.steps.layer.LayerPasses`.
MESSAGES = ("tensor", "experts", "context")


class ScheduledStep(NamedTuple):
    """One training step of a design, event by event."""

    plan: PipelineOrders
    timeline: Timeline
    layers: list[float]  #: per chunk, along the model
    exposed: dict[str, tuple[float, float]]  #: kind of message → exposed s per layer in forward and backward
    hidden: float  #: s of expert messages per layer hidden by a pair
    message: float  #: s per message between stages
    synchronization: float  #: s of waiting for other replicas after the last pass
    data_parallel: float  #: exposed s after that
    optimizer: float  #: s, with loading of its state
    model_time: float  #: step time by the model's closed forms, s
    durations: Durations  #: of its passes

    @property
    def passes_end(self) -> float:
        """End of the last pass of the slowest replica, s."""
        return self.timeline.makespan + self.synchronization

    @property
    def total(self) -> float:
        """Step time by the event-driven schedule, s."""
        return self.passes_end + self.data_parallel + self.optimizer


def schedule_step(design: Design, most: int = MOST_PASSES) -> ScheduledStep:
    """Schedule one training step of a design.

    Args:
        design: with plain numbers as leaves.
        most: maximum number of passes.

    Returns:
        The timeline of all stages, seconds, with the numbers that it was made from.

    Raises:
        InputError: where its layers, micro-batches or chunks have no schedule, or a step has more than ``most`` passes.
    """
    _check_schedule(design)
    times, m = _stage_times(design)[0], design.mapping
    schedule = Schedule._1f1b if m.schedule is None else Schedule(int(m.schedule))
    stages, chunks, n = int(m.pp), int(m.virtual_stages), round(float(times.micro_batches))
    passes = n * stages * chunks * 3
    if passes > most:
        raise InputError(
            "trace",
            f"{passes:,} passes: {n:,} micro-batches, {stages * chunks} chunks",
            f"at most {most:,}",
            "a smaller global_batch shows the same pattern: a few micro-batches a stage",
        )
    order = pipeline_orders(schedule, stages, chunks, n)
    layers = _chunk_layers(times, order.chunks)
    durations = _durations(times, order, layers)
    return ScheduledStep(
        plan=order,
        timeline=simulate(order, durations),
        layers=layers,
        exposed={
            kind: (float(getattr(times.exposed, f"{kind}_forward")), float(getattr(times.exposed, f"{kind}_backward")))
            for kind in MESSAGES
        },
        hidden=float(times.hidden),
        message=float(times.message),
        synchronization=float(times.synchronization),
        data_parallel=float(times.data_parallel),
        optimizer=float(times.optimizer) + float(times.update),
        model_time=float(times.step_time),
        durations=durations,
    )


def _check_schedule(design: Design) -> None:
    """Raise an InputError where layers or batch cannot be divided as the mapping says."""
    reasons = int(evaluate(design).infeasible_reason) & int(_NO_SCHEDULE)
    for name in TRAINING.reasons_in(reasons):
        numbers = presentation_of(TRAINING).reason_numbers(design, {"peak_memory": 0.0, "host_memory": 0.0})
        raise InputError("trace", numbers[name], TRAINING.reason_meanings[name], "dse evaluate lists all reasons")


@functools.cache
def _program() -> Callable[[Design], tuple[Any, Any]]:
    """Return the program from a design to the times of its stages."""

    def numbers(design: Design) -> tuple[Any, None]:
        from dse.doors.evaluation import stages

        return stages(design), None

    return ScalarFunction(numbers, "stages")


def _stage_times(design: Design) -> tuple[Any, Any]:
    """Return (times of the passes of a design in s and its layers, None)."""
    return _program()(tree_map(float, design))


def _chunk_layers(times: Any, chunks: int) -> list[float]:
    """Return the number of layers of each chunk along the model, fewer at both ends where these lack some."""
    layers = [float(times.chunk_layers)] * chunks
    layers[0] -= float(times.first_lacks)
    layers[-1] -= float(times.last_lacks)
    return layers


def _durations(times: Any, order: PipelineOrders, layers: list[float]) -> Durations:
    """Return the seconds of the passes of each chunk, stretched where the host launches slower than these run."""
    parts: list[list[float]] = []
    for chunk, count in enumerate(layers):
        dense = min(float(times.dense_layers), count) if chunk == 0 else 0.0
        seconds = [
            (count - dense) * float(a) + dense * float(b) for a, b in zip(times.layer, times.dense_layer, strict=True)
        ]
        launches = count * float(times.launch)
        for is_present, end in ((chunk == 0, times.embedding), (chunk == order.chunks - 1, times.head)):
            if is_present:
                seconds = [a + float(b) for a, b in zip(seconds, end, strict=True)]
                launches += float(times.end_launch)
        forward_seconds, backward_seconds = (
            max(seconds[0], (count - dense) * float(times.awaited)),
            max(sum(seconds[1:]), 1e-30),
        )
        if times.awaited > 0.0:
            stretch = max(1.0, (launches - forward_seconds) / backward_seconds)
            parts.append([forward_seconds, *(stretch * s for s in seconds[1:])])
        else:
            stretch = max(1.0, launches / max(sum(seconds), 1e-30))
            parts.append([stretch * s for s in seconds])
    forward, inputs, weights = ([chunk[which] for chunk in parts] for which in range(3))
    return Durations(
        forward,
        inputs,
        weights,
        hidden=[float(times.hidden) * count for count in layers],
        receive=float(times.message) * float(times.waited),
    )
