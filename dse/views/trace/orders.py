"""Order of passes on the devices of a pipeline, by schedule."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from dse.types import Schedule


class PassKind(StrEnum):
    """A pass over one chunk of the model and one micro-batch."""

    forward = "forward"
    backward = "backward"  # input and weight gradients
    input_gradient = "input gradient"
    weight_gradient = "weight gradient"


class Task(NamedTuple):
    """A pass of one micro-batch through one chunk of the model, counted from 0 along it."""

    kind: PassKind
    micro_batch: int
    chunk: int

    @property
    def frees_activations(self) -> bool:
        """True for the last pass that reads the activations of its chunk."""
        return self.kind in (PassKind.backward, PassKind.weight_gradient)


def source_of(task: Task, chunks: int) -> Task | None:
    """Return the pass whose output a pass waits for, None for the first chunk's forward; ``chunks`` of the model."""
    kind, micro_batch, chunk = task
    if kind is PassKind.forward:
        return Task(kind, micro_batch, chunk - 1) if chunk else None
    if kind is PassKind.weight_gradient:
        return Task(PassKind.input_gradient, micro_batch, chunk)
    return Task(kind, micro_batch, chunk + 1) if chunk + 1 < chunks else Task(PassKind.forward, micro_batch, chunk)


def receiver_of(task: Task, chunks: int) -> Task | None:
    """Return the pass of the next chunk that takes the output of a pass, None at the model's ends."""
    chunk = task.chunk + (1 if task.kind is PassKind.forward else -1)
    return None if task.kind is PassKind.weight_gradient or not 0 <= chunk < chunks else task._replace(chunk=chunk)


#: Work of a device at one time: a pass, or a forward and a backward in parallel.
Slot = tuple[Task, ...]


class PipelineOrders(NamedTuple):
    """Order of the passes on each device of a pipeline."""

    orders: list[list[Slot]]  # by device
    chunks: int  # of the whole model
    defers: bool = False  # whether weight gradients are not in the orders but fill gaps
    most: int | None = None  # maximum chunks of activations per device, where the schedule limits them
    folds: bool = False  # whether chunks go along the devices and back
    mirrored_from: int | None = None  # first micro-batch that goes from the last device to the first

    def place(self, task: Task) -> int:
        """Return the index of the device that runs a pass."""
        devices = len(self.orders)
        lap, offset = divmod(task.chunk, devices)
        if self.folds and lap % 2 == 1:
            return devices - 1 - offset
        mirrored = self.mirrored_from is not None and task.micro_batch >= self.mirrored_from
        return devices - 1 - offset if mirrored else offset


