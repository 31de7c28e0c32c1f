"""Which axes of a sweep are the inner product, its two factors, and the index of each design in the nest.

A sweep is evaluated as outer index x inner product. An equation is computed once for each combination of what it
depends on: the outer index alone, the outer index and one of two factors of the inner axes, or all of them. A walk over
the model's equations tells on which axes each one depends; every choice of inner axes and factors is then costed. Where
no score or reason depends on both factors they are *separable*: what is asked of their product (the least, the counts)
follows from each, and the product is never computed.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dse.equations import Equations
from dse.equations.equation import Atom
from dse.sweep.engine.options import option_axes
from dse.sweep.grid.grid import Grid

#: Maximum size of a factor of the inner product, and of the product: longer ones share too little for their memory.
MAX_FACTOR, MAX_INNER = 1000, 4000

#: Outer indices of a chunk, at most: ``start + iota`` is exact in int32 while both stay below this.
LONGEST_CHUNK = 1 << 21

#: Minimum size of the inner product: a shorter one shares too little for what stages hand on.
_MIN_INNER = 16

#: What an equation of the outer index costs against one of the inner product: it divides more, and its result goes
#: through memory (measured on two cores; anything from 2 to 8 chooses alike).
_OUTER_COST = 3.0

#: Cost of a value that one factor hands to the product, to be written and read, in equations of the product.
_TRANSFER_COST = 8.0

#: Cost of an index of a factor or of the product besides its equations (masks, minima, counts), in equations.
_INNER_INDEX_COST = 8.0

#: Maximum number of axes that are tried as inner ones, those on which the fewest equations depend.
_MAX_CANDIDATES = 8

#: Array axes: the outer index and both factors of the inner axes. What depends on several has the sum of them.
OUTER, FIRST, SECOND = 1, 2, 4


class Inner(NamedTuple):
    """Inner axes: those of each factor, and whether no score depends on both factors."""

    first: tuple[int, ...] = ()
    second: tuple[int, ...] = ()
    separable: bool = False


class Dependence(NamedTuple):
    """The axes on which equations and outputs depend, as sums of ``1 << axis``."""

    counts: Counter[int]  #: equations by the axes that they depend on
    passed: Counter[tuple[int, int]]  #: values by their axes and all axes of what they are used for
    outputs: frozenset[int]  #: axes of each score and reason


def axis_dependence(equations: Equations, axes: Sequence[int | None], outputs: Sequence[Atom] = ()) -> Dependence:
    """Return, as sums of ``1 << axis``, the axes on which the equations depend that the outputs need.

    Args:
        equations: of the model.
        axes: the axis along which each input varies, None for none.
        outputs: scores and reasons; by default all outputs of the equations.
    """
    outputs = outputs or equations.outputs
    axis_bits = {i: 0 if axis is None else 1 << axis for i, axis in enumerate(axes)}
    counts: Counter[int] = Counter()
    users: dict[int, int] = {}
    for equation in equations.part((), outputs).equations:
        variables = [atom for atom in equation.inputs if isinstance(atom, int)]
        bits = functools.reduce(operator.or_, (axis_bits[atom] for atom in variables), 0)
        axis_bits |= dict.fromkeys(equation.outputs, bits)
        counts[bits] += 1
        for atom in variables:
            users[atom] = users.get(atom, 0) | bits
    passed = Counter((axis_bits[atom], user_bits) for atom, user_bits in users.items() if atom >= equations.n_inputs)
    return Dependence(counts, passed, frozenset(axis_bits[atom] for atom in outputs if isinstance(atom, int)))


def cost_per_design(dependence: Dependence, inner: Inner, sizes: Mapping[int, int], density: float = 1.0) -> float:
    """Return the estimated cost of a design, in units of one equation of the inner product.

    An equation of the outer index costs 3 and one of a factor 1, each shared among the designs that it serves; what
    depends on no axis costs 0. A value that a factor hands to the product costs 8, and so does every inner index (of
    each factor where they are separable, else of the product).

    Args:
        dependence: see :func:`axis_dependence`.
        inner: the inner axes.
        sizes: axis → its size.
        density: share of (outer, inner) index pairs that are designs.
    """
    first, second = _bits(inner.first), _bits(inner.second)
    factor_sizes = [math.prod(sizes[axis] for axis in factor) for factor in (inner.first, inner.second)]
    n_indices = np.array([1, factor_sizes[0], factor_sizes[1], factor_sizes[0] * factor_sizes[1]], np.float64)

    def level(bits: np.ndarray) -> np.ndarray:
        return np.minimum(bits & first, 1) + 2 * np.minimum(bits & second, 1)

    axes, counts = np.array([*dependence.counts.items()], np.int64).reshape(-1, 2).T
    cost = np.where(axes == 0, 0.0, np.where(level(axes) == 0, _OUTER_COST, 1.0))
    total = float((counts * cost * n_indices[level(axes)]).sum())
    if second:
        axes, users, counts = np.array([(*key, n) for key, n in dependence.passed.items()], np.int64).reshape(-1, 3).T
        is_passed = (level(axes) > 0) & (level(users) != level(axes))
        total += _TRANSFER_COST * float((counts * n_indices[level(axes)])[is_passed].sum())
    if first:
        total += _INNER_INDEX_COST * (sum(factor_sizes) if inner.separable else n_indices[-1])
    return total / float(n_indices[-1]) / density


def _bits(axes: Iterable[int]) -> int:
    """Return the sum of ``1 << axis``."""
    return sum(1 << axis for axis in axes)


def choose_inner(
    dependence: Dependence,
    sizes: Mapping[int, int],
    unsplit_axes: Sequence[int] = (),
    density: Callable[[tuple[int, ...]], float] = lambda _: 1.0,
) -> Inner:
    """Return the inner axes and factors of the least cost per design; no inner axes where none saves any.

    Args:
        dependence: see :func:`axis_dependence`.
        sizes: length of each axis that may be an inner one.
        unsplit_axes: axes that must be in one factor where the factors are separable.
        density: function of the inner axes that returns the share of index pairs that are designs, at most 1.
    """
    weight = {axis: sum(n for axes, n in dependence.counts.items() if axes >> axis & 1) for axis in sizes}
    candidates = sorted(sizes, key=lambda axis: (weight[axis], axis))[:_MAX_CANDIDATES]
    best, best_cost = _FLAT, cost_per_design(dependence, _FLAT, sizes, density(()))
    for inner in _inner_choices(candidates, sizes, {*dependence.outputs, _bits(unsplit_axes)}):
        min_cost = cost_per_design(dependence, inner, sizes)
        if min_cost < best_cost and (cost := min_cost / density((*inner.first, *inner.second))) < best_cost:
            best, best_cost = inner, cost
    return best


def _inner_choices(candidates: list[int], sizes: Mapping[int, int], output_axes: set[int]) -> Iterator[Inner]:
    """Yield every choice of inner axes and of their factors of 16 indices or more, within the maximum sizes."""
    for axes in map(sorted, _subsets(candidates)):
        length = math.prod(sizes[axis] for axis in axes)
        if length < _MIN_INNER:
            continue
        if length <= MAX_FACTOR:
            yield Inner(tuple(axes))
        for second in _subsets(axes[1:]):
            first = tuple(axis for axis in axes if axis not in second)
            factor_sizes = [math.prod(sizes[axis] for axis in factor) for factor in (first, second)]
            if second and max(factor_sizes) <= MAX_FACTOR:
                separable = not any(bits & _bits(first) and bits & _bits(second) for bits in output_axes)
                if separable or length <= MAX_INNER:
                    yield Inner(first, second, separable)


def _subsets(items: list[int]) -> Iterator[tuple[int, ...]]:
    """Return an iterator over all subsets of these items, as tuples: the empty one first, then by size."""
    return itertools.chain.from_iterable(itertools.combinations(items, n) for n in range(len(items) + 1))


#: No inner axes.
_FLAT = Inner()


@dataclasses.dataclass(frozen=True)
class Nest:
    """A grid turned into outer index x inner product.

    Axes are numbered: the grid's dimensions, then the axes of options. The outer index is a mixed-radix number (outer
    dimensions…, mask row). A *mask row* is a row of degrees with a value of every outer option that some mapping has.
    The inner index is (axes of the first factor…, of the second…). A *line* has one row of degrees and one value of
    every outer dimension: the unit of blocks.
    """

    grid: Grid
    inner: Inner = _FLAT

    @functools.cached_property
    def axes(self) -> list[dict[str, np.ndarray]]:
        """By axis: leaf path → its values along the axis."""
        return [*(dimension.columns for dimension in self.grid.dimensions), *option_axes(self.grid)]

    @functools.cached_property
    def sizes(self) -> list[int]:
        """Number of values of each axis."""
        n = len(self.grid.shape)
        return [*self.grid.shape, *(len(next(iter(axis.values()))) for axis in self.axes[n:])]

    @property
    def inner_axes(self) -> tuple[int, ...]:
        """The inner axes, in the order of the inner index."""
        return (*self.inner.first, *self.inner.second)

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The inner axes by group of scores: each factor alone where they are separable, else all in one group."""
        return (self.inner.first, self.inner.second) if self.inner.separable else (self.inner_axes,)

    @functools.cached_property
    def outer_dimensions(self) -> tuple[int, ...]:
        """The dimensions that are not inner ones."""
        return tuple(axis for axis in range(len(self.grid.shape)) if axis not in self.inner_axes)

    @functools.cached_property
    def outer_options(self) -> tuple[int, ...]:
        """The axes of options that are not inner ones."""
        return tuple(axis for axis in range(len(self.grid.shape), len(self.sizes)) if axis not in self.inner_axes)

    def axis_sizes(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Return the number of values of each of these axes."""
        return tuple(self.sizes[axis] for axis in axes)

    @functools.cached_property
    def inner_options(self) -> tuple[int, ...]:
        """The inner axes that are options."""
        return tuple(axis for axis in self.inner_axes if axis >= len(self.grid.shape))

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """Radices of the inner index."""
        return self.axis_sizes(self.inner_axes)

    @property
    def n_inner(self) -> int:
        """Number of inner indices."""
        return math.prod(self.inner_shape)

    @functools.cached_property
    def factor_sizes(self) -> tuple[int, int]:
        """Sizes of both factors of the inner product."""
        return math.prod(self.axis_sizes(self.inner.first)), math.prod(self.axis_sizes(self.inner.second))

    @functools.cached_property
    def scores_per_outer(self) -> int:
        """Number of inner indices over all groups, for which an outer index has scores."""
        return sum(math.prod(self.axis_sizes(axes)) for axes in self.groups)

    # --- mask rows --------------------------------------------------------------------------------------

    @functools.cached_property
    def _column_order(self) -> np.ndarray:
        """[outer options, inner options] index of the mapping table's column."""
        n = len(self.grid.shape)
        columns = np.arange(self.grid.table.n_columns).reshape(self.sizes[n:])
        order = [axis - n for axis in (*self.outer_options, *self.inner_options)]
        return columns.transpose(order).reshape(math.prod(self.axis_sizes(self.outer_options)), -1)

    @functools.cached_property
    def mask_row_digits(self) -> tuple[np.ndarray, ...]:
        """By digit (row of degrees, value of each outer option…) [mask row] its index."""
        return self._mask_table[0]

    @functools.cached_property
    def mask(self) -> np.ndarray:
        """[mask row, inner options] True for a mapping."""
        return self._mask_table[1]

    @functools.cached_property
    def _mask_table(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
        """(:attr:`mask_row_digits`, :attr:`mask`), from the pairs of the mapping table."""
        distinct = np.take(self.grid.table.distinct, self._column_order, axis=1)
        row, option = np.nonzero(distinct.any(axis=-1))
        options = np.unravel_index(option, self.axis_sizes(self.outer_options)) if self.outer_options else ()
        return (row, *options), distinct[row, option]

    @property
    def n_mask_rows(self) -> int:
        """Number of mask rows."""
        return len(self.mask_row_digits[0])

    @functools.cached_property
    def _mask_rows_before(self) -> np.ndarray:
        """[row of degrees] number of mask rows before it, and their total at the end."""
        return np.searchsorted(self.mask_row_digits[0], np.arange(self.grid.table.n_rows + 1))

    @functools.cached_property
    def outer_shape(self) -> tuple[int, ...]:
        """Radices of the outer index."""
        return (*self.axis_sizes(self.outer_dimensions), self.n_mask_rows)

    @functools.cached_property
    def n_outer(self) -> int:
        """Number of outer indices."""
        return math.prod(self.outer_shape)

    @functools.cached_property
    def points_per_line(self) -> int:
        """Number of points of the grid in a line: the product of the inner dimensions."""
        return math.prod(self.sizes[axis] for axis in self.inner_axes if axis < len(self.grid.shape))

    @property
    def n_lines(self) -> int:
        """Number of lines of the sweep; a line is ``points_per_line`` rows of the grid (``Grid.n_outer``)."""
        return self.grid.n_outer // self.points_per_line

    def line_start(self, line: int) -> int:
        """Return the outer index at which a line begins."""
        point, row = divmod(line, self.grid.table.n_rows)
        return point * self.n_mask_rows + int(self._mask_rows_before[row])

    def max_outer_in(self, n_lines: int) -> int:
        """Return the largest number of outer indices that ``n_lines`` consecutive lines have."""
        n_degree_rows = self.grid.table.n_rows
        n_points, n_rest = divmod(n_lines, n_degree_rows)
        twice = np.concatenate([self._mask_rows_before, self.n_mask_rows + self._mask_rows_before[1:]])
        return n_points * self.n_mask_rows + int((twice[n_rest:] - twice[: len(twice) - n_rest]).max())

    def start_digits(self, outer: int) -> list[int]:
        """Return the digits of an outer index, most significant first, as Python's integers of any size."""
        digits = []
        for radix in reversed(self.outer_shape):
            outer, digit = divmod(outer, radix)
            digits.append(digit)
        return digits[::-1]

    # --- values -----------------------------------------------------------------------------------------

    def outer_columns(self) -> list[dict[str, np.ndarray]]:
        """Return by digit of the outer index: leaf path → [value of the digit] value of the leaf."""
        row, *options = self.mask_row_digits
        mapping_columns = {path: values[row] for path, values in self.grid.table.degrees.items()}
        for axis, index in zip(self.outer_options, options, strict=True):
            mapping_columns |= {path: values[index] for path, values in self.axes[axis].items()}
        return [*(self.axes[axis] for axis in self.outer_dimensions), mapping_columns]

    def columns_along(self, axes: Sequence[int]) -> dict[str, np.ndarray]:
        """Return leaf path → [index along the product of these axes] values."""
        shape = self.axis_sizes(axes)
        digits = np.unravel_index(np.arange(math.prod(shape)), shape) if axes else ()
        tables = zip((self.axes[axis] for axis in axes), digits, strict=True)
        return {path: values[index] for table, index in tables for path, values in table.items()}

    def mask_columns(self, axes: Sequence[int]) -> np.ndarray:
        """Return [index along the product of axes] index of the mask's column, 0 where none of them is an option."""
        shape = self.axis_sizes(axes)
        digits = dict(zip(axes, np.unravel_index(np.arange(math.prod(shape)), shape) if axes else (), strict=True))
        options = [axis for axis in self.inner_options if axis in digits]
        if not options:
            return np.zeros(math.prod(shape), np.int64)
        return np.ravel_multi_index([digits[axis] for axis in options], self.axis_sizes(options))

    # --- designs ----------------------------------------------------------------------------------------

    def design_index(self, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Return [design] design indices from [design] outer and inner indices, each pair a mapping."""
        *dimensions, mask_row = np.unravel_index(outer.astype(np.int64), self.outer_shape)
        row, *options = (digits[mask_row] for digits in self.mask_row_digits)
        digits = dict(zip(self.outer_dimensions, dimensions, strict=True))
        digits |= dict(zip(self.outer_options, options, strict=True))
        if self.inner_axes:
            digits |= dict(zip(self.inner_axes, np.unravel_index(inner, self.inner_shape), strict=True))
        n = len(self.grid.shape)
        column = np.ravel_multi_index([digits[i] for i in range(n, len(self.sizes))], self.sizes[n:])
        of_grid = [*(digits[i] for i in range(n)), row]
        return self.grid.design_index(np.ravel_multi_index(of_grid, (*self.grid.shape, self.grid.table.n_rows)), column)

    def mappings_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return [mapping] (index into ``rows``, mask row, inner index) of all mappings of some rows of degrees.

        Mappings are in the order of designs. The nest must have no inner dimensions.
        """
        row_index, column = np.nonzero(self.grid.table.distinct[rows])
        option, inner = np.divmod(np.argsort(self._column_order.reshape(-1))[column], self._column_order.shape[1])
        return row_index, self._mask_row_numbers[rows[row_index], option], inner

    @functools.cached_property
    def _mask_row_numbers(self) -> np.ndarray:
        """[row of degrees, outer options] its mask row, 0 where no mapping has them."""
        row, *options = self.mask_row_digits
        sizes = self.axis_sizes(self.outer_options)
        numbers = np.zeros((self.grid.table.n_rows, math.prod(sizes)), np.int64)
        numbers[row, np.ravel_multi_index(options, sizes) if options else 0] = np.arange(len(row))
        return numbers
