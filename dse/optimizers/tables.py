"""The tables of a space, made of a grid on the host."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.model import Shape
from dse.model.divisibility import SHAPE_PATHS
from dse.optimizers.space import Space
from dse.spec.search import Interval
from dse.sweep import Grid
from dse.sweep.engine.options import option_axes
from dse.sweep.grid import mappings
from dse.sweep.grid.grid import Member


def build(grid: Grid, intervals: tuple[Interval, ...] = ()) -> Space:
    """Return the space of a grid whose axes ``intervals`` are continuous, with its tables on the device."""
    options = option_axes(grid)
    columns = [*(dimension.columns for dimension in grid.dimensions), grid.table.degrees, *options]
    shapes = _structure_shapes(grid) if grid.members else _single_structure_shapes(grid, *_shapes(grid))
    leaves = _leaves(grid, shapes.shapes)
    tree = _tree(leaves.shape_index, leaves.degrees, len(shapes.shapes))
    patterns, pattern = np.unique(leaves.mask[tree.leaves], axis=0, return_inverse=True)
    counts = leaves.mask[tree.leaves].sum(axis=1)
    design_offsets = np.concatenate([[0], np.cumsum(counts)])
    sizes = tuple(len(next(iter(column_by_path.values()))) for column_by_path in columns)
    n_dimensions = len(grid.dimensions)
    by_shape = np.bincount(leaves.shape_index[tree.leaves], counts, minlength=len(shapes.shapes)).astype(np.int64)
    arrays: dict[str, Any] = dict(
        columns=tuple(
            {path: _float32(column) for path, column in column_by_path.items()} for column_by_path in columns
        ),
        shape_index_terms=tuple(terms.astype(np.int32) for terms in shapes.index_terms),
        children=tuple(tree.children),
        row_of_leaf=leaves.row[tree.leaves].astype(np.int32),
        ranks=_ranks(leaves, tree, grid.table.n_rows),
        neighbour_rows=_neighbours(leaves, tree),
        pattern=pattern.reshape(-1).astype(np.int32),
        representative=np.stack([_representatives(mask, grid.table.options) for mask in patterns]).astype(np.int32),
        option_digits=np.stack(np.unravel_index(np.arange(grid.table.n_columns), sizes[n_dimensions + 1 :]), 1).astype(
            np.int32
        ),
        designs_before=design_offsets.astype(np.int32),
        first_leaf=tree.first_leaf.astype(np.int32),
        distinct_columns=np.argsort(~patterns, axis=1, kind="stable").astype(np.int32),
        low=np.array([math.log(i.low) if i.log else i.low for i in intervals], np.float32),
        span=np.array([math.log(i.high / i.low) if i.log else i.high - i.low for i in intervals], np.float32),
        **_structures(grid, shapes, intervals),
    )
    return Space(
        **jax.device_put(arrays),
        sizes=sizes,
        radices=(*sizes[:n_dimensions], *tree.radices, *sizes[n_dimensions + 1 :]),
        row_digit=n_dimensions,
        level_of=tuple(grid.parts.degrees[i] for i in tree.levels),
        names=_names(grid, tree, options, intervals),
        paths=tuple(i.path for i in intervals),
        logs=tuple(i.log for i in intervals),
        n_designs=sum(
            int(by_shape[shape_index]) * int(n_points) for shape_index, n_points in shapes.points_by_shape.items()
        ),
    )


def _float32(column: np.ndarray) -> np.ndarray:
    """Return a column as float32."""
    return np.asarray(column).astype(np.float32)


class _Leaves(NamedTuple):
    """Rows of degrees by the shape for which they are valid."""

    shape_index: np.ndarray  #: [leaf]
    row: np.ndarray  #: [leaf] row of the grid's table
    degrees: np.ndarray  #: [leaf, degree] whole numbers
    mask: np.ndarray  #: [leaf, column] which pairs are mappings there


class _Shapes(NamedTuple):
    """Numbers that the mappings of a grid must divide, by index of the shape."""

    index_terms: list[np.ndarray]  #: by dimension: [position] term of the index
    points_by_shape: Counter[int]  #: index of the shape → points of the grid that have it
    shapes: list[tuple[int, Shape]]  #: structure and divisibility of each shape


def _single_structure_shapes(grid: Grid, shape_index_terms: list[np.ndarray], points_by_shape: Counter[int]) -> _Shapes:
    """Return the shapes of a grid of one structure from what :func:`_shapes` gives."""
    return _Shapes(shape_index_terms, points_by_shape, [(0, shape) for shape in grid.shapes])


def _structure_shapes(grid: Grid) -> _Shapes:
    """Return the shapes of a grid of several structures."""
    of_members = [_shapes(member_grid)[0] for member_grid in grid.structure_grids]
    shape_numbers_by_dimension: list[np.ndarray] = []
    for dimension_index, size in enumerate(grid.shape):
        keys = np.full((len(grid.members), size), -1)
        for key, member, index_terms in zip(keys, grid.members, of_members, strict=True):
            axis = member.axes[dimension_index]
            key[member.positions[dimension_index] if axis >= 0 else slice(None)] = index_terms[axis] if axis >= 0 else 0
        shape_numbers_by_dimension.append(np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1))
    sizes = [int(shape_numbers.max()) + 1 for shape_numbers in shape_numbers_by_dimension]
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    shapes, points_by_shape = list[tuple[int, Shape]](), Counter[int]()
    for shape_number, digits in enumerate(itertools.product(*map(range, sizes))):
        positions = [
            np.flatnonzero(shape_numbers == digit)
            for shape_numbers, digit in zip(shape_numbers_by_dimension, digits, strict=True)
        ]
        first_positions = [int(equivalent_positions[0]) for equivalent_positions in positions]
        structure = next(i for i, member in enumerate(grid.members) if _has_positions(member, first_positions))
        member, index_terms = grid.members[structure], of_members[structure]
        shape_index, n_points = 0, 1
        for axis, member_positions, position, equivalent_positions in zip(
            member.axes, member.positions, first_positions, positions, strict=True
        ):
            if axis >= 0:
                shape_index, n_points = (
                    shape_index + int(index_terms[axis][list(member_positions).index(position)]),
                    n_points * len(equivalent_positions),
                )
        shapes.append((structure, member.grid.shapes[shape_index]))
        points_by_shape[shape_number] = n_points
    return _Shapes(
        [shape_numbers * stride for shape_numbers, stride in zip(shape_numbers_by_dimension, strides, strict=True)],
        points_by_shape,
        shapes,
    )


def _has_positions(member: Member, positions: list[int]) -> bool:
    """True where a member has designs at these positions [dimension]; any will do where it lacks the dimension."""
    positions_by_axis = zip(member.axes, member.positions, positions, strict=True)
    return all(axis < 0 or position in member_positions for axis, member_positions, position in positions_by_axis)


def _structures(grid: Grid, shapes: _Shapes, intervals: tuple[Interval, ...]) -> dict[str, Any]:
    """Return name → table of the fields of :class:`Space` by structure, None where there is one structure."""
    if not grid.members:
        return {"structure": None, "has_digits": None, "has_reals": None}
    has_axis = np.array([[axis >= 0 for axis in member.axes] for member in grid.members]).reshape(len(grid.members), -1)
    keys = [[axis.key for axis in dimension.axes] for dimension in grid.dimensions]
    interval_dimensions = [next(i for i, names in enumerate(keys) if interval.path in names) for interval in intervals]
    structure_by_shape = np.array([structure_index for structure_index, _ in shapes.shapes], np.int32)
    return {
        "structure": structure_by_shape,
        "has_digits": has_axis[structure_by_shape],
        "has_reals": has_axis[structure_by_shape][:, interval_dimensions],
    }


def _leaves(grid: Grid, shapes: list[tuple[int, Shape]]) -> _Leaves:
    """Return the valid rows of degrees of every shape; a shape without any takes those of the first that has some."""
    removed_counts: Counter[str] = Counter()
    row_by_degrees = {tuple(row): i for i, row in enumerate(_table_rows(grid))}
    table_degrees = [i for i, path in enumerate(grid.parts.degrees) if path in grid.table.degrees]
    leaves_by_shape: list[_Leaves | None] = []
    for shape_number, (structure, shape) in enumerate(shapes):
        structure_grid = grid.structure_grids[structure]
        degrees, mask = mappings.of_shape(
            structure_grid.parts,
            shape,
            mappings.option_columns(structure_grid.parts),
            structure_grid.settled,
            removed_counts,
        )
        has_mapping = mask.any(axis=1)
        degrees, mask = degrees[has_mapping], mask[has_mapping]
        if grid.members:
            degrees, mask = _widen_to_grid(grid, structure, degrees, mask)
        row = np.array([row_by_degrees[tuple(row_degrees)] for row_degrees in degrees[:, table_degrees]], np.int64)
        leaves_by_shape.append(_Leaves(np.full(len(row), shape_number), row, degrees, mask) if len(row) else None)
    borrowed_leaves = next(leaves for leaves in leaves_by_shape if leaves is not None)
    filled_leaves = [
        borrowed_leaves._replace(shape_index=np.full(len(borrowed_leaves.row), shape_number))
        if leaves is None
        else leaves
        for shape_number, leaves in enumerate(leaves_by_shape)
    ]
    return _Leaves(*map(np.concatenate, zip(*filled_leaves, strict=True)))


def _widen_to_grid(grid: Grid, structure: int, degrees: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return degrees [row, degree] and column mask of a member in the layout of the grid, 1 for missing degrees."""
    member = grid.members[structure]
    wide = np.ones((len(degrees), len(grid.parts.degrees)), degrees.dtype)
    wide[:, [grid.parts.degrees.index(path) for path in member.grid.parts.degrees]] = degrees
    columns = np.zeros((len(mask), grid.table.n_columns), bool)
    grid_columns = dict(zip(member.grid.pairs[:, 1].tolist(), grid.pairs[member.mappings, 1].tolist(), strict=True))
    columns[:, [*grid_columns.values()]] = mask[:, [*grid_columns]]
    return wide, columns


