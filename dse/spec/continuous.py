"""Continuous axes of a search, and the limits of those that a descent moves."""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import Field

from dse.designs import all_leaves, leaf_value
from dse.designs.leaves import reading_note
from dse.designs.records import N_DEVICES
from dse.errors import InputError
from dse.spec import axes as axis_values
from dse.spec.axes import find_leaf
from dse.spec.document import Section, Truth, checked
from dse.spec.expression import Expression
from dse.spec.sweep import SweepSpec

#: The metric that is the bill of an accelerator, in USD.
DEVICE_COST = "device_cost"


class ContinuousAxis(Section):
    """A continuous axis."""

    from_: Any = Field(alias="from")
    to: Any
    continuous: Truth
    log: Truth | None = None


@dataclasses.dataclass(frozen=True)
class Interval:
    """A continuous axis with its ends in SI units."""

    path: str  #: full path of the leaf
    name: str  #: as written
    low: float  #: SI
    high: float
    log: bool  #: whether positions are spaced evenly in the logarithm
    note: str = ""  #: how an end without its unit was read

    @property
    def units(self) -> str:
        """SI units of the values, as text."""
        return all_leaves()[self.path]["units"]


@dataclasses.dataclass(frozen=True)
class Limit:
    """The most or the least that a leaf of the hardware may be, or the most that an accelerator may cost."""

    name: str  #: full path of the leaf, or ``device_cost``
    value: float  #: SI
    is_upper: bool
    where: str
    note: str = ""  #: how a number without its unit was read


def extract_continuous(table: dict[str, Any], prefix: str, tables: dict[str, dict[str, Any]], lower_ends: bool) -> None:
    """Move the continuous axes of a table of axes, which changes, into ``tables``: dotted name → table of the axis.

    Args:
        table: of axes, or of what begins alike.
        prefix: what its keys begin with.
        tables: dotted name → table of a continuous axis, added to.
        lower_ends: whether they leave axes of one value, their lower end.
    """
    for key, value in list(table.items()):
        if axis_values.is_range(value) and "continuous" in value:
            tables[f"{prefix}{key}"] = value
            if lower_ends:
                table[key] = [value.get("from")]
            else:
                del table[key]
        elif isinstance(value, dict) and not axis_values.is_range(value):
            extract_continuous(value, f"{prefix}{key}.", tables, lower_ends)


def interval(name: str, table: dict[str, Any], sweep: SweepSpec, where: str) -> Interval:
    """Return a continuous axis of a sweep in SI units from its TOML table; InputError for leaves that cannot be so."""
    section = _axis(table, where)
    axis = next(axis for axis in sweep.axes if axis.name == name)
    path = axis.key
    if path not in all_leaves() or path.startswith(("mapping.", "workload.")) or path == N_DEVICES:
        raise InputError(where, name, "real-valued leaves of the system, its software or its chip", "list the values")
    if all_leaves()[path].get("enum"):
        raise InputError(where, "a range of names", "a list of names", "write a list")
    if any(name in group for group in sweep.zips):
        raise InputError(where, "a continuous axis in a group", "axes that are not zipped", "take it out of [zip]")
    low, high = axis.values[0], leaf_value(path, section.to, f"{where}.to")
    if not low < high:
        raise InputError(where, f"to = {section.to}", f"above from = {section.from_}", "swap them")
    log = low > 0 if section.log is None else section.log
    if log and low <= 0:
        raise InputError(f"{where}.from", f"{low:g}", "above 0 where log = true", "write log = false")
    note = reading_note(name, path, section.from_, section.to)
    return Interval(path=path, name=name, low=low, high=high, log=log, note=note)


def _axis(table: dict[str, Any], where: str) -> ContinuousAxis:
    """Return the table of a continuous axis, checked, with unconverted ends; InputError for any fault."""
    section = checked(ContinuousAxis, table, where)
    if not section.continuous:
        raise InputError(where, "continuous = false", "continuous = true", "list the values of the axis")
    return section


# --- of descents ------------------------------------------------------------------------------------------


def variable(name: str, table: dict[str, Any], where: str) -> Interval:
    """Return a continuous axis that a descent moves in its logarithm, from its TOML table; else InputError."""
    section = _axis(table, where)
    if section.log is False:
        raise InputError(where, "log = false", "axes that move in their logarithm", "leave it out")
    return descent_interval(name, section.from_, section.to, where)


def descent_interval(name: str, low_end: Any, high_end: Any, where: str) -> Interval:
    """Return a continuous axis of a descent, in SI, with the ends of its range: numbers or texts with units."""
    path = hardware_path(name, where)
    low, high = (leaf_value(path, end, f"{where}.{key}") for key, end in (("from", low_end), ("to", high_end)))
    if not 0.0 < low < high:
        raise InputError(where, f"{low:g} to {high:g}", "0 < from < to", "check both ends")
    return Interval(path, name, low, high, log=True, note=reading_note(name, path, low_end, high_end))


def hardware_path(name: str, where: str) -> str:
    """Return the full path of a continuous leaf of the system by its name, InputError for any other leaf."""
    path = find_leaf(name, where, (), "leaves of a design")
    if not path.startswith("system.") or "enum" in all_leaves()[path] or path == N_DEVICES:
        raise InputError(where, name, "continuous leaves of the system, such as chip.die_area", "make it an axis")
    return path


def limits(constraints: tuple[Expression, ...], variables: tuple[str, ...]) -> tuple[list[Limit], list[Expression]]:
    """Return (limits of variables and of the device cost, in SI units, all other constraints), split from constraints.

    Args:
        constraints: of a specification.
        variables: full paths of the leaves that move.
    """
    hardware_limits, remaining = [], []
    for constraint in constraints:
        bound = constraint.bound
        name, is_upper = bound or ("", False)
        if bound and (name in variables or bound == (DEVICE_COST, True)):
            hardware_limits.append(Limit(name, constraint.constant, is_upper, constraint.where))
        else:
            remaining.append(constraint)
    return hardware_limits, remaining
