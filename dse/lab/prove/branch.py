"""Branch and bound: blocks that may hold a better design are divided, the most promising first, until none is left.

A block is closed when no design of it can run, when all of its designs have been evaluated, or when some known design
is within the gap of what its designs can be at best, in every objective. Known designs are a front: the best design of
one objective, all that none dominates of two.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.lab.prove import forms
from dse.lab.prove.blocks import Blocks, Ranges, designs
from dse.optimizers import pareto

#: Blocks that are split at a time, and that are bounded in one pass: their values stay in the cache.
_SPLIT, _PASS = 4096, 1024

#: Designs of a block up to which it is evaluated design by design, and designs at once.
_FEW, _DESIGNS = 64, 8192

#: Lists of mappings and names are split into single ones where they are not longer, else in halves.
_MOST_PARTS = 1 << 17

#: Of a pass, the blocks with the largest gap of which designs are evaluated.
_TRIED = 32

#: Blocks of a round that are halved along every axis, to learn which axes narrow bounds; what a round before counts.
_PROBED, _MEMORY, _LEAST_GAIN = 16, 0.8, 1e-3

#: Weight of the width of an axis in the choice of a split, in addition to its share of the objectives: always, and
#: where it is open whether designs can run.
_ALWAYS, _UNDECIDED = 0.02, 0.3

#: What became of a block.
OPEN, DIVIDED, CANNOT_RUN, BOUNDED, EVALUATED = range(5)


class Front(NamedTuple):
    """Designs of which none dominates another, in the order of the first objective."""

    member: np.ndarray  #: [design] which of the grids of one structure
    position: np.ndarray  #: [design, axis]
    objectives: np.ndarray  #: [design, objective] as they are made small


class Node(NamedTuple):
    """What became of blocks, an array each; the first are the wholes, one for each structure."""

    kind: np.ndarray
    axis: np.ndarray  #: along which a block was divided
    parts: np.ndarray  #: into how many
    child: np.ndarray  #: the first of these, which follow one another


class Bounded(NamedTuple):
    """What is known of blocks."""

    bound: np.ndarray  #: [block, objective]
    cannot_run: np.ndarray
    share: np.ndarray  #: [block, axis] of what objectives and open limits are moved by
    corners: list[np.ndarray]  #: by objective: positions of a design that may be the best


class _Open(NamedTuple):
    """Blocks that may hold a better design."""

    member: np.ndarray
    first: np.ndarray
    behind: np.ndarray
    number: np.ndarray
    bound: np.ndarray  #: [block, objective]
    gap: np.ndarray
    axis: np.ndarray

    def at(self, which: Any) -> _Open:
        return _Open(*(array[which] for array in self))


@dataclasses.dataclass(frozen=True)
class State:
    """How far a proof is, between two rounds."""

    front: Front
    gap: float  #: how much better than the nearest design of the front any design may be, relative
    n_open: int
    n_blocks: int
    n_designs: int  #: evaluated
    n_records: int  #: of what became of blocks
    seconds: float


def gaps(front: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """How much better than the nearest design of a front designs of some bounds may be, relative: [block].

    The least gap with which some design ``p`` has ``p - gap |p| <= bound`` in every objective. Along a front of two
    objectives the excess of its designs in the first rises and that in the second falls: the least of their maximum is
    where they meet.

    Args:
        front: [design, objective] in the order of the first, at most two objectives.
        bound: [block, objective].
    """
    if not len(front):
        return np.full(len(bound), np.inf)

    def excess(at: np.ndarray, objective: int) -> Any:
        value = front[at, objective]
        return (value - bound[:, objective]) / np.maximum(abs(value), 1e-30)

    low, high = np.zeros(len(bound), int), np.full(len(bound), len(front) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        meets = (low == high) | (excess(middle, 0) >= excess(middle, 1))
        low, high = np.where(meets, low, middle + 1), np.where(meets, middle, high)
    worst = [np.max([excess(at, i) for i in range(front.shape[1])], axis=0) for at in (low, np.maximum(low - 1, 0))]
    return np.maximum(np.minimum(*worst), 0.0)


class Prover:
    """Blocks of several grids of one structure each, and the tree that they make."""

    def __init__(self, members: Sequence[Blocks], known: Sequence[tuple[int, list[int]]], gap: float) -> None:
        self.members, self.gap = members, gap
        self._began = time.perf_counter()
        self._n_designs, self._n_blocks = 0, len(members)
        self._width = max(len(one.axes) for one in members)
        n = len(members[0].staged.objectives)
        self._front = Front(np.zeros(0, int), np.zeros((0, self._width), int), np.zeros((0, n)))
        self._closed = np.zeros((0, n))  # bounds of what is closed, of which none is above another
        self._records: list[tuple[np.ndarray, ...]] = []
        self._worth = [np.ones((2, len(one.axes))) for one in members]
        for member, position in known:
            self._evaluate(member, Ranges(np.array([position]), np.array([position]) + 1))
        self._open = self._wholes()
        self.state = self._state()

    def run(self, goes_on: Callable[[State], bool]) -> State:
        """Divide blocks until none is open or ``goes_on`` says no; what is known then."""
        while len(self._open.number) and goes_on(self.state):
            count = len(self._open.number)
            order = self._order(self._open.gap, self._open.bound)
            chosen = np.argpartition(order, _SPLIT)[:_SPLIT] if count > _SPLIT else np.arange(count)
            left = np.ones(count, bool)
            left[chosen] = False
            parents, self._open = self._open.at(chosen), self._open.at(left)
            self._learn(parents)
            known = self._front
            kept = [part for one in self._divided(parents) for part in self._judged(one)]
            self._open = _joined([self._open, *kept])
            if self._front is not known:
                self._open = self._open._replace(gap=gaps(self._front.objectives, self._open.bound))
                self._close(self._open.gap <= self.gap)
            self.state = self._state()
        return self.state

    def tree(self, state: State) -> Node:
        """What had become of every block."""
        found = Node(*(np.zeros(state.n_blocks, kind) for kind in (np.int8, np.int8, np.int32, np.int64)))
        for number, *columns in self._records[: state.n_records]:
            for whole, column in zip(found, columns, strict=True):
                whole[number] = column
        return found

    def _state(self) -> State:
        gap = max(gaps(self._front.objectives, self._closed).max(initial=0.0), self._open.gap.max(initial=0.0))
        seconds = time.perf_counter() - self._began
        counts = len(self._open.number), self._n_blocks, self._n_designs, len(self._records)
        return State(self._front, float(gap), *counts, seconds)

    # --- blocks ---------------------------------------------------------------------------------------------

    def _wholes(self) -> _Open:
        found = []
        for member, one in enumerate(self.members):
            known = bounded(one, one.whole)
            first, behind = map(self._wide, one.whole)
            gap, axis = gaps(self._front.objectives, known.bound), self._axis(member, known.share)
            found.append(_Open(np.array([member]), first, behind, np.array([member]), known.bound, gap, axis))
        return _joined(found)

    def _wide(self, positions: np.ndarray) -> np.ndarray:
        """Positions with those of axes that a member does not have."""
        return np.pad(positions, [(0, 0), (0, self._width - positions.shape[1])])

    def _own(self, blocks: _Open, member: int) -> Ranges:
        n_axes = len(self.members[member].axes)
        return Ranges(blocks.first[:, :n_axes], blocks.behind[:, :n_axes])

    def _order(self, gap: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """The largest gap first; where no design is known the lowest bound."""
        return -gap if len(self._front.member) else bound[:, 0]

    def _axis(self, member: int, share: np.ndarray) -> np.ndarray:
        """Where to divide blocks: mappings and names first, then along the axis that narrows their bounds most."""
        one, (gain, spent) = self.members[member], self._worth[member]
        listed = np.where(one.is_listed, 1e3 * (len(one.axes) - np.arange(len(one.axes))), 0.0)
        return np.where(share > 0.0, share * gain / spent + listed, -1.0).argmax(axis=1)

    def _learn(self, parents: _Open) -> None:
        """How much halving along an axis narrows bounds, over the share that forms give it, from a few blocks."""
        worst = parents.at(np.argsort(-parents.gap)[:_PROBED])
        for member, one in enumerate(self.members):
            own = worst.at(worst.member == member)
            ranges = self._own(own, member)
            size = ranges.behind - ranges.first
            usable = np.isfinite(own.gap) & (own.gap > 0.0) & (size[:, one.is_listed] == 1).all(axis=1)
            block, axis = np.nonzero((size > 1) & ~one.is_listed & usable[:, None])
            if not len(block):
                continue
            halves, parent = divided(ranges.at(block), axis, np.full(len(block), 2))
            known, before = bounded(one, halves), own.gap[block]
            after = gaps(self._front.objectives, np.maximum(known.bound, own.bound[block[parent]]))
            after = np.where(known.cannot_run, self.gap, np.maximum(after, self.gap)).reshape(-1, 2)
            narrowed = np.maximum(1.0 - after / before[:, None], _LEAST_GAIN)
            share = bounded(one, ranges).share[block, axis]
            counts = [np.bincount(axis, w, len(one.axes)) for w in (np.sqrt(narrowed.prod(axis=1)), share)]
            self._worth[member] = _MEMORY * self._worth[member] + np.stack(counts)

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
            yield own.at(parent)._replace(first=ranges.first, behind=ranges.behind, number=numbers)

    def _judged(self, blocks: _Open) -> Iterator[_Open]:
        """Those of new blocks of one structure that stay open."""
        member = int(blocks.member[0])
        one, ranges = self.members[member], self._own(blocks, member)
        few = (np.prod((ranges.behind - ranges.first).astype(float), axis=1) <= _FEW) & (not one.is_continuous)
        if few.any():
            self._evaluate(member, designs(ranges.at(few))[0])
            self._record(blocks.number[few], EVALUATED)
        places = np.flatnonzero(~few)
        for start in range(0, len(places), _PASS):
            some = places[start : start + _PASS]
            known = bounded(one, ranges.at(some))
            bound = np.maximum(known.bound, blocks.bound[some])
            gap = gaps(self._front.objectives, bound)
            divisible = (ranges.behind[some] - ranges.first[some]).max(axis=1) > 1  # not a cell of continuous axes
            useful = ~known.cannot_run & (gap > self.gap) & divisible
            tried = np.flatnonzero(useful)
            tried = tried[np.argsort(self._order(gap[tried], bound[tried]))[:_TRIED]]
            for corner in known.corners:
                self._evaluate(member, Ranges(corner[tried], corner[tried] + 1))
            self._record(blocks.number[some[known.cannot_run]], CANNOT_RUN)
            over = ~known.cannot_run & ~useful
            self._close_bounds(blocks.number[some[over]], bound[over])
            axis = self._axis(member, known.share[useful])
            yield blocks.at(some[useful])._replace(bound=bound[useful], gap=gap[useful], axis=axis)

    def _evaluate(self, member: int, every: Ranges) -> None:
        """Evaluate single designs, of continuous axes those at a border of their cell."""
        for start in range(0, len(every.first), _DESIGNS):
            some = every.at(slice(start, start + _DESIGNS))
            objectives, reason = self.members[member].evaluated(some)
            self._n_designs += len(reason)
            able = (reason == 0) & np.isfinite(objectives).all(axis=1)
            able[able] = gaps(self._front.objectives, objectives[able].astype(float)) > 0.0
            if able.any():
                new = np.full(able.sum(), member), self._wide(some.first[able]), objectives[able]
                every_one = Front(*map(np.concatenate, zip(self._front, new, strict=True)))
                kept = pareto.front(every_one.objectives)
                kept = kept[np.argsort(every_one.objectives[kept, 0])]
                self._front = Front(*(array[kept] for array in every_one))

    def _close(self, which: np.ndarray) -> None:
        """Close blocks that are open."""
        if which.any():
            self._close_bounds(self._open.number[which], self._open.bound[which])
            self._open = self._open.at(~which)

    def _close_bounds(self, number: np.ndarray, bound: np.ndarray) -> None:
        self._record(number, BOUNDED)
        closed = np.concatenate([self._closed, bound])
        self._closed = closed[pareto.front(closed)]

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
    """Bounds of blocks, and by how much each axis moves what they hold."""
    values = blocks.values(ranges)
    objectives, reason = blocks.computed(values)
    count, size = len(ranges.first), ranges.behind - ranges.first
    none, some = forms.pair(reason)
    share = _ALWAYS + _ALWAYS * (some != none)[:, None] * size / blocks.whole.behind
    limits, bounds, corners = blocks.limits(values), [], []
    for limit in limits:
        open_ = (limit.rows[forms.LOW] < 0) & (limit.rows[forms.HIGH] > 0)
        share += np.where(open_, _UNDECIDED, 0.0)[:, None] * _shares(blocks, limit)
    for objective in objectives:
        corner = ranges.first + size // 2
        low, high = (np.broadcast_to(end, count) for end in forms.pair(objective))
        if isinstance(objective, forms.Form):
            objective = objective.settled()
            low, high = objective.pair
            share += _shares(blocks, objective)
            for i, axis in blocks.axis_of.items():
                slope = objective.rows[forms.SLOPES + blocks.symbol[i]]
                at_end = (slope > 0) if i in blocks.rates else (slope < 0)
                corner[:, axis] = np.where(at_end, ranges.behind[:, axis] - 1, ranges.first[:, axis])
        bound = np.where(np.isnan(low) | np.isnan(high), -np.inf, low).astype(float)
        for limit in limits if isinstance(objective, forms.Form) else []:
            bound = np.fmax(bound, forms.least_within(objective, limit))
        bounds.append(bound)
        corners.append(corner)
    cannot_run = np.broadcast_to(none != 0, count)
    return Bounded(np.stack(bounds, axis=1), cannot_run, np.where(size > 1, share, 0.0), corners)


def _shares(blocks: Blocks, value: forms.Form) -> np.ndarray:
    """[block, axis] how much of a value's spread is along each axis."""
    share = np.zeros((value.rows.shape[1], len(blocks.axes)))
    spread = np.maximum(value.spread(), np.float32(1e-30))
    for i, axis in blocks.axis_of.items():
        share[:, axis] += np.nan_to_num(abs(value.rows[forms.SLOPES + blocks.symbol[i]]) / spread)
    return share
