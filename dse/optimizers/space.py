"""The space of a search, feasible by construction: arrays on the device and pure functions of them.

A design has three views, all of them arrays of the same few numbers:

- the *unit cube* [0, 1]^d: what searchers of real vectors move in;
- *coordinates*: whole numbers, one for each discrete dimension, each degree of parallelism and each option, with
  the continuous axes still in [0, 1]: what searchers of ordered or categorical choices move in;
- a :class:`Point`: digits into the tables of the grid (dimensions…, row of the mapping table, options…), always a
  valid mapping and the one that stands for all its like.

Degrees are decoded by a tree over the rows of the mapping table: what is wanted of each degree in turn is taken to
the nearest value that the degrees before it leave possible. So every position is a valid mapping, and a degree
that may stay as it is does so when another moves. Options that change nothing at these degrees, and pairs
that no rule allows, go to their representative by table.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Generic, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

#: An array on the device (JAX), which may be traced, or on the host (NumPy).
ArrayT = TypeVar("ArrayT", Array, np.ndarray)


#: Stands among the leaves of designs of several structures for which of them a design has.
STRUCTURE = "structure"


class Point(NamedTuple, Generic[ArrayT]):
    """Designs as digits into a grid's tables and positions along its continuous axes."""

    digits: ArrayT  #: [..., digit] int32: dimensions…, row of degrees, options…
    reals: ArrayT  #: [..., continuous axis] float32 in [0, 1]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "columns",
        "shape_index_terms",
        "children",
        "row_of_leaf",
        "ranks",
        "neighbour_rows",
        "pattern",
        "representative",
        "option_digits",
        "designs_before",
        "first_leaf",
        "distinct_columns",
        "low",
        "span",
        "structure",
        "has_digits",
        "has_reals",
    ],
    meta_fields=["sizes", "radices", "row_digit", "level_of", "names", "paths", "logs", "n_designs"],
)
@dataclasses.dataclass(frozen=True)
class Space:
    """The tables of a space, in which a *leaf* is a row of degrees that is valid for a shape."""

    columns: tuple[dict[str, Array], ...]  #: by digit: leaf path → value at each position
    shape_index_terms: tuple[Array, ...]  #: by dimension: [position] term of the index of the shape
    children: tuple[Array, ...]  #: by level of the tree: [node, wanted rank] node of the next level
    row_of_leaf: Array  #: [leaf] row of degrees
    ranks: Array  #: [row, level] rank of each degree that varies
    neighbour_rows: Array  #: [leaf, direction] the row one step away, its own where there is none
    pattern: Array  #: [leaf] which row of ``representative`` holds
    representative: Array  #: [pattern, column] the column of options that stands for this one
    option_digits: Array  #: [column, option]
    designs_before: Array  #: [leaf] mappings of the leaves before it, of all shapes
    first_leaf: Array  #: [shape + 1]
    distinct_columns: Array  #: [pattern, n] the columns that stand for themselves, then whatever
    low: Array  #: [continuous axis] lower end, of the logarithm where it is spaced so
    span: Array  #: [continuous axis] and the way to the upper end
    structure: Array | None  #: [shape] index of the grid's member; None where all designs have one structure
    has_digits: Array | None  #: [shape, dimension] whether its designs have the dimension: else they stand at its first
    has_reals: Array | None  #: [shape, continuous axis] the same of continuous axes
    sizes: tuple[int, ...]  #: of the digits
    radices: tuple[int, ...]  #: of the coordinates: digits before the row, levels of the tree, options
    row_digit: int  #: position of the row among the digits
    level_of: tuple[str, ...]  #: leaf path of each level of the tree
    names: tuple[str, ...]  #: of the coordinates, then of the continuous axes
    paths: tuple[str, ...]  #: of the continuous axes
    logs: tuple[bool, ...]  #: which of them are spaced by the logarithm
    n_designs: int  #: distinct designs, the continuous axes apart

    @property
    def size(self) -> float:
        """Number of distinct designs, infinite with continuous axes."""
        return float("inf") if self.paths else self.n_designs

    @property
    def cube_coordinates(self) -> tuple[int, ...]:
        """Indices of the coordinates with more than one value: the first axes of the unit cube."""
        return tuple(i for i, radix in enumerate(self.radices) if radix > 1)

    @property
    def n_cube(self) -> int:
        """Number of dimensions of the unit cube."""
        return len(self.cube_coordinates) + len(self.paths)

    @property
    def n_levels(self) -> int:
        """Number of degrees that vary."""
        return len(self.level_of)

    @property
    def n_directions(self) -> int:
        """Number of neighbours of :func:`neighbours`, equal designs included."""
        n_choices = len(self.sizes) - 1
        return 2 * n_choices + self.neighbour_rows.shape[1] + 2 * len(self.paths)


