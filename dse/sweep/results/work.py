"""What a step or a request of the designs of a sweep works on: batch and sequences, or prompts, answers and load.

A time says little without them, and a specification that does not state them takes them from the workload's file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.designs.leaves import known_leaves, leaf, short_name
from dse.spec.axes import Axis, Label
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.results.files import Variable
from dse.sweep.results.labels import coordinate, labels
from dse.sweep.results.schema import DERIVED
from dse.types import Design, choice_name


class WorkLeaf(NamedTuple):
    """A leaf of the work with its values."""

    axis: Axis  #: one value, or one a position along the dimension
    dimension: int | None  #: number of the dimension that moves it; None for a value that all designs have


def work_leaves(grid: Grid) -> list[WorkLeaf]:
    """Leaves of the work of a sweep that its study reads; without one that several dimensions move together."""
    bases = [grid.spec.study.complete(one.base) for one in grid.each]
    paths = dict.fromkeys(path for base in bases for path in grid.spec.study.work_leaves(base))
    found = (_work_leaf(grid, path, bases) for path in paths)
    return [one for one in found if one is not None]


def _work_leaf(grid: Grid, path: str, bases: list[Design]) -> WorkLeaf | None:
    """A leaf with its values; None where no design has it, and where several dimensions move it together."""
    swept = any(path in dimension.columns for one in grid.each for dimension in one.dimensions)
    plain = {_number(base, path) for base in bases}
    if not swept and len(plain) == 1:
        return None if None in plain else WorkLeaf(_axis(path, [value for value in plain if value is not None]), None)
    for number in range(len(grid.dimensions)):
        if values := _along(grid, number, path, bases):
            is_same = len({*values}) == 1
            return WorkLeaf(_axis(path, values[:1] if is_same else values), None if is_same else number)
    return None


def _along(grid: Grid, number: int, path: str, bases: list[Design]) -> list[float]:
    """Values at the positions of a dimension; none where a design lacks one or another dimension moves it too."""
    found: list[set[float | None]] = [set() for _ in range(grid.dimensions[number].size)]
    whole = tuple(range(len(grid.dimensions))), tuple(np.arange(size) for size in grid.shape)
    members = [(one.grid, one.axes, one.positions) for one in grid.members] or [(grid, *whole)]
    for (one, axes, positions), base in zip(members, bases, strict=True):
        own = one.dimensions[axes[number]].columns if axes[number] >= 0 else {}
        if path not in own and any(path in dimension.columns for dimension in one.dimensions):
            return []
        values = own[path].tolist() if path in own else [_number(base, path)] * len(positions[number])
        for place, value in zip(positions[number].tolist(), values, strict=True):
            found[place].add(value)
    each = [value for values in found for value in values if value is not None]
    return each if len(each) == len(found) and all(len(values) == 1 for values in found) else []


def _number(base: Design, path: str) -> float | None:
    """A leaf as single precision holds it; None where the design has none."""
    value = leaf(base, path)
    return None if value is None else float(str(np.float32(value)))


def _axis(path: str, values: list[float]) -> Axis:
    """The values as an axis, with names for those of an enumeration."""
    enum = known_leaves()[path].get("enum")
    names: tuple[Label, ...] = tuple(choice_name(enum(int(value))) for value in values) if enum else tuple(values)
    return Axis(short_name(path), path, "", tuple(values), names)


def work_coordinates(grid: Grid, digits: np.ndarray | None = None) -> dict[str, Variable]:
    """Coordinates of the work that no axis and no fixed value of the specification has, marked as derived.

    Args:
        grid: of the sweep.
        digits: [dimension, design] positions of single designs; None for results along the dimensions of the sweep.
    """
    found = {}
    for one in _unstated(grid):
        values = labels(one.axis)
        if one.dimension is None:
            found[variable_name(one.axis)] = coordinate((), one.axis, values[0])
        elif digits is None:
            found[variable_name(one.axis)] = coordinate((grid.dimensions[one.dimension].name,), one.axis, values)
        else:
            found[variable_name(one.axis)] = coordinate(("design",), one.axis, values[digits[one.dimension]])
    derived = {DERIVED: "names of the catalogue"}
    return {name: one._replace(attrs={**one.attrs, **derived}) for name, one in found.items()}


def _unstated(grid: Grid) -> list[WorkLeaf]:
    axes = (*grid.fixed, *grid.mapping_axes, *(axis for dimension in grid.dimensions for axis in dimension.axes))
    keys, names = {axis.key for axis in axes}, {variable_name(axis) for axis in axes}
    return [one for one in work_leaves(grid) if one.axis.key not in keys and variable_name(one.axis) not in names]


def unlike_work(grid: Grid, index: int) -> dict[str, Label]:
    """Leaves of the work of a design, by name, that differ between designs and that no axis states."""
    moved = [one for one in _unstated(grid) if one.dimension is not None]
    if not moved:
        return {}
    digits, _ = grid.locate(np.array([index]))
    return {one.axis.name: labels(one.axis)[int(digits[one.dimension, 0])].item() for one in moved}


def work_line(grid: Grid) -> str:
    """The work that all designs of a sweep have, in one line."""
    fixed = {one.axis.key: one.axis.labels[0] for one in work_leaves(grid) if one.dimension is None}
    return grid.spec.study.work(fixed)
