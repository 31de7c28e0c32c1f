"""Fronts as people read them: what prints alike is one design, and of many designs the ends and some between."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dse.sweep.reduce.winners import pareto_front

#: Logarithms are of no smaller numbers.
_TINY = 1e-30


class Chosen(NamedTuple):
    """Designs that stand for a front."""

    positions: np.ndarray  #: in the front, ascending by the first objective
    best: tuple[int, ...]  #: by objective, where among the positions the design is that has least of it
    distinct: int  #: designs of the front that differ in the digits that are shown


def chosen(scores: np.ndarray, rounded: tuple[Callable[[float], float], ...], most: int) -> Chosen:
    """The ends of a front, and designs between them that are as far from each other as can be.

    Designs that are equal at the digits that are shown are one. What is equal there in some of the objectives, and
    worse in another, is not on the front that is read.

    Args:
        scores: [objective, design] of a front, the smaller the better.
        rounded: by objective a number as it is shown.
        most: designs chosen, the ends among them however many these are.
    """
    read = np.stack([_rounded(row, how) for row, how in zip(scores, rounded, strict=True)])
    order = np.lexsort(scores[::-1])
    kept = pareto_front(read, np.argsort(order))
    kept = kept[np.lexsort((*scores[::-1, kept], *read[::-1, kept]))]
    read = read[:, kept]
    ends = [int(np.lexsort((*read[::-1], row))[0]) for row in read]
    found = _spread(read, ends, most)
    return Chosen(kept[found], tuple(int(np.searchsorted(found, end)) for end in ends), len(kept))


def _rounded(row: np.ndarray, how: Callable[[float], float]) -> np.ndarray:
    known, places = np.unique(row, return_inverse=True)
    return np.array([how(value) for value in known.tolist()])[places.reshape(-1)]


def _spread(scores: np.ndarray, first: list[int], most: int) -> np.ndarray:
    """Positions, ascending: these first, then always what is farthest from all that are taken (Gonzalez 1985).

    Distances are in logarithms, as shares of what each objective spans.
    """
    size = np.sign(scores) * np.log(np.maximum(np.abs(scores), _TINY))
    span = np.ptp(size, axis=1, keepdims=True)
    places = size / np.where(span > 0.0, span, 1.0)
    taken = list(dict.fromkeys(first))
    away = np.min([_away(places, at) for at in taken], axis=0)
    while len(taken) < most and away.max() > 0.0:
        taken.append(int(away.argmax()))
        away = np.minimum(away, _away(places, taken[-1]))
    return np.array(sorted(taken))


def _away(places: np.ndarray, at: int) -> np.ndarray:
    return np.linalg.norm(places - places[:, at, None], axis=0)
