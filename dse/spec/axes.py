"""The values of one axis: lists, ranges, rules and catalogue names, checked and in SI."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Iterable
from typing import Any

from dse.designs import all_leaves, catalog, leaf_path, leaf_value
from dse.designs.leaves import path_endings, reading_note
from dse.designs.records import LEAVES_OF_SERVING, LIMIT_AS_SOLD, RECORDS_ABSENT_AT_ZERO, read_instead
from dse.doors import Study
from dse.errors import ELSEWHERE, InputError, nearest, plain, unknown_name
from dse.types import choice_name

#: Rules that generate the values of an axis: divisors or powers of two of the number they must divide.
RULES = ("divisors", "powers_of_two")

RANGE_KEYS = ("from", "to", "factor", "step", "count")
_LONGEST = 1_000_000

Label = float | int | bool | str


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis as the specification gives it, a fixed value as an axis with one value."""

    name: str  #: as written, ``tp`` or ``memory.bandwidth``
    key: str  #: full path of a leaf, or what a catalogue name stands for (``workload``)
    where: str  #: place in the specification, for errors
    values: tuple[float, ...] = ()  #: SI numbers of a leaf; empty for a rule and for catalogue names
    labels: tuple[Label, ...] = ()  #: the values as results show them
    rule: str = ""  #: one of RULES, or "" when the values are given
    explicit: bool = False  #: every value was written out, so that each must be possible
    most: float = math.inf  #: upper limit of a rule's values
    note: str = ""  #: how a value without its unit was read

    @property
    def units(self) -> str:
        """SI units of the values as text, empty for catalogue names."""
        return all_leaves()[self.key]["units"] if self.key in all_leaves() else ""

    @property
    def long_name(self) -> str:
        """Description of the axis for labelled results, as text."""
        about = all_leaves().get(self.key)
        return about["long_name"] if about else f"{self.key.replace('_', '-')} (catalogue name)"


def find_leaf(
    name: str,
    where: str,
    other_names: Iterable[str],
    plural: str,
    kind: str = "leaves",
    prefixes: tuple[str, ...] = ("",),
    serving: bool | None = None,
) -> str:
    """Return the full path of the leaf that a name stands for: a path or an ending of it, or another tool's name.

    Args:
        name: a leaf's path or a dotted ending of it.
        where: place of the name, for errors.
        other_names: further valid names, for suggestions.
        plural: plural of the valid names, for errors.
        kind: of ``dse list``, for errors.
        prefixes: starts of the paths that are suggested before all others.
        serving: kind of the study, for names of other tools (:func:`dse.designs.leaves.leaf_of_alias`).

    Raises:
        InputError: for an unknown or ambiguous name, with suggestions, and for the limit of power under which times
            were measured.
    """
    try:
        path = leaf_path(name, where, serving)
    except InputError as error:
        if name in _endings():  # ambiguous: the message says how to tell them apart
            raise
        others = frozenset(other_names)
        suggested = {ending for path in all_leaves() if path.startswith(prefixes) for ending in path_endings(path)}
        names = others | _endings()
        if nearest(name, others | suggested) and names.isdisjoint(ELSEWHERE.get(plain(name), ())):
            names = others | suggested
        raise unknown_name(error.where, name, names, plural, f"dse list {kind}") from None
    if path == LIMIT_AS_SOLD:
        raise InputError(
            where,
            f"{name}, the limit under which times were measured",
            "power.limit, under which a board runs slower",
            "name power.limit; what a new accelerator is sold with stands in its file (physical.tdp)",
        )
    return path


def is_leaf(name: str) -> bool:
    """True for a name that is the ending of at least one leaf's path."""
    return name in _endings()


@functools.cache
def _endings() -> frozenset[str]:
    """Return the set of all dotted endings of all leaves' paths."""
    return frozenset(ending for path in all_leaves() for ending in path_endings(path))


def choices_of(path: str) -> tuple[str, ...]:
    """Return the names of the choices of a leaf by its full path, empty for a leaf with numbers."""
    return tuple(map(choice_name, all_leaves()[path].get("enum", ())))


def check_read(
    path: str,
    name: str,
    where: str,
    study: Study,
    to_serve: str = "add a section [serving]",
    to_train: str = "leave it out, or leave out [serving]",
) -> None:
    """Raise InputError if the study's model does not read a leaf, whose value would have no effect.

    Args:
        path: full path of the leaf.
        name: as the user wrote it.
        where: its place, for errors.
        study: what is evaluated.
        to_serve: the usual fix where a study of serving reads it.
        to_train: the usual fix where a study of training reads it.
    """
    serves = study.name == "serving"
    if study.ignored_leaves and path.startswith(study.ignored_leaves):
        other = read_instead(path, study.ignored_leaves)
        raise InputError(
            where,
            f"{name}, which {study.name} does not read",
            f"leaves of {study.name}",
            f"write {other}" if other else to_train if serves else "leave it out",
        )
    if not serves and path.startswith(LEAVES_OF_SERVING):
        raise InputError(where, f"{name}, of a model that is served", f"leaves of {study.name}", to_serve)


def is_range(value: Any) -> bool:
    """True for the TOML table of a range, which has a key ``from`` or ``to``, rather than of nested names."""
    return isinstance(value, dict) and ("from" in value or "to" in value)


