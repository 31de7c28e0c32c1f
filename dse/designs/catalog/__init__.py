"""The catalogue: from names to values by path, with sources, and to the records of ``dse.types``.

``hw_catalog/`` has one TOML file per entry; the file's stem is its slug. Names match slugs and aliases by their letters
and digits. A folder of the same layout, given as ``folder`` or in the environment variable ``DSE_CATALOG``, is searched
first. Only requested files are read. Any fault of a name or a file is an :class:`dse.errors.InputError`.

In all functions ``where`` is the place of a name, for errors, and ``folder`` a catalogue to search first. Values are
SI: bytes, seconds, FLOP/s, bytes/s, watts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TypeVar

from dse import types
from dse.designs.catalog.defaults import load
from dse.designs.catalog.entries import NO_NETWORK, Entry, reference, referenced
from dse.designs.catalog.filling import RECORDS, Values, check_between, made_of, no_network, values_of, within
from dse.designs.catalog.load import (
    FOLDERS,
    Folder,
    catalog_root,
    expect_entries,
    file_of,
    find,
    known_names,
    paths,
    plain,
    shown,
)
from dse.designs.catalog.schema import EXPERTS_LEFT_OPEN, LEFT_OPEN
from dse.designs.catalog.units import Dimension, combined, dimension, quantity, written
from dse.designs.catalog.unverified import UnverifiedConstant, unverified_of
from dse.designs.catalog.value import TRUTHS, Sourced, bounded, choice, which
from dse.errors import InputError, nearest, unknown_name
from dse.types.choices import EIGHT_BITS, WEIGHTS_ALONE
from dse.types.paths import build, leaves

__all__ = [
    "EXPERTS_LEFT_OPEN", "FOLDERS", "LEFT_OPEN", "SERVED_FORMAT", "TRUTHS", "Constant", "Dimension", "Entry",
    "Sourced", "Values", "bounded", "catalog_root", "check", "check_between", "choice", "combined", "default_software",
    "digest", "digests", "dimension", "entry", "foreign", "format_note", "is_mixture", "kinds", "made",
    "mapping_defaults", "names", "provenance", "quantity", "record", "resolve", "served_format", "serving_defaults",
    "unverified", "used", "values", "which", "within", "written",
]  # fmt: skip

RecordT = TypeVar("RecordT")


# Names and entries


def kinds() -> list[str]:
    """Kinds of entries.

    Returns:
        Their names, those of folders of the catalogue in the singular.

    >>> kinds()[:4]
    ['accelerator', 'network', 'system', 'software']
    """
    return list(FOLDERS)


def names(kind: str, folder: Folder = None) -> list[str]:
    """Slugs of all entries of a kind, sorted.

    Args:
        kind: ``accelerator``, ``network``, ``system``, … (:func:`kinds`).
        folder: a catalogue to search first.

    Returns:
        The slugs, by which entries are named in specifications and errors.

    >>> names("system")[:3]
    ['b200-node', 'dgx-b200', 'dgx-b300']
    """
    return sorted(paths(kind, folder))


def resolve(kind: str, name: str, where: str = "catalogue", folder: Folder = None) -> str:
    """Slug of the entry of a name.

    Args:
        kind: ``accelerator``, ``network``, ``system``, … (:func:`kinds`).
        name: slug, name or alias; a system's name may be an accelerator's.
        where: place of the name, for errors.
        folder: a catalogue to search first.

    Returns:
        The slug.

    Raises:
        InputError: for an unknown name, with the nearest known ones.

    >>> resolve("accelerator", "A100-SXM4-80")
    'a100-sxm-80gb'
    """
    return _locate(kind, name, where, folder)[1]


def _locate(kind: str, name: str, where: str, folder: Folder) -> tuple[str, str]:
    """(kind, slug) of a name; an accelerator's name is also a system."""
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
    """The entry of a name: every value with unit, source, confidence and spread, defaults included.

    Args:
        kind: ``accelerator``, ``network``, ``system``, … (:func:`kinds`).
        name: slug, name or alias.
        where: place of the name, for errors.
        folder: a catalogue to search first.

    Returns:
        The entry; its ``values`` are in SI units, by field.

    Raises:
        InputError: for an unknown name, and for any fault of the file.

    >>> found = entry("accelerator", "h100").values["memory.bandwidth"]
    >>> found.value, found.units, found.text, found.confidence
    (3350000000000.0, 'B/s', '3350 GB/s', 'datasheet')
    """
    return load(*_locate(kind, name, where, folder), folder)


