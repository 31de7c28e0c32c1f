"""How well the relaxed gradient predicts what a step to a neighbour does: what methods that follow it can hope for."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax import Array

from benchmarks.search import suite
from dse.optimizers import problem, space as spaces
from dse.optimizers.evaluation import Values
from dse.optimizers.judging import logarithm, scalar
from dse.optimizers.methods.relaxed import predicted_change
from dse.optimizers.space import Point, Space

#: Random designs whose neighbours are looked at, and steps whose change counts: in logarithms of the objective.
_DESIGNS, _COUNTS = 4_096, 1e-3


def measured(name: str) -> dict[str, Any]:
    """By coordinate that changes (others may too where degrees must multiply up): what slopes say of the steps.

    ``steps`` between designs that can run, the share without a slope, the share whose sign is predicted of those that
    have one and change the objective by more than 0.1 %; the same of all steps as ``every``.
    """
    task = problem.build(suite.search_spec(name, ("random",), 1))
    points = spaces.sample(task.space, jax.random.key(0), (_DESIGNS,))
    near, before, after = _neighbours(task.space, points)
    here, by_leaf = task.slopes(points)
    there = task.evaluate(near)
    expected = np.asarray(_predicted(task.space, by_leaf, points, near))
    weights = np.ones(1, np.float32)
    actual = np.asarray(logarithm(scalar(there.objectives, weights)))
    actual = actual - np.asarray(logarithm(scalar(here.objectives, weights)))[:, None]
    runs = (there.violation == 0.0) & (here.violation == 0.0)[:, None]
    moved = (np.asarray(before)[:, None, :] != np.asarray(after)) & runs[..., None]
    rows = {
        coordinate: _row(expected[which], actual[which])
        for i, coordinate in enumerate(task.space.names[: before.shape[1]])
        if (which := moved[..., i]).any()
    }
    whole = moved.any(axis=-1)
    return {"every": _row(expected[whole], actual[whole])} | rows


@jax.jit
def _neighbours(space: Space, points: Point) -> tuple[Point, Array, Array]:
    """Neighbours [design, neighbour] of designs, and the coordinates of both."""
    near = jax.vmap(lambda point: spaces.neighbours(space, point)[0])(points)
    return near, spaces.coordinates(space, points), spaces.coordinates(space, near)


@jax.jit
def _predicted(space: Space, by_leaf: Values, points: Point, near: Point) -> Array:
    """Predicted change of the logarithm of the objective [design, neighbour]."""
    return jax.vmap(predicted_change)(by_leaf, spaces.values(space, points), spaces.values(space, near))


def _row(expected: np.ndarray, actual: np.ndarray) -> dict[str, float | int | None]:
    sloped = np.abs(expected) > _COUNTS
    told = sloped & (np.abs(actual) > _COUNTS)
    agrees = float(np.mean(np.sign(expected[told]) == np.sign(actual[told]))) if told.any() else None
    return {"steps": expected.size, "flat": float(np.mean(~sloped)), "agrees": agrees}
