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
    shapes = _shapes(grid)
    leaves = _leaves(grid, shapes.shapes)
    tree = _tree(leaves.shape_index, leaves.degrees, len(shapes.shapes))
    patterns, pattern = np.unique(leaves.mask[tree.leaves], axis=0, return_inverse=True)
    counts = leaves.mask[tree.leaves].sum(axis=1)
    design_offsets = np.concatenate([[0], np.cumsum(counts)])
    sizes = tuple(len(next(iter(column_by_path.values()))) for column_by_path in columns)
    n_dimensions = len(grid.dimensions)
    ranks = np.zeros((grid.table.n_rows, len(tree.levels)), np.int32)
    ranks[leaves.row] = tree.rank
    by_shape = np.bincount(leaves.shape_index[tree.leaves], counts, minlength=len(shapes.shapes)).astype(np.int64)
    arrays: dict[str, Any] = dict(
        columns=tuple(
            {path: np.asarray(column).astype(np.float32) for path, column in by_path.items()} for by_path in columns
        ),
        shape_index_terms=tuple(terms.astype(np.int32) for terms in shapes.index_terms),
        children=tuple(tree.children),
        row_of_leaf=leaves.row[tree.leaves].astype(np.int32),
        ranks=ranks,
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
        n_designs=sum(int(n) * n_points for n, n_points in zip(by_shape, shapes.n_points, strict=True)),
    )


class _Leaves(NamedTuple):
    """Rows of degrees by the shape for which they are valid."""

    shape_index: np.ndarray  #: [leaf]
    row: np.ndarray  #: [leaf] row of the grid's table
    degrees: np.ndarray  #: [leaf, degree] whole numbers
    mask: np.ndarray  #: [leaf, column] which pairs are mappings there


class _Shapes(NamedTuple):
    """Numbers that the mappings of a grid must divide, by index of the shape."""

    index_terms: list[np.ndarray]  #: by dimension: [position] term of the index
    n_points: list[int]  #: points of the grid that have it
    shapes: list[tuple[int, Shape]]  #: structure and divisibility of each shape


def _members(grid: Grid) -> tuple[Member, ...]:
    """Return the structures of a grid, all of it where it has one."""
    whole = Member(grid, (*range(len(grid.shape)),), (*map(np.arange, grid.shape),), np.arange(grid.table.n_mappings))
    return grid.members or (whole,)


def _shapes(grid: Grid) -> _Shapes:
    """Return the shapes of a grid."""
    members = _members(grid)
    terms_of_members = [_index_terms(member.grid) for member in members]
    code_by_dimension: list[np.ndarray] = []
    for dimension_index, size in enumerate(grid.shape):
        keys = np.full((len(members), size), -1)
        for key, member, index_terms in zip(keys, members, terms_of_members, strict=True):
            axis = member.axes[dimension_index]
            key[member.positions[dimension_index] if axis >= 0 else slice(None)] = index_terms[axis] if axis >= 0 else 0
        code_by_dimension.append(np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1))
    shapes, points = list[tuple[int, Shape]](), list[int]()
    for codes in itertools.product(*(range(int(code.max()) + 1) for code in code_by_dimension)):
        positions = [np.flatnonzero(code == c) for code, c in zip(code_by_dimension, codes, strict=True)]
        firsts = [int(equivalent[0]) for equivalent in positions]
        structure = next(i for i, member in enumerate(members) if _has_positions(member, firsts))
        member, index_terms = members[structure], terms_of_members[structure]
        axes = zip(member.axes, member.positions, firsts, positions, strict=True)
        present = [
            (index_terms[axis][[*of_axis].index(first)], len(same)) for axis, of_axis, first, same in axes if axis >= 0
        ]
        shapes.append((structure, member.grid.shapes[sum(int(term) for term, _ in present)]))
        points.append(math.prod(count for _, count in present))
    return _Shapes(_strided(code_by_dimension), points, shapes)


def _index_terms(grid: Grid) -> list[np.ndarray]:
    """Return, by dimension, the terms [position] of the index of the shape of a grid of one structure."""
    codes = []
    for dimension in grid.dimensions:
        columns = [dimension.columns[path] for path in SHAPE_PATHS if path in dimension.columns]
        rows = np.stack(columns or [np.zeros(dimension.size)], axis=1)
        codes.append(np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1))
    return _strided(codes)


def _strided(codes: list[np.ndarray]) -> list[np.ndarray]:
    """Return codes by dimension as terms that add up to one index of their combinations, the last the fastest."""
    sizes = [int(code.max()) + 1 for code in codes]
    return [code * math.prod(sizes[i + 1 :]) for i, code in enumerate(codes)]


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
    table_degrees = [i for i, path in enumerate(grid.parts.degrees) if path in grid.table.degrees]
    table_rows = np.stack([grid.table.degrees[grid.parts.degrees[i]] for i in table_degrees], axis=1)
    row_by_degrees = {tuple(row): i for i, row in enumerate(table_rows)}
    leaves_by_shape: list[_Leaves] = []
    for shape_number, (structure, shape) in enumerate(shapes):
        of_structure = grid.structure_grids[structure]
        options = mappings.option_columns(of_structure.parts)
        degrees, mask = mappings.of_shape(of_structure.parts, shape, options, of_structure.settled, removed_counts)
        has_mapping = mask.any(axis=1)
        degrees, mask = degrees[has_mapping], mask[has_mapping]
        if grid.members:
            degrees, mask = _widen_to_grid(grid, structure, degrees, mask)
        row = np.array([row_by_degrees[tuple(row_degrees)] for row_degrees in degrees[:, table_degrees]], np.int64)
        leaves_by_shape.append(_Leaves(np.full(len(row), shape_number), row, degrees, mask))
    borrowed = next(leaves for leaves in leaves_by_shape if len(leaves.row))
    for shape_number, leaves in enumerate(leaves_by_shape):
        if not len(leaves.row):
            leaves_by_shape[shape_number] = borrowed._replace(shape_index=np.full(len(borrowed.row), shape_number))
    return _Leaves(*map(np.concatenate, zip(*leaves_by_shape, strict=True)))


def _widen_to_grid(grid: Grid, structure: int, degrees: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return degrees [row, degree] and column mask of a member in the layout of the grid, 1 for missing degrees."""
    member = grid.members[structure]
    wide = np.ones((len(degrees), len(grid.parts.degrees)), degrees.dtype)
    wide[:, [grid.parts.degrees.index(path) for path in member.grid.parts.degrees]] = degrees
    columns = np.zeros((len(mask), grid.table.n_columns), bool)
    grid_columns = dict(zip(member.grid.pairs[:, 1].tolist(), grid.pairs[member.mappings, 1].tolist(), strict=True))
    columns[:, [*grid_columns.values()]] = mask[:, [*grid_columns]]
    return wide, columns


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
    starts = np.searchsorted(parent, np.arange(n_parents + 1))
    for k in range(int(np.diff(starts).max())):
        child = starts[:-1] + k
        has_child = child < starts[1:]
        child_index = np.where(has_child, child, 0)[:, None]
        child_distance = np.where(has_child[:, None], np.abs(rank[child_index] - np.arange(radix)), radix * 2)
        nearest = np.where(child_distance < distance, child_index, nearest)
        distance = np.minimum(child_distance, distance)
    return nearest


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
    parts = [*((grid.parts.degrees[level],) for level in tree.levels), *options]
    part_names = ("+".join(path.rpartition(".")[2] for path in paths) for paths in parts)
    return (*(dimension.name for dimension in grid.dimensions), *part_names, *(interval.name for interval in intervals))
