"""The overview of all designs, kept or not: best values along every axis, and histograms.

It has dimensions of its own, in a separate group: :func:`dse.sweep.results.files.overview`.
"""

from __future__ import annotations

import re

import numpy as np

from dse.spec.sweep import Objective
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.reduce.keep import Part
from dse.sweep.reduce.minima import axes_of
from dse.sweep.results.files import Labelled, Variable
from dse.sweep.results.labels import coordinate, labels, part_labels


def build(grid: Grid, part: Part) -> Labelled:
    """``best_<objective>_by_<axis>`` along ``by_<axis>``, and ``count_by_<objective>`` along ``bin``."""
    found = _best_by_axis(grid, part.least) | (_histograms(grid, part) if part.edges.size else {})
    along = {name: variable for name, variable in found.items() if name in variable.dims}
    return Labelled({name: variable for name, variable in found.items() if name not in along}, along)


def objective_names(objectives: tuple[Objective, ...]) -> list[str]:
    """Names of the objectives in variables: the text without invalid characters; all distinct."""
    found: list[str] = []
    for objective in objectives:
        name = re.sub(r"\W+", "_", objective.expression.text).strip("_")
        found.append(name if name not in found else f"{name}_{len(found) + 1}")
    return found


def _best_by_axis(grid: Grid, least: np.ndarray) -> dict[str, Variable]:
    """The best value of every objective at every position of every axis."""
    found: dict[str, Variable] = {}
    axes = axes_of(grid)
    pieces = np.split(least, np.cumsum([len(values) for _, values in axes])[:-1], axis=1)
    for i, ((axis, values), piece) in enumerate(zip(axes, pieces, strict=True)):
        along = f"by_{variable_name(axis)}"
        names = labels(axis) if i < len(grid.dimensions) else part_labels(axis, values)
        found[along] = coordinate((along,), axis, names)
        objectives = grid.spec.objectives
        for name, objective, row in zip(objective_names(objectives), objectives, piece, strict=True):
            best = np.where(np.isfinite(row), np.float32(objective.sign) * row, np.float32(np.nan))
            which = "least" if objective.sign > 0 else "largest"
            about = f"{which} {objective.expression.text} of the feasible designs by {axis.name}, missing where none is"
            attrs = {"units": objective.expression.units, "long_name": about}
            found[f"best_{name}_{along}"] = Variable((along,), best, attrs)
    return found


def _histograms(grid: Grid, part: Part) -> dict[str, Variable]:
    """Numbers of feasible designs by bin of every objective, with the edges of the bins."""
    found: dict[str, Variable] = {}
    objectives = grid.spec.objectives
    rows = zip(objective_names(objectives), objectives, part.edges, part.histogram, strict=True)
    for name, objective, edges, counts in rows:
        text, along = objective.expression.text, ("bin",)
        about = f"feasible designs by {text}; the first and the last bin also hold what lies beyond"
        found[f"count_by_{name}"] = Variable(along, counts, {"units": "1", "long_name": about})
        for word, values, bound in (("from", edges[:-1], "least"), ("to", edges[1:], "just above the largest")):
            attrs = {"units": objective.expression.units, "long_name": f"{bound} {text} of a bin"}
            found[f"bin_of_{name}_{word}"] = Variable(along, values, attrs)
    return found
