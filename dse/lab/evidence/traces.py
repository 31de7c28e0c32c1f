"""Traces of ranks as the diagnosis sees them: every kernel of the timed steps, with shapes and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.measured.profiles import kineto
from dse.measured.profiles.kernels import CLASSES, COPY_CLASS, kernel_class, union_length
from dse.measured.profiles.run import ALLOWED, read_blocks

#: Kernels of one trace that are matched one by one.
MOST = 3_000_000

#: Index of the class of collectives.
OF_MESSAGES = list(CLASSES).index("nccl")

#: Dimensions of the inputs of an operator of the host.
Shapes = tuple[tuple[int, ...], ...]


class SeenKernel(NamedTuple):
    """What kernels of one kind have in common: name, shapes of the operator that launched it, message."""

    name: str
    label: int  #: class by its name
    dims: Shapes = ()
    message: tuple[str, int, int] | None = None  #: collective, B, ranks
    group: str = ""  #: ranks of a message, as the profiler writes them


class RankTrace(NamedTuple):
    """The timed steps of a rank; times in s from the start of the first of them."""

    path: str
    rank: int
    world: int
    steps: int
    length: float  #: s of a step
    kinds: list[SeenKernel]
    kind: np.ndarray  #: index of a kernel's kind [kernels]
    stream: np.ndarray
    start: np.ndarray
    end: np.ndarray

    @property
    def seconds(self) -> np.ndarray:
        """Durations [kernels]."""
        return self.end - self.start

    @property
    def labels(self) -> np.ndarray:
        """Classes of the kernels [kernels]."""
        return np.array([kind.label for kind in self.kinds], np.int64)[self.kind]

    @property
    def idle(self) -> float:
        """Seconds a step without any kernel."""
        return self.length - union_length(self.start, self.end) / self.steps


def is_trace(path: str | Path) -> bool:
    """Whether a file is a trace in Kineto's form."""
    start = next(read_blocks(Path(path), 1 << 40, 1 << 16), b"").lstrip(b"\xef\xbb\xbf \t\r\n")
    return start[:1] == b"{" and kineto.SIGNATURE.search(start) is not None


def read_trace(path: str | Path) -> RankTrace | None:
    """The timed steps of a trace; None for one without kernels in them.

    Raises:
        InputError: for a damaged file, and one of more than ``MOST`` kernels.
    """
    path = Path(path)
    head: dict[str, Any] = {}
    steps: dict[int, tuple[float, float]] = {}
    launched: dict[int, Shapes] = {}
    rows: list[tuple[float, float, int, int, int]] = []
    kinds: dict[tuple[Any, ...], int] = {}
    for event in kineto.events(path, head):
        start, duration = kineto.event_us(event.get("ts")), kineto.event_us(event.get("dur"))
        if event.get("ph") != "X" or start is None or duration is None:
            continue
        category, args = event.get("cat"), event.get("args")
        about: Mapping[str, Any] = args if isinstance(args, dict) else {}
        if category in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel"):
            key, outer = _kind(event, category, about), kineto.positive_int(about.get("External id"))
            stream = kineto.positive_int(about.get("stream")) or kineto.positive_int(event.get("tid"))
            rows.append((start, duration, kinds.setdefault(key, len(kinds)), stream, outer))
            if len(rows) > MOST:
                raise InputError(str(path), f"more than {MOST:,} kernels", ALLOWED, "profile fewer steps")
        elif category == "cpu_op" and "Input Dims" in about:
            launched[kineto.positive_int(about.get("External id"))] = _dims(about["Input Dims"])
        elif (
            category != "gpu_user_annotation"
            and duration > 0.0
            and (found := kineto.STEP.fullmatch(str(event.get("name"))))
        ):
            steps[int(found[1])] = start, duration
    launched.pop(0, None)  # operators without a number launch nothing that is known
    return _trace(path, head, steps, launched, rows, list(kinds)) if rows and steps else None


def _kind(event: Mapping[str, Any], category: Any, about: Mapping[str, Any]) -> tuple[Any, ...]:
    name = str(event.get("name"))[:300]
    label = kernel_class(name) if "mem" not in str(category) else COPY_CLASS
    if label != OF_MESSAGES:
        return name, label, None, ""
    return name, label, kineto.collective_of(name, about), str(about.get("Process Group Ranks", ""))[:400]


def _dims(value: Any) -> Shapes:
    """Dimensions of the tensors among the inputs."""
    if not isinstance(value, list):
        return ()
    return tuple(
        tuple(map(int, one))
        for one in value[:8]
        if isinstance(one, list) and one and all(isinstance(size, int) for size in one)
    )


def _trace(
    path: Path,
    head: Mapping[str, Any],
    steps: Mapping[int, tuple[float, float]],
    launched: Mapping[int, Shapes],
    rows: Sequence[tuple[float, float, int, int, int]],
    keys: Sequence[tuple[Any, ...]],
) -> RankTrace | None:
    numbers = sorted(steps)
    kept = numbers[1:] or numbers
    first, last = min(steps[n][0] for n in kept), max(sum(steps[n]) for n in kept)
    inside = sorted(row for row in rows if first - 1e-3 <= row[0] < last)
    if not inside:
        return None
    found: dict[tuple[int, Shapes], int] = {}
    kind = [found.setdefault((row[2], launched.get(row[4], ())), len(found)) for row in inside]
    kinds = [SeenKernel(keys[at][0], keys[at][1], dims, keys[at][2], keys[at][3]) for at, dims in found]
    start = 1e-6 * (np.array([row[0] for row in inside]) - first)
    ranks = head.get("distributedInfo")
    about: Mapping[str, Any] = ranks if isinstance(ranks, dict) else {}
    return RankTrace(
        str(path),
        kineto.positive_int(about.get("rank")),
        kineto.positive_int(about.get("world_size")),
        len(kept),
        1e-6 * (last - first) / len(kept),
        kinds,
        np.array(kind, np.int64),
        np.array([row[3] for row in inside], int),
        start,
        start + 1e-6 * np.array([row[1] for row in inside]),
    )
