"""Branch and bound: blocks that may hold a better design are divided, the lowest bound first, until none is left.

A block is closed when no design of it can run, when its bound is above what a better design would have, or when all of
its designs have been evaluated. The lowest bound of all that is closed or open is proven of the whole space.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.search.prove import forms
from dse.search.prove.blocks import Blocks, Ranges, designs

#: Blocks that are split at a time, and that are bounded in one pass: their values stay in the cache.
_SPLIT, _PASS = 4096, 1024

#: A block of so few designs is evaluated design by design, so many at once.
_FEW, _DESIGNS = 64, 8192

#: Lists of mappings and names are split into single ones where they are not longer, else in halves.
_MOST_PARTS = 1 << 17

#: Of a pass, the blocks of lowest bound of which a design is evaluated.
_TRIED = 32

#: How much the width of an axis counts for where a block is split, beside its share of the objective: always, and where
#: it is open whether designs can run.
_ALWAYS, _UNDECIDED = 0.02, 0.3

#: What became of a block.
OPEN, DIVIDED, CANNOT_RUN, BOUNDED, EVALUATED = range(5)


class Found(NamedTuple):
    """A design and its objective, as it is made small."""

    member: int  #: which of the grids of one structure
    values: dict[str, float]  #: leaf path → value
    objective: float


class Node(NamedTuple):
    """What became of blocks, an array each; the first are the wholes, one for each structure."""

    kind: np.ndarray
    axis: np.ndarray  #: along which a block was divided
    parts: np.ndarray  #: into how many
    child: np.ndarray  #: the first of these, which follow one another


class Bounded(NamedTuple):
    """What is known of blocks."""

    bound: np.ndarray
    cannot_run: np.ndarray
    axis: np.ndarray  #: along which to divide them
    corner: np.ndarray  #: positions of a design that may be the best of it


class _Open(NamedTuple):
    """Blocks that may hold a better design."""

    member: np.ndarray
    first: np.ndarray
    behind: np.ndarray
    number: np.ndarray
    bound: np.ndarray
    axis: np.ndarray

    def at(self, which: Any) -> _Open:
        return _Open(*(array[which] for array in self))


@dataclasses.dataclass
class State:
    """How far a proof is."""

    best: Found | None
    bound: float  #: that no design is below
    n_open: int
    n_blocks: int
    n_designs: int  #: evaluated
    seconds: float

    @property
    def gap(self) -> float:
        """How much better than the best a design may be, relative."""
        return math.inf if self.best is None else gap_of(self.best.objective, self.bound)


def gap_of(objective: float, bound: float) -> float:
    """How much better than an objective a bound is, relative."""
    return max(0.0, (objective - bound) / max(abs(objective), 1e-30))


class Prover:
    """Blocks of several grids of one structure each, and the tree that they make."""

    def __init__(self, members: Sequence[Blocks], best: Found | None, gap: float) -> None:
        self.members, self.best, self.gap = members, best, gap
        self._closed = math.inf  # the lowest bound of what is closed
        self._n_designs, self._began = 0, time.perf_counter()
        self._records: list[tuple[np.ndarray, ...]] = []
        self._n_blocks = len(members)
        self._width = max(len(one.axes) for one in members)
        self._open = self._wholes()

    def run(self, goes_on: Callable[[State], bool]) -> State:
        """Divide blocks until none is open or ``goes_on`` says no; what is known then."""
        while len(self._open.number) and goes_on(self.state()):
            count = len(self._open.number)
            chosen = np.argpartition(self._open.bound, _SPLIT)[:_SPLIT] if count > _SPLIT else np.arange(count)
            left = np.ones(count, bool)
            left[chosen] = False
            parents, self._open = self._open.at(chosen), self._open.at(left)
            kept = [part for one in self._divided(parents) for part in self._judged(one)]
            self._open = _joined([self._open, *kept])
            self._close(self._open.bound >= self._cut)
        return self.state()

    def state(self) -> State:
        """How far the proof is."""
        best = math.inf if self.best is None else self.best.objective
        bound = min(self._closed, best, self._open.bound.min(initial=math.inf))
        seconds = time.perf_counter() - self._began
        return State(self.best, float(bound), len(self._open.number), self._n_blocks, self._n_designs, seconds)

    def tree(self) -> Node:
        """What became of every block."""
        found = Node(*(np.zeros(self._n_blocks, kind) for kind in (np.int8, np.int8, np.int32, np.int64)))
        for number, *columns in self._records:
            for whole, column in zip(found, columns, strict=True):
                whole[number] = column
        return found

    @property
    def _cut(self) -> float:
        """What the bound of a block must be below to be of interest."""
        return math.inf if self.best is None else self.best.objective - self.gap * abs(self.best.objective)

    # --- blocks ---------------------------------------------------------------------------------------------

    def _wholes(self) -> _Open:
        found = []
        for member, one in enumerate(self.members):
            known = bounded(one, one.whole)
            first, behind = map(self._wide, one.whole)
            found.append(_Open(np.array([member]), first, behind, np.array([member]), known.bound, known.axis))
        return _joined(found)

    def _wide(self, positions: np.ndarray) -> np.ndarray:
        """Positions with those of axes that a member does not have."""
        return np.pad(positions, [(0, 0), (0, self._width - positions.shape[1])])

    def _divided(self, parents: _Open) -> Iterator[_Open]:
        """The parts of blocks, by structure."""
        for member, one in enumerate(self.members):
            own = parents.at(parents.member == member)
            if not len(own.number):
                continue
            size = own.behind[np.arange(len(own.axis)), own.axis] - own.first[np.arange(len(own.axis)), own.axis]
            parts = np.where(one.is_listed[own.axis] & (size <= _MOST_PARTS), size, 2)
            child = self._n_blocks + np.cumsum(parts) - parts
            self._n_blocks += int(parts.sum())
            self._record(own.number, DIVIDED, own.axis, parts, child)
            ranges, parent = divided(Ranges(own.first, own.behind), own.axis, parts)
            numbers = np.arange(child[0], child[0] + len(parent))
            yield _Open(own.member[parent], *ranges, numbers, own.bound[parent], own.axis[parent])

    def _judged(self, blocks: _Open) -> Iterator[_Open]:
        """Those of new blocks of one structure that stay open."""
        one, n_axes = self.members[blocks.member[0]], len(self.members[blocks.member[0]].axes)
        ranges = Ranges(blocks.first[:, :n_axes], blocks.behind[:, :n_axes])
        few = (np.prod((ranges.behind - ranges.first).astype(float), axis=1) <= _FEW) & (not one.is_continuous)
        if few.any():
            every, _ = designs(ranges.at(few))
            self._evaluate(blocks.member[0], every)
            self._record(blocks.number[few], EVALUATED)
        places = np.flatnonzero(~few)
        for start in range(0, len(places), _PASS):
            some = places[start : start + _PASS]
            known = bounded(one, ranges.at(some))
            bound = np.maximum(known.bound, blocks.bound[some])
            divisible = (ranges.behind[some] - ranges.first[some]).max(axis=1) > 1  # not a cell of continuous axes
            useful = ~known.cannot_run & (bound < self._cut) & divisible
            best = np.flatnonzero(useful)
            best = best[np.argsort(bound[best])[:_TRIED]]
            self._evaluate(blocks.member[0], Ranges(known.corner[best], known.corner[best] + 1))
            self._record(blocks.number[some[known.cannot_run]], CANNOT_RUN)
            over = ~known.cannot_run & ~useful
            self._record(blocks.number[some[over]], BOUNDED)
            self._closed = min(self._closed, bound[over].min(initial=math.inf))
            found = blocks.at(some[useful])
            yield found._replace(bound=bound[useful], axis=known.axis[useful])

    def _evaluate(self, member: int, every: Ranges) -> None:
        """Evaluate single designs, of continuous axes those at a border of their cell."""
        for start in range(0, len(every.first), _DESIGNS):
            some = every.at(slice(start, start + _DESIGNS))
            objective, reason = self.members[member].evaluated(some)
            able = np.where((reason == 0) & np.isfinite(objective), objective, np.inf)
            self._n_designs += len(able)
            at = int(able.argmin())
            if able[at] < (math.inf if self.best is None else self.best.objective):
                self.best = Found(int(member), self.members[member].leaves(some.first[at]), float(able[at]))

    def _close(self, which: np.ndarray) -> None:
        """Close blocks that are open."""
        if which.any():
            self._record(self._open.number[which], BOUNDED)
            self._closed = min(self._closed, float(self._open.bound[which].min()))
            self._open = self._open.at(~which)

    def _record(self, number: np.ndarray, kind: int, axis: Any = 0, parts: Any = 0, child: Any = 0) -> None:
        self._records.append((number, *(np.broadcast_to(one, number.shape) for one in (kind, axis, parts, child))))


def _joined(parts: Sequence[_Open]) -> _Open:
    return _Open(*map(np.concatenate, zip(*parts, strict=True)))


def divided(ranges: Ranges, axis: np.ndarray, parts: np.ndarray) -> tuple[Ranges, np.ndarray]:
    """Parts of blocks, as even as they can be, along an axis of each; and the number of the block each is of."""
    parent = np.repeat(np.arange(len(parts)), parts)
    number = np.arange(len(parent)) - np.repeat(np.cumsum(parts) - parts, parts)
    along, rows = axis[parent], np.arange(len(parent))
    first, behind = ranges.first[parent], ranges.behind[parent]
    start, size = first[rows, along], behind[rows, along] - first[rows, along]
    first[rows, along], behind[rows, along] = (start + size * part // parts[parent] for part in (number, number + 1))
    return Ranges(first, behind), parent


@np.errstate(all="ignore")
def bounded(blocks: Blocks, ranges: Ranges) -> Bounded:
    """Bounds of blocks, and where to divide them: along the axis that moves the objective most."""
    values = blocks.values(ranges)
    objective, reason = blocks.computed(values)
    count, size = len(ranges.first), ranges.behind - ranges.first
    none, some = forms.pair(reason)
    share = np.where(size > 1, _ALWAYS, 0.0) + _ALWAYS * (some != none)[:, None] * size / blocks.whole.behind
    corner = ranges.first + size // 2
    if isinstance(objective, forms.Form):
        objective = objective.settled()
        spread = np.maximum(objective.spread(), np.float32(1e-30))
        for i, axis in blocks.axis_of.items():
            slope = np.broadcast_to(objective.rows[forms.SLOPES + blocks.symbol[i]], count)
            share[:, axis] += np.nan_to_num(abs(slope) / spread)
            at_end = (slope > 0) if i in blocks.rates else (slope < 0)
            corner[:, axis] = np.where(at_end, ranges.behind[:, axis] - 1, ranges.first[:, axis])
    share += np.where(blocks.is_listed, 10.0 * len(blocks.axes) - np.arange(len(blocks.axes)), 0.0)
    low, high = (np.broadcast_to(end, count) for end in forms.pair(objective))
    bound = np.where(np.isnan(low) | np.isnan(high), -np.inf, low).astype(float)
    if isinstance(objective, forms.Form):
        for limit in blocks.limits(values):
            bound = np.fmax(bound, forms.least_within(objective, limit))
            open_ = (limit.rows[forms.LOW] < 0) & (limit.rows[forms.HIGH] > 0)
            for i, axis in blocks.axis_of.items():
                part = abs(limit.rows[forms.SLOPES + blocks.symbol[i]]) / np.maximum(limit.spread(), np.float32(1e-30))
                share[:, axis] += _UNDECIDED * np.nan_to_num(np.where(open_, part, 0.0))
    cannot_run = np.broadcast_to(none != 0, count)
    return Bounded(bound, cannot_run, np.where(size > 1, share, -1.0).argmax(axis=1), corner)
