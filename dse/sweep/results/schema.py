"""The version of the layout of results files, a global attribute.

A file of a later version is refused with the name of what wrote it: what it means by its names cannot be known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.errors import InputError

#: Group of a file, and key of a dataset's encoding, of the overview of all designs.
OVERVIEW = "overview"

#: Global attribute of a file, and what this package writes there.
ATTRIBUTE, VERSION = "dse_schema", 1


def version(attributes: Mapping[str, Any]) -> int:
    """The version of a file by its global attributes; 0 where none is stated, or no number."""
    try:
        return int(attributes.get(ATTRIBUTE, 0))
    except (TypeError, ValueError, OverflowError):
        return 0


def check(attributes: Mapping[str, Any], where: str) -> None:
    """That a file is not of a later version than this package knows; else an InputError."""
    found = version(attributes)
    if found > VERSION:
        raise InputError(
            where, f"results of version {found}, written by {attributes.get('source', 'a later dse')}",
            f"versions up to {VERSION}", "install the version of dse that wrote it, or a later one",
        )  # fmt: skip


def wrong(where: str, got: str, allowed: str) -> InputError:
    """The error of a file that no run of dse has written."""
    return InputError(where, got, allowed, "run the sweep again, dse run SWEEP.toml, or take an undamaged copy")
