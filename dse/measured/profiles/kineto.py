"""Traces of the PyTorch profiler (Kineto's Chrome traces), and those that ``dse trace`` writes.

Events are read one after the other from a buffer of some MiB; of a kernel only its start, duration and class are kept.
A step is an annotation ``ProfilerStep#``. The first one is left out where there are more: it pays for the profiler.
"""

from __future__ import annotations

import functools
import json
import re
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.measured.profiles.run import ALLOWED, Figure, Run, accelerator, blocks, cells_of, text

SIGN = re.compile(rb'"(?:schemaVersion|deviceProperties|traceEvents)"\s*:')

#: Bytes of a trace, unpacked; of its head; of one event; kernels of one trace.
LIMIT, _HEAD, _EVENT, _KERNELS = 64 << 30, 16 << 20, 4 << 20, 50_000_000

#: Classes of kernels by their names; the first that is found counts.
CLASSES = {
    "nccl": re.compile(r"nccl|rccl", re.IGNORECASE),
    "attention": re.compile(r"flash|fmha|attention|attn", re.IGNORECASE),
    "gemm": re.compile(r"gemm|cutlass|cublas|nvjet|xmma|matmul|Cijk_|wgmma", re.IGNORECASE),
    "elementwise": re.compile(
        r"elementwise|vectorized|reduce|norm|softmax|triton|index|copy|cat|dropout|adam|multi_tensor|rope|silu|gelu",
        re.IGNORECASE,
    ),
}
_COPIES, _OTHER = "memcpy", "other"
_LABELS = (*CLASSES, _COPIES, _OTHER)

_COLLECTIVE = re.compile(r"ncclDevKernel_([A-Za-z]+?)_|ncclKernel_([A-Za-z]+?)_")
_BYTES = {"float": 4, "float32": 4, "half": 2, "float16": 2, "bfloat16": 2, "int": 4, "long": 8, "byte": 1, "char": 1,
          "int8": 1, "uint8": 1, "double": 8, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1}  # fmt: skip


_STEP = re.compile(r"ProfilerStep#([0-9]{1,15})")


class _Kernels:
    """Starts, ends and classes of kernels, 17 bytes each, and sums of collectives."""

    def __init__(self) -> None:
        self.start, self.end, self.label = array("d"), array("d"), array("B")
        self.collectives: dict[tuple[str, int, int], list[float]] = {}

    def add(self, event: Mapping[str, Any], start: float, duration: float) -> None:
        name = str(event.get("name", ""))[:1000]
        label = _LABELS.index(_COPIES) if event.get("cat") in ("gpu_memcpy", "gpu_memset") else class_of(name)
        self.start.append(start)
        self.end.append(start + duration)
        self.label.append(label)
        if label == 0 and len(self.collectives) < 10_000:
            count = self.collectives.setdefault(_message(name, event.get("args")), [0, 0.0])
            count[0] += 1
            count[1] += duration


@functools.lru_cache(maxsize=10_000)
def class_of(name: str) -> int:
    """Index of the class of a kernel by its name."""
    return next((i for i, sign in enumerate(CLASSES.values()) if sign.search(name)), _LABELS.index(_OTHER))


def _message(name: str, args: Any) -> tuple[str, int, int]:
    """(collective, bytes, ranks) of a kernel, by NCCL's metadata, else by its name; 0 where not stated."""
    about = args if isinstance(args, dict) else {}
    named = _COLLECTIVE.search(name)
    kind = str(about.get("Collective name") or (named and (named[1] or named[2])) or "unknown").strip("_")
    elements = max((_whole(about.get(key)) for key in ("In msg nelems", "Out msg nelems")), default=0)
    size = elements * _BYTES.get(str(about.get("dtype", "")).lower(), 0)
    return kind[:40], size, _whole(about.get("Group size"))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 50 else 0


class _Trace(NamedTuple):
    """What one pass over a trace keeps."""

    head: dict[str, Any]
    steps: dict[int, tuple[float, float]]  #: number → start and duration, µs
    kernels: _Kernels