def catalogue_axis(name: str, kind: str, value: Any, where: str) -> Axis:
    """Return an axis of catalogue names of a kind, whose values are their indices, from a name or a list of names.

    Raises:
        InputError: for an unknown name, with the nearest known ones, and for anything but texts.
    """
    texts = value if isinstance(value, list) else [value]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise InputError(where, repr(value), "a list of catalogue names", f"see: dse catalog list {kind}")
    slugs = tuple(text if (kind, text) == ("network", "none") else catalog.resolve(kind, text, where) for text in texts)
    return Axis(
        name=name, key=name, where=where, values=tuple(map(float, range(len(slugs)))), labels=slugs, explicit=True
    )


def leaf_axis(name: str, path: str, value: Any, where: str) -> Axis:
    """Return an axis of one leaf by full path from its TOML value: a list, a range or a rule, else InputError."""
    if isinstance(value, list):
        return values_axis(name, path, value, where, zero_allowed=path in RECORDS_ABSENT_AT_ZERO)
    if is_range(value):
        note = reading_note(name, path, *(value.get(key) for key in ("from", "to", "step")))
        return dataclasses.replace(
            values_axis(name, path, _range_values(path, value, where), where, explicit=False), note=note
        )
    if isinstance(value, str) and value in RULES:
        return Axis(name=name, key=path, where=where, rule=value)
    if isinstance(value, str) and value.replace("_", "").isalpha() and "enum" not in all_leaves()[path]:
        error = unknown_name(where, value, RULES, "rules")
        raise InputError(where, error.got, f"{error.allowed}, or a list of values", error.fix)
    raise InputError(
        where,
        repr(value),
        "a list, a range { from, to, factor | step | count } or a rule",
        "write a list" if isinstance(value, dict) else f"write a list: [{json.dumps(value, default=str)}]",
    )


def values_axis(
    name: str, path: str, values: list[Any], where: str, explicit: bool = True, zero_allowed: bool = False
) -> Axis:
    """Return an axis of one leaf with the given values in SI units; InputError for an empty list or a wrong value.

    Args:
        name: of the axis.
        path: full path of the leaf.
        values: of the leaf, numbers or texts with units.
        where: place in the specification, for errors.
        explicit: True where every value was written out.
        zero_allowed: accept 0 whatever the leaf's range.
    """
    if not values:
        raise InputError(where, "an empty list", "one value or more", "list some values, or remove the axis")
    numbers = tuple(0.0 if zero_allowed and value == 0.0 else leaf_value(path, value, where) for value in values)
    labels = tuple(_label(path, number) for number in numbers)
    if all(isinstance(value, bool) for value in values):
        labels = tuple(bool(number) for number in numbers)
    note = reading_note(name, path, *values)
    return Axis(name=name, key=path, where=where, values=numbers, labels=labels, explicit=explicit, note=note)


def _label(path: str, number: float) -> Label:
    """Return an SI value as results show it: the name of a choice as text, or the number."""
    enum = all_leaves()[path].get("enum")
    return choice_name(enum(int(number))) if enum else number


def _range_values(path: str, table: dict[str, Any], where: str) -> list[float]:
    """Return the SI values of a range table from ``from`` up to ``to``, by factor, step or count, else InputError."""
    for key in table:
        if key not in RANGE_KEYS:
            raise unknown_name(where, key, RANGE_KEYS, "keys of a range")
    spacing_keys = [key for key in ("factor", "step", "count") if key in table]
    if not {"from", "to"} <= set(table) or len(spacing_keys) != 1:
        raise InputError(
            where,
            repr(table),
            "from, to and one of factor, step, count; in a search also continuous = true",
            "write { from = 1, to = 64, factor = 2 }",
        )
    if all_leaves()[path].get("enum"):
        raise InputError(where, "a range of names", "a list of names", "write a list")
    first, last = (leaf_value(path, table[key], f"{where}.{key}") for key in ("from", "to"))
    if last < first:
        raise InputError(where, f"to = {table['to']}", f"at least from = {table['from']}", "swap them")
    spacing = spacing_keys[0]
    increment = leaf_value(path, table[spacing], f"{where}.{spacing}") if spacing == "step" else table[spacing]
    return _spaced_values(first, last, spacing, increment, where)


def _spaced_values(first: float, last: float, spacing: str, increment: Any, where: str) -> list[float]:
    """Return points from ``first`` to ``last``, which is included where a point falls on it to rounding.

    ``spacing`` says what ``increment`` is: ``factor``, ``step`` or ``count``. InputError where it is no possible one.
    """
    lower_bound = {"factor": 1.0, "step": 0.0, "count": 1.0}[spacing]
    is_valid_count = spacing != "count" or isinstance(increment, int)
    if (
        isinstance(increment, bool)
        or not isinstance(increment, int | float)
        or not lower_bound < increment < math.inf
        or not is_valid_count
    ):
        raise InputError(
            f"{where}.{spacing}", repr(increment), f"a finite number above {lower_bound:g}", "check the range"
        )
    if spacing == "count":
        count = int(increment)
    elif spacing == "step":
        count = int((last - first) / increment * (1 + 1e-9)) + 1
    elif first > 0:
        count = int(math.log(last / first) / math.log(increment) + 1e-9) + 1
    else:
        raise InputError(f"{where}.from", repr(first), "a number above 0", "multiplying 0 by a factor gives 0 again")
    if count > _LONGEST:
        raise InputError(where, f"{count:,} values", f"at most {_LONGEST:,}", "take a larger step")
    if spacing == "factor":
        return [first * increment**i for i in range(count)]
    distance = increment if spacing == "step" else (last - first) / (count - 1)
    return [first + distance * i for i in range(count)]
