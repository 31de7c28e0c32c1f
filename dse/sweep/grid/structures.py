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
from typing import TypeVar

import numpy as np

from dse.designs import all_leaves
from dse.designs.records import PLAIN_EXPERTS, RECORDS_ABSENT_AT_ZERO
from dse.errors import InputError
from dse.spec import Axis, SweepSpec
from dse.spec.space import CATALOGUE_KEYS
from dse.sweep.grid.degrees import ALL_DEGREES, EXPERT_DEGREES, OPTIONS, check_listed
from dse.sweep.grid.grid import Grid, GridDimension, Member
from dse.sweep.grid.mappings import MappingTable
from dse.sweep.grid.names import Names

T = TypeVar("T")

#: Value in shared columns of leaves that a part does not have.
_NEUTRAL = 1.0


# --- parts ------------------------------------------------------------------------------------------------


def split_by_structure(spec: SweepSpec) -> list[tuple[SweepSpec, Names]]:
    """Return the specification divided by structure of designs: (part, names of the part), one or more."""
    cut_parts = _cut_by_structure(spec)
    if len(cut_parts) == 1:
        return cut_parts
    read = {name for constraint in spec.constraints for name in constraint.names} & all_leaves().keys()
    said = {*spec.names, *spec.fixed, *(axis.key for axis in spec.axes), *read}
    has = [{path for path in said if names.has(path)} for _, names in cut_parts]
    anywhere = set[str]().union(*has)
    _check_objectives(spec, [names for _, names in cut_parts])
    parts = (_remove_leaves(part, anywhere - part_paths) for (part, _), part_paths in zip(cut_parts, has, strict=True))
    return [(part, Names(part)) for part in parts]


def _check_objectives(spec: SweepSpec, parts: list[Names]) -> None:
    """Raise InputError for an objective on a leaf that some designs lack, unless the leaf counts as 1 there."""
    for objective in spec.objectives:
        for path in objective.expression.names:
            if path in all_leaves() and path not in PLAIN_EXPERTS and not all(names.has(path) for names in parts):
                raise InputError(
                    objective.expression.where,
                    f"{path}, which not all of the designs have",
                    "what all of them have",
                    "sweep those that have it separately",
                )


def _cut_by_structure(spec: SweepSpec) -> list[tuple[SweepSpec, Names]]:
    """Return (specification, names) of each structure; leaves that a part lacks may still be in it."""
    names = Names(spec)
    for axis in names.layers.values():
        groups = names.by_structure(axis) if len(axis.labels) > 1 else []
        if len(groups) > 1:
            return [part for group in groups for part in _cut_by_structure(_restrict(spec, axis, group))]
    for axis in spec.axes:
        if axis.key not in RECORDS_ABSENT_AT_ZERO:
            continue
        zero, nonzero = (
            [i for i, value in enumerate(axis.values) if bool(value) is is_set] for is_set in (False, True)
        )
        prefix = f"{RECORDS_ABSENT_AT_ZERO[axis.key]}."
        record = {path for path in all_leaves() if path.startswith(prefix)} - {axis.key}
        if is_none(axis) and record & {*spec.fixed, *(other.key for other in spec.axes)}:
            return _cut_by_structure(_remove_leaves(spec, record))
        if zero and nonzero:
            return [
                *_cut_by_structure(_remove_leaves(_restrict(spec, axis, zero), record)),
                *_cut_by_structure(_restrict(spec, axis, nonzero)),
            ]
    return [(spec, names)]


def is_none(axis: Axis) -> bool:
    """Return True if an axis, all of its values 0, marks a part without the record of its leaf."""
    return axis.key in RECORDS_ABSENT_AT_ZERO and bool(axis.values) and not any(axis.values)


def _restrict(spec: SweepSpec, axis: Axis, positions: Sequence[int]) -> SweepSpec:
    """Return the specification at these positions of an axis, and of the axes that move with it."""
    # A stack moves with its machine.
    name = next(candidate.name for candidate in spec.axes if candidate.where == axis.where)
    together = next((group for group in spec.zips if name in group), (name,))
    axes = (take(candidate, positions) if candidate.name in together else candidate for candidate in spec.axes)
    return dataclasses.replace(spec, axes=tuple(axes))


def take(axis: Axis, positions: Iterable[int]) -> Axis:
    """Return an axis with the values and labels at these positions alone."""
    indices = list(positions)
    values, labels = tuple(axis.values[i] for i in indices), tuple(axis.labels[i] for i in indices)
    return dataclasses.replace(axis, values=values, labels=labels)


