"""Values of a record from an entry of the catalogue.

A path within a record (``memory.bandwidth`` of an accelerator) is the field of the file; :func:`dse.types.paths.build`
makes the record.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

from dse import types
from dse.designs.catalog import schema
from dse.designs.catalog.defaults import load
from dse.designs.catalog.entries import NO_NETWORK, Entry, reference
from dse.designs.catalog.load import Folder, display_path
from dse.errors import InputError
from dse.types.paths import leaves

#: Path → value in SI; the steps of an efficiency are one value.
Values = dict[str, Any]

#: Kind → record of its entries.
RECORDS: dict[str, type] = {
    kind: getattr(types, rows["record"]) for kind, rows in schema.ROWS.items() if "record" in rows
}

#: Kernels file with the collectives of all networks and typical values of facilities.
_LIBRARY = "generic"


def with_prefix(prefix: str, values: Values) -> Values:
    """Return ``prefix.path`` → value: values of a record with their paths in a larger record.

    Args:
        prefix: path of the record in the larger one.
        values: path within the record → value.
    """
    return {f"{prefix}.{path}": value for path, value in values.items()}


def values_of(entry: Entry, kind: str, folder: Folder = None, fine: bool = False) -> Values:
    """Return path → SI value of the record of a kind that an entry fills.

    Args:
        entry: the entry.
        kind: of the record; an accelerator may be a system.
        folder: a catalogue to search first.
        fine: include the terms of isolated collectives.

    Returns:
        Path within the record → SI value.
    """
    return _FILLERS[kind](entry, folder, fine) if kind in _FILLERS else leaf_values(entry, RECORDS[entry.kind])


def device_of(system: Entry, folder: Folder = None) -> Entry:
    """Return the accelerator of a system, which may be an accelerator itself."""
    return system if system.kind == "accelerator" else load(*reference(system, "accelerator", folder), folder)


def no_network() -> Values:
    """Return path → value in place of an absent scale-out network: one device, without zero divisors."""
    zeros = {path: 0.0 for path in leaves(types.Network)}
    return zeros | dict.fromkeys(("bandwidth", "domain", "efficiency", "ramp"), 1.0)


def leaf_values(entry: Entry, record: type, table: str = "", default: float | None = None) -> Values:
    """Return path → SI value of the leaves of a record from the fields of an entry.

    Args:
        entry: the entry.
        record: class of the record.
        table: prefix of its fields, with a dot.
        default: of leaves without a value and without a default of their own; None leaves them out.
    """
    defaults = {path: metadata.get("default", default) for path, metadata in leaves(record).items()}
    values = {path: entry.value(table + path, value) for path, value in defaults.items()}
    return {path: value for path, value in values.items() if value is not None}


def _optional_values(entry: Entry, record: type, path: str) -> Values:
    """Return ``path.leaf`` → SI value of an optional record, empty where the entry states none of it.

    Raises:
        InputError: where only some of them are stated.
    """
    if not any(entry.value(f"{path}.{name}") is not None for name in leaves(record)):
        return {}
    values = leaf_values(entry, record, f"{path}.")
    for name, metadata in leaves(record).items():
        if name not in values and "default" not in metadata:
            raise InputError(f"{display_path(entry.path)}: {path}.{name}", "nothing", "all or none", "add the field")
    return with_prefix(path, values)


def _optional_records(entry: Entry) -> Values:
    """Return path → SI value of the optional records of an entry's kind."""
    records = schema.ROWS[entry.kind]["optional"].items()
    values = (_optional_values(entry, getattr(types, name), path) for path, name in records)
    return functools.reduce(operator.or_, values)


def _accelerator(entry: Entry, folder: Folder, fine: bool) -> Values:
    """Return path → SI value of an accelerator.

    Missing precisions have rate 0, and so do generated values. A generated chip has the dies of its file. The memory is
    what the runtime leaves of it (``usable``), where the file says so.
    """
    values = leaf_values(entry, types.Accelerator, default=0.0)
    values |= _optional_values(entry, types.EfficiencySteps, "kernels.steps")
    values["memory.capacity"] = entry.value("memory.usable", values["memory.capacity"])
    if entry.value("chip.node") is not None:
        values |= with_prefix("chip", _chip(entry, folder)) | with_prefix("made", manufacture_values(entry, folder))
    values |= _optional_values(entry, types.FineKernels, "kernels.fine")
    return values | _optional_values(entry, types.AttentionKernels, "kernels.attention")


def _workload(entry: Entry, folder: Folder, fine: bool) -> Values:
    """Return path → SI value of a model with the optional records of its file."""
    return leaf_values(entry, types.Workload) | _optional_records(entry)


def _software(entry: Entry, folder: Folder, fine: bool) -> Values:
    """Return path → SI value of a stack, with the leaves of an engine for one that serves."""
    return scaled_by_level(entry, leaf_values(entry, types.Software) | _optional_values(entry, types.Engine, "engine"))


#: Leaves of a stack that its ``level`` multiplies.
LEVEL_SCALED = frozenset(schema.ROWS["level"]["scaled"])


def scaled_by_level(entry: Entry, values: Values, prefix: str = "") -> Values:
    """Return path → value, those of ``LEVEL_SCALED`` (as ``prefix + path``) times the stack's ``level``."""
    level = entry.value("level", 1.0)
    return {path: level * value if prefix + path in LEVEL_SCALED else value for path, value in values.items()}


