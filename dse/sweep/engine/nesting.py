"""Two-level evaluation: which axes of a sweep are the inner product, and where each design then lies.

A sweep is evaluated as outer index x inner product by two nested ``vmap``s. JAX gives every
intermediate only the levels that it depends on, so the work per design is the number of equations that
see both levels, plus those of the outer level shared among the inner product. A walk over the
model's equations tells which axes each one depends on; every choice of inner axes is then costed exactly.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from dse.doors.equations import Equations
from dse.sweep.grid.grid import Grid

#: An inner product longer than this no longer shares enough to pay for its memory.
LONGEST_INNER = 1000

#: A shorter one leaves the processor's vectors half empty: such a sweep is evaluated flat.
_SHORTEST_INNER = 16

#: What an equation of the outer level costs against one where both levels meet: it gathers and divides more, and its
#: result goes through memory (measured on two cores; anything from 5 to 15 chooses alike).
_OUTER_COST = 8.0

#: More axes than this are not all tried as inner ones, only those on which the fewest equations depend.
_MOST_TRIED = 12

#: Equations by the set of axes that they depend on.
AxisDependence = Counter[frozenset[int]]


def axis_dependence(equations: Equations, axes: Sequence[int | None]) -> AxisDependence:
    """How many equations depend on each set of axes; ``axes`` is the one each input moves along, None for none."""
    along = {i: frozenset() if axis is None else frozenset([axis]) for i, axis in enumerate(axes)}
    counts: AxisDependence = Counter()
    for equation in equations.equations:
        depends = frozenset().union(*(along[atom] for atom in equation.inputs if isinstance(atom, int)))
        along |= dict.fromkeys(equation.outputs, depends)
        counts[depends] += 1
    return counts


def work(counts: AxisDependence, inner: frozenset[int], length: int) -> float:
    """Work of a design: its equations where both levels meet, and a share of those of the outer level alone."""
    total = 0.0
    for depends, count in counts.items():
        if depends - inner:
            total += count if depends & inner else _OUTER_COST * count / length
    return total


def choose(counts: AxisDependence, sizes: dict[int, int]) -> frozenset[int]:
    """The inner axes that make the least work; none when even those do not pay.

    Args:
        counts: see :func:`axis_dependence`.
        sizes: length of each axis that may be an inner one.
    """
    weight = {axis: sum(n for depends, n in counts.items() if axis in depends) for axis in sizes}
    tried = sorted(sizes, key=lambda axis: (weight[axis], axis))[:_MOST_TRIED]
    best, least = frozenset[int](), work(counts, frozenset(), 1)
    for inner in map(frozenset, _subsets(tried)):
        length = math.prod(sizes[axis] for axis in inner)
        if _SHORTEST_INNER <= length <= LONGEST_INNER and (found := work(counts, inner, length)) < least:
            best, least = inner, found
    return best


def _subsets(items: list[int]) -> Iterator[tuple[int, ...]]:
    return itertools.chain.from_iterable(itertools.combinations(items, n) for n in range(len(items) + 1))


def option_axes(grid: Grid) -> list[dict[str, np.ndarray]]:
    """The axes whose product the columns of options are: leaf path → values; one axis when they are zipped."""
    options = grid.table.options
    values = {path: column[np.sort(np.unique(column, return_index=True)[1])] for path, column in options.items()}
    product = np.array(list(itertools.product(*values.values())))
    columns = np.stack(list(options.values()), axis=1)
    if product.shape == columns.shape and np.array_equal(product, columns):
        return [{path: column} for path, column in values.items()]
    return [dict(options)]


@dataclasses.dataclass(frozen=True)
class Nest:
    """A grid turned into outer index x inner product.

    The outer index is a mixed-radix number (outer dimensions…, row of degrees, outer options…), the
    inner one (inner dimensions…, inner options…). A *line* is what has one row and one position in
    every outer dimension: the unit that chunks and blocks are made of.
    """

    grid: Grid
    inner_dimensions: tuple[int, ...]
    inner_options: tuple[int, ...]

    @functools.cached_property
    def options(self) -> list[dict[str, np.ndarray]]:
        """See :func:`option_axes`."""
        return option_axes(self.grid)

    @functools.cached_property
    def outer_dimensions(self) -> tuple[int, ...]:
        """Positions of the dimensions that are not inner ones."""
        return tuple(i for i in range(len(self.grid.shape)) if i not in self.inner_dimensions)

    @functools.cached_property
    def outer_options(self) -> tuple[int, ...]:
        """Positions of the axes of options that are not inner ones."""
        return tuple(i for i in range(len(self.options)) if i not in self.inner_options)

    @functools.cached_property
    def option_shape(self) -> tuple[int, ...]:
        """Lengths of the axes of options."""
        return tuple(len(next(iter(axis.values()))) for axis in self.options)

    @property
    def outer_shape(self) -> tuple[int, ...]:
        """Radices of the outer index."""
        dimensions = (self.grid.shape[i] for i in self.outer_dimensions)
        return (*dimensions, self.grid.table.n_rows, *(self.option_shape[i] for i in self.outer_options))

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """Radices of the inner index."""
        dimensions = (self.grid.shape[i] for i in self.inner_dimensions)
        return (*dimensions, *(self.option_shape[i] for i in self.inner_options))

    @property
    def n_inner(self) -> int:
        """Length of the inner product."""
        return math.prod(self.inner_shape)

    @property
    def outer_a_line(self) -> int:
        """Outer indices of a line: the product of the outer options."""
        return math.prod(self.option_shape[i] for i in self.outer_options)

    @property
    def points_a_line(self) -> int:
        """Points of the grid that a line runs through: the product of the inner dimensions."""
        return math.prod(self.grid.shape[i] for i in self.inner_dimensions)

    @property
    def n_lines(self) -> int:
        """Lines of the sweep; one line is ``points_a_line`` of the grid's outer indices."""
        return self.grid.n_outer // self.points_a_line

    def start_digits(self, line: int) -> list[int]:
        """Digits of the first outer index of a line, in Python's integers: no size is too large."""
        outer, digits = line * self.outer_a_line, []
        for radix in reversed(self.outer_shape):
            outer, digit = divmod(outer, radix)
            digits.append(digit)
        return digits[::-1]

    def inner_columns(self) -> dict[str, np.ndarray]:
        """Leaf path → values along the inner product."""
        axes = [self.grid.dimensions[i].columns for i in self.inner_dimensions]
        axes += [self.options[i] for i in self.inner_options]
        digits = np.unravel_index(np.arange(self.n_inner), self.inner_shape) if axes else ()
        return {path: column[digits[i]] for i, axis in enumerate(axes) for path, column in axis.items()}

    @functools.cached_property
    def column_order(self) -> np.ndarray:
        """[outer options, inner options] the column of the mapping table there."""
        columns = np.arange(self.grid.table.n_columns).reshape(self.option_shape)
        return columns.transpose(*self.outer_options, *self.inner_options).reshape(self.outer_a_line, -1)

    @functools.cached_property
    def distinct(self) -> np.ndarray:
        """[row, outer options…, inner options] whether the pair is a mapping of the sweep."""
        lengths = (self.option_shape[i] for i in self.outer_options)
        return self.grid.table.distinct[:, self.column_order].reshape(self.grid.table.n_rows, *lengths, -1)

    def digits(self, index: np.ndarray) -> np.ndarray:
        """[radix, design] digits of the outer indices of designs; the nest has no inner axes."""
        digits, column = self.grid.locate(index)
        return np.stack([*digits, *np.unravel_index(column, self.option_shape)]).astype(np.int32)

    def place_of_column(self) -> np.ndarray:
        """[column of options] its place in a line of a nest without inner dimensions."""
        return np.argsort(self.column_order.reshape(-1))

    def design_index(self, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Index of the designs at these outer and inner indices (each of them a mapping)."""
        n = len(self.outer_dimensions), len(self.inner_dimensions)
        outer_digits = np.unravel_index(outer.astype(np.int64), self.outer_shape)
        inner_digits = np.unravel_index(inner, self.inner_shape) if self.inner_shape else ()
        digits = dict(zip(self.outer_dimensions, outer_digits, strict=False))
        digits |= dict(zip(self.inner_dimensions, inner_digits, strict=False))
        options = dict(zip(self.outer_options, outer_digits[n[0] + 1 :], strict=True))
        options |= dict(zip(self.inner_options, inner_digits[n[1] :], strict=True))
        column = np.ravel_multi_index([options[i] for i in range(len(options))], self.option_shape)
        row = [digits[i] for i in range(len(digits))] + [outer_digits[n[0]]]
        return self.grid.design_index(np.ravel_multi_index(row, (*self.grid.shape, self.grid.table.n_rows)), column)
