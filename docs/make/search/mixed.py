"""The section on continuous axes: methods beside the best that any of them found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.search.reading import restored
from docs.make.markdown import filed, percent


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
            method.replace("_", " "),
            *(_gap(np.median(each[mark]), least) for mark in (*marks, "polished")),
            percent(float(np.mean(each["polished"] <= 1.01 * least)), digits=0),
            f"{methods[method]['rate']:,.0f}",
        ]
        for method, each in numbers.items()
    ]
    header = ["method", *(f"at {int(mark):,}" for mark in marks), "polished", "within 1 %", "rate, 1/s"]
    return (
        f"`{found['specification']}`: {found['title']}. No optimum is known; gaps of the median seed are to the best "
        f"that any seed of any method found, {least:.5g}. *Polished*: from the best after {int(marks[-1]):,} "
        "evaluations. " + filed("search_continuous", header, rows)
    )


def _gap(value: float, least: float) -> str:
    return f"{100.0 * (value / least - 1.0):.3g} %" if math.isfinite(value) else "∞"
