"""Memory stacks of a chip that find room, in whole numbers: a continuous size rounded down and up."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from dse.designs.leaves import replace
from dse.model.machine.technology import memory_units
from dse.optimizers.codesign.descent import DescentProblem, Trace, objective_at
from dse.optimizers.codesign.hardware import MEMORY_AREA, STACKS, Coordinates, Hardware
from dse.types import Design

#: A chip may cost so much more than its budget, relative, by rounding.
_ROUNDING = 1e-5


class Whole(NamedTuple):
    """A chip with a whole number of stacks, and what that costs."""

    stacks: int
    objective: float  #: made small, infinite where a workload has no mapping or the chip cannot be built or paid
    loss: float  #: relative to the chip of continuous size
    coordinates: dict[str, float]

    def as_dict(self) -> dict[str, float | None]:
        """What a report says of it; an objective that is none is None."""
        known = math.isfinite(self.objective)
        return {"stacks": self.stacks, "loss": self.loss if known else None}


def roomy(problem: DescentProblem, trace: Trace) -> Trace:
    """The same chip without the stacks that find no room, which are neither built nor paid."""
    if STACKS not in problem.hardware.bounds:
        return trace
    least, _ = problem.hardware.bounds[STACKS]
    built = max(_built(problem.hardware, problem.inner.grid.base, trace.coordinates), least)
    return dataclasses.replace(trace, coordinates=trace.coordinates | {STACKS: math.log(built)})


def _built(hardware: Hardware, base: Design, at: Mapping[str, Any]) -> float:
    """Stacks of a chip that find room."""
    leaves = {path: float(value) for path, value in hardware.leaves(dict(at)).items()}
    chip = replace(base, hardware.fixed | leaves).system.accelerator.chip
    assert chip is not None  # stacks are those of a generated chip
    return float(memory_units(chip))


def rounded(problem: DescentProblem, trace: Trace) -> list[Whole]:
    """The best chip that a search met with its stacks rounded down and up, where bounds allow it.

    Everything else stays, but a die that cannot be paid with one more stack shrinks, and other shares of the area give
    the PHYs of a whole stack room.
    """
    stacks = math.exp(trace.coordinates[STACKS])
    low, high = problem.hardware.bounds[STACKS]
    wanted = {math.floor(stacks * (1.0 + _ROUNDING)), math.ceil(stacks * (1.0 - _ROUNDING))}
    return [_with(problem, trace, count) for count in sorted(wanted) if low <= count <= high]


def _with(problem: DescentProblem, trace: Trace, count: int) -> Whole:
    bounds = {path: ends for path, ends in problem.hardware.bounds.items() if path != STACKS}
    fixed = problem.hardware.fixed | {STACKS: float(count)}
    hardware = dataclasses.replace(problem.hardware, bounds=bounds, fixed=fixed)
    start: Coordinates = {**trace.coordinates, STACKS: math.log(count)}
    at = {path: float(value) for path, value in hardware.project(start).items()}
    at = _with_room(hardware, problem.inner.grid.base, at, count)
    paid = hardware.priced is None or float(hardware.cost(at)) <= hardware.budget * (1.0 + _ROUNDING)
    fits = _built(hardware, problem.inner.grid.base, at) >= count * (1.0 - _ROUNDING)
    met = objective_at(problem, at) if paid and fits else math.inf
    return Whole(count, met, met / trace.best - 1.0, at)


def _with_room(hardware: Hardware, base: Design, at: Mapping[str, float], count: int) -> dict[str, float]:
    """The chip with the area share of a number of memory stacks, at the cost of the other shares."""
    found = dict(at)
    for simplex, total in zip(hardware.simplices, hardware.totals, strict=True):
        if MEMORY_AREA in simplex:
            share = float(hardware.leaves(dict(at))[MEMORY_AREA]) / total
            wanted = share * max(count / _built(hardware, base, at), 1.0) * (1.0 + _ROUNDING)
            if share < wanted < 1.0:
                found[MEMORY_AREA] += math.log(wanted * (1.0 - share) / (share * (1.0 - wanted)))
    return found


def better(trace: Trace, tried: list[Whole]) -> Trace:
    """The search with its best chip taken from those tried; as it is where none of them can be built."""
    least = min(tried, key=lambda one: one.objective, default=None)
    if least is None or not math.isfinite(least.objective):
        return trace
    return dataclasses.replace(trace, coordinates=least.coordinates, best=least.objective)
