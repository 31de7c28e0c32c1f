"""Sweeps whose designs differ in structure: one grid per structure, and a grid that labels all of them.

Designs with and without experts, or with and without pods, have different records, and a program is compiled for one
structure. So axes of names are divided where the leaves of their names differ; each part is a grid, and the whole has
the dimensions of the axes as written.

Values of leaves that a part does not have are ignored in it without repeating designs: a degree of experts is 1, an
orthogonal axis has its first value, and a constraint on such a leaf holds.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from dse.designs.leaves import known_leaves
from dse.designs.records import PLAIN_EXPERTS, WITHOUT
from dse.errors import InputError
from dse.spec.axes import Axis
from dse.spec.space import NAMED
from dse.spec.sweep import SweepSpec
from dse.sweep.grid.degrees import ALL_DEGREES, EXPERT_DEGREES, OPTIONS, check_listed
from dse.sweep.grid.grid import Grid, GridDimension, Member
from dse.sweep.grid.mappings import MappingTable
from dse.sweep.grid.names import Names

T = TypeVar("T")

#: Value in shared columns of leaves that a part does not have.
_NEUTRAL = 1.0


# --- parts ------------------------------------------------------------------------------------------------


def separated(spec: SweepSpec) -> list[tuple[SweepSpec, Names]]:
    """The specification divided by structure, each part with its names; undivided if its designs have one structure."""
    found = _cut(spec)
    if len(found) == 1:
        return found
    read = {name for constraint in spec.constraints for name in constraint.names} & known_leaves().keys()
    said = {*spec.names, *spec.fixed, *(axis.key for axis in spec.axes), *read}
    has = [{path for path in said if names.has(path)} for _, names in found]
    anywhere = set[str]().union(*has)
    _check_objectives(spec, [names for _, names in found])
    parts = (_without(part, anywhere - own) for (part, _), own in zip(found, has, strict=True))
    return [(part, Names(part)) for part in parts]


def _check_objectives(spec: SweepSpec, parts: list[Names]) -> None:
    """InputError for an objective on a leaf that some designs lack, unless the leaf counts as 1 there."""
    for objective in spec.objectives:
        for path in objective.expression.names:
            if path in known_leaves() and path not in PLAIN_EXPERTS and not all(names.has(path) for names in parts):
                raise InputError(
                    objective.expression.where,
                    f"{path}, which not all of the designs have",
                    "what all of them have",
                    "sweep those that have it separately",
                )


def _cut(spec: SweepSpec) -> list[tuple[SweepSpec, Names]]:
    names = Names(spec)
    for axis in names.layers.values():
        groups = names.by_structure(axis) if len(axis.labels) > 1 else []
        if len(groups) > 1:
            return [part for group in groups for part in _cut(_at(spec, axis, group))]
    for axis in spec.axes:
        zero = [position for position, value in enumerate(axis.values) if axis.key in WITHOUT and not value]
        record = {path for path in known_leaves() if zero and path.startswith(f"{WITHOUT[axis.key]}.")} - {axis.key}
        if is_none(axis) and record & {*spec.fixed, *(one.key for one in spec.axes)}:
            return _cut(_without(spec, record))
        if zero and any(axis.values):
            others = [position for position, value in enumerate(axis.values) if value]
            return [*_cut(_without(_at(spec, axis, zero), record)), *_cut(_at(spec, axis, others))]
    return [(spec, names)]


def is_none(axis: Axis) -> bool:
    """Whether an axis marks a part without the record of its leaf."""
    return axis.key in WITHOUT and bool(axis.values) and not any(axis.values)


def _at(spec: SweepSpec, axis: Axis, positions: Sequence[int]) -> SweepSpec:
    """The specification at some positions of an axis and of those that move with it."""
    name = next(one.name for one in spec.axes if one.where == axis.where)  # a stack moves with its machine
    together = next((group for group in spec.zips if name in group), (name,))
    axes = (_taken(one, positions) if one.name in together else one for one in spec.axes)
    return dataclasses.replace(spec, axes=tuple(axes))


def _taken(axis: Axis, positions: Iterable[int]) -> Axis:
    """An axis at the given positions."""
    places = list(positions)
    values, labels = tuple(axis.values[i] for i in places), tuple(axis.labels[i] for i in places)
    return dataclasses.replace(axis, values=values, labels=labels)


def _without(spec: SweepSpec, paths: set[str]) -> SweepSpec:
    """The specification of a part without these leaves; degrees need not fit every part."""
    axes = {axis.name: axis for axis in spec.axes if axis.key not in paths}
    zips = [tuple(name for name in group if name in axes) for group in spec.zips]
    for group, left in zip(spec.zips, zips, strict=True):
        if 0 < len(left) < len(group):  # positions that differed only in removed axes are merged
            rows = list(zip(*(axes[name].labels for name in left), strict=True))
            axes |= {name: _taken(axes[name], sorted(map(rows.index, dict.fromkeys(rows)))) for name in left}
    return dataclasses.replace(
        spec,
        axes=tuple(dataclasses.replace(a, explicit=a.explicit and a.key not in ALL_DEGREES) for a in axes.values()),
        names={key: axis for key, axis in spec.names.items() if key not in paths},
        fixed={path: axis for path, axis in spec.fixed.items() if path not in paths},
        zips=tuple(group for group in zips if len(group) > 1),
        constraints=tuple(one for one in spec.constraints if not (paths - PLAIN_EXPERTS.keys()) & {*one.names}),
    )


# --- whole ------------------------------------------------------------------------------------------------


def joined(spec: SweepSpec, grids: list[Grid]) -> Grid:
    """The grid of designs of several structures, from the grid of each."""
    _check_degrees(spec, grids)
    whole, groups = Names(spec), _groups(spec, grids)
    axes = _mapping_axes(spec, grids)
    parts = grids[0].parts._replace(
        axes={path: axis for grid in reversed(grids) for path, axis in grid.parts.axes.items()},
        has_experts=any(grid.parts.has_experts for grid in grids),
    )
    table, numbers = _table(parts.degrees, [axis for axis in axes if axis.key in OPTIONS], grids)
    members = []
    for grid, number in zip(grids, numbers, strict=True):
        own = tuple(_index(group, grid) for group in groups)
        places = (_positions(group, grid, at) for group, at in zip(groups, own, strict=True))
        members.append(Member(grid, own, tuple(places), number))
    dimensions = tuple(_dimension(group, i, members) for i, group in enumerate(groups))
    moving = {axis.key for one in dimensions for axis in one.axes} | {axis.key for axis in axes}
    lines = {name: _distinct([getattr(grid, name)] for grid in grids) for name in _NOTES}
    notes: dict[str, Any] = {name: "; ".join(filter(None, texts)) for name, texts in lines.items()}
    return dataclasses.replace(
        grids[0],
        spec=spec,
        dimensions=dimensions,
        table=table,
        mapping_axes=axes,
        parts=parts,
        members=tuple(members),
        fixed=tuple({axis.key: axis for grid in grids for axis in grid.fixed if axis.key not in moving}.values()),
        constraints=_distinct(grid.constraints for grid in grids),
        settled=tuple(one for one in spec.constraints if all(one in grid.settled for grid in grids)),
        shapes=_distinct(grid.shapes for grid in grids),
        used=_distinct(grid.used for grid in grids),
        absent=_absent(spec, grids),
        missing=_missing(spec, table),
        kinds=whole.price_note(),
        nodes=whole.node_note(),
        **notes,
    )


#: Notes of a grid that the whole collects from its parts.
_NOTES = ("saturates", "trains", "lacks", "tokens")


def _distinct(every: Iterable[Iterable[T]]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(itertools.chain(*every)))


def _check_degrees(spec: SweepSpec, grids: list[Grid]) -> None:
    """InputError for a listed degree that fits no shape of any part."""
    for axis in spec.axes:
        own = [grid for grid in grids if axis.key in grid.parts.axes]
        for value in axis.values if axis.key in ALL_DEGREES and axis.explicit else ():
            faults = []
            for grid in own:
                try:
                    check_listed(dataclasses.replace(axis, values=(value,)), grid.parts, list(grid.shapes))
                except InputError as error:
                    faults.append(error)
            if own and len(faults) == len(own):
                raise faults[0]


def _absent(spec: SweepSpec, grids: list[Grid]) -> str:
    """Note on settings that only some designs have, with the names of the others."""
    parts_without: dict[str, list[str]] = {}
    for grid in grids:
        if lacks := ", ".join(axis.name for axis in lacking(spec, grid.spec)):
            parts_without.setdefault(lacks, []).append(named(spec, grid.spec))
    return "; ".join(f"without {names}: {', '.join(parts)}" for names, parts in parts_without.items())


def lacking(whole: SweepSpec, part: SweepSpec) -> list[Axis]:
    """Axes and fixed values of the whole that the designs of a part do not have."""
    has = {*part.names, *part.fixed, *(axis.key for axis in part.axes)}
    said = (*whole.names.values(), *whole.fixed.values(), *whole.axes)
    return [axis for axis in said if axis.key not in has]


def named(whole: SweepSpec, part: SweepSpec) -> str:
    """Name of a part: the labels of the axes that were divided."""
    own, every = (
        {axis.name: axis.labels for axis in one.axes if axis.key in NAMED or axis.key in WITHOUT}
        for one in (part, whole)
    )
    cut = {name: ", ".join(map(str, dict.fromkeys(labels))) for name, labels in own.items() if labels != every[name]}
    return " ".join(text if name in NAMED else f"{name} {text}" for name, text in cut.items())


def _missing(spec: SweepSpec, table: MappingTable) -> str:
    """Note on listed degrees that no mapping of any part has."""
    notes = []
    for axis in spec.axes:
        if axis.explicit and axis.key in table.degrees:
            absent = [f"{value:g}" for value in axis.values if value not in table.degrees[axis.key]]
            notes += [f"{axis.name} {', '.join(absent)}"] if absent else []
    return f"in no mapping: {'; '.join(notes)}" if notes else ""


# --- dimensions -------------------------------------------------------------------------------------------


def _groups(spec: SweepSpec, grids: list[Grid]) -> list[tuple[Axis, ...]]:
    """The axes along each dimension of the whole, in the order of the specification."""
    order = {axis.name: place for place, axis in enumerate(spec.axes)}
    names = {one.axes[0].name for grid in grids for one in grid.dimensions}
    together = {next((group for group in spec.zips if name in group), (name,)) for name in names}
    groups = [tuple(spec.axes[order[name]] for name in group) for group in together]
    return sorted(groups, key=lambda group: min(order[axis.name] for axis in group))


def _index(group: tuple[Axis, ...], grid: Grid) -> int:
    """Index of the dimension of a grid with axes of a group; -1 for none."""
    names = {axis.name for axis in group}
    return next((i for i, one in enumerate(grid.dimensions) if one.axes[0].name in names), -1)


def _positions(group: tuple[Axis, ...], grid: Grid, at: int) -> np.ndarray:
    """Positions along a group of the positions of a grid's dimension; the first if the grid has no such dimension."""
    if at < 0:
        return np.zeros(1, np.int64)
    axes = {axis.name: axis for axis in grid.dimensions[at].axes}
    shared = [axis for axis in group if axis.name in axes]
    known = list(zip(*(axis.labels for axis in shared), strict=True))
    return np.array([known.index(row) for row in zip(*(axes[axis.name].labels for axis in shared), strict=True)])


