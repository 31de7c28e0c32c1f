"""Steps of a device: which kernels of a profile belong to a step, and how long it lasts.

A step is marked by an annotation (``step_marks.toml``). Its kernels are those that were launched while the mark was
open, by the correlation of kernel and launch; where a profile has no launches those under the device's own annotation,
else those that ran while the mark of the host was open. Without marks the period of the kernels divides a profile.

A step lasts from its first kernel to that of the next step. The last one has no next: it lasts as long as its mark
where the device ended within it; where the host ran ahead only a lower bound is known, which counts if it is the only
step. Marks under which nothing was launched are no steps.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dse.errors import InputError
from dse.io import toml

_ROWS = toml.table(Path(__file__).with_name("step_marks.toml"))

#: Marks of one profile that are kept; names of annotations that are remembered.
_MAX_MARKS, _MAX_NAMES = 1_000_000, 100_000

#: Kernels of the shortest period that is a step, and of the longest one.
_MIN_PERIOD, _MAX_PERIOD = 8, 2_000_000

#: Names that are tried as the one that begins a period; share of a period's kernels that has to be in the next one.
_PERIOD_NAMES, _PERIOD_SHARE = 24, 0.95

#: Tolerance of times, µs.
_US = 1e-3


class MarkRow(NamedTuple):
    """A row of ``step_marks.toml``."""

    pattern: re.Pattern[str]
    engine: str = ""
    is_end: bool = False  #: whether the ends of marks divide steps


MARK_ROWS = tuple(
    MarkRow(re.compile(row["pattern"]), row.get("engine", ""), row.get("at") == "end") for row in _ROWS["marks"]
)

_PHASES = {name.lower(): phase for phase, names in _ROWS["phases"].items() for name in names}


class Mark(NamedTuple):
    """An annotation that marks a step."""

    start: float  #: µs
    end: float  #: µs
    name: str


class StepKind(NamedTuple):
    """What a step of a serving engine does; all empty for training."""

    phase: str = ""  #: prefill, decode, mixed, or the engine's own word
    requests: int = 0
    tokens: int = 0  #: new tokens of prompts
    context: int = 0  #: tokens that the requests attend to, in all


class Marks:
    """Marks of steps that a reader finds, by row of the table, of the host and of the device.

    Args:
        pattern: of names that mark a step, in place of those of the table.

    Raises:
        InputError: for a pattern that is none.
    """

    def __init__(self, pattern: str = "") -> None:
        self.pattern = pattern
        try:
            self.rows = (MarkRow(re.compile(pattern)),) if pattern else MARK_ROWS
        except re.error as error:
            fix = "quote the characters ( ) [ ] . with a backslash"
            raise InputError("--set step_mark", pattern, "a regular expression", f"{fix}: {error}") from None
        self.found: dict[tuple[int, bool], list[Mark]] = {}
        self._rows_by_name: dict[str, int] = {}
        self._count = 0

    def row_of(self, name: str) -> int:
        """Return the index of the row that a name is of, -1 for none."""
        index = self._rows_by_name.get(name)
        if index is None:
            matches = (i for i, row in enumerate(self.rows) if row.pattern.fullmatch(name))
            index = next(matches, -1)
            if len(self._rows_by_name) < _MAX_NAMES:
                self._rows_by_name[name] = index
        return index

    def add(self, name: str, start_us: float, duration_us: float, is_device: bool = False) -> bool:
        """Keep an annotation if it marks a step; return whether it does."""
        index = self.row_of(name[:1000])
        if index < 0 or duration_us <= 0.0 or self._count >= _MAX_MARKS:
            return index >= 0
        self._count += 1
        self.found.setdefault((index, is_device), []).append(Mark(start_us, start_us + duration_us, name[:1000]))
        return True

    def of_row(self, index: int, is_device: bool) -> list[Mark]:
        """Return the marks of a row in order of time, those within another one merged with it."""
        merged: list[Mark] = []
        for mark in sorted(self.found.get((index, is_device), ())):
            if merged and mark.start < merged[-1].end - _US:
                merged[-1] = merged[-1]._replace(end=max(merged[-1].end, mark.end))
            else:
                merged.append(mark)
        if not self.rows[index].is_end:
            return merged
        return [Mark(first.end, second.end, second.name) for first, second in itertools.pairwise(merged)]

    @property
    def engine(self) -> str:
        """The engine whose marks were found, "" for none."""
        engines = (self.rows[index].engine for index, _ in sorted(self.found))
        return next(filter(None, engines), "")

    def kind_of(self, name: str) -> StepKind:
        """Return what the step with a mark of this name does."""
        index = self.row_of(name)
        mark_match = self.rows[index].pattern.fullmatch(name) if index >= 0 else None
        groups = mark_match.groupdict() if mark_match else {}
        counts = {key: int(text) for key, text in groups.items() if key != "phase" and text and len(text) < 16}
        if "phase" in groups:
            phase = _PHASES.get(groups["phase"].lower(), groups["phase"].lower())
            return StepKind(phase, counts.get("requests", 0), counts.get("tokens", 0), counts.get("context", 0))
        if "prefills" not in groups:
            return StepKind()
        prefills, decodes = counts.get("prefills", 0), counts.get("decodes", 0)
        phase = "mixed" if prefills and decodes else "prefill" if prefills else "decode"
        return StepKind(phase, prefills + decodes, counts.get("prompt_tokens", 0), counts.get("context", 0))


@dataclasses.dataclass(frozen=True, eq=False)
class DeviceSteps:
    """The steps of a device, times in µs."""

    names: tuple[str, ...]  #: of their marks, "" where the period of kernels divides them [steps]
    start: np.ndarray  #: first kernel [steps]
    end: np.ndarray  #: first kernel of the next step [steps]
    host: np.ndarray  #: duration of the mark of the host, 0 where there is none [steps]
    lag: np.ndarray  #: from the begin of the mark of the host to the first kernel [steps]
    is_whole: np.ndarray  #: whether the end is known [steps]
    kernel_step: np.ndarray  #: index of the step of a kernel, -1 for none [kernels]
    how: str  #: launches, annotations, times, or period

    @property
    def length(self) -> np.ndarray:
        """Duration of each step, µs [steps]."""
        return self.end - self.start

    def counted(self, indices: Sequence[int] | None = None) -> np.ndarray:
        """Return the indices of the steps that count: all but the first, which pays for the profiler, if several.

        Args:
            indices: of the steps that are alike, all by default.
        """
        chosen = np.arange(len(self.names)) if indices is None else np.asarray(indices, np.int64)
        return chosen[1:] if len(chosen) > 1 and chosen[0] == 0 else chosen

    def timed(self, indices: np.ndarray) -> np.ndarray:
        """Return those of some steps whose end is known, or all where none is."""
        whole = indices[self.is_whole[indices]]
        return whole if len(whole) else indices


class KernelArrays(NamedTuple):
    """Kernels of a profile, and launches of the host."""

    start: np.ndarray  #: µs [kernels]
    end: np.ndarray  #: µs [kernels]
    name: np.ndarray  #: number of its name [kernels]
    correlation: np.ndarray  #: of its launch, 0 for none [kernels]
    launch_correlation: np.ndarray  #: [launches]
    launch_time: np.ndarray  #: µs [launches]


def device_steps(kernels: KernelArrays, marks: Marks) -> DeviceSteps | None:
    """Return the steps of a device, None where nothing marks any and the kernels have no period.

    Args:
        kernels: of one device.
        marks: of the host and the device.
    """
    for index in range(len(marks.rows)):
        on_host, on_device = marks.of_row(index, False), marks.of_row(index, True)
        if on_host and not len(kernels.start):  # a host alone
            return _of_marks(on_host, np.arange(len(on_host)), np.zeros(0, np.int64))
        for found in (
            _by_launches(kernels, on_host),
            _by_annotations(kernels, on_device, marks.rows[index].is_end),
            _by_times(kernels, on_host),
        ):
            if found is not None:
                return found
    return None if marks.pattern or not len(kernels.start) else _by_period(kernels)


def _launch_times(kernels: KernelArrays) -> np.ndarray:
    """Return when the host launched each kernel, µs, NaN where that is not known [kernels]."""
    times = np.full(len(kernels.start), np.nan)
    if not len(kernels.launch_correlation):
        return times
    order = np.argsort(kernels.launch_correlation, kind="stable")
    sorted_correlations = kernels.launch_correlation[order]
    index = np.minimum(np.searchsorted(sorted_correlations, kernels.correlation), len(order) - 1)
    is_known = (sorted_correlations[index] == kernels.correlation) & (kernels.correlation > 0)
    times[is_known] = kernels.launch_time[order[index[is_known]]]
    return times


def _by_launches(kernels: KernelArrays, marks: Sequence[Mark]) -> DeviceSteps | None:
    """Return the steps of kernels launched while a mark of the host was open, None where no launch is known."""
    if not marks:
        return None
    launched = _launch_times(kernels)
    is_launched = ~np.isnan(launched)
    starts, ends = np.array([mark.start for mark in marks]), np.array([mark.end for mark in marks])
    index = np.searchsorted(starts, np.where(is_launched, launched, -np.inf) + _US, "right") - 1
    index[index == len(marks) - 1] = np.where(launched[index == len(marks) - 1] <= ends[-1], len(marks) - 1, -1)
    if not (index >= 0).any():
        return None
    owned = np.unique(index[index >= 0])
    step = np.where(index >= 0, np.searchsorted(owned, index), -1)
    first, last = _extents(kernels, step, len(owned))
    host = ends[owned] - starts[owned]
    is_within = last[-1] <= ends[owned[-1]] + _US
    last_length = host[-1] if is_within else max(host[-1], last[-1] - first[-1])
    end = np.append(first[1:], first[-1] + last_length)
    is_whole = np.append(np.ones(len(owned) - 1, bool), is_within)
    by_time = np.searchsorted(first, kernels.start + _US, "right") - 1  # kernels whose launch the file lacks
    by_time[kernels.start >= end[-1]] = -1
    step = np.where(is_launched, step, by_time)
    return DeviceSteps(_names(marks, owned), first, end, host, first - starts[owned], is_whole, step, "launches")


def _by_annotations(kernels: KernelArrays, marks: Sequence[Mark], is_closed: bool) -> DeviceSteps | None:
    """Return the steps of kernels whose middle lies after the begin of a mark of the device, None where there are none.

    The profiler ends an annotation of the device where an inner one begins, so that nothing tells when the last step
    ends, unless its marks are ``is_closed`` by those of the ends of steps.
    """
    limit = marks[-1].end if is_closed and marks else np.inf
    found = _between(marks, 0.5 * (kernels.start + kernels.end), limit)
    if found is None:
        return None
    owned, step = found
    first, last = _extents(kernels, step, len(owned))
    end = np.append(first[1:], limit if is_closed else max(marks[owned[-1]].end, last[-1]))
    is_whole = is_closed | (np.arange(len(owned)) < len(owned) - 1)
    nothing = np.zeros(len(owned))
    return DeviceSteps(_names(marks, owned), first, end, nothing, nothing, is_whole, step, "annotations")


def _by_times(kernels: KernelArrays, marks: Sequence[Mark]) -> DeviceSteps | None:
    """Return the steps of kernels that began between the begins of marks of the host, None where none did."""
    found = _between(marks, kernels.start, marks[-1].end if marks else 0.0)
    if found is None:
        return None
    return _of_marks(marks, *found)


def _of_marks(marks: Sequence[Mark], owned: np.ndarray, step: np.ndarray) -> DeviceSteps:
    """Return the steps between the begins of some marks of the host, with the step of each kernel."""
    start, mark_end = (np.array([marks[i][field] for i in owned]) for field in (0, 1))
    end, is_whole = np.append(start[1:], mark_end[-1]), np.ones(len(owned), bool)
    nothing = np.zeros(len(owned))
    return DeviceSteps(_names(marks, owned), start, end, mark_end - start, nothing, is_whole, step, "times")


def _between(marks: Sequence[Mark], times: np.ndarray, limit: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Return indices of the marks with kernels, and that of the step of each kernel by a time before a limit, µs.

    None without any.
    """
    index = np.searchsorted(np.array([mark.start for mark in marks]), times + _US, "right") - 1
    index[times >= limit] = -1
    owned = np.unique(index[index >= 0])
    return (owned, np.where(index >= 0, np.searchsorted(owned, index), -1)) if len(owned) else None


