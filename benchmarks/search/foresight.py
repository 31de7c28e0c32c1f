"""How well the relaxed gradient predicts what a step to a neighbour does: what methods that follow it can hope for."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.search import suite
from dse.search import problem
from dse.search import space as spaces
from dse.search.driver import scalar
from dse.search.problem import Problem
from dse.search.slopes import foretold, judged_with_slopes, logarithm
from dse.search.space import Point, Space

#: Random designs whose neighbours are looked at, and steps whose change counts: in logarithms of the objective.
_DESIGNS, _COUNTS = 4_096, 1e-3


def measured(name: str) -> dict[str, Any]:
    """By coordinate that changes (others may too where degrees must multiply up): what slopes say of the steps.

    ``steps`` between designs that can run, the share without a slope, the share whose sign is predicted of those that
    have one and change the objective by more than 0.1 %; the same of all steps as ``every``.
    """
    task = problem.build(suite.search_spec(name, ("random",), 1))
    points = spaces.sample(task.space, jax.random.key(0), (_DESIGNS,))
    found = jax.tree.map(np.asarray, jax.jit(_steps, static_argnums=0)(task, task.space, points))
    before, after, expected, actual, runs = found
    moved = (before[:, None, :] != after) & runs[..., None]
    rows = {
        coordinate: _row(expected[which], actual[which])
        for i, coordinate in enumerate(task.space.names[: before.shape[1]]) if (which := moved[..., i]).any()
    }  # fmt: skip
    whole = moved.any(axis=-1)
    return {"every": _row(expected[whole], actual[whole])} | rows


def _steps(task: Problem, space: Space, points: Point) -> tuple[Array, ...]:
    """Coordinates before and after, predicted and actual change of the logarithm, whether both ends can run."""

    def worth(objectives: Array) -> Array:
        return scalar(objectives, jnp.ones(1))

    none = jnp.zeros(points.digits.shape[0])
    judged, by_leaf = judged_with_slopes(task, space, worth, points, none, jnp.float32(0.0))
    near = jax.vmap(lambda point: spaces.neighbours(space, point)[0])(points)
    there = task.evaluate(near, space)
    expected = jax.vmap(foretold)(by_leaf, spaces.values(space, points), spaces.values(space, near))
    actual = logarithm(worth(there.objectives)) - logarithm(judged.value)[:, None]
    runs = (there.violation == 0.0) & (judged.violation == 0.0)[:, None]
    return spaces.coordinates(space, points), spaces.coordinates(space, near), expected, actual, runs


def _row(expected: np.ndarray, actual: np.ndarray) -> dict[str, float | int | None]:
    sloped = np.abs(expected) > _COUNTS
    told = sloped & (np.abs(actual) > _COUNTS)
    agrees = float(np.mean(np.sign(expected[told]) == np.sign(actual[told]))) if told.any() else None
    return {"steps": expected.size, "flat": float(np.mean(~sloped)), "agrees": agrees}