def _dimension(group: tuple[Axis, ...], number: int, members: list[Member]) -> GridDimension:
    """A dimension of the whole: axes as written, stacks of swept machines, and leaves of all parts."""
    size = len(group[0].labels)
    stacks = np.full(size, "", object)
    columns: dict[str, np.ndarray] = {}
    for grid, axes, positions, _ in members:
        own = grid.dimensions[axes[number]] if axes[number] >= 0 else GridDimension((), {})
        for path, column in own.columns.items():
            columns.setdefault(path, np.full(size, _NEUTRAL))[positions[number]] = column
        for axis in own.axes:
            if axis.name not in {one.name for one in group}:
                stacks[positions[number]] = axis.labels
    if not stacks.all():
        return GridDimension(group, columns)
    brought = dataclasses.replace(group[0], name="software", key="software", labels=tuple(stacks))
    return GridDimension((*group, brought), columns)


# --- mappings ---------------------------------------------------------------------------------------------


def _mapping_axes(spec: SweepSpec, grids: list[Grid]) -> tuple[Axis, ...]:
    """Parts of the mapping that label the whole: those of any grid, and those that only some grids fix."""
    written = {axis.key: axis for axis in spec.axes}
    found: dict[str, Axis] = {}
    for axis in itertools.chain(*(grid.mapping_axes for grid in grids)):
        stated, listed = written.get(axis.key, axis), {v for g in grids for v in g.parts.axis(axis.key).values}
        found[axis.key] = (
            stated
            if axis.key in ALL_DEGREES
            else _taken(stated, (i for i, value in enumerate(stated.values) if value in listed))
        )
    for path, axis in spec.fixed.items():
        if path in ALL_DEGREES[1:] + OPTIONS and any(path not in grid.spec.fixed for grid in grids):
            found[path] = axis
    order = [axis.key for axis in spec.axes]
    place = {path: order.index(path) if path in order else len(order) for path in found}
    return tuple(sorted(found.values(), key=lambda axis: (axis.key in OPTIONS, place[axis.key])))


