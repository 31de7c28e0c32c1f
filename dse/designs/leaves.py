"""Leaves of a design: their paths, names, values and notes.

A leaf is addressed by its path (``mapping.tp``, ``system.accelerator.memory.bandwidth``)
or by any dotted ending of it that is unique (``tp``, ``memory.bandwidth``).
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
import operator
from collections.abc import Mapping as MappingABC
from enum import IntEnum
from typing import Any, TypeVar

from dse.designs import catalog
from dse.designs.records import (
    CAN,
    CHIP,
    LEAVES_OF_SERVING,
    OPTIONAL,
)
from dse.errors import THEIRS, InputError, plain, unknown_name
from dse.io import quantities
from dse.types import Design, choice_name, paths

R = TypeVar("R")


@functools.cache
def leaves() -> dict[str, dict[str, Any]]:
    """Return full path → metadata of the leaves of a design without optional records.

    Returns:
        Full path → metadata: symbol, units, long_name, bounds, enum.
    """
    return paths.leaves(Design)


@functools.cache
def all_leaves() -> dict[str, dict[str, Any]]:
    """Return full path → metadata of the leaves of a design with all its optional records (``OPTIONAL``).

    Returns:
        Full path → metadata: symbol, units, long_name, bounds, enum.
    """
    optional = (paths.leaves(record, f"{path}.") for path, record in OPTIONAL.items())
    return functools.reduce(operator.or_, optional, leaves())


def leaves_of(design: Design) -> dict[str, dict[str, Any]]:
    """Return full path → metadata of the leaves of ``design``, with the optional records that it has.

    Returns:
        Full path → metadata: symbol, units, long_name, bounds, enum.
    """
    prefixes = tuple(f"{path}." for path in OPTIONAL if leaf(design, path) is None)
    return {path: metadata for path, metadata in all_leaves().items() if not (prefixes and path.startswith(prefixes))}


@functools.cache
def paths_by_ending() -> dict[str, list[str]]:
    """Return dotted ending of a path → full paths of the leaves that it may name."""
    endings: dict[str, list[str]] = {}
    for path in all_leaves():
        for ending in path_endings(path):
            endings.setdefault(ending, []).append(path)
    return endings


def path_endings(path: str) -> list[str]:
    """Return the dotted endings of a path that may name the leaf, the longest first.

    Those of a chip begin at ``chip`` or at its node, those of a stack's capabilities at ``can``, so that others stay
    unique.
    """
    parts = path.split(".")
    endings = [".".join(parts[start:]) for start in range(len(parts))]
    if path.startswith(CAN):  # capabilities have the names of their options
        return [ending for ending in endings if "can." in ending]
    if not path.startswith(f"{CHIP}."):
        return endings
    return [ending for ending in endings if "chip." in ending or ending.startswith(("node.", "base_node."))]


#: Maximum of any count of a design: devices, sequences, tokens of a sequence.
MAX_COUNT = 10**9


def is_number(value: Any) -> bool:
    """True for a number that is neither a truth value nor a text."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_integer(value: Any, minimum: int = 1, maximum: int = MAX_COUNT) -> bool:
    """True for a whole number from ``minimum`` to ``maximum``, such as 8 or 8.0.

    Args:
        value: any value; only numbers can be whole.
        minimum: least value.
        maximum: largest value.
    """
    return is_number(value) and minimum <= value <= maximum and value == int(value)


def is_of_workload(path: str) -> bool:
    """True for a leaf of the workload, by its full path."""
    return path.partition(".")[0] == "workload"


#: Leaves whose names in engines and benchmarks of serving (isl, max_num_seqs) are read as these leaves.
_ALIASED_LEAVES = {"prompt_tokens", "output_tokens", "concurrency", "request_rate", "most_sequences"}


@functools.cache
def _paths_by_spelling() -> dict[str, list[str]]:
    """Return plain spelling of another tool's name → full paths of the leaves that it stands for."""
    paths_by_spelling: dict[str, list[str]] = {}
    for ours, theirs in THEIRS.items():
        names = [name for name in ours.split() if name in paths_by_ending()]  # the others are metrics
        if (
            names[:1] == ours.split()[:1]
            and _ALIASED_LEAVES & set(names)
            and set(names) <= _ALIASED_LEAVES | {"global_batch"}
        ):
            paths_by_spelling |= {
                plain(word): [paths_by_ending()[name][0] for name in names] for word in theirs.split()
            }
    return paths_by_spelling


def leaf_of_alias(name: str, serving: bool | None = None) -> str:
    """Return the full path of the leaf that another tool's name stands for, "" for an unknown or ambiguous name.

    Args:
        name: as written.
        serving: kind of the study; ``batch_size`` is the concurrency of serving, else the global batch.

    >>> leaf_of_alias("isl"), leaf_of_alias("batch_size", serving=True), leaf_of_alias("tp")
    ('workload.requests.prompt_tokens', 'workload.requests.concurrency', '')
    """
    candidates = _paths_by_spelling().get(plain(name), []) if name not in paths_by_ending() else []
    if len(candidates) > 1 and serving is not None:
        candidates = [path for path in candidates if path.startswith(LEAVES_OF_SERVING) == serving]
    return candidates[0] if len(candidates) == 1 else ""


def leaf_path(name: str, where: str = "design", serving: bool | None = None) -> str:
    """Return the full path of the leaf that a name means.

    Args:
        name: a full path, any unique dotted ending, or a name of serving engines (:func:`leaf_of_alias`).
        where: place of the name, for errors.
        serving: kind of the study, which decides what ``batch_size`` is.

    Raises:
        InputError: for an unknown or ambiguous name.

    >>> leaf_path("memory.bandwidth")
    'system.accelerator.memory.bandwidth'
    """
    candidates = paths_by_ending().get(name, [])
    if name in all_leaves():
        return name
    if alias_path := leaf_of_alias(name, serving):
        return alias_path
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise InputError(where, repr(name), " or ".join(candidates), "write more of the path")
    raise unknown_name(where, name, paths_by_ending(), "leaves of a design", "dse list leaves")