def pipeline_orders(schedule: Schedule, stages: int, chunks: int, micro_batches: int) -> PipelineOrders:
    """Return the order of the passes on each device by a schedule.

    Args:
        schedule: of the passes.
        stages: pipeline stages, as many as devices.
        chunks: chunks of the model per device.
        micro_batches: of a step.

    >>> first, second = pipeline_orders(Schedule._1f1b, 2, 1, 2).orders
    >>> [task.kind[0] + str(task.micro_batch) for (task,) in first]
    ['f0', 'f1', 'b0', 'b1']
    >>> [task.kind[0] + str(task.micro_batch) for (task,) in second]
    ['f0', 'b0', 'f1', 'b1']
    """
    devices, n = range(stages), micro_batches
    if stages == 1:
        return PipelineOrders([[*_one_forward_one_backward(0, 0, n)]], chunks)
    match schedule:
        case Schedule.gpipe:
            return PipelineOrders([[*_one_forward_one_backward(d, n, n)] for d in devices], stages)
        case Schedule.zb_h1:
            halves = ([*_one_forward_one_backward(d, stages - d - 1, n, PassKind.input_gradient)] for d in devices)
            return PipelineOrders([*halves], stages, defers=True, most=stages)
        case Schedule.zb_v:
            orders = [zero_bubble(stages, n, d) for d in devices]
            return PipelineOrders(orders, 2 * stages, defers=True, most=2 * stages, folds=True)
        case Schedule.dualpipe:
            return PipelineOrders([dualpipe(stages, n, d) for d in devices], stages, mirrored_from=n // 2)
        case Schedule.dualpipev:
            orders = [dualpipev(stages, n, d, (d, 2 * stages - 1 - d)) for d in devices]
            return PipelineOrders(orders, 2 * stages, folds=True)
        case _ if chunks == 1:
            return PipelineOrders([[*_one_forward_one_backward(d, stages - d - 1, n)] for d in devices], stages)
        case _:
            return PipelineOrders([[*_interleaved(d, stages, chunks, n)] for d in devices], stages * chunks)


def _one_forward_one_backward(
    stage: int, warm_up: int, micro_batches: int, backward_kind: PassKind = PassKind.backward
) -> Iterator[Slot]:
    """Yield warm-up forwards, then alternating forwards and backwards, then the remaining backwards."""
    first = min(warm_up, micro_batches)
    for i in range(first):
        yield (Task(PassKind.forward, i, stage),)
    for i in range(micro_batches - first):
        yield (Task(PassKind.forward, first + i, stage),)
        yield (Task(backward_kind, i, stage),)
    for i in range(micro_batches - first, micro_batches):
        yield (Task(backward_kind, i, stage),)


def _interleaved(stage: int, stages: int, chunks: int, micro_batches: int) -> Iterator[Slot]:
    """Yield the slots of Megatron-LM's interleaved order of a stage (Narayanan et al. 2021, figure 4)."""
    total = micro_batches * chunks
    warm_up = min(2 * (stages - stage - 1) + (chunks - 1) * stages, total)

    def slot(position: int, kind: PassKind) -> Slot:
        group, group_position = divmod(position, stages * chunks)
        chunk = group_position // stages
        if kind is PassKind.backward:
            chunk = chunks - 1 - chunk
        return (Task(kind, group * stages + group_position % stages, chunk * stages + stage),)

    for i in range(warm_up):
        yield slot(i, PassKind.forward)
    for i in range(total - warm_up):
        yield slot(warm_up + i, PassKind.forward)
        yield slot(i, PassKind.backward)
    for i in range(total - warm_up, total):
        yield slot(i, PassKind.backward)


class _Folded:
    """Builder of the order of a device with one chunk in each direction, in the notation of DualPipe's authors."""

    def __init__(self, chunks: tuple[int, int]) -> None:
        self.chunks = chunks
        self.slots: list[Slot] = []
        self._pass_counts = {(kind, side): 0 for kind in (PassKind.forward, PassKind.backward) for side in (0, 1)}
        self._deferred: list[Task] = []

    def _next_task(self, kind: PassKind, side: int) -> Task:
        """Return the next pass of a kind in a direction (0 or 1), micro-batch by micro-batch."""
        micro_batch = self._pass_counts[kind, side]
        self._pass_counts[kind, side] += 1
        return Task(kind, micro_batch, self.chunks[side])

    def forward(self, side: int) -> None:
        """Append the next forward of a direction (0 or 1)."""
        self.slots.append((self._next_task(PassKind.forward, side),))

    def backward(self, side: int, split: bool = False) -> None:
        """Append the next backward of a direction; ``split`` defers its weight gradient."""
        task = self._next_task(PassKind.backward, side)
        if split:
            self._deferred.append(task._replace(kind=PassKind.weight_gradient))
            task = task._replace(kind=PassKind.input_gradient)
        self.slots.append((task,))

    def weight_gradient(self) -> None:
        """Append the first weight gradient of those deferred."""
        self.slots.append((self._deferred.pop(0),))

    def pair(self, forward: int, backward: int) -> None:
        """Append one slot of the next forward and the next backward, of these two directions."""
        self.slots.append((self._next_task(PassKind.forward, forward), self._next_task(PassKind.backward, backward)))


def dualpipev(stages: int, micro_batches: int, device: int, chunks: tuple[int, int]) -> list[Slot]:
    """Return the slots of DualPipeV's order of a device in eight steps (deepseek-ai/DualPipe, ``dualpipev.py``)."""
    order, inner = _Folded(chunks), stages - device - 1
    for _ in range(2 * inner):
        order.forward(0)
    for _ in range(device + 1):
        order.forward(0)
        order.forward(1)
    for _ in range(inner):
        order.backward(1, split=True)
        order.weight_gradient()
        order.forward(1)
    for i in range(micro_batches - 2 * stages + device + 1):
        if i == 0 and inner == 0:  # at the fold both are the same micro-batch
            order.forward(0)
            order.backward(1)
        else:
            order.pair(0, 1)
        order.pair(1, 0)
    for _ in range(inner):
        order.backward(1)
        order.pair(1, 0)
    split = False
    for i in range(device + 1):
        half = i == (device + 1) // 2
        split = split or (half and device % 2 == 1)
        order.backward(1, split)
        split = split or half
        order.backward(0, split)
    for _ in range(inner):
        order.weight_gradient()
        order.backward(0, split=True)
    for _ in range(device + 1):
        order.weight_gradient()
    return order.slots


def dualpipe(stages: int, micro_batches: int, device: int) -> list[Slot]:
    """Return the slots of DualPipe's order of a device (DeepSeek-V3 report 2024, figure 5), half from either end.

    Micro-batches of the second half go from the last device to the first. Chunks are numbered along the model, so a
    device has its own number for the first half and its mirror's for the second.
    """
    half, mirror = micro_batches // 2, stages - 1 - device
    order = dualpipev(stages // 2, half, min(device, mirror), (0, 1))

    def renumbered(task: Task) -> Task:
        direction = task.chunk if device < stages // 2 else 1 - task.chunk
        chunk = device if direction == 0 else mirror
        return Task(task.kind, task.micro_batch + direction * half, chunk)

    return [tuple(renumbered(task) for task in slot) for slot in order]


def zero_bubble(stages: int, micro_batches: int, device: int) -> list[Slot]:
    """Return the slots of ZB-V's order of a device: DualPipeV's passes one by one, for ``2 p`` chunks in flight.

    Weight gradients are not included: they fill gaps.
    """
    slots = dualpipev(stages, micro_batches, device, (device, 2 * stages - 1 - device))
    if device == stages - 1:  # the first pair at the fold, which DualPipeV runs separately
        fold_slot = 2 * stages
        slots[fold_slot], slots[fold_slot + 1] = slots[fold_slot + 1], slots[fold_slot]
    tasks = (task for slot in slots for task in reversed(slot) if task.kind is not PassKind.weight_gradient)
    split = PassKind.input_gradient
    return [(task if task.kind is PassKind.forward else task._replace(kind=split),) for task in tasks]
