"""Random search: what every other method must beat."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array

from dse.search import space as spaces
from dse.search.methods.base import Batch, Evaluate, Method, Searcher
from dse.search.space import Space


class State(NamedTuple):
    """Nothing is learnt."""

    space: Space


def searcher(population: int) -> Searcher:
    """Uniform designs, ``population`` a step."""

    def init(key: Array, space: Space) -> State:
        return State(space)

    def step(key: Array, state: State, evaluate: Evaluate) -> tuple[State, Batch]:
        points = spaces.sample(state.space, key, (population,))
        return state, Batch(points, evaluate(points).evaluation)

    return Searcher(init, step, population)


RANDOM = Method("random", "uniform random designs", {"population": 64}, searcher)
