"""A step as a Chrome trace, for Perfetto (ui.perfetto.dev) and chrome://tracing.

One process per stage, one thread per lane: passes, then a lane per kind of message; and counters of its memory. Times
are microseconds from the first forward (Trace Event Format, complete events ``X``, counters ``C``, metadata ``M``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.io import chrome_trace
from dse.io.chrome_trace import MICROSECONDS
from dse.views.trace.memory import CHANGING, MemoryUse
from dse.views.trace.orders import PassKind, Task, receiver_of
from dse.views.trace.step import MESSAGES, ScheduledStep
from dse.views.trace.timeline import Event

#: Lanes of a stage by name; lanes without messages are hidden.
_COMPUTE = "compute"
_MESSAGE_LANES = {"tensor": "tensor parallel", "experts": "expert parallel", "context": "context parallel"}
_INPUTS, _OUTPUTS, _GRADIENTS, _DATA = "stage input", "stage output", "stage gradient", "data parallel"
_LANES = (_COMPUTE, *_MESSAGE_LANES.values(), _INPUTS, _OUTPUTS, _GRADIENTS, _DATA)

#: Colours of passes, by names of the viewers.
_COLOURS = {
    PassKind.forward: "thread_state_running",
    PassKind.backward: "thread_state_iowait",
    PassKind.input_gradient: "rail_animation",
    PassKind.weight_gradient: "rail_idle",
}


def write(
    step: ScheduledStep, about: Mapping[str, Any], path: str | Path, force: bool = False, uses: Iterable[MemoryUse] = ()
) -> None:
    """Write the Chrome trace of a step and its memory as JSON, with ``about`` as metadata."""
    chrome_trace.write(itertools.chain(events(step), counters(uses)), about, path, force)


def counters(uses: Iterable[MemoryUse]) -> Iterator[dict[str, Any]]:
    """Yield counter events in GB: constant parts once per device, activations and the total as they change."""
    device = -1
    for use in uses:
        header = {"ph": "C", "pid": use.device, "tid": 0, "ts": round(use.time * MICROSECONDS, 3)}
        if use.device != device:
            device = use.device
            constant_parts = {name: _gigabytes(size) for name, size in use.parts.items() if name not in CHANGING}
            yield {**header, "name": "state and buffers, GB", "args": constant_parts}
        changing_parts = {name: _gigabytes(use.parts[name]) for name in CHANGING}
        yield {**header, "name": "activations, GB", "args": changing_parts}
        yield {**header, "name": "memory, GB", "args": {"total": _gigabytes(use.total)}}


def _gigabytes(size: float) -> float:
    """Convert bytes to GB (1e9), rounded to seven digits."""
    return float(f"{1e-9 * size:.7g}")


def events(step: ScheduledStep) -> Iterator[dict[str, Any]]:
    """Yield the events of a Chrome trace as JSON-ready dictionaries, names of stages and lanes first."""
    devices = range(len(step.plan.orders))
    lanes = {_COMPUTE, *(lane for kind, lane in _MESSAGE_LANES.items() if any(step.exposed[kind]))}
    lanes |= {_INPUTS, _OUTPUTS, _GRADIENTS} if step.message and len(devices) > 1 else set()
    lanes |= {_DATA} if step.data_parallel or step.synchronization else set()
    for device in devices:
        yield _metadata_event("process_name", device, 0, f"stage {device}")
        yield {"ph": "M", "name": "process_sort_index", "pid": device, "args": {"sort_index": device}}
        for lane, name in enumerate(_LANES):
            if name in lanes:
                yield _metadata_event("thread_name", device, lane, name)
                yield {"ph": "M", "name": "thread_sort_index", "pid": device, "tid": lane, "args": {"sort_index": lane}}
    lane_end: dict[tuple[int, str], float] = {}
    for event in step.timeline.events:
        yield from _slot_events(event, step)
        yield from _send_events(event, step, lane_end)
    yield from _end_events(step, devices)


def _metadata_event(event_name: str, device: int, lane: int, name: str) -> dict[str, Any]:
    """Return the event that names a stage (device) or a lane of it."""
    return {"ph": "M", "name": event_name, "pid": device, "tid": lane, "args": {"name": name}}


def _complete_event(name: str, device: int, lane: str, start: float, seconds: float, **extra: Any) -> dict[str, Any]:
    """Return an event of a lane with start and duration in microseconds, from seconds."""
    return {
        "ph": "X",
        "name": name,
        "cat": lane,
        "pid": device,
        "tid": _LANES.index(lane),
        "ts": round(start * MICROSECONDS, 3),
        "dur": round(seconds * MICROSECONDS, 3),
        **extra,
    }


def _slot_events(event: Event, step: ScheduledStep) -> Iterator[dict[str, Any]]:
    """Yield the events of a pass, or a pair of them, with its messages and the wait before it."""
    start, slot = event.start + event.received, event.slot
    if event.received:
        yield _complete_event("wait for message", event.device, _INPUTS, event.start, event.received)
    name = " | ".join(f"{task.kind} {task.micro_batch}" for task in slot)
    keys = ("pass", "micro_batch", "chunk", "layers")
    passes = [dict(zip(keys, (*task, step.layers[task.chunk]), strict=True)) for task in slot]
    extra = {"cname": _COLOURS[slot[-1].kind], "args": {"passes": passes} if len(slot) > 1 else passes[0]}
    yield _complete_event(name, event.device, _COMPUTE, start, event.end - start, **extra)
    yield from _message_events(event, step)


def _send_events(event: Event, step: ScheduledStep, lane_end: dict[tuple[int, str], float]) -> Iterator[dict[str, Any]]:
    """Yield the events of messages of a slot to other stages; ``lane_end`` (seconds) is updated."""
    for task in event.slot:
        if step.message and _is_sent(task, event.device, step):
            lane = _OUTPUTS if task.kind is PassKind.forward else _GRADIENTS
            start = max(event.end, lane_end.get((event.device, lane), 0.0))
            lane_end[event.device, lane] = start + step.message
            yield _complete_event(f"send {task.micro_batch}", event.device, lane, start, step.message)


def _message_events(event: Event, step: ScheduledStep) -> Iterator[dict[str, Any]]:
    """Yield the events of exposed or hidden messages of a slot's layers, drawn at its end."""
    end, is_pair = event.end, len(event.slot) > 1
    for kind in MESSAGES:
        seconds = sum(_exposed_seconds(task, step.exposed[kind], step) for task in event.slot)
        seconds = min(seconds, end - event.start - event.received)
        if seconds > 0.0:
            is_hidden = is_pair and kind == "experts" and step.hidden > 0.0
            name = f"{_MESSAGE_LANES[kind]}, behind the other pass" if is_hidden else f"{_MESSAGE_LANES[kind]}, exposed"
            yield _complete_event(name, event.device, _MESSAGE_LANES[kind], end - seconds, seconds)
            end -= 0.0 if is_hidden else seconds


def _exposed_seconds(task: Task, seconds: tuple[float, float], step: ScheduledStep) -> float:
    """Return the message seconds of a pass from (forward, backward) seconds per layer, 0 for a weight gradient."""
    layers = step.layers[task.chunk]
    if task.kind is PassKind.weight_gradient:
        return 0.0
    return layers * seconds[task.kind is not PassKind.forward]


def _is_sent(task: Task, device: int, step: ScheduledStep) -> bool:
    """Return True if the output of a pass goes to another device."""
    receiver = receiver_of(task, step.plan.chunks)
    return receiver is not None and step.plan.place(receiver) != device


def _end_events(step: ScheduledStep, devices: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Yield the events after the last pass of each device: wait for replicas, exposed reduction, optimiser."""
    makespan, end_s = step.timeline.makespan, step.passes_end
    for device in devices:
        if step.synchronization:
            yield _complete_event("wait for other replicas", device, _DATA, makespan, step.synchronization)
        if step.data_parallel:
            yield _complete_event("gradients and weights, exposed", device, _DATA, end_s, step.data_parallel)
        if step.optimizer:
            yield _complete_event("optimiser", device, _COMPUTE, end_s + step.data_parallel, step.optimizer)
