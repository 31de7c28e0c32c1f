"""Random search: what every other method must beat."""

from __future__ import annotations

from jax import Array

from dse.optimizers import space as spaces
from dse.optimizers.methods.base import Fitness, Method, Searcher
from dse.optimizers.space import Point, Space


def searcher(population: int) -> Searcher:
    """Return a searcher that proposes ``population`` uniform designs a step."""

    def init(key: Array, space: Space) -> tuple[()]:
        return ()  # nothing is learnt

    def propose(key: Array, state: tuple[()], space: Space) -> tuple[tuple[()], Point]:
        return state, spaces.sample(space, key, (population,))

    def update(key: Array, state: tuple[()], space: Space, points: Point, fitness: Fitness) -> tuple[()]:
        return state

    return Searcher(init, propose, update, population)


RANDOM = Method("random", "uniform random designs", searcher)
