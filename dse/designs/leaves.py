"""Designs from names: the leaves of a design, their paths, and ``design(...)``.

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
from dse.designs.checks import (
    check_chip,
    check_experts,
    check_networks,
    check_routing,
    check_tiers,
    check_vendor,
    has_experts,
)
from dse.designs.records import (
    CAN,
    CHIP,
    LEAVES_OF_SERVING,
    MADE,
    N_DEVICES,
    OPTIONAL,
    PLAIN_EXPERTS,
    PLAIN_MAPPING,
    assumed_tokens,
    with_serving_defaults,
)
from dse.errors import InputError, unknown_name
from dse.io import quantities
from dse.types import Design, Recompute, choice_name, paths

R = TypeVar("R")

#: Kinds of designs.
KINDS = ("training", "serving")


@functools.cache
def leaves() -> dict[str, dict[str, Any]]:
    """Every leaf of an ordinary design: path → metadata (symbol, units, long_name, bounds, and enum for choices)."""
    return paths.leaves(Design)


@functools.cache
def known_leaves() -> dict[str, dict[str, Any]]:
    """Every leaf that a design may have: those of any, and of the records that only some have (``OPTIONAL``)."""
    optional = (paths.leaves(record, f"{path}.") for path, record in OPTIONAL.items())
    return functools.reduce(operator.or_, optional, leaves())


def leaves_of(design: Design) -> dict[str, dict[str, Any]]:
    """Every leaf that ``design`` has, but for presets."""
    prefixes = tuple(f"{path}." for path in OPTIONAL if leaf(design, path) is None)
    return {path: about for path, about in known_leaves().items() if not (prefixes and path.startswith(prefixes))}


@functools.cache
def _by_ending() -> dict[str, list[str]]:
    endings: dict[str, list[str]] = {}
    for path in known_leaves():
        for ending in path_endings(path):
            endings.setdefault(ending, []).append(path)
    return endings


def path_endings(path: str) -> list[str]:
    """Dotted endings that may mean a leaf.

    A chip's begin at ``chip`` or at its node, those of what a stack can do at ``can``: so others stay unique.
    """
    parts = path.split(".")
    endings = [".".join(parts[start:]) for start in range(len(parts))]
    if path.startswith(CAN):  # named as the options that they limit
        return [ending for ending in endings if "can." in ending]
    if not path.startswith(f"{CHIP}."):
        return endings
    return [ending for ending in endings if "chip." in ending or ending.startswith(("node.", "base_node."))]


#: The largest count of anything in a design: devices, sequences, tokens of a sequence.
MOST = 10**9


def is_number(value: Any) -> bool:
    """Numbers alone: neither truth values nor texts are read as such."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: Any, least: int = 1, most: int = MOST) -> bool:
    """Whether a value is a whole number within bounds; 8.0 is one."""
    return is_number(value) and least <= value <= most and value == int(value)


def is_of_workload(path: str) -> bool:
    """Whether a leaf, or a catalogue name, by its full path says what is computed rather than what computes it."""
    return path.partition(".")[0] == "workload"


def leaf_path(name: str, where: str = "design") -> str:
    """Full path of the leaf that a name means.

    Args:
        name: a full path, or any dotted ending that is unique.
        where: what the error names.

    Raises:
        InputError: for an unknown or ambiguous name.

    >>> leaf_path("memory.bandwidth")
    'system.accelerator.memory.bandwidth'
    """
    found = _by_ending().get(name, [])
    if name in known_leaves():
        return name
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(where, repr(name), " or ".join(found), "write more of the path")
    raise unknown_name(where, name, _by_ending(), "leaves of a design", "dse list leaves")


def short_name(path: str) -> str:
    """The shortest ending of a leaf's path that means it alone.

    >>> short_name("system.accelerator.memory.bandwidth")
    'memory.bandwidth'
    """
    return next(name for name in reversed(path_endings(path)) if _by_ending()[name] == [path])


def leaf_value(path: str, value: Any, where: str = "design") -> float:
    """A leaf's value in SI units.

    Args:
        path: full path of the leaf.
        value: a number in SI units, a name or code of its enumeration, a boolean of what is off or on, or a text with
            units.
        where: what the error names.

    Raises:
        InputError: for a value of another dimension, outside of the leaf's bounds, or that is none of its choices.

    >>> leaf_value("system.accelerator.memory.bandwidth", "3.35 TB/s")
    3350000000000.0
    >>> leaf_value("mapping.recompute", "full")
    2.0
    """
    about = known_leaves()[path]
    value = value.item() if getattr(value, "shape", None) == () else value  # of NumPy, JAX or xarray
    if "enum" in about:
        return _choice(about["enum"], value, where)
    if isinstance(value, str):
        number = catalog.quantity(value, about["units"], where)
    elif isinstance(value, bool | int | float):
        number = float(value)
    else:
        raise InputError(where, repr(value), f"a number, or a string in {about['units']}", "write a single value")
    return catalog.bounded(number, value, about["bounds"], where)


