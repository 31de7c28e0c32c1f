"""Blocks of a grid's designs: a range of positions along every axis, and what their leaves lie between.

Axis 0 is the list of mappings, in the order of their degrees and options: every position is a mapping. Then come the
dimensions, a continuous one as a fine grid of cells between whose borders any value may lie.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from dse.equations.operations import steps, walk
from dse.lab.prove import forms
from dse.lab.prove.staged import StagedOperations, stage_operations
from dse.spec.search import Interval
from dse.sweep import Grid
from dse.sweep.engine.point import Program

#: Cells of a continuous axis.
CELLS = 1 << 30

#: Error of the ends of a cell: the logarithm's rounding in single precision.
_ROUNDING = 2e-6


class BlockRanges(NamedTuple):
    """Ranges of positions [block, axis], from ``first`` up to ``stop``, which is left out."""

    first: np.ndarray
    stop: np.ndarray

    def take(self, index: Any) -> BlockRanges:
        """Return the ranges of the blocks at an index, a slice or a mask."""
        return BlockRanges(self.first[index], self.stop[index])


class GridAxis(NamedTuple):
    """An axis of a grid with the leaves that it sets."""

    name: str
    size: int
    columns: dict[str, np.ndarray]  #: leaf path → value at each position; of a continuous axis none
    interval: Interval | None = None

    @property
    def is_ordered(self) -> bool:
        """True where the axis sets one number, so that half of its positions has half of its values."""
        return self.interval is not None or len(self.columns) == 1

    def leaf_values(self, position: np.ndarray) -> dict[str, np.ndarray]:
        """Return leaf path → value [position] at positions; of a continuous axis at the lower borders of cells."""
        if self.interval is not None:
            return {self.interval.path: np.asarray(value_at(self.interval, position / CELLS), np.float32)}
        return {path: column[position] for path, column in self.columns.items()}

    def position(self, leaves: Mapping[str, float]) -> int:
        """Return the first position with the given values of leaves, 0 where none has; of a continuous axis a cell."""
        if self.interval is None:
            is_equal = [column == np.float32(leaves[path]) for path, column in self.columns.items()]
            return int(np.all(is_equal, axis=0).argmax())
        low, high, value = self.interval.low, self.interval.high, leaves[self.interval.path]
        fraction = math.log(value / low) / math.log(high / low) if self.interval.log else (value - low) / (high - low)
        return min(max(round(fraction * CELLS), 0), CELLS - 1)

    def ends(self, first: np.ndarray, stop: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Return leaf path → lowest and highest value [block]; one array twice where all blocks have one position."""
        if self.interval is not None:
            low, high = (value_at(self.interval, cell / CELLS) for cell in (first, stop))
            margin = _ROUNDING * abs(high)
            return {self.interval.path: (np.asarray(low - margin, np.float32), np.asarray(high + margin, np.float32))}
        if (stop - first == 1).all():
            return {path: (column[first],) * 2 for path, column in self.columns.items()}
        return {path: column_extremes(column, first, stop) for path, column in self.columns.items()}


def value_at(interval: Interval, fraction: Any) -> Any:
    """Return the value of a continuous axis at a fraction (0 to 1) of its range, in double precision."""
    if interval.log:
        return interval.low * (interval.high / interval.low) ** fraction
    return interval.low + (interval.high - interval.low) * fraction


