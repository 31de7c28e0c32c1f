"""Fronts for display: designs that print alike are one, and of many designs the ends and some between are shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dse.sweep.reduce.winners import pareto_front

#: Logarithms are of no smaller numbers.
_MIN_MAGNITUDE = 1e-30


class Chosen(NamedTuple):
    """Designs of a front selected for display."""

    positions: np.ndarray  #: indices into the front, ascending by the first objective
    best: tuple[int, ...]  #: by objective the index into ``positions`` of the design with the least score
    distinct: int  #: number of designs of the front that differ in the digits that are shown


def select_front(scores: np.ndarray, rounded: tuple[Callable[[float], float], ...], most: int) -> Chosen:
    """Return the best designs of a front by each objective, and others between them, far from each other.

    Designs that are equal in the digits that are shown count as one. A design that is equal in these in some objectives
    and worse in another is left out.

    Args:
        scores: [objective, design] of a front, the smaller the better.
        rounded: by objective, a function that rounds a number to the digits that are shown.
        most: number of designs; all ends are included even if there are more.
    """
    rounded_scores = np.stack([_rounded(row, rounding) for row, rounding in zip(scores, rounded, strict=True)])
    order = np.lexsort(scores[::-1])
    front_indices = pareto_front(rounded_scores, np.argsort(order))
    front_indices = front_indices[np.lexsort((*scores[::-1, front_indices], *rounded_scores[::-1, front_indices]))]
    rounded_scores = rounded_scores[:, front_indices]
    best_indices = [int(np.lexsort((*rounded_scores[::-1], row))[0]) for row in rounded_scores]
    selection = _spread(rounded_scores, best_indices, most)
    return Chosen(
        front_indices[selection],
        tuple(int(np.searchsorted(selection, best_index)) for best_index in best_indices),
        len(front_indices),
    )


def _rounded(row: np.ndarray, rounding: Callable[[float], float]) -> np.ndarray:
    """Return the row with each value rounded; ``rounding`` is called once for equal ones."""
    distinct_values, inverse = np.unique(row, return_inverse=True)
    return np.array([rounding(value) for value in distinct_values.tolist()])[inverse.reshape(-1)]


def _spread(scores: np.ndarray, first: list[int], most: int) -> np.ndarray:
    """Return the indices, ascending, of ``first`` and then always the farthest from all selected ones (Gonzalez 1985).

    Distances are in logarithms, as shares of what each objective spans.
    """
    signed_logs = np.sign(scores) * np.log(np.maximum(np.abs(scores), _MIN_MAGNITUDE))
    span = np.ptp(signed_logs, axis=1, keepdims=True)
    coordinates = signed_logs / np.where(span > 0.0, span, 1.0)
    selected = list(dict.fromkeys(first))
    distance = np.min([_distances(coordinates, index) for index in selected], axis=0)
    while len(selected) < most and distance.max() > 0.0:
        selected.append(int(distance.argmax()))
        distance = np.minimum(distance, _distances(coordinates, selected[-1]))
    return np.array(sorted(selected))


def _distances(coordinates: np.ndarray, index: int) -> np.ndarray:
    """Return [design] distances to the design ``index``, from [objective, design] coordinates."""
    return np.linalg.norm(coordinates - coordinates[:, index, None], axis=0)
