"""Traces of the PyTorch profiler (Kineto's Chrome traces), and those that ``dse trace`` writes.

Events are read one after the other from a buffer of some MiB; of a kernel only numbers are kept. What a step is
``device_steps`` says, from annotations and from the launches of kernels; keys of the trace may stand before its events
or after them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.measured.profiles.device_steps import Marks
from dse.measured.profiles.kernels import (
    COPY_CLASS,
    KERNEL_NAMES,
    MESSAGE_CLASS,
    KernelTimes,
    kernel_class,
    name_patterns,
    profiled_runs,
)
from dse.measured.profiles.messages import message_of, positive_int
from dse.measured.profiles.run import (
    ALLOWED,
    Figure,
    MeasuredRun,
    design_cells,
    device_cells,
    number_text,
    read_blocks,
)

SIGNATURE = re.compile(rb'"(?:schemaVersion|deviceProperties|traceEvents)"\s*:')

#: Bytes of a trace, unpacked; of its head; of one event.
LIMIT, _HEAD, _EVENT = 64 << 30, 16 << 20, 4 << 20

#: Categories of events: kernels and copies; calls of the host that launch them; annotations of the device; events that
#: are never a mark.
_KERNELS = ("kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
_LAUNCHES = ("cuda_runtime", "cuda_driver", "Runtime", "privateuse1_runtime")
_DEVICE_MARKS = "gpu_user_annotation"
_UNMARKED = ("python_function", "ac2g", "fwdbwd", "overhead")

#: Words of names of a backward pass or an optimiser.
TRAINING = name_patterns("training")["training"]

#: Group of ranks by its description.
_GROUPS = {column: re.compile(words, re.IGNORECASE) for column, words in KERNEL_NAMES["process_groups"].items()}


def span_of(event: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (start, duration) of a complete event in µs, None for others."""
    start, duration = (_us(event.get(key)) for key in ("ts", "dur"))
    return (start, duration) if event.get("ph") == "X" and start is not None and duration is not None else None


def kernel_label(event: Mapping[str, Any]) -> int | None:
    """Return the index of the class of an event's kernel, None for other events."""
    category = event.get("cat")
    if category not in _KERNELS:
        return None
    return kernel_class(str(event.get("name"))[:1000]) if category in _KERNELS[:2] else COPY_CLASS


class Readings:
    """What a trace has beside its kernels: marks of steps, launches, names of a backward pass.

    Args:
        pattern: of names of marks of steps, in place of the table's.
    """

    def __init__(self, pattern: str = "") -> None:
        self.marks = Marks(pattern)
        self.has_backward = False
        self.vendor = ""  #: of the device, by the calls of the host
        self.memory_bytes = 0  #: peak of memory that tensors take on the device
        self._seen: set[str] = set()

    def launch_of(self, event: Mapping[str, Any], start_us: float) -> tuple[int, float] | None:
        """Return (correlation, time in µs) of a call of the host, None for other events."""
        if event.get("cat") not in _LAUNCHES:
            return None
        if not self.vendor:
            name = str(event.get("name"))
            self.vendor = next((vendor for prefix, vendor in _VENDORS.items() if name.startswith(prefix)), "")
        args = event.get("args")
        return (positive_int(args.get("correlation")), start_us) if isinstance(args, dict) else None

    def add_memory(self, event: Mapping[str, Any]) -> None:
        """Keep the memory that tensors take on the device at an event of the profiler's memory, if that is the peak."""
        args = event.get("args")
        if event.get("name") == _MEMORY and isinstance(args, dict) and args.get("Device Type") == _GPU:
            self.memory_bytes = max(self.memory_bytes, positive_int(args.get("Total Allocated")))

    def add(self, event: Mapping[str, Any], span: tuple[float, float]) -> None:
        """Keep an event that is neither a kernel nor a launch if it marks a step; remember names of a backward pass."""
        category = event.get("cat")
        if category in _UNMARKED:
            return
        name = str(event.get("name"))[:1000]
        self.marks.add(name, *span, category == _DEVICE_MARKS)
        if not self.has_backward and name not in self._seen:
            self.has_backward = TRAINING.search(name) is not None
            if len(self._seen) < _NAMES:
                self._seen.add(name)


