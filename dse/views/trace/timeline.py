"""Event-driven scheduler: start and end of the passes of a plan."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from dse.errors import InputError
from dse.views.trace.orders import PassKind, PipelineOrders, Slot, Task, receiver_of, source_of

#: Gaps and overlaps below this share of the time are rounding errors.
_ROUNDING = 1e-12


class Durations(NamedTuple):
    """Seconds of passes per micro-batch, by chunk along the model."""

    forward: Sequence[float]
    input_gradient: Sequence[float]
    weight_gradient: Sequence[float]
    hidden: Sequence[float] | None = None  # saved by a pair, forward and backward together
    receive: float = 0.0  # wait of a device per message from another one
    latency: float = 0.0  # of a message

    def seconds(self, task: Task) -> float:
        """Return the seconds of a single pass."""
        kind, chunk = task.kind, task.chunk
        if kind is PassKind.forward:
            return self.forward[chunk]
        if kind is PassKind.backward:
            return self.input_gradient[chunk] + self.weight_gradient[chunk]
        return (self.input_gradient if kind is PassKind.input_gradient else self.weight_gradient)[chunk]

    def saved(self, slot: Slot) -> float:
        """Return the seconds that a pair of passes in one slot saves, 0 for a single pass."""
        if self.hidden is None or len(slot) == 1:
            return 0.0
        return sum(self.hidden[task.chunk] for task in slot) / len(slot)


class Event(NamedTuple):
    """A slot of a device with start and end in seconds, the first ``received`` of which it waits for messages."""

    device: int
    slot: Slot
    start: float
    end: float
    received: float = 0.0


class Timeline(NamedTuple):
    """Slots of all devices of a pipeline in a step, in order of their starts."""

    events: list[Event]

    @property
    def makespan(self) -> float:
        """Seconds from the first forward to the end of the last pass."""
        return max(event.end for event in self.events)

    def busy(self, device: int) -> float:
        """Return the seconds of the slots of a device, waits for their messages included."""
        return sum(event.end - event.start for event in self.events if event.device == device)

    def in_flight(self, device: int, sizes: Sequence[float] | None = None) -> float:
        """Return the peak number of chunks of activations on a device, or the peak sum of ``sizes`` by chunk."""
        size_in_flight = peak_size = 0.0
        for event in (e for e in self.events if e.device == device):
            size_by_task = {task: 1.0 if sizes is None else sizes[task.chunk] for task in event.slot}
            size_in_flight += sum(size for task, size in size_by_task.items() if task.kind is PassKind.forward)
            peak_size = max(peak_size, size_in_flight)
            size_in_flight -= sum(size for task, size in size_by_task.items() if task.frees_activations)
        return peak_size

    def critical_path(self, chunks: int) -> list[Event]:
        """Return the slots that determine the end of the step, first to last.

        Each starts at the end of the one before it. Of two slots with equal ends, the one on the same device. Only a
        deferred weight gradient may start later, in a gap.

        Args:
            chunks: chunks of the whole model.
        """
        predecessors: list[int | None] = []
        last: dict[int, int] = {}
        outputs: dict[tuple[bool, int, int], int] = {}
        for event_index, event in enumerate(self.events):
            inputs = [source_of(task, chunks) for task in event.slot]
            sources = [last[event.device]] if event.device in last else []
            sources += [outputs[_output(task)] for task in inputs if task is not None and _output(task) in outputs]
            predecessors.append(max(sources, key=lambda source: self.events[source].end, default=None))
            last[event.device] = event_index
            outputs |= {_output(task): event_index for task in event.slot if task.kind is not PassKind.weight_gradient}
        index: int | None = max(range(len(self.events)), key=lambda number: self.events[number].end)
        path = []
        while index is not None:
            path.append(self.events[index])
            index = predecessors[index]
        return path[::-1]


def simulate(plan: PipelineOrders, durations: Durations) -> Timeline:
    """Schedule the passes of a pipeline event by event.

    Each device runs its slots in order, once their inputs arrive. A deferred weight gradient runs in a gap that it
    fits into, when a forward needs its memory, or at the end. Gaps of unknown length are filled immediately in one run
    and never in another, of which the shorter step counts.

    Args:
        plan: order of the passes on each device.
        durations: seconds of the passes.

    Returns:
        Starts and ends of all passes, seconds from the start of the step.

    Raises:
        InputError: for stages that wait for each other.
    """
    if not plan.defers:
        return _TimelineRun(plan, durations, eager=True).timeline()
    timelines = [_TimelineRun(plan, durations, eager).timeline() for eager in (True, False)]
    return min(timelines, key=lambda timeline: timeline.makespan)


class _TimelineRun:
    """State of one simulation, which advances in order of time."""

    def __init__(self, plan: PipelineOrders, durations: Durations, eager: bool) -> None:
        self.plan, self.durations, self.eager = plan, durations, eager
        self.pending = [deque(order) for order in plan.orders]
        self.free_from = [0.0] * len(plan.orders)
        self.chunks_in_flight = [0] * len(plan.orders)
        self.deferred: list[deque[Task]] = [deque() for _ in plan.orders]
        self.output_times: dict[tuple[bool, int, int], float] = {}
        self.events: list[Event] = []
        #: (time, 1 for fills of gaps, device)
        self.wakes: list[tuple[float, int, int]] = [(0.0, 0, device) for device in range(len(plan.orders))]

    def timeline(self) -> Timeline:
        """Run all events and return the timeline."""
        while self.wakes:
            now, fills_gap, device = heapq.heappop(self.wakes)
            if now >= self.free_from[device]:
                self._decide(now, device, bool(fills_gap))
        if any(self.pending) or any(self.deferred):
            raise InputError("trace", "stages that wait for each other", "a schedule that ends", "change the schedule")
        return Timeline(sorted(self.events, key=lambda event: (event.start, event.device)))

    def _decide(self, now: float, device: int, fills_gap: bool) -> None:
        """Start what a device runs at ``now`` (s), or wake it later."""
        waiting, order = self.deferred[device], self.pending[device]
        if not order:
            if waiting:
                self._start(now, device, (waiting.popleft(),), 0)
            return
        slot = order[0]
        ready, message_count = self._arrival(slot, device)
        if waiting and self._is_memory_full(slot, device):
            self._start(now, device, (waiting.popleft(),), 0)
        elif ready is not None and ready <= now * (1.0 + _ROUNDING):
            order.popleft()
            self._start(now, device, slot, message_count)
        elif waiting and not fills_gap:
            heapq.heappush(self.wakes, (now, 1, device))  # after all slots that start now
        elif waiting and self._fits_gap(now, ready, self.durations.seconds(waiting[0])):
            self._start(now, device, (waiting.popleft(),), 0)
        elif ready is not None:
            heapq.heappush(self.wakes, (ready, 0, device))

    def _fits_gap(self, now: float, ready: float | None, length: float) -> bool:
        """Return True if ``length`` s fit before ``ready`` or delay it by less than half; ``eager`` if unknown."""
        if ready is None:
            return self.eager
        return now + length - ready < 0.5 * length

    def _is_memory_full(self, slot: Slot, device: int) -> bool:
        """Return True if a forward would exceed the schedule's limit of chunks of activations."""
        forward = any(task.kind is PassKind.forward for task in slot)
        return self.plan.most is not None and forward and self.chunks_in_flight[device] >= self.plan.most

    def _arrival(self, slot: Slot, device: int) -> tuple[float | None, int]:
        """Return (s when the inputs of a slot arrive, None if unknown; how many come from other devices)."""
        latest, message_count = 0.0, 0
        for task in slot:
            source = source_of(task, self.plan.chunks)
            if source is None:
                continue
            if _output(source) not in self.output_times:
                return None, 0
            is_foreign = self.plan.place(source) != device
            message_count += is_foreign
            latest = max(latest, self.output_times[_output(source)] + is_foreign * self.durations.latency)
        return latest, message_count

    def _start(self, now: float, device: int, slot: Slot, message_count: int) -> None:
        """Start a slot on a device at ``now`` (s), and wake those that wait for its outputs."""
        received = message_count * self.durations.receive
        end = now + received + sum(map(self.durations.seconds, slot)) - self.durations.saved(slot)
        self.free_from[device] = end
        self.events.append(Event(device, slot, now, end, received))
        for task in slot:
            self.chunks_in_flight[device] += (task.kind is PassKind.forward) - task.frees_activations
            if task.kind is PassKind.weight_gradient:
                continue
            self.output_times[_output(task)] = end
            if task.kind is PassKind.input_gradient and self.plan.defers:
                self.deferred[device].append(task._replace(kind=PassKind.weight_gradient))
            if receiver := receiver_of(task, self.plan.chunks):  # is woken when the output arrives
                next_device = self.plan.place(receiver)
                heapq.heappush(self.wakes, (end + (next_device != device) * self.durations.latency, 0, next_device))
        heapq.heappush(self.wakes, (end, 0, device))


def _output(task: Task) -> tuple[bool, int, int]:
    """Return the key of the output of a pass: (whether activations, micro-batch, chunk)."""
    return task.kind is PassKind.forward, task.micro_batch, task.chunk
