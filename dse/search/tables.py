"""The tables of a space, made of a grid on the host."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.model.divisibility import SHAPE_PATHS
from dse.search.space import Space
from dse.spec.search import Interval
from dse.sweep.engine import nesting
from dse.sweep.grid import mappings
from dse.sweep.grid.grid import Grid


def build(grid: Grid, intervals: tuple[Interval, ...] = ()) -> Space:
    """The space of a grid whose dimensions at ``intervals`` are continuous; arrays on the device."""
    options = nesting.option_axes(grid)
    columns = [*(dimension.columns for dimension in grid.dimensions), grid.table.degrees, *options]
    shape_of, combinations = _shapes(grid)
    leaves = _leaves(grid)
    tree = _tree(leaves.shape, leaves.degrees, len(grid.shapes))
    patterns, pattern = np.unique(leaves.mask[tree.leaves], axis=0, return_inverse=True)
    counts = leaves.mask[tree.leaves].sum(axis=1)
    before = np.concatenate([[0], np.cumsum(counts)])
    sizes = tuple(len(next(iter(axis.values()))) for axis in columns)
    n = len(grid.dimensions)
    by_shape = np.bincount(leaves.shape[tree.leaves], counts, minlength=len(grid.shapes)).astype(np.int64)
    arrays: dict[str, Any] = dict(
        columns=tuple({path: _single(column) for path, column in axis.items()} for axis in columns),
        shape_of=tuple(a.astype(np.int32) for a in shape_of),
        children=tuple(tree.children),
        row_of_leaf=leaves.row[tree.leaves].astype(np.int32),
        ranks=_ranks(leaves, tree, grid.table.n_rows),
        neighbour_rows=_neighbours(leaves, tree),
        pattern=pattern.reshape(-1).astype(np.int32),
        twin=np.stack([_twins(mask, grid.table.options) for mask in patterns]).astype(np.int32),
        option_digits=np.stack(np.unravel_index(np.arange(grid.table.n_columns), sizes[n + 1 :]), 1).astype(np.int32),
        designs_before=before.astype(np.int32),
        first_leaf=tree.first_leaf.astype(np.int32),
        listed_columns=np.argsort(~patterns, axis=1, kind="stable").astype(np.int32),
        low=np.array([math.log(i.low) if i.log else i.low for i in intervals], np.float32),
        span=np.array([math.log(i.high / i.low) if i.log else i.high - i.low for i in intervals], np.float32),
    )
    return Space(
        **jax.device_put(arrays),
        sizes=sizes,
        radices=(*sizes[:n], *tree.radices, *sizes[n + 1 :]),
        row_digit=n,
        level_of=tuple(grid.parts.degrees[i] for i in tree.levels),
        names=_names(grid, tree, options, intervals),
        paths=tuple(i.path for i in intervals),
        logs=tuple(i.log for i in intervals),
        n_designs=sum(int(by_shape[shape]) * int(times) for shape, times in combinations.items()),
    )


def _single(column: np.ndarray) -> np.ndarray:
    return np.asarray(column).astype(np.float32)


class _Leaves(NamedTuple):
    """Rows of degrees by the shape for which they are valid."""

    shape: np.ndarray  #: [leaf]
    row: np.ndarray  #: [leaf] row of the grid's table
    degrees: np.ndarray  #: [leaf, degree] whole numbers
    mask: np.ndarray  #: [leaf, column] which pairs are mappings there


def _leaves(grid: Grid) -> _Leaves:
    """The valid rows of every shape; a shape without any borrows those of the first that has some."""
    options = mappings.option_columns(grid.parts)
    removed: Counter[str] = Counter()
    numbers = {tuple(row): i for i, row in enumerate(_table_rows(grid))}
    known = [i for i, path in enumerate(grid.parts.degrees) if path in grid.table.degrees]
    found: list[_Leaves | None] = []
    for shape, size in enumerate(grid.shapes):
        degrees, mask = mappings.of_shape(grid.parts, size, options, grid.settled, removed)
        used = mask.any(axis=1)
        degrees, mask = degrees[used], mask[used]
        row = np.array([numbers[tuple(d)] for d in degrees[:, known]], np.int64)
        found.append(_Leaves(np.full(len(row), shape), row, degrees, mask) if len(row) else None)
    some = next(leaves for leaves in found if leaves is not None)
    whole = [
        some._replace(shape=np.full(len(some.row), shape)) if leaves is None else leaves
        for shape, leaves in enumerate(found)
    ]  # fmt: skip
    return _Leaves(*map(np.concatenate, zip(*whole, strict=True)))


def _table_rows(grid: Grid) -> np.ndarray:
    return np.stack([grid.table.degrees[path] for path in grid.parts.degrees if path in grid.table.degrees], axis=1)


def _shapes(grid: Grid) -> tuple[list[np.ndarray], Counter[int]]:
    """What each position of each dimension adds to the number of the shape; shape → points that have it."""
    local, sizes = [], []
    for dimension in grid.dimensions:
        paths = [path for path in SHAPE_PATHS if path in dimension.columns]
        if paths:
            rows = np.stack([dimension.columns[path] for path in paths], axis=1)
            unique, number = np.unique(rows, axis=0, return_inverse=True)
            local.append(number.reshape(-1))
            sizes.append(len(unique))
        else:
            local.append(np.zeros(dimension.size, np.int64))
            sizes.append(1)
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    adds = [number * stride for number, stride in zip(local, strides, strict=True)]
    points: Counter[int] = Counter()
    for combination in itertools.product(*(Counter(a.tolist()).items() for a in adds)):
        points[sum(number for number, _ in combination)] += math.prod(times for _, times in combination)
    return adds, points


class _Tree(NamedTuple):
    """Prefixes of the degrees as a tree; its roots are the shapes."""

    levels: tuple[int, ...]  #: degrees that vary, in order
    radices: tuple[int, ...]  #: distinct values of each
    rank: np.ndarray  #: [leaf as given, level]
    children: list[np.ndarray]  #: by level: [node, wanted rank] → node of the next level; the last are leaves
    leaves: np.ndarray  #: [leaf in the order of the tree] leaf as given
    first_leaf: np.ndarray  #: [shape + 1]


def _tree(shape: np.ndarray, degrees: np.ndarray, n_shapes: int) -> _Tree:
    """The tree over (shape, degrees…); each node leads every wanted rank to its child of nearest rank."""
    levels = tuple(_free(shape, degrees))
    ranked = [np.unique(degrees[:, level], return_inverse=True) for level in levels]
    radices = tuple(len(known) for known, _ in ranked)
    rank = np.stack([r.reshape(-1) for _, r in ranked], axis=1) if levels else np.zeros((len(shape), 0), np.int64)
    order = np.lexsort((*rank.T[::-1], shape))
    key = np.concatenate([shape[order, None], rank[order]], axis=1)
    node, children = shape[order], []
    for level, radix in enumerate(radices):
        fresh = np.any(np.diff(key[:, : level + 2], axis=0, prepend=-1) != 0, axis=1)
        below = np.cumsum(fresh) - 1
        children.append(_nearest(node[fresh], key[fresh, level + 1], int(node[-1]) + 1, radix).astype(np.int32))
        node = below
    return _Tree(levels, radices, rank, children, order, np.searchsorted(shape[order], np.arange(n_shapes + 1)))


def _free(shape: np.ndarray, degrees: np.ndarray) -> list[int]:
    """Degrees that are not told by the shape and those before them."""
    found: list[int] = []
    seen = shape[:, None]
    for level in range(degrees.shape[1]):
        with_it = np.concatenate([seen, degrees[:, level, None]], axis=1)
        if len(np.unique(with_it, axis=0)) > len(np.unique(seen, axis=0)):
            found.append(level)
            seen = with_it
    return found


def _nearest(parent: np.ndarray, rank: np.ndarray, n_parents: int, radix: int) -> np.ndarray:
    """[parent, wanted rank] number of the child of nearest rank, of equals the lower; children are in order."""
    distance = np.full((n_parents, radix), radix * 2, np.int64)
    found = np.zeros((n_parents, radix), np.int64)
    wanted = np.arange(radix)
    starts = np.searchsorted(parent, np.arange(n_parents + 1))
    most = int(np.diff(starts).max())
    for place in range(most):
        child = starts[:-1] + place
        there = child < starts[1:]
        at = np.where(there, child, 0)
        away = np.where(there[:, None], np.abs(rank[at][:, None] - wanted), radix * 2)
        nearer = away < distance
        distance, found = np.where(nearer, away, distance), np.where(nearer, at[:, None], found)
    return found


def _ranks(leaves: _Leaves, tree: _Tree, n_rows: int) -> np.ndarray:
    """[row, level] ranks of the degrees of every row of the grid's table."""
    found = np.zeros((n_rows, len(tree.levels)), np.int32)
    found[leaves.row] = tree.rank
    return found


