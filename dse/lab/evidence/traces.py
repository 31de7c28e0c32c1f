"""Traces of ranks as the diagnosis sees them: every kernel of the timed steps, with shapes and messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.measured.profiles import kineto
from dse.measured.profiles.device_steps import KernelArrays, device_steps
from dse.measured.profiles.kernels import MESSAGE_CLASS, union_length
from dse.measured.profiles.messages import TracedMessage, message_of, positive_int
from dse.measured.profiles.run import ALLOWED, read_blocks

#: Kernels of one trace that are matched one by one.
MAX_KERNELS = 3_000_000

#: Dimensions of the inputs of an operator of the host.
Shapes = tuple[tuple[int, ...], ...]


class KernelKind(NamedTuple):
    """Name, class, input shapes, message and ranks that kernels of one kind have in common."""

    name: str
    label: int  #: index of its class in ``CLASSES``, by its name
    dims: Shapes = ()
    message: TracedMessage | None = None
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
    is_forward_only: bool = False  #: whether no kernel or operator is of a backward pass or an optimiser

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


class _KernelRow(NamedTuple):
    """A kernel as a trace has it, times in µs."""

    start: float
    duration: float
    kind: int  #: index of its name, class, message and group
    stream: int
    operator: int  #: number of the operator of the host that launched it
    correlation: int


def read_trace(path: str | Path, step_mark: str = "") -> RankTrace | None:
    """Read the timed steps of a trace: all but the first, if several; None without steps or kernels in them.

    Args:
        path: of the trace.
        step_mark: pattern of names that mark a step, in place of those of ``step_marks.toml``.

    Returns:
        Kernels of the steps of one rank, in seconds.

    Raises:
        InputError: for a damaged file, and one of more than ``MAX_KERNELS`` kernels.
    """
    path = Path(path)
    head: dict[str, Any] = {}
    readings = kineto.Readings(step_mark)
    shapes_by_operator: dict[int, Shapes] = {}
    rows: list[_KernelRow] = []
    kinds: dict[tuple[Any, ...], int] = {}
    launches: list[tuple[int, float]] = []
    for event in kineto.events(path, head):
        if (span := kineto.span_of(event)) is None:
            continue
        args = event.get("args")
        metadata: Mapping[str, Any] = args if isinstance(args, dict) else {}
        if (label := kineto.kernel_label(event)) is not None:
            key, operator_id = _kind(event, label, metadata), positive_int(metadata.get("External id"))
            stream = positive_int(metadata.get("stream")) or positive_int(event.get("tid"))
            correlation = positive_int(metadata.get("correlation"))
            rows.append(_KernelRow(*span, kinds.setdefault(key, len(kinds)), stream, operator_id, correlation))
            if len(rows) > MAX_KERNELS:
                raise InputError(str(path), f"more than {MAX_KERNELS:,} kernels", ALLOWED, "profile fewer steps")
        elif (launch := readings.launch_of(event, span[0])) is not None:
            launches.append(launch)
        else:
            if event.get("cat") == "cpu_op" and "Input Dims" in metadata:
                shapes_by_operator[positive_int(metadata.get("External id"))] = _dims(metadata["Input Dims"])
            readings.add(event, span)
    shapes_by_operator.pop(0, None)  # operators without a number launch nothing that is known
    return _trace(path, head, readings, shapes_by_operator, sorted(rows), list(kinds), launches) if rows else None


def _kind(event: Mapping[str, Any], label: int, metadata: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the key of an event's kind: (name, class index, message or None, group of ranks)."""
    name = str(event.get("name"))[:300]
    if label != MESSAGE_CLASS:
        return name, label, None, ""
    return name, label, message_of(name, metadata), str(metadata.get("Process Group Ranks", ""))[:400]


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
    readings: kineto.Readings,
    shapes_by_operator: Mapping[int, Shapes],
    rows: Sequence[_KernelRow],
    keys: Sequence[tuple[Any, ...]],
    launches: Sequence[tuple[int, float]],
) -> RankTrace | None:
    """Return the timed steps of a trace, None without any; ``keys``: of :func:`_kind`."""
    starts_us, durations_us, kind_keys, streams, operators, correlations = map(np.array, zip(*rows, strict=True))
    launch_correlations, launch_times = (
        (np.array(column) for column in zip(*launches, strict=True))
        if launches
        else (
            np.zeros(0, np.int64),
            np.zeros(0),
        )
    )
    ends_us = starts_us + durations_us
    kernels = KernelArrays(starts_us, ends_us, kind_keys, correlations, launch_correlations, launch_times)
    steps = device_steps(kernels, readings.marks)
    if steps is None:
        return None
    counted = steps.timed(steps.counted())
    start_us, end_us = float(steps.start[counted[0]]), float(steps.end[counted[-1]])
    chosen = np.flatnonzero(np.isin(steps.kernel_step, counted))
    if not len(chosen) or end_us <= start_us:
        return None
    kind_index: dict[tuple[int, Shapes], int] = {}
    kernel_kind_indices = [
        kind_index.setdefault((key_index, shapes_by_operator.get(operator, ())), len(kind_index))
        for key_index, operator in zip(kind_keys[chosen].tolist(), operators[chosen].tolist(), strict=True)
    ]
    kinds = [
        KernelKind(name, label, dims, message, group)
        for (name, label, message, group), dims in ((keys[key_index], dims) for key_index, dims in kind_index)
    ]
    start = 1e-6 * (starts_us[chosen] - start_us)
    ranks = head.get("distributedInfo")
    rank_info: Mapping[str, Any] = ranks if isinstance(ranks, dict) else {}
    has_backward = readings.has_backward or any(kineto.TRAINING.search(kind.name) for kind in kinds)
    return RankTrace(
        str(path),
        positive_int(rank_info.get("rank")),
        positive_int(rank_info.get("world_size")),
        len(counted),
        1e-6 * (end_us - start_us) / len(counted),
        kinds,
        np.array(kernel_kind_indices, np.int64),
        streams[chosen].astype(int),
        start,
        start + 1e-6 * durations_us[chosen],
        not has_backward,
    )
