"""What a search method is.

A searcher is a pair of pure functions on pytrees of arrays, for one seed; the runner does many seeds by ``vmap``::

    init(key, space) -> state
    step(key, state, evaluate) -> (state, Batch)

``evaluate(points)`` gives the :class:`Judgement` of points [batch]; a step calls it once, and finds the space at
``evaluate.space`` (in the state it would be copied for every seed). What a step evaluated is its info: from it
the runner counts, keeps the best and draws the history.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from dse.search.judging import Evaluation, Judgement
from dse.search.space import Point, Space


class Batch(NamedTuple):
    """What a step has evaluated."""

    points: Point
    evaluation: Evaluation


class Evaluate(NamedTuple):
    """The space, and a call that tells what points [batch] of it are worth."""

    space: Space
    judge: Callable[[Point], Judgement]

    def __call__(self, points: Point) -> Judgement:
        """What the points are worth."""
        return self.judge(points)


class Searcher(NamedTuple):
    """A method with its options, ready for a space."""

    init: Callable[[Array, Space], Any]
    step: Callable[[Array, Any, Evaluate], tuple[Any, Batch]]
    batch: int  #: evaluations of a step


@dataclasses.dataclass(frozen=True)
class Method:
    """A search method as specifications name it."""

    name: str
    about: str  #: one line, with the source
    defaults: dict[str, Any]  #: option → value when it is not given
    make: Callable[..., Any]  #: options as keywords → Searcher, or an ask-and-tell class where ``external``
    external: bool = False  #: lives on the host: see :mod:`dse.search.methods.external`
