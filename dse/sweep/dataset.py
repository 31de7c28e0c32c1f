"""What was kept of a sweep as labelled variables: NumPy arrays with dimensions, units and long names.

Neither xarray nor netCDF is needed for this: :mod:`dse.sweep.writing` writes it to a file,
:mod:`dse.results` makes an xarray dataset of it.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from dse.design import leaves
from dse.results import Labelled, Variable
from dse.sweep.axis_values import Axis
from dse.sweep.degrees import DEGREES
from dse.sweep.engine import CONSTRAINT
from dse.sweep.grid import Grid, part_label, variable_name
from dse.sweep.keep import METRIC_NAMES, Part
from dse.sweep.spec import Keep
from dse.types import INFEASIBLE_MEANING, Infeasible, Metrics, field_metadata

_BOOLEAN = {"flag_values": np.array([0, 1], np.int8), "flag_meanings": "false true"}


def build(grid: Grid, keep: Keep, part: Part, attributes: dict[str, Any]) -> Labelled:
    """The results of what was kept, every variable with units and long name."""
    layout = {"all": _whole, "best": _best}.get(keep.mode, _single_designs)
    found = layout(grid, part)
    fixed = {variable_name(axis): _coordinate((), axis, _labels(axis)[0]) for axis in grid.fixed}
    return dataclasses.replace(found, coords=fixed | found.coords, attrs=attributes)


def _whole(grid: Grid, part: Part) -> Labelled:
    """Dimensions of the sweep x mapping."""
    levels = {
        variable_name(axis): _coordinate(("mapping",), axis, _part_labels(axis, grid.mapping_values(axis)))
        for axis in grid.mapping_axes
    }
    dims = (*(dimension.name for dimension in grid.dimensions), "mapping")
    shape = (*grid.shape, grid.table.n_mappings)
    data = {name: Variable(dims, values.reshape(shape), attrs) for name, values, attrs in _metrics(part.values)}
    return Labelled(data, _dimension_coordinates(grid) | levels, tuple(levels))


def _single_designs(grid: Grid, part: Part) -> Labelled:
    """One dimension ``design`` with every axis as a coordinate, best first where designs are ranked."""
    along = ("design",)
    digits, _ = grid.locate(part.index)
    mapping = part.index % grid.table.n_mappings
    number = {"units": "1", "long_name": "index of the design in the sweep"}
    coordinates = {"index": Variable(along, part.index, number)}
    for position, dimension in enumerate(grid.dimensions):
        for axis in dimension.axes:
            coordinates[variable_name(axis)] = _coordinate(along, axis, _labels(axis)[digits[position]])
    for axis in grid.mapping_axes:
        labels = _part_labels(axis, grid.mapping_values(axis)[mapping])
        coordinates[variable_name(axis)] = _coordinate(along, axis, labels)
    data = {name: Variable(along, values, attrs) for name, values, attrs in _metrics(part.values)}
    return Labelled(data, coordinates)


def _best(grid: Grid, part: Part) -> Labelled:
    """The best mapping of each point: metrics and parts of the mapping, missing where nothing is feasible."""
    dims = tuple(dimension.name for dimension in grid.dimensions)
    point, mapping = np.divmod(part.index, grid.table.n_mappings)

    def spread(values: np.ndarray, missing: Any) -> np.ndarray:
        whole = np.full(grid.n_points, missing, np.result_type(values))
        whole[point] = values
        return whole.reshape(grid.shape)

    data: dict[str, Variable] = {}
    for name, values, attrs in _metrics(part.values):
        if name != "infeasible_reason":  # of which mapping? each has its own
            data[name] = Variable(dims, spread(values, False if values.dtype == bool else np.nan), attrs)
    for axis in grid.mapping_axes:
        labels = _part_labels(axis, grid.mapping_values(axis)[mapping])
        missing = "" if labels.dtype.kind == "U" else 0
        data[variable_name(axis)] = _coordinate(dims, axis, spread(labels, missing))
    return Labelled(data, _dimension_coordinates(grid))


# --- pieces -----------------------------------------------------------------------------------------------


def _metrics(values: np.ndarray) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    """(name, values, attributes) of every metric."""
    found = []
    for name, row in zip(METRIC_NAMES, values, strict=True):
        about = field_metadata(Metrics, name)
        attrs = {"units": about["units"], "long_name": about["long_name"]}
        if name == "feasible":
            row, attrs = row != 0, attrs | _BOOLEAN
        elif name == "infeasible_reason":
            row, attrs = row.astype(np.int32), attrs | _reason_flags()
        found.append((name, row, attrs))
    return found


def _reason_flags() -> dict[str, Any]:
    """CF flags of ``infeasible_reason``: the model's bits and the specification's constraints."""
    meanings = {bit.name: text for bit, text in INFEASIBLE_MEANING.items()}
    meanings["constraint"] = "a constraint of the sweep is not met"
    return {
        "flag_masks": np.array([*map(int, Infeasible), CONSTRAINT], np.int32),
        "flag_meanings": " ".join([*(bit.name for bit in Infeasible), "constraint"]),
        "comment": "; ".join(f"{name}: {text}" for name, text in meanings.items()),
    }


def _coordinate(dims: tuple[str, ...], axis: Axis, labels: Any) -> Variable:
    """Labels of an axis, or of designs along it, with what they are."""
    labels = np.asarray(labels)
    attrs = {"long_name": axis.long_name, "path": axis.key}
    if axis.units:
        attrs["units"] = axis.units
    return Variable(dims, labels, attrs | (_BOOLEAN if labels.dtype.kind == "b" else {}))


def _labels(axis: Axis) -> np.ndarray:
    """The labels of an axis as an array: whole counts as integers, names as texts."""
    labels = np.array(axis.labels)
    whole = labels.dtype.kind == "f" and leaves()[axis.key]["units"] == "1" and np.all(labels == np.round(labels))
    return labels.astype(np.int64) if whole else labels


def _part_labels(axis: Axis, values: np.ndarray) -> np.ndarray:
    """Labels of a part of the mapping: whole numbers, names or truth values."""
    if axis.key in DEGREES:
        return values.astype(np.int32)
    known, code = np.unique(values, return_inverse=True)
    labels = np.array([part_label(axis, float(value)) for value in known])
    return (labels.astype(np.int32) if labels.dtype.kind == "i" else labels)[code]


def _dimension_coordinates(grid: Grid) -> dict[str, Variable]:
    return {
        variable_name(axis): _coordinate((dimension.name,), axis, _labels(axis))
        for dimension in grid.dimensions
        for axis in dimension.axes
    }