# --- from the cube and from coordinates to points ---------------------------------------------------------


def decode(space: Space, cube: Array) -> Point:
    """Return the designs at positions [..., axis] of the unit cube, those outside it moved to its border."""
    n_discrete, cells = len(space.cube_coordinates), [jnp.zeros(cube.shape[:-1], jnp.int32)] * len(space.radices)
    for axis, coordinate in enumerate(space.cube_coordinates):
        cells[coordinate] = _cell(cube[..., axis], space.radices[coordinate])
    return from_coordinates(space, jnp.stack(cells, axis=-1), jnp.clip(cube[..., n_discrete:], 0.0, 1.0))


def _cell(position: Array, radix: int | Array) -> Array:
    """Return the index of the cell of a position, among ``radix`` equal cells of [0, 1]."""
    return jnp.clip(jnp.floor(position * jnp.float32(radix)).astype(jnp.int32), 0, radix - 1)


def encode(space: Space, point: Point) -> Array:
    """Return the middle [..., axis] of the cells of the cube that hold these designs: ``decode(encode(p)) == p``."""
    cell_indices = coordinates(space, point)
    centres = [
        (cell_indices[..., i].astype(jnp.float32) + 0.5) / float(space.radices[i]) for i in space.cube_coordinates
    ]
    return jnp.concatenate([jnp.stack(centres, axis=-1), point.reals], axis=-1) if centres else point.reals


def coordinates(space: Space, point: Point) -> Array:
    """Return the discrete coordinates [..., coordinate] of points: dimensions, ranks of degrees, options.

    With ``point.reals`` they determine the point.
    """
    dimension_digits, row_index, option_digits = _split(space, point.digits)
    return jnp.concatenate([dimension_digits, _gather(space.ranks, row_index), option_digits], axis=-1)


def from_coordinates(space: Space, coordinates: Array, reals: Array) -> Point:
    """Return the valid design nearest to coordinates [..., coordinate] within their radices."""
    dimension_digits, ranks = (
        coordinates[..., : space.row_digit],
        coordinates[..., space.row_digit : space.row_digit + space.n_levels],
    )
    dimension_digits, reals = _reset_absent_axes(space, dimension_digits, reals)
    leaf_index = _leaf_index(space, dimension_digits, ranks)
    options = _representative_options(space, leaf_index, coordinates[..., space.row_digit + space.n_levels :])
    row_index = _gather(space.row_of_leaf, leaf_index)
    return Point(jnp.concatenate([dimension_digits, row_index[..., None], options], axis=-1), reals)


def canonical(space: Space, point: Point) -> Point:
    """Return points with their digits moved to the nearest valid mapping and its representative."""
    return from_coordinates(space, coordinates(space, point), jnp.clip(point.reals, 0.0, 1.0))


def _split(space: Space, digits: Array) -> tuple[Array, Array, Array]:
    """Return dimension digits [..., dimension], row index [...] and option digits [..., option] of ``digits``."""
    row_digit = space.row_digit
    return digits[..., :row_digit], digits[..., row_digit], digits[..., row_digit + 1 :]


def _leaf_index(space: Space, dimension_digits: Array, ranks: Array) -> Array:
    """Return the index of the leaf nearest to the wanted ranks [..., level] of the degrees, at these dimensions."""
    node = _shape_index(space, dimension_digits)
    for level, table in enumerate(space.children):
        node = _gather(table, node, ranks[..., level])
    return node


