"""Designs from names: the leaves of a design, their paths, and ``design(...)``.

A leaf is addressed by its path (``mapping.tp``, ``system.accelerator.memory.bandwidth``)
or by any dotted ending of it that is unique (``tp``, ``memory.bandwidth``).
"""

from __future__ import annotations

import dataclasses
import functools
import numbers
import operator
from collections.abc import Container
from collections.abc import Mapping as MappingABC
from enum import IntEnum
from typing import Any, TypeVar

from dse import catalog, quantities, renamed
from dse.errors import InputError, unknown_name
from dse.types import (
    GENERATED,
    Adapters,
    Chip,
    ContextParallel,
    Convergence,
    Design,
    Emissions,
    Engine,
    ExpertKernels,
    ExpertMapping,
    Experts,
    Fab,
    FarMemory,
    HostTiers,
    Latent,
    Links,
    Made,
    Mapping,
    NanoBatches,
    Package,
    Packing,
    Pods,
    Precision,
    Prices,
    Recompute,
    Recurrent,
    Reliability,
    Requests,
    Serving,
    Sharding,
    Sparse,
    Spill,
    Tiers,
    choice_name,
    paths,
)

R = TypeVar("R")

#: Mapping of a design that says nothing else, by full path: one device, nothing split. A leaf that may be absent is.
PLAIN_MAPPING = {
    **{
        path: about.get("default", 0.0)
        for path, about in paths.leaves(Mapping, "mapping.").items() if about.get("default", 0.0) is not None
    },
    **{f"mapping.{name}": 1.0 for name in ("tp", "pp", "dp", "cp", "micro_batch", "virtual_stages")},
    "mapping.precision": float(Precision.bf16),
}

#: What it says of experts, where the workload has any.
PLAIN_EXPERTS = {path: about["default"] for path, about in paths.leaves(ExpertMapping, "mapping.experts.").items()}

N_DEVICES = "system.n_devices"

#: The record that an over-subscribed scale-out network has and others lack.
PODS = "system.scale_out.pods"

#: The records of links that no switch joins, and of packages within a domain.
LINKS, PACKAGE = "system.scale_up.links", "system.scale_up.package"

#: How the leaves begin that say what a stack can do.
CAN = "software.can."

#: The record that a generated accelerator has and an ordinary one lacks.
CHIP = "system.accelerator.chip"

#: The record that a mixture of experts has and a dense model lacks.
EXPERTS = "workload.experts"

#: Records of a mapping and a stack that are there where the workload has experts.
OF_EXPERTS: dict[str, type] = {"mapping.experts": ExpertMapping, "software.experts": ExpertKernels}

#: Records of a model's shape beside its experts: path → class.
OF_SHAPE: dict[str, type] = {
    "workload.latent": Latent, "workload.recurrent": Recurrent, "workload.sparse": Sparse,
}  # fmt: skip

#: Record → what a model that has it has, and a model that does.
_SHAPES = {
    EXPERTS: ("experts", "deepseek-v3"), "workload.latent": ("latent attention", "deepseek-v3"),
    "workload.recurrent": ("layers with a state", "nemotron-nano-9b-v2"),
    "workload.sparse": ("sparse attention", "glm-5"),
}  # fmt: skip

#: What a leaf of a mixture of experts is at most (:attr:`dse.types.Experts.most`), in words.
_MOST_ROUTED = {
    "top_k": "n_experts", "group_limit": "n_groups", "imbalance": "n_experts / top_k", "capacity": "n_experts / top_k",
}  # fmt: skip

#: Leaf of a mapping's tiers → the option that takes off the device what it is a share of.
_SHARE_OF = {
    "storage_weights": "offload_weights", "storage_activations": "offload_activations",
    "storage_optimizer": "offload_optimizer", "host_update": "offload_optimizer",
}  # fmt: skip

#: Record that is there or not with a record of the workload → that record.
_OF_WORKLOAD = {
    **{record: record for record in (EXPERTS, *OF_SHAPE)}, **dict.fromkeys(OF_EXPERTS, EXPERTS)
}  # fmt: skip

