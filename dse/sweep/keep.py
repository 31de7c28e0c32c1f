"""Which designs of a block are kept: all, the feasible, the best, the top, the Pareto front.

A block is a range of outer indices; what is kept of it depends on nothing else. Blocks kept in
full are one chunk; the other modes look at scores chunk by chunk, holding O(chunk) memory: the device
tells which outer indices may hold a winner, the host looks into those alone, exactly, and
evaluates in full only the designs that win. Of equals the lowest index wins, whatever the order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from dse.sweep.engine import CHUNK_FULL, CHUNK_SCORES, CONSTRAINT, Engine, Scores
from dse.sweep.grid import Grid
from dse.sweep.nesting import Nest
from dse.sweep.spec import Keep
from dse.types import Infeasible, Metrics

#: Chunks of a block when scores alone are looked at.
_CHUNKS_A_BLOCK = 16

#: Designs of the front that the device holds others against.
_PIVOTS = 32

#: Bits of ``infeasible_reason`` as counted: the model's, then the specification's constraints.
REASON_BITS = (*map(int, Infeasible), CONSTRAINT)

METRIC_NAMES = tuple(Metrics.__dataclass_fields__)
_FEASIBLE, _REASON = METRIC_NAMES.index("feasible"), METRIC_NAMES.index("infeasible_reason")


class Part(NamedTuple):
    """What is kept of a block, ascending by index."""

    index: np.ndarray  #: [design] int64
    values: np.ndarray  #: [metric, design] float32; reasons, below 2^24, are exact
    scores: np.ndarray  #: [objective, design] float32, the smaller the better, infinite when infeasible
    counts: np.ndarray  #: int64: feasible designs of the block, then designs by bit of REASON_BITS


class Winners(NamedTuple):
    """Designs by index and the scores they won with."""

    index: np.ndarray  #: [design] int64
    scores: np.ndarray  #: [objective, design] float32


def blocks(engine: Engine, keep: Keep) -> list[range]:
    """The outer indices of a sweep as contiguous blocks of whole lines; one design is in one block only."""
    nest = _nest(engine, keep)
    step = engine.lines(nest, CHUNK_FULL) if _in_full(keep) else engine.lines(nest, CHUNK_SCORES) * _CHUNKS_A_BLOCK
    total, step = engine.grid.n_outer, step * nest.points_a_line
    return [range(start, min(start + step, total)) for start in range(0, total, step)]


def _nest(engine: Engine, keep: Keep) -> Nest:
    return engine.full_nest if _in_full(keep) else engine.score_nest(by_point=keep.mode == "best")


def _in_full(keep: Keep) -> bool:
    return keep.mode in ("all", "feasible")


def parts(engine: Engine, keep: Keep, wanted: list[range]) -> Iterator[Part]:
    """What is kept of each block, in order; the device works on the next one meanwhile."""
    if not _in_full(keep):
        yield from (_winning(engine, keep, block) for block in wanted)
        return
    rows = engine.lines(engine.full_nest, CHUNK_FULL)
    ahead = None
    for this, following in zip(wanted, [*wanted[1:], None], strict=True):
        found = ahead or engine.full(this.start, rows)
        ahead = engine.full(following.start, rows) if following else None
        yield _selected(engine.full_nest, keep, this, *found)


def _selected(nest: Nest, keep: Keep, block: range, metrics: Metrics, objectives: tuple[jax.Array, ...]) -> Part:
    """The mappings among the computed rectangle in the order of their index, or only the feasible ones."""
    grid = nest.grid
    line, column = np.nonzero(grid.table.distinct[np.arange(block.start, block.stop) % grid.table.n_rows])
    place = line * grid.table.n_columns + nest.place_of_column()[column]
    reason = np.asarray(metrics.infeasible_reason).reshape(-1)[place]
    counts = _count(reason)
    index = grid.first_design(block.start) + np.arange(len(place))
    if keep.mode == "feasible":
        place, index, reason = (array[reason == 0] for array in (place, index, reason))
    return Part(index, _gathered(jax.tree.leaves(metrics), place), _scored(objectives, place, reason), counts)


def _gathered(arrays: list[jax.Array], place: np.ndarray) -> np.ndarray:
    """[array, design] the values at flat positions, as float32."""
    values = np.empty((len(arrays), len(place)), np.float32)
    for row, array in zip(values, arrays, strict=True):
        row[:] = np.asarray(array).reshape(-1)[place]
    return values


def _scored(objectives: tuple[jax.Array, ...], place: np.ndarray, reason: np.ndarray) -> np.ndarray:
    return np.where(reason == 0, _gathered(list(objectives), place), np.float32(np.inf))


def _count(reason: np.ndarray) -> np.ndarray:
    """Feasible designs, then designs by bit."""
    return np.array([np.count_nonzero(reason == 0), *(np.count_nonzero(reason & bit) for bit in REASON_BITS)], np.int64)


# --- winners ----------------------------------------------------------------------------------------------


def _winning(engine: Engine, keep: Keep, block: range) -> Part:
    """The winners of a block, evaluated in full."""
    nest = _nest(engine, keep)
    n_objectives = len(engine.program.objectives) if keep.mode == "pareto" else 1  # designs are ranked by the first
    lines = engine.lines(nest, CHUNK_SCORES)
    winners = Winners(np.empty(0, np.int64), np.empty((n_objectives, 0), np.float32))
    counts = np.zeros(1 + len(REASON_BITS), np.int64)
    starts = range(block.start // nest.points_a_line, block.stop // nest.points_a_line, lines)

    def dispatch(line: int) -> Scores:
        return engine.scores(nest, line, lines, _pivots(keep, winners))

    ahead = dispatch(starts[0])
    for this, following in zip(starts, [*starts[1:], None], strict=True):
        found, ahead = ahead, dispatch(following) if following is not None else None
        counts += np.asarray(found.counts)
        winners = best_of(engine.grid, keep, winners, _challengers(nest, keep, winners, found, this))
    order = np.argsort(winners.index)
    index = winners.index[order]
    metrics, objectives = engine.designs(index)
    values = _gathered(jax.tree.leaves(metrics), np.arange(len(index)))
    scores = np.concatenate([winners.scores[:, order], *(o[None] for o in objectives[n_objectives:])])
    return Part(index, values, scores, counts)


def _pivots(keep: Keep, winners: Winners) -> np.ndarray:
    """[pivot, objective] some designs of the front, spread over it; infinite where there are fewer, none for others."""
    pivots = np.full((_PIVOTS if keep.mode == "pareto" else 0, len(winners.scores)), np.inf, np.float32)
    if len(pivots) and len(winners.index):
        order = np.argsort(winners.scores[0])
        chosen = order[np.unique(np.linspace(0, len(order) - 1, _PIVOTS).astype(int))]
        pivots[: len(chosen)] = winners.scores[:, chosen].T
    return pivots


def _challengers(nest: Nest, keep: Keep, winners: Winners, found: Scores, line: int) -> Winners:
    """The designs of a chunk that may win: only outer indices that the device calls hopeful are looked into."""
    hopeful = np.asarray(found.hopeful)
    first = np.asarray(found.outer_best)[0]
    if keep.mode == "top" and len(winners.index) >= keep.count:
        hopeful = hopeful & (first <= winners.scores[0].max())
    row = np.flatnonzero(hopeful)
    outer = line * nest.outer_a_line + row
    if keep.mode == "best":  # one outer index a point and outer option, and of that the best design
        point = outer // (nest.grid.table.n_rows * nest.outer_a_line)
        row, outer = (array[_ties_of_best(point, first[row])] for array in (row, outer))
    scores = np.asarray(found.scores)[:, row]
    place = np.flatnonzero(_may_win(keep, winners, scores.reshape(len(scores), -1)))
    at, inner = np.divmod(place, scores.shape[2])
    return Winners(nest.design_index(outer[at], inner), scores[:, at, inner])


def _may_win(keep: Keep, winners: Winners, scores: np.ndarray) -> np.ndarray:
    """Which of the scores [objective, design] can win; ties can, because their index may be lower."""
    finite = np.isfinite(scores[0])
    if keep.mode == "pareto":
        finite[finite] = ~dominated(winners.scores, scores[:, finite])
        return finite
    if keep.mode == "best":
        return finite
    bound = winners.scores[0].max(initial=-np.inf) if len(winners.index) >= keep.count else np.inf
    if np.count_nonzero(finite) > keep.count:
        bound = min(bound, np.partition(scores[0, finite], keep.count - 1)[keep.count - 1])
    return finite & (scores[0] <= bound)


def dominated(front: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Which points [objective, point] some point of ``front`` dominates: better in one objective, worse in none."""
    if len(front) == 2 and front.shape[1]:
        front = front[:, pareto_front(front, np.arange(front.shape[1]))]  # ascending, its second objective descending
        nearest = np.searchsorted(front[0], points[0], side="right") - 1
        return (nearest >= 0) & (front[1, nearest] <= points[1]) & np.any(front[:, nearest] != points, axis=0)
    covered = np.zeros(points.shape[1], bool)
    for point in front.T:
        covered |= np.all(points >= point[:, None], axis=0) & np.any(points > point[:, None], axis=0)
    return covered


