"""The index of results: one of all labels of a mapping or design, whose rows are selected by number too.

xarray takes a third of a second to import: this module is imported where it is used.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from xarray.indexes import PandasIndex, PandasMultiIndex

from dse.sweep.results import schema
from dse.sweep.results.layout import SINGLE

#: Coordinates that number mappings or designs.
NUMBERS = (*SINGLE, "index")

#: Attributes of the coordinate of such a dimension.
_NUMBERED = {"units": "1", "long_name": "number of the row"}


def with_index(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset with one index of all labels along ``mapping`` or ``design``, where it has these."""
    for dim in SINGLE:
        coordinates = {str(name): values.attrs for name, values in dataset.coords.items() if values.dims == (dim,)}
        levels = [
            name for name, attrs in coordinates.items() if name not in NUMBERS and not schema.is_number_of_name(attrs)
        ]
        if not levels:
            continue
        variables = {name: dataset.variables[name].load() for name in levels}
        index = pd.MultiIndex.from_arrays([variable.values for variable in variables.values()], names=levels)
        label_index = PlainLevels(index, dim, level_coords_dtype={name: v.dtype for name, v in variables.items()})
        variables[dim] = xr.IndexVariable(dim, np.arange(len(index)), _NUMBERED)
        coords = xr.Coordinates(variables, indexes=dict.fromkeys(variables, label_index))
        dataset = dataset.drop_vars([*levels, dim], errors="ignore").assign_coords(coords)
    return dataset


def _are_numbers(label: Any) -> bool:
    """Return True if a label, or the ends of a slice, are row numbers, no parts of a mapping (a tuple).

    Row numbers from ``idxmin`` are floating-point.
    """
    if isinstance(label, slice):
        return all(end is None or isinstance(end, int | np.integer) for end in (label.start, label.stop))
    return not isinstance(label, dict | tuple) and np.asarray(label).dtype.kind in "iuf"


class PlainLevels(PandasMultiIndex):
    """Multi-index whose dimension coordinate numbers the rows and selects by number."""

    def sel(self, labels: Any, method: Any = None, tolerance: Any = None) -> Any:
        """Return the positions of labels, or of row numbers alone."""
        if set(labels) == {self.dim} and _are_numbers(labels[self.dim]):
            rows = PandasIndex(pd.RangeIndex(len(self.index)), self.dim)
            return rows.sel(labels, method, tolerance)
        return super().sel(labels, method, tolerance)

    def create_variables(self, variables: Any = None) -> Any:
        """Return the coordinates: labels as plain arrays, which files can hold, and the numbers of the rows."""
        level_variables = super().create_variables(variables)
        count = np.arange(len(self.index))
        return {
            name: xr.IndexVariable(level.dims, count, _NUMBERED)
            if name == self.dim
            else xr.Variable(level.dims, np.asarray(level.values), level.attrs)
            for name, level in level_variables.items()
        }
