"""How good co-design is: against random hardware and finite differences at equal evaluations, and a dense grid.

``python -m benchmarks.search.codesign docs/codesign.json`` measures (some minutes).
"""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dse.designs import leaf, short_name
from dse.designs.records import CHIP
from dse.optimizers import SearchOptions, perform, plan
from dse.optimizers.codesign import descent as codesign
from dse.optimizers.codesign.descent import DescentProblem, Points, Slopes, Trace
from dse.optimizers.codesign.hardware import Hardware
from dse.optimizers.codesign.inner import GRADIENT_COST

SPECIFICATION = Path("sweeps/codesign_gpu.toml")

#: Step of the finite differences, in logarithms of leaves and shares.
_DIFFERENCE = 0.01

#: Points of the dense grid along each of its variables.
_GRID = 21

#: Shares of the cores in the power of cores and memory that the grid spans.
_SPLIT = (0.6, 0.95)


def measure(path: str | Path = SPECIFICATION, seeds: int = 5) -> dict[str, Any]:
    """All figures: the design that is found, the comparisons by seed, and the grid."""
    task = plan(path)
    _, found = perform(task, SearchOptions(output=False))
    problem = task.descent
    assert problem is not None and found.chip is not None
    inner = problem.inner
    a_gradient = 1.0 + GRADIENT_COST * problem.schedule.k * inner.grid.n_points / inner.evaluations_per_point
    return {
        "specification": str(path),
        "report": {"title": task.spec.sweep.title, "objective": found.objectives[0]} | dataclasses.asdict(found.chip),
        "dimensions": problem.hardware.dimensions,
        "mappings": inner.evaluations_per_point,
        "starts": problem.schedule.starts,
        "steps": problem.schedule.steps,
        "minima_a_gradient": {"envelope": a_gradient, "differences": 1.0 + len(problem.hardware.names)},
        "methods": compared(problem, seeds),
        "grid": beside_grid(problem),
    }


