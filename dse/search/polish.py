"""Local exhaustive polish: to the best neighbour, again and again, until none is better."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.search import space as spaces
from dse.search.driver import Best, scalar
from dse.search.judging import best_position, better
from dse.search.problem import Problem
from dse.search.space import Point, Space

#: Pairs of steps are tried where they are not more than this.
MOST_PAIRS = 4096

#: Steps along continuous axes: the first, the factor between them, the last.
_STEPS = tuple(0.125 * 0.5**i for i in range(10))

#: Step along continuous axes in pairs.
_PAIR_STEP = 1.0 / 32.0

#: Rounds at most: a bound that nothing is known to reach.
_MOST_ROUNDS = 500


class Polished(NamedTuple):
    """A local optimum and what it took to find it."""

    best: Best
    evaluations: int


def polish(problem: Problem, best: Best, weights: np.ndarray) -> Polished:
    """The local optimum that is reached from the best design of one seed; ``weights`` as its method had them.

    All single steps, halved along continuous axes when nothing is better any more; then all pairs of steps, if they
    are few, and single steps again from a better one.
    """
    n = problem.space.n_directions
    steps = _STEPS if problem.space.paths else _STEPS[:1]
    weights, evaluations, at = jnp.asarray(weights), 0, 0
    for _ in range(_MOST_ROUNDS):
        in_pairs = at == len(steps)
        if in_pairs and n**2 > MOST_PAIRS:
            break
        step = jnp.float32(_PAIR_STEP if in_pairs else steps[at])
        best, improved = _round(problem, in_pairs, problem.space, best, weights, step)
        evaluations += 1 + n ** (2 if in_pairs else 1)
        if in_pairs and not improved:
            break
        at = 0 if in_pairs else at + (not improved)
    return Polished(best, evaluations)


def release() -> None:
    """Forget compiled programs, as :func:`dse.search.driver.release` does."""
    _round.clear_cache()


@functools.partial(jax.jit, static_argnums=(0, 1))
def _round(
    problem: Problem, in_pairs: bool, space: Space, best: Best, weights: Array, step: Array
) -> tuple[Best, Array]:
    """The best of a design and its neighbours, and whether that is a better one."""
    near, _ = spaces.neighbours(space, best.point, step)
    if in_pairs:
        near, _ = jax.vmap(lambda point: spaces.neighbours(space, point, step))(near)
        near = jax.tree.map(jnp.concatenate, near)
    # The design itself comes first, so that all are compared as one program computes them.
    points = Point(*(jnp.concatenate([old[None], new]) for old, new in zip(best.point, near, strict=True)))
    found = problem.evaluate(points, space)
    value = scalar(found.objectives, weights)
    at = best_position(found.violation, value, points.digits)
    improved = better((found.violation[at], value[at]), (found.violation[0], value[0]))
    at = jnp.where(improved, at, 0)
    return Best(*jax.tree.map(lambda a: a[at], (points, found)), value[at]), improved
