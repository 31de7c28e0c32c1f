"""How well the relaxed gradient predicts what a step to a neighbour does: what methods that follow it can hope for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array

from benchmarks.search import suite
from dse.search import problem
from dse.search import space as spaces
from dse.search.judging import logarithm
from dse.search.problem import Problem
from dse.search.slopes import predicted_change
from dse.search.space import Point

#: Random designs whose neighbours are looked at, and steps whose change counts: in logarithms of the objective.
_DESIGNS, _COUNTS = 4_096, 1e-3


def measured(name: str) -> dict[str, Any]:
    """By coordinate that changes (others may too where degrees must multiply up): what slopes say of the steps.

    ``steps`` between designs that can run, the share without a slope, the share whose sign is predicted of those that
    have one and change the objective by more than 0.1 %; the same of all steps as ``every``.
    """
    task = problem.build(suite.search_spec(name, ("random",), 1))
    points = spaces.sample(task.space, jax.random.key(0), (_DESIGNS,))
    before, after, expected, actual, runs = _steps(task, points)
    moved = (before[:, None, :] != after) & runs[..., None]
    rows = {
        coordinate: _row(expected[which], actual[which])
        for i, coordinate in enumerate(task.space.names[: before.shape[1]]) if (which := moved[..., i]).any()
    }  # fmt: skip
    whole = moved.any(axis=-1)
    return {"every": _row(expected[whole], actual[whole])} | rows


def _steps(task: Problem, points: Point) -> tuple[np.ndarray, ...]:
    """Coordinates before and after, predicted and actual change of the logarithm, whether both ends can run."""
    space = task.space
    here, by_leaf = task.slopes(points)
    near = jax.jit(jax.vmap(lambda point: spaces.neighbours(space, point)[0]))(points)
    there = task.evaluate(near)

    @jax.jit
    def expected(points: Point, near: Point, by_leaf: dict[str, Array]) -> Array:
        return jax.vmap(predicted_change)(by_leaf, spaces.values(space, points), spaces.values(space, near))

    actual = logarithm(there.objectives[..., 0]) - logarithm(here.objectives[..., 0])[:, None]
    runs = (there.violation == 0.0) & (here.violation == 0.0)[:, None]
    at = spaces.coordinates(space, points), spaces.coordinates(space, near)
    return tuple(map(np.asarray, (*at, expected(points, near, by_leaf), actual, runs)))


def _row(expected: np.ndarray, actual: np.ndarray) -> dict[str, float | int | None]:
    sloped = np.abs(expected) > _COUNTS
    told = sloped & (np.abs(actual) > _COUNTS)
    agrees = float(np.mean(np.sign(expected[told]) == np.sign(actual[told]))) if told.any() else None
    return {"steps": expected.size, "flat": float(np.mean(~sloped)), "agrees": agrees}
