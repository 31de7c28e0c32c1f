"""Entries of the catalogue: a file's values with sources and defaults, what it names, and the values it gives a record.

A path within a record (``memory.bandwidth`` of an accelerator) is the field of the file.
:func:`dse.types.paths.build` makes the record.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dse import types
from dse.catalog import schema
from dse.catalog.load import FOLDERS, Folder, file_of, find, parse, paths, shown, stamp
from dse.catalog.schema import AT_REST
from dse.catalog.value import Sourced
from dse.errors import InputError, unknown_name
from dse.types.paths import leaves

#: Kind → fields that name an entry of another kind.
REFERENCES = {
    "accelerator": {
        "kernels.family": "kernels", "node.scale_up": "network", "node.scale_out": "network",
        "node.software": "software", "node.engine": "software",
        "chip.architecture": "architecture", "chip.node": "node", "chip.base_node": "node", "chip.memory": "memory",
        "made.node": "node", "made.base_node": "node",
    },
    "kernels": {
        "family": "kernels", "node.scale_up": "network", "node.scale_out": "network", "node.software": "software",
        "node.engine": "software",
    },
    "system": {
        "accelerator": "accelerator", "scale_up": "network", "scale_out": "network", "software": "software",
        "engine": "software",
    },
}  # fmt: skip

#: In place of a network's name: there is none.
NO_NETWORK = "none"

#: Path → value in SI; steps of an efficiency are one value.
Values = dict[str, Any]

#: Kind → the record that its entries fill.
RECORDS: dict[str, type] = {
    "workload": types.Workload, "system": types.System, "accelerator": types.Accelerator, "network": types.Network,
    "software": types.Software, "node": types.LogicNode, "memory": types.MemoryTechnology,
    "cost": types.Fab,
}  # fmt: skip

#: Kernels file that states what collectives of every network share, and what is typical of a facility.
_LIBRARY = "generic"

_FLAGS = (
    "gated", "tied_embeddings", "learned_positions", "rotary", "relative_positions", "dropout", "local_layers",
)  # fmt: skip
_TOKENS_A_STEP = 4194304  # of a workload that states no global batch


@dataclasses.dataclass(frozen=True)
class Entry:
    """One thing of the catalogue: every value in SI with its source."""

    kind: str
    slug: str
    name: str
    aliases: tuple[str, ...]
    note: str
    values: dict[str, Sourced]  #: field → value; fields of a record are dotted (``memory.bandwidth``)
    measured_sources: tuple[str, ...]  #: systems: the measured sources that ran there
    nearest_sources: tuple[str, ...]  #: stacks: those that have no stack of their own, and this as the nearest
    path: Path

    def value(self, field: str, default: Any = None) -> Any:
        """SI value of a field, or ``default`` where the entry has none."""
        found = self.values.get(field)
        return default if found is None else found.value


def load(kind: str, slug: str, folder: Folder = None) -> Entry:
    """The entry of a slug, validated, with its defaults filled in; InputError for a bad file."""
    path = file_of(kind, slug, folder)
    entry = _read(kind, path, *stamp(path))
    if kind == "workload":
        return dataclasses.replace(entry, values=_workload_defaults(entry))
    if kind == "accelerator":
        return dataclasses.replace(entry, values=_accelerator_defaults(entry, folder))
    if kind == "network":
        return dataclasses.replace(entry, values=_network_defaults(entry))
    return entry


@functools.lru_cache(maxsize=4096)
def _read(kind: str, path: Path, *stamp: int) -> Entry:
    file = parse(path)
    values = schema.read(kind, file, shown(path))
    return Entry(
        kind=kind, slug=path.stem, name=file.get("name") or path.stem, aliases=tuple(file.get("aliases", ())),
        note=file.get("note", ""), values=values, measured_sources=tuple(file.get("sources", ())),
        nearest_sources=tuple(file.get("nearest", ())), path=path,
    )  # fmt: skip


# --- what a file leaves out -------------------------------------------------------------------------------


def _default(value: float, units: str, rule: str) -> Sourced:
    return Sourced(value, units, f"{value:g}", f"default: {rule}", "estimate")


def _workload_defaults(entry: Entry) -> dict[str, Sourced]:
    """Values of a workload with what it leaves out.

    Flags are 0, heads are those of plain attention, the window is the sequence, and
    the global batch is about 4 Mi tokens.
    """
    v = entry.value
    heads, sequence = v("n_heads"), v("seq_len")
    defaults = {flag: _default(0.0, "1", "off unless stated") for flag in _FLAGS} | {
        "n_kv_heads": _default(heads, "1", "n_heads"),
        "head_dim": _default(v("hidden") / heads, "1", "hidden / n_heads"),
        "window": _default(sequence, "1", "seq_len"),
        "global_batch": _default(float(max(1, round(_TOKENS_A_STEP / sequence))), "1", "about 4 Mi tokens a step"),
    }
    values = defaults | entry.values
    _check_parts(entry, values)
    if heads % values["n_kv_heads"].value:
        raise InputError(
            f"{shown(entry.path)}: n_kv_heads", f"{values['n_kv_heads'].value:g}", f"divisors of n_heads = {heads:g}",
            "correct one of the two",
        )  # fmt: skip
    return values


def _check_parts(entry: Entry, values: dict[str, Sourced]) -> None:
    """That a part of a model is no more than what it is a part of."""
    for part, whole in (
        ("experts.top_k", "experts.n_experts"), ("experts.first_dense", "n_layers"),
        ("experts.group_limit", "experts.n_groups"), ("latent.rope_dim", "head_dim"),
        *((f"recurrent.{kind}_layers", "n_layers") for kind in ("attention", "recurrent", "ffn")),
    ):  # fmt: skip
        most = values[whole].value if whole in values else 1.0
        if part in values and values[part].value > most:
            raise InputError(
                f"{shown(entry.path)}: {part}", f"{values[part].value:g}", f"at most {whole} = {most:g}",
                "correct one of the two",
            )  # fmt: skip


def _network_defaults(entry: Entry) -> dict[str, Sourced]:
    """Values of a network; of a fat tree of ``l`` levels of switches with ``k`` ports each it joins ``2 (k / 2)^l``.

    Al-Fares et al., SIGCOMM 2008, has it for three levels.
    """
    if "domain" in entry.values:
        return entry.values
    joined = 2.0 * (entry.value("radix") / 2.0) ** entry.value("levels")
    return {"domain": _default(joined, "1", "2 (radix / 2)^levels, a fat tree")} | entry.values


def _accelerator_defaults(entry: Entry, folder: Folder) -> dict[str, Sourced]:
    """Values of an accelerator with what it leaves out taken from its kernel family.

    The vector rate is ``device.vector_share`` of the 16-bit (else the fastest) matrix rate. A generated chip
    takes nothing of its family's device, but the leaves of its architecture.
    """
    unstated = Sourced("generic", "", "generic", "default: no family stated", "estimate")
    chosen = entry.values.get("kernels.family", unstated)
    family = _kernels(reference(entry, "kernels.family", folder, chosen.value)[1], folder)
    device = _device(entry, family) if entry.value("chip.node") is None else _architecture(entry, folder)
    shared = ("device.", "node.", "alone.", "power.")
    kernels = {f"kernels.{f}": s for f, s in family.items() if not f.startswith(shared)}
    node = {f: s for f, s in family.items() if f.startswith("node.")}
    if entry.values.get("node.scale_up") is not None:  # an own scale-up network has its own bandwidth
        node.pop("node.scale_up_bandwidth", None)
    if entry.values.get("node.scale_out") is not None:
        node.pop("node.scale_out_bandwidth", None)
    power = _power_defaults(entry, family)
    return {"kernels.family": chosen} | device | kernels | node | power | entry.values


def _device(entry: Entry, family: dict[str, Sourced]) -> dict[str, Sourced]:
    """What a kernel family says of a device of stated rates."""
    matrix = _matrix_rate(entry.values)
    device = {f.removeprefix("device."): s for f, s in family.items() if f.startswith("device.")}
    share = device.pop("vector_share")
    device.pop("tdp", None)  # of its power, as is its clock
    del device["clock"]
    vector = dataclasses.replace(share, value=share.value * matrix, units="FLOP/s", text=f"{share.text} x matrix rate")
    return {"vector_rate": vector} | device


def _architecture(entry: Entry, folder: Folder) -> dict[str, Sourced]:
    """The leaves of a generated chip that its architecture states."""
    stated = load(*reference(entry, "chip.architecture", folder), folder).values
    return {f"chip.{field}": value for field, value in stated.items()}


def _power_defaults(entry: Entry, family: dict[str, Sourced]) -> dict[str, Sourced]:
    """Leaves of an accelerator's power: limit and clock as sold, rest power in shares of it, energies of the family.

    Cores can ask for the bandwidth of their cache.
    """
    own = entry.values
    tdp = own.get("tdp") or own.get("chip.power_budget") or family.get("device.tdp") or _full_power(own, family)
    clock = own.get("power.nominal_clock", own.get("boost_clock", family["device.clock"]))
    found = {f: s for f, s in family.items() if f.startswith("power.")}
    for name in AT_REST:
        share = found.pop(f"power.{name}_share")
        found[f"power.{name}"] = dataclasses.replace(
            share, value=share.value * tdp.value, units="W", text=f"{share.text} x {tdp.text}"
        )
    if "cache_bandwidth" in own:
        found["power.feed"] = own["cache_bandwidth"]
    return found | {"power.tdp": tdp, "power.nominal_clock": clock, "power.clock": clock}


def _full_power(own: dict[str, Sourced], family: dict[str, Sourced]) -> Sourced:
    """What matrix units and memory draw at their full rates: the power limit of an accelerator that states none.

    Those of A100, H100, H200, B200, L40S, V100 and TPU v4 are sold with 0.86 to 1.15 times as much.
    """
    stated, power = family | own, leaves(types.Power)

    def energy(name: str) -> float:
        found = stated.get(f"power.{name}")
        return power[name]["default"] if found is None else found.value

    watts = energy("matrix_energy") * _matrix_rate(own) + energy("memory_energy") * own["memory.bandwidth"].value
    source = "default: its matrix units and memory at their full rates"
    return Sourced(watts, "W", f"{watts:.4g} W", source, "estimate")


def _matrix_rate(own: dict[str, Sourced]) -> float:
    """The 16-bit matrix rate of a device, else its fastest."""
    rates = {f: s.value for f, s in own.items() if f.startswith("matrix_rate.")}
    return max(rates.get("matrix_rate.bf16", 0.0), rates.get("matrix_rate.fp16", 0.0)) or max(rates.values())


def _kernels(slug: str, folder: Folder, within: tuple[str, ...] = ()) -> dict[str, Sourced]:
    """Values of a kernels file and, where it leaves some out, of the family that it names."""
    entry = load("kernels", slug, folder)
    named = entry.value("family")
    if named is None:
        return _complete(entry)
    _, parent = reference(entry, "family", folder)
    if parent in (*within, slug):
        where = f"{shown(entry.path)}: family"
        raise InputError(where, repr(named), "a family that does not lead back here", "break the cycle")
    own = {field: value for field, value in entry.values.items() if field != "family"}
    return _kernels(parent, folder, (*within, slug)) | own


def _complete(entry: Entry) -> dict[str, Sourced]:
    """Values of a kernels file that names no family; InputError for one without a leaf that it must have."""
    needed = list(leaves(types.Kernels))
    needed += [f"device.{name}" for name in ("vector_share", "cores", "cache", "clock")]
    needed += [f"power.{name}_share" for name in AT_REST]
    for name in needed:
        if name not in entry.values:
            fix = f"add {name} or a family to take it from"
            raise InputError(f"{shown(entry.path)}: {name}", "nothing", "a value: the field is required", fix)
    return entry.values


def reference(entry: Entry, field: str, folder: Folder = None, name: str | None = None) -> tuple[str, str]:
    """(kind, slug) of the entry that a field names, or ``name`` in its place; InputError when there is none."""
    kind, wanted = REFERENCES[entry.kind][field], str(entry.value(field) if name is None else name)
    slug = find(kind, wanted, folder)
    if slug is None:
        known = paths(kind, folder)
        raise unknown_name(f"{shown(entry.path)}: {field}", wanted, known, f"entries of {FOLDERS[kind]}/")
    return kind, slug


def referenced(entry: Entry, folder: Folder = None) -> list[tuple[str, str]]:
    """(kind, slug) of the entries that an entry names; InputError for one that does not exist."""
    return [
        reference(entry, field, folder)
        for field in REFERENCES.get(entry.kind, {})
        if entry.value(field) not in (None, NO_NETWORK)
    ]


# --- values of records ------------------------------------------------------------------------------------


def within(prefix: str, values: Values) -> Values:
    """The values of a record as those of the record that holds it at ``prefix``."""
    return {f"{prefix}.{path}": value for path, value in values.items()}


def values_of(found: Entry, kind: str, folder: Folder = None, fine: bool = False) -> Values:
    """Values of the record that an entry fills as one of ``kind`` (an accelerator may fill a system)."""
    return _FILLED.get(kind, _plain)(found, folder, fine)


def no_network() -> Values:
    """What a system without a scale-out network has in its place: one device, nothing to divide by zero."""
    zeros = {path: 0.0 for path in leaves(types.Network)}
    return zeros | dict.fromkeys(("bandwidth", "domain", "efficiency", "ramp"), 1.0)


def _plain(found: Entry, folder: Folder, fine: bool) -> Values:
    return _stated(found, RECORDS[found.kind])


def _stated(found: Entry, record: type, absent: float | None = None) -> Values:
    """The leaves of a record from the fields of an entry; ``absent`` for those that have no default either."""
    values = {path: found.value(path, about.get("default", absent)) for path, about in leaves(record).items()}
    return {path: value for path, value in values.items() if value is not None}


def _optional(found: Entry, record: type, path: str) -> Values:
    """The leaves of an optional record at ``path``; none where the entry has none of them.

    Raises:
        InputError: for an entry that has some of them and lacks others that have no default.
    """
    if not any(found.value(f"{path}.{name}") is not None for name in leaves(record)):
        return {}
    values = {f"{path}.{name}": found.value(f"{path}.{name}", a.get("default")) for name, a in leaves(record).items()}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise InputError(f"{shown(found.path)}: {missing[0]}", "nothing", "all or none", "add the field")
    return values


def _accelerator(found: Entry, folder: Folder, fine: bool) -> Values:
    """A precision that it lacks has rate 0, and so has what the chip of a generated one makes."""
    values = _stated(found, types.Accelerator, absent=0.0) | _optional(found, types.EfficiencySteps, "kernels.steps")
    if found.value("chip.node") is not None:
        values |= within("chip", _chip(found, folder))
    if fine:
        restated = {f"kernels.{name}": found.value(f"kernels.fine.{name}") for name in leaves(types.Kernels)}
        values |= {path: value for path, value in restated.items() if value is not None}
        values |= _optional(found, types.FineKernels, "kernels.fine")
        values |= _optional(found, types.AttentionKernels, "kernels.attention")
    return values


def _workload(found: Entry, folder: Folder, fine: bool) -> Values:
    """A model; one with experts, latent or sparse attention, or layers with a state has the leaves of these."""
    parts = (types.Experts, types.Latent, types.Recurrent, types.Sparse)
    return _stated(found, types.Workload) | functools.reduce(
        operator.or_, (_optional(found, part, part.__name__.lower()) for part in parts)
    )


def _software(found: Entry, folder: Folder, fine: bool) -> Values:
    """A stack; one that serves has the leaves of an engine."""
    return _stated(found, types.Software) | _optional(found, types.Engine, "engine")


def _chip(found: Entry, folder: Folder) -> Values:
    """What an accelerator is generated from; no base die is one of the same node."""
    values = {
        path: found.value(f"chip.{path}", about.get("default"))
        for path, about in leaves(types.Chip).items() if "." not in path
    }  # fmt: skip
    base = found.value("chip.base_node", found.value("chip.node"))
    for field, name in {"node": None, "base_node": base, "memory": None}.items():
        values |= within(field, _named(found, f"chip.{field}", folder, name=name))
    return values


def _network(found: Entry, folder: Folder, fine: bool) -> Values:
    """One level; with ``fine`` what its ``alone`` states, else what collectives of every network share."""
    values = _stated(found, types.Network, absent=0.0)
    parts = (types.Volumes, types.Pods, types.Links, types.Package)
    values |= functools.reduce(operator.or_, (_optional(found, part, part.__name__.lower()) for part in parts))
    if fine:
        restated = {path: found.value(f"alone.{path}") for path in leaves(types.Network)}
        values |= {path: value for path, value in restated.items() if value is not None}
        library = load("kernels", _LIBRARY, folder)
        alone = [f"alone.{path}" for path in leaves(types.CollectiveKernels)]
        values |= {path: found.value(path, library.value(path)) for path in alone}
    return values


def _system(found: Entry, folder: Folder, fine: bool) -> Values:
    """One node of a cluster: ``n_devices`` is ``devices_per_node``. An accelerator stands for its own node."""
    alone = found.kind == "accelerator"
    prefix = "node." if alone else ""
    file, per_node = shown(found.path), found.value(prefix + "devices_per_node")
    if alone and found.value("node.scale_up") == NO_NETWORK:
        raise InputError(
            f"{file}: node.scale_up", "'none'", "a network",
            f"the links of {found.slug} are not in the catalogue: name another system",
        )  # fmt: skip
    device = found if alone else load(*reference(found, "accelerator", folder), folder)
    values = within("accelerator", _accelerator(device, folder, fine))
    for level in ("scale_up", "scale_out"):
        named = _named(found, prefix + level, folder, fine)
        if level == "scale_out":
            check_between(named, f"{file}: {prefix}scale_out", str(found.value(prefix + level)))
        values |= within(level, named)
        own = found.value(f"{prefix}{level}_bandwidth")
        values |= {f"{level}.bandwidth": own} if own else {}
    link = device.value("host_bandwidth", types.HOST.bandwidth)
    return values | _facility(found, prefix, device, folder) | {
        "scale_up.domain": per_node,
        "host.capacity": found.value(f"{prefix}host_memory", types.HOST.capacity),
        "host.bandwidth": found.value(f"{prefix}host_bandwidth", link),
        "n_devices": per_node,
    }  # fmt: skip


def check_between(network: Values, where: str, name: str) -> None:
    """That a network can join domains; InputError for links without a switch and packages, which are within one."""
    if any(path.startswith(("links.", "package.")) for path in network):
        raise InputError(
            where, repr(name), "a network that joins domains", "name links without a switch as scale_up"
        )


def _facility(found: Entry, prefix: str, device: Entry, folder: Folder) -> Values:
    """What a device's share of its host draws, and the facility's overhead; where nothing is stated what is typical."""
    typical = load("kernels", _LIBRARY, folder)

    def stated(field: str) -> float:
        return found.value(prefix + field, device.value(f"node.{field}", typical.value(f"node.{field}")))

    share = stated("host_power_share") * device.value("chip.power_budget", device.value("power.tdp"))
    return {"host_power": found.value(f"{prefix}host_power", device.value("node.host_power", share)),
            "pue": stated("pue")}  # fmt: skip


def made_of(device: Entry, folder: Folder = None) -> Values:
    """What an accelerator is made of and sold at: path in :class:`dse.types.Made` → value.

    One whose file names no process has no dies that could be priced.
    """
    values = {
        path: device.value(f"made.{path}", about["default"])
        for path, about in leaves(types.Made).items() if "." not in path
    }  # fmt: skip
    named = device.value("made.node")
    stated = {"price": "price"} | ({"chiplets": "compute_dies", "logic_area": "die_area"} if named else {})
    own = {path: device.value(f"made.{path}", device.value(field, values[path])) for path, field in stated.items()}
    nodes = {"process": "made.node", "base_process": "made.base_node"}
    processes = {
        f"{record}.{path}": load(*reference(device, field, folder), folder).value(path, about["default"])
        if device.value(field) is not None else about["default"]
        for record, field in nodes.items() for path, about in leaves(types.Process).items()
    }  # fmt: skip
    return values | own | processes


def _named(by: Entry, field: str, folder: Folder, fine: bool = False, name: str | None = None) -> Values:
    """Values of the entry that a field of another one names, or ``name`` in its place."""
    if by.value(field) == NO_NETWORK:
        return no_network()
    kind, slug = reference(by, field, folder, name)
    return values_of(load(kind, slug, folder), kind, folder, fine)


_FILLED: dict[str, Callable[[Entry, Folder, bool], Values]] = {
    "accelerator": _accelerator, "network": _network, "system": _system, "workload": _workload,
    "software": _software,
}  # fmt: skip
