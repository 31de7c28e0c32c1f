"""What programs may ask: the capabilities whose options name no file of this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.errors import InputError, unknown_name
from dse.reports import Capability
from dse.reports.capabilities import MOST_ITEMS
from dse.reports.registry import remote_capabilities

#: Largest number of characters of a text.
MOST_CHARACTERS = 2_000

#: Beginnings of texts that name files; names of the catalogue have none of them.
_PATHS = ("/", "\\", "~", ".", "file:")


def operation(name: str) -> Capability:
    """Return the capability that programs ask by a name; raise an InputError for an unknown one."""
    operations = remote_capabilities()
    if name not in operations:
        raise unknown_name("request", name, operations, "operations")
    return operations[name]


def refuse_files(value: Any, where: str) -> None:
    """Raise an InputError where a text, at any depth, may name a file or is too long, or a list has too many items."""
    if isinstance(value, str):
        if value.strip().startswith(_PATHS) or ".." in value:
            raise InputError(where, repr(value[:200]), "names of the catalogue and values", "send no paths of files")
        if len(value) > MOST_CHARACTERS:
            raise InputError(where, f"{len(value):,} characters", f"up to {MOST_CHARACTERS:,}", "shorten it")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            refuse_files(key, where)
            refuse_files(inner, f"{where}: {key}")
    elif isinstance(value, list | tuple):
        if len(value) > MOST_ITEMS:
            raise InputError(where, f"{len(value):,} items", f"up to {MOST_ITEMS:,}", "send fewer at a time")
        for inner in value:
            refuse_files(inner, where)
