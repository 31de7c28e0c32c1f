"""Names that were others once: what an old one in a file or on a command line means now.

Old names are understood wherever names are read (sweeps and searches, ``--set``, catalogue files, columns of tables,
results files), each with one warning that tells the new one. To rename something, rename it and add a line here.

A leaf is listed by its full path; it is understood by endings of that which name its record, unless they mean another
leaf now (``host_time`` was one of experts and is the stack's).
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class Renamed(FutureWarning):
    """An old name was read."""


class New(NamedTuple):
    """What a name was changed to, and the first version that has the new one."""

    name: str
    since: str


#: Leaves of a design, by full path.
LEAVES = {
    "software.engine.iteration_time": New("software.engine.host_step_time", "0.1.0"),
    "software.experts.host_time": New("software.experts.expert_host_time", "0.1.0"),
    "system.emissions.memory": New("system.emissions.memory_intensity", "0.1.0"),
}

#: What a run costs and emits, with its parts.
_OF_RUNS = {
    "cost": ("", "_devices", "_servers", "_scale_up", "_scale_out", "_facility", "_maintenance", "_electricity"),
    "carbon": ("", "_operation", "_devices", "_servers"),
}

#: Metrics: in expressions and as variables of results.
METRICS = {
    "step_time_edge": New("step_time_embedding_and_head", "0.1.0"),
    "peak_memory_edge": New("peak_memory_embedding_and_head", "0.1.0"),
    "yearly_cost": New("tco_per_year", "0.1.0"),
    "device_hour_cost": New("cost_per_device_hour", "0.1.0"),
    "tokens_per_dollar": New("tokens_per_cost", "0.1.0"),
    **{f"run_{kind}{part}": New(f"{kind}_per_run{part}", "0.1.0") for kind, of in _OF_RUNS.items() for part in of},
}

#: Fields of catalogue files by kind.
FIELDS = {
    "software": {
        "engine.iteration_time": New("engine.host_step_time", "0.1.0"),
        "experts.host_time": New("experts.expert_host_time", "0.1.0"),
    },
}

#: Columns of measured tables; none was renamed so far.
COLUMNS: dict[str, New] = {}


def leaf(name: str) -> str:
    """The full path of the leaf that an old name meant, with a warning; an empty text for a name that never was one."""
    path = _endings().get(name)
    return now(path, LEAVES, shown=name) if path else ""


def path(stated: str) -> str:
    """The full path of a leaf as it is called now, without a warning: for what only a program reads."""
    return LEAVES[stated].name if stated in LEAVES else stated


@functools.cache
def _endings() -> dict[str, str]:
    """Dotted endings of old paths that name a record, with the path."""
    pairs = ((old, old.split(".")) for old in LEAVES)
    return {".".join(parts[start:]): old for old, parts in pairs for start in range(len(parts) - 1)}


def now(name: str, known: Mapping[str, New], shown: str = "", where: str = "") -> str:
    """A name as it is called now: itself, or the new one with a warning.

    Args:
        name: as written.
        known: the names that were changed.
        shown: what the warning calls it, where that is not the name.
        where: the place that it stands in, for the warning.
    """
    found = known.get(name)
    if found is None:
        return name
    place = f"{where}: " if where else ""
    warnings.warn(f"{place}{shown or name} is called {found.name} since {found.since}", Renamed, stacklevel=2)
    return found.name


def fields(kind: str, data: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """A parsed catalogue file with its fields as they are called now; the file's own where it has both."""
    for old, new in FIELDS.get(kind, {}).items():
        table, _, key = old.rpartition(".")
        inner = data.get(table)
        if not isinstance(inner, dict) or key not in inner:
            continue
        name = now(old, {old: new}, where=where).rpartition(".")[2]
        data = {**data, table: {name: inner[key]} | {k: v for k, v in inner.items() if k != key}}
    return data


def columns(names: Iterable[str], where: str) -> dict[str, str]:
    """Old column → new one, of those that are there; a table that has both keeps the new one."""
    there = set(names)
    old = [name for name, new in COLUMNS.items() if name in there and new.name not in there]
    return {name: now(name, COLUMNS, where=where) for name in old}


def words(text: str) -> str:
    """A text of expressions with old names of metrics in the new form: what results say of their objectives."""
    return functools.reduce(lambda done, old: done.replace(old, METRICS[old].name), METRICS, text)
