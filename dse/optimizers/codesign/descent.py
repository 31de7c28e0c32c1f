"""Co-design: continuous hardware by gradient outside, the exact best mapping of every workload inside.

The objective of hardware ``h`` is the weighted geometric mean over workloads of the least any mapping reaches,
``F(h) = sum_w a_w min_m ln f(h, w, m)``. Its gradient is that of the winners (envelope theorem). Two things smooth it
while the search is young: a soft-min weighs the k best mappings by ``exp(-(ln f - min) / T)`` with a temperature T that
falls, and a mapping that needs too much memory is not left out but pays ``stiffness * ln(needed / usable)``, so
that the gradient knows what another stack of memory is worth; stiffness grows. What is reported is exact:
the least of ``F`` without either, over all points that the search has met.

Steps are Adam's on coordinates that keep shares on their simplex, projected into bounds and budgets
(:mod:`dse.optimizers.codesign.hardware`). Starts move side by side.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dse.optimizers.codesign.hardware import Coordinates, Hardware, Leaves
from dse.optimizers.codesign.inner import BestMappings, InnerProblem
from dse.spec.codesign import DescentSchedule

#: Coordinates of points: full path → [point].
Points = dict[str, np.ndarray]


class DescentProblem(NamedTuple):
    """A co-design: its variables, its objective, and its schedule."""

    hardware: Hardware
    inner: InnerProblem
    weights: np.ndarray  #: [workload] of the geometric mean, summing to 1
    schedule: DescentSchedule
    whole_stacks: bool = False  #: whether the chip that is reported has a whole number of stacks


@dataclasses.dataclass(frozen=True)
class Trace:
    """History of a descent: the exact objective after every step, and the best point."""

    objective: np.ndarray  #: [step, start] weighted geometric mean, infinite where a workload has no mapping
    evaluations: np.ndarray  #: [step] of the model, all starts together, so far
    coordinates: dict[str, float]  #: of the best point
    best: float  #: its objective
    points: Points  #: [step, start] coordinates of what was met


def soft_min_weights(values: np.ndarray, temperature: float) -> np.ndarray:
    """Return weights of a soft-min along the last axis of ascending values: ``exp(-(v - min) / T)``, sum 1.

    The infinite weigh nothing; nothing weighs anything where all are infinite.
    """
    minimum = np.where(np.isfinite(values[..., :1]), values[..., :1], 0.0)
    weights = np.exp(-(values - minimum) / max(temperature, 1e-12))
    return weights / np.maximum(weights.sum(axis=-1, keepdims=True), 1e-30)


def objective(problem: DescentProblem, coordinates: Points) -> tuple[np.ndarray, BestMappings]:
    """Return the exact objective [point], made small and inf where none runs, and the best mappings."""
    mappings = problem.inner.best(leaves(problem.hardware, coordinates))
    return np.exp(mappings.best.astype(np.float64) @ problem.weights), mappings


def leaves(hardware: Hardware, coordinates: Points) -> Points:
    """Return full path → values [point] in SI units of the hardware's variables at points."""
    return jax.tree.map(np.asarray, _leaves(coordinates, hardware=hardware))


def gradient(
    problem: DescentProblem, coordinates: Points, temperature: float, stiffness: float
) -> tuple[Points, np.ndarray]:
    """Return path → gradient [point] of the smoothed log objective by coordinates, and the exact objective [point].

    Args:
        problem: the co-design.
        coordinates: full path → [point].
        temperature: of the soft-min, in logarithms of the objective.
        stiffness: penalty of a logarithm of too much memory.
    """
    points = leaves(problem.hardware, coordinates)
    mappings = problem.inner.best(points, stiffness)
    weights = soft_min_weights(mappings.relaxed, temperature) * problem.weights[:, None]
    _, slopes = problem.inner.slopes(points, mappings.mappings, stiffness)
    by_leaf = {
        path: (weights * np.where(weights > 0.0, slopes[path], 0.0)).sum(axis=(1, 2)).astype(slopes[path].dtype)
        for path in problem.hardware.names
    }
    exact_objective = np.exp(mappings.best.astype(np.float64) @ problem.weights)
    return jax.tree.map(np.asarray, _pull_back(coordinates, by_leaf, hardware=problem.hardware)), exact_objective


