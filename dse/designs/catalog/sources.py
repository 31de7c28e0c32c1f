"""Where values come from: entries behind a name, sources, unverified constants, digests, faults of the catalogue."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from dse.designs.catalog.defaults import load
from dse.designs.catalog.entries import referenced_entries
from dse.designs.catalog.faults import tell_no_faults
from dse.designs.catalog.load import Folder, display_path, expect_entries, file_of, paths, plain
from dse.designs.catalog.lookup import entry, kinds, locate
from dse.designs.catalog.stack_selection import default_software
from dse.designs.catalog.unverified import UnverifiedConstant, unverified_of
from dse.errors import InputError


def reachable_entries(named: Iterable[tuple[str, str]], folder: Folder = None) -> list[tuple[str, str]]:
    """Return (kind, slug) of entries, and of all entries that these name, directly or not.

    Args:
        named: (kind, name) of the entries.
        folder: a catalogue to search first.

    Returns:
        (kind, slug) in order of appearance, without repetitions.

    Raises:
        InputError: for an unknown name, and for a fault of a file.
    """
    waiting = [locate(kind, name, "catalogue", folder) for kind, name in named]
    reached: dict[tuple[str, str], None] = {}
    while waiting:
        kind_and_slug = waiting.pop(0)
        if kind_and_slug not in reached:
            reached[kind_and_slug] = None
            waiting += referenced_entries(load(*kind_and_slug, folder), folder)
    return list(reached)


def provenance(kind: str, name: str, folder: Folder = None) -> list[tuple[str, str]]:
    """Return distinct (source, confidence) of the values of an entry, and of the entries that it names.

    Args:
        kind: ``accelerator``, ``network``, ``system``, … (:func:`kinds`).
        name: slug, name or alias.
        folder: a catalogue to search first.

    Returns:
        Distinct (source, confidence), in order of appearance.

    >>> sorted({confidence for _, confidence in provenance("network", "nvlink-4")})
    ['datasheet', 'estimate']
    """
    entries = [load(*pair, folder) for pair in reachable_entries([(kind, name)], folder)]
    return list(
        dict.fromkeys(
            (sourced.source, sourced.confidence) for loaded_entry in entries for sourced in loaded_entry.values.values()
        )
    )


def unverified(kind: str, name: str, folder: Folder = None) -> list[UnverifiedConstant]:
    """Return the unverified constants of an entry and of those that it names: estimates, from memory, plain defaults.

    Args:
        kind: ``accelerator``, ``network``, ``system``, … (:func:`kinds`).
        name: slug, name or alias.
        folder: a catalogue to search first.

    Returns:
        One record per constant: entry, field, text, confidence, source.

    >>> {constant.confidence for constant in unverified("workload", "gpt-3-175b")} <= {
    ...     "estimate",
    ...     "memory-unverified",
    ...     "default",
    ... }
    True
    """
    return unverified_of(entry(kind, name, folder=folder), folder)


def digest(named: Iterable[tuple[str, str]] | None = None, folder: Folder = None) -> str:
    """Return the SHA-256 (hexadecimal) of the catalogue files behind (kind, name) pairs.

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
    for kind, slug in sorted(_everything(folder) if named is None else reachable_entries(named, folder)):
        total.update(f"{kind}/{slug}\0".encode() + file_of(kind, slug, folder).read_bytes() + b"\0")
    return total.hexdigest()


def digests(named: Iterable[tuple[str, str]], folder: Folder = None) -> dict[str, str]:
    """Return ``kind/slug`` → start of the SHA-256 of each catalogue file behind (kind, name) pairs.

    Args:
        named: the pairs; entries that an entry names are included.
        folder: a catalogue to search first.

    Returns:
        ``kind/slug`` → 16 hexadecimal digits.

    >>> list(digests([("software", "nemo")]))
    ['software/nemo']
    """
    return {
        f"{kind}/{slug}": hashlib.sha256(file_of(kind, slug, folder).read_bytes()).hexdigest()[:16]
        for kind, slug in sorted(reachable_entries(named, folder))
    }


def _everything(folder: Folder) -> list[tuple[str, str]]:
    """Return (kind, slug) of every entry."""
    return [(kind, slug) for kind in kinds() for slug in paths(kind, folder)]


def check(folder: Folder = None) -> list[str]:
    """Return sentences on all faults of the catalogue, empty for none.

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
    tell_no_faults(folder)
    problems = [problem for kind in kinds() for problem in _ambiguous_names(kind, folder)]
    for kind, slug in _everything(folder):
        try:
            checked_entry = load(kind, slug, folder)
            referenced_entries(checked_entry, folder)
            if kind in ("system", "accelerator"):
                default_software(slug, folder=folder)  # its tool is one of a stack
        except InputError as error:
            problems.append(str(error))
            continue
        if slug != slug.lower() or not slug.replace("-", "").isalnum():
            problems.append(f"{display_path(checked_entry.path)}: a slug consists of lower-case words joined by '-'")
    return list(dict.fromkeys(problems))


def _ambiguous_names(kind: str, folder: Folder) -> list[str]:
    """Return a sentence per name that two entries of a kind share; systems and accelerators count as one kind."""
    owners: dict[str, str] = {}
    problems = []
    for candidate in [kind, "accelerator"] if kind == "system" else [kind]:
        for slug, path in reversed(paths(candidate, folder).items()):  # the user's last: they are at fault
            try:
                loaded_entry = load(candidate, slug, folder)
            except InputError:
                continue  # reported by check()
            for entry_name in (slug, loaded_entry.name, *loaded_entry.aliases):
                owner = owners.setdefault(plain(entry_name), slug)
                if owner != slug:
                    problems.append(f"{display_path(path)}: aliases: {entry_name!r} is also a name of {owner!r}")
    return problems
