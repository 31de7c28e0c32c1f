"""The kept designs of a sweep as labelled variables: NumPy arrays with dimensions, units and long names.

The overview of all designs, kept or not, has dimensions of its own, in a separate group:
:func:`dse.sweep.results.files.overview`.

Needs neither xarray nor netCDF: :mod:`dse.sweep.results.writing` writes the variables to a file,
:mod:`dse.sweep.results.files` converts them to an xarray dataset.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from dse.doors import Study
from dse.spec import Objective
from dse.spec.output import Keep
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.reduce.keep import BlockResult
from dse.sweep.reduce.overview import axes_of
from dse.sweep.results.catalogue_numbers import grid_numbers
from dse.sweep.results.labelled import Labelled, Variable, numbers
from dse.sweep.results.labels import BOOLEAN, along, coordinate, labels, part_labels
from dse.sweep.results.layout import NO_DESIGN
from dse.sweep.results.work import work_coordinates

#: (grid, indices of designs) → name of a variable → its values, units and long name.
Judge = Callable[[Grid, np.ndarray], Mapping[str, tuple[np.ndarray, dict[str, str]]]]


def build(
    grid: Grid, keep: Keep, result: BlockResult, attributes: dict[str, Any], judge: Judge | None = None
) -> Labelled:
    """Return the results of a sweep: every variable with units and long name; ``judge``: further ones of ``top:K``."""
    layout = {"all": _all_designs, "best": _best_mappings}.get(keep.mode, single_designs)
    results = layout(grid, result)
    fixed = {variable_name(axis): coordinate((), axis, labels(axis)[0]) for axis in grid.fixed}
    summary = overview(grid, result)
    objectives = {name for objective in grid.spec.objectives for name in objective.expression.names}
    reducible = frozenset(grid.spec.metrics) - objectives - ({"feasible"} if keep.mode in ("all", "best") else set())
    if judge and keep.mode == "top":
        judged = judge(grid, result.index).items()
        results.data.update({name: Variable(("design",), values, about) for name, (values, about) in judged})
    return dataclasses.replace(
        results, coords=fixed | results.coords, attrs=attributes, overview=summary, reducible=reducible
    )


def _all_designs(grid: Grid, result: BlockResult) -> Labelled:
    """Return the results along the dimensions of the sweep and ``mapping``.

    Where there is no design a metric is NaN, False or the feasible bit.
    """
    levels = {
        variable_name(axis): coordinate(("mapping",), axis, part_labels(axis, grid.mapping_values(axis)))
        for axis in grid.mapping_axes
    }
    dims = (*(dimension.name for dimension in grid.dimensions), "mapping")
    shape = (*grid.shape, grid.table.n_mappings)

    def place(values: np.ndarray) -> np.ndarray:
        missing = {"b": False, "i": grid.spec.study.feasible_bit}.get(values.dtype.kind, np.nan)
        return _placed(values, result.index, shape, missing) if grid.members else values.reshape(shape)

    data = {name: Variable(dims, place(values), attrs) for name, values, attrs in _metrics(grid, result)}
    return Labelled(data, _axis_coordinates(grid) | work_coordinates(grid) | grid_numbers(grid) | levels)


def _placed(values: np.ndarray, index: np.ndarray, shape: tuple[int, ...], missing: Any) -> np.ndarray:
    """Return an array of this shape with values at the indices of its flat form, and ``missing`` elsewhere."""
    all_values = np.full(math.prod(shape), missing, np.result_type(values))
    all_values[index] = values
    return all_values.reshape(shape)


def single_designs(grid: Grid, result: BlockResult) -> Labelled:
    """Return the results along ``design`` with every axis as a coordinate, best first if designs are ranked."""
    dims = ("design",)
    digits, _ = grid.locate(result.index)
    mapping = result.index % grid.table.n_mappings
    coordinates = {"index": numbers(dims, result.index, "index of the design in the sweep")}
    coordinates |= _axis_coordinates(grid, digits)
    for axis in grid.mapping_axes:
        parts = part_labels(axis, grid.mapping_values(axis, mapping))
        coordinates[variable_name(axis)] = coordinate(dims, axis, parts)
    coordinates |= work_coordinates(grid, digits) | grid_numbers(grid, digits)
    data = {name: Variable(dims, values, attrs) for name, values, attrs in _metrics(grid, result)}
    return Labelled(data, coordinates)


def _best_mappings(grid: Grid, result: BlockResult) -> Labelled:
    """Return the results along the dimensions: metrics and mapping of the best design of each point.

    Metrics are NaN, and parts of the mapping "" or 0, where no design of the point is feasible.
    """
    dims = tuple(dimension.name for dimension in grid.dimensions)
    point, mapping = np.divmod(result.index, grid.table.n_mappings)
    data: dict[str, Variable] = {}
    for name, values, attrs in _metrics(grid, result):
        if name != "infeasible_reason":  # each mapping of the point has its own
            missing = False if values.dtype == bool else np.nan
            data[name] = Variable(dims, _placed(values, point, grid.shape, missing), attrs)
    for axis in grid.mapping_axes:
        parts = part_labels(axis, grid.mapping_values(axis, mapping))
        placed = _placed(parts, point, grid.shape, "" if parts.dtype.kind == "U" else 0)
        data[variable_name(axis)] = coordinate(dims, axis, placed)
    return Labelled(data, _axis_coordinates(grid) | work_coordinates(grid) | grid_numbers(grid))


# --- pieces -----------------------------------------------------------------------------------------------


def _metrics(grid: Grid, result: BlockResult) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    """Return (name, values, attributes) of every metric; NaN where it needs a step and the design cannot form one."""
    study, rows_by_name = grid.spec.study, dict(zip(grid.spec.metrics, result.values, strict=True))
    reason = rows_by_name.get("infeasible_reason", np.zeros(1, np.float32))
    no_step = (reason.astype(np.int32) & study.no_step_bits) != 0
    if no_step.any():
        left_out = {name for name in rows_by_name if not study.is_valid_without_step(name)}
        rows_by_name |= {name: np.where(no_step, np.float32(np.nan), rows_by_name[name]) for name in left_out}
    metrics = {name: described(name, row, study) for name, row in rows_by_name.items()}
    if grid.members and "infeasible_reason" in metrics:
        metrics["infeasible_reason"][1].update(_reason_flags(study, {NO_DESIGN: study.feasible_bit}))
    return [(name, *about) for name, about in metrics.items()]


def described(name: str, values: np.ndarray, study: Study) -> tuple[np.ndarray, dict[str, Any]]:
    """Return the values of a metric in the type of results (bool, int32 or float32), and its attributes."""
    attrs = {"units": study.units[name], "long_name": study.long_names[name]}
    if name == "feasible":
        return values != 0, attrs | BOOLEAN
    if name == "infeasible_reason":
        return values.astype(np.int32), attrs | _reason_flags(study)
    return values, attrs


def _reason_flags(study: Study, extra_bits: Mapping[str, int] = MappingProxyType({})) -> dict[str, Any]:
    """Return the CF attributes of ``infeasible_reason``: masks and meanings of the study's bits and ``extra_bits``."""
    bits = study.reason_bits | dict(extra_bits)
    meanings = study.reason_meanings | dict.fromkeys(
        extra_bits, "no design: it has not all of these parts of a mapping"
    )
    return {
        "flag_masks": np.array([*bits.values()], np.int32),
        "flag_meanings": " ".join(bits),
        "comment": "; ".join(f"{name}: {text}" for name, text in meanings.items()),
    }


