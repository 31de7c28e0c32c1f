"""Attributes of results files that xarray or dse reads, and the types they must have."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dse.spec.sweep import LONGEST_TITLE
from dse.sweep.results.schema import CAUTIONS, wrong

#: Maximum lengths of a label or name, and of units, which may be a product of many factors.
LONGEST_LABEL, LONGEST_UNITS = 500, 5_000

#: Integers in a file are below this.
_WHOLE = 2**63

#: Check of an attribute, with its description.
_Rule = tuple[Callable[[Any], bool], str]


def read(of: Any, where: str) -> dict[str, Any]:
    """Attributes of a group or a variable; InputError if netCDF cannot read one."""
    try:
        return {name: of.getncattr(name) for name in of.ncattrs()}
    except (RuntimeError, AttributeError, UnicodeError) as error:
        raise wrong(where, f"an attribute that cannot be read ({error})", "attributes as dse wrote them") from None


def check_variable(attrs: Mapping[str, Any], is_text: bool, where: str) -> None:
    """InputError for an attribute of a variable, of texts or numbers, of a wrong type."""
    rules = _OF_VARIABLES | (_OF_TEXTS if is_text else {})
    for name, value in attrs.items():
        is_right, allowed = rules.get(name, _ANY)
        if not is_right(value):
            raise wrong(f"{where}: attribute {name}", _shown(value), allowed)
    words = attrs.get("flag_meanings", "").split()
    for name in ("flag_values", "flag_masks"):
        if name in attrs and np.size(attrs[name]) != len(words):
            got = f"{np.size(attrs[name]):,} {name} and {len(words):,} flag_meanings"
            raise wrong(where, got, "a meaning for each")
    if len(max(words, key=len, default="")) > LONGEST_LABEL:
        raise wrong(f"{where}: attribute flag_meanings", "a longer word", f"words of at most {LONGEST_LABEL} letters")


def check_file(attrs: Mapping[str, Any], where: str) -> None:
    """InputError for a global attribute of a wrong type."""
    for name, value in attrs.items():
        is_right, allowed = _OF_FILES.get(name, _ANY)
        if not is_right(value):
            raise wrong(f"{where}: attribute {name}", _shown(value), allowed)
    listed = [len(attrs.get(name, "").split()) for name in ("best_designs", "best_values")]
    if listed[0] != listed[1] and {"best_designs", "best_values"} <= set(attrs):
        got = f"{listed[0]:,} best_designs and {listed[1]:,} best_values"
        raise wrong(where, got, "a value for each")


def _shown(value: Any) -> str:
    """A value in an error; long texts and arrays are abbreviated."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 100 else f"a text of {len(value):,} letters"
    return f"{np.asarray(value).reshape(-1)[:3].tolist()} of type {np.asarray(value).dtype}"


# --- of variables ------------------------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"


def _is_at_most(letters: int) -> _Rule:
    """Check for a text of at most this many characters."""
    return (lambda value: _is_text(value) and len(value) <= letters), f"a text of at most {letters:,} letters"


def _are_whole(value: Any) -> bool:
    return np.ndim(value) <= 1 and np.asarray(value).dtype.kind in "iu"


#: Attribute of a variable that dse or xarray reads → (check, description).
_OF_VARIABLES: dict[str, _Rule] = {
    **dict.fromkeys(("path", "dtype"), _is_at_most(LONGEST_LABEL)),
    "units": _is_at_most(LONGEST_UNITS),
    **dict.fromkeys(("long_name", "comment", "coordinates", "flag_meanings"), (_is_text, "a text")),
    **dict.fromkeys(("flag_values", "flag_masks"), (_are_whole, "whole numbers")),
    **dict.fromkeys(("scale_factor", "add_offset", "missing_value", "_FillValue"), (_is_number, "a number")),
    "_Unsigned": (lambda value: value in ("true", "false"), "true or false"),
    "_Encoding": (lambda value: value == "utf-8", "utf-8"),
}

#: Checks for variables of texts.
_OF_TEXTS: dict[str, _Rule] = dict.fromkeys(("_FillValue", "missing_value"), _is_at_most(LONGEST_LABEL))

#: Check of attributes that are not read.
_ANY: _Rule = (lambda _: True, "")


# --- of files ---------------------------------------------------------------------------------------------


def _is_count(value: Any) -> bool:
    return _is_number(value) and bool(np.isfinite(value)) and 0 <= int(value) < _WHOLE and int(value) == value


def _is_size(value: Any) -> bool:
    return _is_number(value) and not np.isnan(value) and bool(value >= 0)


def _document(is_key: Callable[[Any, Any], bool]) -> Callable[[Any], bool]:
    """Check for a JSON object whose keys and values are valid."""

    def is_right(value: Any) -> bool:
        found = _parsed(value)
        return isinstance(found, dict) and all(is_key(key, one) for key, one in found.items())

    return is_right


def _parsed(value: Any) -> Any:
    """Content of a JSON text; None if it is invalid."""
    if not isinstance(value, str):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _is_plain(value: Any) -> bool:
    """Whether a value is a number of JSON; Python accepts more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _are_designs(value: Any) -> bool:
    """Whether a value is a text of indices of designs, separated by spaces."""
    words = value.split() if isinstance(value, str) else ["?"]
    return all(word.isascii() and word.isdecimal() and len(word) < 20 and int(word) < _WHOLE for word in words)


def _are_values(value: Any) -> bool:
    """Whether a value is a text of numbers, separated by spaces."""
    try:
        return isinstance(value, str) and all(isinstance(float(word), float) for word in value.split())
    except ValueError:
        return False


_TEXTS = (
    "Conventions", "specification", "specification_hash", "catalog_digest", "code_version", "code_digest", "study",
    "model", "jax_version", "device", "dtype", "any_option", "keep", "histogram", "objective", "source", "sources",
    "bibliography", "unverified_constants", "compression", "search_digest", "budget", "whole_stacks",
    "compression_asked", "coordinates", CAUTIONS,
)  # fmt: skip

#: Global attribute that is read → (check, description).
_OF_FILES: dict[str, _Rule] = {
    **dict.fromkeys(_TEXTS, (_is_text, "a text")),
    "title": _is_at_most(LONGEST_TITLE),
    **dict.fromkeys(
        ("designs", "places", "feasible_designs", "unranked_designs", "dse_schema"), (_is_count, "a whole number")
    ),
    **dict.fromkeys(("memory_capacity_bytes", "size"), (_is_size, "a number of 0 or more")),
    "best_designs": (_are_designs, "indices of designs with spaces between them"),
    "best_values": (_are_values, "numbers with spaces between them"),
    "infeasible_by_reason": (
        _document(lambda _, value: isinstance(value, int) and 0 <= value < _WHOLE),
        "a JSON object of counts by reason",
    ),
    "catalog_entries": (_document(lambda _, value: isinstance(value, str)), "a JSON object of digests by entry"),
    "base_design": (_document(lambda _, value: _is_plain(value)), "a JSON object of numbers by leaf"),
    **dict.fromkeys(("methods", "report"), (_document(lambda *_: True), "a JSON object")),
    "objectives": (lambda value: isinstance(_parsed(value), list), "a JSON list"),
}
