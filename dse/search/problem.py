"""What a search optimises: objectives, feasibility and how far the infeasible are from it, for many points at once."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.design import replace
from dse.search import space as spaces
from dse.search import tables
from dse.search.judging import Evaluation
from dse.search.space import Point, Space
from dse.spec.search import SearchSpec
from dse.study import Study
from dse.sweep.engine import equations
from dse.sweep.engine.chunks import evaluate_designs
from dse.sweep.engine.point import Program, evaluate_point
from dse.sweep.grid import compose
from dse.sweep.grid.grid import Grid
from dse.types import Design, Scalar

#: An excess that rounding hides still counts as one.
_LEAST = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A space and what is sought in it."""

    spec: SearchSpec
    grid: Grid
    space: Space
    program: Program

    @property
    def n_objectives(self) -> int:
        """Objectives; each is to be made small."""
        return len(self.program.objectives)

    def evaluate(self, points: Point, space: Space | None = None) -> Evaluation:
        """Evaluate points [...]: pure, for use under ``jit`` and ``vmap``; one evaluation a point.

        ``space``: the problem's own, as an argument of the program rather than a constant in it.
        """
        shape = points.digits.shape[:-1]
        flat = jax.tree.map(lambda a: a.reshape(math.prod(shape), a.shape[-1]), points)
        found = jax.vmap(self.by_equations)(spaces.values(space or self.space, flat))
        return jax.tree.map(lambda a: a.reshape(*shape, *a.shape[1:]), found)

    def at(self, values: dict[str, Scalar]) -> Evaluation:
        """Evaluate one design from the values of its leaves by full path; differentiable."""
        return evaluated(self.program, self.grid.base, values)

    def metrics(self, points: Point) -> Any:
        """All metrics of points [design], NumPy arrays, by the program that sweeps evaluate single designs with."""
        values = jax.tree.map(jnp.asarray, spaces.values(self.space, points))
        found, _ = evaluate_designs(self.grid.base, values, program=self.program)
        return jax.tree.map(np.asarray, found)

    def by_equations(self, values: dict[str, Scalar]) -> Evaluation:
        """The same as :meth:`at`, in a form that compiles faster."""
        inputs, structure = jax.tree.flatten((self.grid.base, values))
        run, outputs = _equations_of(self.program, structure)
        return jax.tree.unflatten(outputs, run(*(jnp.asarray(value, jnp.float32) for value in inputs)))


def build(spec: SearchSpec, study: Study | None = None) -> Problem:
    """The problem of a specification; bad names, sizes and mappings are InputErrors. ``study``: see sweeps."""
    sweep = dataclasses.replace(spec.sweep, study=study) if study else spec.sweep
    grid = compose.build(sweep)
    program = Program(sweep.study, grid.constraints, sweep.objectives, sweep.metrics)
    return Problem(spec, grid, tables.build(grid, spec.intervals), program)


def evaluated(program: Program, base: Design, values: dict[str, Scalar]) -> Evaluation:
    """Objectives, violation and reasons of one design."""
    design = replace(base, values)
    metrics, objectives = evaluate_point(dataclasses.replace(program, metrics=None), base, values)
    return Evaluation(jnp.stack(objectives), violation(program, design, metrics), metrics.infeasible_reason)


def violation(program: Program, design: Design, metrics: Any) -> Scalar:
    """How far a design is from feasible, 0 where it is.

    The logarithm of what it needs over what there is for memory, host memory and reach of the network, 1 for every
    other bit of Infeasible, and for each constraint the relative difference of its sides.
    """
    study = program.study
    lookup = study.lookup(design, metrics)
    total = sum((constraint.excess(lookup) for constraint in program.constraints), jnp.float32(0.0))
    graded = study.shortfalls(design, metrics)
    for bit in study.reasons:
        is_set = (metrics.infeasible_reason & int(bit)) != 0
        total = total + jnp.where(is_set, jnp.maximum(graded.get(bit, 1.0), _LEAST), 0.0)
    return total


@functools.lru_cache(maxsize=32)
def _equations_of(
    program: Program, inputs: jax.tree_util.PyTreeDef
) -> tuple[equations.Equations, jax.tree_util.PyTreeDef]:
    """:func:`evaluated` as equations, for inputs of this structure."""
    scalars = jax.tree.unflatten(inputs, [jax.ShapeDtypeStruct((), jnp.float32)] * inputs.num_leaves)
    return equations.trace(functools.partial(evaluated, program), *scalars)
