"""Traces of JAX's profiler: ``*.trace.json.gz``, ``perfetto_trace.json.gz`` and ``*.xplane.pb``.

A step is one of the device's own lane ``Steps`` (TPUs), else a ``jax.profiler.StepTraceAnnotation`` of the host, which
has to wait for its results where kernels have no correlation with their launches. Operators are those of the first
device; on a host without one, of the first of XLA's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from dse.measured.profiles import xplane
from dse.measured.profiles.device_steps import Marks
from dse.measured.profiles.kernels import (
    CLASSES,
    COPY_CLASS,
    MESSAGE_CLASS,
    KernelTimes,
    kernel_class,
    profiled_runs,
)
from dse.measured.profiles.kineto import events, span_of
from dse.measured.profiles.messages import TracedMessage
from dse.measured.profiles.run import MeasuredRun

SIGNATURE = re.compile(rb'^\{\s*"displayTimeUnit"\s*:\s*"ns"')

_DEVICE = re.compile(r"/device:(?:GPU|TPU):\d+")
_NUMBER = re.compile(r"[0-9]{1,15}")

#: Lanes of a trace.
_MAX_LANES = 100_000

_STREAM, _OPERATORS, _ASYNC, _STEPS = re.compile(r"Stream #"), "XLA Ops", "Async XLA Ops", "Steps"

#: Operators of HLO that only contain others.
_CONTAINERS = re.compile(r"(?:while|call|conditional|async-(?:start|done))(?:\.\d+)?")
_COLLECTIVES = re.compile(
    r"all-reduce|all-gather|reduce-scatter|all-to-all|collective-(?:permute|broadcast)|\b(?:send|recv)(?:-done)?\b"
)
_CLASSES = {
    "gemm": re.compile(r"\b(?:dot|convolution)\b|^dot_|gemm"),
    "elementwise": re.compile(r"fusion|^wrapped_|reduce"),
}
_COPIED = re.compile(r"^copy(?:-start|-done)?(?:\.\d+)?$|^Memcpy|^(?:in|out)feed")


class _Lane(NamedTuple):
    """Process and name of a thread."""

    process: str
    name: str


class _Lanes:
    """Names of the lanes of a trace, which stand before their events."""

    def __init__(self) -> None:
        self.processes: dict[Any, str] = {}
        self.lanes: dict[tuple[Any, Any], _Lane] = {}
        self.first = ""  #: the first device, "" on a host alone
        self.streams = False  #: whether that has lanes of streams, which its lanes of operators show again

    def add_name(self, event: dict[str, Any], arguments: dict[str, Any]) -> None:
        """Add a name of a process or thread."""
        name, key = str(arguments.get("name"))[:1000], self.thread_key(event)
        if event.get("name") == "process_name":
            self.processes[key[0]] = name
            if _DEVICE.fullmatch(name) and (not self.first or (len(name), name) < (len(self.first), self.first)):
                self.first, self.streams = name, False
        elif event.get("name") == "thread_name" and len(self.lanes) < _MAX_LANES:
            lane = self.lanes[key] = _Lane(self.processes.get(key[0], ""), name)
            self.streams |= bool(lane.process == self.first and self.first and _STREAM.match(name))

    def lane_of(self, event: dict[str, Any]) -> _Lane:
        """Return the lane of an event, without names where it has none."""
        return self.lanes.get(self.thread_key(event), _Lane("", ""))

    @staticmethod
    def thread_key(event: dict[str, Any]) -> tuple[Any, Any]:
        """Return (process, thread) of an event, None for one without."""
        process, thread = (value if isinstance(value := event.get(key), int | str) else None for key in ("pid", "tid"))
        return process, thread

    def is_operator(self, lane: _Lane, arguments: dict[str, Any]) -> bool:
        """Return True where an event of a lane is one of the operators that count."""
        if not self.first:
            return "hlo_op" in arguments and str(arguments.get("device_ordinal", "0")) == "0"
        is_operator_lane = bool(_STREAM.match(lane.name)) if self.streams else lane.name in (_OPERATORS, _ASYNC)
        return lane.process == self.first and is_operator_lane


def read(path: Path, pattern: str = "") -> list[MeasuredRun]:
    """Read the run of a trace: its step time, and ms a step by class of operators.

    Args:
        path: of the trace.
        pattern: of names of marks of steps, in place of numbered steps.
    """
    return _runs(path, events(path, {}), pattern)


def read_planes(path: Path, pattern: str = "") -> list[MeasuredRun]:
    """Read the run of a profile of planes (``*.xplane.pb``), as :func:`read` does that of a trace."""
    return _runs(path, xplane.events(path), pattern)


def _runs(path: Path, trace_events: Iterable[dict[str, Any]], pattern: str) -> list[MeasuredRun]:
    """Return the runs of the events of a trace, in which names of lanes stand before their events."""
    lanes, kernels, marks = _Lanes(), KernelTimes(path), Marks(pattern)
    on_device, on_host = dict[int, tuple[float, float]](), dict[int, tuple[float, float]]()
    for event in trace_events:
        arguments = event["args"] if isinstance(event.get("args"), dict) else {}
        if event.get("ph") == "M":
            lanes.add_name(event, arguments)
        if (span := span_of(event)) is None or not span[1]:
            continue
        lane, name, step_number = (
            lanes.lane_of(event),
            str(event.get("name"))[:1000],
            str(arguments.get("step_num", "")),
        )
        if lane.process == lanes.first and lane.name == _STEPS and _NUMBER.fullmatch(name):
            on_device[int(name)] = span
        elif _NUMBER.fullmatch(step_number):
            on_host.setdefault(int(step_number), span)
        elif lanes.is_operator(lane, arguments) and (label := _label(name, arguments)) is not None:
            message = TracedMessage(name.partition(".")[0][:40]) if label == MESSAGE_CLASS else None
            kernels.add(name, label, *span, message, _correlation(arguments))
        elif correlation := _correlation(arguments):
            kernels.add_launch(correlation, span[0])
        elif pattern:
            marks.add(name, *span)
    if not pattern:
        for numbered, is_device in ((on_device, True), (on_host, False)):
            for number, span in numbered.items():
                marks.add(f"step {number}", *span, is_device)
    mark = 'wrap each in jax.profiler.StepTraceAnnotation("train", step_num=i) and wait for its results in it'
    return profiled_runs("jax-profiler", {}, kernels, marks, mark)


def _correlation(arguments: dict[str, Any]) -> int:
    """Return the correlation of a kernel or of the call of the host that launches it, 0 for other events."""
    text = str(arguments.get("correlation_id", ""))
    return int(text) if _NUMBER.fullmatch(text) else 0


def _label(name: str, arguments: dict[str, Any]) -> int | None:
    """Return the index of the class of an operator, None for one that only contains others."""
    operator = str(arguments.get("hlo_op", name))[:1000]
    if _CONTAINERS.fullmatch(operator) and not _COLLECTIVES.search(name):
        return None
    return _operator_class(name, operator, str(arguments.get("hlo_category", ""))[:100])


@functools.lru_cache(maxsize=10_000)
def _operator_class(name: str, operator: str, category: str) -> int:
    """Return the index of the class of an operator by its kernel, its name in HLO and its category."""
    labels = list(CLASSES)
    if any(_COLLECTIVES.search(text) for text in (category, operator)):
        return labels.index("nccl")
    if _COPIED.search(operator) or _COPIED.search(name):
        return COPY_CLASS
    if (class_index := kernel_class(name)) < len(labels) and labels[class_index] != "elementwise":
        return class_index
    for label, pattern in _CLASSES.items():
        if pattern.search(category) or pattern.search(operator):
            return labels.index(label)
    return class_index
