"""What a search has found, in words and numbers: the best design of each seed, the front, the nearest miss."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dse.optimizers import multi_objective, space as spaces
from dse.optimizers.codesign.chip import DescentChip
from dse.optimizers.driver import Best
from dse.optimizers.method_results import MethodResult, axis_columns, best_points
from dse.optimizers.multi_objective import FrontDesign, MethodFront
from dse.optimizers.problem import Problem
from dse.optimizers.proofs import Proof
from dse.spec.axes import Label
from dse.sweep.results.cautions import Cautions, cautions
from dse.sweep.results.work import work_line
from dse.types import Design

#: Relative difference between a search's value of a design and the plain model's that rounding explains.
ROUNDING = 1e-4


class MismatchError(RuntimeError):
    """Objectives of the reported best that the plain model contradicts."""


@dataclasses.dataclass(frozen=True)
class BestOfSeed:
    """The best design of one seed of a method."""

    method: str
    seed: int
    evaluations: int  #: of this seed, the polish included
    objectives: tuple[float, ...]  #: as they are written, not as they are made small
    violation: float
    gap: float | None  #: to the best of all, relative; None where it is infeasible, of several objectives and workloads
    gap_unpolished: float | None  #: and of what the method had found itself
    labels: dict[str, Label]
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class SearchOutcome(Cautions):
    """What a search has found, in numbers."""

    size: float  #: distinct designs, infinite with continuous axes
    n_designs: int  #: of the grid that the discrete axes span
    designs: tuple[BestOfSeed, ...]  #: the best of each seed of each method, best first; of several objectives the
    #: best by the seed's own weighted geometric mean of them, which need not be best in any: see ``front``; of a
    #: descent each workload on the chip
    evaluations: dict[str, int]  #: by method, of all seeds, the polish included
    feasible: dict[str, int]  #: feasible designs among the evaluated ones
    reasons: dict[str, int]  #: evaluated designs by infeasibility reason
    objectives: tuple[str, ...]
    front_size: int  #: designs on the front of all methods
    front_distinct: int  #: designs that differ at the printed digits
    front: tuple[FrontDesign, ...]  #: its ends, best by each objective, and some designs between them
    fronts: dict[str, MethodFront]  #: by method
    best: dict[str, float]  #: of each objective, over all that was evaluated; empty where nothing can run
    seconds: dict[str, float]  #: by method, and ``total``
    output: Path | None
    finished: str = ""  #: when an earlier run has found it; empty where this one did
    chip: DescentChip | None = None  #: of a descent: the hardware of all its designs, one for each workload
    work: str = ""  #: what each step or request of all designs works on, in one line
    proof: Proof | None = None  #: what is proven of all designs of the space, where that was asked

    @property
    def any_feasible(self) -> bool:
        """True where some design can run."""
        return any(design.violation == 0.0 for design in self.designs)


def with_metrics(problem: Problem, method_results: list[MethodResult]) -> list[MethodResult]:
    """Return the results with name → metrics [seed] of their best designs filled in."""
    n_seeds = len(method_results[0].seeds)
    metrics = problem.metrics(best_points(method_results))
    return [
        result._replace(metrics={name: column[i * n_seeds : (i + 1) * n_seeds] for name, column in metrics.items()})
        for i, result in enumerate(method_results)
    ]


def build_outcome(
    problem: Problem,
    method_results: list[MethodResult],
    seconds: dict[str, float],
    output: Path | None,
    proof: Proof | None = None,
) -> SearchOutcome:
    """Return the outcome of all methods.

    Args:
        problem: the space and the objectives.
        method_results: of each method.
        seconds: by method, and ``total``.
        output: file of the results, None for none.
        proof: of the best designs, where there is one.
    """
    reasons = np.sum([result.progressed.reasons for result in method_results], axis=0)
    designs, merged_front = _best_of_seeds(problem, method_results), multi_objective.merged_front(method_results)
    front, distinct = multi_objective.front_designs(problem, method_results, merged_front)
    labels = [*(design.labels for design in front), *(design.labels for design in designs)]
    chip = method_results[0].chip
    design_cautions = cautions(
        problem.grid, _feasible_designs(problem, method_results), labels, problem.remarks, most=1
    )
    return SearchOutcome(
        size=problem.space.size,
        n_designs=problem.space.n_designs,
        designs=designs,
        evaluations={result.method: result.all_evaluations for result in method_results},
        feasible={result.method: int(result.progressed.history["feasible"].sum()) for result in method_results},
        reasons={name: int(count) for name, count in zip(problem.study.reason_bits, reasons, strict=True) if count},
        objectives=multi_objective.objective_texts(problem),
        front_size=len(merged_front.objectives),
        front_distinct=distinct,
        front=front,
        fronts=multi_objective.method_fronts(problem, method_results),
        best={multi_objective.objective_texts(problem)[0]: chip.value}
        if chip
        else multi_objective.best_values(problem, method_results),
        seconds=seconds,
        output=output,
        chip=chip,
        **vars(design_cautions),
        work=work_line(problem.grid),
        proof=proof,
    )


def _best_of_seeds(problem: Problem, method_results: list[MethodResult]) -> tuple[BestOfSeed, ...]:
    """Return the best design of each seed of each method, by violation, then value; equals in their order."""
    signs, best_objective = multi_objective.objective_signs(problem), None
    if problem.n_objectives == 1 and not problem.descent:  # of several, the best by one is the end of a front
        evaluations = [result.polished.evaluation for result in method_results]
        best_objective = min(np.where(e.violation == 0.0, e.objectives[:, 0], np.inf).min() for e in evaluations)
    designs: list[tuple[tuple[float, float], BestOfSeed]] = []
    for result in method_results:
        best = result.polished
        columns = axis_columns(problem, best.point)
        for i, seed in enumerate(result.seeds):
            design = BestOfSeed(
                method=result.method,
                seed=seed,
                evaluations=result.evaluations + int(result.polish_evaluations[i]),
                objectives=tuple(map(float, signs * best.evaluation.objectives[i])),
                violation=float(best.evaluation.violation[i]),
                gap=_gap(best, i, best_objective),
                gap_unpolished=_gap(result.best, i, best_objective),
                labels={axis.name: column[i].item() for axis, column in columns},
                metrics={name: float(values[i]) for name, values in result.metrics.items()},
            )
            designs.append(((design.violation, float(best.value[i])), design))
    return tuple(design for _, design in sorted(designs, key=lambda rank_and_design: rank_and_design[0]))


def _feasible_designs(
    problem: Problem, method_results: list[MethodResult]
) -> Iterator[tuple[dict[str, Label], dict[str, float], Design]]:
    """Yield, for each best design that can run, labels by axis, metrics and leaves by name, and its base design."""
    for result in method_results:
        best, columns = result.polished, axis_columns(problem, result.polished.point)
        leaves = spaces.values(problem.space, best.point)
        structure = np.asarray(leaves.pop(spaces.STRUCTURE, np.zeros(len(best.point.digits))), int)
        columns_by_name = {**result.metrics, **{path: np.asarray(column) for path, column in leaves.items()}}
        for i in np.flatnonzero(best.evaluation.violation == 0.0):
            labels = {axis.name: column[i].item() for axis, column in columns}
            base = problem.grid.structure_grids[structure[i]].base
            yield labels, {name: float(column[i]) for name, column in columns_by_name.items()}, base


def _gap(best: Best, seed: int, best_objective: float | None) -> float | None:
    """Return a seed's relative distance from ``best_objective``, None where it is infeasible or no best is given."""
    if best_objective is None or best.evaluation.violation[seed] > 0.0:
        return None
    return float((best.evaluation.objectives[seed, 0] - best_objective) / max(abs(best_objective), 1e-30))


def verify(problem: Problem, best: Best) -> None:
    """Raise MismatchError where the model by NumPy contradicts objectives or feasibility of the designs [seed].

    Differences that rounding explains are none.
    """
    metrics, objectives = problem.evaluate_by_numpy(best.point)
    for position, objective in enumerate(problem.program.objectives):
        pairs = zip(objectives[position].tolist(), best.evaluation.objectives[:, position].tolist(), strict=True)
        for model_value, search_value in pairs:
            if not abs(model_value - search_value) <= ROUNDING * max(abs(model_value), abs(search_value)):
                raise MismatchError(
                    f"{objective.expression.text}: the search says {search_value}, the model {model_value}"
                )
    for reason, violation in zip(metrics.infeasible_reason.tolist(), best.evaluation.violation.tolist(), strict=True):
        if violation == 0.0 and reason:
            raise MismatchError(f"the search says feasible, the model {reason}")
