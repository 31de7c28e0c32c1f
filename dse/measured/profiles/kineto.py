"""Traces of the PyTorch profiler (Kineto's Chrome traces), and those that ``dse trace`` writes.

Events are read one after the other from a buffer of some MiB; of a kernel only its start, duration and class are kept.
A step is an annotation ``ProfilerStep#``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.measured.profiles.kernels import COPY_CLASS, KernelTimes, kernel_class, profiled_run
from dse.measured.profiles.run import (
    ALLOWED,
    CELL_ROWS,
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

_COLLECTIVE = re.compile(r"ncclDevKernel_([A-Za-z]+?)_|ncclKernel_([A-Za-z]+?)_")
STEP = re.compile(r"ProfilerStep#([0-9]{1,15})")


def collective_of(name: str, args: Any) -> tuple[str, int, int]:
    """Return (collective, bytes, ranks) of a kernel by NCCL's metadata, else its name; 0 where not stated."""
    metadata = args if isinstance(args, dict) else {}
    name_match = _COLLECTIVE.search(name)
    kind = str(metadata.get("Collective name") or (name_match and (name_match[1] or name_match[2])) or "unknown").strip(
        "_"
    )
    elements = max((positive_int(metadata.get(key)) for key in ("In msg nelems", "Out msg nelems")), default=0)
    n_bytes = elements * CELL_ROWS["element_bytes"].get(str(metadata.get("dtype", "")).lower(), 0)
    return kind[:40], n_bytes, positive_int(metadata.get("Group size"))


def positive_int(value: Any) -> int:
    """Return a value of a trace that is a positive integer, 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 50 else 0


#: Categories of events of kernels and copies.
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel")


def span_of(event: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return (start, duration) of a complete event in µs, None for others."""
    start, duration = (_us(event.get(key)) for key in ("ts", "dur"))
    return (start, duration) if event.get("ph") == "X" and start is not None and duration is not None else None


def kernel_label(event: Mapping[str, Any]) -> int | None:
    """Return the index of the class of an event's kernel, None for other events."""
    category = event.get("cat")
    if category not in _KERNELS:
        return None
    return kernel_class(str(event.get("name"))[:1000]) if "mem" not in category else COPY_CLASS


def step_of(event: Mapping[str, Any], duration_us: float) -> int | None:
    """Return the number of the step that an event of the host marks, None for other events."""
    step = STEP.fullmatch(str(event.get("name")))
    return int(step[1]) if step and event.get("cat") != "gpu_user_annotation" and duration_us > 0.0 else None


def read(path: Path) -> MeasuredRun:
    """Read the run of a trace: its step time, and ms a step by class of kernels."""
    head, steps, kernels = dict[str, Any](), dict[int, tuple[float, float]](), KernelTimes(path)
    for event in events(path, head):
        if (span := span_of(event)) is None:
            continue
        if (label := kernel_label(event)) is not None:
            collective = collective_of(str(event.get("name"))[:1000], event.get("args")) if label == 0 else None
            kernels.add(label, *span, collective)
        elif (number := step_of(event, span[1])) is not None:
            steps[number] = span
    other_data = head.get("otherData")
    dse_run = (
        _dse_trace_run(path, other_data)
        if isinstance(other_data, dict) and isinstance(other_data.get("leaves"), dict)
        else None
    )
    if dse_run is not None and not len(kernels.start):
        return dse_run
    cells = _cells(head) if dse_run is None else dse_run.cells
    mark = "call profiler.step() after each step of training"
    return profiled_run(dse_run.tool if dse_run else "pytorch-profiler", cells, steps, kernels, mark)


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


def _cells(head: Mapping[str, Any]) -> dict[str, str]:
    """Return device and ranks, column → text, of the head of a trace."""
    devices, ranks = head.get("deviceProperties"), head.get("distributedInfo")
    first = devices[0] if isinstance(devices, list) and devices else None
    cells = device_cells(first.get("name", "")) if isinstance(first, dict) else {}
    if isinstance(ranks, dict) and positive_int(ranks.get("world_size")):
        cells["n_gpus"] = str(ranks["world_size"])
    return cells


def _us(value: Any) -> float | None:
    """Return a time or duration of an event as µs, None for what is none."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0.0 <= value < 1e18 else None


def events(path: Path, head: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a trace and fill ``head`` with what stands before them; InputError for a damaged one."""
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


def _damaged_trace(path: Path, got: str) -> InputError:
    """Return the error for a trace that is damaged, for the caller to raise."""
    return InputError(str(path), got, ALLOWED, "export the trace again: it is damaged or cut")
