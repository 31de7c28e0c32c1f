"""Options of mappings as axes of a grid, and the share of their combinations that are mappings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from dse.sweep.grid.grid import Grid

#: Rows of degrees by which the density of mappings is estimated, for sweeps of more designs than this.
_SAMPLED_ROWS, _LARGE_SWEEP = 64, 1_000_000


def option_axes(grid: Grid) -> list[dict[str, np.ndarray]]:
    """Return the axes whose product the columns of options are, each as leaf path → values; one axis if zipped."""
    options = grid.table.options
    values = {path: column[np.sort(np.unique(column, return_index=True)[1])] for path, column in options.items()}
    product = np.array(list(itertools.product(*values.values())))
    columns = np.stack(list(options.values()), axis=1)
    if product.shape == columns.shape and np.array_equal(product, columns):
        return [{path: column} for path, column in values.items()]
    return [dict(options)]


class Density:
    """The share of (mask row, inner options) of a grid that are mappings, by the inner axes.

    Rounded to a power of two, and 1 for small sweeps: those of the same axes, over another model say, should choose
    alike and share programs.
    """

    def __init__(self, grid: Grid, sizes: Sequence[int]) -> None:
        rows = np.unique(np.linspace(0, grid.table.n_rows - 1, _SAMPLED_ROWS).astype(int))
        self._n_dimensions, self._is_small = len(grid.shape), grid.n_designs < _LARGE_SWEEP
        self._mappings = grid.table.distinct[rows].reshape(len(rows), *sizes[self._n_dimensions :])
        self._densities: dict[tuple[int, ...], float] = {}

    def __call__(self, inner: Sequence[int]) -> float:
        """Return the share for these inner axes, at most 1: a power of two, and 1 for small sweeps."""
        options = tuple(sorted(axis - self._n_dimensions + 1 for axis in inner if axis >= self._n_dimensions))
        if self._is_small:
            return 1.0
        if options not in self._densities:
            mask_rows = self._mappings.any(axis=options) if options else self._mappings
            self._densities[options] = 2.0 ** round(math.log2(float(self._mappings.mean() / mask_rows.mean())))
        return self._densities[options]
