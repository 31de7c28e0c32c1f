"""The section on spaces that nobody can list: methods beside the best that any of them found."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from benchmarks.search.reading import restored
from docs.make.markdown import filed, table

#: Evaluations whose gaps stand on the page.
_SHOWN = ("1000", "5000", "20000")


def section(found: list[dict[str, Any]]) -> str:
    """The figures as Markdown: median gaps on the page, all of them in a file."""
    short, lines = [], []
    for space in found:
        methods = space["methods"]
        values = {
            method: {mark: restored(best) for mark, best in (*one["best"].items(), ("polished", one["polished"]))}
            for method, one in methods.items()
        }
        least = min(v.min() for of_method in values.values() for v in of_method.values())
        for method, of_method in values.items():
            seconds = methods[method]["seconds"]
            gaps = {mark: (value - least) / abs(least) for mark, value in of_method.items()}
            reached = [mark for mark in seconds if np.median(gaps[mark]) <= 0.01]
            to_1 = f"{seconds[reached[0]]:.2g} s" if reached else "–"
            worst = f"{_gap(gaps[_SHOWN[-1]].max())}" if _SHOWN[-1] in gaps else "–"
            medians = [_gap(float(np.median(gaps[mark]))) if mark in gaps else "–" for mark in _SHOWN]
            name = space["specification"].rsplit("/", 1)[-1].removesuffix(".toml")
            short.append([f"`{name}`", method, *medians, worst, to_1])
            every = [_gap(float(np.median(gap))) for gap in gaps.values()]
            lines.append([name, method, *every, f"{methods[method]['rate']:,.0f}"])
    header = [
        "space",
        "method",
        *(f"at {int(mark):,}" for mark in _SHOWN),
        "worst seed at 20,000",
        "median at 1 % after",
    ]
    marks = max((list(one["best"]) for space in found for one in space["methods"].values()), key=len)
    sizes = "; ".join(_size(space) for space in found)
    return (
        f"No optimum is known; gaps are of the median seed, to the best that any seed of any method found. {sizes}. "
        "Methods without slopes went on to 100,000 evaluations of a seed.\n\n"
        + table(header, short, words=("space", "method"))
        + "\n\nAll marks, *polished* from the best after 5,000 evaluations: "
        + filed(
            "search_large",
            ["space", "method", *(f"at {int(m):,}" for m in marks), "polished", "rate, 1/s"],
            _padded(lines, len(marks)),
        )
    )


def _size(space: dict[str, Any]) -> str:
    """Return a space's size as a text: ``1.2e15 designs``, with its continuous axes."""
    axes = f" times {space['continuous']} continuous axes" if space["continuous"] else ""
    return f"`{space['specification']}`: {space['title']} ({space['designs']:.2g} designs{axes})"


def _padded(lines: list[list[str]], n_marks: int) -> list[list[str]]:
    """Return lines whose marks end early with a dash for each later one."""
    width = 2 + n_marks + 2
    return [[*line[:-2], *["–"] * (width - len(line)), *line[-2:]] for line in lines]


def _gap(value: float) -> str:
    return f"{100.0 * value:.3g} %" if math.isfinite(value) else "∞"
