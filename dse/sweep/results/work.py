"""What a step or a request of the designs of a sweep works on: batch and sequences, or prompts, answers and load.

A time says little without them, and a specification that does not state them takes them from the workload's file.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dse.designs import all_leaves, leaf, short_name
from dse.spec import Axis
from dse.spec.axes import Label
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.results.labelled import Variable
from dse.sweep.results.labels import along, coordinate, labels
from dse.sweep.results.schema import DERIVED
from dse.types import Design, choice_name


class WorkLeaf(NamedTuple):
    """A leaf of the work with its values."""

    axis: Axis  #: one value, or one a position along the dimension
    dimension: int | None  #: number of the dimension that moves it; None for a value that all designs have


def work_leaves(grid: Grid) -> list[WorkLeaf]:
    """Return the leaves of the work that the study reads, without those that several dimensions move together."""
    bases = [grid.spec.study.complete(member_grid.base) for member_grid in grid.structure_grids]
    paths = dict.fromkeys(path for base in bases for path in grid.spec.study.work_leaves(base))
    leaves = (_work_leaf(grid, path, bases) for path in paths)
    return [work_leaf for work_leaf in leaves if work_leaf is not None]


def _work_leaf(grid: Grid, path: str, bases: list[Design]) -> WorkLeaf | None:
    """Return a leaf with its values; None where no design has it, or not all have it, or several dimensions move it."""
    swept = any(
        path in dimension.columns for member_grid in grid.structure_grids for dimension in member_grid.dimensions
    )
    base_values = {_number(base, path) for base in bases}
    if not swept and len(base_values) == 1:
        (value,) = base_values
        return None if value is None else WorkLeaf(_axis(path, [value]), None)
    for number in range(len(grid.dimensions)):
        if values := _values_along(grid, number, path, bases):
            is_same = len({*values}) == 1
            return WorkLeaf(_axis(path, values[:1] if is_same else values), None if is_same else number)
    return None


def _values_along(grid: Grid, number: int, path: str, bases: list[Design]) -> list[float]:
    """Return [position] values of a leaf along a dimension; empty if a design lacks it or others move it too."""
    values_by_position: list[set[float | None]] = [set() for _ in range(grid.dimensions[number].size)]
    all_positions = tuple(range(len(grid.dimensions))), tuple(np.arange(size) for size in grid.shape)
    members = [(member.grid, member.axes, member.positions) for member in grid.members] or [(grid, *all_positions)]
    for (member_grid, axes, positions), base in zip(members, bases, strict=True):
        columns = member_grid.dimensions[axes[number]].columns if axes[number] >= 0 else {}
        if path not in columns and any(path in dimension.columns for dimension in member_grid.dimensions):
            return []
        values = columns[path].tolist() if path in columns else [_number(base, path)] * len(positions[number])
        for position, value in zip(positions[number].tolist(), values, strict=True):
            values_by_position[position].add(value)
    if any(len(values) != 1 or None in values for values in values_by_position):
        return []
    return [value for values in values_by_position for value in values if value is not None]


def _number(base: Design, path: str) -> float | None:
    """Return the value of a leaf in single precision; None where the design does not have it."""
    value = leaf(base, path)
    return None if value is None else float(str(np.float32(value)))


def _axis(path: str, values: list[float]) -> Axis:
    """Return the values as an axis, with names for those of an enumeration."""
    enum = all_leaves()[path].get("enum")
    names: tuple[Label, ...] = tuple(choice_name(enum(int(value))) for value in values) if enum else tuple(values)
    return Axis(short_name(path), path, "", tuple(values), names)


def work_coordinates(grid: Grid, digits: np.ndarray | None = None) -> dict[str, Variable]:
    """Return variable name → labels of the work that no axis and no fixed value has, marked as derived.

    Args:
        grid: of the sweep.
        digits: [dimension, design] positions of single designs; None for results along the dimensions of the sweep.
    """
    coordinates = {}
    for axis, dimension in _unstated(grid):
        values = labels(axis)
        dims, column = ((), values[0]) if dimension is None else along(grid, dimension, values, digits)
        variable = coordinate(dims, axis, column)
        coordinates[variable_name(axis)] = variable._replace(attrs=variable.attrs | {DERIVED: "names of the catalogue"})
    return coordinates


def _unstated(grid: Grid) -> list[WorkLeaf]:
    """Return the leaves of the work that no axis and no fixed value of the specification has."""
    axes = (*grid.fixed, *grid.mapping_axes, *(axis for dimension in grid.dimensions for axis in dimension.axes))
    keys, names = {axis.key for axis in axes}, {variable_name(axis) for axis in axes}
    return [
        work_leaf
        for work_leaf in work_leaves(grid)
        if work_leaf.axis.key not in keys and variable_name(work_leaf.axis) not in names
    ]


def unlike_work(grid: Grid, index: int) -> dict[str, Label]:
    """Return leaf name → label of a design's work, where designs differ in it and no axis has it."""
    varying = [(axis, dimension) for axis, dimension in _unstated(grid) if dimension is not None]
    digits = grid.locate(np.array([index]))[0] if varying else np.empty((0, 1), int)
    return {axis.name: labels(axis)[int(digits[dimension, 0])].item() for axis, dimension in varying}


def work_line(grid: Grid) -> str:
    """Return the line on the work that all designs of a sweep have."""
    fixed = {axis.key: axis.labels[0] for axis, dimension in work_leaves(grid) if dimension is None}
    return grid.spec.study.work(fixed)
