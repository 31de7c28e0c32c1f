"""A specification as a grid: orthogonal dimensions x the mapping table, and where each design lies in it.

A design's *outer* index is a mixed-radix number, (dimensions…, row of degrees); its *inner* index
is the column of options. Designs are numbered point by point, and within a point in the
order of the mapping table, counting only pairs that are mappings.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Container
from typing import NamedTuple

import numpy as np

from dse.designs.leaves import leaf, leaves_of
from dse.io.quantities import counted
from dse.model.divisibility import Shape
from dse.spec.axes import Axis, Label
from dse.spec.expression import Expression
from dse.spec.sweep import SweepSpec
from dse.sweep.grid.degrees import OPTIONS, Parts
from dse.sweep.grid.mappings import MappingTable
from dse.types import Design


@dataclasses.dataclass(frozen=True)
class GridDimension:
    """One orthogonal dimension: the axes that move along it and the leaves they set."""

    axes: tuple[Axis, ...]
    columns: dict[str, np.ndarray]  #: leaf path → value at each position

    @property
    def name(self) -> str:
        """Name of the dimension in results."""
        return variable_name(self.axes[0])

    @property
    def size(self) -> int:
        """Positions."""
        return len(self.axes[0].values)


class Member(NamedTuple):
    """The designs of one structure within a grid of several: each structure has a base and a program of its own."""

    grid: Grid  #: of these designs alone
    axes: tuple[int, ...]  #: by dimension of the whole, which of the member's dimensions it is; -1 where it has none
    positions: tuple[np.ndarray, ...]  #: by dimension of the whole, where in it the member's positions are
    mappings: np.ndarray  #: [mapping of the member] its number in the table of the whole

    def index_in(self, whole: Grid, index: np.ndarray) -> np.ndarray:
        """Indices in the whole of designs of the member; they ascend as these do."""
        point, mapping = np.divmod(index, self.grid.table.n_mappings)
        digits = np.unravel_index(point, self.grid.shape) if self.grid.shape else ()
        places = [
            at[digits[axis]] if axis >= 0 else np.full(len(index), at[0])
            for axis, at in zip(self.axes, self.positions, strict=True)
        ]
        point = np.ravel_multi_index(places, whole.shape) if places else np.zeros_like(point)
        return point * whole.table.n_mappings + self.mappings[mapping]

    def locate(self, whole: Grid, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Positions in ``index`` of the whole's designs that belong to the member, and their indices in the member."""
        point, mapping = np.divmod(index, whole.table.n_mappings)
        digits = np.unravel_index(point, whole.shape) if whole.shape else ()
        own = _inverse(self.mappings, whole.table.n_mappings)[mapping]
        of_axes = zip(self.positions, whole.shape, digits, strict=True)
        places = [_inverse(at, size)[digit] for at, size, digit in of_axes]
        found = np.flatnonzero(np.min([own, *places], axis=0) >= 0)
        local = [place[found] for place, axis in zip(places, self.axes, strict=True) if axis >= 0]
        point = np.ravel_multi_index(local, self.grid.shape) if local else np.zeros_like(found)
        return found, point * self.grid.table.n_mappings + own[found]


