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
from dse.lab.prove.blocks import BlockEvaluator, BlockRanges, numbered_parts, single_designs
from dse.optimizers import pareto

#: Count of blocks that are split at a time, and that are bounded in one pass: their values stay in the cache.
_SPLIT_BLOCKS, _PASS_BLOCKS = 4096, 1024

#: Size of a block up to which it is evaluated design by design, and count of designs at once.
_MAX_LISTED, _BATCH_DESIGNS = 64, 8192

#: Lists of mappings and names are split into single ones where they are not longer, else in halves.
_MAX_PARTS = 1 << 17

#: Count of blocks of a pass, those with the largest gap, at whose corners designs are evaluated.
_CORNER_BLOCKS = 32

#: Count of blocks of a round that are halved along every axis to learn which axes narrow bounds; weight of the round
#: before; smallest gain.
_PROBED_BLOCKS, _MEMORY, _MIN_GAIN = 16, 0.8, 1e-3

#: Weight of the width of an axis in the choice of a split, in addition to its share of the objectives: always, and
#: where it is open whether designs can run.
_WIDTH_WEIGHT, _LIMIT_WEIGHT = 0.02, 0.3

#: What became of a block.
OPEN, SPLIT, CANNOT_RUN, BOUNDED, EVALUATED = range(5)


class IncumbentFront(NamedTuple):
    """The best designs so far, of which none dominates another, in the order of the first objective."""

    member: np.ndarray  #: [design] which of the grids of one structure
    position: np.ndarray  #: [design, axis]
    objectives: np.ndarray  #: [design, objective] as they are made small


class BlockTree(NamedTuple):
    """Fate and children of all blocks, an array each; the first blocks are all designs of each structure."""

    kind: np.ndarray
    axis: np.ndarray  #: along which a block was divided
    parts: np.ndarray  #: into how many
    child: np.ndarray  #: the first of these, which follow one another


class BlockBounds(NamedTuple):
    """Bounds of blocks, and where to split them."""

    bound: np.ndarray  #: [block, objective]
    cannot_run: np.ndarray
    share: np.ndarray  #: [block, axis] of what objectives and open limits are moved by
    corners: list[np.ndarray]  #: by objective: positions of a design that may be the best


class _OpenBlocks(NamedTuple):
    """Blocks that may have a better design."""

    member: np.ndarray
    first: np.ndarray
    stop: np.ndarray
    number: np.ndarray
    bound: np.ndarray  #: [block, objective]
    gap: np.ndarray
    axis: np.ndarray

    def take(self, index: Any) -> _OpenBlocks:
        """Return the blocks at an index, a slice or a mask."""
        return _OpenBlocks(*(array[index] for array in self))


@dataclasses.dataclass(frozen=True)
class ProofState:
    """Progress of a proof between two rounds."""

    front: IncumbentFront
    gap: float  #: how much better than the nearest design of the front any design may be, relative
    n_open: int
    n_blocks: int
    n_designs: int  #: evaluated
    n_records: int  #: of what became of blocks
    seconds: float