def _chip(entry: Entry, folder: Folder) -> Values:
    """Return path → SI value of a chip; the base die has the node of the compute dies by default."""
    values = {path: value for path, value in leaf_values(entry, types.Chip, "chip.").items() if "." not in path}
    base = entry.value("chip.base_node", entry.value("chip.node"))
    for field, name in {"node": None, "base_node": base, "memory": None}.items():
        values |= with_prefix(field, _referenced_values(entry, f"chip.{field}", folder, name=name))
    return values


def _network(entry: Entry, folder: Folder, fine: bool) -> Values:
    """Return path → SI value of one level of the interconnect.

    With ``fine`` those of its isolated collectives (``alone``) too, from its file or else from that of all networks.
    """
    values = leaf_values(entry, types.Network, default=0.0)
    values |= _optional_records(entry)
    if fine:
        isolated_values = {path: entry.value(f"alone.{path}") for path in leaves(types.Network)}
        values |= {path: value for path, value in isolated_values.items() if value is not None}
        library = load("kernels", _LIBRARY, folder)
        kernels = with_prefix("alone", leaf_values(library, types.CollectiveKernels, "alone."))
        values |= {path: entry.value(path, value) for path, value in kernels.items()}
    return values


def _system(entry: Entry, folder: Folder, fine: bool) -> Values:
    """Return path → SI value of one node of a cluster, or of an accelerator with its default node.

    ``n_devices`` is ``devices_per_node``. InputError for an accelerator whose links are not in the catalogue.
    """
    is_accelerator = entry.kind == "accelerator"
    prefix = "node." if is_accelerator else ""
    file, devices_per_node = display_path(entry.path), entry.value(prefix + "devices_per_node")
    if is_accelerator and entry.value("node.scale_up") == NO_NETWORK:
        raise InputError(
            f"{file}: node.scale_up",
            "'none'",
            "a network",
            f"the links of {entry.slug} are not in the catalogue: name another system",
        )
    device = device_of(entry, folder)
    values = with_prefix("accelerator", _accelerator(device, folder, fine))
    for level in ("scale_up", "scale_out"):
        network_values = _referenced_values(entry, prefix + level, folder, fine)
        if level == "scale_out":
            check_between(network_values, f"{file}: {prefix}scale_out", str(entry.value(prefix + level)))
        values |= with_prefix(level, network_values)
        bandwidth = entry.value(f"{prefix}{level}_bandwidth")
        values |= {f"{level}.bandwidth": bandwidth} if bandwidth else {}
    crowding = entry.value(f"{prefix}crowding")
    if crowding is not None and not fine:  # isolated collectives are those of the host that was measured
        values |= {"scale_up.crowding": crowding}
    link = device.value("host_bandwidth", types.HOST.bandwidth)
    return (
        values
        | _facility(entry, prefix, device, folder)
        | {
            "scale_up.domain": devices_per_node,
            "host.capacity": entry.value(f"{prefix}host_memory", types.HOST.capacity),
            "host.bandwidth": entry.value(f"{prefix}host_bandwidth", link),
            "n_devices": devices_per_node,
        }
    )


def check_between(network: Values, where: str, name: str) -> None:
    """Raise InputError for a network that cannot join domains.

    Args:
        network: values of the network by path.
        where: place of its name, for errors.
        name: of the network.

    Raises:
        InputError: for links without a switch, and for packages.
    """
    if any(path.startswith(("links.", "package.")) for path in network):
        raise InputError(where, repr(name), "a network that joins domains", "name links without a switch as scale_up")


def _facility(entry: Entry, prefix: str, device: Entry, folder: Folder) -> Values:
    """Return ``host_power`` (W per device), ``pue`` and, where stated, ``host_slowdown``; typical ones for unstated."""
    typical = load("kernels", _LIBRARY, folder)

    def field_value(field: str) -> float:
        return entry.value(prefix + field, device.value(f"node.{field}", typical.value(f"node.{field}")))

    host_share = field_value("host_power_share") * device.value("chip.power_budget", device.value("power.tdp"))
    slowdown = entry.value(f"{prefix}host_slowdown", device.value("node.host_slowdown"))
    return {
        "host_power": entry.value(f"{prefix}host_power", device.value("node.host_power", host_share)),
        "pue": field_value("pue"),
    } | ({} if slowdown is None else {"host_slowdown": slowdown})


def manufacture_values(device: Entry, folder: Folder = None) -> Values:
    """Return path in :class:`dse.types.Manufacture` → value: dies, processes and price of an accelerator.

    Dies are those of its file only where a process is stated.
    """
    values = {path: value for path, value in leaf_values(device, types.Manufacture, "made.").items() if "." not in path}
    process_name = device.value("made.node")
    fields = {"price": "price"} | ({"chiplets": "compute_dies", "logic_area": "die_area"} if process_name else {})
    field_values = {
        path: device.value(f"made.{path}", device.value(field, values[path])) for path, field in fields.items()
    }
    values |= field_values
    for record, field in {"process": "made.node", "base_process": "made.base_node"}.items():
        process = {path: metadata["default"] for path, metadata in leaves(types.Process).items()}
        if device.value(field) is not None:
            process |= leaf_values(load(*reference(device, field, folder), folder), types.Process)
        values |= with_prefix(record, process)
    return values


def _referenced_values(entry: Entry, field: str, folder: Folder, fine: bool = False, name: str | None = None) -> Values:
    """Return path → SI value of the entry named by a field of another one, or by ``name`` instead."""
    if entry.value(field) == NO_NETWORK:
        return no_network()
    kind, slug = reference(entry, field, folder, name)
    return values_of(load(kind, slug, folder), kind, folder, fine)


_FILLERS: dict[str, Callable[[Entry, Folder, bool], Values]] = {
    "accelerator": _accelerator,
    "network": _network,
    "system": _system,
    "workload": _workload,
    "software": _software,
}
