"""What a search of several objectives has found: its front, the ends of it, and how far each method has come."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from dse.io import quantities
from dse.optimizers import pareto
from dse.optimizers.driver import Best
from dse.optimizers.found import MethodResult, axis_columns
from dse.optimizers.judging import Evaluation
from dse.optimizers.pareto import Front
from dse.optimizers.problem import Problem
from dse.optimizers.space import Point
from dse.spec.axes import Label
from dse.spec.sweep import Objective
from dse.sweep.reduce import fronts

#: Designs of a front that are printed: its ends, and some between.
MOST = 12


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
    """How far a method has come with several objectives."""

    size: int  #: designs on its front
    hypervolume: float | None  #: share of the box of all methods that its front dominates: see ``pareto.shares``
    best: tuple[float, ...]  #: of each objective, as it is written; empty where nothing can run


def texts(problem: Problem) -> tuple[str, ...]:
    """The objectives as they are written."""
    return tuple(objective.expression.text for objective in problem.program.objectives)


def signs(problem: Problem) -> np.ndarray:
    """[objective] 1 where it is made small, -1 where it is made large."""
    return np.array([objective.sign for objective in problem.program.objectives])


def front(found: list[MethodResult]) -> Front:
    """The designs that none dominates among all that were evaluated, best by the first objective first."""
    whole = pareto.joined(*(one.front for one in found))
    order = np.argsort(whole.objectives[:, 0], kind="stable")
    return Front(*(array[order] for array in whole))


def ends(whole: Front) -> Best:
    """The best designs of a front by each objective, [objective]."""
    at = whole.objectives.argmin(axis=0)
    objectives, none = whole.objectives[at], np.zeros(len(at), np.float32)
    return Best(
        jax.tree.map(lambda array: array[at], whole.points), Evaluation(objectives, none, none.astype(np.int32)), none
    )


def front_designs(problem: Problem, found: list[MethodResult], whole: Front) -> tuple[tuple[FrontDesign, ...], int]:
    """Designs of a front to print, and the number of designs that differ at the printed digits."""
    if not len(whole.objectives):
        return (), 0
    chosen = fronts.chosen(whole.objectives.T, tuple(map(_shown, problem.program.objectives)), MOST)
    points = Point(whole.digits[chosen.positions], whole.reals[chosen.positions])
    columns, metrics = axis_columns(problem, points), problem.metrics(points)
    designs = []
    for i, objectives in enumerate(whole.objectives[chosen.positions]):
        designs.append(
            FrontDesign(
                objectives=tuple(map(float, signs(problem) * objectives)),
                best_in=tuple(text for text, at in zip(texts(problem), chosen.best, strict=True) if at == i),
                methods=tuple(
                    one.method for one in found if np.any(np.all(one.front.objectives == objectives, axis=1))
                ),
                labels={axis.name: column[i].item() for axis, column in columns},
                metrics={name: float(values[i]) for name, values in metrics.items()},
            )
        )
    return tuple(designs), chosen.distinct


def _shown(objective: Objective) -> Callable[[float], float]:
    """Of an objective, made small, a value as it is shown."""
    sign, units = objective.sign, objective.expression.units

    def shown(value: float) -> float:
        return sign * quantities.shown(sign * value, units)

    return shown


def of_each(problem: Problem, found: list[MethodResult]) -> dict[str, MethodFront]:
    """How far each method has come, of several objectives."""
    if problem.n_objectives == 1:
        return {}
    every = [one.front.objectives for one in found]
    return {
        one.method: MethodFront(len(own), share, _least(problem, own))
        for one, own, share in zip(found, every, pareto.shares(every), strict=True)
    }


def _least(problem: Problem, objectives: np.ndarray) -> tuple[float, ...]:
    """The best of each objective of designs [design, objective], as it is written; empty where there are none."""
    return tuple(map(float, signs(problem) * objectives.min(axis=0))) if len(objectives) else ()


def best(problem: Problem, found: list[MethodResult]) -> dict[str, float]:
    """The best of each objective, by its text."""
    if problem.n_objectives > 1:
        objectives = np.concatenate([one.front.objectives for one in found])
    else:
        every = [one.polished.evaluation for one in found]
        objectives = np.concatenate([evaluation.objectives[evaluation.violation == 0.0] for evaluation in every])
    return dict(zip(texts(problem), _least(problem, objectives), strict=False))