def row_at(space: Space, dimension_digits: Array, ranks: Array) -> Array:
    """Return the index of the row of degrees nearest to the wanted ranks [..., level] at these dimensions."""
    return _gather(space.row_of_leaf, _leaf_index(space, dimension_digits, ranks))


def _shape_index(space: Space, dimension_digits: Array) -> Array:
    """Return the index of the shape at these dimensions."""
    on_host = isinstance(dimension_digits, np.ndarray)
    shape_index = (np if on_host else jnp).zeros(dimension_digits.shape[:-1], np.int32)
    for dimension, terms in enumerate(space.shape_index_terms):
        shape_index = shape_index + _gather(terms, dimension_digits[..., dimension])
    return shape_index


def _reset_absent_axes(space: Space, dimension_digits: Array, reals: Array) -> tuple[Array, Array]:
    """Return dimension digits and continuous axes, 0 along those that the design's structure lacks."""
    if space.has_digits is None or space.has_reals is None:
        return dimension_digits, reals
    has_digits, has_reals = (has[_shape_index(space, dimension_digits)] for has in (space.has_digits, space.has_reals))
    return jnp.where(has_digits, dimension_digits, 0), jnp.where(has_reals, reals, 0.0)


def _representative_options(space: Space, leaf_index: Array, options: Array) -> Array:
    """Return the digits [..., option] of the options that stand for these at a leaf (index)."""
    radices = space.sizes[space.row_digit + 1 :]
    column_index = jnp.zeros(leaf_index.shape, jnp.int32)
    for position, radix in enumerate(radices):
        column_index = column_index * radix + options[..., position]
    pattern = _gather(space.pattern, leaf_index)
    column_index = _gather(space.representative, pattern, column_index)
    return _gather(space.option_digits, column_index)


# --- from points to leaves of designs ---------------------------------------------------------------------


def values(space: Space, point: Point) -> dict[str, Array]:
    """Return full path → values [...] of every leaf that the space sets, and of ``STRUCTURE`` where there are several.

    Args:
        space: the tables.
        point: points [...], on the device or on the host.
    """
    leaf_values = {
        path: _gather(column, point.digits[..., digit])
        for digit, columns in enumerate(space.columns)
        for path, column in columns.items()
    }
    leaf_values |= real_values(space, point.reals)
    if space.structure is not None:
        leaf_values[STRUCTURE] = _gather(
            space.structure, _shape_index(space, point.digits[..., : space.row_digit])
        ).astype(jnp.float32)
    return leaf_values


def _gather(table: Array, *indices: Array) -> Array:
    """Return the entries of a table at indices, one array per leading axis; by NumPy where these are on the host.

    JAX's own indexing allows for places from the end, and takes ten times as long to trace.
    """
    if isinstance(indices[0], np.ndarray):
        return np.asarray(table)[indices]
    n_indices, ndim = len(indices), indices[0].ndim
    dimensions = lax.GatherDimensionNumbers(
        offset_dims=tuple(range(ndim, ndim + table.ndim - n_indices)),
        collapsed_slice_dims=tuple(range(n_indices)),
        start_index_map=tuple(range(n_indices)),
    )
    index = lax.concatenate([lax.expand_dims(axis_indices, (ndim,)) for axis_indices in indices], ndim)
    return lax.gather(table, index, dimensions, (*[1] * n_indices, *table.shape[n_indices:]), mode="promise_in_bounds")


def leaf_paths(space: Space) -> tuple[str, ...]:
    """Return the full paths of every leaf that the space sets, and ``STRUCTURE`` where designs have several."""
    structure_path = () if space.structure is None else (STRUCTURE,)
    return (*(path for columns in space.columns for path in columns), *space.paths, *structure_path)


def real_values(space: Space, reals: Array) -> dict[str, Array]:
    """Return full path → values of the continuous axes at positions [..., axis] in [0, 1]."""
    values_by_path = {}
    for axis, (path, log) in enumerate(zip(space.paths, space.logs, strict=True)):
        value = space.low[axis] + reals[..., axis] * space.span[axis]
        values_by_path[path] = jnp.exp(value) if log else value
    return values_by_path


# --- samples and neighbours -------------------------------------------------------------------------------


