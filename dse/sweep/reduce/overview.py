"""The overview of all designs of a sweep: least scores by axis, histograms of the objectives.

Least scores are those at every position of every dimension and part of the mapping. A chunk is a contiguous run of a
mixed-radix number, so its minima by each digit are plain reductions along reshaped arrays, the last digit first:
nothing is looked up design by design.

Histograms are over the feasible designs: edges from a pilot, exact counts of everything. Edges are in the units of a
metric, thresholds in those of scores, where maximised metrics have the other sign.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from dse.spec import Axis, Objective
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.nesting import Nest
from dse.sweep.grid.grid import Grid, Member

#: Digits with fewer values are reduced column by column, which NumPy does faster than many short rows.
_SHORT_ROW = 16

#: Outer indices that are reduced at once, a chunk or several.
_MIN_REDUCED = 1 << 15


def axes_of(grid: Grid) -> list[tuple[Axis, np.ndarray]]:
    """Return (axis, its values) of all axes with minima: the dimensions, then the parts of the mapping."""
    dimensions = [(dimension.axes[0], np.arange(dimension.size)) for dimension in grid.dimensions]
    return dimensions + [(axis, np.unique(_mapping_part(grid, axis)[1])) for axis in grid.mapping_axes]


def _mapping_part(grid: Grid, axis: Axis) -> tuple[str, np.ndarray]:
    """Return ("rows", "columns" or "all" of the table; values along these) of a part of the mapping."""
    if axis.key in grid.table.degrees:
        return "rows", grid.table.degrees[axis.key]
    if axis.key in grid.table.options:
        return "columns", grid.table.options[axis.key]
    return "all", np.array(axis.values[:1])


class Minima:
    """The least scores by digit of a nest, as its chunks come."""

    def __init__(self, nest: Nest, n_objectives: int) -> None:
        self._nest, self._n_objectives = nest, n_objectives
        self._outer = [np.full((n_objectives, radix), np.inf, np.float32) for radix in nest.outer_shape]
        self._inner: list[np.ndarray] = []
        self._first, self._waiting = 0, list[np.ndarray]()

    def add(self, first: int, count: int, outer_best: np.ndarray, inner_best: Sequence[np.ndarray]) -> None:
        """Add least scores of ``count`` outer indices: [objective, outer], and by group [objective, inner index].

        Chunks come one after the other; short ones wait until they are worth the reductions.
        """
        previous = self._inner or inner_best
        self._inner = [np.minimum(minimum, other) for minimum, other in zip(previous, inner_best, strict=True)]
        if not self._waiting:
            self._first = first
        self._waiting.append(outer_best[:, :count])
        if sum(best.shape[1] for best in self._waiting) > _MIN_REDUCED:
            self._take_waiting()

    def _take_waiting(self) -> None:
        """Lower the minima to those of the chunks that wait, and forget these."""
        if self._waiting:
            lower_minima(self._outer, self._nest.start_digits(self._first), np.concatenate(self._waiting, axis=1))
            self._waiting.clear()

    def result(self) -> np.ndarray:
        """Return [objective, axis value] minima along the concatenated values of :func:`axes_of`."""
        self._take_waiting()
        nest, grid = self._nest, self._nest.grid
        *dimensions, by_mask_row = self._outer
        minima_by_axis = dict(zip(nest.outer_dimensions, dimensions, strict=True)) | self._inner_minima()
        row, *options = nest.mask_row_digits
        minima_by_axis |= {
            axis: _by_value(by_mask_row, index, nest.sizes[axis])
            for axis, index in zip(nest.outer_options, options, strict=True)
        }
        columns = [np.empty((self._n_objectives, 0), np.float32), *(minima_by_axis[i] for i in range(len(grid.shape)))]
        for axis in grid.mapping_axes:
            kind, values = _mapping_part(grid, axis)
            if kind == "columns":
                axis_number = next(i for i in range(len(grid.shape), len(nest.sizes)) if axis.key in nest.axes[i])
                best_scores, values = minima_by_axis[axis_number], nest.axes[axis_number][axis.key]
            elif kind == "rows":
                best_scores, values = by_mask_row, values[row]
            else:
                best_scores = by_mask_row.min(axis=1, keepdims=True)
            distinct_values, code = np.unique(values, return_inverse=True)
            columns.append(_by_value(best_scores, code.reshape(-1), len(distinct_values)))
        return np.concatenate(columns, axis=1)

    def _inner_minima(self) -> dict[int, np.ndarray]:
        """Return inner axis → [objective, value] its minima."""
        minima_by_axis: dict[int, np.ndarray] = {}
        groups = self._nest.groups if self._inner and len(self._inner) > 1 else (self._nest.inner_axes,)
        for number, axes in enumerate(groups):
            shape = self._nest.axis_sizes(axes)
            empty = np.full((self._n_objectives, math.prod(shape)), np.inf, np.float32)
            values = self._inner[number] if self._inner else empty
            product, all_axes = values.reshape(len(values), *shape), range(1, len(shape) + 1)
            for i, axis in zip(all_axes, axes, strict=True):
                minima_by_axis[axis] = product.min(axis=tuple(other for other in all_axes if other != i))
        return minima_by_axis


def to_sweep_minima(sweep_grid: Grid, member: Member, best_scores: np.ndarray) -> np.ndarray:
    """Return [objective, axis value] minima along the axes of the sweep, from those along the axes of a member.

    Along an axis that the member does not have it is at one value, with the least score of all its designs.
    """
    axes = axes_of(member.grid)
    minima_by_axis = np.split(best_scores, np.cumsum([len(values) for _, values in axes])[:-1], axis=1)
    n, lowest = len(member.grid.dimensions), minima_by_axis[0].min(axis=1, keepdims=True)
    minima_by_path = {
        axis.key: (values, minima) for (axis, values), minima in zip(axes[n:], minima_by_axis[n:], strict=True)
    }
    columns = []
    for number, (axis, values) in enumerate(axes_of(sweep_grid)):
        row = np.full((len(best_scores), len(values)), np.inf, np.float32)
        if number < len(sweep_grid.dimensions):
            member_axis = member.axes[number]
            row[:, member.positions[number]] = minima_by_axis[member_axis] if member_axis >= 0 else lowest
        else:
            member_values, minima = minima_by_path.get(axis.key, (values[:1], lowest))
            member_values = (
                member_values if len(member_values) > 1 else sweep_grid.mapping_values(axis, member.mappings[:1])
            )
            row[:, np.searchsorted(values, member_values)] = minima
        columns.append(row)
    return np.concatenate(columns, axis=1)


def lower_minima(best_scores: Sequence[np.ndarray], start: Sequence[int], values: np.ndarray) -> None:
    """Lower ``best_scores`` of every digit, in place, to the minima of a run of a mixed-radix number.

    Args:
        best_scores: by digit, the most significant first; changed in place.
        start: digits of the run's first number.
        values: [objective, number of the run]; past the last number of all, infinite.
    """
    for target, first in zip(reversed(best_scores), reversed(start), strict=True):
        radix, length = target.shape[1], values.shape[1]
        if first + length <= radix:  # digits that come before it do not change along the run
            target_slice = target[:, first : first + length]
            np.minimum(target_slice, values, out=target_slice)
            values = values.min(axis=1, keepdims=True)
            continue
        padded = np.pad(values, [(0, 0), (first, -(first + length) % radix)], constant_values=np.inf)
        by_digit, values = outer_and_inner_minima(padded.reshape(len(values), -1, radix))
        np.minimum(target, by_digit, out=target)


def outer_and_inner_minima(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return ([objective, inner], [objective, outer]) minima of [objective, outer, inner]."""
    if values.shape[2] >= _SHORT_ROW:
        return values.min(axis=1), values.min(axis=2)
    columns = [values[:, :, i] for i in range(values.shape[2])]
    return np.stack([column.min(axis=1) for column in columns], axis=1), functools.reduce(np.minimum, columns)