# Values and records


def values(kind: str, name: str, where: str = "", folder: Folder = None, fine: bool = False) -> Values:
    """Values that a name brings into a design: path within its record → SI value.

    Args:
        kind: one with a record: ``workload``, ``system``, ``accelerator``, ``network``, ``software``, ``node`` or
            ``memory``.
        name: slug, name or alias; ``"none"`` is the absent network.
        where: place of the name, for errors; by default the kind.
        folder: a catalogue to search first.
        fine: include the terms of isolated kernels and collectives, which training steps do not use.

    Returns:
        Values for :func:`dse.types.paths.build`; :func:`within` places them in a larger record.

    Raises:
        InputError: for an unknown name, and for any fault of a file.

    >>> values("network", "nvlink-4")["bandwidth"]
    450000000000.0
    """
    if kind == "network" and name == NO_NETWORK:
        return no_network()
    return values_of(entry(kind, name, where or kind, folder), kind, folder, fine)


def record(of: type[RecordT], name: str, where: str = "", folder: Folder = None, fine: bool = False) -> RecordT:
    """The record of a name, from an entry of the catalogue and those that it names.

    An accelerator has rate 0 for a precision that it lacks; generated values are 0 until
    :func:`dse.model.machine.technology.generate` fills them in. A system is one node of its cluster (``n_devices`` is
    ``devices_per_node``); an accelerator as system is its default node and network. The network ``"none"`` is one
    device.

    Args:
        of: ``Workload``, ``System``, ``Accelerator``, ``Network``, ``Software``, ``LogicNode`` or ``MemoryTechnology``
            of :mod:`dse.types`.
        name: slug, name or alias.
        where: place of the name, for errors; by default the kind.
        folder: a catalogue to search first.
        fine: as of :func:`values`.

    Returns:
        A record of plain numbers in SI units.

    Raises:
        InputError: for an unknown name, for any fault of a file, and for an accelerator as a system whose links are
            not in the catalogue.

    >>> record(types.Accelerator, "h100").memory.bandwidth
    3350000000000.0
    >>> selene = record(types.System, "selene")
    >>> selene.n_devices, selene.scale_out.bandwidth
    (8.0, 25000000000.0)
    """
    kind = next(kind for kind, filled in RECORDS.items() if filled is of)
    return build(of, values(kind, name, where, folder, fine))


def default_software(
    system_name: str, where: str = "system", folder: Folder = None, serving: bool = False, workload: str = ""
) -> str:
    """Slug of the default stack of a system, or of an accelerator as one.

    The training stack; for serving the system's engine, or else that of its accelerator. A training stack that no
    mixture of experts was measured with hands over to that of the accelerator for one, if it was measured.

    Args:
        system_name: slug, name or alias of the system.
        where: place of the name, for errors.
        folder: a catalogue to search first.
        serving: whether to return the engine.
        workload: slug, name or alias of the workload.

    Returns:
        The slug of an entry of ``software``.

    >>> default_software("eos"), default_software("eos", serving=True), default_software("eos", workload="deepseek-v3")
    ('nemo', 'vllm', 'megatron-bridge')
    """
    found = entry("system", system_name, where, folder)
    if not serving and found.kind == "system" and workload and is_mixture(workload, folder):
        own, device = reference(found, "software", folder), reference(found, "accelerator", folder)
        other = reference(load(*device, folder), "node.software", folder)
        seen = {slug: device[1] in entry("software", slug, where, folder).value("calibrated.mixtures", ())
                for slug in (own[1], other[1])}  # fmt: skip
        return own[1] if seen[own[1]] or not seen[other[1]] else other[1]
    if serving and found.kind == "system" and found.value("engine") is None:
        found = load(*reference(found, "accelerator", folder), folder)
    field = "engine" if serving else "software"
    return reference(found, f"node.{field}" if found.kind == "accelerator" else field, folder)[1]


def is_mixture(workload: str, folder: Folder = None) -> bool:
    """Whether a workload of the catalogue is a mixture of experts; False for an unknown name."""
    slug = find("workload", workload, folder)
    return slug is not None and entry("workload", slug, "workload", folder).states("experts")


def mapping_defaults(name: str, where: str = "software", folder: Folder = None) -> Values:
    """Defaults of a stack for open options of a mapping: option → value, 0 where its file states none.

    >>> mapping_defaults("nemo")
    {'zero_stage': 1.0, 'sequence_parallel': 1.0, 'overlap_dp': 1.0, 'overlap_tp': 1.0}
    """
    found = entry("software", name, where, folder)
    return {option: float(found.value(option, 0.0)) for option in LEFT_OPEN}


