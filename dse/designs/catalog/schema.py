"""What a catalogue file may hold: one table of fields a kind, by ``schema.toml`` and the records of ``dse.types``."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from dse import types
from dse.designs.catalog import value
from dse.designs.catalog.load import FOLDERS
from dse.designs.catalog.value import Parser, Sourced
from dse.errors import InputError, unknown_name
from dse.io import toml
from dse.types import NOT_NEGATIVE, Bounds, paths

#: Name of a table → its rows.
ROWS = toml.table(Path(__file__).with_suffix(".toml"))


@dataclasses.dataclass(frozen=True)
class TableField:
    """A table of a file: fields and tables by key."""

    fields: Mapping[str, Parser | TableField]
    needs: tuple[str, ...] = ()  #: fields and tables that must be there
    plain: bool = False  #: whether its fields keep their plain names in an entry (``latency``, not ``fit.latency``)
    shorthand: str = ""  #: the field that a text in place of the table means
    check: Callable[[dict[str, Sourced], str], None] = lambda values, where: None  #: of all values together


# --- fields -----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class NumberField:
    """Parser of a number of a unit within bounds, with ``meaning`` and ``default`` where it is a leaf of a design."""

    units: str
    bounds: Bounds = NOT_NEGATIVE
    meaning: str = ""
    default: float | None = None

    def __call__(self, raw: Any, where: str) -> tuple[float, str]:
        """Return (number in SI units, units) of a raw value."""
        return value.number(raw, self.units, self.bounds, where), self.units


@dataclasses.dataclass(frozen=True)
class ChoiceField:
    """Parser of a name of an enumeration."""

    enum: type[IntEnum]
    meaning: str = ""

    def __call__(self, raw: Any, where: str) -> tuple[float, str]:
        """Return (code of the choice, "1") of a raw name."""
        return value.choice(raw, self.enum, where), "1"


@functools.cache
def table(name: str) -> TableField:
    """Return a table of files of the catalogue, by its name in ``schema.toml``: a kind, or a table in one."""
    row = ROWS[name]
    fields: dict[str, Parser | TableField] = functools.reduce(operator.or_, (_fields(**part) for part in row["fields"]))
    needs = [
        *row.get("needs", ()),
        *(paths.leaves(getattr(types, row["needs_all_of"])) if "needs_all_of" in row else ()),
    ]
    if "needs_record" in row:
        leaves = paths.leaves(getattr(types, row["needs_record"]))
        needs += [path for path, metadata in leaves.items() if "default" not in metadata]
    check = {"check": _CHECKS[row["check"]]} if "check" in row else {}
    return TableField(fields, tuple(needs), row.get("plain", False), row.get("shorthand", ""), **check)


def schemas() -> dict[str, TableField]:
    """Return kind → what its files may hold."""
    return {kind: table(kind) for kind in FOLDERS}


def _fields(
    leaves: str = "",
    only: Sequence[str] = (),
    omit: Sequence[str] = (),
    texts: Sequence[str] = (),
    lists: Sequence[str] = (),
    ranges: Sequence[str] = (),
    include: Sequence[str] = (),
    **rows: Mapping[str, Any],
) -> dict[str, Parser | TableField]:
    """Return key → field of a part of a table."""
    fields: dict[str, Parser | TableField] = dict.fromkeys(texts, value.text)
    fields |= dict.fromkeys(lists, value.texts) | dict.fromkeys(ranges, value.number_range)
    for name in include:
        fields |= table(name).fields
    for name, metadata in paths.leaves(getattr(types, leaves)).items() if leaves else ():
        if "." not in name and name not in omit and (not only or name in only):
            fields[name] = _leaf_field(**metadata)
    for kind, cells_by_name in rows.items():
        fields |= {
            name: _KINDS[kind](*([cells] if isinstance(cells, str) else cells)) for name, cells in cells_by_name.items()
        }
    return fields


def _leaf_field(long_name: str, units: str, bounds: Bounds, default: Any = None, enum: Any = None, **_: Any) -> Parser:
    """Return the parser of a leaf by its metadata."""
    return ChoiceField(enum, long_name) if enum else NumberField(units, bounds, long_name, default)


def _number_field(units: str, bounds: str = "NOT_NEGATIVE") -> Parser:
    """Return the parser of a number of a unit within bounds, by their name in ``dse.types`` or in ``schema.toml``."""
    row = ROWS["bounds"].get(bounds)
    return NumberField(units, getattr(types, bounds) if row is None else Bounds(**row))


def _parser(function: str, *arguments: str) -> Parser:
    """Return a function of :mod:`dse.designs.catalog.value`, or what it returns for arguments."""
    parser = getattr(value, function)
    return parser(*arguments) if arguments else parser


_KINDS: dict[str, Callable[..., Parser | TableField]] = {
    "numbers": _number_field,
    "choices": lambda enum, meaning="": ChoiceField(getattr(types, enum), meaning),
    "parsers": _parser,
    "tables": table,
}


# --- checks -----------------------------------------------------------------------------------------------


def _check_any_rate(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError where every rate is 0."""
    if not any(rate.value for rate in values.values()):
        raise InputError(where, "no rate", "at least one of bf16, fp16, fp8, …", 'add bf16 = "… TFLOP/s"')


