"""The catalogue: names to the nouns of ``dse.types``, every value with its source.

``hw_catalog/`` holds one TOML file a thing; the file's stem is its slug. Names match
slugs and aliases, letters and digits alone compared. A folder of the same layout,
given as ``folder`` or in the environment variable ``DSE_CATALOG``, is searched first.
Only the files asked for are read. Whatever is wrong with a name or a file is an
:class:`dse.errors.InputError`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from dse import types
from dse.catalog.doubtful import Constant
from dse.catalog.doubtful import doubtful as _doubtful
from dse.catalog.fields import MOST_STEPS, Sourced, bounded
from dse.catalog.load import (
    FOLDERS,
    NO_NETWORK,
    Entry,
    catalog_root,
    file_of,
    find,
    known_names,
    load,
    paths,
    plain,
    referenced,
    shown,
)
from dse.catalog.units import quantity
from dse.errors import InputError, nearest, unknown_name

__all__ = [
    "Entry", "Sourced", "accelerator", "bounded", "catalog_root", "check", "default_software", "digest", "doubtful",
    "entry", "kinds", "memory", "names", "network", "node", "provenance", "quantity", "resolve", "software", "system",
    "workload",
]  # fmt: skip

Folder = str | Path | None
T = TypeVar("T")

#: What a system without a scale-out network has in its place: one device, nothing to divide by zero.
_NO_NETWORK = types.Network(
    bandwidth=1.0, latency=0.0, domain=1.0, efficiency=1.0, ramp=1.0, in_network_reduction=0.0, processor_usage=0.0
)

#: Kernels file that states what collectives of every network share.
_LIBRARY = "generic"


def kinds() -> list[str]:
    """Kinds of entries."""
    return list(FOLDERS)


def names(kind: str, folder: Folder = None) -> list[str]:
    """Slugs of all entries of a kind, sorted."""
    return sorted(paths(kind, folder))


def resolve(kind: str, name: str, where: str = "catalogue", folder: Folder = None) -> str:
    """Slug of the entry that ``name`` means; a system's name may be an accelerator's."""
    return _locate(kind, name, where, folder)[1]


def _locate(kind: str, name: str, where: str, folder: Folder) -> tuple[str, str]:
    """(kind, slug) of a name: an accelerator's where a system is wanted counts."""
    meant = [kind, "accelerator"] if kind == "system" else [kind]
    for candidate in meant:
        slug = find(candidate, name, folder)
        if slug is not None:
            return candidate, slug
    known = {k: slug for candidate in meant for k, slug in known_names(candidate, folder).items()}
    close = list(dict.fromkeys(known[k] for k in nearest(name, known, count=6)))[:3]
    fix = f"did you mean {' or '.join(map(repr, close))}?" if close else f"`dse catalog list` shows every {kind}"
    raise InputError(where, repr(name), unknown_name(where, name, names(kind, folder), "").allowed, fix)


def entry(kind: str, name: str, where: str = "catalogue", folder: Folder = None) -> Entry:
    """The entry of a name with every value, unit, source and confidence."""
    return load(*_locate(kind, name, where, folder), folder)


def _record(cls: type, found: Entry, prefix: str = "", absent: float | None = None) -> dict[str, float]:
    """Leaf values of a noun from an entry's fields; ``absent`` for those it lacks."""
    leaves = [field.name for field in dataclasses.fields(cls) if field.metadata]
    own = types.defaults(cls)
    return {leaf: found.value(prefix + leaf, own.get(leaf, absent)) for leaf in leaves}


def _optional(cls: type[T], found: Entry, prefix: str, values: Callable[[Any], Any] = float) -> T | None:
    """An optional record from an entry's fields; None where it has none of them, an InputError for some."""
    names_ = [field.name for field in dataclasses.fields(cls)]
    given = {name: found.value(prefix + name) for name in names_}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(names_):
        return None
    if missing:
        raise InputError(f"{shown(found.path)}: {prefix}{missing[0]}", "nothing", "all or none", "add the field")
    return cls(**{name: values(value) for name, value in given.items()})


def _filled(steps: types.Steps) -> types.Steps:
    """Steps filled up to ``MOST_STEPS`` with ones that no size reaches."""
    return steps + ((math.inf, steps[-1][1]),) * (MOST_STEPS - len(steps))


def workload(name: str, where: str = "workload", folder: Folder = None) -> types.Workload:
    """The workload of a name: its shape and its training batch."""
    return types.Workload(**_record(types.Workload, entry("workload", name, where, folder)))


