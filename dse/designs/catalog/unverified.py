"""Which of the constants behind a result nobody has checked: estimates, values from memory, and plain defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from dse import types
from dse.designs.catalog.defaults import load
from dse.designs.catalog.entries import Entry, referenced_entries
from dse.designs.catalog.filling import RECORDS
from dse.designs.catalog.load import Folder
from dse.types.paths import leaves

#: Confidences of values that no text has been held against.
UNVERIFIED = ("estimate", "memory-unverified")

#: Kinds of the entries whose constants come along with one that names them.
_PARTS = ("accelerator", "network", "node", "memory")


@dataclasses.dataclass(frozen=True)
class UnverifiedConstant:
    """One unverified constant as the catalogue states it."""

    entry: str  #: ``accelerator/a100-sxm-80gb``
    field: str
    text: str  #: value as written
    confidence: str  #: one of UNVERIFIED, or ``default`` where no entry states it
    source: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.field} = {self.text} [{self.confidence}] {self.source}".rstrip()


def unverified_of(entry: Entry, folder: Folder = None) -> list[UnverifiedConstant]:
    """Return the unverified constants of an entry, and of the devices and networks that it names."""
    parts = [(kind, slug) for kind, slug in dict.fromkeys(referenced_entries(entry, folder)) if kind in _PARTS]
    return [
        constant
        for part_entry in (entry, *(load(*pair, folder) for pair in parts))
        for constant in _entry_constants(part_entry)
    ]


def _entry_constants(entry: Entry) -> Iterator[UnverifiedConstant]:
    """Yield the unverified values and plain defaults of an entry's constants."""
    name = f"{entry.kind}/{entry.slug}"
    for field, default in _constant_defaults(entry).items():
        value = entry.values.get(field)
        if value is None:
            if isinstance(default, int | float):
                yield UnverifiedConstant(name, field, f"{default:g}", "default", "no entry states it")
        elif value.confidence in UNVERIFIED:
            yield UnverifiedConstant(name, field, value.text, value.confidence, value.source)


def _constant_defaults(entry: Entry) -> dict[str, Any]:
    """Return field → default (None without one) of the constants of an entry.

    Those that a generated chip replaces are left out.
    """
    if entry.kind not in RECORDS or entry.kind == "system":
        return dict.fromkeys(entry.values)
    fields = {field: metadata.get("default") for field, metadata in leaves(RECORDS[entry.kind]).items()}
    if entry.value("chip.node") is None:
        return fields
    generated_prefixes = tuple(f"{name}." for name in types.GENERATED)
    chip = {field: metadata.get("default") for field, metadata in leaves(types.Chip, "chip.").items()}
    return {
        field: default for field, default in fields.items() if not f"{field}.".startswith(generated_prefixes)
    } | chip
