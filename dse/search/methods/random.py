"""Random search: what every other method must beat."""

from __future__ import annotations

from jax import Array

from dse.search import space as spaces
from dse.search.methods.base import Batch, Evaluate, Method, Searcher
from dse.search.space import Space


def searcher(population: int) -> Searcher:
    """Uniform designs, ``population`` a step."""

    def init(key: Array, space: Space) -> tuple[()]:
        return ()  # nothing is learnt

    def step(key: Array, state: tuple[()], evaluate: Evaluate) -> tuple[tuple[()], Batch]:
        points = spaces.sample(evaluate.space, key, (population,))
        return state, Batch(points, evaluate(points).evaluation)

    return Searcher(init, step, population)


RANDOM = Method("random", "uniform random designs", {"population": 64}, searcher)
