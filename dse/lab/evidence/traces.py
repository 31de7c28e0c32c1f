"""Traces of ranks as the diagnosis sees them: every kernel of the timed steps, with shapes and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.measured.profiles import kineto
from dse.measured.profiles.kernels import CLASSES, union_length
from dse.measured.profiles.run import ALLOWED, read_blocks

#: Kernels of one trace that are matched one by one.
MAX_KERNELS = 3_000_000

#: Index of the class of collectives.
MESSAGE_CLASS = list(CLASSES).index("nccl")

#: Dimensions of the inputs of an operator of the host.
Shapes = tuple[tuple[int, ...], ...]


class KernelKind(NamedTuple):
    """Name, class, input shapes, message and ranks that kernels of one kind have in common."""

    name: str
    label: int  #: index of its class in ``CLASSES``, by its name
    dims: Shapes = ()
    message: tuple[str, int, int] | None = None  #: collective, B, ranks
    group: str = ""  #: ranks of a message, as the profiler writes them


class RankTrace(NamedTuple):
    """The timed steps of a rank, with times in s from the start of the first of them."""

    path: str
    rank: int
    world: int
    n_steps: int
    step_seconds: float  #: s of a step
    kinds: list[KernelKind]
    kind_index: np.ndarray  #: index of a kernel's kind [kernels]
    stream: np.ndarray  #: number [kernels]
    start: np.ndarray  #: s [kernels]
    end: np.ndarray  #: s [kernels]

    @property
    def seconds(self) -> np.ndarray:
        """Duration of each kernel, s [kernels]."""
        return self.end - self.start

    @property
    def labels(self) -> np.ndarray:
        """Index of the class of each kernel in ``CLASSES`` [kernels]."""
        return np.array([kind.label for kind in self.kinds], np.int64)[self.kind_index]

    @property
    def idle(self) -> float:
        """Seconds a step without any kernel."""
        return self.step_seconds - union_length(self.start, self.end) / self.n_steps


def is_trace(path: str | Path) -> bool:
    """Return True for a file in the form of Kineto's traces.

    Args:
        path: of any file, gzipped or not.
    """
    start = next(read_blocks(Path(path), 1 << 40, 1 << 16), b"").lstrip(b"\xef\xbb\xbf \t\r\n")
    return start[:1] == b"{" and kineto.SIGNATURE.search(start) is not None


def read_trace(path: str | Path) -> RankTrace | None:
    """Read the timed steps of a trace: all but the first, if several; None without steps or kernels in them.

    Returns:
        Kernels of the steps of one rank, in seconds.

    Raises:
        InputError: for a damaged file, and one of more than ``MAX_KERNELS`` kernels.
    """
    path = Path(path)
    head: dict[str, Any] = {}
    steps: dict[int, tuple[float, float]] = {}
    shapes_by_operator: dict[int, Shapes] = {}
    rows: list[tuple[float, float, int, int, int]] = []
    kinds: dict[tuple[Any, ...], int] = {}
    for event in kineto.events(path, head):
        if (span := kineto.span_of(event)) is None:
            continue
        category, args = event.get("cat"), event.get("args")
        metadata: Mapping[str, Any] = args if isinstance(args, dict) else {}
        if (label := kineto.kernel_label(event)) is not None:
            key, operator_id = _kind(event, label, metadata), kineto.positive_int(metadata.get("External id"))
            stream = kineto.positive_int(metadata.get("stream")) or kineto.positive_int(event.get("tid"))
            rows.append((*span, kinds.setdefault(key, len(kinds)), stream, operator_id))
            if len(rows) > MAX_KERNELS:
                raise InputError(str(path), f"more than {MAX_KERNELS:,} kernels", ALLOWED, "profile fewer steps")
        elif category == "cpu_op" and "Input Dims" in metadata:
            shapes_by_operator[kineto.positive_int(metadata.get("External id"))] = _dims(metadata["Input Dims"])
        elif (number := kineto.step_of(event, span[1])) is not None:
            steps[number] = span
    shapes_by_operator.pop(0, None)  # operators without a number launch nothing that is known
    return _trace(path, head, steps, shapes_by_operator, rows, list(kinds)) if rows and steps else None


def _kind(event: Mapping[str, Any], label: int, metadata: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of an event's kind: (name, class index, (collective, B, ranks) or None, group of ranks)."""
    name = str(event.get("name"))[:300]
    if label != MESSAGE_CLASS:
        return name, label, None, ""
    return name, label, kineto.collective_of(name, metadata), str(metadata.get("Process Group Ranks", ""))[:400]


def _dims(value: Any) -> Shapes:
    """Return the dimensions of the tensors among the first eight inputs; () where not listed."""
    if not isinstance(value, list):
        return ()
    return tuple(
        tuple(map(int, sizes))
        for sizes in value[:8]
        if isinstance(sizes, list) and sizes and all(isinstance(size, int) for size in sizes)
    )


def _trace(
    path: Path,
    head: Mapping[str, Any],
    steps: Mapping[int, tuple[float, float]],
    shapes_by_operator: Mapping[int, Shapes],
    rows: Sequence[tuple[float, float, int, int, int]],
    keys: Sequence[tuple[Any, ...]],
) -> RankTrace | None:
    """Return the timed steps of a trace, all but the first if several; None without kernels in them.

    ``steps``: number → (start, duration), µs; ``rows``: (start µs, duration µs, index in ``keys``, stream, operator);
    ``keys``: of :func:`_kind`.
    """
    numbers = sorted(steps)
    timed_steps = numbers[1:] or numbers
    start_us, end_us = min(steps[n][0] for n in timed_steps), max(sum(steps[n]) for n in timed_steps)
    timed_rows = sorted(row for row in rows if start_us - 1e-3 <= row[0] < end_us)
    if not timed_rows:
        return None
    kind_index: dict[tuple[int, Shapes], int] = {}
    starts_us, durations_us, key_indices, streams, operators = zip(*timed_rows, strict=True)
    kernel_kind_indices = [
        kind_index.setdefault((key_index, shapes_by_operator.get(operator, ())), len(kind_index))
        for key_index, operator in zip(key_indices, operators, strict=True)
    ]
    kinds = [
        KernelKind(name, label, dims, message, group)
        for (name, label, message, group), dims in ((keys[key_index], dims) for key_index, dims in kind_index)
    ]
    start = 1e-6 * (np.array(starts_us) - start_us)
    ranks = head.get("distributedInfo")
    rank_info: Mapping[str, Any] = ranks if isinstance(ranks, dict) else {}
    return RankTrace(
        str(path),
        kineto.positive_int(rank_info.get("rank")),
        kineto.positive_int(rank_info.get("world_size")),
        len(timed_steps),
        1e-6 * (end_us - start_us) / len(timed_steps),
        kinds,
        np.array(kernel_kind_indices, np.int64),
        np.array(streams, int),
        start,
        start + 1e-6 * np.array(durations_us),
    )
