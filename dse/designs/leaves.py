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
    check_load,
    check_networks,
    check_routing,
    check_tiers,
    check_turns,
    check_vendor,
    has_experts,
)
from dse.designs.records import (
    CAN,
    CHIP,
    LEAVES_OF_SERVING,
    LOAD,
    MADE,
    N_DEVICES,
    OPTIONAL,
    PLAIN_EXPERTS,
    PLAIN_MAPPING,
    REQUEST_RATE,
    assumed,
    with_serving_defaults,
)
from dse.errors import THEIRS, InputError, plain, unknown_name
from dse.io import quantities
from dse.types import Design, Recompute, Requests, choice_name, paths

R = TypeVar("R")

#: Kinds of designs.
KINDS = ("training", "serving")


@functools.cache
def leaves() -> dict[str, dict[str, Any]]:
    """Leaves of a design without optional records: path → metadata (symbol, units, long_name, bounds, enum)."""
    return paths.leaves(Design)


@functools.cache
def known_leaves() -> dict[str, dict[str, Any]]:
    """All possible leaves of a design, those of optional records (``OPTIONAL``) included: path → metadata."""
    optional = (paths.leaves(record, f"{path}.") for path, record in OPTIONAL.items())
    return functools.reduce(operator.or_, optional, leaves())


def leaves_of(design: Design) -> dict[str, dict[str, Any]]:
    """Leaves of ``design`` without presets: path → metadata."""
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
    """Dotted endings of a path that may name the leaf.

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
MOST = 10**9


def is_number(value: Any) -> bool:
    """Whether a value is a number, not a truth value or a text."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: Any, least: int = 1, most: int = MOST) -> bool:
    """Whether a value is a whole number within bounds, such as 8.0."""
    return is_number(value) and least <= value <= most and value == int(value)


def is_of_workload(path: str) -> bool:
    """Whether a leaf, or a catalogue name, by its full path belongs to the workload."""
    return path.partition(".")[0] == "workload"


#: Leaves whose names in engines and benchmarks of serving (isl, max_num_seqs) are read as these leaves.
_READ_AS = {"prompt_tokens", "output_tokens", "concurrency", "request_rate", "most_sequences"}


@functools.cache
def _spellings() -> dict[str, list[str]]:
    """Letters and digits of another tool's name → full paths of the leaves that it is read as."""
    found: dict[str, list[str]] = {}
    for ours, theirs in THEIRS.items():
        names = [name for name in ours.split() if name in _by_ending()]  # the others are metrics
        if names[:1] == ours.split()[:1] and _READ_AS & set(names) and set(names) <= _READ_AS | {"global_batch"}:
            found |= {plain(word): [_by_ending()[name][0] for name in names] for word in theirs.split()}
    return found


def read_as(name: str, serving: bool | None = None) -> str:
    """Full path of the leaf that another tool's name is read as; "" for other names, and for an ambiguous one.

    Args:
        name: as written.
        serving: kind of the study; ``batch_size`` is the concurrency of serving, else the global batch.

    >>> read_as("isl"), read_as("batch_size", serving=True), read_as("tp")
    ('workload.requests.prompt_tokens', 'workload.requests.concurrency', '')
    """
    found = _spellings().get(plain(name), []) if name not in _by_ending() else []
    if len(found) > 1 and serving is not None:
        found = [path for path in found if path.startswith(LEAVES_OF_SERVING) == serving]
    return found[0] if len(found) == 1 else ""


def leaf_path(name: str, where: str = "design", serving: bool | None = None) -> str:
    """Full path of a leaf.

    Args:
        name: a full path, any unique dotted ending, or a name of serving engines (:func:`read_as`).
        where: place of the name, for errors.
        serving: kind of the study, which decides what ``batch_size`` is.

    Raises:
        InputError: for an unknown or ambiguous name.

    >>> leaf_path("memory.bandwidth")
    'system.accelerator.memory.bandwidth'
    """
    found = _by_ending().get(name, [])
    if name in known_leaves():
        return name
    if theirs := read_as(name, serving):
        return theirs
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(where, repr(name), " or ".join(found), "write more of the path")
    raise unknown_name(where, name, _by_ending(), "leaves of a design", "dse list leaves")


def short_name(path: str) -> str:
    """The shortest unique ending of a leaf's path.

    >>> short_name("system.accelerator.memory.bandwidth")
    'memory.bandwidth'
    """
    return next(name for name in reversed(path_endings(path)) if _by_ending()[name] == [path])


