"""A specification as a grid: orthogonal dimensions x the mapping table, and the index of each design in it.

A design's *outer* index is a mixed-radix number, (dimensions…, row of degrees); its *inner* index
is the column of options. Designs are numbered point by point, and within a point in the
order of the mapping table, counting only pairs that are mappings.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Container, Mapping
from typing import NamedTuple

import numpy as np

from dse.designs import leaf, leaves_of
from dse.io import counted
from dse.model import Shape
from dse.spec import Axis, Expression, SweepSpec
from dse.spec.axes import Label
from dse.sweep.grid.degrees import OPTIONS, MappingSpec
from dse.sweep.grid.mappings import MappingTable
from dse.types import Design


@dataclasses.dataclass(frozen=True)
class GridDimension:
    """One orthogonal dimension: the axes that move along it and the leaves they set."""

    axes: tuple[Axis, ...]
    columns: dict[str, np.ndarray]  #: leaf path → [size] values

    @property
    def name(self) -> str:
        """Name of the dimension in results: its first axis, with underscores for dots."""
        return variable_name(self.axes[0])

    @property
    def size(self) -> int:
        """Number of values along the dimension."""
        return len(self.axes[0].values)


class Member(NamedTuple):
    """The designs of one structure within a grid of several: each structure has a base and a program of its own."""

    grid: Grid  #: of these designs alone
    axes: tuple[int, ...]  #: by dimension of the whole, which of the member's dimensions it is; -1 where it has none
    positions: tuple[np.ndarray, ...]  #: by dimension of the whole, where in it the member's positions are
    mappings: np.ndarray  #: [mapping of the member] its number in the table of the whole

    def index_in(self, sweep_grid: Grid, index: np.ndarray) -> np.ndarray:
        """Return [design] indices in the whole sweep from indices in the member; ascending where these are."""
        point, mapping = np.divmod(index, self.grid.table.n_mappings)
        digits = np.unravel_index(point, self.grid.shape) if self.grid.shape else ()
        sweep_digits = [
            positions[digits[axis]] if axis >= 0 else np.full(len(index), positions[0])
            for axis, positions in zip(self.axes, self.positions, strict=True)
        ]
        point = np.ravel_multi_index(sweep_digits, sweep_grid.shape) if sweep_digits else np.zeros_like(point)
        return point * sweep_grid.table.n_mappings + self.mappings[mapping]

    def locate(self, sweep_grid: Grid, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (positions in ``index``, of the sweep, whose designs belong to the member; their indices in it)."""
        point, mapping = np.divmod(index, sweep_grid.table.n_mappings)
        digits = np.unravel_index(point, sweep_grid.shape) if sweep_grid.shape else ()
        local_mapping = _inverse(self.mappings, sweep_grid.table.n_mappings)[mapping]
        axes = zip(self.positions, sweep_grid.shape, digits, strict=True)
        local_digits = [_inverse(positions, size)[digit] for positions, size, digit in axes]
        rows = np.flatnonzero(np.min([local_mapping, *local_digits], axis=0) >= 0)
        local = [digit_column[rows] for digit_column, axis in zip(local_digits, self.axes, strict=True) if axis >= 0]
        point = np.ravel_multi_index(local, self.grid.shape) if local else np.zeros_like(rows)
        return rows, point * self.grid.table.n_mappings + local_mapping[rows]


def _inverse(positions: np.ndarray, size: int) -> np.ndarray:
    """Return [position] its index in ``positions``, -1 where it is not in these."""
    inverse = np.full(size, -1)
    inverse[positions] = np.arange(len(positions))
    return inverse