def sample(space: Space, key: Array, shape: tuple[int, ...] = ()) -> Point:
    """Return random designs: dimensions and continuous axes uniform, then uniform over the mappings that fit them.

    Args:
        space: the tables.
        key: of JAX's random numbers.
        shape: leading axes of the points.
    """
    keys = jax.random.split(key, 3)
    cube = jax.random.uniform(keys[0], (*shape, space.row_digit))
    digits = [_cell(cube[..., i], size) for i, size in enumerate(space.sizes[: space.row_digit])]
    dimension_digits = jnp.stack(digits, axis=-1) if digits else jnp.zeros((*shape, 0), jnp.int32)
    shape_index = _shape_index(space, dimension_digits)
    first, last = (_gather(space.designs_before, _gather(space.first_leaf, shape_index + i)) for i in (0, 1))
    mapping_index = jax.random.randint(keys[1], shape, first, last)
    leaf_index = jnp.searchsorted(space.designs_before, mapping_index, side="right").astype(jnp.int32) - 1
    column = mapping_index - _gather(space.designs_before, leaf_index)
    column_index = _gather(space.distinct_columns, _gather(space.pattern, leaf_index), column)
    row_index, options = _gather(space.row_of_leaf, leaf_index), _gather(space.option_digits, column_index)
    reals = jax.random.uniform(keys[2], (*shape, len(space.paths)))
    dimension_digits, reals = _reset_absent_axes(space, dimension_digits, reals)
    return Point(jnp.concatenate([dimension_digits, row_index[..., None], options], axis=-1), reals)


def neighbours(space: Space, point: Point, step: Any = 1.0 / 16.0) -> tuple[Point, Array]:
    """Return the points [direction] one step away, and a mask of other designs that needed no repair.

    Dimensions and options move by one place, continuous axes by ``step``, and the degrees to the next mapping along
    each way in which one of them changes alone, or two of them at the same product. A step that leads to no valid
    mapping is repaired as :func:`canonical` does; those that need no repair can be taken back.

    Args:
        space: the tables.
        point: one point, without leading axes.
        step: of continuous axes, as a share of their length.
    """
    n_rows, n_choices, n_reals = space.neighbour_rows.shape[1], len(space.sizes) - 1, len(space.paths)
    is_row = (np.arange(len(space.sizes)) == space.row_digit)[None]
    dimension_digits, row_index, _ = _split(space, point.digits)
    rows = jnp.concatenate(
        [
            row_index[None],
            _gather(space.neighbour_rows, _leaf_index(space, dimension_digits, _gather(space.ranks, row_index))),
        ]
    )
    row_indices = np.pad(1 + np.arange(n_rows, dtype=np.int32), (2 * n_choices, 2 * n_reals))
    rows = _gather(rows, jnp.asarray(row_indices))  # XLA compiles gathers faster than copies
    moves = np.insert(_moves(n_choices, 0, n_rows + 2 * n_reals), space.row_digit, 0, axis=1)
    digits = jnp.clip(point.digits[None] + moves, 0, np.array([space.sizes], np.int32) - 1)
    reals = point.reals[None] + _moves(n_reals, 2 * n_choices + n_rows, 0).astype(np.float32) * step
    shifted = Point(jnp.where(is_row, rows[:, None], digits), jnp.clip(reals, 0.0, 1.0))
    repaired = canonical(space, shifted)
    is_unrepaired = jnp.all(repaired.digits == shifted.digits, axis=-1)
    digits, reals = (jnp.broadcast_to(old, new.shape) for old, new in zip(point, repaired, strict=True))
    is_other = jnp.any(repaired.digits != digits, axis=-1) | jnp.any(repaired.reals != reals, axis=-1)
    return repaired, is_unrepaired & is_other


def _moves(n: int, n_before: int, n_after: int) -> np.ndarray:
    """Return steps [direction, position] of -1, 0 and 1: ``n_before`` of none, two a position, ``n_after`` of none."""
    steps = np.kron(np.eye(n, dtype=np.int32), np.array([[-1], [1]], np.int32))
    return np.pad(steps, ((n_before, n_after), (0, 0)))