def accelerator(
    name: str, where: str = "accelerator", folder: Folder = None, fine: bool = False
) -> types.Accelerator:
    """The accelerator of a name; a precision that it lacks has rate 0.

    What a chip makes is 0 in one that is generated, until :func:`dse.model.machine.technology.generate` fills it in.

    With ``fine`` its kernels are those of single kernels measured alone, with the finer terms that a
    training step does without.
    """
    found = entry("accelerator", name, where, folder)
    kernels = types.Kernels(
        **_record(types.Kernels, found, "kernels."),
        steps=_optional(types.EfficiencySteps, found, "kernels.steps.", _filled),
    )
    return types.Accelerator(
        **_record(types.Accelerator, found, absent=0.0),
        matrix_rate=types.MatrixRate(**_record(types.MatrixRate, found, "matrix_rate.", absent=0.0)),
        memory=types.MemoryTier(**_record(types.MemoryTier, found, "memory.", absent=0.0)),
        kernels=_fine(kernels, found) if fine else kernels,
        power=types.Power(**_record(types.Power, found, "power.")),
        chip=_chip(found, folder),
    )


def _chip(found: Entry, folder: Folder) -> types.Chip | None:
    """What an accelerator is generated from, None for one of stated rates; no base die is one of the same node."""
    if found.value("chip.node") is None:
        return None
    file = shown(found.path)
    nodes = found.value("chip.node"), found.value("chip.base_node", found.value("chip.node"))
    return types.Chip(
        **_record(types.Chip, found, "chip."),
        node=node(nodes[0], f"{file}: chip.node", folder),
        base_node=node(nodes[1], f"{file}: chip.base_node", folder),
        memory=memory(found.value("chip.memory"), f"{file}: chip.memory", folder),
    )


def node(name: str, where: str = "node", folder: Folder = None) -> types.LogicNode:
    """The process of logic of a name."""
    return types.LogicNode(**_record(types.LogicNode, entry("node", name, where, folder)))


def memory(name: str, where: str = "memory", folder: Folder = None) -> types.MemoryTechnology:
    """The memory technology of a name."""
    return types.MemoryTechnology(**_record(types.MemoryTechnology, entry("memory", name, where, folder)))


def _fine(kernels: types.Kernels, found: Entry) -> types.Kernels:
    """Kernels with the finer terms, and with the leaves that these restate."""
    leaves = [field.name for field in dataclasses.fields(types.Kernels) if field.metadata]
    restated = {leaf: found.value(f"kernels.fine.{leaf}") for leaf in leaves}
    return dataclasses.replace(
        kernels,
        **{leaf: value for leaf, value in restated.items() if value is not None},
        fine=_optional(types.FineKernels, found, "kernels.fine."),
        attention=_optional(types.AttentionKernels, found, "kernels.attention."),
    )


def network(name: str, where: str = "network", folder: Folder = None, fine: bool = False) -> types.Network:
    """The network level of a name; ``"none"`` is one device alone.

    With ``fine`` it is that of single collectives measured alone: what its ``alone`` states, else what all share.
    """
    if name == NO_NETWORK:
        return _NO_NETWORK
    found = entry("network", name, where, folder)
    level = types.Network(
        **_record(types.Network, found, absent=0.0), volumes=_optional(types.Volumes, found, "volumes.")
    )
    if not fine:
        return level
    restatable = ("latency", "efficiency", "ramp", "in_network_reduction")
    restated = {leaf: found.value(f"alone.{leaf}") for leaf in restatable}
    own = _record(types.CollectiveKernels, found, "alone.")
    library = load("kernels", _LIBRARY, folder)
    kernels = {leaf: library.value(f"alone.{leaf}") if value is None else value for leaf, value in own.items()}
    return dataclasses.replace(
        level,
        **{leaf: value for leaf, value in restated.items() if value is not None},
        alone=types.CollectiveKernels(**kernels),
    )


def software(name: str, where: str = "software", folder: Folder = None) -> types.Software:
    """The software stack of a name."""
    return types.Software(**_record(types.Software, entry("software", name, where, folder)))


def system(name: str, where: str = "system", folder: Folder = None, fine: bool = False) -> types.System:
    """The cluster of a name, one node of it: ``n_devices`` is ``devices_per_node``.

    An accelerator's name is its default node and network; its links must be switched. ``fine`` as of
    :func:`accelerator` and :func:`network`.
    """
    found = entry("system", name, where, folder)
    alone = found.kind == "accelerator"
    prefix, device = ("node.", found.slug) if alone else ("", found.value("accelerator"))
    file, per_node = shown(found.path), found.value(prefix + "devices_per_node")

    def level(field: str, **replaced: float) -> types.Network:
        own = found.value(f"{prefix}{field}_bandwidth")
        base = network(found.value(prefix + field), f"{file}: {prefix}{field}", folder, fine)
        return dataclasses.replace(base, **({"bandwidth": own} if own else {}), **replaced)

    if alone and found.value("node.scale_up") == NO_NETWORK:
        raise InputError(
            f"{file}: node.scale_up", "'none'", "a switched network",
            f"links of {found.slug} form no switched node, which alone is modelled yet: name another system",
        )  # fmt: skip
    return types.System(
        accelerator=accelerator(device, f"{file}: accelerator", folder, fine),
        scale_up=level("scale_up", domain=per_node),
        scale_out=level("scale_out"),
        host=_host(found, prefix, entry("accelerator", device, file, folder)),
        **_facility(found, prefix, entry("accelerator", device, file, folder), folder),
        n_devices=per_node,
    )


