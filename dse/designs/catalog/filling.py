"""Values of a record from an entry of the catalogue.

A path within a record (``memory.bandwidth`` of an accelerator) is the field of the file; :func:`dse.types.paths.build`
makes the record.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dse import types
from dse.designs.catalog.defaults import load
from dse.designs.catalog.entries import NO_NETWORK, Entry, reference
from dse.designs.catalog.load import Folder, shown
from dse.errors import InputError
from dse.types.paths import leaves

#: Path → value in SI; the steps of an efficiency are one value.
Values = dict[str, Any]

#: Kind → record of its entries.
RECORDS: dict[str, type] = {
    "workload": types.Workload,
    "system": types.System,
    "accelerator": types.Accelerator,
    "network": types.Network,
    "software": types.Software,
    "node": types.LogicNode,
    "memory": types.MemoryTechnology,
    "cost": types.Fab,
}

#: Table of an entry's file → optional record of its workload, or network.
_OF_WORKLOAD: dict[str, type] = {
    "experts": types.Experts,
    "latent": types.Latent,
    "recurrent": types.Recurrent,
    "sparse": types.Sparse,
}
_OF_NETWORK: dict[str, type] = {
    "volumes": types.Volumes,
    "pods": types.Pods,
    "links": types.Links,
    "package": types.Package,
}

#: Kernels file with the collectives of all networks and typical values of facilities.
_LIBRARY = "generic"


def within(prefix: str, values: Values) -> Values:
    """Values of a record with ``prefix`` as its path in a larger one."""
    return {f"{prefix}.{path}": value for path, value in values.items()}


def values_of(found: Entry, kind: str, folder: Folder = None, fine: bool = False) -> Values:
    """Values of an entry as a record of ``kind`` (an accelerator may be a system)."""
    return _FILLED.get(kind, _plain)(found, folder, fine)


def no_network() -> Values:
    """Values in place of an absent scale-out network: one device, without zero divisors."""
    zeros = {path: 0.0 for path in leaves(types.Network)}
    return zeros | dict.fromkeys(("bandwidth", "domain", "efficiency", "ramp"), 1.0)


def _plain(found: Entry, folder: Folder, fine: bool) -> Values:
    return _leaves_of(found, RECORDS[found.kind])


def _leaves_of(found: Entry, record: type, absent: float | None = None) -> Values:
    """Leaves of a record from the fields of an entry; ``absent`` for those without a value and a default."""
    values = {path: found.value(path, about.get("default", absent)) for path, about in leaves(record).items()}
    return {path: value for path, value in values.items() if value is not None}


def _optional(found: Entry, record: type, path: str) -> Values:
    """Leaves of an optional record at ``path``; empty if all are missing, InputError if only some are."""
    if not any(found.value(f"{path}.{name}") is not None for name in leaves(record)):
        return {}
    abouts = {f"{path}.{name}": about for name, about in leaves(record).items()}
    values = {name: found.value(name, about.get("default")) for name, about in abouts.items()}
    missing = [name for name, value in values.items() if value is None and "default" not in abouts[name]]
    if missing:
        raise InputError(f"{shown(found.path)}: {missing[0]}", "nothing", "all or none", "add the field")
    return {name: value for name, value in values.items() if value is not None}


def _optionals(found: Entry, records: Mapping[str, type]) -> Values:
    """Leaves of the optional records of an entry; ``records``: table of its file → record."""
    return functools.reduce(operator.or_, (_optional(found, record, path) for path, record in records.items()))


def _accelerator(found: Entry, folder: Folder, fine: bool) -> Values:
    """An accelerator; missing precisions have rate 0, and so do generated values. A chip has the dies of its file.

    Its memory is what the runtime leaves of it (``usable``), where the file says so.
    """
    values = _leaves_of(found, types.Accelerator, absent=0.0) | _optional(found, types.EfficiencySteps, "kernels.steps")
    values["memory.capacity"] = found.value("memory.usable", values["memory.capacity"])
    if found.value("chip.node") is not None:
        values |= within("chip", _chip(found, folder)) | within("made", made_of(found, folder))
    values |= _optional(found, types.FineKernels, "kernels.fine")
    return values | _optional(found, types.AttentionKernels, "kernels.attention")


def _workload(found: Entry, folder: Folder, fine: bool) -> Values:
    """A model, with the optional records of its file."""
    return _leaves_of(found, types.Workload) | _optionals(found, _OF_WORKLOAD)


def _software(found: Entry, folder: Folder, fine: bool) -> Values:
    """A stack; a serving one with the leaves of an engine."""
    return levelled(found, _leaves_of(found, types.Software) | _optional(found, types.Engine, "engine"))


#: Leaves of a stack that its ``level`` multiplies: slow-downs over isolated kernels, and times. Attention takes that of
#: products with it.
LEVELLED = frozenset(
    (
        "matrix_slowdown",
        "elementwise_slowdown",
        "communication_slowdown",
        "host_time",
        "small_kernel_time",
        "step_overhead",
        *(f"experts.{name}" for name in ("expert_kernel_time", "expert_time", "expert_host_time")),
        *(
            f"engine.{name}"
            for name in (
                "kernel_slowdown",
                "layer_time",
                "expert_layer_time",
                "cast_layer_time",
                "latent_layer_time",
                "host_step_time",
                "sequence_time",
                "rank_time",
                "request_time",
                "small_message_time",
            )
        ),
    ),
)


def levelled(found: Entry, values: Values, prefix: str = "") -> Values:
    """Values of a stack's leaves, below ``prefix``, times its ``level``."""
    level = found.value("level", 1.0)
    return {path: level * value if prefix + path in LEVELLED else value for path, value in values.items()}


