"""Methods on a space with continuous axes, which has no exact optimum: beside the best that any of them found."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any

import jax
import numpy as np

from dse.accuracy.markdown import percent, table
from dse.errors import InputError
from dse.search import problem, suite
from dse.search.driver import Driver, HostDriver, driver, release
from dse.search.polish import polish
from dse.search.suite.measure import Clock, Effort, methods_for_one
from dse.search.suite.reading import restored

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
    weights = np.asarray(one.weights)
    ends = [polish(one.problem, jax.tree.map(lambda a, i=i: a[i], one.best), weights[i]).best for i in range(seeds)]
    polished = _values([end.value for end in ends], [end.evaluation.violation for end in ends])
    return {"best": best, "polished": polished, "rate": clock.rate(one.batch, seeds)}


def _values(value: Any, violation: Any) -> list[float | None]:
    pairs = zip(np.asarray(value, float), np.asarray(violation), strict=True)
    return [float(f"{v:.6g}") if excess <= 0.0 else None for v, excess in pairs]


def section(found: dict[str, Any]) -> str:
    """The figures as Markdown."""
    methods = found["methods"]
    numbers = {
        method: {mark: restored(values) for mark, values in (*each["best"].items(), ("polished", each["polished"]))}
        for method, each in methods.items()
    }
    least = min(values.min() for each in numbers.values() for values in each.values())
    marks = list(next(iter(methods.values()))["best"])
    rows = [
        [
            method.replace("_", " "), *(_gap(np.median(each[mark]), least) for mark in (*marks, "polished")),
            percent(float(np.mean(each["polished"] <= 1.01 * least)), digits=0), f"{methods[method]['rate']:,.0f}",
        ]
        for method, each in numbers.items()
    ]  # fmt: skip
    header = ["method", *(f"at {int(mark):,}" for mark in marks), "polished", "within 1 %", "rate, 1/s"]
    return (
        f"`{found['specification']}`: {found['title']}. No optimum is known; gaps of the median seed are to the best "
        f"that any seed of any method found, {least:.5g}. *Polished*: from the best after {int(marks[-1]):,} "
        "evaluations.\n\n" + table(header, rows)
    )


def _gap(value: float, least: float) -> str:
    return f"{100.0 * (value / least - 1.0):.3g} %" if math.isfinite(value) else "∞"
