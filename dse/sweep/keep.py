"""Which designs of a block are kept: all, the feasible, the best, the top, the Pareto front.

A block is a range of outer indices; what is kept of it depends on nothing else. Blocks kept in
full are one chunk; the other modes look at scores chunk by chunk, holding O(chunk) memory, and
evaluate in full only the designs that win.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import numpy as np

from dse.sweep.engine import CHUNK_FULL, CHUNK_SCORES, CONSTRAINT, Engine, Scores
from dse.sweep.grid import Grid
from dse.sweep.spec import Keep
from dse.types import Infeasible, Metrics

#: Chunks of a block when scores alone are looked at.
_CHUNKS_A_BLOCK = 64

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
    """The outer indices of a sweep as contiguous blocks."""
    total = engine.grid.n_outer
    step = engine.rows(CHUNK_FULL) if _in_full(keep) else engine.rows(CHUNK_SCORES) * _CHUNKS_A_BLOCK
    return [range(start, min(start + step, total)) for start in range(0, total, step)]


def _in_full(keep: Keep) -> bool:
    return keep.mode in ("all", "feasible")


def parts(engine: Engine, keep: Keep, wanted: list[range]) -> Iterator[Part]:
    """What is kept of each block, in order; the device works on the next one meanwhile."""
    if not _in_full(keep):
        yield from (_winning(engine, keep, block) for block in wanted)
        return
    rows = engine.rows(CHUNK_FULL)
    ahead = None
    for this, following in zip(wanted, [*wanted[1:], None], strict=True):
        found = ahead or engine.full(this.start, rows)
        ahead = engine.full(following.start, rows) if following else None
        yield _selected(engine.grid, keep, this, *found)


def _selected(grid: Grid, keep: Keep, block: range, metrics: Metrics, objectives: tuple[jax.Array, ...]) -> Part:
    """The mappings among the computed rectangle, or only the feasible ones."""
    rows = np.arange(block.start, block.stop) % grid.table.n_rows
    distinct = grid.table.distinct[rows]
    place = np.flatnonzero(distinct)
    reason = np.asarray(metrics.infeasible_reason)[: len(block)].reshape(-1)[place]
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
    rows = engine.rows(CHUNK_SCORES)
    grid = engine.grid
    winners = Winners(np.empty(0, np.int64), np.empty((len(grid.spec.objectives), 0), np.float32))
    counts = np.zeros(1 + len(REASON_BITS), np.int64)
    starts = range(block.start, block.stop, rows)
    ahead = engine.scores(starts[0], rows)
    for this, following in zip(starts, [*starts[1:], None], strict=True):
        found, ahead = ahead, engine.scores(following, rows) if following is not None else None
        counts += np.asarray(found.counts)
        winners = best_of(grid, keep, winners, _challengers(grid, keep, winners, found, this))
    order = np.argsort(winners.index)
    index = winners.index[order]
    metrics, _ = engine.designs(index)
    values = _gathered(jax.tree.leaves(metrics), np.arange(len(index)))
    return Part(index, values, winners.scores[:, order], counts)


def _challengers(grid: Grid, keep: Keep, winners: Winners, found: Scores, start: int) -> Winners:
    """The designs of a chunk that may win: only rows whose best may are looked into."""
    row_best = np.asarray(found.row_best)
    scores = np.asarray(found.scores)
    rows = np.flatnonzero(_hopeful(keep, winners, row_best))
    if keep.mode == "best":  # one row a point, and of that the first best column
        rows = rows[_first_best((start + rows) // grid.table.n_rows, row_best[0, rows])]
        column = scores[0, rows].argmin(axis=1)
        return Winners(grid.design_index(start + rows, column), scores[:, rows, column])
    near = scores[:, rows].reshape(len(scores), len(rows) * scores.shape[2])
    place = np.flatnonzero(_hopeful(keep, winners, near))
    row, column = np.divmod(place, scores.shape[2])
    return Winners(grid.design_index(start + rows[row], column), near[:, place])


def _hopeful(keep: Keep, winners: Winners, scores: np.ndarray) -> np.ndarray:
    """Which of the scores [objective, …], of designs or the best of rows, can win; ties go to the earlier winner."""
    finite = np.isfinite(scores[0])
    if keep.mode == "top" and len(winners.index) >= keep.count:
        return finite & (scores[0] < winners.scores[0].max())
    if keep.mode == "pareto":
        return finite & ~dominated(winners.scores, scores)
    return finite


def dominated(front: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Which points [objective, point] are no better than some point of ``front`` in every objective."""
    if len(front) == 2 and front.shape[1]:
        front = front[:, pareto_front(front, np.arange(front.shape[1]))]  # ascending, its second objective descending
        nearest = np.searchsorted(front[0], points[0], side="right") - 1
        return (nearest >= 0) & (front[1, nearest] <= points[1])
    covered = np.zeros(points.shape[1], bool)
    for point in front.T:
        covered |= np.all(points >= point[:, None], axis=0)
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
        place = np.searchsorted(index, winners.index)  # blocks ascend, and so do the designs in them
        return Part(winners.index, values[:, place], winners.scores, self._counts)