@dataclasses.dataclass(frozen=True)
class Grid:
    """Everything a sweep is: its designs are ``n_points`` points x ``table.n_mappings`` mappings.

    Designs of several structures (with experts and without, say) are the ``members``. The whole labels them all: its
    table holds the mappings of every member, and what a member does not have of the product is no design.
    """

    spec: SweepSpec
    base: Design  #: every leaf that no axis sets
    fixed: tuple[Axis, ...]  #: names and leaves that the specification fixes or that follow from it
    dimensions: tuple[GridDimension, ...]
    table: MappingTable
    mapping_axes: tuple[Axis, ...]  #: swept parts of the mapping, and dp where it is derived
    constraints: tuple[Expression, ...]  #: constraints that the table has not settled
    settled: tuple[Expression, ...]  #: constraints that it has settled
    parts: MappingSpec  #: what the specification says of the mapping
    shapes: tuple[Shape, ...]  #: what mappings must divide, by distinct sizes along the dimensions, the last fastest
    catalog_entries: tuple[tuple[str, str], ...]  #: (kind, slug) of the catalogue entries
    notes: Mapping[str, str]  #: subject → what a reader must know of it, in one line, "" where there is nothing
    members: tuple[Member, ...] = ()  #: the designs by structure; none where all have one

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know of the grid before anything is computed, a line each."""
        return tuple(filter(None, (*self.spec.notes, *self.notes.values())))

    @property
    def unsupported_note(self) -> str:
        """What the stacks lack of the options that the specification lists, in one line."""
        return self.notes["unsupported"]

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the orthogonal dimensions."""
        return tuple(dimension.size for dimension in self.dimensions)

    @functools.cached_property
    def n_points(self) -> int:
        """Number of combinations of values along the orthogonal dimensions."""
        return math.prod(self.shape)

    @functools.cached_property
    def n_outer(self) -> int:
        """Number of outer indices, points x rows of degrees: of each member after those of the one before it."""
        return sum(grid.n_outer for grid in self.structure_grids) if self.members else self.n_points * self.table.n_rows

    @property
    def n_indices(self) -> int:
        """Number of indices in the product of points and mappings, not all of them designs with several structures."""
        return self.n_points * self.table.n_mappings

    @property
    def n_designs(self) -> int:
        """Number of designs of the sweep."""
        return sum(grid.n_designs for grid in self.structure_grids) if self.members else self.n_indices

    @property
    def structure_grids(self) -> tuple[Grid, ...]:
        """The grids of one structure: those of the members, or this one."""
        return tuple(member.grid for member in self.members) or (self,)

    def indices(self, ordinals: np.ndarray) -> np.ndarray:
        """Return design indices from ordinals, which count the designs of each member after those of the one before."""
        index, offset = np.array(ordinals, np.int64), 0
        for member in self.members:
            is_member = (ordinals >= offset) & (ordinals < offset + member.grid.n_designs)
            index[is_member] = member.index_in(self, ordinals[is_member] - offset)
            offset += member.grid.n_designs
        return index

    def by_structure(self, index: np.ndarray) -> list[tuple[np.ndarray, Grid, np.ndarray]]:
        """Return (positions in ``index``, grid, indices in that grid) for every structure that these designs have."""
        index = np.asarray(index, np.int64)
        if not self.members:
            return [(np.arange(len(index)), self, index)]
        located = [(member.grid, *member.locate(self, index)) for member in self.members]
        return [(positions, grid, local) for grid, positions, local in located if len(positions)]

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Leaf path → the values that an axis gives it, of every leaf that differs from the base's."""
        tables = [*(dimension.columns for dimension in self.dimensions), self.table.degrees, self.table.options]
        return {path: values for table in tables for path, values in table.items()}

    @functools.cached_property
    def pairs(self) -> np.ndarray:
        """[mapping, 2] row of degrees and column of options of each mapping."""
        return np.argwhere(self.table.distinct)

    @functools.cached_property
    def _mappings_before(self) -> np.ndarray:
        """[row of degrees] number of mappings before it, and their total at the end."""
        return np.concatenate([[0], np.cumsum(self.table.distinct.sum(axis=1))])

    def _pairs_of(self, mapping: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (row of degrees, column of options) of mappings by number: only their rows are looked into."""
        row = np.searchsorted(self._mappings_before, mapping, side="right") - 1
        rows, row_number = np.unique(row, return_inverse=True)
        column = np.nonzero(self.table.distinct[rows])[1]
        n_before = np.concatenate([[0], np.cumsum(np.diff(self._mappings_before)[rows])])
        return row, column[n_before[row_number] + mapping - self._mappings_before[row]]

    def first_design(self, outer: int) -> int:
        """Return the index of the first design at an outer index: the number of designs before it."""
        point, row = divmod(outer, self.table.n_rows)
        return point * self.table.n_mappings + int(self._mappings_before[row])

    def design_index(self, outer: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Return [design] design indices from outer indices and columns of options, each pair a mapping."""
        point, row = np.divmod(outer.astype(np.int64), self.table.n_rows)
        rows, row_number = np.unique(row, return_inverse=True)
        mapping = self._mappings_before[row] + np.cumsum(self.table.distinct[rows], axis=1)[row_number, column] - 1
        return point * self.table.n_mappings + mapping

    def locate(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ([digit, design] by dimension…, row of degrees; [design] column of options) of design indices."""
        point, mapping = np.divmod(np.asarray(index, np.int64), self.table.n_mappings)
        digits = np.unravel_index(point, self.shape) if self.shape else ()
        row, column = self._pairs_of(mapping)
        return np.stack([*digits, row]), column

    def values(self, index: np.ndarray) -> dict[str, np.ndarray]:
        """Return leaf path → [design] its values at these indices, for all leaves that differ from the base's.

        Of several structures all leaves, NaN where a design has none.
        """
        if self.members:
            return self._values_by_structure(index)
        digits, column = self.locate(index)
        tables = zip([*(dimension.columns for dimension in self.dimensions), self.table.degrees], digits, strict=True)
        values_by_path = {path: values[digit] for table, digit in tables for path, values in table.items()}
        return values_by_path | {path: values[column] for path, values in self.table.options.items()}

    def _values_by_structure(self, index: np.ndarray) -> dict[str, np.ndarray]:
        """Return leaf path → [design] values of all leaves, NaN where a design has none."""
        values_by_path: dict[str, np.ndarray] = {}
        for positions, grid, local in self.by_structure(index):
            base = {path: leaf(grid.base, path) for path in leaves_of(grid.base)}
            for path, values in (base | grid.values(local)).items():
                values_by_path.setdefault(path, np.full(len(index), np.nan))[positions] = values
        return values_by_path

    def mapping_values(self, axis: Axis, mapping: np.ndarray | None = None) -> np.ndarray:
        """Return [mapping] values of a part of the mapping, at all mappings or at these numbers."""
        row, column = self.pairs.T if mapping is None else self._pairs_of(mapping)
        if axis.key in self.table.degrees:
            return self.table.degrees[axis.key][row]
        if axis.key in self.table.options:
            return self.table.options[axis.key][column]
        return np.full(len(row), axis.values[0])

    def labels(self, index: int) -> dict[str, Label]:
        """Return axis name → label of the design with this index, parts of the mapping included."""
        digits, _ = self.locate(np.array([index]))
        mapping = np.array([index % self.table.n_mappings])
        label_by_axis: dict[str, Label] = {}
        for dimension, digit in zip(self.dimensions, digits[:-1, 0], strict=True):
            label_by_axis |= {axis.name: axis.labels[digit] for axis in dimension.axes}
        parts = {axis: self.mapping_values(axis, mapping)[0] for axis in self.mapping_axes}
        return label_by_axis | {axis.name: part_label(axis, value) for axis, value in parts.items()}

    def describe(self) -> str:
        """Return the text of the grid's size in one line, before anything is allocated."""
        return f"{' + '.join(grid.product() for grid in self.structure_grids)} = {counted(self.n_designs, 'design')}"

    def product(self, continuous: Container[str] = ()) -> str:
        """Return the text of the sizes of dimensions and mappings, without dimensions of ``continuous`` leaves."""
        sizes = [
            f"{dimension.size:,} {dimension.name}"
            for dimension in self.dimensions
            if dimension.axes[0].key not in continuous
        ]
        return " x ".join([*sizes, counted(self.table.n_mappings, "mapping")])


def variable_name(axis: Axis) -> str:
    """Return an axis' name in datasets, with underscores for dots, which would be no attributes."""
    return axis.name.replace(".", "_")


def part_label(axis: Axis, value: float) -> Label:
    """Return the label of a part of the mapping in results: an integer, another number, a name or a truth value."""
    if axis.key in OPTIONS and value in axis.values:
        label = axis.labels[axis.values.index(value)]
        return _plain_number(label) if type(label) is float else label
    return _plain_number(value)


def _plain_number(value: float) -> float | int:
    """Return a whole number as an integer, another one unchanged."""
    return int(value) if value == int(value) else value
