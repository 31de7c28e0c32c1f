"""The chip that a descent has found: its best mapping of every workload, and what the design is short of.

Memory stacks that find room are whole numbers: a continuous size is rounded down and up.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from dse.designs import all_leaves, replace, short_name
from dse.model import memory_units
from dse.optimizers.codesign import descent
from dse.optimizers.codesign.descent import DescentProblem, MachineElasticity, Trace, objective_at
from dse.optimizers.codesign.hardware import MEMORY_AREA, STACKS, Coordinates, Hardware
from dse.sweep.engine.numpy_backend import evaluate_few
from dse.types import Design

#: Metrics of each workload that are told with the objective.
REPORTED_METRICS = (
    "step_time",
    "mfu",
    "tokens_per_second_per_device",
    "peak_memory",
    "energy_per_step",
    "average_power",
)

#: The model alone must give the objective of the search to this, relative.
_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class Leaf:
    """A leaf of the hardware."""

    name: str
    value: float  #: SI
    units: str


@dataclasses.dataclass(frozen=True)
class Mapped:
    """A workload on the chip with its best mapping."""

    workload: str
    objective: float
    mapping: dict[str, Any]
    metrics: dict[str, float]


@dataclasses.dataclass(frozen=True)
class DescentChip:
    """The chip of a descent in plain numbers in SI units."""

    value: float  #: weighted geometric mean of the objective over the workloads, re-evaluated by the model alone
    hardware: list[Leaf]
    cost: float | None  #: USD of a chip, None without a limit of it
    active: list[str]  #: bounds and limits that hold the design
    workloads: list[Mapped]
    elasticities: list[MachineElasticity]
    starts: list[float]  #: the least objective that each start met
    evaluations: int  #: of the model, a gradient as ``GRADIENT_COST`` of them
    whole_stacks: list[dict[str, int | float | None]] = dataclasses.field(default_factory=list)
    #: whole numbers of stacks that were tried, and what each loses to the chip of continuous size; None where it
    #: cannot be built or runs nothing


class DescentSolution(NamedTuple):
    """A chip, and its point in the space of the search."""

    chip: DescentChip
    leaves: dict[str, float]  #: full path → value of the variables
    mappings: list[int]  #: of each workload
    metrics: dict[str, np.ndarray]  #: [workload] by name


def solution(problem: DescentProblem, trace: Trace, metrics: tuple[str, ...] = ()) -> DescentSolution:
    """Return the chip of a finished descent with its point, re-evaluated by the model alone.

    AssertionError where the model contradicts what the descent has met.

    Args:
        problem: the co-design.
        trace: of the descent.
        metrics: names of further metrics of the workloads.

    Returns:
        The chip, re-evaluated by the model alone, and its point in the space.
    """
    trace = without_excess_stacks(problem, trace)
    variants = integer_stack_chips(problem, trace) if problem.whole_stacks else []
    trace = with_best_variant(trace, variants)
    coordinates, sign = trace.coordinates, problem.inner.grid.spec.objectives[0].sign
    points = descent.leaves(
        problem.hardware, {path: np.full(1, value, np.float32) for path, value in coordinates.items()}
    )
    hardware = {path: float(value[0]) for path, value in points.items()}
    mappings = [mapping for mapping, _ in descent.best_mappings(problem, coordinates)]
    metric_values, objectives = _evaluate(problem, hardware, mappings, (*REPORTED_METRICS, *metrics))
    value = float(np.exp(problem.weights @ np.log(objectives)))
    expected = trace.best**sign
    assert abs(value / expected - 1.0) < _TOLERANCE, f"re-evaluated to {value:g}, searched {expected:g}"
    workloads = []
    for i, (name, objective, mapping) in enumerate(zip(_names(problem), objectives, mappings, strict=True)):
        reported = {metric: float(metric_values[metric][i]) for metric in REPORTED_METRICS}
        workloads.append(Mapped(name, objective, problem.inner.labels(mapping), reported))
    rows = (row for row in descent.elasticities(problem, coordinates) if _is_noticeable(row))
    chip = DescentChip(
        value=value,
        hardware=[Leaf(short_name(path), number, all_leaves()[path]["units"]) for path, number in hardware.items()],
        cost=float(problem.hardware.cost(coordinates)) if problem.hardware.priced_accelerator else None,
        active=[_with_short_name(text) for text in problem.hardware.active_limits(coordinates)],
        workloads=workloads,
        elasticities=[dataclasses.replace(row, leaf=short_name(row.leaf)) for row in rows],
        starts=[float(best) ** sign for best in trace.objective.min(axis=0)],
        evaluations=int(trace.evaluations[-1]),
        whole_stacks=[variant.as_dict() for variant in variants],
    )
    return DescentSolution(chip, hardware, mappings, metric_values)


def _is_noticeable(row: MachineElasticity) -> bool:
    """True for an elasticity above 1e-4 in size, with the mappings held or chosen anew."""
    return abs(row.elasticity) > 1e-4 or abs(row.remapped or 0.0) > 1e-4


def _evaluate(
    problem: DescentProblem, hardware: dict[str, float], mappings: list[int], names: tuple[str, ...]
) -> tuple[dict[str, np.ndarray], list[float]]:
    """Return name → metrics [workload], and the objective of each workload with its mapping, as it is written."""
    inner = problem.inner
    designs = [hardware | inner.values(workload, mapping) for workload, mapping in enumerate(mappings)]
    columns = {path: np.array([design[path] for design in designs], np.float32) for path in designs[0]}
    program = dataclasses.replace(inner.program, metrics=tuple(sorted({*names, "feasible"})))
    metrics, (objective,) = evaluate_few(inner.grid.base, columns, program=program)
    assert np.all(metrics.feasible), "a best mapping that the model calls infeasible"
    sign = program.objectives[0].sign
    return {name: getattr(metrics, name) for name in names}, [float(sign * value) for value in objective]


def _names(problem: DescentProblem) -> list[str]:
    """Return the name of each workload: its label, and its labels along the other dimensions of the grid."""
    grid = problem.inner.grid
    if not grid.shape:
        return [str(grid.spec.names["workload"].labels[0])]
    digits = np.stack(np.unravel_index(np.arange(grid.n_points), grid.shape), axis=1)
    first_labels = [dimension.axes[0].labels for dimension in grid.dimensions]
    return [" ".join(str(labels[d]) for labels, d in zip(first_labels, point, strict=True)) for point in digits]


def _with_short_name(text: str) -> str:
    """Return a text with the full path at its start made short; unchanged where it starts with none."""
    path, _, remainder = text.partition(" ")
    return f"{short_name(path)} {remainder}" if path in all_leaves() else text


#: A chip may cost so much more than its budget, relative, by rounding.
_ROUNDING = 1e-5


class IntegerStackChip(NamedTuple):
    """A chip with a whole number of memory stacks, and its loss."""

    stacks: int
    objective: float  #: made small, infinite where a workload has no mapping or the chip cannot be built or paid
    loss: float  #: relative to the chip of continuous size
    coordinates: dict[str, float]

    def as_dict(self) -> dict[str, int | float | None]:
        """Return ``stacks`` → their number and ``loss`` → relative loss, None for an infinite objective."""
        is_finite = math.isfinite(self.objective)
        return {"stacks": self.stacks, "loss": self.loss if is_finite else None}


def without_excess_stacks(problem: DescentProblem, trace: Trace) -> Trace:
    """Return the trace without stacks that find no room; unchanged where stacks are no variable."""
    if STACKS not in problem.hardware.bounds:
        return trace
    fewest_stacks, _ = problem.hardware.bounds[STACKS]
    stacks = max(_stacks_with_room(problem.hardware, problem.inner.grid.base, trace.coordinates), fewest_stacks)
    return dataclasses.replace(trace, coordinates=trace.coordinates | {STACKS: math.log(stacks)})


def _stacks_with_room(hardware: Hardware, base: Design, coordinates: Mapping[str, Any]) -> float:
    """Return the number of memory stacks, a fraction too, that find room on the chip at a point."""
    leaves = {path: float(value) for path, value in hardware.leaves(dict(coordinates)).items()}
    chip = replace(base, hardware.fixed | leaves).system.accelerator.chip
    assert chip is not None  # stacks are those of a generated chip
    return float(memory_units(chip))


def integer_stack_chips(problem: DescentProblem, trace: Trace) -> list[IntegerStackChip]:
    """Return the best chip with its stacks rounded down and up, those within the bounds: none to two.

    Everything else stays, but a die that cannot be paid with one more stack shrinks, and other shares of the area give
    the PHYs of a whole stack room.
    """
    stacks = math.exp(trace.coordinates[STACKS])
    low, high = problem.hardware.bounds[STACKS]
    counts = {math.floor(stacks * (1.0 + _ROUNDING)), math.ceil(stacks * (1.0 - _ROUNDING))}
    return [_with_stacks(problem, trace, count) for count in sorted(counts) if low <= count <= high]


def _with_stacks(problem: DescentProblem, trace: Trace, count: int) -> IntegerStackChip:
    """Return the chip with ``count`` stacks within bounds and budget; its objective is inf where it cannot be."""
    bounds = {path: ends for path, ends in problem.hardware.bounds.items() if path != STACKS}
    fixed = problem.hardware.fixed | {STACKS: float(count)}
    hardware = dataclasses.replace(problem.hardware, bounds=bounds, fixed=fixed)
    start: Coordinates = {**trace.coordinates, STACKS: math.log(count)}
    coordinates = {path: float(value) for path, value in hardware.project(start).items()}
    coordinates = _with_room(hardware, problem.inner.grid.base, coordinates, count)
    is_affordable = hardware.priced_accelerator is None or float(hardware.cost(coordinates)) <= hardware.budget * (
        1.0 + _ROUNDING
    )
    fits = _stacks_with_room(hardware, problem.inner.grid.base, coordinates) >= count * (1.0 - _ROUNDING)
    objective = objective_at(problem, coordinates) if is_affordable and fits else math.inf
    return IntegerStackChip(count, objective, objective / trace.best - 1.0, coordinates)


def _with_room(hardware: Hardware, base: Design, coordinates: Mapping[str, float], count: int) -> dict[str, float]:
    """Return coordinates whose share of memory area holds ``count`` stacks, at the cost of the other shares."""
    adjusted = dict(coordinates)
    for simplex, total in zip(hardware.simplices, hardware.totals, strict=True):
        if MEMORY_AREA in simplex:
            share = float(hardware.leaves(dict(coordinates))[MEMORY_AREA]) / total
            target_share = share * max(count / _stacks_with_room(hardware, base, coordinates), 1.0) * (1.0 + _ROUNDING)
            if share < target_share < 1.0:
                adjusted[MEMORY_AREA] += math.log(target_share * (1.0 - share) / (share * (1.0 - target_share)))
    return adjusted


def with_best_variant(trace: Trace, variants: list[IntegerStackChip]) -> Trace:
    """Return the trace with the best chip of ``variants``, or unchanged where none of them can be built.

    Args:
        trace: of the descent.
        variants: chips with whole numbers of stacks.
    """
    best_chip = min(variants, key=lambda chip: chip.objective, default=None)
    if best_chip is None or not math.isfinite(best_chip.objective):
        return trace
    return dataclasses.replace(trace, coordinates=best_chip.coordinates, best=best_chip.objective)