def reading_note(name: str, path: str, *values: Any) -> str:
    """How a plain number of a leaf that has units was read, in words; empty where all values say their units.

    Args:
        name: as written.
        path: full path of the leaf.
        *values: as written; the first plain number is told of.

    >>> reading_note("power.limit", "system.accelerator.power.limit", "250 W", 300)
    'power.limit = 300 has no unit: read as 300 W'
    >>> reading_note("tp", "mapping.tp", 8)
    ''
    """
    units = known_leaves()[path]["units"]
    bare = [value for value in values if is_number(value)]
    return f"{name} = {bare[0]:g} has no unit: read as {bare[0]:g} {units}" if bare and units != "1" else ""


def _choice(enum: type[IntEnum], value: Any, where: str) -> float:
    if isinstance(value, str | bool):
        return catalog.choice(str(value).lower(), enum, where)
    if isinstance(value, int | float) and value in set(enum):
        return float(value)
    allowed = ", ".join(map(choice_name, enum))
    raise InputError(where, repr(value), allowed, "use one of these names")


def saturation_note(bandwidth: float, feed: float) -> str:
    """What a reader of a bandwidth must know that the cores of a chip, which ask for ``feed``, cannot use up."""
    if bandwidth <= feed:
        return ""
    most = quantities.setting(feed, "B/s")
    return f"memory.bandwidth above {most} changes nothing: the cores ask for no more (power.feed); set that too"


def replace(record: R, values: MappingABC[str, Any]) -> R:
    """A copy of a design, or of a record of one, with the leaves at these paths replaced.

    Args:
        record: a design; its leaves may be traced, or arrays of many designs.
        values: full path (within the record) → new value in SI units.

    >>> small = design("gpt-3-13b", "selene", tp=8)
    >>> replace(small, {"system.scale_up.bandwidth": 600e9}).system.scale_up.bandwidth
    600000000000.0
    """
    if not values:
        return record
    heads: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        head, _, rest = path.partition(".")
        heads.setdefault(head, {})[rest] = value
    changed = {head: rest[""] if "" in rest else replace(getattr(record, head), rest) for head, rest in heads.items()}
    copied: Any = record
    return dataclasses.replace(copied, **changed)


def leaf(record: Any, path: str) -> Any:
    """The value at a path of a design, or of a record of one."""
    return functools.reduce(getattr, path.split("."), record)


def stack_values(
    name: str, where: str = "software", any_option: bool = False, experts: bool = False
) -> catalog.Values:
    """All that a stack brings into a design: its own leaves, and options of a mapping that leaves them open.

    Args:
        name: of the stack, in the catalogue.
        where: what errors name.
        any_option: leave out what it can do, so that it can do all.
        experts: bring what its mixtures of experts cost, for workloads that have experts.
    """
    own = catalog.within("software", catalog.values("software", name, where))
    if experts:
        own |= catalog.within("software.experts", catalog.expert_kernels(name, where))
        own |= catalog.within("mapping.experts", catalog.expert_options(name, where))
    if any_option:
        own = {path: value for path, value in own.items() if not path.startswith(CAN)}
    serving = catalog.within("mapping.serving", catalog.serving_defaults(name, where))
    return own | catalog.within("mapping", catalog.mapping_defaults(name, where)) | serving