def _table_rows(grid: Grid) -> np.ndarray:
    """Return the degrees [row, degree] of the grid's table."""
    return np.stack([grid.table.degrees[path] for path in grid.parts.degrees if path in grid.table.degrees], axis=1)


def _shapes(grid: Grid) -> tuple[list[np.ndarray], Counter[int]]:
    """Return, by dimension, the terms [position] of the index of the shape, and shape index → count of points."""
    indices_by_dimension, sizes = [], []
    for dimension in grid.dimensions:
        paths = [path for path in SHAPE_PATHS if path in dimension.columns]
        if paths:
            rows = np.stack([dimension.columns[path] for path in paths], axis=1)
            unique, shape_index = np.unique(rows, axis=0, return_inverse=True)
            indices_by_dimension.append(shape_index.reshape(-1))
            sizes.append(len(unique))
        else:
            indices_by_dimension.append(np.zeros(dimension.size, np.int64))
            sizes.append(1)
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    index_terms = [shape_index * stride for shape_index, stride in zip(indices_by_dimension, strides, strict=True)]
    points_by_shape: Counter[int] = Counter()
    for combination in itertools.product(*(Counter(terms.tolist()).items() for terms in index_terms)):
        points_by_shape[sum(shape_index for shape_index, _ in combination)] += math.prod(
            n_positions for _, n_positions in combination
        )
    return index_terms, points_by_shape


