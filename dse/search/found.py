"""What the methods of a search have found, and what the axes are at designs of it."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.search import space as spaces
from dse.search.checkpoint import Progressed
from dse.search.driver import Best
from dse.search.pareto import Front
from dse.search.problem import Problem
from dse.search.space import Point
from dse.spec.axes import Axis
from dse.sweep.results.labels import labels, part_labels


class MethodResult(NamedTuple):
    """What one method has found."""

    method: str
    batch: int
    progressed: Progressed
    best: Best  #: [seed] before the polish, as the method found it
    polished: Best  #: [seed] after it; the same where there was none
    polish_evaluations: np.ndarray  #: [seed]
    front: Front  #: of all that was evaluated; none where there is one objective
    end_evaluations: int  #: of the polish of the front's ends
    metrics: dict[str, np.ndarray]  #: [seed] of what was polished, by name

    @property
    def evaluations(self) -> int:
        """Of each seed, the polish apart."""
        return self.progressed.steps * self.batch

    @property
    def all_evaluations(self) -> int:
        """Of all seeds, with the polish."""
        seeds = len(self.polish_evaluations)
        return self.evaluations * seeds + int(self.polish_evaluations.sum()) + self.end_evaluations


def best_points(found: list[MethodResult]) -> Point:
    """The best design of each seed of each method, [method x seed]."""
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *(one.polished.point for one in found))


def axis_columns(problem: Problem, points: Point) -> list[tuple[Axis, np.ndarray]]:
    """(axis, its label at each point) for points [design]: dimensions, continuous axes, parts of the mapping."""
    grid, space = problem.grid, problem.space
    digits = np.asarray(points.digits)
    reals = jax.tree.map(np.asarray, spaces.real_values(space, jnp.asarray(points.reals)))
    found = []
    for position, dimension in enumerate(grid.dimensions):
        for axis in dimension.axes:
            found.append((axis, reals[axis.key] if axis.key in reals else labels(axis)[digits[:, position]]))
    row, options = digits[:, space.row_digit], digits[:, space.row_digit + 1 :]
    column = np.ravel_multi_index(options.T, space.sizes[space.row_digit + 1 :])
    for axis in grid.mapping_axes:
        if axis.key in grid.table.degrees:
            values = grid.table.degrees[axis.key][row]
        elif axis.key in grid.table.options:
            values = grid.table.options[axis.key][column]
        else:
            values = np.full(len(row), axis.values[0])
        found.append((axis, part_labels(axis, values)))
    return found