def expert_kernels(name: str, where: str = "software", folder: Folder = None) -> Values:
    """Cost of a stack's mixtures of experts (:class:`dse.types.ExpertKernels`), for workloads with experts.

    >>> 0.5 < expert_kernels("megatron-core-b200")["grouped_efficiency"] <= 1.0
    True
    """
    found = entry("software", name, where, folder)
    values = {path: found.value(f"experts.{path}", a["default"]) for path, a in leaves(types.ExpertKernels).items()}
    return {path: value for path, value in values.items() if value is not None}  # an absent leaf has no column


def expert_options(name: str, where: str = "software", folder: Folder = None) -> Values:
    """Defaults of a stack for open options of experts: option → value, the option's own where its file states none.

    >>> expert_options("megatron-bridge-26-02")["all_to_all"]
    2.0
    """
    found, options = entry("software", name, where, folder), leaves(types.ExpertMapping)
    return {path: float(found.value(f"experts.{path}", options[path]["default"])) for path in EXPERTS_LEFT_OPEN}


#: Leaves of the format that a model is served in.
SERVED_FORMAT = ("mapping.precision", "mapping.serving.weight_bytes", "mapping.serving.expert_bytes")


def served_format(workload: str, device: Values) -> Values:
    """Format of a model's checkpoint, in which it is served by default: full path → value.

    Experts in MXFP4 are multiplied in 16 bits, and so are 8-bit weights on a device without such products.

    Args:
        workload: slug, name or alias.
        device: full path → value of its system.

    >>> served_format("deepseek-v3", {"system.accelerator.matrix_rate.fp8": 2e15})["mapping.precision"] == 4.0
    True
    >>> served_format("gpt-oss-120b", {})["mapping.serving.expert_bytes"]
    0.53125
    """
    plain, weight, expert = types.Precision.bf16, 0.0, 0.0
    stated = entry("workload", workload, "workload").value("checkpoint")
    generated = any(path.startswith("system.accelerator.chip.") for path in device)
    if stated == types.Precision.mxfp4:
        expert = WEIGHTS_ALONE["w4a16"]
    elif stated in EIGHT_BITS and not generated and not device.get("system.accelerator.matrix_rate.fp8"):
        weight = WEIGHTS_ALONE["w8a16"]
    elif stated is not None:
        plain = types.Precision(int(stated))
    return dict(zip(SERVED_FORMAT, (float(plain), weight, expert), strict=True))


def format_note(workloads: Iterable[str]) -> str:
    """Note on the formats that models are served in by default; "" for 16 bits."""
    stated = {name: entry("workload", name, "workload").value("checkpoint") for name in dict.fromkeys(workloads)}
    said = [f"{name} {types.choice_name(types.Precision(int(code)))}" for name, code in stated.items() if code]
    return f"in the format of the checkpoint: {', '.join(said)}; set precision for another" if said else ""


def serving_defaults(name: str, where: str = "software", folder: Folder = None) -> Values:
    """Defaults of an engine for open serving options (:class:`dse.types.Serving`); empty for a training stack.

    >>> serving_defaults("sglang")["mixed"]
    0.0
    """
    found = entry("software", name, where, folder)
    if not found.states("engine"):
        return {}
    return {path: found.value(f"serving.{path}", a["default"]) for path, a in leaves(types.Serving).items()}


def made(name: str, where: str = "system", folder: Folder = None) -> Values:
    """Dies and price of an accelerator, or of that of a system: path in :class:`dse.types.Made` → value.

    >>> made("h100")["price"], made("selene")["chiplets"]
    (28000.0, 1.0)
    """
    found = entry("system", name, where, folder)
    return made_of(found if found.kind == "accelerator" else load(*reference(found, "accelerator", folder), folder))


def foreign(stack: str, system: str, folder: Folder = None) -> tuple[str, tuple[str, ...]] | None:
    """(vendor of a system's accelerator, vendors of a stack) if the stack does not exist for that vendor, else None.

    A stack without vendors exists for all; an accelerator without one, such as a generated one, has all stacks.

    >>> foreign("tensorrt-llm", "mi300x"), foreign("vllm", "mi300x"), foreign("tensorrt-llm", "gpu")
    (('AMD', ('NVIDIA',)), None, None)
    """
    found = entry("system", system, folder=folder)
    device = found if found.kind == "accelerator" else load(*reference(found, "accelerator", folder), folder)
    vendor, known = device.value("vendor"), entry("software", stack, folder=folder).value("vendors", ())
    if not vendor or not known or plain(vendor) in map(plain, known):
        return None
    return vendor, known


