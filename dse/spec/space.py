"""Sections of a sweep that define the designs: fixed names and leaves, axes, and axes that move together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.designs import all_leaves, short_name
from dse.designs.leaves import leaf_of_alias, reading_note
from dse.designs.records import LEAVES_OF_SERVING
from dse.doors import Study
from dse.errors import InputError, unknown_name
from dse.io import toml
from dse.spec import axes as axis_values
from dse.spec.axes import Axis

_SECTIONS = toml.table(Path(__file__).with_name("sections.toml"))

#: Catalogue name → the kind of its entry and the path of its record.
CATALOGUE_KEYS: dict[str, tuple[str, str]] = {
    row["axis"]: (row["kind"], row["path"]) for rows in _SECTIONS.values() for row in rows.values()
}

#: Section → its keys for catalogue names.
SECTIONS: dict[str, dict[str, str]] = {
    section: {key: row["axis"] for key, row in rows.items()} for section, rows in _SECTIONS.items()
}

#: Keys of ``[zip]``.
ZIP_KEYS = ("groups",)

#: Key of ``[software]`` that allows options the software stack lacks.
ANY_OPTION = "any_option"


def check_keys(table: dict[str, Any], allowed: tuple[str, ...], where: str) -> None:
    """Raise InputError for a key that is not among ``allowed``."""
    for key in table:
        if key not in allowed:
            raise unknown_name(where, key, allowed, "keys")


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of nested TOML tables, with ranges whole, depth first.

    Args:
        table: from the TOML document.
        prefix: of the dotted keys.
    """
    for key, value in table.items():
        if isinstance(value, dict) and not axis_values.is_range(value):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def read_fixed(document: dict[str, Any], file: str, serving: bool) -> tuple[dict[str, Axis], dict[str, Axis]]:
    """Return (catalogue key → axis, leaf path → axis), each of one value, that sections of a document fix.

    The sections are ``workload system software mapping serving``; ``serving``: kind of the study. InputError for any
    fault.
    """
    names: dict[str, Axis] = {}
    fixed: dict[str, Axis] = {}
    for section, catalogue_keys in SECTIONS.items():
        for key, value in flat(document.get(section, {})):
            where = f"{file}: {section}.{key}"
            if (section, key) == ("software", ANY_OPTION):
                continue
            if isinstance(value, list | dict):
                raise InputError(where, repr(value), "a single value", f"move {key} to [axes] to sweep it")
            if key in catalogue_keys:
                names[catalogue_keys[key]] = axis_values.catalogue_axis(
                    catalogue_keys[key], CATALOGUE_KEYS[catalogue_keys[key]][0], [value], where
                )
            else:
                path = _leaf_of(section, key, catalogue_keys, where, serving)
                axis = axis_values.values_axis(path.rpartition(".")[2], path, [value], where)
                fixed[path] = dataclasses.replace(axis, note=reading_note(key, path, value))
    return names, fixed


def _leaf_of(section: str, key: str, catalogue_keys: dict[str, str], where: str, serving: bool) -> str:
    """Return the full leaf path of a section's key, InputError for a leaf of another section."""
    prefixes = LEAVES_OF_SERVING if section == "serving" else (f"{section}.",)
    section_leaves = [path for path in all_leaves() if path.startswith(prefixes)]
    path = axis_values.find_leaf(key, where, catalogue_keys, f"keys of [{section}]", prefixes=prefixes, serving=serving)
    if path not in section_leaves:
        raise InputError(where, key, f"leaves of [{section}]", f"move it to [{path.partition('.')[0]}]")
    return path


def read_axes(table: dict[str, Any], file: str, serving: bool) -> Iterator[Axis]:
    """Yield the axes of the table ``[axes]``; ``serving`` is the kind of the study. InputError for any fault."""
    for key, value in flat(table):
        where = f"{file}: axes.{key}"
        if key in CATALOGUE_KEYS:
            yield axis_values.catalogue_axis(key, CATALOGUE_KEYS[key][0], value, where)
            continue
        valid_names = "leaves of a design and catalogue names"
        path = axis_values.find_leaf(key, where, CATALOGUE_KEYS, valid_names, "axes", serving=serving)
        axis = axis_values.leaf_axis(key, path, value, where)
        yield axis if axis_values.is_leaf(key) else dataclasses.replace(axis, name=short_name(path))


def check_read(axes: tuple[Axis, ...], study: Study) -> None:
    """Raise InputError for the first axis whose leaf the study's model does not read."""
    for axis in axes:
        axis_values.check_read(axis.key, axis.name, axis.where, study)


def check_conflicts(names: dict[str, Axis], fixed: dict[str, Axis], axes: tuple[Axis, ...]) -> None:
    """Raise InputError for a leaf or catalogue name that is both fixed and swept, or swept under two names."""
    axes_by_key = {axis.key: axis for axis in (*names.values(), *fixed.values())}
    for axis in axes:
        if axis.key in axes_by_key:
            raise InputError(
                axis.where, f"{axis.name} twice", "each once", f"remove it here or at {axes_by_key[axis.key].where}"
            )
        axes_by_key[axis.key] = axis


def read_zips(table: dict[str, Any], axes: tuple[Axis, ...], where: str, serving: bool) -> tuple[tuple[str, ...], ...]:
    """Return the groups of ``[zip]`` as tuples of axis names; InputError for lists of different lengths, and rules."""
    check_keys(table, ZIP_KEYS, where)
    by_name = {axis.name: axis for axis in axes}
    groups = table.get("groups", [])
    where = f"{where}.groups"
    if not isinstance(groups, list) or not all(isinstance(g, list) and len(g) > 1 for g in groups):
        raise InputError(where, repr(groups), "lists of two or more axes", 'write groups = [["workload", "n_devices"]]')
    names_by_path = {path: name for name, axis in by_name.items() if (path := axis.key)}
    groups = [[names_by_path.get(leaf_of_alias(str(name), serving), str(name)) for name in group] for group in groups]
    members = [name for group in groups for name in group]
    for name in members:
        if name not in by_name:
            raise unknown_name(where, name, by_name, "axes")
        if members.count(name) > 1:
            raise InputError(where, f"{name} twice", "each axis once", "remove one of them")
        if by_name[name].rule:
            raise InputError(
                where,
                f"{name}, which is {by_name[name].rule!r}",
                "axes with listed values",
                f"list the values of {name}",
            )
    for group in groups:
        lengths = {name: len(by_name[name].values) for name in group}
        if len(set(lengths.values())) > 1:
            lengths_text = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise InputError(
                where,
                f"axes of different lengths ({lengths_text})",
                "equal lengths",
                "list the same number of values for each",
            )
    return tuple(map(tuple, groups))
