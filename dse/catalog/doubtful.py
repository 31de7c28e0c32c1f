"""Which of the constants behind a result nobody has checked: estimates, values from memory, and plain defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, get_type_hints

from dse import types
from dse.catalog.load import NO_NETWORK, Entry, find, load

#: Confidences of values that no text has been held against.
DOUBTFUL = ("estimate", "memory-unverified")

#: Kind → the noun that its entries fill.
_NOUNS = {
    "accelerator": types.Accelerator, "network": types.Network, "software": types.Software, "workload": types.Workload,
    "node": types.LogicNode, "memory": types.MemoryTechnology,
}  # fmt: skip

#: What a generated accelerator names → kind.
_TECHNOLOGY = {"chip.node": "node", "chip.base_node": "node", "chip.memory": "memory"}

Folder = Any


@dataclasses.dataclass(frozen=True)
class Constant:
    """One doubtful constant as the catalogue has it."""

    entry: str  #: ``accelerator/a100-sxm-80gb``
    field: str
    text: str  #: value as written
    confidence: str  #: one of DOUBTFUL, or ``default`` where no entry states it
    source: str

    def __str__(self) -> str:
        return f"{self.entry}: {self.field} = {self.text} [{self.confidence}] {self.source}".rstrip()


def doubtful(kind: str, slug: str, folder: Folder = None) -> list[Constant]:
    """The doubtful constants that an entry brings into a design, with those of the devices and networks it names."""
    return [constant for found in _parts(load(kind, slug, folder), folder) for constant in _of(found)]


def _parts(found: Entry, folder: Folder) -> Iterator[Entry]:
    """What one name brings: a system its accelerator and networks, an accelerator as a system its node's networks."""
    yield found
    prefix = "node." if found.kind == "accelerator" else ""
    names = {"accelerator": found.value("accelerator")} if found.kind == "system" else {}
    for field in ("scale_up", "scale_out"):
        names[field] = found.value(prefix + field)
    for field, name in names.items():
        kind = "accelerator" if field == "accelerator" else "network"
        slug = find(kind, str(name), folder) if name not in (None, NO_NETWORK) else None
        if slug is not None:
            yield load(kind, slug, folder)
    for field, kind in _TECHNOLOGY.items():
        slug = find(kind, str(found.value(field)), folder) if found.kind == "accelerator" else None
        if slug is not None:
            yield load(kind, slug, folder)


def _of(found: Entry) -> Iterator[Constant]:
    """The doubtful ones among the values of an entry that are leaves of a design."""
    name = f"{found.kind}/{found.slug}"
    fields = list(_leaves(_NOUNS[found.kind])) if found.kind in _NOUNS else _system_fields(found)
    if found.value("chip.node") is not None:
        made = tuple(f"{name}." for name in types.GENERATED)
        fields = [(field, default) for field, default in fields if not f"{field}.".startswith(made)]
        fields += _leaves(types.Chip, "chip.")
    for field, default in fields:
        value = found.values.get(field)
        if value is None:
            if isinstance(default, int | float):
                yield Constant(name, field, f"{default:g}", "default", "no entry states it")
        elif value.confidence in DOUBTFUL:
            yield Constant(name, field, value.text, value.confidence, value.source)


def _system_fields(found: Entry) -> list[tuple[str, None]]:
    return [(field, None) for field in found.values]


def _leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(field, default or None) of the numbers of a noun and of the records in it that every design has."""
    hints = get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _leaves(hints[field.name], f"{prefix}{field.name}.")
        elif field.metadata:
            yield prefix + field.name, None if field.default is dataclasses.MISSING else field.default
