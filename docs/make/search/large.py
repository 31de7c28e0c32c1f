"""The section on spaces that nobody can list: methods beside the best that any of them found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.search.reading import restored
from docs.make.markdown import filed, table

#: Evaluations whose gaps stand on the page.
_SHOWN = ("1000", "5000", "20000")


def section(found: list[dict[str, Any]]) -> str:
    """The figures as Markdown: median gaps on the page, all of them in a file."""
    every = [one for space in found for one in space["methods"].values()]
    marks = max((list(one["best"]) for one in every), key=len)
    short, lines = [], []
    for space in found:
        name = space["specification"].rsplit("/", 1)[-1].removesuffix(".toml")
        gaps = _gaps(space["methods"])
        for method, one in space["methods"].items():
            own, seconds = gaps[method], one["seconds"]
            reached = [mark for mark in seconds if np.median(own[mark]) <= 0.01]
            to_1 = f"{seconds[reached[0]]:.2g} s" if reached else "–"
            medians, worst = (_text(own, mark, np.median) for mark in _SHOWN), _text(own, _SHOWN[-1], np.max)
            short.append([f"`{name}`", method, *medians, worst, to_1])
            all_medians = (_text(own, mark, np.median) for mark in (*marks, "polished"))
            lines.append([name, method, *all_medians, f"{one['rate']:,.0f}"])
    header = [
        "space",
        "method",
        *(f"at {int(mark):,}" for mark in _SHOWN),
        "worst seed at 20,000",
        "median at 1 % after",
    ]
    sizes = "; ".join(_size(space) for space in found)
    long_header = ["space", "method", *(f"at {int(mark):,}" for mark in marks), "polished", "rate, 1/s"]
    return (
        f"No optimum is known; gaps are of the median seed, to the best that any seed of any method found. {sizes}. "
        "Methods without slopes went on to 100,000 evaluations of a seed.\n\n"
        + table(header, short, words=("space", "method"))
        + "\n\nAll marks, *polished* from the best after 5,000 evaluations: "
        + filed("search_large", long_header, lines)
    )


def _gaps(methods: dict[str, Any]) -> dict[str, dict[str, np.ndarray]]:
    """By method and mark, polished too: the gap of each seed to the best of all."""
    values = {
        method: {mark: restored(best) for mark, best in (*one["best"].items(), ("polished", one["polished"]))}
        for method, one in methods.items()
    }
    least = min(value.min() for by_mark in values.values() for value in by_mark.values())
    return {
        method: {mark: (value - least) / abs(least) for mark, value in by_mark.items()}
        for method, by_mark in values.items()
    }


def _text(gaps: dict[str, np.ndarray], mark: str, statistic: Callable[[np.ndarray], Any]) -> str:
    """A statistic of the seeds at a mark, a dash for one that the method was not measured at."""
    return _gap(float(statistic(gaps[mark]))) if mark in gaps else "–"


def _size(space: dict[str, Any]) -> str:
    """Return a space's size as a text: ``1.2e15 designs``, with its continuous axes."""
    axes = f" times {space['continuous']} continuous axes" if space["continuous"] else ""
    return f"`{space['specification']}`: {space['title']} ({space['designs']:.2g} designs{axes})"


def _gap(value: float) -> str:
    return f"{100.0 * value:.3g} %" if math.isfinite(value) else "∞"