def design(
    workload: str,
    system: str,
    software: str | None = None,
    n_devices: int | None = None,
    where: str = "design",
    any_option: bool = False,
    kind: str = "training",
    **settings: Any,
) -> Design:
    """One design from catalogue names and leaf values.

    Args:
        workload: catalogue name of the model.
        system: catalogue name of a cluster, or of an accelerator: then its default node and network are used.
        software: catalogue name of the stack; by default the system's own, of training or, for designs that serve, its
            engine.
        n_devices: devices used; by default ``tp cp pp dp``.
        where: how errors call the place these values come from.
        any_option: let the mapping ask for options that the stack lacks, and stacks be those of other vendors.
        kind: ``serving`` for a design that answers requests, even where ``settings`` say nothing of them.
        **settings: any leaf by its name or dotted ending (``tp=8``, ``recompute="full"``,
            ``**{"memory.bandwidth": "3.35 TB/s"}``); numbers are in SI units.

    Returns:
        A design whose leaves are Python numbers in SI units. ``dp`` follows from ``n_devices`` when it is not given;
        options of the mapping that are not given are as the stack has them
        (:func:`dse.designs.catalog.mapping_defaults`).

    Raises:
        InputError: for unknown names, values with a wrong unit or out of bounds, and stacks of other vendors.

    >>> made = design("megatron-1t", "selene", n_devices=3072, tp=8, pp=64, recompute="full")
    >>> made.mapping.dp, made.system.scale_up.bandwidth
    (6.0, 300000000000.0)
    """
    if kind not in KINDS:
        raise unknown_name(f"{where}: kind", kind, KINDS, "kinds of designs")
    _check_texts({"workload": workload, "system": system, "software": software}, where)
    paths_of = {name: leaf_path(name, where) for name in settings}
    stated = {path: leaf_value(path, settings[name], f"{where}.{name}") for name, path in paths_of.items()}
    serves = kind == "serving" or any(path.startswith(LEAVES_OF_SERVING) for path in stated)
    stack = catalog.default_software(system, serving=serves) if software is None else software
    values = _named_values(workload, system, stack, any_option)
    _check_stated(stated, values, where)
    plain = PLAIN_MAPPING | (PLAIN_EXPERTS if has_experts(values) else {})
    values = plain | values | assumed_tokens(stated) | stated
    made = paths.build(Design, values | _sizes(values, stated, n_devices))
    if made.workload.experts is not None:
        named = {path: f"{where}.{short_name(path)}" for path in stated}
        check_routing(made.workload.experts, named, f"{where}: experts")
    return with_serving_defaults(made) if kind == "serving" else made


def _check_texts(names: MappingABC[str, Any], where: str) -> None:
    """That names of the catalogue are texts; a stack may be left out."""
    for kind, given in names.items():
        if not isinstance(given, str) and (given is not None or kind != "software"):
            shown = f"see: dse catalog list {kind}"
            raise InputError(f"{where}: {kind}", repr(given), "a name of the catalogue", shown)


def _named_values(workload: str, system: str, stack: str, any_option: bool) -> dict[str, Any]:
    """Full path → value of what is named in the catalogue."""
    catalog.resolve("software", stack, "software")
    if not any_option:
        check_vendor(stack, system, "software")
    shape = catalog.within("workload", catalog.values("workload", workload))
    return (
        shape
        | catalog.within("system", catalog.values("system", system))
        | stack_values(stack, "software", any_option, has_experts(shape))
        | catalog.within(MADE, catalog.made(system))
    )


def _check_stated(stated: dict[str, Any], values: dict[str, Any], where: str) -> None:
    """That leaves which are stated belong to such a design.

    Args:
        stated: full path → value.
        values: of what is named, before them.
        where: what errors name.
    """
    for path in stated:
        check_chip(path, f"{CHIP}.die_area" in values, where)
        check_experts(path, values, where)
        check_networks(path, values, stated, where)
        check_tiers(path, stated[path], values | stated, f"{where}.{short_name(path)}")
    policy = stated.get("mapping.recompute", 0.0)
    if policy >= Recompute.norms and not has_experts(values):
        raise InputError(
            f"{where}.recompute", choice_name(Recompute(int(policy))),
            "none, selective, full, selective-op for a model without experts",
            "name a workload that has experts, such as deepseek-v3",
        )  # fmt: skip


def _sizes(values: MappingABC[str, Any], stated: MappingABC[str, Any], n_devices: int | None) -> dict[str, float]:
    """``dp`` and the number of devices, whichever follows from the other."""
    parallel = values["mapping.tp"] * values["mapping.cp"] * values["mapping.pp"]
    dp = values["mapping.dp"]
    if n_devices is not None:
        if not is_whole(n_devices):
            raise InputError(
                "n_devices", str(n_devices), f"a whole number, 1 to {MOST:,}", "give the number of devices"
            )
        if "mapping.dp" not in stated:
            if n_devices % parallel:
                raise InputError(
                    "n_devices", str(n_devices), f"multiples of tp x cp x pp = {parallel:g}",
                    "change n_devices or one of the degrees",
                )  # fmt: skip
            dp = n_devices / parallel
    devices = values[N_DEVICES] if N_DEVICES in stated else parallel * dp if n_devices is None else float(n_devices)
    return {"mapping.dp": dp, N_DEVICES: devices}
