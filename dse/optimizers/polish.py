"""Local exhaustive polish: to the best neighbour, again and again, until none is better."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.optimizers import pareto, space as spaces
from dse.optimizers.driver import Best, front_ends
from dse.optimizers.evaluation import Values, padded_values, reshape_results
from dse.optimizers.judging import Evaluation, best_position, better, scalar_by_numpy
from dse.optimizers.pareto import ParetoFront
from dse.optimizers.problem import Problem
from dse.optimizers.space import Point, Space
from dse.sweep.engine.programs import persistent_jit

#: Pairs of steps are tried where they are not more than this.
MOST_PAIRS = 4096

#: Steps along continuous axes: the first, the factor between them, the last.
_STEPS = tuple(0.125 * 0.5**i for i in range(10))

#: Step along continuous axes in pairs.
_PAIR_STEP = 1.0 / 32.0

#: Rounds at most: a bound that nothing is known to reach.
_MOST_ROUNDS = 500


class PolishResult(NamedTuple):
    """Local optima and what it took to find them."""

    best: Best  #: [seed]
    evaluations: np.ndarray  #: [seed]
    fronts: tuple[ParetoFront, ...] = ()  #: of the designs that were met on the way, where there are several objectives


def polish(problem: Problem, best: Best, weights: np.ndarray) -> PolishResult:
    """Return the local optimum that is reached from the best design of each seed, with its evaluations.

    All single steps, halved along continuous axes when nothing is better any more; then all pairs of steps, if they
    are few, and single steps again from a better one.

    Args:
        problem: the space and the objectives.
        best: [seed] to start from.
        weights: [seed, objective] of the geometric mean, as the method had them.
    """
    fronts: list[ParetoFront] = []
    optima = [
        _local_optimum(problem, jax.tree.map(lambda a, i=i: a[i], best), seed_weights, fronts)
        for i, seed_weights in enumerate(weights)
    ]
    return PolishResult(
        jax.tree.map(lambda *arrays: np.stack(arrays), *(optimum for optimum, _ in optima)),
        np.array([count for _, count in optima]),
        tuple(fronts),
    )


def polish_ends(problem: Problem, front: ParetoFront) -> PolishResult:
    """Return the local optima from the ends of a front, [objective], each by the objective it is best in."""
    return polish(problem, front_ends(front), np.eye(problem.n_objectives, dtype=np.float32))


def _local_optimum(problem: Problem, best: Best, weights: np.ndarray, fronts: list[ParetoFront]) -> tuple[Best, int]:
    """Return the local optimum of one seed and its evaluations; of several objectives append fronts to ``fronts``."""
    n_directions = problem.space.n_directions
    steps = _STEPS if problem.space.paths else _STEPS[:1]
    evaluations, step_index = 0, 0
    for _ in range(_MOST_ROUNDS):
        in_pairs = step_index == len(steps)
        if in_pairs and n_directions**2 > MOST_PAIRS:
            break
        step = np.float32(_PAIR_STEP if in_pairs else steps[step_index])
        points, values = _neighbourhood(problem.space, best.point, step, in_pairs=in_pairs, size=problem.evaluator.size)
        points, (evaluation, _) = jax.device_get((points, problem.evaluator(values, len(points.digits))))
        evaluation = reshape_results(evaluation, points.digits.shape[:1])
        if problem.n_objectives > 1:
            fronts.append(pareto.of_evaluated(points, evaluation))
        best, improved = _best_of(points, evaluation, weights)
        evaluations += len(points.digits)
        if in_pairs and not improved:
            break
        step_index = 0 if in_pairs else step_index + (not improved)
    return best, evaluations


def release() -> None:
    """Forget compiled programs, as :func:`dse.optimizers.driver.release` does."""
    _neighbourhood.forget()


@persistent_jit("in_pairs", "size", quickly=True)
def _neighbourhood(space: Space, point: Point, step: Array, *, in_pairs: bool, size: int) -> tuple[Point, Values]:
    """Return a design and its neighbours (of neighbours, ``in_pairs``), itself first, with padded leaf values."""
    neighbours, _ = spaces.neighbours(space, point, step)
    if in_pairs:
        neighbours, _ = jax.vmap(lambda point: spaces.neighbours(space, point, step))(neighbours)
        neighbours = jax.tree.map(jnp.concatenate, neighbours)
    points = Point(*(jnp.concatenate([old[None], new]) for old, new in zip(point, neighbours, strict=True)))
    return points, padded_values(space, points, size)


def _best_of(points: Point[np.ndarray], evaluations: Evaluation[np.ndarray], weights: np.ndarray) -> tuple[Best, bool]:
    """Return the best of points [point], the first unless another is better, and whether another is."""
    value = scalar_by_numpy(evaluations.objectives, weights)
    best_index = best_position(evaluations.violation, value, points.digits)
    improved = bool(
        better((evaluations.violation[best_index], value[best_index]), (evaluations.violation[0], value[0]))
    )
    index = best_index if improved else 0
    point, evaluation = jax.tree.map(lambda a: a[index], (points, evaluations))
    return Best(point, evaluation, value[index]), improved