def short_name(path: str) -> str:
    """Return the shortest dotted ending that names a leaf alone, by its full path.

    >>> short_name("system.accelerator.memory.bandwidth")
    'memory.bandwidth'
    """
    return next(name for name in reversed(path_endings(path)) if paths_by_ending()[name] == [path])


def leaf_value(path: str, value: Any, where: str = "design") -> float:
    """Return a leaf's value in SI units.

    Args:
        path: full path of the leaf.
        value: a number in SI units, a name or code of its enumeration, a boolean for switches, or a text with units.
        where: place of the value, for errors.

    Raises:
        InputError: for a value of another dimension, out of bounds, or not a choice of the leaf.

    >>> leaf_value("system.accelerator.memory.bandwidth", "3.35 TB/s")
    3350000000000.0
    >>> leaf_value("mapping.recompute", "full")
    2.0
    """
    metadata = all_leaves()[path]
    value = value.item() if getattr(value, "shape", None) == () else value  # NumPy, JAX or xarray scalars
    if "enum" in metadata:
        return _choice(metadata["enum"], value, where)
    if isinstance(value, str):
        number = catalog.quantity(value, metadata["units"], where)
    elif isinstance(value, bool | int | float):
        number = float(value)
    else:
        raise InputError(where, repr(value), f"a number, or a string in {metadata['units']}", "write a single value")
    return catalog.bounded(number, value, metadata["bounds"], where)


def reading_note(name: str, path: str, *values: Any) -> str:
    """Return the note on another tool's name, or on the unit of a plain number for a leaf with units; else "".

    Args:
        name: as written.
        path: full path of the leaf.
        *values: as written; the note is on the first plain number.

    >>> reading_note("power.limit", "system.accelerator.power.limit", "250 W", 300)
    'power.limit = 300 has no unit: read as 300 W'
    >>> reading_note("tp", "mapping.tp", 8)
    ''
    """
    if leaf_of_alias(name, serving=True) == path or leaf_of_alias(name, serving=False) == path:
        return f"{name} is read as {short_name(path)}"
    units = all_leaves()[path]["units"]
    bare = [value for value in values if is_number(value)]
    is_plain = not bare or units in ("1", "s-1")
    return "" if is_plain else f"{name} = {bare[0]:g} has no unit: read as {bare[0]:g} {units}"


def _choice(enum: type[IntEnum], value: Any, where: str) -> float:
    """Return the code of a choice, from its name or code; InputError for any other value."""
    if isinstance(value, str | bool):
        return catalog.choice(str(value).lower(), enum, where)
    if isinstance(value, int | float) and value in set(enum):
        return float(value)
    allowed = ", ".join(map(choice_name, enum))
    raise InputError(where, repr(value), allowed, "use one of these names")


def saturation_note(bandwidth: float, feed: float) -> str:
    """Return the note that a memory bandwidth is more than the cores can use, "" where they can.

    Args:
        bandwidth: of the memory, in B/s.
        feed: maximum that the cores of the chip can use, in B/s.
    """
    if bandwidth <= feed:
        return ""
    feed_text = quantities.setting(feed, "B/s")
    return f"memory.bandwidth above {feed_text} changes nothing: the cores ask for no more (power.feed); set that too"


def mesh_note(is_mesh: float, bandwidth: float, catalogue_size: float, *sizes: float) -> str:
    """Return the note on a full mesh of another size than was built, "" for the built size and for a switch.

    Args:
        is_mesh: 1 for a full mesh, 0 for a switch.
        bandwidth: of one device and direction, in B/s.
        catalogue_size: devices of the mesh in the catalogue.
        *sizes: stated numbers of devices.
    """
    domain_size = next((domain for domain in sizes if domain != catalogue_size), None)
    if not is_mesh or domain_size is None:
        return ""
    peer_bandwidth = quantities.setting(bandwidth / max(domain_size - 1.0, 1.0), "B/s")
    return (
        f"scale_up.domain = {domain_size:g} of a full mesh built for {catalogue_size:g}: "
        f"each device has {peer_bandwidth} to each other one, without a switch; "
        "name a switched network (axis scale_up) for a larger domain"
    )


def replace(record: R, values: MappingABC[str, Any]) -> R:
    """Return a copy of a design, or of a record of one, with the leaves or records at these paths replaced.

    Args:
        record: a design; its leaves may be traced, or arrays of many designs.
        values: full path (within the record) → new value in SI units.

    Returns:
        A record of the same class.

    >>> from dse import design
    >>> small = design("gpt-3-13b", "selene", tp=8)
    >>> replace(small, {"system.scale_up.bandwidth": 600e9}).system.scale_up.bandwidth
    600000000000.0
    """
    if not values:
        return record
    heads: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        head, _, subpath = path.partition(".")
        heads.setdefault(head, {})[subpath] = value
    changed = {
        head: subpath[""] if "" in subpath else replace(getattr(record, head), subpath)
        for head, subpath in heads.items()
    }
    copied: Any = record
    return dataclasses.replace(copied, **changed)


def leaf(record: Any, path: str) -> Any:
    """Return the value at a dotted path of a design, or of a record of one; AttributeError below an absent record.

    Args:
        record: design or part of it.
        path: such as ``system.accelerator.memory.bandwidth``.

    Returns:
        A number, a code or a record; None for an absent record.
    """
    return functools.reduce(getattr, path.split("."), record)