def _extents(kernels: KernelArrays, step: np.ndarray, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return begin of the first kernel and end of the last one of each step, µs [steps]."""
    is_owned = step >= 0
    first, last = np.full(n_steps, np.inf), np.full(n_steps, -np.inf)
    np.minimum.at(first, step[is_owned], kernels.start[is_owned])
    np.maximum.at(last, step[is_owned], kernels.end[is_owned])
    return np.maximum.accumulate(first), last


def _names(marks: Sequence[Mark], indices: np.ndarray) -> tuple[str, ...]:
    """Return the names of some marks."""
    return tuple(marks[index].name for index in indices)


def _by_period(kernels: KernelArrays) -> DeviceSteps | None:
    """Return the steps by the period of the names of kernels in order of time, None where they have none.

    A step begins with a kernel that runs once in it, so that names are tried from the rarest on. Two periods or more
    have to hold the same kernels, and those before and after them none that is not in a period: else it is a layer's.
    """
    order = np.argsort(kernels.start, kind="stable")
    names = kernels.name[order]
    counts = np.bincount(names)
    rare = sorted((int(name) for name in np.flatnonzero(counts >= 3)), key=lambda name: int(counts[name]))
    for name in rare[:_PERIOD_NAMES]:
        positions = np.flatnonzero(names == name)
        lengths = np.diff(positions)
        if not _MIN_PERIOD <= lengths.min() <= lengths.max() <= _MAX_PERIOD:
            continue
        periods = [names[first:last] for first, last in itertools.pairwise(positions)]
        typical = np.bincount(periods[0], minlength=len(counts))
        shared = [
            float(np.minimum(typical, np.bincount(period, minlength=len(counts))).sum())
            / max(len(period), typical.sum())
            for period in periods
        ]
        others = np.concatenate([names[: positions[0]], names[positions[-1] :]])
        if min(shared) < _PERIOD_SHARE or (typical[others] == 0).mean() > 1.0 - _PERIOD_SHARE:
            continue
        start = kernels.start[order][positions]
        step = np.full(len(names), -1)
        step[order] = np.searchsorted(positions, np.arange(len(names)), "right") - 1
        step[step >= len(periods)] = -1
        whole, nothing = np.ones(len(periods), bool), np.zeros(len(periods))
        return DeviceSteps(("",) * len(periods), start[:-1], start[1:], nothing, nothing, whole, step, "period")
    return None
