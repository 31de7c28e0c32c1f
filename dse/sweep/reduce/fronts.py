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
    """Return the ends of a front, and designs between them that are as far from each other as possible.

    Designs that are equal in the digits that are shown count as one. A design that is equal in these in some objectives
    and worse in another is left out.

    Args:
        scores: [objective, design] of a front, the smaller the better.
        rounded: by objective, a function that rounds a number to the digits that are shown.
        most: number of designs; all ends are included even if there are more.
    """
    rounded_scores = np.stack([_rounded(row, how) for row, how in zip(scores, rounded, strict=True)])
    order = np.lexsort(scores[::-1])
    on_front = pareto_front(rounded_scores, np.argsort(order))
    on_front = on_front[np.lexsort((*scores[::-1, on_front], *rounded_scores[::-1, on_front]))]
    rounded_scores = rounded_scores[:, on_front]
    ends = [int(np.lexsort((*rounded_scores[::-1], row))[0]) for row in rounded_scores]
    selection = _spread(rounded_scores, ends, most)
    return Chosen(on_front[selection], tuple(int(np.searchsorted(selection, end)) for end in ends), len(on_front))


def _rounded(row: np.ndarray, rounding: Callable[[float], float]) -> np.ndarray:
    distinct_values, inverse = np.unique(row, return_inverse=True)
    return np.array([rounding(value) for value in distinct_values.tolist()])[inverse.reshape(-1)]


def _spread(scores: np.ndarray, first: list[int], most: int) -> np.ndarray:
    """Return the indices, ascending, of ``first`` and then always the farthest from all selected ones (Gonzalez 1985).

    Distances are in logarithms, as shares of what each objective spans.
    """
    size = np.sign(scores) * np.log(np.maximum(np.abs(scores), _MIN_MAGNITUDE))
    span = np.ptp(size, axis=1, keepdims=True)
    coordinates = size / np.where(span > 0.0, span, 1.0)
    selected = list(dict.fromkeys(first))
    distance = np.min([_distances(coordinates, index) for index in selected], axis=0)
    while len(selected) < most and distance.max() > 0.0:
        selected.append(int(distance.argmax()))
        distance = np.minimum(distance, _distances(coordinates, selected[-1]))
    return np.array(sorted(selected))


def _distances(coordinates: np.ndarray, index: int) -> np.ndarray:
    return np.linalg.norm(coordinates - coordinates[:, index, None], axis=0)