def best_of(grid: Grid, keep: Keep, *groups: Winners) -> Winners:
    """The winners among several groups; of equals the one with the lowest index wins."""
    index = np.concatenate([group.index for group in groups])
    scores = np.concatenate([group.scores for group in groups], axis=1)
    if keep.mode == "top":
        chosen = np.lexsort((index, scores[0]))[: keep.count]
    elif keep.mode == "best":
        order = np.argsort(index)
        chosen = order[_first_best(index[order] // grid.table.n_mappings, scores[0, order])]
    else:
        chosen = pareto_front(scores, index)
    return Winners(index[chosen], scores[:, chosen])


def _ties_of_best(group: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Positions of what equals the best of its group; groups ascend."""
    if not len(group):
        return np.arange(0)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    best = np.minimum.reduceat(score, starts)
    return np.flatnonzero(score == np.repeat(best, np.diff(starts, append=len(group))))


def _first_best(group: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Position of the best of each group, the first of equals, in order of the groups."""
    order = np.lexsort((np.arange(len(group)), score, group))
    return order[np.unique(group[order], return_index=True)[1]]


def pareto_front(scores: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Positions of the designs that no other dominates, one of equal designs.

    Args:
        scores: [objective, design], the smaller the better.
        index: [design] the lowest of equal designs stands for them.
    """
    order = np.lexsort((index, *scores[::-1]))  # nothing is dominated by what comes after it
    if len(scores) == 2:
        second = scores[1, order]
        before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
        return order[second < before]
    front = []
    while len(order):
        front.append(order[0])
        order = order[~np.all(scores[:, order] >= scores[:, front[-1], None], axis=0)]
    return np.array(front, np.int64)


# --- merging ----------------------------------------------------------------------------------------------


class Collection:
    """The parts of a sweep as they come, in order of their blocks; results kept whole go straight to their place."""

    def __init__(self, grid: Grid, keep: Keep) -> None:
        self.grid, self.keep = grid, keep
        self._parts: list[Part] = []
        self._counts = np.zeros(1 + len(REASON_BITS), np.int64)
        self._filled = 0
        if keep.mode == "all":
            self._values = np.empty((len(METRIC_NAMES), grid.n_designs), np.float32)
            self._scores = np.empty((len(grid.spec.objectives), grid.n_designs), np.float32)

    def add(self, part: Part) -> None:
        """Take the part of the next block."""
        self._counts += part.counts
        if self.keep.mode == "all":
            place = slice(self._filled, self._filled + len(part.index))
            self._values[:, place], self._scores[:, place] = part.values, part.scores
            self._filled = place.stop
        else:
            self._parts.append(part)

    def result(self) -> Part:
        """Everything that is kept of the sweep; best first where designs are ranked."""
        if self.keep.mode == "all":
            return Part(np.arange(self._filled), self._values, self._scores, self._counts)
        index = np.concatenate([part.index for part in self._parts])
        scores = np.concatenate([part.scores for part in self._parts], axis=1)
        values = np.concatenate([part.values for part in self._parts], axis=1)
        if self.keep.mode == "feasible":
            return Part(index, values, scores, self._counts)
        winners = best_of(self.grid, self.keep, Winners(index, scores))
        order = np.argsort(index)
        place = order[np.searchsorted(index, winners.index, sorter=order)]
        return Part(winners.index, values[:, place], winners.scores, self._counts)