# Sources


def used(named: Iterable[tuple[str, str]], folder: Folder = None) -> list[tuple[str, str]]:
    """(kind, slug) of the entries of (kind, name) pairs, and of all that these name, in order of appearance."""
    waiting = [_locate(kind, name, "catalogue", folder) for kind, name in named]
    reached: dict[tuple[str, str], None] = {}
    while waiting:
        item = waiting.pop(0)
        if item not in reached:
            reached[item] = None
            waiting += referenced(load(*item, folder), folder)
    return list(reached)


def provenance(kind: str, name: str, folder: Folder = None) -> list[tuple[str, str]]:
    """Sources of the values of an entry, and of the entries that it names.

    Args:
        kind: ``accelerator``, ``network``, ``system``, … (:func:`kinds`).
        name: slug, name or alias.
        folder: a catalogue to search first.

    Returns:
        Distinct (source, confidence), in order of appearance.

    >>> sorted({confidence for _, confidence in provenance("network", "nvlink-4")})
    ['datasheet', 'estimate']
    """
    found = [load(*pair, folder) for pair in used([(kind, name)], folder)]
    return list(dict.fromkeys((s.source, s.confidence) for e in found for s in e.values.values()))


def unverified(kind: str, name: str, folder: Folder = None) -> list[UnverifiedConstant]:
    """Unverified constants of an entry, and of those that it names: estimates, from memory, plain defaults.

    Args:
        kind: ``accelerator``, ``network``, ``system``, … (:func:`kinds`).
        name: slug, name or alias.
        folder: a catalogue to search first.

    Returns:
        One record per constant: entry, field, text, confidence, source.

    >>> {constant.confidence for constant in unverified("workload", "gpt-3-175b")} <= {
    ...     "estimate", "memory-unverified", "default"}
    True
    """
    return unverified_of(entry(kind, name, folder=folder), folder)


def digest(named: Iterable[tuple[str, str]] | None = None, folder: Folder = None) -> str:
    """SHA-256 of the catalogue files behind (kind, name) pairs.

    Args:
        named: the pairs, by default all entries. Entries that an entry names (a system's accelerator, networks and
            stack) are included.
        folder: a catalogue to search first.

    Returns:
        64 hexadecimal digits, which change with any of these files.

    >>> len(digest([("system", "selene")]))
    64
    """
    total = hashlib.sha256()
    for kind, slug in sorted(_everything(folder) if named is None else used(named, folder)):
        total.update(f"{kind}/{slug}\0".encode() + file_of(kind, slug, folder).read_bytes() + b"\0")
    return total.hexdigest()


def digests(named: Iterable[tuple[str, str]], folder: Folder = None) -> dict[str, str]:
    """``kind/slug`` → first digits of the SHA-256 of its file, for all entries of (kind, name) pairs.

    >>> list(digests([("software", "nemo")]))
    ['software/nemo']
    """
    return {
        f"{kind}/{slug}": hashlib.sha256(file_of(kind, slug, folder).read_bytes()).hexdigest()[:16]
        for kind, slug in sorted(used(named, folder))
    }


def _everything(folder: Folder) -> list[tuple[str, str]]:
    return [(kind, slug) for kind in kinds() for slug in paths(kind, folder)]


def check(folder: Folder = None) -> list[str]:
    """All faults of the catalogue.

    Args:
        folder: a catalogue to search first.

    Returns:
        One sentence per fault; empty without faults.

    Raises:
        InputError: for a folder without any entry.

    >>> check()
    []
    """
    expect_entries(folder)
    problems = [problem for kind in kinds() for problem in _ambiguous(kind, folder)]
    for kind, slug in _everything(folder):
        try:
            found = load(kind, slug, folder)
            referenced(found, folder)
        except InputError as error:
            problems.append(str(error))
            continue
        if slug != slug.lower() or not slug.replace("-", "").isalnum():
            problems.append(f"{shown(found.path)}: a slug consists of lower-case words joined by '-'")
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
                    problems.append(f"{shown(path)}: aliases: {known!r} is also a name of {owner!r}")
    return problems