def _axis_coordinates(grid: Grid, digits: np.ndarray | None = None) -> dict[str, Variable]:
    """Return variable name → labels of every axis but those of the mapping; ``digits``: see :func:`.labels.along`."""
    coordinates = {}
    for number, dimension in enumerate(grid.dimensions):
        for axis in dimension.axes:
            dims, values = along(grid, number, labels(axis), digits)
            coordinates[variable_name(axis)] = coordinate(dims, axis, values)
    return coordinates


# --- overview ---------------------------------------------------------------------------------------------


def overview(grid: Grid, result: BlockResult) -> Labelled:
    """Return the overview of all designs, from the minima and histograms of a block's or the sweep's result.

    Variables are ``best_<objective>_by_<axis>`` along ``by_<axis>`` and ``count_by_<objective>`` along ``bin``.
    """
    variables = _best_by_axis(grid, result.best_scores) | (_histograms(grid, result) if result.edges.size else {})
    coords = {name: variable for name, variable in variables.items() if name in variable.dims}
    return Labelled({name: variable for name, variable in variables.items() if name not in coords}, coords)


def objective_names(objectives: tuple[Objective, ...]) -> list[str]:
    """Return the names of the objectives in variables: the text without invalid characters; all distinct."""
    names: list[str] = []
    for objective in objectives:
        name = re.sub(r"\W+", "_", objective.expression.text).strip("_")
        names.append(name if name not in names else f"{name}_{len(names) + 1}")
    return names


def _best_by_axis(grid: Grid, best_scores: np.ndarray) -> dict[str, Variable]:
    """Return variable name → the best value of an objective at each position of an axis, or the axis' labels."""
    variables: dict[str, Variable] = {}
    axes = axes_of(grid)
    minima_by_axis = np.split(best_scores, np.cumsum([len(values) for _, values in axes])[:-1], axis=1)
    for i, ((axis, values), minima) in enumerate(zip(axes, minima_by_axis, strict=True)):
        dim = f"by_{variable_name(axis)}"
        names = labels(axis) if i < len(grid.dimensions) else part_labels(axis, values)
        variables[dim] = coordinate((dim,), axis, names)
        objectives = grid.spec.objectives
        for name, objective, row in zip(objective_names(objectives), objectives, minima, strict=True):
            best = np.where(np.isfinite(row), np.float32(objective.sign) * row, np.float32(np.nan))
            which = "least" if objective.sign > 0 else "largest"
            about = f"{which} {objective.expression.text} of the feasible designs by {axis.name}, missing where none is"
            variables[f"best_{name}_{dim}"] = numbers((dim,), best, about, objective.expression.units)
    return variables


def _histograms(grid: Grid, result: BlockResult) -> dict[str, Variable]:
    """Return variable name → numbers of feasible designs by bin of an objective, or edges of the bins."""
    variables: dict[str, Variable] = {}
    objectives = grid.spec.objectives
    rows = zip(objective_names(objectives), objectives, result.edges, result.histogram, strict=True)
    for name, objective, edges, counts in rows:
        text, dims = objective.expression.text, ("bin",)
        about = f"feasible designs by {text}; the first and the last bin also hold what lies beyond"
        variables[f"count_by_{name}"] = numbers(dims, counts, about)
        for word, values, bound in (("from", edges[:-1], "least"), ("to", edges[1:], "just above the largest")):
            limits = numbers(dims, values, f"{bound} {text} of a bin", objective.expression.units)
            variables[f"bin_of_{name}_{word}"] = limits
    return variables
