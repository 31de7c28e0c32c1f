"""Descent: continuous hardware by its gradient, the exact best mapping of every workload at each step.

It stands beside the methods that propose designs: what it moves is a chip for all workloads. Its best "seeds" are
the workloads, each on that chip with its best mapping.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from dse.errors import InputError
from dse.optimizers.codesign import chip, descent
from dse.optimizers.codesign.chip import DescentSolution
from dse.optimizers.codesign.descent import DescentBudget, Trace
from dse.optimizers.driver import Best
from dse.optimizers.judging import Evaluation
from dse.optimizers.method_results import MethodResult, one_step_result
from dse.optimizers.problem import Problem
from dse.optimizers.progress import SearchProgress
from dse.optimizers.space import Point
from dse.spec.codesign import DESCENT


def search(task: Problem, progress: Callable[[SearchProgress], None] | None = None) -> MethodResult:
    """Return the result of a descent within the budget of the specification: the chip it finds.

    Raises:
        InputError: where no hardware runs every workload.
    """
    problem, spec = task.descent, task.spec
    assert problem is not None
    trace = descent.search(
        problem,
        budget=DescentBudget(spec.evaluations, spec.seconds),
        report=progress and _progress_callback(task, progress),
    )
    if not np.isfinite(trace.best):
        raise InputError(
            f"{spec.sweep.file}: {spec.section}",
            "no hardware that runs every workload",
            "hardware with a feasible mapping of each",
            "raise the limits, allow more stacks, or widen the axes of the mapping",
        )
    return _result(task, trace, chip.solution(problem, trace, spec.sweep.metrics))


def check_budget(task: Problem, where: str) -> None:
    """Raise InputError where the evaluations are fewer than one step takes; unlimited ones always pass."""
    problem, evaluations = task.descent, task.spec.evaluations
    assert problem is not None
    starts = problem.schedule.starts
    step_evaluations = problem.inner.evaluations_per_step(starts)
    if evaluations is not None and evaluations < step_evaluations:
        raise InputError(
            where,
            f"{evaluations:,}",
            f"{step_evaluations:,} or more: one step moves {starts} starts, and each tries every mapping",
            "give more, give --seconds, or write fewer starts and fewer values of its axes",
        )


def _progress_callback(
    task: Problem, progress: Callable[[SearchProgress], None]
) -> Callable[[int, int, int, float], None]:
    """Return the callback (step, steps, evaluations, best) that reports progress after each step."""
    start_time, (objective, *_) = time.perf_counter(), task.program.objectives

    def report(step: int, steps: int, evaluations: int, best: float) -> None:
        progress(
            SearchProgress(
                method=DESCENT,
                share=step / steps,
                rate=evaluations / max(time.perf_counter() - start_time, 1e-9),
                evaluations=evaluations,
                best=best**objective.sign if math.isfinite(best) else None,
                objective=objective.expression.text,
                units=objective.expression.display_units,
            )
        )

    return report


def _result(task: Problem, trace: Trace, solved: DescentSolution) -> MethodResult:
    """Return a solution as the result of a method whose seeds are the workloads."""
    n_workloads, (objective, *_) = len(solved.chip.workloads), task.program.objectives
    values = objective.sign * np.array([workload.objective for workload in solved.chip.workloads], np.float32)
    evaluation = Evaluation(values[:, None], np.zeros(n_workloads, np.float32), np.zeros(n_workloads, np.int32))
    evaluations_per_workload, remainder = divmod(solved.chip.evaluations, n_workloads)
    return one_step_result(
        task,
        DESCENT,
        Best(_points(task, solved), evaluation, values),
        evaluations_per_workload,
        end_evaluations=remainder,
        metrics={name: solved.metrics[name] for name in task.spec.sweep.metrics},
        seeds=(task.spec.seeds[0],) * n_workloads,
        trace=trace,
        chip=solved.chip,
    )


def _points(task: Problem, solved: DescentSolution) -> Point[np.ndarray]:
    """Return the workloads [workload] on the chip, each with its best mapping, as points of the search space."""
    grid, space = task.grid, task.space
    row_index, column_index = np.divmod(np.array(solved.mappings), grid.table.n_columns)
    n_workloads = len(row_index)
    dimensions = np.unravel_index(np.arange(n_workloads), grid.shape) if grid.shape else ()
    options = np.asarray(space.option_digits)[column_index]
    digits = np.column_stack([*dimensions, row_index, options]).astype(np.int32)
    values = np.array([solved.leaves[path] for path in space.paths])
    reals = (np.where(space.logs, np.log(values), values) - np.asarray(space.low)) / np.asarray(space.span)
    return Point(digits, np.tile(np.clip(reals, 0.0, 1.0).astype(np.float32), (n_workloads, 1)))