def _facility(found: Entry, prefix: str, device: Entry, folder: Folder) -> dict[str, float]:
    """What a device's share of its host draws, and the facility's overhead; where nothing is stated what is typical."""
    typical = load("kernels", _LIBRARY, folder)

    def stated(field: str) -> float | None:
        return found.value(prefix + field, device.value(f"node.{field}", typical.value(f"node.{field}")))

    share = stated("host_power_share") * device.value("chip.power_budget", device.value("power.tdp"))
    host_power = found.value(f"{prefix}host_power", device.value("node.host_power", share))
    return {"host_power": host_power, "pue": stated("pue")}


def _host(found: Entry, prefix: str, device: Entry) -> types.MemoryTier:
    """A device's share of the host: what the system or node states, else the accelerator's host link."""
    link = device.value("host_bandwidth", types.HOST.bandwidth)
    return types.MemoryTier(
        capacity=found.value(f"{prefix}host_memory", types.HOST.capacity),
        bandwidth=found.value(f"{prefix}host_bandwidth", link),
    )


def default_software(system_name: str, where: str = "system", folder: Folder = None) -> str:
    """Slug of the stack that a system (or an accelerator as one) runs unless told otherwise."""
    found = entry("system", system_name, where, folder)
    field = "node.software" if found.kind == "accelerator" else "software"
    return resolve("software", found.value(field), f"{shown(found.path)}: {field}", folder)


def provenance(kind: str, name: str, folder: Folder = None) -> list[tuple[str, str]]:
    """Distinct (source, confidence) of an entry's values and of the entries it names."""
    found = [load(*reached, folder) for reached in _closure([(kind, name)], folder)]
    return list(dict.fromkeys((s.source, s.confidence) for e in found for s in e.values.values()))


def doubtful(kind: str, name: str, folder: Folder = None) -> list[Constant]:
    """Constants of an entry, and of what it names, that nobody checked: estimates, from memory, plain defaults."""
    return _doubtful(*_locate(kind, name, "catalogue", folder), folder)


def digest(used: Iterable[tuple[str, str]] | None = None, folder: Folder = None) -> str:
    """SHA-256 of the catalogue files behind the (kind, name) pairs ``used``, of all files by default.

    What an entry names (a system's accelerator, networks and stack) counts as used.
    """
    reached = _closure(used, folder) if used is not None else _everything(folder)
    total = hashlib.sha256()
    for kind, slug in sorted(reached):
        total.update(f"{kind}/{slug}\0".encode() + file_of(kind, slug, folder).read_bytes() + b"\0")
    return total.hexdigest()


def _everything(folder: Folder) -> list[tuple[str, str]]:
    return [(kind, slug) for kind in kinds() for slug in paths(kind, folder)]


def _closure(used: Iterable[tuple[str, str]], folder: Folder) -> list[tuple[str, str]]:
    """(kind, slug) of the named entries and of all that they name, first come first."""
    waiting = [_locate(kind, name, "catalogue", folder) for kind, name in used]
    reached: dict[tuple[str, str], None] = {}
    while waiting:
        item = waiting.pop(0)
        if item not in reached:
            reached[item] = None
            waiting += referenced(load(*item, folder), folder)
    return list(reached)


def check(folder: Folder = None) -> list[str]:
    """Everything wrong with the catalogue, one sentence a problem; empty when all is well."""
    problems = [problem for kind in kinds() for problem in _ambiguous(kind, folder)]
    for kind, slug in _everything(folder):
        try:
            found = load(kind, slug, folder)
            referenced(found, folder)
        except InputError as error:
            problems.append(str(error))
            continue
        if slug != slug.lower() or not slug.replace("-", "").isalnum():
            problems.append(f"{shown(found.path)}: a slug is lower-case words joined by '-'")
    return list(dict.fromkeys(problems))


def _ambiguous(kind: str, folder: Folder) -> list[str]:
    """Names that two entries of a kind share (systems and accelerators together)."""
    owners: dict[str, str] = {}
    problems = []
    for candidate in [kind, "accelerator"] if kind == "system" else [kind]:
        for slug, path in reversed(paths(candidate, folder).items()):  # the user's last: they are at fault
            try:
                found = load(candidate, slug, folder)
            except InputError:
                continue  # reported by check()
            for known in (slug, found.name, *found.aliases):
                owner = owners.setdefault(plain(known), slug)
                if owner != slug:
                    problems.append(f"{shown(path)}: aliases: {known!r} is a name of {owner!r} too")
    return problems