def _remove_leaves(spec: SweepSpec, paths: set[str]) -> SweepSpec:
    """Return the specification of a part without these leaves; degrees need not fit every part."""
    axes = {axis.name: axis for axis in spec.axes if axis.key not in paths}
    zips = [tuple(name for name in group if name in axes) for group in spec.zips]
    for group, remaining in zip(spec.zips, zips, strict=True):
        if 0 < len(remaining) < len(group):  # positions that differed only in removed axes are merged
            rows = list(zip(*(axes[name].labels for name in remaining), strict=True))
            axes |= {name: take(axes[name], sorted(map(rows.index, dict.fromkeys(rows)))) for name in remaining}
    return dataclasses.replace(
        spec,
        axes=tuple(dataclasses.replace(a, explicit=a.explicit and a.key not in ALL_DEGREES) for a in axes.values()),
        names={key: axis for key, axis in spec.names.items() if key not in paths},
        fixed={path: axis for path, axis in spec.fixed.items() if path not in paths},
        zips=tuple(group for group in zips if len(group) > 1),
        constraints=tuple(
            constraint for constraint in spec.constraints if not (paths - PLAIN_EXPERTS.keys()) & {*constraint.names}
        ),
    )


# --- whole ------------------------------------------------------------------------------------------------


def join_grids(spec: SweepSpec, grids: list[Grid]) -> Grid:
    """Return the grid of the whole sweep, from the specification and the grid of each structure."""
    _check_degrees(spec, grids)
    sweep_names, groups = Names(spec), _groups(spec, grids)
    axes = _mapping_axes(spec, grids)
    parts = grids[0].parts._replace(
        axes={path: axis for grid in reversed(grids) for path, axis in grid.parts.axes.items()},
        has_experts=any(grid.parts.has_experts for grid in grids),
    )
    table, numbers = _table(parts.degrees, [axis for axis in axes if axis.key in OPTIONS], grids)
    members = []
    for grid, number in zip(grids, numbers, strict=True):
        dimension_indices = tuple(_index(group, grid) for group in groups)
        positions = (_positions(group, grid, index) for group, index in zip(groups, dimension_indices, strict=True))
        members.append(Member(grid, dimension_indices, tuple(positions), number))
    dimensions = tuple(_dimension(group, i, members) for i, group in enumerate(groups))
    varying_keys = {axis.key for dimension in dimensions for axis in dimension.axes} | {axis.key for axis in axes}
    texts_by_note = {name: _distinct([grid.notes[name]] for grid in grids) for name in grids[0].notes}
    notes = {"absent": _absent(spec, grids)} | {
        name: "; ".join(filter(None, texts)) for name, texts in texts_by_note.items()
    }
    return dataclasses.replace(
        grids[0],
        spec=spec,
        dimensions=dimensions,
        table=table,
        mapping_axes=axes,
        parts=parts,
        members=tuple(members),
        fixed=tuple({axis.key: axis for grid in grids for axis in grid.fixed if axis.key not in varying_keys}.values()),
        constraints=_distinct(grid.constraints for grid in grids),
        settled=tuple(
            constraint for constraint in spec.constraints if all(constraint in grid.settled for grid in grids)
        ),
        shapes=_distinct(grid.shapes for grid in grids),
        catalog_entries=_distinct(grid.catalog_entries for grid in grids),
        notes=notes
        | {
            "nodes": sweep_names.node_note(),
            "kinds": sweep_names.price_note(),
            "missing": _missing(spec, table),
        },
    )


def _distinct(collections: Iterable[Iterable[T]]) -> tuple[T, ...]:
    """Return the distinct items of all collections, in order of appearance."""
    return tuple(dict.fromkeys(itertools.chain(*collections)))


def _check_degrees(spec: SweepSpec, grids: list[Grid]) -> None:
    """Raise InputError for a listed degree that fits no shape of any part."""
    for axis in spec.axes:
        grids_with_axis = [grid for grid in grids if axis.key in grid.parts.axes]
        for value in axis.values if axis.key in ALL_DEGREES and axis.explicit else ():
            faults = []
            for grid in grids_with_axis:
                try:
                    check_listed(dataclasses.replace(axis, values=(value,)), grid.parts, list(grid.shapes))
                except InputError as error:
                    faults.append(error)
            if grids_with_axis and len(faults) == len(grids_with_axis):
                raise faults[0]