#: Prefix of calls of the host → vendor of the device; events of memory, and their number of a GPU's type.
_VENDORS = {"hip": "AMD", "cuda": "NVIDIA", "cu": "NVIDIA"}
_MEMORY, _GPU = "[memory]", 1

#: Names of operators that are remembered.
_NAMES = 100_000


def read(path: Path, pattern: str = "") -> list[MeasuredRun]:
    """Read the runs of a trace: step times, and ms a step by class of kernels.

    Args:
        path: of the trace.
        pattern: of names of marks of steps, in place of the table's.
    """
    head, kernels, readings = dict[str, Any](), KernelTimes(path), Readings(pattern)
    for event in events(path, head):
        if (span := span_of(event)) is None:
            readings.add_memory(event)
            continue
        if (label := kernel_label(event)) is not None:
            args, name = event.get("args"), str(event.get("name"))[:1000]
            metadata: Mapping[str, Any] = args if isinstance(args, dict) else {}
            message = message_of(name, metadata) if label == MESSAGE_CLASS else None
            correlation, device = (positive_int(metadata.get(key)) for key in ("correlation", "device"))
            kernels.add(name, label, *span, message, correlation, device)
        elif (launch := readings.launch_of(event, span[0])) is not None:
            if launch[0]:
                kernels.add_launch(*launch)
        else:
            readings.add(event, span)
    other_data = head.get("otherData")
    dse_run = (
        _dse_trace_run(path, other_data)
        if isinstance(other_data, dict) and isinstance(other_data.get("leaves"), dict)
        else None
    )
    if dse_run is not None and not len(kernels.start):
        return [dse_run]
    cells = trace_cells(head) if dse_run is None else dse_run.cells
    mark = "call profiler.step() after each step of training"
    runs = profiled_runs(dse_run.tool if dse_run else "pytorch-profiler", cells, kernels, readings.marks, mark)
    is_forward_only = len(kernels.start) and not readings.has_backward and not kernels.has_name(TRAINING)
    for run in runs:
        run.vendor = readings.vendor
        if run.kind == "steps":
            run.note += FORWARD_ONLY if is_forward_only else ""
            if readings.memory_bytes:
                run.peak(Figure("peak_memory", float(readings.memory_bytes), "B"))
    return runs


#: Remark on a trace of a forward pass alone.
FORWARD_ONLY = (
    "; forward only: nothing in the trace is of a backward pass or an optimiser, so that no training step ran"
)


def _dse_trace_run(path: Path, other_data: Mapping[str, Any]) -> MeasuredRun:
    """Return the run of a design that ``dse trace`` wrote, with its step time; InputError where that is missing."""
    numeric_leaves = {name: value for name, value in other_data["leaves"].items() if isinstance(value, int | float)}
    leaves = {name: float(value) for name, value in numeric_leaves.items() if abs(value) < 1e30}
    try:
        run = MeasuredRun("dse-trace", "steps", design_cells(leaves), warm_up=0)
    except ValueError as error:
        raise InputError(str(path), str(error), "leaves of a design", "write the trace again") from None
    if design_match := re.match(r"(\S+) on (\S+), ([^,\s]+),", str(other_data.get("design", ""))):
        run.cells |= dict(zip(("model", "system", "software"), design_match.groups(), strict=True))
    if "system.n_devices" in leaves:
        run.cells["n_gpus"] = number_text(leaves["system.n_devices"])
    step_seconds = other_data.get("step_time")
    if not isinstance(step_seconds, float) or not 0.0 < step_seconds < float("inf"):
        raise InputError(str(path), "no step_time", "a trace that dse trace wrote", "write it again")
    run.steps[0] = [Figure("iteration_time", step_seconds, "s")]
    return run