#: Records of how a model is trained, which a design has that states a leaf of theirs.
OF_TRAINING: dict[str, type] = {
    "workload.adapters": Adapters, "workload.packing": Packing, "mapping.sharding": Sharding,
    "mapping.context": ContextParallel, "mapping.tiers": Tiers, "system.host_tiers": HostTiers,
    "system.reliability": Reliability, "workload.convergence": Convergence,
}  # fmt: skip

#: Records of a design that serves.
OF_SERVING: dict[str, type] = {
    "workload.requests": Requests, "mapping.serving": Serving, "software.engine": Engine, "mapping.nano": NanoBatches,
    "mapping.spill": Spill, "system.far": FarMemory,
}  # fmt: skip

#: How the leaves of these begin: the section ``[serving]`` may fix them, and itself asks for serving.
LEAVES_OF_SERVING = tuple(f"{path}." for path in OF_SERVING)

#: What the accelerator is made of and sold at, as the catalogue knows it.
MADE = "system.accelerator.made"
#: The power limit as sold, under which times were measured: they do not follow it.
LIMIT_AS_SOLD = "system.accelerator.power.tdp"

#: Records of what a design costs and emits; the defaults of each hold where it is absent.
OF_MONEY: dict[str, type] = {
    MADE: Made, "system.accelerator.fab": Fab, "system.prices": Prices, "system.emissions": Emissions,
}  # fmt: skip

#: Records that only some designs have: path → class.
OPTIONAL: dict[str, type] = {
    CHIP: Chip, PODS: Pods, LINKS: Links, PACKAGE: Package, EXPERTS: Experts, **OF_SHAPE, **OF_EXPERTS,
    **OF_TRAINING, **OF_SERVING, **OF_MONEY,
}  # fmt: skip


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


def check_chip(path: str, generated: bool, where: str) -> None:
    """That an accelerator, ``generated`` or stated, has a leaf of its own at ``path``; else an InputError."""
    inner = path.removeprefix("system.accelerator.")
    if path.startswith(f"{CHIP}.") and not generated:
        raise InputError(
            where, inner.rstrip("."), "leaves of an accelerator that is not generated",
            "name a generated accelerator, such as gpu, as the system or accelerator",
        )  # fmt: skip
    if generated and inner != path and any(inner == name or inner.startswith(f"{name}.") for name in GENERATED):
        raise InputError(
            where, f"{inner} of a generated accelerator", "what it is generated from: chip.die_area, chip.stacks, …",
            "change the chip, or name an accelerator that is not generated",
        )  # fmt: skip


def check_experts(path: str, values: MappingABC[str, Any], where: str) -> None:
    """That a design whose workload brings these values has the record of a leaf at ``path``, if it is of a shape."""
    needs = next((_OF_WORKLOAD[record] for record in _OF_WORKLOAD if path.startswith(f"{record}.")), None)
    if needs is not None and not _has_record(values, needs):
        what, such = _SHAPES[needs]
        raise InputError(
            where, path.rpartition(".")[2], f"leaves of a model without {what}",
            f"name a workload that has {what}, such as {such}",
        )  # fmt: skip


def check_links(path: str, values: MappingABC[str, Any], said: Container[str], where: str) -> None:
    """That a leaf of links without a switch is of a system that has such links, or is given them; else an InputError.

    Args:
        path: full path of a leaf that is stated.
        values: full path → value of what names bring.
        said: full paths of all leaves that are stated; ``links.topology`` takes the place of a switch.
        where: what the error names.
    """
    own = any(other.startswith(f"{LINKS}.") for other in values)
    if path.startswith(f"{LINKS}.") and not own and f"{LINKS}.topology" not in said:
        raise InputError(
            where, f"{path.removeprefix('system.scale_up.')} of a system whose links are switched",
            "leaves of links that no switch joins, as of tpu-v5e",
            "leave it out, name such a system, or set links.topology too: torus or hypercube in place of the switch",
        )  # fmt: skip