def _table(paths: tuple[str, ...], options: list[Axis], grids: list[Grid]) -> tuple[MappingTable, list[np.ndarray]]:
    """The mappings of all grids, degrees and options in the order of each, and the numbers of the mappings per grid."""
    degrees = [path for path in paths if path in {*EXPERT_DEGREES, *grids[0].table.degrees}]
    moving = [axis for axis in options if _moves(axis, grids)]
    rows, row_of = _numbered([_rows(degrees, grid) for grid in grids])
    columns, column_of = _numbered([_columns(moving, grid) for grid in grids])
    distinct = np.zeros((len(rows), len(columns)), bool)
    for grid, row, column in zip(grids, row_of, column_of, strict=True):
        np.logical_or.at(distinct, np.ix_(row, column), grid.table.distinct)  # a grid may have equal columns
    number = np.cumsum(distinct.reshape(-1)).reshape(distinct.shape) - 1
    values = {axis.key: np.array(axis.values)[columns[:, i]] for i, axis in enumerate(moving)}
    table = MappingTable(
        dict(zip(degrees, rows[:, 1:].T, strict=True)), values or dict(grids[0].table.options), distinct
    )
    of_each = zip(grids, row_of, column_of, strict=True)
    return table, [number[row[grid.pairs[:, 0]], column[grid.pairs[:, 1]]] for grid, row, column in of_each]


