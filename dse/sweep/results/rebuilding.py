"""Designs of a results dataset as the model sees them: its specification at what its labels say."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING

import jax
import numpy as np

from dse.designs import replace
from dse.errors import InputError
from dse.spec.axes import Axis
from dse.spec.sweep import from_text
from dse.study import Study
from dse.sweep.grid import compose
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.results.labels import labels, part_labels
from dse.types import Design

if TYPE_CHECKING:
    import xarray as xr

#: Global attribute that holds the text of the sweep's specification.
SPECIFICATION = "specification"


def grid_of(results: xr.Dataset, study: Study | None = None) -> Grid:
    """The grid of the sweep that gave these results; names mean what the catalogue says now.

    Raises InputError for results that no sweep wrote, or whose specification is not valid any more.
    """
    if SPECIFICATION not in results.attrs:
        raise InputError(
            "results", f"no attribute {SPECIFICATION!r}", "what dse run wrote", "run the sweep: dse run SWEEP.toml"
        )
    return compose.build(from_text(results.attrs[SPECIFICATION], "specification of the results", study))


def designs_at(results: xr.Dataset, rows: np.ndarray, grid: Grid) -> Design:
    """Designs of a dataset.

    Args:
        results: of a sweep, whatever was kept, or a selection of them with its coordinates.
        rows: positions in the flattened ``step_time``, or whichever metric is first.
        grid: of these results (:func:`grid_of`).

    Returns:
        A design whose leaves are arrays, one number a row.

    Raises InputError where the labels of a row are none of the grid's: a best mapping that there is none of.
    """
    first = next(results.variables[name] for name in grid.spec.metrics if name in results.variables)
    places = dict(zip(first.dims, np.unravel_index(rows, first.shape), strict=True))

    def wanted(axis: Axis) -> np.ndarray:
        name = variable_name(axis)
        if name not in results.variables:
            raise InputError("results", f"no variable {name!r}", "what dse run wrote", f"keep {name} in the dataset")
        variable = results.variables[name]
        found = variable.values[tuple(places[dim] for dim in variable.dims)]
        return np.broadcast_to(found, np.shape(rows))

    digits = [_matching([(labels(axis), wanted(axis)) for axis in one.axes]) for one in grid.dimensions]
    parts = [(part_labels(axis, grid.mapping_values(axis)), wanted(axis)) for axis in grid.mapping_axes]
    point = np.ravel_multi_index(digits, grid.shape) if digits else 0
    values = grid.values(point * grid.table.n_mappings + _matching(parts))
    return jax.tree.map(lambda leaf: np.broadcast_to(np.float32(leaf), np.shape(rows)), replace(grid.base, values))


def _matching(columns: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """For each row, the first position where all (known, wanted) columns agree."""
    same = functools.reduce(operator.and_, (known[:, None] == wanted for known, wanted in columns))
    if not same.any(axis=0).all():
        raise InputError(
            "results", "a design that its specification does not have", "what dse run wrote", "run the sweep again"
        )
    return same.argmax(axis=0)