def _by_value(best_scores: np.ndarray, code: np.ndarray, count: int) -> np.ndarray:
    """Return [objective, code] minima of the columns with each of ``count`` codes."""
    minima = np.full((count, len(best_scores)), np.inf, np.float32)
    np.minimum.at(minima, code, best_scores.T)
    return minima.T


#: Designs of the pilot.
_PILOT = 4096

#: The golden section of 2^64: its multiples, modulo that, are spread evenly and in step with no axis.
_GOLDEN = 0x9E3779B97F4A7C15


# --- histograms -------------------------------------------------------------------------------------------


def pilot(n_designs: int) -> np.ndarray:
    """Return the ordinals, ascending, of 4,096 designs spread evenly over a sweep; of all designs of a smaller one."""
    if n_designs <= _PILOT:
        return np.arange(n_designs)
    return np.unique([(i * _GOLDEN % (1 << 64)) * n_designs >> 64 for i in range(_PILOT)])


def edges(engine: SweepEngine, bins: int) -> np.ndarray:
    """Return [objective, bins + 1] edges of bins, in units of the metric: the pilot's span, rounded outwards.

    The span is that of the pilot's feasible designs, or of all of them if none is.
    """
    index = engine.grid.indices(pilot(engine.grid.n_designs))
    metrics, scores = engine.designs(index)
    feasible = metrics.feasible
    signs = [objective.sign for objective in engine.grid.spec.objectives]
    return np.stack([_bin_edges(sign * row, feasible, bins) for sign, row in zip(signs, scores, strict=True)])


def _bin_edges(values: np.ndarray, feasible: np.ndarray, bins: int) -> np.ndarray:
    """Return [bins + 1] edges of equal ratios, or of equal differences where not all values are positive."""
    finite = np.isfinite(values)
    usual = values[finite & feasible] if np.any(finite & feasible) else values[finite]
    least, most = (usual.min(), usual.max()) if len(usual) else (0.0, 1.0)
    low, high = rounded_edge(float(least), np.floor), rounded_edge(float(most), np.ceil)
    if low == high:
        low, high = (low / 2, high * 2) if low > 0 else (low - 1.0, high + 1.0)
    spaced = np.geomspace if low > 0 else np.linspace
    return spaced(low, high, bins + 1).astype(np.float32)


def rounded_edge(value: float, how: np.ufunc) -> float:
    """Return a number rounded by ``how`` to three digits, few enough that all processors agree on them."""
    if value == 0.0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(abs(value))) - 2)
    return float(how(value / unit) * unit)


def thresholds(edges: np.ndarray, objectives: tuple[Objective, ...]) -> np.ndarray:
    """Return [objective, bin] ascending scores below which designs are counted: the inner edges, and infinity.

    A value on an edge belongs to the bin above it, which for what is maximised is the bin of lower scores.
    """
    inner = edges[:, 1:-1].astype(np.float32)
    rows = [
        row if objective.sign > 0 else np.nextafter(-row[::-1], np.float32(np.inf))
        for row, objective in zip(inner, objectives, strict=True)
    ]
    return np.pad(np.stack(rows), [(0, 0), (0, 1)], constant_values=np.inf)


def counts(below: np.ndarray, objectives: tuple[Objective, ...]) -> np.ndarray:
    """Return [objective, bin] numbers of designs in each bin from the numbers below each threshold."""
    ascending = np.diff(below, axis=1, prepend=0)
    return np.stack(
        [row if objective.sign > 0 else row[::-1] for row, objective in zip(ascending, objectives, strict=True)]
    )