#: Problem, points, temperature and stiffness → slopes by the coordinates, and the exact objective.
Slopes = Callable[[DescentProblem, Points, float, float], tuple[Points, np.ndarray]]


class DescentBudget(NamedTuple):
    """Evaluations and seconds that a descent may take, where its schedule would take more."""

    evaluations: int | None = None  #: of the model, all starts together
    seconds: float | None = None

    def steps(self, planned: int, evaluations: int) -> int:
        """Return the steps, 1 to ``planned``, that the budget allows at ``evaluations`` of the model each."""
        return planned if self.evaluations is None else max(1, min(planned, self.evaluations // max(evaluations, 1)))


def search(
    problem: DescentProblem,
    starts: Points | None = None,
    slopes: Slopes = gradient,
    budget: DescentBudget = DescentBudget(),  # noqa: B008
    report: Callable[[int, int, int, float], None] | None = None,
) -> Trace:
    """Run projected Adam from many starts side by side, and return its trace with the best point.

    Args:
        problem: what is sought.
        starts: coordinates to begin from, random ones by default.
        slopes: what steps follow.
        budget: evaluations shorten the schedule, which is run through all the same; seconds cut it off.
        report: called after every step with its number, the steps of the schedule, evaluations and the best so far.
    """
    schedule = problem.schedule
    coordinates = problem.hardware.random(schedule.seed, schedule.starts) if starts is None else starts
    state = _adam().init(coordinates)
    objectives, evaluations, points = [], [], []
    best, best_coordinates = math.inf, {path: float(values[0]) for path, values in coordinates.items()}
    initial_evaluations, step = problem.inner.evaluations, 0
    end_time = time.perf_counter() + (math.inf if budget.seconds is None else budget.seconds)
    while step < schedule.steps and not (step and time.perf_counter() >= end_time):
        rate, temperature, stiffness = schedule.step_parameters(step)
        slope, exact_objective = slopes(problem, coordinates, temperature, stiffness)
        objectives.append(exact_objective)
        points.append(coordinates)
        evaluations.append(problem.inner.evaluations - initial_evaluations)
        if step == 0:
            schedule = schedule.model_copy(update={"steps": budget.steps(schedule.steps, evaluations[0])})
        step += 1
        if exact_objective.min() < best:
            best, best_start = float(exact_objective.min()), int(exact_objective.argmin())
            best_coordinates = {path: float(values[best_start]) for path, values in coordinates.items()}
        if report:
            report(step, schedule.steps, evaluations[-1], best)
        coordinates, state = _advance(coordinates, state, slope, np.float32(rate), hardware=problem.hardware)
        coordinates = jax.tree.map(np.asarray, coordinates)
    points_by_path = {path: np.array([point[path] for point in points]) for path in coordinates}
    return Trace(np.array(objectives), np.array(evaluations), best_coordinates, best, points_by_path)


# --- one point, explained -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class MachineElasticity:
    """``d ln(objective) / d ln(leaf)``: per cent of change for one per cent more of the leaf.

    Of the objective as it is named: where it is made large, above 0 is better.
    """

    leaf: str  #: full path
    value: float
    elasticity: float  #: with the mappings held
    remapped: float | None  #: of a tenth more, with the best mappings of that chip, where that chip can be at all

    @property
    def texts(self) -> tuple[str, str]:
        """Elasticity and remapped elasticity as signed texts, "–" for a remapped one that is None."""
        return f"{self.elasticity:+.3f}", "–" if self.remapped is None else f"{self.remapped:+.3f}"


#: Change of a leaf for which mappings are chosen anew.
_LEAF_FACTOR = 1.1


def elasticities(problem: DescentProblem, coordinates: dict[str, float]) -> list[MachineElasticity]:
    """Return elasticities of the exact objective by each nonzero leaf at a point, largest size first.

    An elasticity is of the objective as it is named: of a maximised one, above 0 is better.

    Args:
        problem: the co-design.
        coordinates: of one point, by full path.
    """
    batch = _batched(problem, coordinates)
    points = leaves(problem.hardware, batch)
    best = problem.inner.best(points)
    mappings = np.repeat(best.mapping[..., None], best.mappings.shape[2], axis=2)
    _, slopes = problem.inner.slopes(points, mappings)
    leaf_values = {path: float(values[0]) for path, values in problem.inner.all_leaves(points).items()}
    nonzero_paths = [path for path, value in leaf_values.items() if value]
    changed_leaves = {
        path: np.array([value * (_LEAF_FACTOR if path == other else 1.0) for other in nonzero_paths])
        for path, value in leaf_values.items()
    }
    changed_logarithms = exact_logarithms(problem, changed_leaves)
    base_logarithm = best.best[0].astype(np.float64) @ problem.weights
    sign = problem.inner.program.objectives[0].sign  # slopes are of what is made small
    rows = []
    for i, path in enumerate(nonzero_paths):
        slope = float(slopes[path][0, :, 0] @ problem.weights * leaf_values[path])
        change = float((changed_logarithms[i] - base_logarithm) / math.log(_LEAF_FACTOR))
        remapped = sign * change if math.isfinite(change) else None
        rows.append(MachineElasticity(path, leaf_values[path], sign * slope, remapped))
    return sorted(rows, key=lambda row: (-abs(row.elasticity), -abs(row.remapped or 0.0)))


def exact_logarithms(problem: DescentProblem, points: Points) -> np.ndarray:
    """Return the logarithm [point] of the exact objective, inf where a workload has no mapping.

    Args:
        problem: the co-design.
        points: full path → values [point] of the leaves.
    """
    batch, count = problem.schedule.starts, len(next(iter(points.values())))
    logarithms = []
    for first in range(0, count, batch):
        indices = np.minimum(np.arange(first, first + batch), count - 1)  # batches of one size share a program
        best = problem.inner.best({path: values[indices] for path, values in points.items()}).best
        logarithms.append(best.astype(np.float64) @ problem.weights)
    return np.concatenate(logarithms)[:count]


def best_mappings(problem: DescentProblem, coordinates: dict[str, float]) -> list[tuple[int, float]]:
    """Return, for each workload, (index of its best mapping, objective as it is written) at a point."""
    _, mappings = objective(problem, _batched(problem, coordinates))
    sign = problem.inner.program.objectives[0].sign
    return [
        (int(mapping), math.exp(sign * float(value)))
        for mapping, value in zip(mappings.mapping[0], mappings.best[0], strict=True)
    ]


def objective_at(problem: DescentProblem, coordinates: dict[str, float]) -> float:
    """Return the exact objective, made small, at one point: full path → coordinate."""
    return float(objective(problem, _batched(problem, coordinates))[0][0])


def _batched(problem: DescentProblem, coordinates: dict[str, float]) -> Points:
    """Return one point as a batch of ``schedule.starts`` equal ones, for the program that a search has compiled."""
    count = problem.schedule.starts
    return {path: np.full(count, value, np.float32) for path, value in coordinates.items()}


# --- compiled -----------------------------------------------------------------------------------------------


def _adam() -> optax.GradientTransformation:
    """Return Adam's scaling of gradients, without a rate."""
    return optax.scale_by_adam(b1=0.8, b2=0.95)


@functools.partial(jax.jit, static_argnames="hardware")
def _leaves(coordinates: Coordinates, *, hardware: Hardware) -> Leaves:
    """Return full path → values [point] of the hardware's variables, compiled."""
    return jax.vmap(hardware.leaves)(coordinates)


@functools.partial(jax.jit, static_argnames="hardware")
def _pull_back(coordinates: Coordinates, by_leaf: Leaves, *, hardware: Hardware) -> Coordinates:
    """Return the gradient by coordinates from the gradient by leaves (transposed Jacobian)."""
    _, pull = jax.vjp(jax.vmap(hardware.leaves), coordinates)
    return pull(by_leaf)[0]


@functools.partial(jax.jit, static_argnames="hardware")
def _advance(
    coordinates: Coordinates, state: Any, slope: Coordinates, rate: Any, *, hardware: Hardware
) -> tuple[Coordinates, Any]:
    """Return the points after a step of projected Adam, within bounds and budget, and Adam's next state."""
    projected = jax.vmap(hardware.projected_gradient)(coordinates, slope)
    with jax.numpy_dtype_promotion("standard"):  # optax counts steps in integers
        steps, state = _adam().update(projected, state)
    updated = jax.tree.map(lambda x, step: x - jnp.asarray(rate, x.dtype) * step, coordinates, steps)
    return jax.vmap(hardware.project)(updated), state