def _absent(spec: SweepSpec, grids: list[Grid]) -> str:
    """Return the note on settings that only some designs have, with the names of the others; empty without any."""
    parts_without: dict[str, list[str]] = {}
    for grid in grids:
        if absent_names := ", ".join(axis.name for axis in absent_axes(spec, grid.spec)):
            parts_without.setdefault(absent_names, []).append(part_name(spec, grid.spec))
    return "; ".join(f"without {names}: {', '.join(parts)}" for names, parts in parts_without.items())


def absent_axes(sweep_spec: SweepSpec, part: SweepSpec) -> list[Axis]:
    """Return axes and fixed values of the whole that the designs of a part do not have."""
    keys = {*part.names, *part.fixed, *(axis.key for axis in part.axes)}
    said = (*sweep_spec.names.values(), *sweep_spec.fixed.values(), *sweep_spec.axes)
    return [axis for axis in said if axis.key not in keys]


def part_name(sweep_spec: SweepSpec, part: SweepSpec) -> str:
    """Return the text that names a part: the labels of the axes that were divided."""
    sweep_labels, texts = {axis.name: axis.labels for axis in sweep_spec.axes}, []
    for axis in part.axes:
        if (axis.key in CATALOGUE_KEYS or axis.key in RECORDS_ABSENT_AT_ZERO) and axis.labels != sweep_labels[
            axis.name
        ]:
            text = ", ".join(map(str, dict.fromkeys(axis.labels)))
            texts.append(text if axis.name in CATALOGUE_KEYS else f"{axis.name} {text}")
    return " ".join(texts)


def _missing(spec: SweepSpec, table: MappingTable) -> str:
    """Return the note on listed degrees that no mapping of any part has; empty if there are none."""
    notes = []
    for axis in spec.axes:
        if axis.explicit and axis.key in table.degrees:
            absent = [f"{value:g}" for value in axis.values if value not in table.degrees[axis.key]]
            notes += [f"{axis.name} {', '.join(absent)}"] if absent else []
    return f"in no mapping: {'; '.join(notes)}" if notes else ""


# --- dimensions -------------------------------------------------------------------------------------------


def _groups(spec: SweepSpec, grids: list[Grid]) -> list[tuple[Axis, ...]]:
    """Return the axes along each dimension of the whole, in the order of the specification."""
    order = {axis.name: position for position, axis in enumerate(spec.axes)}
    names = {dimension.axes[0].name for grid in grids for dimension in grid.dimensions}
    together = {next((group for group in spec.zips if name in group), (name,)) for name in names}
    groups = [tuple(spec.axes[order[name]] for name in group) for group in together]
    return sorted(groups, key=lambda group: min(order[axis.name] for axis in group))


def _index(group: tuple[Axis, ...], grid: Grid) -> int:
    """Return the index of a grid's dimension that begins with an axis of a group; -1 for none."""
    names = {axis.name for axis in group}
    return next((i for i, dimension in enumerate(grid.dimensions) if dimension.axes[0].name in names), -1)


def _positions(group: tuple[Axis, ...], grid: Grid, index: int) -> np.ndarray:
    """Return [index in a grid's dimension] position along the group; [0] if the grid lacks the dimension."""
    if index < 0:
        return np.zeros(1, np.int64)
    axes = {axis.name: axis for axis in grid.dimensions[index].axes}
    shared = [axis for axis in group if axis.name in axes]
    rows = list(zip(*(axis.labels for axis in shared), strict=True))
    return np.array([rows.index(row) for row in zip(*(axes[axis.name].labels for axis in shared), strict=True)])


def _dimension(group: tuple[Axis, ...], number: int, members: list[Member]) -> GridDimension:
    """Return a dimension of the whole: axes as written, stacks of swept machines, and leaves of all parts."""
    size = len(group[0].labels)
    stacks = np.full(size, "", object)
    columns: dict[str, np.ndarray] = {}
    for grid, axes, positions, _ in members:
        part_dimension = grid.dimensions[axes[number]] if axes[number] >= 0 else GridDimension((), {})
        for path, column in part_dimension.columns.items():
            columns.setdefault(path, np.full(size, _NEUTRAL))[positions[number]] = column
        for axis in part_dimension.axes:
            if axis.name not in {group_axis.name for group_axis in group}:
                stacks[positions[number]] = axis.labels
    if not stacks.all():
        return GridDimension(group, columns)
    brought = dataclasses.replace(group[0], name="software", key="software", labels=tuple(stacks))
    return GridDimension((*group, brought), columns)


