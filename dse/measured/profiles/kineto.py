"""Traces of the PyTorch profiler (Kineto's Chrome traces), and those that ``dse trace`` writes.

Events are read one after the other from a buffer of some MiB; of a kernel only its start, duration and class are kept.
A step is an annotation ``ProfilerStep#``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.measured.profiles.kernels import OF_COPIES, KernelTimes, class_of, full, run_of
from dse.measured.profiles.run import ALLOWED, Figure, MeasuredRun, accelerator, blocks, cells_of, text

SIGN = re.compile(rb'"(?:schemaVersion|deviceProperties|traceEvents)"\s*:')

#: Bytes of a trace, unpacked; of its head; of one event.
LIMIT, _HEAD, _EVENT = 64 << 30, 16 << 20, 4 << 20

_COLLECTIVE = re.compile(r"ncclDevKernel_([A-Za-z]+?)_|ncclKernel_([A-Za-z]+?)_")
_BYTES = {"float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "int": 4, "long": 8, "byte": 1, "char": 1,
          "int8": 1, "uint8": 1, "double": 8, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}  # fmt: skip


STEP = re.compile(r"ProfilerStep#([0-9]{1,15})")


def message_of(name: str, args: Any) -> tuple[str, int, int]:
    """(collective, bytes, ranks) of a kernel, by NCCL's metadata, else by its name; 0 where not stated."""
    about = args if isinstance(args, dict) else {}
    named = _COLLECTIVE.search(name)
    kind = str(about.get("Collective name") or (named and (named[1] or named[2])) or "unknown").strip("_")
    elements = max((whole(about.get(key)) for key in ("In msg nelems", "Out msg nelems")), default=0)
    size = elements * _BYTES.get(str(about.get("dtype", "")).lower(), 0)
    return kind[:40], size, whole(about.get("Group size"))


def whole(value: Any) -> int:
    """A whole positive number of a trace; 0 for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 50 else 0


class _Trace(NamedTuple):
    """What one pass over a trace keeps."""

    head: dict[str, Any]
    steps: dict[int, tuple[float, float]]  #: number → start and duration, µs
    kernels: KernelTimes


def read(path: Path) -> MeasuredRun:
    """The run of a trace: its step time, and time by class of kernels in ms a step."""
    trace = _passed(path)
    own = trace.head.get("otherData")
    ours = _of_ours(path, own) if isinstance(own, dict) and isinstance(own.get("leaves"), dict) else None
    if ours is not None and not len(trace.kernels.start):
        return ours
    cells = _cells(trace.head) if ours is None else ours.cells
    mark = "call profiler.step() after each step of training"
    return run_of(path, ours.tool if ours else "pytorch-profiler", cells, trace.steps, trace.kernels, mark)


def _of_ours(path: Path, own: Mapping[str, Any]) -> MeasuredRun:
    """The design that ``dse trace`` wrote with its step."""
    known = {name: value for name, value in own["leaves"].items() if isinstance(value, int | float)}
    leaves = {name: float(value) for name, value in known.items() if abs(value) < 1e30}
    try:
        run = MeasuredRun("dse-trace", "steps", cells_of(leaves), warm_up=0)
    except ValueError as error:
        raise InputError(str(path), str(error), "leaves of a design", "write the trace again") from None
    if named := re.match(r"(\S+) on (\S+), ([^,\s]+),", str(own.get("design", ""))):
        run.cells |= dict(zip(("model", "system", "software"), named.groups(), strict=True))
    if "system.n_devices" in leaves:
        run.cells["n_gpus"] = text(leaves["system.n_devices"])
    step = own.get("step_time")
    if not isinstance(step, float) or not 0.0 < step < float("inf"):
        raise InputError(str(path), "no step_time", "a trace that dse trace wrote", "write it again")
    run.steps[0] = [Figure("iteration_time", step, "s")]
    return run


def _cells(head: Mapping[str, Any]) -> dict[str, str]:
    """Device and ranks of the head of a trace."""
    cells, devices, ranks = dict[str, str](), head.get("deviceProperties"), head.get("distributedInfo")
    first = devices[0] if isinstance(devices, list) and devices else None
    if isinstance(first, dict) and (slug := accelerator(str(first.get("name", "")))):
        cells["gpu"] = slug
    if isinstance(ranks, dict) and whole(ranks.get("world_size")):
        cells["n_gpus"] = str(ranks["world_size"])
    return cells


# One pass


def _passed(path: Path) -> _Trace:
    trace = _Trace({}, {}, KernelTimes())
    for event in events(path, trace.head):
        start, duration = time_of(event.get("ts")), time_of(event.get("dur"))
        if event.get("ph") != "X" or start is None or duration is None:
            continue
        kind, name = event.get("cat"), event.get("name")
        if kind in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel"):
            full(path, trace.kernels)
            label = class_of(str(name)[:1000]) if "mem" not in kind else OF_COPIES
            message = message_of(str(name)[:1000], event.get("args")) if label == 0 else None
            trace.kernels.add(label, start, duration, message)
        elif kind != "gpu_user_annotation" and duration > 0.0 and (step := STEP.fullmatch(str(name))):
            trace.steps[int(step[1])] = start, duration
    return trace


def time_of(value: Any) -> float | None:
    """A time of an event, µs; None for what is none."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and 0.0 <= value < 1e18 else None


def events(path: Path, head: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a trace; ``head`` receives what stands before them."""
    source, decoder = (block.decode("utf-8", "replace") for block in blocks(path, LIMIT, 4 << 20)), json.JSONDecoder()
    buffer, place = "", -1
    while place < 0:
        if len(buffer) > _HEAD or (more := next(source, "")) == "":
            raise _damaged(path, "no traceEvents")
        buffer += more
        if found := re.search(r'"traceEvents"\s*:\s*\[', buffer):
            head |= _head(buffer[: found.start()])
            place = found.end()
    while True:
        place = _skipped(buffer, place)
        if place < len(buffer) and buffer[place] == "]":
            return
        try:
            event, place = decoder.raw_decode(buffer, place)
        except RecursionError:
            raise _damaged(path, "events nested too deep") from None
        except ValueError:
            rest, more = buffer[place:], next(source, "")
            if not more or len(rest) > 2 * _EVENT:
                raise _damaged(path, "an event that is cut or no JSON") from None
            buffer, place = rest + more, 0
            continue
        if not isinstance(event, dict):
            raise _damaged(path, "an event that is no object")
        yield event


def _skipped(buffer: str, place: int) -> int:
    found = _BETWEEN.match(buffer, place)
    return found.end() if found else place


_BETWEEN = re.compile(r"[\s,]*")


def _head(text_before: str) -> dict[str, Any]:
    """The keys before the events; none where these are no JSON."""
    try:
        found = json.loads(text_before.rstrip().rstrip(",") + "}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _damaged(path: Path, got: str) -> InputError:
    return InputError(str(path), got, ALLOWED, "export the trace again: it is damaged or cut")
