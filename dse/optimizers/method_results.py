"""Results of the methods of a search, and the labels of the axes at their designs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.designs import short_name
from dse.optimizers import space as spaces
from dse.optimizers.checkpoint import MethodProgress
from dse.optimizers.codesign.chip import DescentChip
from dse.optimizers.codesign.descent import Trace
from dse.optimizers.driver import Best
from dse.optimizers.judging import Evaluation, scalar_by_numpy, weights_of
from dse.optimizers.pareto import ParetoFront
from dse.optimizers.problem import Problem
from dse.optimizers.space import Point
from dse.spec import Axis
from dse.spec.axes import values_axis
from dse.sweep.results.labels import labels, part_labels

#: What stands for a proof among the methods.
PROOF = "proof"


class MethodResult(NamedTuple):
    """Best designs, front and history of one method."""

    method: str
    batch: int
    progressed: MethodProgress
    best: Best  #: [seed] before the polish, as the method found it
    polished: Best  #: [seed] after it; the same where there was none
    polish_evaluations: np.ndarray  #: [seed]
    front: ParetoFront  #: of all that was evaluated; none where there is one objective
    seeds: tuple[int, ...]  #: of a descent one for each workload
    metrics: Mapping[str, np.ndarray] = MappingProxyType({})  #: [seed] of what was polished, by name
    end_evaluations: int = 0  #: of the polish of the front's ends
    trace: Trace | None = None  #: of a descent: what it met on its way
    chip: DescentChip | None = None  #: that a descent has found

    @property
    def evaluations(self) -> int:
        """Number of evaluations of each seed, those of the polish not counted."""
        return self.progressed.steps * self.batch

    @property
    def all_evaluations(self) -> int:
        """Number of evaluations of all seeds, the polish included."""
        seeds = len(self.polish_evaluations)
        return self.evaluations * seeds + int(self.polish_evaluations.sum()) + self.end_evaluations


def no_progress(task: Problem) -> MethodProgress:
    """Return the progress of a method before its first step: empty history and front."""
    n_seeds, n_objectives, space = len(task.spec.seeds), task.n_objectives, task.space
    history = {name: np.zeros((0, n_seeds), np.float32) for name in ("violation", "value")}
    history |= {
        "objectives": np.zeros((0, n_seeds, n_objectives), np.float32),
        "feasible": np.zeros((0, n_seeds), np.int32),
    }
    points = Point(np.zeros((0, len(space.sizes)), np.int32), np.zeros((0, len(space.paths)), np.float32))
    front = ParetoFront(points, np.zeros((0, n_objectives), np.float32))
    return MethodProgress(0, [], history, np.zeros(len(task.study.reason_bits), np.int64), front, None)


def one_step_result(task: Problem, method: str, best: Best, batch: int, **fields: Any) -> MethodResult:
    """Return designs [seed], which came all at once, as the result of a method of one step.

    Args:
        task: the space.
        method: its name.
        best: the designs.
        batch: evaluations of each seed.
        **fields: of the result, besides those that follow.
    """
    evaluation, empty = best.evaluation, no_progress(task)
    rows = {"violation": evaluation.violation, "value": best.value, "objectives": evaluation.objectives}
    rows["feasible"] = (evaluation.violation == 0.0).astype(np.int32)
    progress = empty._replace(steps=1, history={name: row[None] for name, row in rows.items()})
    zeros = np.zeros(len(best.value), int)
    return MethodResult(method, batch, progress, best, best, zeros, **{"front": empty.front, **fields})


def proof_result(task: Problem, points: Point[np.ndarray], designs: int) -> MethodResult:
    """Return the best designs of a proof as a method of one step, each seed with the best by its weights.

    Args:
        task: the space.
        points: of a front, or the best one.
        designs: evaluated by the proof, which count in equal parts for all seeds.
    """
    seeds, metrics, objectives = task.spec.seeds, *task.evaluate_by_numpy(points)
    can_run, values = metrics.infeasible_reason == 0, np.stack(objectives, axis=1)
    value = np.stack([scalar_by_numpy(values, weights) for weights in weights_of(seeds, task.n_objectives)])
    best_indices = value.argmin(axis=1)
    # rounding of a continuous axis may lie across a limit: then the best violates it
    evaluation = Evaluation(values, (~can_run).astype(np.float32), metrics.infeasible_reason)
    of_best = jax.tree.map(lambda array: array[best_indices], (points, evaluation))
    best = Best(of_best[0], of_best[1], value.min(axis=1))
    front = jax.tree.map(lambda array: array[can_run], ParetoFront(points, values))
    fields = {"front": front} if task.n_objectives > 1 else {}
    return one_step_result(task, PROOF, best, -(-designs // len(seeds)), seeds=seeds, **fields)


def best_as_document(task: Problem, best: Best) -> dict[str, Any]:
    """Return ``objectives``, ``can_run`` and ``axes`` (name → label) of the best design of all seeds, for JSON."""
    best_index = int(np.lexsort((best.value, best.evaluation.violation))[0])
    columns = axis_columns(task, jax.tree.map(lambda array: array[best_index : best_index + 1], best.point))
    values = zip(task.program.objectives, best.evaluation.objectives[best_index].tolist(), strict=True)
    return {
        "objectives": {objective.expression.text: objective.sign * value for objective, value in values},
        "can_run": bool(best.evaluation.violation[best_index] == 0.0),
        "axes": {axis.name: column[0].item() for axis, column in columns},
    }


def best_points(method_results: list[MethodResult]) -> Point:
    """Return the polished best design of each seed of each method as points [method x seed]."""
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *(result.polished.point for result in method_results))


def axis_columns(problem: Problem, points: Point) -> list[tuple[Axis, np.ndarray]]:
    """Return (axis, its labels [design]) at points [design] for all axes: dimensions, continuous, mapping.

    Args:
        problem: the space.
        points: on the host or the device.
    """
    grid, space = problem.grid, problem.space
    digits = np.asarray(points.digits)
    reals = jax.tree.map(np.asarray, spaces.real_values(space, points.reals))
    columns = []
    for position, dimension in enumerate(grid.dimensions):
        for axis in dimension.axes:
            moves = axis.key in reals
            columns.append((axis, reals.pop(axis.key) if moves else labels(axis)[digits[:, position]]))
    for path, column in reals.items():  # of a descent, whose grid holds mappings and workloads alone
        columns.append((values_axis(short_name(path), path, [float(column[0])], "descent"), column))
    row_index, options = digits[:, space.row_digit], digits[:, space.row_digit + 1 :]
    column_index = np.ravel_multi_index(options.T, space.sizes[space.row_digit + 1 :])
    for axis in grid.mapping_axes:
        if axis.key in grid.table.degrees:
            values = grid.table.degrees[axis.key][row_index]
        elif axis.key in grid.table.options:
            values = grid.table.options[axis.key][column_index]
        else:
            values = np.full(len(row_index), axis.values[0])
        columns.append((axis, part_labels(axis, values)))
    return columns