def column_extremes(column: np.ndarray, first: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest value of a column from ``first`` up to ``stop`` [block]."""
    borders = np.stack([first, stop], axis=1).reshape(-1)
    padded = np.append(column, column[-1])
    return np.minimum.reduceat(padded, borders)[::2], np.maximum.reduceat(padded, borders)[::2]


class BlockEvaluator:
    """Evaluates blocks of designs of a grid of one structure."""

    def __init__(self, program: Program, grid: Grid, intervals: tuple[Interval, ...]) -> None:
        self.grid, self.program = grid, program
        intervals_by_path = {interval.path: interval for interval in intervals}
        self.mappings, table_rows = sorted_mappings(grid)
        dimensions = [_axis(dimension.name, dimension.columns, intervals_by_path) for dimension in grid.dimensions]
        self.axes = (GridAxis("mapping", len(table_rows), self.mappings), *dimensions)
        dimension_paths = [path for dimension in grid.dimensions for path in dimension.columns]
        self.staged = stage_operations(program, grid, dimension_paths, self.mappings)
        self.rates = _rate_leaves(self.staged)
        self.symbol = {i: symbol for symbol, i in enumerate(self.axis_of)}
        self._steps = steps(self.staged.operations, functools.partial(forms.operation, n_symbols=len(self.symbol)))

    @property
    def all_designs(self) -> BlockRanges:
        """All designs as one block."""
        sizes = np.array([[axis.size for axis in self.axes]])
        return BlockRanges(np.zeros_like(sizes), sizes)

    @property
    def is_continuous(self) -> bool:
        """True where some axis has values between its positions."""
        return any(axis.interval is not None for axis in self.axes)

    @functools.cached_property
    def is_listed(self) -> np.ndarray:
        """True for axes of mappings or names, whose halves have nothing in common [axis]."""
        return np.array([not i or not axis.is_ordered for i, axis in enumerate(self.axes)])

    @functools.cached_property
    def axis_of(self) -> dict[int, int]:
        """Number of a leaf's value → index of the axis that sets it, for axes of one number each."""
        return {
            self.staged.leaves[path]: i
            for i, axis in enumerate(self.axes)
            if i and axis.is_ordered
            for path in (axis.columns if axis.interval is None else [axis.interval.path])
        }

    def evaluate(self, ranges: BlockRanges) -> tuple[np.ndarray, np.ndarray]:
        """Return objectives [design, objective], to be made small, and reasons [design] at the first positions."""
        values: dict[int, Any] = {i: np.atleast_1d(value) for i, value in self.staged.constants.items()}
        values |= {i: column[ranges.first[:, 0]] for i, column in self.staged.table.items()}
        for axis_index, axis in enumerate(self.axes[1:], 1):
            columns = axis.leaf_values(ranges.first[:, axis_index])
            values |= {self.staged.leaves[path]: column for path, column in columns.items()}
        objectives, reason = self.evaluate_operations(values)
        reason, *objectives = (np.broadcast_to(value, len(ranges.first)) for value in (reason, *objectives))
        return np.stack(objectives, axis=1), reason

    def limits(self, values: dict[int, Any]) -> list[forms.Form]:
        """Return the forms that are not above 0 in designs that can run, from value number → value as computed."""
        pairs = [(values[lower], values[upper]) for lower, upper in self.staged.limits]
        form_pairs = (pair for pair in pairs if any(isinstance(side, forms.Form) for side in pair))
        return [forms.difference(lower, upper) for lower, upper in form_pairs]

    def leaves(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Return leaf path → value [design] at positions [design, axis]."""
        pairs = zip(self.axes, positions.T, strict=False)  # more positions where another structure has more axes
        return {path: column for axis, position in pairs for path, column in axis.leaf_values(position).items()}

    def position(self, leaves: Mapping[str, float]) -> list[int]:
        """Return a design's position on each axis by its leaves, on continuous axes the nearest border of a cell."""
        return [axis.position(leaves) for axis in self.axes]

    def values(self, ranges: BlockRanges) -> dict[int, Any]:
        """Return number of an input → its value for blocks: constant, array, interval (lowest, highest) or form."""
        inputs: dict[int, Any] = {i: np.atleast_1d(value) for i, value in self.staged.constants.items()}
        for i, (low, high) in self.ends(ranges):
            if low is high:
                inputs[i] = low
            elif low.dtype.kind != "f":
                inputs[i] = low, high
            elif i in self.symbol:
                inputs[i] = forms.leaf_form(low, high, self.symbol[i], len(self.symbol), i in self.rates)
            else:
                inputs[i] = forms.interval_form(low, high, len(self.symbol))
        return inputs

    def ends(self, ranges: BlockRanges) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray]]]:
        """Yield the number and (lowest, highest) value [block] of each value that mappings decide, and of each leaf."""
        first, stop = ranges.first[:, 0], ranges.stop[:, 0]
        are_single = (stop - first == 1).all()
        for i, column in self.staged.table.items():
            yield i, ((column[first],) * 2 if are_single else column_extremes(column, first, stop))
        for axis_index, axis in enumerate(self.axes[1:], 1):
            for path, ends in axis.ends(ranges.first[:, axis_index], ranges.stop[:, axis_index]).items():
                yield self.staged.leaves[path], ends

    def evaluate_operations(self, values: dict[int, Any]) -> tuple[list[Any], Any]:
        """Add the results of all operations to values by number, and return those of objectives and of the reason."""
        walk(self._steps, values)
        return [values[i] for i in self.staged.objectives], values[self.staged.reason]


def _axis(name: str, columns: Mapping[str, np.ndarray], intervals_by_path: dict[str, Interval]) -> GridAxis:
    """Return an axis of a grid with the values of its leaves, or with an interval where it is continuous."""
    path = next(iter(columns))
    if path in intervals_by_path:
        return GridAxis(name, CELLS, {}, intervals_by_path[path])
    return GridAxis(name, len(columns[path]), {path: column.astype(np.float32) for path, column in columns.items()})


def sorted_mappings(grid: Grid) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return leaf path → value [mapping], sorted by degrees and options, and the index of each in the grid's pairs."""
    row, options = grid.pairs.T
    columns = {path: values[row] for path, values in grid.table.degrees.items()}
    columns |= {path: values[options] for path, values in grid.table.options.items()}
    order = np.lexsort([*columns.values()][::-1])
    return {path: values[order].astype(np.float32) for path, values in columns.items()}, order


def _rate_leaves(staged: StagedOperations) -> set[int]:
    """Return the numbers of the leaves that operations divide by: bandwidths and clocks, not latencies."""
    leaves_of_value = {i: {i} for i in staged.leaves.values()}
    rates = set[int]()
    for name, _, inputs, output in staged.operations:
        if name == "div":
            rates |= leaves_of_value.get(inputs[1], set())
        if name in ("mul", "min", "max", "select_n", "div"):
            operands = inputs[:1] if name == "div" else inputs
            leaves_of_value[output] = set().union(*(leaves_of_value.get(i, set()) for i in operands))
    return rates


def numbered_parts(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the block that each part is of, and its number among the parts of this block, from counts [block]."""
    parent = np.repeat(np.arange(len(counts)), counts)
    return parent, np.arange(len(parent)) - np.repeat(np.cumsum(counts) - counts, counts)


def single_designs(ranges: BlockRanges) -> tuple[BlockRanges, np.ndarray]:
    """Return every design of blocks as a block of its own, and the index of the block that it was in [design]."""
    sizes = ranges.stop - ranges.first
    counts = np.prod(sizes, axis=1)
    block_of_design, number = numbered_parts(counts)
    first = np.empty((len(block_of_design), sizes.shape[1]), sizes.dtype)
    for axis in reversed(range(sizes.shape[1])):
        number, digit = np.divmod(number, sizes[block_of_design, axis])
        first[:, axis] = ranges.first[block_of_design, axis] + digit
    return BlockRanges(first, first + 1), block_of_design
