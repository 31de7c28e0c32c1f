"""What a search optimises: a space, and the objectives and feasibility of the designs in it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.doors import Study
from dse.io.files import search_digest
from dse.optimizers import space as spaces, tables
from dse.optimizers.codesign import problem as descents
from dse.optimizers.codesign.descent import DescentProblem
from dse.optimizers.evaluation import Evaluator, StructuresEvaluator, Values, padded, padded_values, reshape_results
from dse.optimizers.functions import Penalty
from dse.optimizers.judging import Evaluation
from dse.optimizers.space import Point, Space
from dse.spec import SearchSpec
from dse.spec.search import BATCHES
from dse.sweep import Grid
from dse.sweep.engine.numpy_backend import evaluate_few, merge_structures
from dse.sweep.engine.point import Program
from dse.sweep.grid import compose
from dse.sweep.results.summary import works
from dse.sweep.store import manifest


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """A space with the objectives and constraints of the designs in it."""

    spec: SearchSpec
    grid: Grid
    space: Space
    program: Program
    descent: DescentProblem | None = None  #: of a descent: what its chip is made of, and what judges it

    @property
    def study(self) -> Study:
        """The kind of study: whose model, metrics and reasons."""
        return self.program.study

    @property
    def n_objectives(self) -> int:
        """Number of objectives; each is minimised, maximised ones are negated."""
        return len(self.program.objectives)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on the space that a reader should know before a search, a line each."""
        return tuple(filter(None, dict.fromkeys((*self.spec.notes, *self.grid.remarks, self.remark))))

    @property
    def remark(self) -> str:
        """Remark that an objective compares unlike workloads, of which the one with the least work wins; "" for none.

        A descent compares none: its chip is for all of them.
        """
        unlike_axes, study = works(self.grid), self.study
        objectives = {objective.expression.text for objective in self.program.objectives}
        if self.descent or not (unlike_axes and study.rate and study.objective in objectives):
            return ""
        name, rate = (text.replace("_", " ") for text in (study.objective, study.rate))
        return f"unlike work along {' and '.join(unlike_axes)}: the least has the best {name}; {rate} compares designs"

    @functools.cached_property
    def evaluator(self) -> Evaluator | StructuresEvaluator:
        """Evaluator of the batches of every method, made once."""
        batches = [options[name] for options in self.spec.options.values() for name in BATCHES if name in options]
        seeds, evaluations_per_seed = len(self.spec.seeds), self.spec.evaluations
        total = None if evaluations_per_seed is None else evaluations_per_seed * seeds * len(self.spec.methods)
        largest = max(batches, default=1) * seeds
        if not self.grid.members:
            return Evaluator(self.program, self.grid.base, largest, total)
        evaluators = [Evaluator(program, grid.base, largest, total) for grid, program in self.programs]
        return StructuresEvaluator(
            self.program, evaluators, [self.searched_leaves(grid) for grid in self.grid.structure_grids]
        )

    @property
    def identity(self) -> dict[str, str]:
        """Name → text of everything that results depend on besides methods and budget.

        Options and budget count for a descent alone.
        """
        values = {"specification_hash": self.spec.hash(), "search_digest": search_digest()}
        if self.descent:  # whose results are shown again
            budget = {"evaluations": self.spec.evaluations, "seconds": self.spec.seconds}
            values |= {
                "options": json.dumps(self.spec.options),
                "whole_stacks": "yes" if self.descent.whole_stacks else "no",
                "budget": json.dumps(budget),
                "compression_asked": self.spec.sweep.compression,
            }
        return manifest.circumstances(self.grid) | values

    def key(self, method: str) -> str:
        """Return the hexadecimal hash of everything that a method's steps depend on but the budget."""
        depends = [sorted(self.identity.items()), method, self.spec.options[method], self.spec.seeds]
        return hashlib.sha256(json.dumps(depends).encode()).hexdigest()

    def searched_leaves(self, grid: Grid) -> frozenset[str]:
        """Return the full paths of the leaves that the space sets in the designs of a grid of one structure."""
        return frozenset(grid.columns) & frozenset(spaces.leaf_paths(self.space))

    @property
    def programs(self) -> list[tuple[Grid, Program]]:
        """The grids of one structure, each with the program that evaluates its designs."""
        grids = self.grid.structure_grids
        return [(grid, dataclasses.replace(self.program, constraints=grid.constraints)) for grid in grids]

    def evaluate(self, points: Point) -> Evaluation:
        """Return the evaluation [...] of points [...] on the host."""
        shape = points.digits.shape[:-1]
        evaluation, _ = self.evaluator(padded_values(self.space, points, self.evaluator.size), math.prod(shape))
        return reshape_results(jax.device_get(evaluation), shape)

    def slopes(self, points: Point) -> tuple[Evaluation, Values]:
        """Return the evaluation of points [design], and the gradient of the first objective's logarithm by leaf.

        Args:
            points: on the host.

        Returns:
            The evaluation, and full path → slopes [design].
        """
        size, count = self.evaluator.size, len(points.digits)
        zeros = padded(jnp.zeros(count), size)
        weights = jnp.zeros((len(zeros), self.n_objectives)).at[:, 0].set(1.0)
        results = self.evaluator(padded_values(self.space, points, size), count, Penalty(weights, zeros, zeros))
        slopes: tuple[Evaluation, Values] = reshape_results(jax.device_get(results), (count,))
        return slopes

    def metrics(self, points: Point) -> dict[str, np.ndarray]:
        """Return name → metrics [design] of the results' metrics at points [design].

        Equal points are evaluated once.
        """
        names = self.spec.sweep.metrics
        digits = np.asarray(points.digits)
        _, inverse = np.unique(
            np.concatenate([digits, np.asarray(points.reals).view(np.int32)], axis=1), axis=0, return_inverse=True
        )
        first_indices = np.unique(inverse.reshape(-1), return_index=True)[1]
        values, _ = self.evaluate_by_numpy(jax.tree.map(lambda a: np.asarray(a)[first_indices], points))
        return {name: getattr(values, name)[inverse.reshape(-1)] for name in names}

    def evaluate_by_numpy(self, points: Point) -> tuple[Any, tuple[np.ndarray, ...]]:
        """Return metrics and objectives of points [design] by NumPy alone, without a compiled program.

        Args:
            points: on the host.

        Returns:
            Metrics by name, and the minimised objectives, arrays [design].
        """
        values = jax.device_get(spaces.values(self.space, points))
        structure = values.pop(spaces.STRUCTURE, np.zeros(len(points.digits)))
        metrics_by_structure = []
        for structure_index, (grid, program) in enumerate(self.programs):
            indices, paths = np.flatnonzero(structure == structure_index), self.searched_leaves(grid)
            if len(indices):
                leaf_values = {path: values[path][indices] for path in paths}
                metrics_by_structure.append((indices, evaluate_few(grid.base, leaf_values, program=program)))
        return merge_structures(metrics_by_structure)


def build(spec: SearchSpec, study: Study | None = None) -> Problem:
    """Return the problem of a specification; nothing is evaluated.

    Args:
        spec: a checked specification.
        study: what is evaluated, in place of what the specification asks for.

    Raises:
        InputError: for unknown names, and sizes and mappings that do not fit.
    """
    sweep = dataclasses.replace(spec.sweep, study=study) if study else spec.sweep
    grid = compose.build(sweep)
    program = Program(sweep.study, grid.constraints, sweep.objectives, sweep.metrics)
    if not spec.descends:
        return Problem(spec, grid, tables.build(grid, spec.intervals), program)
    descent = descents.build(dataclasses.replace(spec, sweep=sweep), grid)
    grid, shares = descent.inner.grid, descents.shares(descent)
    return Problem(spec, grid, tables.build(grid, (*spec.intervals, *shares)), program, descent)
