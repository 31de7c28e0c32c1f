"""Entries of the catalogue: values stated by a file, with sources, and the entries that it names.

Missing values: :mod:`dse.designs.catalog.defaults`; values of records: :mod:`dse.designs.catalog.filling`.
"""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

from dse.designs.catalog import schema
from dse.designs.catalog.load import FOLDERS, Folder, display_path, file_of, find, parse, paths, stamp
from dse.designs.catalog.value import Sourced
from dse.errors import unknown_name

#: Kind → fields that name an entry → its kind.
REFERENCES = {kind: rows["references"] for kind, rows in schema.ROWS.items() if "references" in rows}

#: In place of a network's name: no network.
NO_NETWORK = "none"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of the catalogue with every value in SI units and its source."""

    kind: str
    slug: str
    name: str
    aliases: tuple[str, ...]
    note: str
    values: dict[str, Sourced]  #: field → value; fields of a record are dotted (``memory.bandwidth``)
    measured_sources: tuple[str, ...]  #: systems: sources of measurements on them
    nearest_sources: tuple[str, ...]  #: stacks: sources without a stack of their own, closest to this one
    path: Path

    def value(self, field: str, default: Any = None) -> Any:
        """Return the SI value of a field, ``default`` where the entry has none."""
        sourced = self.values.get(field)
        return default if sourced is None else sourced.value

    def states(self, table: str) -> bool:
        """True where the entry has a field in a table (``experts``, ``engine``)."""
        return any(field.startswith(f"{table}.") for field in self.values)


def file_entry(kind: str, slug: str, folder: Folder = None) -> Entry:
    """Return the validated entry of an existing slug as its file states it, without defaults.

    Args:
        kind: of the entry.
        slug: of the entry.
        folder: a catalogue to search first.

    Raises:
        InputError: for a fault of the file.
    """
    path = file_of(kind, slug, folder)
    return _read(kind, path, *stamp(path))


@functools.lru_cache(maxsize=4096)
def _read(kind: str, path: Path, *stamp: int) -> Entry:
    """Return the entry of a file, kept until its stamp changes."""
    file = parse(path)
    values = schema.read(kind, file, display_path(path))
    return Entry(
        kind=kind,
        slug=path.stem,
        name=file.get("name") or path.stem,
        aliases=tuple(file.get("aliases", ())),
        note=file.get("note", ""),
        values=values,
        measured_sources=tuple(file.get("sources", ())),
        nearest_sources=tuple(file.get("nearest", ())),
        path=path,
    )


def reference(entry: Entry, field: str, folder: Folder = None, name: str | None = None) -> tuple[str, str]:
    """Return (kind, slug) of the entry that a field names.

    Args:
        entry: the entry with the field.
        field: a field of ``REFERENCES``.
        folder: a catalogue to search first.
        name: name in place of the field's value.

    Raises:
        InputError: for a name without an entry.
    """
    kind, entry_name = REFERENCES[entry.kind][field], str(entry.value(field) if name is None else name)
    slug = find(kind, entry_name, folder)
    if slug is None:
        slugs = paths(kind, folder)
        raise unknown_name(f"{display_path(entry.path)}: {field}", entry_name, slugs, f"entries of {FOLDERS[kind]}/")
    return kind, slug


def referenced_entries(entry: Entry, folder: Folder = None) -> list[tuple[str, str]]:
    """Return (kind, slug) of each entry that an entry names, absent networks left out.

    Raises:
        InputError: for a name without an entry.
    """
    return [
        reference(entry, field, folder)
        for field in REFERENCES.get(entry.kind, {})
        if entry.value(field) not in (None, NO_NETWORK)
    ]
