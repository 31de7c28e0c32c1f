"""A co-design with the way to it: what every start reached step by step, and random chips at equal evaluations.

``python -m benchmarks.search.trajectory docs/codesign_cost.json`` searches (a minute or two);
``notebooks/10_codesign_by_gradient.py`` draws it and checks it against the model as it is.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.codesign import random_points
from dse.designs import short_name
from dse.optimizers import plan
from dse.optimizers.codesign import chip, descent
from dse.optimizers.codesign.descent import DescentProblem, Points

SPECIFICATION = Path("sweeps/codesign_cost.toml")

#: Digits of the values that figures are drawn from.
_DIGITS = 6

#: Seed of the random chips.
_SEED = 1000


def digest(path: str | Path) -> str:
    """SHA-256 of what a specification says, comments aside: what the record was made from."""
    told = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def measure(path: str | Path = SPECIFICATION) -> dict[str, Any]:
    """The chip that is found, the objective after every step of every start, and the hardware along the way."""
    problem = plan(path).descent
    assert problem is not None
    trace = chip.without_excess_stacks(problem, descent.search(problem))
    tried = chip.integer_stack_chips(problem, trace)
    chosen = chip.with_best_variant(trace, tried) if problem.whole_stacks else trace
    sign = problem.inner.grid.spec.objectives[0].sign
    found = dataclasses.asdict(chip.solution(problem, trace).chip)
    best = int(trace.objective.min(axis=0).argmin())
    chips = int(trace.evaluations[-1]) // problem.inner.evaluations_per_point
    ends = _stated(problem, {name: values[-1] for name, values in trace.points.items()})
    way = _stated(problem, {name: values[:, best] for name, values in trace.points.items()})
    return {
        "specification": str(path),
        "digest": digest(path),
        "report": {name: found[name] for name in ("value", "hardware", "active", "workloads", "elasticities")},
        "design": _design(problem, chosen.coordinates),
        "evaluations": int(trace.evaluations[-1]),
        "reached": [_rounded(line) for line in trace.objective.T**sign],
        "best_start": best,
        "way": way,
        "ends": ends,
        "random": {"chips": chips, "best": random_points(problem, chips, _SEED).best ** sign},
        "whole_stacks": [one.as_dict() for one in tried],
    }


def _design(problem: DescentProblem, coordinates: dict[str, float]) -> dict[str, float]:
    """Full path → value of the chip, the first workload and its best mapping, all that is not in the base design."""
    points = {path: np.array([value], np.float32) for path, value in coordinates.items()}
    chip = {path: float(value[0]) for path, value in descent.leaves(problem.hardware, points).items()}
    (mapping, _), *_ = descent.best_mappings(problem, coordinates)
    return chip | problem.inner.values(0, mapping)


def _stated(problem: DescentProblem, points: Points) -> dict[str, list[float]]:
    return {short_name(path): _rounded(values) for path, values in descent.leaves(problem.hardware, points).items()}


def _rounded(values: np.ndarray) -> list[float]:
    return [float(f"{value:.{_DIGITS}g}") for value in values]


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(value)}" for name, value in measure().items())
    Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
