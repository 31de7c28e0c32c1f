"""Numbers of the catalogue along axes of its names: what a figure draws in place of ``n5``, ``hbm4`` or ``nvlink-5``.

They follow from the names, so that they identify nothing: coordinates without an index, along the dimension of their
axis. A number that no name of an axis has is left out; where only some have it, the others are missing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dse.designs import catalog
from dse.io import toml
from dse.spec import Axis
from dse.spec.space import CATALOGUE_KEYS
from dse.sweep.grid.grid import Grid, variable_name
from dse.sweep.results.labelled import Variable, numbers
from dse.sweep.results.labels import BOOLEAN, along
from dse.sweep.results.schema import DERIVED

#: What a process is that nobody sells or has announced figures of: its energy and delay continue a trend.
_CONTINUED = ("extrapolation", "roadmap")

#: Axes of networks, of which one alone is called after all of them.
_SCOPES = ("scale_up", "scale_out")


#: From a field of an entry to its value, None without one.
_Lookup = Callable[[str], Any]


class _Number(NamedTuple):
    """A number of the entries of a kind."""

    suffix: str  #: end of its name: ``node_nm``
    field: str  #: of an entry
    units: str  #: in results
    long_name: str
    factor: float = 1.0  #: from SI to ``units``


@functools.cache
def _numbers() -> dict[str, tuple[_Number, ...]]:
    """Return kind of the catalogue → the numbers of its entries, of ``numbers.toml``."""
    table = toml.table(Path(__file__).with_name("numbers.toml"))
    return {kind: tuple(_Number(**row) for row in rows) for kind, rows in table.items()}


def grid_numbers(grid: Grid, digits: np.ndarray | None = None) -> dict[str, Variable]:
    """Return variable name → numbers of the names along the axes of a sweep.

    Args:
        grid: of the sweep.
        digits: [dimension, design] positions of single designs; None for results along the dimensions of the sweep.
    """
    variables: dict[str, Variable] = {}
    for i, dimension in enumerate(grid.dimensions):
        for axis in dimension.axes:
            for name, number in axis_numbers(grid, axis).items():
                dims, values = along(grid, i, number.values, digits)
                variables[name] = number._replace(dims=dims, values=values)
    return variables


def label_numbers(grid: Grid, axis: Axis, column: np.ndarray, dims: tuple[str, ...]) -> dict[str, Variable]:
    """Return variable name → numbers of the names in a column, an array of labels of an axis along ``dims``."""
    by_name = axis_numbers(grid, axis)
    if not by_name:
        return {}
    position_by_label = {label: position for position, label in enumerate(axis.labels)}
    positions = np.array([position_by_label[label] for label in column.reshape(-1).tolist()]).reshape(column.shape)
    return {name: number._replace(dims=dims, values=number.values[positions]) for name, number in by_name.items()}


def axis_numbers(grid: Grid, axis: Axis) -> dict[str, Variable]:
    """Return variable name → [position] numbers of the names of an axis; empty for an axis of anything else.

    Names of axes and metrics come first: a number of the same name is left out.
    """
    kind = CATALOGUE_KEYS.get(axis.key, ("",))[0]
    if kind not in _numbers():
        return {}
    swept = (*grid.mapping_axes, *(other for dimension in grid.dimensions for other in dimension.axes))
    names = {variable_name(other) for other in (*grid.fixed, *swept)} | grid.spec.study.units.keys()
    prefix = "network" if kind == "network" and sum(other.key in _SCOPES for other in swept) == 1 else axis.key
    entries = [_field_lookup(kind, str(slug), axis.where) for slug in axis.labels]
    variables = {f"{prefix}_{number.suffix}": _along(entries, number) for number in _numbers()[kind]}
    if kind == "node":
        variables[f"{prefix}_extrapolated"] = _are_extrapolated(entries)
    follows = {DERIVED: axis.name}
    return {
        name: Variable((), variable.values, variable.attrs | follows)
        for name, variable in variables.items()
        if variable is not None and name not in names
    }


def _along(entries: list[_Lookup], number: _Number) -> Variable | None:
    """Return a number of entries, NaN where one has none, integers where all are; None where none has it."""
    field_values = [entry(number.field) for entry in entries]
    if all(value is None for value in field_values):
        return None
    values = np.array([np.nan if value is None else float(f"{value * number.factor:.12g}") for value in field_values])
    are_integers = number.units == "1" and bool(np.all(values == np.round(values)))
    return numbers((), values.astype(np.int64) if are_integers else values, number.long_name, number.units)


def _are_extrapolated(entries: list[_Lookup]) -> Variable:
    """Return [position] True for processes whose figures continue a trend."""
    about = "no process for sale or announced: its energy and delay continue a trend"
    variable = numbers((), [entry("status") in _CONTINUED for entry in entries], about)
    return variable._replace(attrs=variable.attrs | BOOLEAN)


def _field_lookup(kind: str, slug: str, where: str) -> _Lookup:
    """Return the function from a field to its value in an entry, None where it states none."""
    if slug == catalog.NO_NETWORK:
        return lambda field: None
    return catalog.entry(kind, slug, where).value
