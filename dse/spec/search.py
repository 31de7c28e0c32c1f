"""Search specifications: a sweep specification with continuous axes and a section ``[search]``.

Everything but those two is parsed by :mod:`dse.spec.sweep`. A continuous axis stands in the sweep as an axis with
one value, its lower end, so that grids, mappings and catalogue names are what they are for a sweep.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from dse.design import known_leaves, leaf_value
from dse.errors import InputError, unknown_name
from dse.search.methods import METHODS
from dse.spec import axes as axis_values
from dse.spec import sweep as sweep_spec
from dse.spec.sweep import SweepSpec
from dse.sweep.grid.degrees import SHAPE_PATHS

_KEYS = ("method", "evaluations", "seconds", "seeds", "polish", *METHODS)
_CONTINUOUS_KEYS = ("from", "to", "continuous", "log")

DEFAULT_METHOD = "evolution"
DEFAULT_EVALUATIONS = 10_000
DEFAULT_SEEDS = 4


@dataclasses.dataclass(frozen=True)
class Interval:
    """A continuous axis."""

    path: str  #: full path of the leaf
    name: str  #: as written
    low: float  #: SI
    high: float
    log: bool  #: whether positions are spaced evenly in the logarithm

    @property
    def units(self) -> str:
        """SI units of the values."""
        return known_leaves()[self.path]["units"]


@dataclasses.dataclass(frozen=True)
class SearchSpec:
    """A checked search specification."""

    sweep: SweepSpec  #: everything but the continuous axes, which have one value in it, and ``[search]``
    intervals: tuple[Interval, ...]
    methods: tuple[str, ...]
    options: dict[str, dict[str, Any]]  #: by method
    evaluations: int | None  #: budget of each seed of each method
    seconds: float | None  #: budget of each method
    seeds: tuple[int, ...]
    polish: bool

    def hash(self) -> str:
        """SHA-256 of what is searched; how, the title and the output do not count."""
        document = sweep_spec.document_of(self.sweep.text, self.sweep.file)
        meaning = {key: value for key, value in document.items() if key not in ("title", "output", "search")}
        return hashlib.sha256(json.dumps(meaning, sort_keys=True, default=str).encode()).hexdigest()


def read(path: str | Path) -> SearchSpec:
    """The specification in a TOML file; whatever is wrong with it is an InputError."""
    return from_text(sweep_spec.text_of(path), str(path))


def from_text(text: str, file: str = "search.toml") -> SearchSpec:
    """The specification in a TOML text; ``file`` is what errors call it and names the default output."""
    document = copy.deepcopy(sweep_spec.document_of(text, file))
    search = document.pop("search", {})
    if not isinstance(search, dict):
        raise InputError(f"{file}: search", repr(search), "a table", "write [search] on a line of its own")
    found: dict[str, dict[str, Any]] = {}
    if isinstance(document.get("axes"), dict):
        _take_continuous(document["axes"], "", found)
    sweep = sweep_spec.from_document(document, text, file)
    for key in search:
        if key not in _KEYS:
            raise unknown_name(f"{file}: search", key, _KEYS, "keys of [search]")
    evaluations = _number(search, "evaluations", file, whole=True)
    seconds = _number(search, "seconds", file)
    methods = _methods(search.get("method", DEFAULT_METHOD), f"{file}: search.method")
    return SearchSpec(
        sweep=sweep,
        intervals=tuple(_interval(name, table, sweep, f"{file}: axes.{name}") for name, table in found.items()),
        methods=methods,
        options=_options(search, methods, file),
        evaluations=DEFAULT_EVALUATIONS if evaluations is None and seconds is None else evaluations,
        seconds=seconds,
        seeds=_seeds(search.get("seeds", DEFAULT_SEEDS), f"{file}: search.seeds"),
        polish=_truth(search.get("polish", True), f"{file}: search.polish"),
    )


def _take_continuous(table: dict[str, Any], prefix: str, found: dict[str, dict[str, Any]]) -> None:
    """Put lower ends in place of continuous axes, which go to ``found`` by name."""
    for key, value in table.items():
        if axis_values.is_range(value) and "continuous" in value:
            found[f"{prefix}{key}"] = value
            table[key] = [value.get("from")]
        elif isinstance(value, dict) and not axis_values.is_range(value):
            _take_continuous(value, f"{prefix}{key}.", found)


def _interval(name: str, table: dict[str, Any], sweep: SweepSpec, where: str) -> Interval:
    """A continuous axis from its TOML table."""
    for key in table:
        if key not in _CONTINUOUS_KEYS:
            raise unknown_name(where, key, _CONTINUOUS_KEYS, "keys of a continuous axis")
    if not {"from", "to"} <= set(table) or table["continuous"] is not True:
        raise InputError(where, repr(table), "from, to and continuous = true", "write both ends")
    axis = next(axis for axis in sweep.axes if axis.name == name)
    path = axis.key
    if path not in known_leaves() or path.startswith("mapping.") or path in SHAPE_PATHS:
        raise InputError(where, name, "real leaves of a system, its software or its chip", "list the values")
    if known_leaves()[path].get("enum"):
        raise InputError(where, "a range of names", "a list of names", "write a list")
    if any(name in group for group in sweep.zips):
        raise InputError(where, "a continuous axis that moves with others", "an axis of its own", "take it out of zip")
    low, high = axis.values[0], leaf_value(path, table["to"], f"{where}.to")
    if not low < high:
        raise InputError(where, f"to = {table['to']}", f"above from = {table['from']}", "swap them")
    log = _truth(table.get("log", low > 0), f"{where}.log")
    if log and low <= 0:
        raise InputError(f"{where}.from", f"{low:g}", "above 0 where log = true", "write log = false")
    return Interval(path=path, name=name, low=low, high=high, log=log)


def _methods(value: Any, where: str) -> tuple[str, ...]:
    names = value if isinstance(value, list) else [value]
    if not names:
        raise InputError(where, "an empty list", ", ".join(METHODS), "name a method")
    for name in names:
        if name not in METHODS:
            raise unknown_name(where, str(name), METHODS, "methods")
        if names.count(name) > 1:
            raise InputError(where, f"{name} twice", "each method once", "remove one of them")
    return tuple(names)


def _options(search: dict[str, Any], methods: tuple[str, ...], file: str) -> dict[str, dict[str, Any]]:
    """Options of the methods: numbers that the method knows by name."""
    found = {}
    for name in METHODS:
        table = search.get(name, {})
        where = f"{file}: search.{name}"
        if not isinstance(table, dict):
            raise InputError(where, repr(table), "a table", f"write [search.{name}] on a line of its own")
        if table and name not in methods:
            fix = f'add "{name}" to method'
            raise InputError(where, "options of a method that is not run", ", ".join(methods), fix)
        for key, value in table.items():
            known = METHODS[name].defaults
            if key not in known:
                raise unknown_name(where, key, known, f"options of {name}")
            kind = type(known[key])
            if isinstance(value, bool) or not isinstance(value, int if kind is int else int | float) or value <= 0:
                allowed = "a whole number above 0" if kind is int else "a number above 0"
                raise InputError(f"{where}.{key}", repr(value), allowed, f"leave it out for {known[key]}")
        if name in methods:
            found[name] = METHODS[name].defaults | table
    return found


def _number(search: dict[str, Any], key: str, file: str, whole: bool = False) -> Any:
    """A budget, None where it is not given."""
    value = search.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0 or (whole and value != int(value)):
        what = "a whole number above 0" if whole else "a number above 0"
        raise InputError(f"{file}: search.{key}", repr(value), what, "leave it out for the default")
    return int(value) if whole else float(value)


def _seeds(value: Any, where: str) -> tuple[int, ...]:
    """Seeds by count or as a list."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return tuple(range(value))
    whole = isinstance(value, list) and all(type(seed) is int and 0 <= seed < 1 << 32 for seed in value)
    if whole and value and len(set(value)) == len(value):
        return tuple(value)
    raise InputError(where, repr(value), "a count, or a list of unlike whole numbers from 0", "write seeds = 4")


def _truth(value: Any, where: str) -> bool:
    if isinstance(value, bool):
        return value
    raise InputError(where, repr(value), "true or false", "leave it out")
