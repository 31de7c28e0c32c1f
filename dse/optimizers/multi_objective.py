"""Search of several objectives: the merged front, its ends, and the front of each method."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from dse.io import quantities
from dse.optimizers import pareto
from dse.optimizers.method_results import MethodResult, axis_columns
from dse.optimizers.pareto import ParetoFront
from dse.optimizers.problem import Problem
from dse.spec import Objective
from dse.spec.axes import Label
from dse.sweep.reduce import fronts

#: Designs of a front that are printed: its ends, and some between.
MAX_PRINTED = 12


@dataclasses.dataclass(frozen=True)
class FrontDesign:
    """A design of the front of several objectives."""

    objectives: tuple[float, ...]  #: as they are written
    best_in: tuple[str, ...]  #: objectives that it is the best in, at the digits that are shown
    methods: tuple[str, ...]  #: that have found it
    labels: dict[str, Label]
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class MethodFront:
    """Size and hypervolume of a method's front."""

    size: int  #: designs on its front
    hypervolume: float | None  #: share of the box of all methods that its front dominates: see ``pareto.shares``
    best: tuple[float, ...]  #: of each objective, as it is written; empty where nothing can run


def objective_texts(problem: Problem) -> tuple[str, ...]:
    """Return the text of each objective's expression, as the specification writes it."""
    return tuple(objective.expression.text for objective in problem.program.objectives)


def objective_signs(problem: Problem) -> np.ndarray:
    """Return the sign [objective], 1 where it is minimised and -1 where it is maximised."""
    return np.array([objective.sign for objective in problem.program.objectives])


def merged_front(method_results: list[MethodResult]) -> ParetoFront:
    """Return the front of all methods' fronts, ordered by the first objective."""
    merged = pareto.merge_fronts(*(result.front for result in method_results))
    order = np.argsort(merged.objectives[:, 0], kind="stable")
    return jax.tree.map(lambda array: array[order], merged)


def front_designs(
    problem: Problem, method_results: list[MethodResult], front: ParetoFront
) -> tuple[tuple[FrontDesign, ...], int]:
    """Return the designs of a front to print, and the count of those that differ at the printed digits."""
    if not len(front.objectives):
        return (), 0
    chosen = fronts.select_front(
        front.objectives.T, tuple(map(_display_rounding, problem.program.objectives)), MAX_PRINTED
    )
    points = jax.tree.map(lambda array: array[chosen.positions], front.points)
    columns, metrics = axis_columns(problem, points), problem.metrics(points)
    texts, signs, designs = objective_texts(problem), objective_signs(problem), []
    for i, objectives in enumerate(front.objectives[chosen.positions]):
        has_it = ((result.method, np.all(result.front.objectives == objectives, axis=1)) for result in method_results)
        design = FrontDesign(
            objectives=tuple(map(float, signs * objectives)),
            best_in=tuple(text for text, best in zip(texts, chosen.best, strict=True) if best == i),
            methods=tuple(method for method, is_equal in has_it if is_equal.any()),
            labels={axis.name: column[i].item() for axis, column in columns},
            metrics={name: float(values[i]) for name, values in metrics.items()},
        )
        designs.append(design)
    return tuple(designs), chosen.distinct


def _display_rounding(objective: Objective) -> Callable[[float], float]:
    """Return the function that rounds a minimised value of an objective as it is printed."""
    sign, units = objective.sign, objective.expression.units

    def rounded(value: float) -> float:
        return sign * quantities.displayed_value(sign * value, units)

    return rounded


def method_fronts(problem: Problem, method_results: list[MethodResult]) -> dict[str, MethodFront]:
    """Return method → size and hypervolume of its front, empty for one objective."""
    if problem.n_objectives == 1:
        return {}
    objectives_by_method = [result.front.objectives for result in method_results]
    return {
        result.method: MethodFront(len(objectives), share, _best_of_designs(problem, objectives))
        for result, objectives, share in zip(
            method_results, objectives_by_method, pareto.shares(objectives_by_method), strict=True
        )
    }


def _best_of_designs(problem: Problem, objectives: np.ndarray) -> tuple[float, ...]:
    """Return the best of each objective of designs [design, objective], as it is written; empty without designs."""
    return tuple(map(float, objective_signs(problem) * objectives.min(axis=0))) if len(objectives) else ()


def best_values(problem: Problem, method_results: list[MethodResult]) -> dict[str, float]:
    """Return text of the objective → its best value among designs that can run; empty where none can."""
    if problem.n_objectives > 1:
        objectives = np.concatenate([result.front.objectives for result in method_results])
    else:
        evaluations = [result.polished.evaluation for result in method_results]
        objectives = np.concatenate([evaluation.objectives[evaluation.violation == 0.0] for evaluation in evaluations])
    return dict(zip(objective_texts(problem), _best_of_designs(problem, objectives), strict=False))