def _check_rates_or_chip(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError unless an accelerator states matrix rate and memory, or a chip, and not both."""
    tables = {field.partition(".")[0] for field in values}
    for name in ("matrix_rate", "memory"):
        if {"chip", name} <= tables:
            allowed, fix = f"either {name}, or a chip that it follows from", f"remove [{name}] or [chip]"
            raise InputError(f"{where}: {name}", "both", allowed, fix)
        if not {"chip", name} & tables:
            raise _missing(f"{where}: {name}", name)


def _check_usable_memory(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError where the memory that the runtime leaves is more than the capacity."""
    capacity, usable = values["capacity"], values.get("usable")
    if usable is not None and usable.value > capacity.value:
        raise InputError(
            f"{where}.usable", usable.text, f"{capacity.text} (capacity) or less", "state both of one device"
        )


def _check_cores(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError where enabled cores are more than those of the dies."""
    enabled, full = values.get("cores"), values.get("full_cores")
    if enabled is not None and full is not None and full.value < enabled.value:
        allowed = f"{enabled.text} or more: enabled cores are part of them"
        raise InputError(f"{where}.full_cores", full.text, allowed, "count the cores that are off too")


def _some_domain(values: dict[str, Sourced], where: str) -> None:
    """Raise InputError unless a network states how many devices it joins, or the switches of a fat tree."""
    if "domain" not in values and not {"radix", "levels"} <= values.keys():
        raise _missing(f"{where}: domain", "domain, or radix and levels")


_CHECKS = {
    "any_rate": _check_any_rate,
    "rates_or_chip": _check_rates_or_chip,
    "usable_memory": _check_usable_memory,
    "cores": _check_cores,
    "some_domain": _some_domain,
}

#: Power at rest, which a family states as shares of the power limit as sold.
AT_REST = tuple(name.removesuffix("_share") for name in table("at_rest").fields)

#: Options of a mapping, and of how experts are spread, that a stack's file states for mappings that leave them open.
LEFT_OPEN, EXPERTS_LEFT_OPEN = (tuple(table(name).fields) for name in ("left_open", "experts_left_open"))


# --- reading ----------------------------------------------------------------------------------------------


def read(kind: str, data: Mapping[str, Any], file: str) -> dict[str, Sourced]:
    """Return field → value of a parsed file of a kind; fields of a table are dotted (``memory.bandwidth``).

    Raises:
        InputError: for the first thing that is wrong; a misspelt key before the one that it leaves missing.
    """
    header = ("source", "confidence", "name", "aliases", "note", *ROWS[kind].get("header", ()))
    _check_keys(data, table(kind), file, "", header)
    _check_header(data, file)
    return _values(data, table(kind), file, "", data["source"], data["confidence"])


def _check_keys(
    data: Mapping[str, Any], table: TableField, file: str, key_prefix: str, header: tuple[str, ...]
) -> None:
    """Raise InputError for a key of a table, or of one in it, that is neither a field nor of the header.

    ``key_prefix`` is the table's own dotted key, with a dot at its end.
    """
    for key, raw in data.items():
        field = table.fields.get(key)
        if field is None and key not in header:
            raise unknown_name(file, key_prefix + key, [key_prefix + name for name in table.fields], "fields")
        if isinstance(field, TableField) and isinstance(raw, dict):
            _check_keys(raw, field, file, f"{key_prefix}{key}.", ("source", "confidence"))


def _check_header(data: Mapping[str, Any], file: str) -> None:
    """Raise InputError for a header without source or confidence, or with values of another type."""
    for key in ("source", "confidence"):
        if not data.get(key):
            raise _missing(f"{file}: {key}", key)
    for key in ("source", "name", "note"):
        value.text(data.get(key, ""), f"{file}: {key}")
    for key in ("aliases", "sources", "nearest"):
        texts = data.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{file}: {key}", repr(texts), "a list of strings", f'write {key} = ["…"]')
    if data.get("n_experts", 1) != 1:
        fix = "state a mixture of experts under [experts]"
        raise InputError(f"{file}: n_experts", repr(data["n_experts"]), "1 or absent", fix)


def _values(
    data: Mapping[str, Any], table: TableField, file: str, key_prefix: str, source: str, confidence: str
) -> dict[str, Sourced]:
    """Return field → value of the table at ``key_prefix``, with inherited sources and confidences.

    InputError for a missing field and for a value that its parser refuses.
    """
    source = data.get("source") or source
    confidence = value.checked_confidence(data.get("confidence") or confidence, f"{file}: {key_prefix}confidence")
    values: dict[str, Sourced] = {}
    for key, field in table.fields.items():
        raw, where = data.get(key), f"{file}: {key_prefix}{key}"
        if raw is None:
            if key in table.needs:
                raise _missing(where, key_prefix + key)
            continue
        if not isinstance(field, TableField):
            values[key] = value.sourced_value(raw, field, where, source, confidence)
            continue
        inner = {field.shorthand: raw} if isinstance(raw, str) and field.shorthand else raw
        if not isinstance(inner, dict):
            raise InputError(where, repr(raw), "a table", f"write [{key_prefix}{key}] on a line of its own")
        prefix = "" if field.plain else f"{key}."
        table_values = _values(inner, field, file, f"{key_prefix}{key}.", source, confidence)
        values |= {prefix + name: sourced for name, sourced in table_values.items()}
    table.check(values, f"{file}: {key_prefix[:-1]}" if key_prefix else file)
    return values


def _missing(where: str, name: str) -> InputError:
    """Return the error for a required field that is missing."""
    return InputError(where, "nothing", "a value: the field is required", f"add {name} (is the file complete?)")
