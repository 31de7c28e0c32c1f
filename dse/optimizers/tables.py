"""The tables of a space, made of a grid on the host."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.model.divisibility import SHAPE_PATHS, Shape
from dse.optimizers.space import Space
from dse.spec.search import Interval
from dse.sweep.engine.options import option_axes
from dse.sweep.grid import mappings
from dse.sweep.grid.grid import Grid, Member


def build(grid: Grid, intervals: tuple[Interval, ...] = ()) -> Space:
    """The space of a grid whose dimensions at ``intervals`` are continuous; arrays on the device."""
    options = option_axes(grid)
    columns = [*(dimension.columns for dimension in grid.dimensions), grid.table.degrees, *options]
    shapes = _by_structure(grid) if grid.members else _of_one(grid, *_shapes(grid))
    leaves = _leaves(grid, shapes.shapes)
    tree = _tree(leaves.shape, leaves.degrees, len(shapes.shapes))
    patterns, pattern = np.unique(leaves.mask[tree.leaves], axis=0, return_inverse=True)
    counts = leaves.mask[tree.leaves].sum(axis=1)
    before = np.concatenate([[0], np.cumsum(counts)])
    sizes = tuple(len(next(iter(axis.values()))) for axis in columns)
    n = len(grid.dimensions)
    by_shape = np.bincount(leaves.shape[tree.leaves], counts, minlength=len(shapes.shapes)).astype(np.int64)
    arrays: dict[str, Any] = dict(
        columns=tuple({path: _single(column) for path, column in axis.items()} for axis in columns),
        shape_of=tuple(a.astype(np.int32) for a in shapes.shape_of),
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
        **_structures(grid, shapes, intervals),
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
        n_designs=sum(int(by_shape[shape]) * int(times) for shape, times in shapes.points.items()),
    )


def _single(column: np.ndarray) -> np.ndarray:
    return np.asarray(column).astype(np.float32)


class _Leaves(NamedTuple):
    """Rows of degrees by the shape for which they are valid."""

    shape: np.ndarray  #: [leaf]
    row: np.ndarray  #: [leaf] row of the grid's table
    degrees: np.ndarray  #: [leaf, degree] whole numbers
    mask: np.ndarray  #: [leaf, column] which pairs are mappings there


class _Shapes(NamedTuple):
    """What the mappings of a grid must divide, by number."""

    shape_of: list[np.ndarray]  #: by dimension: [position] what it adds to the number
    points: Counter[int]  #: number → points of the grid that have it
    shapes: list[tuple[int, Shape]]  #: by number: the structure, and what is to be divided


def _of_one(grid: Grid, shape_of: list[np.ndarray], points: Counter[int]) -> _Shapes:
    return _Shapes(shape_of, points, [(0, shape) for shape in grid.shapes])


def _by_structure(grid: Grid) -> _Shapes:
    """The shapes of a grid of several structures: along each dimension positions that no structure tells apart."""
    of_members = [_shapes(one)[0] for one in grid.each]
    local: list[np.ndarray] = []
    for number, size in enumerate(grid.shape):
        keys = np.full((len(grid.members), size), -1)
        for key, member, adds in zip(keys, grid.members, of_members, strict=True):
            axis = member.axes[number]
            key[member.positions[number] if axis >= 0 else slice(None)] = adds[axis] if axis >= 0 else 0
        local.append(np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1))
    sizes = [int(one.max()) + 1 for one in local]
    strides = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    shapes, points = list[tuple[int, Shape]](), Counter[int]()
    for shape, digits in enumerate(itertools.product(*map(range, sizes))):
        positions = [np.flatnonzero(one == digit) for one, digit in zip(local, digits, strict=True)]
        at = [int(places[0]) for places in positions]
        structure = next(i for i, member in enumerate(grid.members) if _has(member, at))
        member, adds = grid.members[structure], of_members[structure]
        number, times = 0, 1
        for axis, own, position, places in zip(member.axes, member.positions, at, positions, strict=True):
            if axis >= 0:
                number, times = number + int(adds[axis][list(own).index(position)]), times * len(places)
        shapes.append((structure, member.grid.shapes[number]))
        points[shape] = times
    return _Shapes([one * stride for one, stride in zip(local, strides, strict=True)], points, shapes)


def _has(member: Member, at: list[int]) -> bool:
    """Whether a member has designs at these positions, whatever those are of dimensions that it does not have."""
    places = zip(member.axes, member.positions, at, strict=True)
    return all(axis < 0 or position in own for axis, own, position in places)


def _structures(grid: Grid, shapes: _Shapes, intervals: tuple[Interval, ...]) -> dict[str, Any]:
    """What a space knows of structures; nothing where there is one."""
    if not grid.members:
        return {"structure": None, "has_digits": None, "has_reals": None}
    has = np.array([[axis >= 0 for axis in member.axes] for member in grid.members]).reshape(len(grid.members), -1)
    keys = [[axis.key for axis in one.axes] for one in grid.dimensions]
    along = [next(i for i, names in enumerate(keys) if interval.path in names) for interval in intervals]
    structure = np.array([number for number, _ in shapes.shapes], np.int32)
    return {"structure": structure, "has_digits": has[structure], "has_reals": has[structure][:, along]}


def _leaves(grid: Grid, shapes: list[tuple[int, Shape]]) -> _Leaves:
    """The valid rows of every shape; a shape without any borrows those of the first that has some."""
    removed: Counter[str] = Counter()
    numbers = {tuple(row): i for i, row in enumerate(_table_rows(grid))}
    known = [i for i, path in enumerate(grid.parts.degrees) if path in grid.table.degrees]
    found: list[_Leaves | None] = []
    for shape, (structure, size) in enumerate(shapes):
        own = grid.each[structure]
        degrees, mask = mappings.of_shape(own.parts, size, mappings.option_columns(own.parts), own.settled, removed)
        used = mask.any(axis=1)
        degrees, mask = degrees[used], mask[used]
        if grid.members:
            degrees, mask = _in_whole(grid, structure, degrees, mask)
        row = np.array([numbers[tuple(d)] for d in degrees[:, known]], np.int64)
        found.append(_Leaves(np.full(len(row), shape), row, degrees, mask) if len(row) else None)
    some = next(leaves for leaves in found if leaves is not None)
    whole = [
        some._replace(shape=np.full(len(some.row), shape)) if leaves is None else leaves
        for shape, leaves in enumerate(found)
    ]
    return _Leaves(*map(np.concatenate, zip(*whole, strict=True)))


def _in_whole(grid: Grid, structure: int, degrees: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Degrees and columns of a member as the table of the whole has them; a degree that it does not have is 1."""
    member = grid.members[structure]
    wide = np.ones((len(degrees), len(grid.parts.degrees)), degrees.dtype)
    wide[:, [grid.parts.degrees.index(path) for path in member.grid.parts.degrees]] = degrees
    columns = np.zeros((len(mask), grid.table.n_columns), bool)
    own = dict(zip(member.grid.pairs[:, 1].tolist(), grid.pairs[member.mappings, 1].tolist(), strict=True))
    columns[:, [*own.values()]] = mask[:, [*own]]
    return wide, columns


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
    """Degrees that neither the shape nor earlier degrees determine."""
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