def trace_cells(head: Mapping[str, Any]) -> dict[str, str]:
    """Return device, ranks and sizes of groups of ranks, column → text, of the keys of a trace."""
    devices, ranks = head.get("deviceProperties"), head.get("distributedInfo")
    first = devices[0] if isinstance(devices, list) and devices else None
    cells = device_cells(first.get("name", "")) if isinstance(first, dict) else {}
    if not isinstance(ranks, dict):
        return cells
    if positive_int(ranks.get("world_size")):
        cells["n_gpus"] = str(ranks["world_size"])
    return cells | _group_cells(ranks.get("pg_config"), ranks.get("rank"))


def _group_cells(groups: Any, rank: Any) -> dict[str, str]:
    """Return the sizes of the groups of a rank, column → text, as far as their descriptions and sizes agree."""
    sizes: dict[str, set[int]] = {}
    for group in groups if isinstance(groups, list) else ():
        if not isinstance(group, dict):
            continue
        members = group.get("ranks")
        is_own = not isinstance(members, list) or not members or rank in members
        size = positive_int(group.get("pg_size")) or positive_int(group.get("group_count"))
        texts = [str(group.get(key, ""))[:200] for key in ("pg_desc", "pg_name")]
        for column, pattern in _GROUPS.items():
            if is_own and size and any(pattern.fullmatch(text) for text in texts):
                sizes.setdefault(column, set()).add(size)
    return {column: str(next(iter(found))) for column, found in sizes.items() if len(found) == 1}


def _us(value: Any) -> float | None:
    """Return a time or duration of an event as µs, None for what is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0.0 <= value < 1e18 else None


def events(path: Path, head: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace and fill ``head`` with its other keys; InputError for a damaged one."""
    source, decoder = (
        (block.decode("utf-8", "replace") for block in read_blocks(path, LIMIT, 4 << 20)),
        json.JSONDecoder(),
    )
    buffer, position = "", -1
    while position < 0:
        if len(buffer) > _HEAD or (chunk := next(source, "")) == "":
            raise _damaged_trace(path, "no traceEvents")
        buffer += chunk
        if events_match := re.search(r'"traceEvents"\s*:\s*\[', buffer):
            head |= _parse_head(buffer[: events_match.start()])
            position = events_match.end()
    while True:
        position = _skip_separators(buffer, position)
        if position < len(buffer) and buffer[position] == "]":
            head |= _parse_tail(buffer[position + 1 :], source)
            return
        try:
            event, position = decoder.raw_decode(buffer, position)
        except RecursionError:
            raise _damaged_trace(path, "events nested too deep") from None
        except ValueError:
            tail, chunk = buffer[position:], next(source, "")
            if not chunk or len(tail) > 2 * _EVENT:
                raise _damaged_trace(path, "an event that is cut or no JSON") from None
            buffer, position = tail + chunk, 0
            continue
        if not isinstance(event, dict):
            raise _damaged_trace(path, "an event that is no object")
        yield event


def _skip_separators(buffer: str, position: int) -> int:
    """Return the position in ``buffer`` after blanks and commas."""
    separators = _SEPARATORS.match(buffer, position)
    return separators.end() if separators else position


_SEPARATORS = re.compile(r"[\s,]*")


def _parse_head(head_text: str) -> dict[str, Any]:
    """Return the keys before the events, {} where these are no JSON object."""
    try:
        document = json.loads(head_text.rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _parse_tail(tail: str, source: Iterator[str]) -> dict[str, Any]:
    """Return the keys after the events, {} where these are no JSON object or too long."""
    while len(tail) <= _HEAD and (chunk := next(source, "")):
        tail += chunk
    try:
        document = json.loads("{" + tail.lstrip().removeprefix(","))
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _damaged_trace(path: Path, got: str) -> InputError:
    """Return the error for a trace that is damaged, for the caller to raise."""
    return InputError(str(path), got, ALLOWED, "export the trace again: it is damaged or cut")
