"""What a search has found, in words and numbers: the best design of each seed, the front, the nearest miss."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dse.search import pareto
from dse.search import space as spaces
from dse.search.checkpoint import Progressed
from dse.search.driver import Best
from dse.search.problem import Problem
from dse.search.space import Point
from dse.spec.axes import Axis, Label
from dse.sweep.results.labels import labels, part_labels
from dse.sweep.results.prices import told as told_prices

#: Relative difference between a search's value of a design and the plain model's that rounding explains.
ROUNDING = 1e-4


class MismatchError(RuntimeError):
    """The plain model does not say of the reported best what the search did."""


class MethodResult(NamedTuple):
    """What one method has found."""

    method: str
    batch: int
    progressed: Progressed
    best: Best  #: [seed] before the polish, as the method found it
    polished: Best  #: [seed] after it; the same where there was none
    polish_evaluations: np.ndarray  #: [seed]
    metrics: dict[str, np.ndarray]  #: [seed] of what was polished, by name

    @property
    def evaluations(self) -> int:
        """Of each seed, the polish apart."""
        return self.progressed.steps * self.batch


@dataclasses.dataclass(frozen=True)
class BestDesign:
    """A design that a seed of a method has found."""

    method: str
    seed: int
    evaluations: int  #: of this seed, the polish included
    objectives: tuple[float, ...]  #: as they are written, not as they are made small
    violation: float
    gap: float | None  #: to the best of all, relative, of the first objective; None where it is infeasible
    gap_unpolished: float | None  #: and of what the method had found itself
    labels: dict[str, Label]
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a search has found, in numbers."""

    size: float  #: distinct designs, infinite with continuous axes
    n_designs: int  #: of the grid that the discrete axes span
    designs: tuple[BestDesign, ...]  #: the best of each seed of each method, best first
    evaluations: dict[str, int]  #: by method, of all seeds, the polish included
    feasible: dict[str, int]  #: feasible designs among those that the methods evaluated
    reasons: dict[str, int]  #: evaluated designs by infeasibility reason
    objectives: tuple[str, ...]
    front_size: int
    seconds: dict[str, float]  #: by method, and ``total``
    output: Path | None
    prices: str = ""  #: what stands in for prices of the designs' accelerators that nobody states, in one line

    @property
    def any_feasible(self) -> bool:
        """Whether some design can run."""
        return any(design.violation == 0.0 for design in self.designs)


def best_points(found: list[MethodResult]) -> Point:
    """The best design of each seed of each method, [method x seed]."""
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *(one.polished.point for one in found))


def with_metrics(problem: Problem, found: list[MethodResult]) -> list[MethodResult]:
    """The same with the metrics of their best designs."""
    n = len(problem.spec.seeds)
    metrics = problem.metrics(best_points(found))
    return [
        one._replace(metrics={name: column[i * n : (i + 1) * n] for name, column in metrics.items()})
        for i, one in enumerate(found)
    ]


def of_methods(problem: Problem, found: list[MethodResult], seconds: dict[str, float], output: Path | None) -> Outcome:
    """The outcome of the methods' results."""
    n = len(problem.spec.seeds)
    counts = {f.method: f.evaluations * n + int(f.polish_evaluations.sum()) for f in found}
    reasons = np.sum([f.progressed.reasons for f in found], axis=0)
    designs = _designs(problem, found)
    return Outcome(
        size=problem.space.size,
        n_designs=problem.space.n_designs,
        designs=designs,
        evaluations=counts,
        feasible={f.method: int(f.progressed.history["feasible"].sum()) for f in found},
        reasons={
            name: int(count) for name, count in zip(problem.study.reason_bits, reasons, strict=True) if count
        },
        objectives=tuple(objective.expression.text for objective in problem.program.objectives),
        front_size=len(front(found)[1]) if problem.n_objectives > 1 else 0,
        seconds=seconds,
        output=output,
        prices=told_prices(problem.grid, [design.labels for design in designs]),
    )


def _designs(problem: Problem, found: list[MethodResult]) -> tuple[BestDesign, ...]:
    """The best of each seed, best first; of equals the first method and seed."""
    signs = np.array([objective.sign for objective in problem.program.objectives])
    feasible = [one.polished.evaluation for one in found]
    least = min(np.where(e.violation == 0.0, e.objectives[:, 0], np.inf).min() for e in feasible)
    designs: list[tuple[tuple[float, float], BestDesign]] = []
    for one in found:
        best = one.polished
        columns = axis_columns(problem, best.point)
        for i, seed in enumerate(problem.spec.seeds):
            design = BestDesign(
                method=one.method,
                seed=seed,
                evaluations=one.evaluations + int(one.polish_evaluations[i]),
                objectives=tuple(map(float, signs * best.evaluation.objectives[i])),
                violation=float(best.evaluation.violation[i]),
                gap=_gap(best, i, least),
                gap_unpolished=_gap(one.best, i, least),
                labels={axis.name: column[i].item() for axis, column in columns},
                metrics={name: float(values[i]) for name, values in one.metrics.items()},
            )
            designs.append(((design.violation, float(best.value[i])), design))
    return tuple(design for _, design in sorted(designs, key=lambda pair: pair[0]))


def _gap(best: Best, seed: int, least: float) -> float | None:
    """How much worse a seed's first objective is than the least of all, relative; None where it is infeasible."""
    if best.evaluation.violation[seed] > 0.0:
        return None
    return float((best.evaluation.objectives[seed, 0] - least) / max(abs(least), 1e-30))


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


def front(found: list[MethodResult]) -> tuple[Point, np.ndarray]:
    """The designs that none dominates among all that were evaluated, and their objectives [design, objective]."""
    digits, reals, objectives = (
        np.concatenate([getattr(f.progressed, name) for f in found]) for name in ("digits", "reals", "objectives")
    )
    kept = pareto.front(objectives)
    kept = kept[np.argsort(objectives[kept, 0], kind="stable")]
    return Point(digits[kept], reals[kept]), objectives[kept]


def verify(problem: Problem, best: Best) -> None:
    """Hold each design [seed] to the model by NumPy: it says what the search did, to rounding, or MismatchError."""
    metrics, found = problem.plain(best.point)
    for position, objective in enumerate(problem.program.objectives):
        pairs = zip(found[position].tolist(), best.evaluation.objectives[:, position].tolist(), strict=True)
        for plain, searched in pairs:
            if not abs(plain - searched) <= ROUNDING * max(abs(plain), abs(searched)):
                raise MismatchError(f"{objective.expression.text}: the search says {searched}, the model {plain}")
    for reason, violation in zip(metrics.infeasible_reason.tolist(), best.evaluation.violation.tolist(), strict=True):
        if violation == 0.0 and reason:
            raise MismatchError(f"the search says feasible, the model {reason}")
