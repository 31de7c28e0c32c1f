"""The kept designs of a sweep as labelled variables: NumPy arrays with dimensions, units and long names.

The overview of all designs, kept or not, has dimensions of its own, in a separate group:
:func:`dse.sweep.results.files.overview`.

Needs neither xarray nor netCDF: :mod:`dse.sweep.results.writing` writes the variables to a file,
:mod:`dse.sweep.results.files` converts them to an xarray dataset.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dse.doors.study import Study
from dse.spec.output import Keep
from dse.spec.sweep import Objective
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.reduce.keep import Part
from dse.sweep.reduce.overview import axes_of
from dse.sweep.results.files import Labelled, Variable
from dse.sweep.results.labels import BOOLEAN, coordinate, labels, part_labels
from dse.sweep.results.layout import NO_DESIGN
from dse.sweep.results.work import work_coordinates

#: (grid, indices of designs) → name of a variable → its values, units and long name.
Judge = Callable[[Grid, np.ndarray], Mapping[str, tuple[np.ndarray, dict[str, str]]]]


def build(grid: Grid, keep: Keep, part: Part, attributes: dict[str, Any], judge: Judge | None = None) -> Labelled:
    """The results of a sweep: every variable with units and long name; ``judge``: further ones of ``top:K``."""
    layout = {"all": _whole, "best": _best}.get(keep.mode, single_designs)
    found = layout(grid, part)
    fixed = {variable_name(axis): coordinate((), axis, labels(axis)[0]) for axis in grid.fixed}
    summary = overview(grid, part)
    if judge and keep.mode == "top":
        further = judge(grid, part.index).items()
        found.data.update({name: Variable(("design",), values, about) for name, (values, about) in further})
    return dataclasses.replace(found, coords=fixed | found.coords, attrs=attributes, overview=summary)


def _whole(grid: Grid, part: Part) -> Labelled:
    """Results along the dimensions of the sweep and ``mapping``."""
    levels = {
        variable_name(axis): coordinate(("mapping",), axis, part_labels(axis, grid.mapping_values(axis)))
        for axis in grid.mapping_axes
    }
    dims = (*(dimension.name for dimension in grid.dimensions), "mapping")
    shape = (*grid.shape, grid.table.n_mappings)
    data = {
        name: Variable(dims, _placed(grid, part, values).reshape(shape), attrs)
        for name, values, attrs in _metrics(grid, part)
    }
    return Labelled(data, _dimension_coordinates(grid) | work_coordinates(grid) | levels)


def _placed(grid: Grid, part: Part, values: np.ndarray) -> np.ndarray:
    """Values of all designs at every place of the product of axes; missing, with a reason, where there is no design."""
    if not grid.members:
        return values
    none = {"b": False, "i": grid.spec.study.feasible_bit}.get(values.dtype.kind, np.nan)
    whole = np.full(grid.n_indices, none, values.dtype)
    whole[part.index] = values
    return whole


def single_designs(grid: Grid, part: Part) -> Labelled:
    """Results along ``design`` with every axis as a coordinate, best first if designs are ranked."""
    along = ("design",)
    digits, _ = grid.locate(part.index)
    mapping = part.index % grid.table.n_mappings
    number = {"units": "1", "long_name": "index of the design in the sweep"}
    coordinates = {"index": Variable(along, part.index, number)}
    for position, dimension in enumerate(grid.dimensions):
        for axis in dimension.axes:
            coordinates[variable_name(axis)] = coordinate(along, axis, labels(axis)[digits[position]])
    for axis in grid.mapping_axes:
        parts = part_labels(axis, grid.mapping_values(axis, mapping))
        coordinates[variable_name(axis)] = coordinate(along, axis, parts)
    coordinates |= work_coordinates(grid, digits)
    data = {name: Variable(along, values, attrs) for name, values, attrs in _metrics(grid, part)}
    return Labelled(data, coordinates)


def _best(grid: Grid, part: Part) -> Labelled:
    """The best mapping of each point: metrics and parts of the mapping, missing if no design is feasible."""
    dims = tuple(dimension.name for dimension in grid.dimensions)
    point, mapping = np.divmod(part.index, grid.table.n_mappings)

    def spread(values: np.ndarray, missing: Any) -> np.ndarray:
        whole = np.full(grid.n_points, missing, np.result_type(values))
        whole[point] = values
        return whole.reshape(grid.shape)

    data: dict[str, Variable] = {}
    for name, values, attrs in _metrics(grid, part):
        if name != "infeasible_reason":  # each mapping of the point has its own
            data[name] = Variable(dims, spread(values, False if values.dtype == bool else np.nan), attrs)
    for axis in grid.mapping_axes:
        parts = part_labels(axis, grid.mapping_values(axis, mapping))
        missing = "" if parts.dtype.kind == "U" else 0
        data[variable_name(axis)] = coordinate(dims, axis, spread(parts, missing))
    return Labelled(data, _dimension_coordinates(grid) | work_coordinates(grid))


# --- pieces -----------------------------------------------------------------------------------------------


def _metrics(grid: Grid, part: Part) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    """(name, values, attributes) of every metric; missing for designs that cannot form a step."""
    study, named = grid.spec.study, dict(zip(grid.spec.metrics, part.values, strict=True))
    no_step = _without_step(named, study)
    if no_step.any():
        left_out = {name for name in named if not study.holds_without_step(name)}
        named |= {name: np.where(no_step, np.float32(np.nan), named[name]) for name in left_out}
    found = {name: described(name, row, study) for name, row in named.items()}
    if grid.members and "infeasible_reason" in found:
        found["infeasible_reason"][1].update(_reason_flags(study, {NO_DESIGN: study.feasible_bit}))
    return [(name, *about) for name, about in found.items()]


def _without_step(named: dict[str, np.ndarray], study: Study) -> np.ndarray:
    """[design] whether the design cannot form a step; False in results without reasons."""
    if "infeasible_reason" not in named:
        return np.zeros((), bool)
    return (named["infeasible_reason"].astype(np.int32) & study.no_step_bits) != 0


def described(name: str, values: np.ndarray, study: Study) -> tuple[np.ndarray, dict[str, Any]]:
    """Values of a metric in the type of results, and its attributes."""
    attrs = {"units": study.units[name], "long_name": study.long_names[name]}
    if name == "feasible":
        return values != 0, attrs | BOOLEAN
    if name == "infeasible_reason":
        return values.astype(np.int32), attrs | _reason_flags(study)
    return values, attrs


def _reason_flags(study: Study, others: Mapping[str, int] = MappingProxyType({})) -> dict[str, Any]:
    """CF flags of ``infeasible_reason``: the model's bits, the constraints, and others."""
    bits = study.reason_bits | dict(others)
    meanings = study.reason_meanings | dict.fromkeys(others, "no design: it has not all of these parts of a mapping")
    return {
        "flag_masks": np.array([*bits.values()], np.int32),
        "flag_meanings": " ".join(bits),
        "comment": "; ".join(f"{name}: {text}" for name, text in meanings.items()),
    }


def _dimension_coordinates(grid: Grid) -> dict[str, Variable]:
    return {
        variable_name(axis): coordinate((dimension.name,), axis, labels(axis))
        for dimension in grid.dimensions
        for axis in dimension.axes
    }


# --- overview ---------------------------------------------------------------------------------------------


def overview(grid: Grid, part: Part) -> Labelled:
    """Of all designs: ``best_<objective>_by_<axis>`` along ``by_<axis>``, ``count_by_<objective>`` along ``bin``."""
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