def check_tiers(path: str, value: float, offloaded: MappingABC[str, Any], where: str) -> None:
    """That a share of what is offloaded is one of something; else an InputError.

    Args:
        path: full path of a leaf that is stated.
        value: its value.
        offloaded: full path → value of the options of the mapping, 0 where nothing is offloaded.
        where: what the error names.
    """
    name = path.removeprefix("mapping.tiers.")
    of = _SHARE_OF.get(name, "")
    if of and value and not offloaded.get(f"mapping.{of}"):
        raise InputError(
            where, f"{name} = {value:g} without {of}", f"shares of what {of} takes off the device",
            f"set {of} too, or leave {name} out",
        )  # fmt: skip


def check_routing(
    experts: Experts, where: MappingABC[str, str], otherwise: str, moving: Container[str] = ()
) -> None:
    """That a mixture's router is possible: no more experts a token, groups, or rows of an expert than there are.

    Args:
        experts: numbers in SI units.
        where: full path of a leaf of its → what the error names, for those that were stated.
        otherwise: what it names for what was not.
        moving: full paths of leaves whose values differ between designs: what is a limit of some is a reason there.

    Raises:
        InputError: for the first leaf that is more than it can be.
    """
    for name, most in experts.most.items():
        got, of = float(getattr(experts, name)), _MOST_ROUTED[name]
        both = [f"{EXPERTS}.{one}" for one in (name, *of.split(" / "))]
        if got > most * (1.0 + 1e-5) and not any(path in moving for path in both):
            stated = next((where[path] for path in both if path in where), otherwise)
            raise InputError(stated, f"{name} = {got:g}", f"at most {of} = {most:g}", f"lower {name}, or change {of}")


def has_experts(values: MappingABC[str, Any]) -> bool:
    """Whether values by full path are of a mixture of experts."""
    return _has_record(values, EXPERTS)


def _has_record(values: MappingABC[str, Any], record: str) -> bool:
    return any(path.startswith(f"{record}.") for path in values)


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
    if path := renamed.leaf(name):
        return path
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
        value: a number in SI units, a name or code of its enumeration, a boolean or a text with units.
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


def told_reading(name: str, path: str, *values: Any) -> str:
    """How a plain number of a leaf that has units was read, in words; empty where all values say their units.

    Args:
        name: as written.
        path: full path of the leaf.
        *values: as written; the first plain number is told of.

    >>> told_reading("power.limit", "system.accelerator.power.limit", "250 W", 300)
    'power.limit = 300 has no unit: read as 300 W'
    >>> told_reading("tp", "mapping.tp", 8)
    ''
    """
    units = known_leaves()[path]["units"]
    bare = [value for value in values if is_number(value)]
    return f"{name} = {bare[0]:g} has no unit: read as {bare[0]:g} {units}" if bare and units != "1" else ""


def _choice(enum: type[IntEnum], value: Any, where: str) -> float:
    if isinstance(value, str):
        return catalog.choice(value.lower(), enum, where)
    if isinstance(value, int | float) and value in set(enum):
        return float(value)
    allowed = ", ".join(map(choice_name, enum))
    raise InputError(where, repr(value), allowed, "use one of these names")


def told_saturation(bandwidth: float, feed: float) -> str:
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


def check_vendor(stack: str, system: str, where: str) -> None:
    """That a stack exists for the vendor of a system's accelerator; else an InputError.

    Args:
        stack: of the catalogue.
        system: of the catalogue, or an accelerator.
        where: what the error names.
    """
    if clash := catalog.foreign(stack, system):
        vendor, known = clash
        raise InputError(
            where, f"{stack} on {system} of {vendor}",
            f"a stack that exists for {vendor} ({stack}: {', '.join(known)})",
            "name another stack; --any-option (any_option=True) runs it anyway",
        )  # fmt: skip