def read(path: Path) -> Run:
    """The run of a trace: its step time, and time by class of kernels in ms a step."""
    trace = _passed(path)
    own = trace.head.get("otherData")
    if isinstance(own, dict) and isinstance(own.get("leaves"), dict):
        return _of_ours(path, own)
    if not trace.steps:
        raise InputError(
            str(path), "no annotations ProfilerStep#", "a trace with steps",
            "call profiler.step() after each step of training, and export again",
        )  # fmt: skip
    numbers = sorted(trace.steps)
    kept = numbers[1:] or numbers
    run = Run("pytorch-profiler", "steps", _cells(trace.head), warm_up=len(numbers) - len(kept))
    for number in numbers:
        run.steps[number] = [Figure("iteration_time", 1e-3 * trace.steps[number][1], "ms")]
    window = min(trace.steps[n][0] for n in kept), max(sum(trace.steps[n]) for n in kept)
    if len(trace.kernels.start):
        parts = _parts(trace.kernels, window, len(kept))
        run.shares = {f"{name}_ms": text(value) for name, value in parts.items()}
        run.note = "ms a step: " + ", ".join(f"{name} {value:.4g}" for name, value in parts.items())
        run.note += _collectives(trace.kernels, len(numbers))
    return run


def _of_ours(path: Path, own: Mapping[str, Any]) -> Run:
    """The design that ``dse trace`` wrote with its step."""
    leaves = {name: float(value) for name, value in own["leaves"].items() if isinstance(value, int | float)}
    try:
        run = Run("dse-trace", "steps", cells_of(leaves), warm_up=0)
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
    if isinstance(ranks, dict) and _whole(ranks.get("world_size")):
        cells["n_gpus"] = str(ranks["world_size"])
    return cells


def _parts(kernels: _Kernels, window: tuple[float, float], steps: int) -> dict[str, float]:
    """Class → ms a step of its kernels in the window.

    And with overlaps counted once, so that they sum to the step: ``compute``, communication that it does not hide
    (``exposed_nccl``), and ``gap`` without a kernel.
    """
    start, end = np.frombuffer(kernels.start), np.frombuffer(kernels.end)
    label = np.frombuffer(kernels.label, np.uint8)
    inside = (end > window[0]) & (start < window[1])
    start, end, label = np.maximum(start[inside], window[0]), np.minimum(end[inside], window[1]), label[inside]
    sums = np.bincount(label, end - start, minlength=len(_LABELS))
    found = {name: float(total) for name, total in zip(_LABELS, sums, strict=True) if total > 0.0}
    busy, computing = _covered(start, end), _covered(start[label != 0], end[label != 0])
    found |= {"compute": computing, "exposed_nccl": busy - computing, "gap": max(window[1] - window[0] - busy, 0.0)}
    return {name: 1e-3 * value / steps for name, value in found.items()}


def _covered(start: np.ndarray, end: np.ndarray) -> float:
    """Length of the union of intervals."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, last = start[order], np.maximum.accumulate(end[order])
    before = np.concatenate([[-np.inf], last[:-1]])
    return float(np.sum(np.maximum(last - np.maximum(start, before), 0.0)))


def _collectives(kernels: _Kernels, steps: int) -> str:
    """The collectives that take longest, with bytes, ranks and times a step."""
    listed = sorted(kernels.collectives.items(), key=lambda item: -item[1][1])[:6]
    return "".join(
        f"; {kind}{f' of {size:,} B' if size else ''}{f' over {ranks} ranks' if ranks else ''}: {count / steps:.4g} a "
        f"step, {1e-3 * total / steps:.4g} ms" for (kind, size, ranks), (count, total) in listed
    )  # fmt: skip


# One pass


def _passed(path: Path) -> _Trace:
    trace = _Trace({}, {}, _Kernels())
    for event in _events(path, trace.head):
        start, duration = _time(event.get("ts")), _time(event.get("dur"))
        if event.get("ph") != "X" or start is None or duration is None:
            continue
        kind, name = event.get("cat"), event.get("name")
        if kind in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel"):
            if len(trace.kernels.start) >= _KERNELS:
                raise InputError(str(path), f"more than {_KERNELS:,} kernels", ALLOWED, "profile fewer steps")
            trace.kernels.add(event, start, duration)
        elif kind != "gpu_user_annotation" and duration > 0.0 and (step := _STEP.fullmatch(str(name))):
            trace.steps[int(step[1])] = start, duration
    return trace


def _time(value: Any) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and 0.0 <= value < 1e18 else None


def _events(path: Path, head: dict[str, Any]) -> Iterator[dict[str, Any]]:
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
        if isinstance(event, dict):
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