def _chip(found: Entry, folder: Folder) -> Values:
    """A chip; by default the base die has the node of the compute dies."""
    values = {
        path: found.value(f"chip.{path}", about.get("default"))
        for path, about in leaves(types.Chip).items()
        if "." not in path
    }
    base = found.value("chip.base_node", found.value("chip.node"))
    for field, name in {"node": None, "base_node": base, "memory": None}.items():
        values |= within(field, _named(found, f"chip.{field}", folder, name=name))
    return values


def _network(found: Entry, folder: Folder, fine: bool) -> Values:
    """One level; with ``fine`` also ``alone`` of its file, else that of all networks."""
    values = _leaves_of(found, types.Network, absent=0.0)
    values |= _optionals(found, _OF_NETWORK)
    if fine:
        restated = {path: found.value(f"alone.{path}") for path in leaves(types.Network)}
        values |= {path: value for path, value in restated.items() if value is not None}
        library = load("kernels", _LIBRARY, folder)
        alone = {f"alone.{path}": about.get("default") for path, about in leaves(types.CollectiveKernels).items()}
        values |= {path: found.value(path, library.value(path, usual)) for path, usual in alone.items()}
    return values


def _system(found: Entry, folder: Folder, fine: bool) -> Values:
    """One node of a cluster: ``n_devices`` is ``devices_per_node``; an accelerator stands for its own node."""
    alone = found.kind == "accelerator"
    prefix = "node." if alone else ""
    file, per_node = shown(found.path), found.value(prefix + "devices_per_node")
    if alone and found.value("node.scale_up") == NO_NETWORK:
        raise InputError(
            f"{file}: node.scale_up",
            "'none'",
            "a network",
            f"the links of {found.slug} are not in the catalogue: name another system",
        )
    device = found if alone else load(*reference(found, "accelerator", folder), folder)
    values = within("accelerator", _accelerator(device, folder, fine))
    for level in ("scale_up", "scale_out"):
        named = _named(found, prefix + level, folder, fine)
        if level == "scale_out":
            check_between(named, f"{file}: {prefix}scale_out", str(found.value(prefix + level)))
        values |= within(level, named)
        own = found.value(f"{prefix}{level}_bandwidth")
        values |= {f"{level}.bandwidth": own} if own else {}
    crowding = found.value(f"{prefix}crowding")
    if crowding is not None and not fine:  # isolated collectives are those of the host that was measured
        values |= {"scale_up.crowding": crowding}
    link = device.value("host_bandwidth", types.HOST.bandwidth)
    return (
        values
        | _facility(found, prefix, device, folder)
        | {
            "scale_up.domain": per_node,
            "host.capacity": found.value(f"{prefix}host_memory", types.HOST.capacity),
            "host.bandwidth": found.value(f"{prefix}host_bandwidth", link),
            "n_devices": per_node,
        }
    )


def check_between(network: Values, where: str, name: str) -> None:
    """Checks that a network can join domains; InputError for links without a switch and packages."""
    if any(path.startswith(("links.", "package.")) for path in network):
        raise InputError(where, repr(name), "a network that joins domains", "name links without a switch as scale_up")


def _facility(found: Entry, prefix: str, device: Entry, folder: Folder) -> Values:
    """Host power per device, speed of its code, overhead of the facility; typical values where none are stated."""
    typical = load("kernels", _LIBRARY, folder)

    def stated(field: str) -> float:
        return found.value(prefix + field, device.value(f"node.{field}", typical.value(f"node.{field}")))

    share = stated("host_power_share") * device.value("chip.power_budget", device.value("power.tdp"))
    slowdown = found.value(f"{prefix}host_slowdown", device.value("node.host_slowdown"))
    return {
        "host_power": found.value(f"{prefix}host_power", device.value("node.host_power", share)),
        "pue": stated("pue"),
    } | ({} if slowdown is None else {"host_slowdown": slowdown})


def made_of(device: Entry, folder: Folder = None) -> Values:
    """Dies and price of an accelerator: path in :class:`dse.types.Made` → value; dies only if a process is stated."""
    values = {
        path: device.value(f"made.{path}", about["default"])
        for path, about in leaves(types.Made).items()
        if "." not in path
    }
    named = device.value("made.node")
    stated = {"price": "price"} | ({"chiplets": "compute_dies", "logic_area": "die_area"} if named else {})
    own = {path: device.value(f"made.{path}", device.value(field, values[path])) for path, field in stated.items()}
    nodes = {"process": "made.node", "base_process": "made.base_node"}
    processes = {
        f"{record}.{path}": load(*reference(device, field, folder), folder).value(path, about["default"])
        if device.value(field) is not None
        else about["default"]
        for record, field in nodes.items()
        for path, about in leaves(types.Process).items()
    }
    return values | own | processes


def _named(by: Entry, field: str, folder: Folder, fine: bool = False, name: str | None = None) -> Values:
    """Values of the entry named by a field of another one, or by ``name`` instead."""
    if by.value(field) == NO_NETWORK:
        return no_network()
    kind, slug = reference(by, field, folder, name)
    return values_of(load(kind, slug, folder), kind, folder, fine)


_FILLED: dict[str, Callable[[Entry, Folder, bool], Values]] = {
    "accelerator": _accelerator,
    "network": _network,
    "system": _system,
    "workload": _workload,
    "software": _software,
}
