"""The version of the layout of results files, a global attribute.

A file of a later version is refused with the name of the program that wrote it: its names may have other meanings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.errors import LAYOUT, InputError, visible

#: Group of a file and key of a dataset's encoding for the overview of all designs.
OVERVIEW = "overview"

#: Global attribute with the text of the sweep's specification.
SPECIFICATION = "specification"

#: Global attribute with what a reader of the results must know, a line each; empty where there is nothing.
CAUTIONS = "cautions"

#: Attribute of a variable that a file has without dimensions along which it is constant: their names.
CONSTANT_ALONG = "constant_along"

#: Attribute of a coordinate that follows from other labels: from what it follows.
DERIVED = "derived_from"


def is_number_of_name(attributes: Mapping[str, Any]) -> bool:
    """Return True for the attributes of a number that follows from a name of the catalogue, no label of designs."""
    return DERIVED in attributes and "path" not in attributes


#: Global attribute with the version, and the version of this package.
ATTRIBUTE, VERSION = "dse_schema", 1


def version(attributes: Mapping[str, Any]) -> int:
    """Return the version of a file from its global attributes; 0 if it is missing or no number."""
    try:
        return int(attributes.get(ATTRIBUTE, 0))
    except (TypeError, ValueError, OverflowError):
        return 0


def cautions(attributes: Mapping[str, Any]) -> list[str]:
    """Return the lines of the cautions on results, with characters that a terminal would obey escaped."""
    lines = str(attributes.get(CAUTIONS, "")).splitlines()
    return [visible(line, LAYOUT) for line in lines if line.strip()]


def check(attributes: Mapping[str, Any], where: str) -> None:
    """Raise InputError for the attributes of a file of a later version than this package's."""
    file_version = version(attributes)
    if file_version > VERSION:
        raise InputError(
            where,
            f"results of version {file_version}, written by {attributes.get('source', 'a later dse')}",
            f"versions up to {VERSION}",
            "install the version of dse that wrote it, or a later one",
        )


def wrong(where: str, got: str, allowed: str) -> InputError:
    """Return the error for a file that is not of dse."""
    return InputError(where, got, allowed, "run the sweep again, dse run SWEEP.toml, or take an undamaged copy")