def _neighbours(leaves: _Leaves, tree: _Tree) -> np.ndarray:
    """[leaf, direction] rows one step away: one degree alone, or two at the same product; its own row for none."""
    shape, row, degrees = (array[tree.leaves] for array in (leaves.shape, leaves.row, leaves.degrees))
    n = degrees.shape[1]
    moving = [i for i in range(n) if len(np.unique(degrees[:, i])) > 1]
    directions = []
    for pair in [*((i,) for i in moving), *itertools.combinations(moving, 2)]:
        others = [degrees[:, i] for i in range(n) if i not in pair]
        product = np.prod(degrees[:, list(pair)], axis=1) if len(pair) > 1 else np.zeros(len(row), np.int64)
        group = np.stack([shape, product, *others], axis=1)
        order = np.lexsort((degrees[:, pair[0]], *group.T[::-1]))
        joined = np.all(group[order[1:]] == group[order[:-1]], axis=1)
        if joined.any():
            previous, following = row.copy(), row.copy()
            previous[order[1:][joined]] = row[order[:-1][joined]]
            following[order[:-1][joined]] = row[order[1:][joined]]
            directions += [previous, following]
    return np.stack(directions, axis=1).astype(np.int32) if directions else np.zeros((len(row), 0), np.int32)


def _twins(distinct: np.ndarray, options: dict[str, np.ndarray]) -> np.ndarray:
    """[column] the column that stands for each: itself, else the one that differs from it in the fewest options.

    Of equals the one in which those that differ are 0, then the first: so options that change nothing are put to 0.
    """
    table = np.stack(list(options.values()), axis=1)
    kept = np.flatnonzero(distinct)
    found = np.arange(len(distinct))
    for column in np.flatnonzero(~distinct):
        differs = table[kept] != table[column]
        away = np.count_nonzero(differs & (table[kept] != 0), axis=1)
        found[column] = kept[np.lexsort((away, differs.sum(axis=1)))[0]]
    return found


def _names(
    grid: Grid, tree: _Tree, options: list[dict[str, np.ndarray]], intervals: tuple[Interval, ...]
) -> tuple[str, ...]:
    """Names of the coordinates, then of the continuous axes."""
    last = [path.rpartition(".")[2] for path in (grid.parts.degrees[i] for i in tree.levels)]
    chosen = ["+".join(path.rpartition(".")[2] for path in axis) for axis in options]
    return (*(d.name for d in grid.dimensions), *last, *chosen, *(i.name for i in intervals))
