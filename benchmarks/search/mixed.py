"""Methods on a space with continuous axes, which has no exact optimum: beside the best that any of them found."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import suite
from benchmarks.search.measure import Clock, Effort, methods_for_one
from dse.errors import InputError
from dse.optimizers import problem
from dse.optimizers.driver import Driver, HostDriver, driver, release
from dse.optimizers.judging import weights_of
from dse.optimizers.polish import polish

SPECIFICATION = Path("sweeps/search_gpt3_chip_energy.toml")

#: Evaluations of a seed at which the best so far is kept.
MARKS = (500, 1_000, 2_000, 5_000)


def measured(effort: Effort) -> dict[str, Any]:
    """By method and mark: the best of each seed so far, infinite (None) where nothing feasible was met."""
    chosen = methods_for_one()
    text = SPECIFICATION.read_text(encoding="utf-8").partition("[search]")[0]
    spec = suite.with_methods(text, SPECIFICATION, chosen, effort.seeds)
    task = problem.build(spec)
    marks = [mark for mark in MARKS if mark <= effort.evaluations]
    found = {}
    for method in chosen:
        with contextlib.suppress(InputError):  # its library is missing
            found[method] = _one(driver(task, method), marks, effort.seeds)
        release()
    return {"specification": str(SPECIFICATION), "title": spec.sweep.title, "methods": found}


def _one(one: Driver | HostDriver, marks: list[int], seeds: int) -> dict[str, Any]:
    clock, best = Clock(), {}
    for mark in marks:
        for _ in clock.chunks(one, max(1, mark // one.batch)):
            pass
        best[mark] = _values(one.best.value, one.best.evaluation.violation)
    ends = polish(one.problem, one.best, weights_of(one.problem.spec.seeds, one.problem.n_objectives)).best
    polished = _values(ends.value, ends.evaluation.violation)
    return {"best": best, "polished": polished, "rate": clock.rate(one.batch, seeds)}


def _values(value: Any, violation: Any) -> list[float | None]:
    pairs = zip(np.asarray(value, float), np.asarray(violation), strict=True)
    return [float(f"{v:.6g}") if excess <= 0.0 else None for v, excess in pairs]