def leaf_value(path: str, value: Any, where: str = "design") -> float:
    """A leaf's value in SI units.

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
    about = known_leaves()[path]
    value = value.item() if getattr(value, "shape", None) == () else value  # NumPy, JAX or xarray scalars
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
    """Note on another tool's name, or on the unit of a plain number for a leaf with units; "" otherwise.

    Args:
        name: as written.
        path: full path of the leaf.
        *values: as written; the note is on the first plain number.

    >>> reading_note("power.limit", "system.accelerator.power.limit", "250 W", 300)
    'power.limit = 300 has no unit: read as 300 W'
    >>> reading_note("tp", "mapping.tp", 8)
    ''
    """
    if read_as(name, serving=True) == path or read_as(name, serving=False) == path:
        return f"{name} is read as {short_name(path)}"
    units = known_leaves()[path]["units"]
    bare = [value for value in values if is_number(value)]
    is_plain = not bare or units in ("1", "s-1")
    return "" if is_plain else f"{name} = {bare[0]:g} has no unit: read as {bare[0]:g} {units}"


def _choice(enum: type[IntEnum], value: Any, where: str) -> float:
    if isinstance(value, str | bool):
        return catalog.choice(str(value).lower(), enum, where)
    if isinstance(value, int | float) and value in set(enum):
        return float(value)
    allowed = ", ".join(map(choice_name, enum))
    raise InputError(where, repr(value), allowed, "use one of these names")


def saturation_note(bandwidth: float, feed: float) -> str:
    """Note on a bandwidth above ``feed``, the maximum that the cores of a chip can use; "" below it."""
    if bandwidth <= feed:
        return ""
    most = quantities.setting(feed, "B/s")
    return f"memory.bandwidth above {most} changes nothing: the cores ask for no more (power.feed); set that too"


def mesh_note(mesh: float, bandwidth: float, built: float, *domains: float) -> str:
    """Note on a full mesh of another size than built; "" for a switched domain, and for the size that was built.

    Args:
        mesh: 1 for a full mesh, 0 for a switch.
        bandwidth: of one device and direction, in B/s.
        built: devices of the mesh in the catalogue.
        *domains: stated numbers of devices.
    """
    other = next((domain for domain in domains if domain != built), None)
    if not mesh or other is None:
        return ""
    each = quantities.setting(bandwidth / max(other - 1.0, 1.0), "B/s")
    return (
        f"scale_up.domain = {other:g} of a full mesh built for {built:g}: each device has {each} to each other one, "
        "without a switch; name a switched network (axis scale_up) for a larger domain"
    )


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
    """Value at a path of a design, or of a record of one."""
    return functools.reduce(getattr, path.split("."), record)


def stack_values(
    name: str, where: str = "software", any_option: bool = False, experts: bool = False
) -> catalog.Values:
    """Values that a stack brings into a design: its own leaves, and defaults of open mapping options.

    Args:
        name: of the stack, in the catalogue.
        where: place of the name, for errors.
        any_option: leave out capabilities, so that all options are allowed.
        experts: include the cost of mixtures of experts, for workloads with experts.
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
        system: catalogue name of a cluster, or of an accelerator with its default node and network.
        software: catalogue name of the stack; by default the system's training stack or, for serving, its engine.
        n_devices: devices used; by default ``tp cp pp dp``.
        where: place of the values, for errors.
        any_option: allow options that the stack lacks, and stacks of other vendors.
        kind: ``serving`` for a serving design without a serving leaf in ``settings``.
        **settings: any leaf by its name or dotted ending (``tp=8``, ``recompute="full"``,
            ``**{"memory.bandwidth": "3.35 TB/s"}``); numbers are in SI units.

    Returns:
        A design whose leaves are Python numbers in SI units. ``dp`` follows from ``n_devices`` by default; other open
        options of the mapping are those of the stack (:func:`dse.designs.catalog.mapping_defaults`).

    Raises:
        InputError: for unknown names, values with a wrong unit or out of bounds, and stacks of other vendors.

    >>> made = design("megatron-1t", "selene", n_devices=3072, tp=8, pp=64, recompute="full")
    >>> made.mapping.dp, made.system.scale_up.bandwidth
    (6.0, 300000000000.0)
    """
    if kind not in KINDS:
        raise unknown_name(f"{where}: kind", kind, KINDS, "kinds of designs")
    _check_texts({"workload": workload, "system": system, "software": software}, where)
    serves = kind == "serving" or any(read_as(name).startswith(LEAVES_OF_SERVING) for name in settings)
    serves |= any(path.startswith(LEAVES_OF_SERVING) for name in settings for path in _by_ending().get(name, []))
    paths_of = {name: leaf_path(name, where, serves) for name in settings}
    stated = {path: leaf_value(path, settings[name], f"{where}.{name}") for name, path in paths_of.items()}
    serves |= any(path.startswith(LEAVES_OF_SERVING) for path in stated)
    stack = catalog.default_software(system, serving=serves, workload=workload) if software is None else software
    values = _named_values(workload, system, stack, any_option)
    _check_stated(stated, values, where)
    plain = PLAIN_MAPPING | (PLAIN_EXPERTS if has_experts(values) else {})
    if serves and not set(catalog.SERVED_FORMAT) & set(stated):
        values |= catalog.served_format(workload, values)
    values = plain | values | assumed(stated) | stated
    check_load([stated[LOAD]] if LOAD in stated else (), REQUEST_RATE in stated, f"{where}.load")
    made = paths.build(Design, values | _sizes(values, stated, n_devices))
    if made.workload.reuse is not None:
        check_turns(made.workload.requests or Requests(), made.workload.reuse.turns, f"{where}.turns")
    if made.workload.experts is not None:
        named = {path: f"{where}.{short_name(path)}" for path in stated}
        check_routing(made.workload.experts, named, f"{where}: experts")
    return with_serving_defaults(made) if kind == "serving" else made


def _check_texts(names: MappingABC[str, Any], where: str) -> None:
    """Checks that names of the catalogue are texts; the stack may be absent."""
    for kind, given in names.items():
        if not isinstance(given, str) and (given is not None or kind != "software"):
            shown = f"see: dse catalog list {kind}"
            raise InputError(f"{where}: {kind}", repr(given), "a name of the catalogue", shown)


def _named_values(workload: str, system: str, stack: str, any_option: bool) -> dict[str, Any]:
    """Full path → value of the named entries of the catalogue."""
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
    """Checks that stated leaves belong to such a design.

    Args:
        stated: full path → value.
        values: those of the named entries.
        where: place of the values, for errors.
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
    """``dp`` and the number of devices, one derived from the other."""
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