def design(
    workload: str,
    system: str,
    software: str | None = None,
    n_devices: int | None = None,
    where: str = "design",
    any_option: bool = False,
    **settings: Any,
) -> Design:
    """One design from catalogue names and leaf values.

    Args:
        workload: catalogue name of the model.
        system: catalogue name of a cluster, or of an accelerator: then its default node and network are used.
        software: catalogue name of the stack; by default the system's own, of training or, where something is said of
            serving, its engine.
        n_devices: devices used; by default ``tp cp pp dp``.
        where: how errors call the place these values come from.
        any_option: let the mapping ask for options that the stack lacks, and stacks be those of other vendors.
        **settings: any leaf by its name or dotted ending (``tp=8``, ``recompute="full"``,
            ``**{"memory.bandwidth": "3.35 TB/s"}``); numbers are in SI units.

    Returns:
        A design whose leaves are Python numbers in SI units. ``dp`` follows from ``n_devices`` when it is not given;
        options of the mapping that are not given are as the stack has them (:func:`dse.catalog.mapping_defaults`).

    Raises:
        InputError: for unknown names, values with a wrong unit or out of bounds, and stacks of other vendors.

    >>> made = design("megatron-1t", "selene", n_devices=3072, tp=8, pp=64, recompute="full")
    >>> made.mapping.dp, made.system.scale_up.bandwidth
    (6.0, 300000000000.0)
    """
    stated = {}
    for name, value in settings.items():
        path = leaf_path(name, where)
        stated[path] = leaf_value(path, value, f"{where}.{name}")
    for kind, given in (("workload", workload), ("system", system), ("software", software)):
        if not isinstance(given, str) and (given is not None or kind != "software"):
            shown = f"see: dse catalog list {kind}"
            raise InputError(f"{where}: {kind}", repr(given), "a name of the catalogue", shown)
    serves = any(path.startswith(LEAVES_OF_SERVING) for path in stated)
    stack = catalog.default_software(system, serving=serves) if software is None else software
    shape = catalog.within("workload", catalog.values("workload", workload))
    experts = has_experts(shape)
    values = (
        shape
        | catalog.within("system", catalog.values("system", system))
        | stack_values(stack, "software", any_option, experts)
        | catalog.within(MADE, catalog.made(system))
    )
    if not any_option:
        check_vendor(stack, system, "software")
    for path in stated:
        check_chip(path, f"{CHIP}.die_area" in values, where)
        check_experts(path, values, where)
        check_links(path, values, stated, where)
        check_tiers(path, stated[path], values | stated, f"{where}.{short_name(path)}")
    policy = stated.get("mapping.recompute", 0.0)
    if policy >= Recompute.norms and not experts:
        raise InputError(
            f"{where}.recompute", choice_name(Recompute(int(policy))),
            "none, selective, full, selective-op for a model without experts",
            "name a workload that has experts, such as deepseek-v3",
        )  # fmt: skip
    values = PLAIN_MAPPING | (PLAIN_EXPERTS if experts else {}) | values | stated
    model_parallel = values["mapping.tp"] * values["mapping.cp"] * values["mapping.pp"]
    if n_devices is not None and not is_whole(n_devices):
        allowed = f"a whole number, 1 to {MOST:,}"
        raise InputError("n_devices", str(n_devices), allowed, "give the number of devices")
    if "mapping.dp" not in stated and n_devices is not None:
        if n_devices % model_parallel:
            raise InputError(
                "n_devices", str(n_devices), f"multiples of tp x cp x pp = {model_parallel:g}",
                "change n_devices or one of the degrees",
            )  # fmt: skip
        values["mapping.dp"] = n_devices / model_parallel
    if N_DEVICES not in stated:
        values[N_DEVICES] = float(n_devices) if n_devices is not None else model_parallel * values["mapping.dp"]
    made = paths.build(Design, values)
    if made.workload.experts is not None:
        named = {path: f"{where}.{short_name(path)}" for path in stated}
        check_routing(made.workload.experts, named, f"{where}: experts")
    return made
