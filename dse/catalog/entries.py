"""Entries of the catalogue: a file's values with sources, what it leaves out filled in, and what it names."""

from __future__ import annotations

import dataclasses
import functools
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
        "node.software": "software", "chip.architecture": "architecture", "chip.node": "node",
        "chip.base_node": "node", "chip.memory": "memory",
    },
    "kernels": {
        "family": "kernels", "node.scale_up": "network", "node.scale_out": "network", "node.software": "software",
    },
    "system": {"accelerator": "accelerator", "scale_up": "network", "scale_out": "network", "software": "software"},
}  # fmt: skip

#: In place of a network's name: there is none.
NO_NETWORK = "none"

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
    return entry


@functools.lru_cache(maxsize=4096)
def _read(kind: str, path: Path, *stamp: int) -> Entry:
    file = parse(path)
    values = schema.read(kind, file, shown(path))
    return Entry(
        kind=kind, slug=path.stem, name=file.get("name") or path.stem, aliases=tuple(file.get("aliases", ())),
        note=file.get("note", ""), values=values, measured_sources=tuple(file.get("sources", ())), path=path,
    )  # fmt: skip


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
    if heads % values["n_kv_heads"].value:
        raise InputError(
            f"{shown(entry.path)}: n_kv_heads", f"{values['n_kv_heads'].value:g}", f"divisors of n_heads = {heads:g}",
            "correct one of the two",
        )  # fmt: skip
    return values


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
    rates = {f: s.value for f, s in entry.values.items() if f.startswith("matrix_rate.")}
    matrix = max(rates.get("matrix_rate.bf16", 0.0), rates.get("matrix_rate.fp16", 0.0)) or max(rates.values())
    device = {f.removeprefix("device."): s for f, s in family.items() if f.startswith("device.")}
    share = device.pop("vector_share")
    del device["tdp"], device["clock"]  # of its power
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
    tdp = own.get("tdp", family["device.tdp"])
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


def _kernels(slug: str, folder: Folder, within: tuple[str, ...] = ()) -> dict[str, Sourced]:
    """Values of a kernels file and, where it leaves some out, of the family that it names."""
    entry = load("kernels", slug, folder)
    named = entry.value("family")
    if named is None:
        return _complete(entry)
    _, parent = reference(entry, "family", folder)
    if parent in (*within, slug):
        where = f"{shown(entry.path)}: family"
        raise InputError(where, repr(named), "a family that stands on its own", "break the circle")
    own = {field: value for field, value in entry.values.items() if field != "family"}
    return _kernels(parent, folder, (*within, slug)) | own


def _complete(entry: Entry) -> dict[str, Sourced]:
    """Values of a kernels file that names no family; InputError for one without a leaf that it must have."""
    needed = list(leaves(types.Kernels))
    needed += [f"device.{name}" for name in ("vector_share", "cores", "cache", "tdp", "clock")]
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