def _inverse(positions: np.ndarray, size: int) -> np.ndarray:
    """Position → where it is among these, -1 where it is not."""
    found = np.full(size, -1)
    found[positions] = np.arange(len(positions))
    return found


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
    parts: Parts  #: what the specification says of the mapping
    shapes: tuple[Shape, ...]  #: what mappings must divide, by distinct sizes along the dimensions, the last fastest
    used: tuple[tuple[str, str], ...]  #: (kind, slug) of the catalogue entries
    kinds: str = ""  #: what figures of generated accelerators are not to be compared with, in one line
    saturates: str = ""  #: what of a bandwidth the cores cannot use, in one line
    nodes: str = ""  #: in which nodes and with which stacks accelerators stand, in one line
    trains: str = ""  #: which stacks of a sweep that serves only train, in one line
    missing: str = ""  #: which listed values of the mapping's degrees are in no mapping, in one line
    lacks: str = ""  #: what the stacks lack of the options that the specification lists, in one line
    tokens: str = ""  #: how many tokens a run of adapters is taken to have, in one line
    absent: str = ""  #: what is said that some designs do not have, in one line
    members: tuple[Member, ...] = ()  #: the designs by structure; none where all have one

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know of the grid before anything is computed, a line each."""
        own = (self.absent, self.nodes, self.kinds, self.saturates, self.missing, self.trains, self.lacks, self.tokens)
        return tuple(filter(None, (*self.spec.notes, *own)))

    @functools.cached_property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the orthogonal dimensions."""
        return tuple(dimension.size for dimension in self.dimensions)

    @functools.cached_property
    def n_points(self) -> int:
        """Combinations of the orthogonal dimensions."""
        return math.prod(self.shape)

    @functools.cached_property
    def n_outer(self) -> int:
        """Outer indices: points x rows of degrees, of each member after those of the one before it."""
        return sum(one.n_outer for one in self.each) if self.members else self.n_points * self.table.n_rows

    @property
    def n_indices(self) -> int:
        """Indices that designs may have."""
        return self.n_points * self.table.n_mappings

    @property
    def n_designs(self) -> int:
        """Designs of the sweep."""
        return sum(one.n_designs for one in self.each) if self.members else self.n_indices

    @property
    def each(self) -> tuple[Grid, ...]:
        """The grids of one structure: those of the members, or this one."""
        return tuple(member.grid for member in self.members) or (self,)

    def indices(self, ordinals: np.ndarray) -> np.ndarray:
        """Indices of the designs of these numbers, which count those of each member after the other's."""
        found, first = np.array(ordinals, np.int64), 0
        for member in self.members:
            own = (ordinals >= first) & (ordinals < first + member.grid.n_designs)
            found[own] = member.index_in(self, ordinals[own] - first)
            first += member.grid.n_designs
        return found

    def by_structure(self, index: np.ndarray) -> list[tuple[np.ndarray, Grid, np.ndarray]]:
        """(which of these designs, their grid, their indices there) of every structure that some of them have."""
        index = np.asarray(index, np.int64)
        if not self.members:
            return [(np.arange(len(index)), self, index)]
        found = [(member.grid, *member.locate(self, index)) for member in self.members]
        return [(places, grid, local) for grid, places, local in found if len(places)]

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """Leaf path → the values that an axis gives it, of every leaf that differs from the base's."""
        tables = [*(one.columns for one in self.dimensions), self.table.degrees, self.table.options]
        return {path: values for table in tables for path, values in table.items()}

    @functools.cached_property
    def pairs(self) -> np.ndarray:
        """[mapping, 2] row of degrees and column of options of each mapping."""
        return np.argwhere(self.table.distinct)

    @functools.cached_property
    def _mappings_before(self) -> np.ndarray:
        """Mappings before each row of degrees, and their total at the end."""
        return np.concatenate([[0], np.cumsum(self.table.distinct.sum(axis=1))])

    def _pairs_of(self, mapping: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row of degrees, column of options) of mappings: only their rows are looked into."""
        row = np.searchsorted(self._mappings_before, mapping, side="right") - 1
        rows, at = np.unique(row, return_inverse=True)
        column = np.nonzero(self.table.distinct[rows])[1]
        before = np.concatenate([[0], np.cumsum(np.diff(self._mappings_before)[rows])])
        return row, column[before[at] + mapping - self._mappings_before[row]]

    def first_design(self, outer: int) -> int:
        """Number of designs before an outer index."""
        point, row = divmod(outer, self.table.n_rows)
        return point * self.table.n_mappings + int(self._mappings_before[row])

    def design_index(self, outer: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Index of the designs at these outer indices and columns (each of them a mapping)."""
        point, row = np.divmod(outer.astype(np.int64), self.table.n_rows)
        rows, at = np.unique(row, return_inverse=True)
        number = self._mappings_before[row] + np.cumsum(self.table.distinct[rows], axis=1)[at, column] - 1
        return point * self.table.n_mappings + number

    def locate(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(digits [dimension…, row of degrees][design], column of options) of design indices."""
        point, mapping = np.divmod(np.asarray(index, np.int64), self.table.n_mappings)
        digits = np.unravel_index(point, self.shape) if self.shape else ()
        row, column = self._pairs_of(mapping)
        return np.stack([*digits, row]), column

    def values(self, index: np.ndarray) -> dict[str, np.ndarray]:
        """Leaf path → its value at each of these designs, for all leaves that differ from the base's.

        Of several structures all leaves, NaN where a design has none.
        """
        if self.members:
            return self._values_by_structure(index)
        digits, column = self.locate(index)
        tables = zip([*(one.columns for one in self.dimensions), self.table.degrees], digits, strict=True)
        found = {path: values[at] for table, at in tables for path, values in table.items()}
        return found | {path: values[column] for path, values in self.table.options.items()}

    def _values_by_structure(self, index: np.ndarray) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = {}
        for places, grid, local in self.by_structure(index):
            base = {path: leaf(grid.base, path) for path in leaves_of(grid.base)}
            for path, values in (base | grid.values(local)).items():
                found.setdefault(path, np.full(len(index), np.nan))[places] = values
        return found

    def mapping_values(self, axis: Axis, mapping: np.ndarray | None = None) -> np.ndarray:
        """Value of a part of the mapping at each mapping, or at those of these numbers."""
        row, column = self.pairs.T if mapping is None else self._pairs_of(mapping)
        if axis.key in self.table.degrees:
            return self.table.degrees[axis.key][row]
        if axis.key in self.table.options:
            return self.table.options[axis.key][column]
        return np.full(len(row), axis.values[0])

    def labels(self, index: int) -> dict[str, Label]:
        """What the axes are at a design, by axis name."""
        digits, _ = self.locate(np.array([index]))
        mapping = np.array([index % self.table.n_mappings])
        found: dict[str, Label] = {}
        for dimension, digit in zip(self.dimensions, digits[:-1, 0], strict=True):
            found |= {axis.name: axis.labels[digit] for axis in dimension.axes}
        parts = {axis: self.mapping_values(axis, mapping)[0] for axis in self.mapping_axes}
        return found | {axis.name: part_label(axis, value) for axis, value in parts.items()}

    def describe(self) -> str:
        """The size in one line, before anything is allocated."""
        return f"{' + '.join(one.product() for one in self.each)} = {counted(self.n_designs, 'design')}"

    def product(self, continuous: Container[str] = ()) -> str:
        """The sizes of dimensions, those of continuous leaves apart, and mappings, of designs of one structure."""
        sizes = [f"{one.size:,} {one.name}" for one in self.dimensions if one.axes[0].key not in continuous]
        return " x ".join([*sizes, counted(self.table.n_mappings, "mapping")])


def variable_name(axis: Axis) -> str:
    """An axis' name in datasets, where a dot would be no attribute."""
    return axis.name.replace(".", "_")


def part_label(axis: Axis, value: float) -> Label:
    """How results show a part of the mapping: a number (a whole one as such), a name or a truth value."""
    if axis.key in OPTIONS and value in axis.values:
        label = axis.labels[axis.values.index(value)]
        return _whole(label) if type(label) is float else label
    return _whole(value)


def _whole(value: float) -> float | int:
    return int(value) if value == int(value) else value
