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

from dse.lab.prove import forms
from dse.lab.prove.staged import Staged, staged
from dse.spec.search import Interval
from dse.sweep.engine.point import Program
from dse.sweep.grid.grid import Grid

#: Cells of a continuous axis.
CELLS = 1 << 30

#: What the ends of a cell may be off by: the logarithm's rounding in single precision.
_ROUNDING = 2e-6


class Ranges(NamedTuple):
    """Blocks: positions [block, axis] from the first to the one behind the last."""

    first: np.ndarray
    behind: np.ndarray

    def at(self, which: Any) -> Ranges:
        """Some of them."""
        return Ranges(self.first[which], self.behind[which])


class Axis(NamedTuple):
    """What moves along an axis."""

    name: str
    size: int
    columns: dict[str, np.ndarray]  #: leaf path → value at each position; of a continuous axis none
    interval: Interval | None = None

    @property
    def is_ordered(self) -> bool:
        """Whether half of the positions have half of the values: of one number, not of names."""
        return self.interval is not None or len(self.columns) == 1

    def at(self, position: np.ndarray) -> dict[str, np.ndarray]:
        """Leaf path → value at positions."""
        if self.interval is not None:
            return {self.interval.path: np.asarray(value_at(self.interval, position / CELLS), np.float32)}
        return {path: column[position] for path, column in self.columns.items()}

    def position(self, leaves: Mapping[str, float]) -> int:
        """Where leaves have these values."""
        if self.interval is None:
            same = [column == np.float32(leaves[path]) for path, column in self.columns.items()]
            return int(np.all(same, axis=0).argmax())
        low, high, value = self.interval.low, self.interval.high, leaves[self.interval.path]
        share = math.log(value / low) / math.log(high / low) if self.interval.log else (value - low) / (high - low)
        return min(max(round(share * CELLS), 0), CELLS - 1)

    def ends(self, first: np.ndarray, behind: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
        """Leaf path → least and most of each block; one array where all blocks have one position."""
        if self.interval is not None:
            low, high = (value_at(self.interval, cell / CELLS) for cell in (first, behind))
            edge = _ROUNDING * abs(high)
            return {self.interval.path: (np.asarray(low - edge, np.float32), np.asarray(high + edge, np.float32))}
        if (behind - first == 1).all():
            return {path: (column[first],) * 2 for path, column in self.columns.items()}
        return {path: between(column, first, behind) for path, column in self.columns.items()}


def value_at(interval: Interval, share: Any) -> Any:
    """The value of a continuous axis at a position in [0, 1], in double precision."""
    if interval.log:
        return interval.low * (interval.high / interval.low) ** share
    return interval.low + (interval.high - interval.low) * share


def between(column: np.ndarray, first: np.ndarray, behind: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and most of ranges of a column."""
    borders = np.stack([first, behind], axis=1).reshape(-1)
    padded = np.append(column, column[-1])
    return np.minimum.reduceat(padded, borders)[::2], np.maximum.reduceat(padded, borders)[::2]


class Blocks:
    """The designs of a grid of one structure, and what is computed of blocks of them."""

    def __init__(self, program: Program, grid: Grid, intervals: tuple[Interval, ...]) -> None:
        self.grid, self.program = grid, program
        known = {one.path: one for one in intervals}
        self.mappings, order = mappings(grid)
        dimensions = [_axis(one.name, one.columns, known) for one in grid.dimensions]
        self.axes = (Axis("mapping", len(order), self.mappings), *dimensions)
        moving = [path for one in grid.dimensions for path in one.columns]
        self.staged = staged(program, grid, moving, self.mappings)
        self.rates = _rates(self.staged)
        self.symbol = {i: symbol for symbol, i in enumerate(self.axis_of)}
        self._operations = [
            (forms.operation(name, given, len(self.symbol)), inputs, output)
            for name, given, inputs, output in self.staged.operations
        ]

    @property
    def whole(self) -> Ranges:
        """All designs as one block."""
        sizes = np.array([[axis.size for axis in self.axes]])
        return Ranges(np.zeros_like(sizes), sizes)

    @property
    def is_continuous(self) -> bool:
        """Whether some axis has values between its positions."""
        return any(axis.interval is not None for axis in self.axes)

    @functools.cached_property
    def is_listed(self) -> np.ndarray:
        """[axis] whether positions are mappings or names, of which half of the list says little."""
        return np.array([not number or not axis.is_ordered for number, axis in enumerate(self.axes)])

    @functools.cached_property
    def axis_of(self) -> dict[int, int]:
        """Value of a leaf → the axis that moves it."""
        return {
            self.staged.leaves[path]: number
            for number, axis in enumerate(self.axes)
            if number and axis.is_ordered
            for path in (axis.columns if axis.interval is None else [axis.interval.path])
        }

    def evaluated(self, ranges: Ranges) -> tuple[np.ndarray, np.ndarray]:
        """Objectives [design, objective] and reasons of single designs; of continuous axes at their cell's border."""
        values: dict[int, Any] = {i: np.atleast_1d(value) for i, value in self.staged.constants.items()}
        values |= {i: column[ranges.first[:, 0]] for i, column in self.staged.table.items()}
        for number, axis in enumerate(self.axes[1:], 1):
            values |= {self.staged.leaves[path]: v for path, v in axis.at(ranges.first[:, number]).items()}
        objectives, reason = self.computed(values)
        reason, *objectives = (np.broadcast_to(value, len(ranges.first)) for value in (reason, *objectives))
        return np.stack(objectives, axis=1), reason

    def limits(self, values: dict[int, Any]) -> list[forms.Form]:
        """Of computed values, what is not above 0 in designs that can run."""
        pairs = [(values[one], values[other]) for one, other in self.staged.limits]
        moved = (pair for pair in pairs if any(isinstance(x, forms.Form) for x in pair))
        return [forms.difference(one, other) for one, other in moved]

    def leaves(self, positions: np.ndarray) -> dict[str, np.ndarray]:
        """Leaf path → value of designs at positions [design, axis]."""
        along = zip(self.axes, positions.T, strict=False)  # more of them where another structure has more axes
        return {path: column for axis, at in along for path, column in axis.at(at).items()}

    def position(self, leaves: Mapping[str, float]) -> list[int]:
        """Positions of a design by its leaves; of continuous axes the nearest border of a cell."""
        return [axis.position(leaves) for axis in self.axes]

    def values(self, ranges: Ranges) -> dict[int, Any]:
        """Values of blocks before the first operation."""
        found: dict[int, Any] = {i: np.atleast_1d(value) for i, value in self.staged.constants.items()}
        for i, (low, high) in self.ends(ranges):
            if low is high:
                found[i] = low
            elif low.dtype.kind != "f":
                found[i] = low, high
            elif i in self.symbol:
                found[i] = forms.moved(low, high, self.symbol[i], len(self.symbol), i in self.rates)
            else:
                found[i] = forms.between(low, high, len(self.symbol))
        return found

    def ends(self, ranges: Ranges) -> Iterator[tuple[int, tuple[np.ndarray, np.ndarray]]]:
        """Least and most of what mappings decide and of leaves, by number."""
        first, behind = ranges.first[:, 0], ranges.behind[:, 0]
        one = (behind - first == 1).all()
        for i, column in self.staged.table.items():
            yield i, ((column[first],) * 2 if one else between(column, first, behind))
        for number, axis in enumerate(self.axes[1:], 1):
            for path, ends in axis.ends(ranges.first[:, number], ranges.behind[:, number]).items():
                yield self.staged.leaves[path], ends

    def computed(self, values: dict[int, Any]) -> tuple[list[Any], Any]:
        """Objectives and reasons."""
        with np.errstate(all="ignore"):
            for function, inputs, output in self._operations:
                values[output] = function(*[values[i] for i in inputs])
        return [values[i] for i in self.staged.objectives], values[self.staged.reason]


def _axis(name: str, columns: Mapping[str, np.ndarray], known: dict[str, Interval]) -> Axis:
    path = next(iter(columns))
    if path in known:
        return Axis(name, CELLS, {}, known[path])
    return Axis(name, len(columns[path]), {path: column.astype(np.float32) for path, column in columns.items()})


def mappings(grid: Grid) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Leaf path → value of each mapping by degrees and options, and the number of each in the grid's table."""
    row, column = grid.pairs.T
    found = {path: values[row] for path, values in grid.table.degrees.items()}
    found |= {path: values[column] for path, values in grid.table.options.items()}
    order = np.lexsort([*found.values()][::-1])
    return {path: values[order].astype(np.float32) for path, values in found.items()}, order


def _rates(staged: Staged) -> set[int]:
    """Leaves that something is divided by: bandwidths and clocks, not latencies."""
    of_leaf = {i: {i} for i in staged.leaves.values()}
    found = set[int]()
    for name, _, inputs, output in staged.operations:
        if name == "div":
            found |= of_leaf.get(inputs[1], set())
        if name in ("mul", "min", "max", "select_n", "div"):
            of_leaf[output] = set().union(*(of_leaf.get(i, set()) for i in (inputs[:1] if name == "div" else inputs)))
    return found


def designs(ranges: Ranges) -> tuple[Ranges, np.ndarray]:
    """Every design of blocks as a block of its own, and the number of the block it is of."""
    sizes = ranges.behind - ranges.first
    counts = np.prod(sizes, axis=1)
    of_block = np.repeat(np.arange(len(counts)), counts)
    number = np.arange(len(of_block)) - np.repeat(np.cumsum(counts) - counts, counts)
    first = np.empty((len(of_block), sizes.shape[1]), sizes.dtype)
    for axis in reversed(range(sizes.shape[1])):
        number, digit = np.divmod(number, sizes[of_block, axis])
        first[:, axis] = ranges.first[of_block, axis] + digit
    return Ranges(first, first + 1), of_block
