"""Designs of a results dataset, rebuilt for the model from its specification and its labels."""

from __future__ import annotations

import math
from collections.abc import Container
from typing import TYPE_CHECKING

import numpy as np

from dse.designs import replace
from dse.doors import Study, study_of_metrics
from dse.errors import InputError
from dse.spec import Axis
from dse.sweep.grid import compose
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.results.labels import labels, part_labels
from dse.sweep.results.specification import specification_of
from dse.types import Design
from dse.types.trees import tree_map

if TYPE_CHECKING:
    import xarray as xr


def grid_of(results: xr.Dataset, study: Study | None = None) -> Grid:
    """Return the grid of the sweep or search that wrote these results, with today's catalogue.

    Raises:
        InputError: for results without a specification, or with one that is no longer valid.
    """
    spec = specification_of(results, study).spec
    check_study(results, spec.study)
    return compose.build(spec)


def check_study(results: xr.Dataset, study: Study) -> None:
    """Raise InputError unless results hold a total of the study, that of their specification."""
    if not any(name in results.variables for name in study.totals):
        raise InputError(
            "results",
            f"a specification of {study.name} with metrics of {study_of_metrics(results.variables).objective}",
            f"metrics of {study.name}, such as {study.objective}",
            "run the sweep again",
        )


def singles_at(results: xr.Dataset, rows: np.ndarray, grid: Grid, continuous: Container[str] = ()) -> list[Design]:
    """Return the designs at these rows of a dataset, in the order of ``rows``.

    Args:
        results: of a sweep, or a selection of them with its coordinates.
        rows: positions in the flattened ``step_time``, or another first metric.
        grid: of these results (:func:`grid_of`).
        continuous: full paths of the leaves that a search varied continuously, whose labels are their values.

    Returns:
        One design per row, with plain numbers as leaves.

    Raises:
        InputError: where the labels of a row are not in the grid.
    """
    design_by_position: dict[int, Design] = {}
    axes = [axis for dimension in grid.dimensions for axis in dimension.axes if axis.key in continuous]
    labels_by_path = {axis.key: labels_at(results, rows, grid, axis) for axis in axes}
    for positions, member_grid, index in grid.by_structure(indices_at(results, rows, grid, continuous)):
        values = member_grid.values(index) | {path: column[positions] for path, column in labels_by_path.items()}
        for i, position in enumerate(positions.tolist()):
            design = replace(member_grid.base, {path: column[i] for path, column in values.items()})
            design_by_position[position] = tree_map(np.float32, design)
    return [design_by_position[position] for position in sorted(design_by_position)]


def indices_at(results: xr.Dataset, rows: np.ndarray, grid: Grid, continuous: Container[str] = ()) -> np.ndarray:
    """Return [row] the indices in the sweep of the designs at these rows of a dataset.

    Args:
        results: see :func:`singles_at`.
        rows: see :func:`singles_at`.
        grid: of these results.
        continuous: full paths of the leaves that a search varied continuously; their labels are not needed.

    Raises:
        InputError: if the labels of a row are not in the grid.
    """

    def row_labels(axis: Axis) -> np.ndarray:
        return labels_at(results, rows, grid, axis)

    digits = [
        _matching(
            [(labels(axis), row_labels(axis)) for axis in dimension.axes if axis.key not in continuous], np.shape(rows)
        )
        for dimension in grid.dimensions
    ]
    degrees, options = grid.table.degrees, grid.table.options
    same = {axis.key: np.array(axis.values[:1]) for axis in grid.mapping_axes if axis.key not in degrees | options}
    row, column, _ = (
        _matching(
            [(part_labels(axis, part[axis.key]), row_labels(axis)) for axis in grid.mapping_axes if axis.key in part],
            np.shape(rows),
        )
        for part in (degrees, options, same)
    )
    if not grid.table.distinct[row, column].all():
        raise _no_such_design()
    point = np.ravel_multi_index(digits, grid.shape) if digits else 0
    return grid.design_index(point * grid.table.n_rows + row, column)


def labels_at(results: xr.Dataset, rows: np.ndarray, grid: Grid, axis: Axis) -> np.ndarray:
    """Return [row] the labels of an axis at rows of a dataset; InputError where it lacks the axis."""
    name = variable_name(axis)
    if name not in results.variables:
        raise InputError("results", f"no variable {name!r}", "what dse run wrote", f"keep {name} in the dataset")
    first = next(results.variables[name] for name in grid.spec.metrics if name in results.variables)
    return at_rows(results.variables[name], first, rows)


def at_rows(variable: xr.Variable, reference: xr.Variable | xr.DataArray, rows: np.ndarray) -> np.ndarray:
    """Return [row] a variable's values at flattened positions of ``reference``, which has its dimensions or more."""
    indices = dict(zip(reference.dims, np.unravel_index(rows, reference.shape), strict=True)) if reference.ndim else {}
    values = variable.values[tuple(indices[dim] for dim in variable.dims)]
    return np.broadcast_to(values, np.shape(rows))


def _matching(columns: list[tuple[np.ndarray, np.ndarray]], shape: tuple[int, ...]) -> np.ndarray:
    """Return [row] the first index of an axis at which all labels equal the row's; InputError where none does.

    Args:
        columns: (labels [index] of the axis, labels of the rows) for each kind of label.
        shape: of the array of rows.
    """
    if not columns:
        return np.zeros(shape, np.int64)
    count = len(columns[0][0])
    key = np.zeros(count + math.prod(shape), np.int64)  # one number for all labels of a position or row
    for axis_labels, label_at_row in columns:
        _, code = np.unique(np.concatenate([axis_labels, label_at_row.reshape(-1)]), return_inverse=True)
        _, key = np.unique(key * (code.max(initial=0) + 1) + code, return_inverse=True)
    keys, first = np.unique(key[:count], return_index=True)
    position = np.searchsorted(keys, key[count:]).clip(max=len(keys) - 1)
    if not (keys[position] == key[count:]).all():
        raise _no_such_design()
    return first[position].reshape(shape)


def _no_such_design() -> InputError:
    """Return the error for labels that no design of the specification has."""
    return InputError(
        "results", "a design that its specification does not have", "what dse run wrote", "run the sweep again"
    )