class _Tree(NamedTuple):
    """Prefixes of the degrees as a tree; its roots are the shapes."""

    levels: tuple[int, ...]  #: degrees that vary, in order
    radices: tuple[int, ...]  #: distinct values of each
    rank: np.ndarray  #: [leaf as given, level]
    children: list[np.ndarray]  #: by level: [node, wanted rank] → node of the next level; the last are leaves
    leaves: np.ndarray  #: [leaf in the order of the tree] leaf as given
    first_leaf: np.ndarray  #: [shape + 1]


def _tree(shape_index: np.ndarray, degrees: np.ndarray, n_shapes: int) -> _Tree:
    """Return the tree over (shape, degrees…), whose nodes lead every wanted rank to the child of nearest rank."""
    levels = tuple(_free_degrees(shape_index, degrees))
    ranked = [np.unique(degrees[:, level], return_inverse=True) for level in levels]
    radices = tuple(len(values) for values, _ in ranked)
    rank = np.stack([r.reshape(-1) for _, r in ranked], axis=1) if levels else np.zeros((len(shape_index), 0), np.int64)
    order = np.lexsort((*rank.T[::-1], shape_index))
    key = np.concatenate([shape_index[order, None], rank[order]], axis=1)
    node, children = shape_index[order], []
    for level, radix in enumerate(radices):
        is_new_node = np.any(np.diff(key[:, : level + 2], axis=0, prepend=-1) != 0, axis=1)
        next_node = np.cumsum(is_new_node) - 1
        children.append(
            _nearest_children(node[is_new_node], key[is_new_node, level + 1], int(node[-1]) + 1, radix).astype(np.int32)
        )
        node = next_node
    return _Tree(levels, radices, rank, children, order, np.searchsorted(shape_index[order], np.arange(n_shapes + 1)))