def _rows(degrees: list[str], grid: Grid) -> np.ndarray:
    """[row, devices and degrees] of a grid; degrees that it does not have are 1."""
    own, one = grid.table.degrees, np.ones(grid.table.n_rows, np.int64)
    devices = math.prod((own[f"mapping.{name}"] for name in ("tp", "cp", "pp", "dp")), start=one)
    return np.stack([devices, *(own.get(path, one) for path in degrees)], axis=1)


def _columns(options: list[Axis], grid: Grid) -> np.ndarray:
    """[column, option] positions of a grid's options along their axes; the first for options it does not have."""
    found = np.zeros((grid.table.n_columns, len(options)), np.int64)
    for i, axis in enumerate(options):
        values = grid.table.options.get(axis.key, grid.parts.axis(axis.key).values[:1])
        found[:, i] = [axis.values.index(value) if value in axis.values else 0 for value in values]
    return found


def _moves(axis: Axis, grids: list[Grid]) -> bool:
    """Whether an option has several values over all grids."""
    return len({value for grid in grids for value in grid.parts.axis(axis.key).values}) > 1


def _numbered(every: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Distinct rows of several arrays in order of appearance, and the number of each row of each array."""
    distinct, number = np.unique(np.concatenate(every), axis=0, return_inverse=True)
    return distinct, np.split(number.reshape(-1), np.cumsum([len(one) for one in every])[:-1])