def compared(problem: DescentProblem, seeds: int) -> list[dict[str, Any]]:
    """By method: the objective found by each seed, with no more evaluations of the model than co-design takes."""
    schedule, inner = problem.schedule, problem.inner
    by_difference = 1 + len(problem.hardware.names)
    budget = 0

    def searched(seed: int, starts: int, steps: int, slopes: Slopes = codesign.gradient) -> Trace:
        own = schedule.model_copy(update={"seed": seed, "starts": starts, "steps": steps})
        return codesign.search(problem._replace(schedule=own), slopes=slopes)

    def random(seed: int) -> Trace:
        return random_points(problem, budget // inner.evaluations_per_point, 1000 + seed)

    one_start = min(schedule.steps, schedule.starts * schedule.steps // by_difference)
    methods = {
        "co-design": lambda seed: searched(seed, schedule.starts, schedule.steps),
        "random hardware": random,
        "finite differences, all starts": lambda seed: searched(
            seed, schedule.starts, schedule.steps // by_difference, differences(_DIFFERENCE)
        ),
        "finite differences, one start": lambda seed: searched(seed, 1, one_start, differences(_DIFFERENCE)),
    }
    rows = []
    for name, method in methods.items():
        best, seconds, spent = [], [], []
        for seed in range(seeds):
            began = time.perf_counter()
            trace = method(seed)
            seconds.append(time.perf_counter() - began)
            best.append(trace.best)
            spent.append(int(trace.evaluations[-1]))
        budget = budget or max(spent)
        found = [value if math.isfinite(value) else None for value in best]  # JSON has no infinity
        rows.append({"method": name, "best": found, "evaluations": max(spent), "seconds": statistics.median(seconds)})
    return rows


def differences(step: float) -> Slopes:
    """One-sided finite differences of the exact objective, by steps in coordinates, in place of its gradient."""
    return lambda problem, at, temperature, stiffness: _differences(problem, at, step)


def _differences(problem: DescentProblem, coordinates: Points, step: float) -> tuple[Points, np.ndarray]:
    """One-sided finite differences of the exact objective: an inner minimum a coordinate, and one more."""
    names, count = problem.hardware.names, len(next(iter(coordinates.values())))
    moved = {
        path: np.concatenate([values, *(values + values.dtype.type(step * (path == other)) for other in names)])
        for path, values in coordinates.items()
    }
    met = np.log(codesign.objective(problem, moved)[0]).reshape(1 + len(names), count)
    known = np.isfinite(met)
    met = np.where(known, met, 0.0)
    slope = {
        path: np.where(known[0] & known[i], (met[i] - met[0]) / step, 0.0).astype(coordinates[path].dtype)
        for i, path in enumerate(names, start=1)
    }
    exact = np.where(known[0], np.exp(met[0]), np.inf)
    return slope, exact


def random_points(problem: DescentProblem, count: int, seed: int) -> Trace:
    """The exact objective of random hardware within the budgets."""
    return evaluated(problem, problem.hardware.random(seed, count))


def evaluated(problem: DescentProblem, points: Points) -> Trace:
    """The exact objective of given points, a batch of starts at a time."""
    began = problem.inner.evaluations
    met = np.exp(codesign.exact_logarithms(problem, codesign.leaves(problem.hardware, points)))
    place = int(met.argmin())
    best_at = {path: float(values[place]) for path, values in points.items()}
    spent = np.array([problem.inner.evaluations - began])
    return Trace(met[None, :], spent, best_at, float(met[place]), {p: values[None, :] for p, values in points.items()})


def beside_grid(problem: DescentProblem) -> dict[str, Any]:
    """Co-design over three degrees of freedom beside every point of a dense grid over them.

    Die area, the cores' share of it and the split of power between cores and memory; stacks take what money the die
    leaves. Everything else is as the architecture has it.
    """
    inner, whole = problem.inner, problem.hardware
    paths = [f"{CHIP}.{name}" for name in ("die_area", "stacks", "core_area")]
    split = (f"{CHIP}.core_power", f"{CHIP}.memory_power")
    total = sum(float(leaf(inner.grid.base, path)) for path in split)
    hardware = dataclasses.replace(
        whole, simplices=(split,), totals=(total,), bounds={path: whole.bounds[path] for path in paths}
    )
    small = problem._replace(hardware=hardware)
    found = codesign.search(small)
    coarse = evaluated(small, _grid(hardware, {}))
    fine = evaluated(small, _grid(hardware, coarse.coordinates))
    return {
        "variables": [short_name(path) for path in (*paths, *split)],
        "co-design": found.best,
        "co-design evaluations": int(found.evaluations[-1]),
        "grid": coarse.best,
        "grid evaluations": int(coarse.evaluations[-1]),
        "grid points": coarse.objective.size,
        "fine grid": fine.best,
        "fine grid evaluations": int(fine.evaluations[-1]),
        "co-design at": _stated(hardware, found),
        "grid at": _stated(hardware, fine if fine.best < coarse.best else coarse),
        "active": hardware.active_limits(found.coordinates),
    }


def _stated(hardware: Hardware, trace: Trace) -> dict[str, float]:
    at = {path: np.array([value], np.float32) for path, value in trace.coordinates.items()}
    return {short_name(path): float(value[0]) for path, value in codesign.leaves(hardware, at).items()}


def _grid(hardware: Hardware, around: dict[str, float]) -> dict[str, np.ndarray]:
    """Coordinates of all points whose die leaves money for the least stacks: even steps of every variable.

    The steps are over the whole range, or within one such step of a point.
    """
    area_path, stacks_path, cores_path = hardware.bounds
    (split,), (total,) = hardware.simplices, hardware.totals
    ranges = {area_path: hardware.bounds[area_path], cores_path: hardware.bounds[cores_path], split[0]: _SPLIT}
    axes = []
    for path, (low, high) in ranges.items():
        if around:
            middle, step = math.exp(around[path]) / (total if path == split[0] else 1.0), (high - low) / (_GRID - 1)
            low, high = max(low, middle - step), min(high, middle + step)
        axes.append(np.linspace(low, high, _GRID))
    area, cores, share = (axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij"))
    stacks = _payable(hardware, area_path, stacks_path, area)
    paid = stacks >= hardware.bounds[stacks_path][0]
    values = {
        area_path: area,
        stacks_path: stacks,
        cores_path: cores,
        split[0]: share * total,
        split[1]: (1.0 - share) * total,
    }
    return {path: np.log(values[path][paid]).astype(np.float32) for path in hardware.names}


def _payable(hardware: Hardware, area_path: str, stacks_path: str, area: np.ndarray) -> np.ndarray:
    """The most stacks that the budget pays beside dies of these areas, by bisection; 0 where it pays not the least."""
    cost = jax.jit(jax.vmap(lambda a, s: hardware.cost({area_path: jnp.log(a), stacks_path: jnp.log(s)})))
    least, most = hardware.bounds[stacks_path]
    low, high = np.full_like(area, least), np.full_like(area, most)
    for _ in range(40):
        middle = 0.5 * (low + high)
        fits = np.asarray(cost(area, middle)) <= hardware.budget
        low, high = np.where(fits, middle, low), np.where(fits, high, middle)
    return np.where(np.asarray(cost(area, low)) <= hardware.budget, low, 0.0)


if __name__ == "__main__":
    found = measure()
    assert math.isfinite(found["report"]["value"])
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
