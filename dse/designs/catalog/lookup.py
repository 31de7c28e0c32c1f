"""From names to entries, values by path and records."""

from __future__ import annotations

from typing import TypeVar

from dse.designs.catalog.defaults import load
from dse.designs.catalog.entries import NO_NETWORK, Entry
from dse.designs.catalog.faults import warn_of_faults
from dse.designs.catalog.filling import RECORDS, Values, no_network, values_of
from dse.designs.catalog.load import FOLDERS, Folder, find, name_to_slug, paths
from dse.errors import InputError, nearest, unknown_name
from dse.types.paths import build

RecordT = TypeVar("RecordT")


def kinds() -> list[str]:
    """Return the kinds of entries.

    Returns:
        Their names, those of folders of the catalogue in the singular.

    >>> kinds()[:4]
    ['accelerator', 'network', 'system', 'software']
    """
    return list(FOLDERS)


def names(kind: str, folder: Folder = None) -> list[str]:
    """Return the slugs of all entries of a kind, sorted.

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
    """Return the slug of the entry of a name.

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
    return locate(kind, name, where, folder)[1]


def locate(kind: str, name: str, where: str, folder: Folder) -> tuple[str, str]:
    """Return (kind, slug) of a name; as a system, an accelerator may be named too.

    Args:
        kind: of the entry.
        name: slug, name or alias.
        where: place of the name, for errors.
        folder: a catalogue to search first.

    Raises:
        InputError: for an unknown name, with the nearest known ones.
    """
    candidate_kinds = [kind, "accelerator"] if kind == "system" else [kind]
    for candidate_kind in candidate_kinds:
        slug = find(candidate_kind, name, folder)
        if slug is not None:
            return candidate_kind, slug
    warn_of_faults(folder)  # the name may be an alias in a file that cannot be read
    slugs_by_name = {
        candidate_name: slug
        for candidate_kind in candidate_kinds
        for candidate_name, slug in name_to_slug(candidate_kind, folder).items()
    }
    close = list(
        dict.fromkeys(slugs_by_name[candidate_name] for candidate_name in nearest(name, slugs_by_name, count=6))
    )[:3]
    fix = f"did you mean {' or '.join(map(repr, close))}?" if close else f"`dse catalog list` shows every {kind}"
    raise InputError(where, repr(name), unknown_name(where, name, names(kind, folder), "").allowed, fix)


def entry(kind: str, name: str, where: str = "catalogue", folder: Folder = None) -> Entry:
    """Return the entry of a name, defaults included: every value with unit, source, confidence and spread.

    Args:
        kind: ``accelerator``, ``network``, ``system``, … (:func:`kinds`).
        name: slug, name or alias.
        where: place of the name, for errors.
        folder: a catalogue to search first.

    Returns:
        The entry; its ``values`` are in SI units, by field.

    Raises:
        InputError: for an unknown name, and for any fault of the file.

    Warns:
        Notice: of all faulty files of the user's folders, once, where this entry has no fault.

    >>> bandwidth = entry("accelerator", "h100").values["memory.bandwidth"]
    >>> bandwidth.value, bandwidth.units, bandwidth.text, bandwidth.confidence
    (3350000000000.0, 'B/s', '3350 GB/s', 'datasheet')
    """
    loaded = load(*locate(kind, name, where, folder), folder)
    warn_of_faults(folder)
    return loaded


def values(kind: str, name: str, where: str = "", folder: Folder = None, fine: bool = False) -> Values:
    """Return the values that a name brings into a design: path within its record → SI value.

    Args:
        kind: one with a record: ``workload``, ``system``, ``accelerator``, ``network``, ``software``, ``node`` or
            ``memory``.
        name: slug, name or alias; ``"none"`` is the absent network.
        where: place of the name, for errors; by default the kind.
        folder: a catalogue to search first.
        fine: include the terms of isolated collectives, which training steps do not use.

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
    """Return the record of a name, from an entry of the catalogue and those that it names.

    An accelerator has rate 0 for a precision that it lacks; generated values are 0 until
    :func:`dse.model.machine.technology.generate` fills them in. A system is one node of its cluster (``n_devices`` is
    ``devices_per_node``); an accelerator as system is its default node and network. The network ``"none"`` is one
    device.

    Args:
        of: ``Workload``, ``System``, ``Accelerator``, ``Network``, ``Software``, ``LogicNode`` or
            ``MemoryTechnology`` of :mod:`dse.types`.
        name: slug, name or alias.
        where: place of the name, for errors; by default the kind.
        folder: a catalogue to search first.
        fine: as of :func:`values`.

    Returns:
        A record of plain numbers in SI units.

    Raises:
        InputError: for an unknown name, for any fault of a file, and for an accelerator as a system whose links are
            not in the catalogue.

    >>> from dse import types
    >>> record(types.Accelerator, "h100").memory.bandwidth
    3350000000000.0
    >>> selene = record(types.System, "selene")
    >>> selene.n_devices, selene.scale_out.bandwidth
    (8.0, 25000000000.0)
    """
    kind = next(kind for kind, filled in RECORDS.items() if filled is of)
    return build(of, values(kind, name, where, folder, fine))
