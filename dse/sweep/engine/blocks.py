"""A sweep cut into blocks of designs, each with a range of every input of its programs (:mod:`dse.doors.ranges`)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import jax
import numpy as np

from dse.doors.ranges import Ranges, are_whole
from dse.doors.scalars.intervals import Pair
from dse.sweep.engine.options import option_axes
from dse.sweep.grid.grid import Grid

#: Blocks, and blocks where the rows of degrees alone are more: what follows from degrees alone (divisors, ceilings) had
#: better be known exactly, since it decides most.
_BLOCKS, _MOST_ROWS = 4096, 16384


class Blocks:
    """All designs of a grid of one structure in blocks: each axis is cut into parts."""

    def __init__(self, grid: Grid) -> None:
        self._base = [np.float32(leaf) for leaf in jax.tree.leaves(grid.base)]
        self._axes = [grid.table.degrees, *(one.columns for one in grid.dimensions), *option_axes(grid)]
        self._paths = sorted(grid.columns)

    @property
    def digest(self) -> str:
        """Of all values."""
        made_from = hashlib.sha256(np.array(self._base).tobytes())
        for axis in self._axes:
            for path, values in axis.items():
                made_from.update(f"{path} {len(values)} ".encode() + values.astype(np.float32).tobytes())
            made_from.update(b"axis ")
        return made_from.hexdigest()

    def ranges(self) -> Ranges:
        """Of the inputs of the grid's programs: leaves of the base, then of the axes by path."""
        sizes = [max(map(len, axis.values()), default=1) for axis in self._axes]
        of_path = {
            path: _along(values, parts, i, len(sizes))
            for i, (axis, count) in enumerate(zip(self._axes, _counts(sizes), strict=True))
            for parts in [_parts(axis, sizes[i], count)]
            for path, values in axis.items()
        }
        of_base = (value.reshape((1,) * len(sizes)) for value in self._base)
        inputs = [(value, value) for value in of_base]
        values = [*self._base, *(axis[path] for path in self._paths for axis in self._axes if path in axis)]
        whole = [number for number, one in enumerate(values) if are_whole(np.asarray(one, np.float32))]
        return Ranges(dict(enumerate([*inputs, *(of_path[path] for path in self._paths)])), whole)


def _counts(sizes: Sequence[int]) -> list[int]:
    """Into how many parts axes are cut: degrees first, then the shortest."""
    counts = [min(sizes[0], _MOST_ROWS)] + [1] * (len(sizes) - 1)
    left = _BLOCKS // counts[0]
    for axis in sorted(range(1, len(sizes)), key=lambda axis: sizes[axis]):
        counts[axis] = max(1, min(sizes[axis], left))
        left //= counts[axis]
    return counts


def _parts(axis: Mapping[str, np.ndarray], size: int, count: int) -> np.ndarray:
    """Where the parts of an axis begin: all are as long, or grow by one factor where it is of one leaf that grows."""
    values = next(iter(axis.values()), np.ones(1))
    if count < size and len(axis) == 1 and values[0] > 0.0 and (np.diff(values) > 0.0).all():
        return np.unique(np.searchsorted(values, np.geomspace(values[0], values[-1], count + 1)[:-1]))
    return np.arange(count) * size // count


def _along(values: np.ndarray, parts: np.ndarray, axis: int, n_axes: int) -> Pair:
    """Least and most of each part of an axis."""
    values = values.astype(np.float32)
    shape = [len(parts) if i == axis else 1 for i in range(n_axes)]
    low, high = (of.reduceat(values, parts).reshape(shape) for of in (np.minimum, np.maximum))
    return (low, low) if (low == high).all() else (low, high)