# --- mappings ---------------------------------------------------------------------------------------------


def _mapping_axes(spec: SweepSpec, grids: list[Grid]) -> tuple[Axis, ...]:
    """Return the parts of the mapping that label the whole: those of any grid, and those that only some grids fix."""
    axis_by_path = {axis.key: axis for axis in spec.axes}
    axes_by_path: dict[str, Axis] = {}
    for axis in itertools.chain(*(grid.mapping_axes for grid in grids)):
        swept_axis, swept_values = axis_by_path.get(axis.key, axis), _option_values(axis, grids)
        if axis.key not in ALL_DEGREES:
            swept_axis = take(swept_axis, (i for i, value in enumerate(swept_axis.values) if value in swept_values))
        axes_by_path[axis.key] = swept_axis
    for path, axis in spec.fixed.items():
        if path in ALL_DEGREES[1:] + OPTIONS and any(path not in grid.spec.fixed for grid in grids):
            axes_by_path[path] = axis
    order = [axis.key for axis in spec.axes]
    place = {path: order.index(path) if path in order else len(order) for path in axes_by_path}
    return tuple(sorted(axes_by_path.values(), key=lambda axis: (axis.key in OPTIONS, place[axis.key])))


def _table(paths: tuple[str, ...], options: list[Axis], grids: list[Grid]) -> tuple[MappingTable, list[np.ndarray]]:
    """Return the mapping table of all grids, and by grid: [its mapping] number in that table."""
    degrees = [path for path in paths if path in {*EXPERT_DEGREES, *grids[0].table.degrees}]
    varying = [axis for axis in options if len(_option_values(axis, grids)) > 1]
    rows, row_of = _distinct_rows([_rows(degrees, grid) for grid in grids])
    columns, column_of = _distinct_rows([_columns(varying, grid) for grid in grids])
    distinct = np.zeros((len(rows), len(columns)), bool)
    for grid, row, column in zip(grids, row_of, column_of, strict=True):
        np.logical_or.at(distinct, np.ix_(row, column), grid.table.distinct)  # a grid may have equal columns
    number = np.cumsum(distinct.reshape(-1)).reshape(distinct.shape) - 1
    values = {axis.key: np.array(axis.values)[columns[:, i]] for i, axis in enumerate(varying)}
    table = MappingTable(
        dict(zip(degrees, rows[:, 1:].T, strict=True)), values or dict(grids[0].table.options), distinct
    )
    of_each = zip(grids, row_of, column_of, strict=True)
    return table, [number[row[grid.pairs[:, 0]], column[grid.pairs[:, 1]]] for grid, row, column in of_each]


def _rows(degrees: list[str], grid: Grid) -> np.ndarray:
    """Return [row, devices and degrees] of a grid's table; degrees that it does not have are 1."""
    degrees_by_path, ones = grid.table.degrees, np.ones(grid.table.n_rows, np.int64)
    devices = math.prod((degrees_by_path[f"mapping.{name}"] for name in ("tp", "cp", "pp", "dp")), start=ones)
    return np.stack([devices, *(degrees_by_path.get(path, ones) for path in degrees)], axis=1)


def _columns(options: list[Axis], grid: Grid) -> np.ndarray:
    """Return [column, option] indices of a grid's options along their axes, 0 for options that it lacks."""
    indices = np.zeros((grid.table.n_columns, len(options)), np.int64)
    for i, axis in enumerate(options):
        values = grid.table.options.get(axis.key, grid.parts.axis(axis.key).values[:1])
        indices[:, i] = [axis.values.index(value) if value in axis.values else 0 for value in values]
    return indices


def _option_values(axis: Axis, grids: list[Grid]) -> set[float]:
    """Return the values of a part of the mapping over all grids."""
    return {value for grid in grids for value in grid.parts.axis(axis.key).values}


def _distinct_rows(arrays: list[np.ndarray]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the distinct rows of several arrays, ascending, and by array: [row] its index among these."""
    distinct, number = np.unique(np.concatenate(arrays), axis=0, return_inverse=True)
    return distinct, np.split(number.reshape(-1), np.cumsum([len(array) for array in arrays])[:-1])
