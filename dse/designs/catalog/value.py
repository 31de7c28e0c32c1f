"""Values of a catalogue file: how they are written, where they come from, and the bounds they must keep.

A value is written bare, under its file's (or its table's) ``source`` and ``confidence``::

    bf16 = "312 TFLOP/s"

or, where these differ, as an inline table::

    cores = { value = 108, confidence = "estimate", source = "counted on the die" }

A fitted value adds its ``spread``, the standard deviation of its logarithm.

Texts carry units; plain numbers are for dimensionless fields only.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from dse.designs.catalog.units import quantity
from dse.errors import InputError, unknown_name
from dse.types import (
    POSITIVE as POSITIVE_NUMBER,
    POSITIVE_SHARE,
    Bounds,
    Precision,
    Recompute,
    choice_name,
    weight_only_format,
)
from dse.types.fields import LARGEST, SMALLEST, has_usual_magnitude

CONFIDENCES = ("datasheet", "paper", "estimate", "memory-unverified")

#: Steps that a table of efficiencies may have; shorter ones are filled up, so that all are one structure.
MOST_STEPS = 8

#: Keys of a value written as an inline table.
_KEYS = ("value", "source", "confidence", "spread")


@dataclasses.dataclass(frozen=True)
class Sourced:
    """One value and its source."""

    value: Any  #: SI number, a text (a name, a topology), or steps of (size, efficiency)
    units: str  #: SI units; "1" dimensionless, "" for texts and steps
    text: str  #: as written in the file
    source: str = ""
    confidence: str = ""
    spread: float = 0.0  #: standard deviation of the value's logarithm; 0 where none is stated


#: Reads a raw TOML value at a place of a file as (value in SI, units).
Parser = Callable[[Any, str], tuple[Any, str]]


def sourced_value(raw: Any, parse: Parser, where: str, source: str, confidence: str) -> Sourced:
    """Return a value with its source, from a bare value or a table ``{ value, source, confidence, spread }``.

    Args:
        raw: as parsed from TOML.
        parse: reads the value.
        where: place of the value, for errors.
        source: of the file or table, where the value states none of its own.
        confidence: likewise.

    Raises:
        InputError: for an unknown key, a missing value, and a value that ``parse`` refuses.
    """
    table = raw if isinstance(raw, dict) else {"value": raw}
    for key in table:
        if key not in _KEYS:
            raise unknown_name(where, key, _KEYS, "keys of a value")
    if "value" not in table:
        raise InputError(where, "no value", "{ value, source, confidence, spread }", "add value = …")
    value, units = parse(table["value"], where)
    return Sourced(
        value,
        units,
        str(table["value"]),
        str(table.get("source") or source),
        checked_confidence(table.get("confidence") or confidence, where),
        _spread(table, where),
    )


def checked_confidence(confidence: Any, where: str) -> str:
    """Return a confidence that is one of ``CONFIDENCES``; InputError for any other."""
    if confidence not in CONFIDENCES:
        raise unknown_name(where, str(confidence), CONFIDENCES, "confidences")
    return confidence


def _spread(table: dict[str, Any], where: str) -> float:
    """Return the spread that a table states, 0 for none; InputError for one that is no number of 0 or more."""
    raw = table.get("spread", 0.0)
    if isinstance(raw, bool) or not isinstance(raw, int | float) or not 0.0 <= raw < math.inf:
        raise InputError(where, f"spread = {raw!r}", "0 or more", "write the standard deviation of the logarithm")
    return float(raw)


def number(raw: Any, units: str, bounds: Bounds, where: str) -> float:
    """Return the SI number that a raw value means: a text with units, or a plain number where ``units`` is ``"1"``.

    Raises:
        InputError: for a value without its unit, of another dimension, or outside of ``bounds``.
    """
    return bounded(_si(raw, units, where), raw, bounds, where)


def bounded(value: float, raw: Any, bounds: Bounds, where: str) -> float:
    """Return ``value`` unchanged where it is within bounds and of usual magnitude.

    Args:
        value: number in SI units.
        raw: the value as written, for errors.
        bounds: allowed values.
        where: place of the value, for errors.

    Raises:
        InputError: for a value outside of the bounds.
    """
    if math.isfinite(value) and not has_usual_magnitude(value):
        allowed = f"0, or a magnitude from {SMALLEST:g} to {LARGEST:g} in SI units"
        raise InputError(where, repr(raw), allowed, "check the number and its unit")
    if isinstance(raw, bool) and not bounds.takes_truth:
        raise InputError(where, str(raw).lower(), str(bounds), "write the number")
    if value not in bounds:
        allowed = str(bounds) if math.isfinite(value) else f"a finite number, {bounds}"
        raise InputError(where, repr(raw), allowed, "check the number")
    return value


def _si(raw: Any, units: str, where: str) -> float:
    """Return the SI number of a raw value, a plain number only where ``units`` is "1"."""
    if isinstance(raw, str):
        return quantity(raw, units, where)
    if not isinstance(raw, int | float):
        raise InputError(where, repr(raw), f"a string with a unit ({units})", "write a single value")
    return quantity(str(raw), units, where) if units != "1" else float(raw)


#: How truth values are written.
TRUTHS = ("true", "false")

#: What is mostly meant by true.
_USUAL: dict[type[IntEnum], tuple[IntEnum, ...]] = {Recompute: (Recompute.full, Recompute.selective)}


def choice_fix(enum: type[IntEnum], truth: str = "true") -> str:
    """Return the text of the fix for a choice that is stated as true or false.

    >>> choice_fix(Recompute), choice_fix(Recompute, "false")
    ('full or selective? write its name', 'write none')
    """
    if truth.lower() == "false" and "none" in enum.__members__:
        return "write none"
    return f"{' or '.join(map(choice_name, _USUAL.get(enum, ()))) or 'which of these'}? write its name"


def choice(raw: Any, enum: type[IntEnum], where: str) -> float:
    """Return the code of a choice from its name; dashes and underscores are alike.

    Neither true nor false is a choice: of several ways to do something they do not say which.

    Args:
        raw: the name as written.
        enum: the choices.
        where: place of the value, for errors.

    Raises:
        InputError: for an unknown name, and for a truth value.
    """
    names = {choice_name(member): float(member) for member in enum}
    key = str(raw).replace("_", "-")
    if key.lower() in TRUTHS:
        raise InputError(where, key.lower(), ", ".join(names), choice_fix(enum, key))
    if key not in names:
        if enum is Precision and (format_fix := weight_only_format(key)):
            raise InputError(where, repr(raw), f"what is multiplied: {', '.join(sorted(names))}", format_fix)
        raise unknown_name(where, str(raw), names, f"names of {enum.__name__}")
    return names[key]


def text(raw: Any, where: str) -> tuple[str, str]:
    """Return (text, ""), the units of a text; InputError for another type."""
    if not isinstance(raw, str):
        raise InputError(where, repr(raw), "a string", "put it in quotes")
    return raw, ""


def month(raw: Any, where: str) -> tuple[str, str]:
    """Return (``YYYY-MM``, "") of a year and month; InputError for another text."""
    if not (isinstance(raw, str) and re.fullmatch(r"[12]\d{3}-(0[1-9]|1[0-2])", raw)):
        raise InputError(where, repr(raw), "a year and a month", 'write "2025-11"')
    return raw, ""


def number_range(raw: Any, where: str) -> tuple[tuple[float, float], str]:
    """Return ((least, largest), "") of a list of two positive numbers; InputError for anything else."""
    if not isinstance(raw, list) or len(raw) != 2:
        raise InputError(where, repr(raw), "the least and the largest value", "write [1, 64]")
    low, high = (number(element, "1", POSITIVE_NUMBER, where) for element in raw)
    if low > high:
        raise InputError(where, repr(raw), "the least before the largest", "swap them")
    return (low, high), ""


def texts(raw: Any, where: str) -> tuple[tuple[str, ...], str]:
    """Return (tuple of texts, "") of a list of texts; InputError for anything else."""
    if not isinstance(raw, list) or not all(isinstance(element, str) for element in raw):
        raise InputError(where, repr(raw), "a list of strings", 'write ["h100-sxm-80gb"]')
    return tuple(raw), ""


def steps(units: str) -> Parser:
    """Return a parser of lists of pairs (least size, efficiency), which sorts them by size.

    The first step begins at 0. Further steps at an infinite size fill the table up to ``MOST_STEPS``.

    Args:
        units: of the sizes.
    """

    def parse(raw: Any, where: str) -> tuple[Any, str]:
        if not isinstance(raw, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in raw):
            raise InputError(where, repr(raw), "pairs of a size and an efficiency", 'write [["1 GFLOP", 0.5], …]')
        if not 1 <= len(raw) <= MOST_STEPS:
            raise InputError(where, f"{len(raw)} steps", f"1 to {MOST_STEPS}", "merge the steps that differ least")
        shares = [number(share, "1", POSITIVE_SHARE, where) for _, share in raw]
        pairs = sorted(zip((_si(size, units, where) for size, _ in raw), shares, strict=True))
        if pairs[0][0] != 0.0:
            raise InputError(
                where, f"a least size of {pairs[0][0]:g}", "a step that begins at 0", f'add ["0 {units}", …]'
            )
        return (*pairs, *[(math.inf, pairs[-1][1])] * (MOST_STEPS - len(pairs))), ""  # a table has no one unit

    return parse
