"""Which designs win: the best of each point, the top, the Pareto front. Of equals the lowest index wins."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from dse.spec.output import Keep
    from dse.sweep.grid.grid import Grid


class Winners(NamedTuple):
    """Winning designs by index, with their scores."""

    index: np.ndarray  # type: ignore[assignment]  #: [design] int64; not the method of tuples
    scores: np.ndarray  #: [objective, design] float32


def dominated(front: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return [point] True where a point of ``front`` dominates ``points``: better in one objective, worse in none.

    Args:
        front: [objective, point] scores, the smaller the better.
        points: [objective, point] scores.
    """
    if len(front) == 2 and front.shape[1]:
        front = front[:, pareto_front(front, np.arange(front.shape[1]))]  # ascending, its second objective descending
        nearest = np.searchsorted(front[0], points[0], side="right") - 1
        return (nearest >= 0) & (front[1, nearest] <= points[1]) & np.any(front[:, nearest] != points, axis=0)
    is_dominated = np.zeros(points.shape[1], bool)
    for point in front.T:
        is_dominated |= np.all(points >= point[:, None], axis=0) & np.any(points > point[:, None], axis=0)
    return is_dominated


def best_of(grid: Grid, keep: Keep, *groups: Winners) -> Winners:
    """Return the winners among several groups, of equals the one with the lowest index; the best by score first.

    Of ``best`` they are in the order of points.
    """
    index = np.concatenate([group.index for group in groups])
    scores = np.concatenate([group.scores for group in groups], axis=1)
    if keep.mode == "top":
        chosen = np.lexsort((index, scores[0]))[: keep.count]
    elif keep.mode == "best":
        chosen = best_of_each(index // grid.table.n_mappings, scores[0], index)
    else:
        chosen = pareto_front(scores, index)
    return Winners(index[chosen], scores[:, chosen])


def ties_of_best(group: np.ndarray, score: np.ndarray) -> np.ndarray:
    """Return the indices into ``score`` of those that equal the least of their group; groups ascend."""
    if not len(group):
        return np.arange(0)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    best = np.minimum.reduceat(score, starts)
    return np.flatnonzero(score == np.repeat(best, np.diff(starts, append=len(group))))


def best_of_each(group: np.ndarray, score: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return by group, ascending, the position of its least score, of equals that with the lowest index."""
    order = np.lexsort((index, score, group))
    return order[np.unique(group[order], return_index=True)[1]]


def pareto_front(scores: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Return the indices into ``index`` of the designs that no other dominates, by first objective; one of equals.

    Args:
        scores: [objective, design], the smaller the better.
        index: [design] the lowest of equal designs stands for them.
    """
    order = np.lexsort((index, *scores[::-1]))  # nothing is dominated by what comes after it
    if len(scores) == 2:
        second = scores[1, order]
        best_before = np.concatenate([[np.inf], np.minimum.accumulate(second)[:-1]])
        return order[second < best_before]
    front = []
    while len(order):
        front.append(order[0])
        order = order[~np.all(scores[:, order] >= scores[:, front[-1], None], axis=0)]
    return np.array(front, np.int64)