def gaps(front: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Return the relative gap of blocks [block]: how much better than the nearest design of a front they may be.

    The least gap with which some design ``p`` has ``p - gap |p| <= bound`` in every objective. Along a front of two
    objectives the excess of its designs in the first rises and that in the second falls: the least of their maximum is
    where they meet.

    Args:
        front: [design, objective] in the order of the first, at most two objectives.
        bound: [block, objective].
    """
    if not len(front):
        return np.full(len(bound), np.inf)

    def excess(i: np.ndarray, objective: int) -> Any:
        value = front[i, objective]
        return (value - bound[:, objective]) / np.maximum(abs(value), 1e-30)

    low, high = np.zeros(len(bound), int), np.full(len(bound), len(front) - 1)
    while (low < high).any():
        middle = (low + high) // 2
        is_at_or_past = (low == high) | (excess(middle, 0) >= excess(middle, 1))
        low, high = np.where(is_at_or_past, low, middle + 1), np.where(is_at_or_past, middle, high)
    worst_excesses = [
        np.max([excess(indices, i) for i in range(front.shape[1])], axis=0) for indices in (low, np.maximum(low - 1, 0))
    ]
    return np.maximum(np.minimum(*worst_excesses), 0.0)


class BranchAndBound:
    """Splits and bounds blocks of several grids of one structure each."""

    def __init__(
        self, members: Sequence[BlockEvaluator], incumbents: Sequence[tuple[int, list[int]]], gap: float
    ) -> None:
        self.members, self.gap = members, gap
        self._start_time = time.perf_counter()
        self._n_designs, self._n_blocks = 0, len(members)
        self._width = max(len(evaluator.axes) for evaluator in members)
        n_objectives = len(members[0].staged.objectives)
        self._front = IncumbentFront(np.zeros(0, int), np.zeros((0, self._width), int), np.zeros((0, n_objectives)))
        self._closed = np.zeros((0, n_objectives))  # bounds of what is closed, of which none is above another
        self._records: list[tuple[np.ndarray, ...]] = []
        self._gain_and_cost = [np.ones((2, len(evaluator.axes))) for evaluator in members]
        for member, position in incumbents:
            self._evaluate(member, BlockRanges(np.array([position]), np.array([position]) + 1))
        self._open = self._initial_blocks()
        self.state = self._state()

    def run(self, may_continue: Callable[[ProofState], bool]) -> ProofState:
        """Split blocks until none is open or ``may_continue`` is false, and return the state."""
        while len(self._open.number) and may_continue(self.state):
            order = np.arange(len(self._open.number))
            if len(order) > _SPLIT_BLOCKS:
                order = np.argpartition(self._order(self._open.gap, self._open.bound), _SPLIT_BLOCKS)
            parents = self._open.take(order[:_SPLIT_BLOCKS])
            self._open = self._open.take(np.sort(order[_SPLIT_BLOCKS:]))
            self._learn(parents)
            front_before = self._front
            children = [part for split in self._split(parents) for part in self._bound_children(split)]
            self._open = _concatenate([self._open, *children])
            if self._front is not front_before:
                self._open = self._open._replace(gap=gaps(self._front.objectives, self._open.bound))
                self._close(self._open.gap <= self.gap)
            self.state = self._state()
        return self.state

    def tree(self, state: ProofState) -> BlockTree:
        """Return the fate and children of all blocks at a state of the proof."""
        block_tree = BlockTree(*(np.zeros(state.n_blocks, kind) for kind in (np.int8, np.int8, np.int32, np.int64)))
        for number, *columns in self._records[: state.n_records]:
            for tree_column, column in zip(block_tree, columns, strict=True):
                tree_column[number] = column
        return block_tree

    def _state(self) -> ProofState:
        """Return the progress now: front, gap, counts and seconds."""
        gap = max(gaps(self._front.objectives, self._closed).max(initial=0.0), self._open.gap.max(initial=0.0))
        seconds = time.perf_counter() - self._start_time
        counts = len(self._open.number), self._n_blocks, self._n_designs, len(self._records)
        return ProofState(self._front, float(gap), *counts, seconds)

    # --- blocks ---------------------------------------------------------------------------------------------

    def _initial_blocks(self) -> _OpenBlocks:
        """Return all designs of each structure as one open block, with its bounds."""
        open_blocks = []
        for member, evaluator in enumerate(self.members):
            bounds = block_bounds(evaluator, evaluator.all_designs)
            first, stop = map(self._padded, evaluator.all_designs)
            gap, axis = gaps(self._front.objectives, bounds.bound), self._axis(member, bounds.share)
            open_blocks.append(
                _OpenBlocks(np.array([member]), first, stop, np.array([member]), bounds.bound, gap, axis)
            )
        return _concatenate(open_blocks)

    def _padded(self, positions: np.ndarray) -> np.ndarray:
        """Return positions [block, axis] with a 0 for each axis that a member does not have."""
        return np.pad(positions, [(0, 0), (0, self._width - positions.shape[1])])

    def _member_ranges(self, blocks: _OpenBlocks, member: int) -> BlockRanges:
        """Return the ranges of blocks of a structure, without the axes that it does not have."""
        n_axes = len(self.members[member].axes)
        return BlockRanges(blocks.first[:, :n_axes], blocks.stop[:, :n_axes])

    def _order(self, gap: np.ndarray, bound: np.ndarray) -> np.ndarray:
        """Return sort keys of blocks [block]: the largest gap first, without a known design the lowest bound."""
        return -gap if len(self._front.member) else bound[:, 0]

    def _axis(self, member: int, share: np.ndarray) -> np.ndarray:
        """Return the index of the axis to split along [block]: lists first, then what narrows bounds most."""
        evaluator, (gain, cost) = self.members[member], self._gain_and_cost[member]
        list_priority = np.where(evaluator.is_listed, 1e3 * (len(evaluator.axes) - np.arange(len(evaluator.axes))), 0.0)
        return np.where(share > 0.0, share * gain / cost + list_priority, -1.0).argmax(axis=1)

    def _learn(self, parents: _OpenBlocks) -> None:
        """Update how much halving along an axis narrows bounds, relative to the share that forms give it."""
        widest = parents.take(np.argsort(-parents.gap)[:_PROBED_BLOCKS])
        for member, evaluator in enumerate(self.members):
            blocks = widest.take(widest.member == member)
            ranges = self._member_ranges(blocks, member)
            size = ranges.stop - ranges.first
            usable = np.isfinite(blocks.gap) & (blocks.gap > 0.0) & (size[:, evaluator.is_listed] == 1).all(axis=1)
            block, axis = np.nonzero((size > 1) & ~evaluator.is_listed & usable[:, None])
            if not len(block):
                continue
            halves, parent = split_blocks(ranges.take(block), axis, np.full(len(block), 2))
            bounds, gap_before = block_bounds(evaluator, halves), blocks.gap[block]
            gap_after = gaps(self._front.objectives, np.maximum(bounds.bound, blocks.bound[block[parent]]))
            gap_after = np.where(bounds.cannot_run, self.gap, np.maximum(gap_after, self.gap)).reshape(-1, 2)
            narrowed = np.maximum(1.0 - gap_after / gap_before[:, None], _MIN_GAIN)
            share = block_bounds(evaluator, ranges).share[block, axis]
            gain_and_cost_sums = [
                np.bincount(axis, w, len(evaluator.axes)) for w in (np.sqrt(narrowed.prod(axis=1)), share)
            ]
            self._gain_and_cost[member] = _MEMORY * self._gain_and_cost[member] + np.stack(gain_and_cost_sums)

    def _split(self, parents: _OpenBlocks) -> Iterator[_OpenBlocks]:
        """Split blocks along their axes, record that, and yield the parts, structure by structure."""
        for member, evaluator in enumerate(self.members):
            blocks = parents.take(parents.member == member)
            if not len(blocks.number):
                continue
            size = np.take_along_axis(blocks.stop - blocks.first, blocks.axis[:, None], axis=1)[:, 0]
            parts = np.where(evaluator.is_listed[blocks.axis] & (size <= _MAX_PARTS), size, 2)
            child = self._n_blocks + np.cumsum(parts) - parts
            self._n_blocks += int(parts.sum())
            self._record(blocks.number, SPLIT, blocks.axis, parts, child)
            ranges, parent = split_blocks(BlockRanges(blocks.first, blocks.stop), blocks.axis, parts)
            numbers = np.arange(child[0], child[0] + len(parent))
            yield blocks.take(parent)._replace(first=ranges.first, stop=ranges.stop, number=numbers)

    def _bound_children(self, blocks: _OpenBlocks) -> Iterator[_OpenBlocks]:
        """Evaluate or bound new blocks of one structure, record those closed, and yield those that stay open."""
        member = int(blocks.member[0])
        evaluator, ranges = self.members[member], self._member_ranges(blocks, member)
        is_small = (np.prod((ranges.stop - ranges.first).astype(float), axis=1) <= _MAX_LISTED) & (
            not evaluator.is_continuous
        )
        if is_small.any():
            self._evaluate(member, single_designs(ranges.take(is_small))[0])
            self._record(blocks.number[is_small], EVALUATED)
        large_indices = np.flatnonzero(~is_small)
        for start in range(0, len(large_indices), _PASS_BLOCKS):
            block_indices = large_indices[start : start + _PASS_BLOCKS]
            bounds = block_bounds(evaluator, ranges.take(block_indices))
            bound = np.maximum(bounds.bound, blocks.bound[block_indices])
            gap = gaps(self._front.objectives, bound)
            size = ranges.stop[block_indices] - ranges.first[block_indices]
            is_divisible = size.max(axis=1) > 1  # not a cell of continuous axes
            is_useful = ~bounds.cannot_run & (gap > self.gap) & is_divisible
            corner_blocks = np.flatnonzero(is_useful)
            corner_blocks = corner_blocks[
                np.argsort(self._order(gap[corner_blocks], bound[corner_blocks]))[:_CORNER_BLOCKS]
            ]
            for corner in bounds.corners:
                self._evaluate(member, BlockRanges(corner[corner_blocks], corner[corner_blocks] + 1))
            self._record(blocks.number[block_indices[bounds.cannot_run]], CANNOT_RUN)
            is_closed = ~bounds.cannot_run & ~is_useful
            self._close_bounds(blocks.number[block_indices[is_closed]], bound[is_closed])
            axis = self._axis(member, bounds.share[is_useful])
            yield blocks.take(block_indices[is_useful])._replace(bound=bound[is_useful], gap=gap[is_useful], axis=axis)

    def _evaluate(self, member: int, designs: BlockRanges) -> None:
        """Evaluate blocks of one design each and add those that improve the front."""
        for start in range(0, len(designs.first), _BATCH_DESIGNS):
            part = designs.take(slice(start, start + _BATCH_DESIGNS))
            objectives, reason = self.members[member].evaluate(part)
            self._n_designs += len(reason)
            is_improving = (reason == 0) & np.isfinite(objectives).all(axis=1)
            is_improving[is_improving] = gaps(self._front.objectives, objectives[is_improving].astype(float)) > 0.0
            if is_improving.any():
                improving = part.first[is_improving]
                improvements = np.full(len(improving), member), self._padded(improving), objectives[is_improving]
                candidates = IncumbentFront(*map(np.concatenate, zip(self._front, improvements, strict=True)))
                indices = pareto.front(candidates.objectives)
                indices = indices[np.argsort(candidates.objectives[indices, 0])]
                self._front = IncumbentFront(*(array[indices] for array in candidates))

    def _close(self, is_closed: np.ndarray) -> None:
        """Close the open blocks of a mask."""
        if is_closed.any():
            self._close_bounds(self._open.number[is_closed], self._open.bound[is_closed])
            self._open = self._open.take(~is_closed)

    def _close_bounds(self, number: np.ndarray, bound: np.ndarray) -> None:
        """Record blocks by number as bounded, and keep the lowest of their bounds [block, objective]."""
        self._record(number, BOUNDED)
        closed = np.concatenate([self._closed, bound])
        self._closed = closed[pareto.front(closed)]

    def _record(self, number: np.ndarray, kind: int, axis: Any = 0, parts: Any = 0, child: Any = 0) -> None:
        """Record what became of blocks by number, and of divided ones axis, count of parts and number of the first."""
        self._records.append(
            (number, *(np.broadcast_to(column, number.shape) for column in (kind, axis, parts, child)))
        )


def _concatenate(parts: Sequence[_OpenBlocks]) -> _OpenBlocks:
    """Concatenate open blocks."""
    return _OpenBlocks(*map(np.concatenate, zip(*parts, strict=True)))


def split_blocks(ranges: BlockRanges, axis: np.ndarray, parts: np.ndarray) -> tuple[BlockRanges, np.ndarray]:
    """Split blocks along an axis of each into parts of equal size, but for one position.

    Args:
        ranges: blocks to split.
        axis: index of the axis [block].
        parts: count of parts [block].

    Returns:
        The parts, and the index of the block that each comes from [part].
    """
    parent, number = numbered_parts(parts)
    split_axis, rows = axis[parent], np.arange(len(parent))
    first, stop = ranges.first[parent], ranges.stop[parent]
    start, size = first[rows, split_axis], stop[rows, split_axis] - first[rows, split_axis]
    first[rows, split_axis], stop[rows, split_axis] = (
        start + size * part // parts[parent] for part in (number, number + 1)
    )
    return BlockRanges(first, stop), parent


@np.errstate(all="ignore")
def block_bounds(blocks: BlockEvaluator, ranges: BlockRanges) -> BlockBounds:
    """Return lower bounds of blocks, which cannot run, each axis's share of their spread, and promising corners."""
    values = blocks.values(ranges)
    objectives, reason = blocks.evaluate_operations(values)
    count, size = len(ranges.first), ranges.stop - ranges.first
    certain_reasons, possible_reasons = forms.pair(reason)
    is_undecided = (possible_reasons != certain_reasons)[:, None]
    share = _WIDTH_WEIGHT + _WIDTH_WEIGHT * is_undecided * size / blocks.all_designs.stop
    limits, bounds, corners = blocks.limits(values), [], []
    for limit in limits:
        is_open = (limit.rows[forms.LOW] < 0) & (limit.rows[forms.HIGH] > 0)
        share += np.where(is_open, _LIMIT_WEIGHT, 0.0)[:, None] * _axis_shares(blocks, limit)
    for objective in objectives:
        corner = ranges.first + size // 2
        low, high = (np.broadcast_to(end, count) for end in forms.pair(objective))
        if isinstance(objective, forms.Form):
            objective = objective.settled()
            low, high = objective.pair
            share += _axis_shares(blocks, objective)
            for i, axis in blocks.axis_of.items():
                slope = objective.rows[forms.SLOPES + blocks.symbol[i]]
                is_best_at_end = (slope > 0) if i in blocks.rates else (slope < 0)
                corner[:, axis] = np.where(is_best_at_end, ranges.stop[:, axis] - 1, ranges.first[:, axis])
        bound = np.where(np.isnan(low) | np.isnan(high), -np.inf, low).astype(float)
        for limit in limits if isinstance(objective, forms.Form) else []:
            bound = np.fmax(bound, forms.bound_within_limit(objective, limit))
        bounds.append(bound)
        corners.append(corner)
    cannot_run = np.broadcast_to(certain_reasons != 0, count)
    return BlockBounds(np.stack(bounds, axis=1), cannot_run, np.where(size > 1, share, 0.0), corners)


def _axis_shares(blocks: BlockEvaluator, value: forms.Form) -> np.ndarray:
    """Return the share (0 to 1) of a value's spread along each axis [block, axis]."""
    share = np.zeros((value.rows.shape[1], len(blocks.axes)))
    spread = np.maximum(value.spread(), np.float32(1e-30))
    for i, axis in blocks.axis_of.items():
        share[:, axis] += np.nan_to_num(abs(value.rows[forms.SLOPES + blocks.symbol[i]]) / spread)
    return share
