"""Memory of the devices of a pipeline over a step: state and buffers that stay, activations of micro-batches in flight.

Layers times micro-batches in flight come from the event-driven schedule, bytes of each from the model
(:func:`dse.model.accounts.memory.stage_memory`); both meet at the predicted peak.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dse.equations import ScalarFunction
from dse.types import Design, Schedule
from dse.types.trees import tree_map
from dse.views.trace.orders import PassKind
from dse.views.trace.step import ScheduledStep

#: Parts that are kept with the micro-batches in flight, of layers and of the ends of the model; the others stay.
CHANGING = _OF_LAYERS, _OF_ENDS = "activations", "logits"


class MemoryUse(NamedTuple):
    """Memory of a device from a time until the next record of the device."""

    device: int
    time: float  #: s
    parts: dict[str, float]  #: part → B

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum(self.parts.values())


@functools.cache
def _program() -> Callable[[Design], tuple[Any, Any]]:
    """Return the program from a design to (memory by part, layers in flight) of first, second and last stage."""

    def numbers(design: Design) -> tuple[Any, None]:
        from dse.doors.evaluation import stage_memories

        return stage_memories(design), None

    return ScalarFunction(numbers, "stage memories")


def memory_uses(step: ScheduledStep, design: Design) -> Iterator[MemoryUse]:
    """Yield the memory of each device whenever it changes, in order of time, device by device."""
    stages = _program()(tree_map(float, design))[0]
    devices = len(step.plan.orders)
    ends = (0, devices - 1) if design.mapping.schedule == float(Schedule.dualpipe) else (0,)
    for device in range(devices):
        last = device == devices - 1 and devices > 1 and not step.plan.folds
        memory, layers_in_flight = stages[0 if device in ends else 2 if last else 1]
        parts = {name: float(value) for name, value in memory._asdict().items()}
        bytes_per_layer = parts[_OF_LAYERS] / max(float(layers_in_flight), 1e-30)
        yield from _device_uses(step, device, parts, bytes_per_layer)


def _device_uses(
    step: ScheduledStep, device: int, parts: dict[str, float], bytes_per_layer: float
) -> Iterator[MemoryUse]:
    """Yield the memory of a device at 0 s and after each change: activations grow and shrink, other parts stay."""
    changes = sorted(_changes(step, device), key=lambda change: change[:2])
    peak_count = max((n for _, n, _ in _running_totals(changes)), default=0)
    for time, count, layers in [(0.0, 0, 0.0), *_running_totals(changes)]:
        changing_parts = {_OF_LAYERS: bytes_per_layer * layers, _OF_ENDS: parts[_OF_ENDS] * count / max(peak_count, 1)}
        yield MemoryUse(device, time, parts | changing_parts)


def _changes(step: ScheduledStep, device: int) -> Iterator[tuple[float, int, float]]:
    """Yield (time in s, change of chunks in flight, change of their layers) of a device."""
    for event in (event for event in step.timeline.events if event.device == device):
        for task in event.slot:
            if task.kind is PassKind.forward:
                yield event.start, 1, step.layers[task.chunk]
            elif task.frees_activations:
                yield event.end, -1, -step.layers[task.chunk]


def _running_totals(changes: list[tuple[float, int, float]]) -> Iterator[tuple[float, int, float]]:
    """Yield (time in s, chunks, layers) in flight after each change."""
    count, layers = 0, 0.0
    for time, chunk_change, layer_change in changes:
        count, layers = count + chunk_change, layers + layer_change
        yield time, count, layers