def _free_degrees(shape_index: np.ndarray, degrees: np.ndarray) -> list[int]:
    """Return the indices of the degrees that neither the shape nor earlier degrees determine."""
    free_levels: list[int] = []
    prefix = shape_index[:, None]
    for level in range(degrees.shape[1]):
        extended_prefix = np.concatenate([prefix, degrees[:, level, None]], axis=1)
        if len(np.unique(extended_prefix, axis=0)) > len(np.unique(prefix, axis=0)):
            free_levels.append(level)
            prefix = extended_prefix
    return free_levels


def _nearest_children(parent: np.ndarray, rank: np.ndarray, n_parents: int, radix: int) -> np.ndarray:
    """Return the index [parent, wanted rank] of the child of nearest rank, the lower of equals."""
    distance = np.full((n_parents, radix), radix * 2, np.int64)
    nearest = np.zeros((n_parents, radix), np.int64)
    target_ranks = np.arange(radix)
    starts = np.searchsorted(parent, np.arange(n_parents + 1))
    max_children = int(np.diff(starts).max())
    for k in range(max_children):
        child = starts[:-1] + k
        has_child = child < starts[1:]
        child_index = np.where(has_child, child, 0)
        child_distance = np.where(has_child[:, None], np.abs(rank[child_index][:, None] - target_ranks), radix * 2)
        is_nearer = child_distance < distance
        distance, nearest = (
            np.where(is_nearer, child_distance, distance),
            np.where(is_nearer, child_index[:, None], nearest),
        )
    return nearest


def _ranks(leaves: _Leaves, tree: _Tree, n_rows: int) -> np.ndarray:
    """Return the ranks [row, level] of the degrees of every row of the grid's table."""
    ranks = np.zeros((n_rows, len(tree.levels)), np.int32)
    ranks[leaves.row] = tree.rank
    return ranks


def _neighbours(leaves: _Leaves, tree: _Tree) -> np.ndarray:
    """Return rows of the table [leaf, direction] one step away, its own row for none.

    A step changes one degree alone, or two of them at the same product.
    """
    shape_index, row, degrees = (array[tree.leaves] for array in (leaves.shape_index, leaves.row, leaves.degrees))
    n_degrees = degrees.shape[1]
    varying = [i for i in range(n_degrees) if len(np.unique(degrees[:, i])) > 1]
    directions = []
    for pair in [*((i,) for i in varying), *itertools.combinations(varying, 2)]:
        other_degrees = [degrees[:, i] for i in range(n_degrees) if i not in pair]
        product = np.prod(degrees[:, list(pair)], axis=1) if len(pair) > 1 else np.zeros(len(row), np.int64)
        group = np.stack([shape_index, product, *other_degrees], axis=1)
        order = np.lexsort((degrees[:, pair[0]], *group.T[::-1]))
        is_adjacent = np.all(group[order[1:]] == group[order[:-1]], axis=1)
        if is_adjacent.any():
            previous, following = row.copy(), row.copy()
            previous[order[1:][is_adjacent]] = row[order[:-1][is_adjacent]]
            following[order[:-1][is_adjacent]] = row[order[1:][is_adjacent]]
            directions += [previous, following]
    return np.stack(directions, axis=1).astype(np.int32) if directions else np.zeros((len(row), 0), np.int32)


def _representatives(is_distinct: np.ndarray, options: dict[str, np.ndarray]) -> np.ndarray:
    """Return the index [column] of the column that stands for each: itself, or that of fewest differences.

    Of equals the one in which those that differ are 0, then the first: so options that change nothing are put to 0.
    """
    table = np.stack(list(options.values()), axis=1)
    distinct_columns = np.flatnonzero(is_distinct)
    representatives = np.arange(len(is_distinct))
    for column in np.flatnonzero(~is_distinct):
        differs = table[distinct_columns] != table[column]
        nonzero_differences = np.count_nonzero(differs & (table[distinct_columns] != 0), axis=1)
        representatives[column] = distinct_columns[np.lexsort((nonzero_differences, differs.sum(axis=1)))[0]]
    return representatives


def _names(
    grid: Grid, tree: _Tree, options: list[dict[str, np.ndarray]], intervals: tuple[Interval, ...]
) -> tuple[str, ...]:
    """Return the names of the discrete coordinates, then of the continuous axes."""
    degree_names = [
        path.rpartition(".")[2] for path in (grid.parts.degrees[degree_index] for degree_index in tree.levels)
    ]
    option_names = ["+".join(path.rpartition(".")[2] for path in axis) for axis in options]
    return (
        *(dimension.name for dimension in grid.dimensions),
        *degree_names,
        *option_names,
        *(interval.name for interval in intervals),
    )
