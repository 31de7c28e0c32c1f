"""Methods on spaces that nobody can list (continuous axes, or some 1e15 designs), beside the best that any found."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search import suite
from benchmarks.search.measure import Clock, Effort, methods_for_one
from dse.errors import InputError
from dse.optimizers import problem
from dse.optimizers.driver import Driver, HostDriver, driver, release, uses_slopes
from dse.optimizers.judging import weights_of
from dse.optimizers.polish import polish

#: Specifications; what they say of methods is not read.
SPECIFICATIONS = (
    Path("sweeps/search_gpt3_chip_energy.toml"),
    Path("sweeps/search_llama3_budget.toml"),
    suite.path("large_cluster_money"),
    suite.path("large_serving"),
)

#: Evaluations of a seed at which the best so far is kept; methods without slopes go on to ``LAST``.
MARKS, LAST = (500, 1_000, 2_000, 5_000, 10_000, 20_000), 100_000

#: Evaluations of a seed after which its best is polished too.
POLISH_AT = 5_000


def measured(effort: Effort) -> list[dict[str, Any]]:
    """By specification, method and mark: best of each seed so far (None where nothing feasible was met), seconds."""
    return [_space(path, effort) for path in SPECIFICATIONS]


def _space(path: Path, effort: Effort) -> dict[str, Any]:
    chosen = methods_for_one()
    text = path.read_text(encoding="utf-8").partition("[search]")[0]
    spec = suite.with_methods(text, path, chosen, effort.seeds)
    task = problem.build(spec)
    found = {}
    for method in chosen:
        with contextlib.suppress(InputError):  # its library is missing
            one = driver(task, method)
            goes_on = effort.evaluations >= MARKS[-1] and not uses_slopes(task, method)
            marks = [mark for mark in MARKS if mark <= effort.evaluations] + [LAST] * goes_on
            found[method] = _one(one, marks, effort.seeds)
        release()
    return {
        "specification": str(path.relative_to(Path.cwd()) if path.is_absolute() else path),
        "title": spec.sweep.title,
        "designs": task.space.n_designs,
        "continuous": len(task.space.paths),
        "sign": task.program.objectives[0].sign,
        "methods": found,
    }


def _one(one: Driver | HostDriver, marks: list[int], seeds: int) -> dict[str, Any]:
    clock, best, seconds, polished = Clock(), {}, {}, None
    for mark in marks:
        for _ in clock.chunks(one, max(1, mark // one.batch)):
            pass
        best[mark] = _values(one.best.value, one.best.evaluation.violation)
        seconds[mark] = round(clock.seconds, 3)
        if mark == min(POLISH_AT, marks[-1]):
            ends = polish(one.problem, one.best, weights_of(one.problem.spec.seeds, one.problem.n_objectives)).best
            polished = _values(ends.value, ends.evaluation.violation)
    return {"best": best, "seconds": seconds, "polished": polished, "rate": clock.rate(one.batch, seeds)}


def _values(value: Any, violation: Any) -> list[float | None]:
    pairs = zip(np.asarray(value, float), np.asarray(violation), strict=True)
    return [float(f"{v:.6g}") if excess <= 0.0 else None for v, excess in pairs]
