"""What a search method is.

A searcher is three pure functions on pytrees of arrays, for one seed; the driver does many seeds by ``vmap``::

    init(key, space) -> state
    propose(key, state, space) -> (state, points)           # points [batch] to evaluate
    update(key, state, space, points, found) -> state       # what they are worth

``propose`` and ``update`` of a step have the same key. They hold no model: it is evaluated between them, by a program
that all methods share (:mod:`dse.optimizers.evaluation`). A searcher with a ``penalty`` gets slopes too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

from jax import Array

from dse.optimizers.judging import Judgement
from dse.optimizers.space import Point, Space
from dse.spec.search import METHOD_OPTIONS


class Fitness(NamedTuple):
    """Judgement and slopes of the points of a step."""

    judgement: Judgement
    slopes: dict[str, Array]  #: leaf path → [batch] gradient; empty for searchers without a penalty


class Searcher(NamedTuple):
    """A method with its options, ready for a space."""

    init: Callable[[Array, Space], Any]
    propose: Callable[[Array, Any, Space], tuple[Any, Point]]
    update: Callable[[Array, Any, Space, Point, Fitness], Any]
    batch: int  #: evaluations of a step
    penalty: Callable[[Any], tuple[Array, Array]] | None = None
    #: state → multiplier and stiffness [batch] of what slopes are of; see :class:`~dse.optimizers.functions.Penalty`


@dataclasses.dataclass(frozen=True)
class Method:
    """A search method by the name that specifications give."""

    name: str
    about: str  #: one line, with the source
    make: Callable[..., Any]  #: options as keywords → Searcher, or an ask-and-tell class where ``external``
    external: bool = False  #: lives on the host: see :mod:`dse.optimizers.methods.external`

    @property
    def defaults(self) -> dict[str, int | float | str]:
        """Name of an option → its default."""
        return METHOD_OPTIONS[self.name]
