"""Kernels of a profile: sums by class a step, communication that nothing hides, gaps."""

from __future__ import annotations

import functools
import re
from array import array
from pathlib import Path

import numpy as np

from dse.errors import InputError
from dse.io import toml
from dse.measured.profiles.run import ALLOWED, Figure, MeasuredRun, number_text

#: Kernels of one profile, 17 bytes each.
MAX_KERNELS = 50_000_000

#: Rows of ``kernel_names.toml``.
KERNEL_NAMES = toml.table(Path(__file__).with_name("kernel_names.toml"))


def name_patterns(table: str) -> dict[str, re.Pattern[str]]:
    """Return kind → pattern of the names of its kernels, in the order in which they count.

    Args:
        table: of ``kernel_names.toml``.
    """
    return {kind: re.compile(words, re.IGNORECASE) for kind, words in KERNEL_NAMES[table].items()}


#: Classes of kernels by their names; the first that is found counts.
CLASSES = name_patterns("classes")
COPIES, _OTHER_KERNELS = "memcpy", "other"
_LABELS = (*CLASSES, COPIES, _OTHER_KERNELS)


class KernelTimes:
    """Starts and ends (µs) and class indices of kernels, 17 bytes each, and (count, µs) of collectives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.start, self.end, self.label = array("d"), array("d"), array("B")
        self.collectives: dict[tuple[str, int, int], list[float]] = {}

    def add(
        self, label: int, start_us: float, duration_us: float, collective: tuple[str, int, int] | None = None
    ) -> None:
        """Add one kernel by the index of its class, and of a collective its (name, bytes, ranks).

        Raises InputError for more than ``MAX_KERNELS`` kernels.
        """
        if len(self.start) >= MAX_KERNELS:
            raise InputError(str(self.path), f"more than {MAX_KERNELS:,} kernels", ALLOWED, "profile fewer steps")
        self.start.append(start_us)
        self.end.append(start_us + duration_us)
        self.label.append(label)
        if collective is not None and (collective in self.collectives or len(self.collectives) < 10_000):
            count_and_us = self.collectives.setdefault(collective, [0, 0.0])
            count_and_us[0] += 1
            count_and_us[1] += duration_us


@functools.lru_cache(maxsize=10_000)
def kernel_class(name: str) -> int:
    """Return the index of the class of a kernel by its name, that of other kernels where no word is in it."""
    return next(
        (i for i, pattern in enumerate(CLASSES.values()) if pattern.search(name)), _LABELS.index(_OTHER_KERNELS)
    )


#: Index of the class of copies.
COPY_CLASS = _LABELS.index(COPIES)


def profiled_run(
    tool: str,
    cells: dict[str, str],
    steps: dict[int, tuple[float, float]],
    kernels: KernelTimes,
    mark_hint: str,
) -> MeasuredRun:
    """Return the run of a profile with its step times, ms by class of kernels, and a note; InputError without steps.

    ``steps``: number → (start, duration), µs.

    ``mark_hint`` says how to mark steps where there are none.

    The first step is left out where there are more: it pays for the profiler.
    """
    if not steps:
        raise InputError(
            str(kernels.path), "no marked steps", "a profile with steps", f"{mark_hint}, and profile again"
        )
    numbers = sorted(steps)
    measured_steps = numbers[1:] or numbers
    run = MeasuredRun(tool, "steps", cells, warm_up=len(numbers) - len(measured_steps))
    for number in numbers:
        run.steps[number] = [Figure("iteration_time", 1e-3 * steps[number][1], "ms")]
    window = min(steps[n][0] for n in measured_steps), max(sum(steps[n]) for n in measured_steps)
    if len(kernels.start):
        parts = _parts(kernels, window, len(measured_steps))
        run.shares = {f"{name}_ms": number_text(value) for name, value in parts.items()}
        run.note = "ms a step: " + ", ".join(f"{name} {value:.4g}" for name, value in parts.items())
        run.note += _collectives(kernels, len(numbers))
    return run


def _parts(kernels: KernelTimes, window: tuple[float, float], n_steps: int) -> dict[str, float]:
    """Return class → ms a step of its kernels in the window (start and end, µs).

    And with overlaps counted once, so that they sum to the step: ``compute``, communication that it does not hide
    (``exposed_nccl``), and ``gap`` without a kernel.
    """
    start_us, end_us = np.frombuffer(kernels.start), np.frombuffer(kernels.end)
    class_index = np.frombuffer(kernels.label, np.uint8)
    in_window = (end_us > window[0]) & (start_us < window[1])
    start_us, end_us, class_index = (
        np.maximum(start_us[in_window], window[0]),
        np.minimum(end_us[in_window], window[1]),
        class_index[in_window],
    )
    sums = np.bincount(class_index, end_us - start_us, minlength=len(_LABELS))
    us_by_class = {name: float(total) for name, total in zip(_LABELS, sums, strict=True) if total > 0.0}
    busy_us, compute_us = (
        union_length(start_us, end_us),
        union_length(start_us[class_index != 0], end_us[class_index != 0]),
    )
    us_by_class |= {
        "compute": compute_us,
        "exposed_nccl": busy_us - compute_us,
        "gap": max(window[1] - window[0] - busy_us, 0.0),
    }
    return {name: 1e-3 * value / n_steps for name, value in us_by_class.items()}


def union_length(start: np.ndarray, end: np.ndarray) -> float:
    """Return the length of the union of intervals, in their unit."""
    if not len(start):
        return 0.0
    order = np.argsort(start, kind="stable")
    start, latest_end = start[order], np.maximum.accumulate(end[order])
    previous_end = np.concatenate([[-np.inf], latest_end[:-1]])
    return float(np.sum(np.maximum(latest_end - np.maximum(start, previous_end), 0.0)))


def _collectives(kernels: KernelTimes, n_steps: int) -> str:
    """Return as text the collectives that take longest, with bytes, ranks and ms a step."""
    longest = sorted(kernels.collectives.items(), key=lambda item: -item[1][1])[:6]
    return "".join(
        f"; {kind}{f' of {size:,} B' if size else ''}{f' over {ranks} ranks' if ranks else ''}: {count / n_steps:.4g} "
        f"a step, {1e-3 * total / n_steps:.4g} ms"
        for (kind, size, ranks), (count, total) in longest
    )
