"""Limits on the declarations of a results file, checked before any value is read.

netCDF compresses well: missing or constant values take no space in a file and all of it in memory. So the number of
declared values is limited by the file's size. Files of dse hold at most 570 values per byte: a chunk of 32,768 equal
values takes 57 bytes (zstd and its index entry); real values take a byte or more each.

Types of variables, and of the attributes that xarray or dse reads, are checked too.
"""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dse.io import toml
from dse.spec.sweep import LONGEST_TITLE
from dse.sweep.results.schema import OVERVIEW, wrong

#: Maximum values per byte of a file, and values that any file may declare.
VALUES_PER_BYTE, FEW_VALUES = 600, 8 << 20

#: The same for characters of labels, which files of dse store as codes.
LETTERS_PER_BYTE, FEW_LETTERS = 2_500, 16 << 20

#: Maximum size of a chunk in bytes, which is decompressed as a whole; files of dse have 256 KiB.
LARGEST_CHUNK = 256 << 20

#: Maximum number of variables of a file; files of dse have a few hundred.
MOST_VARIABLES = 2_000

#: Size of the reference to a variable-length text in a file, bytes.
_REFERENCE_BYTES = 16

#: Number of texts that are read at once.
_TEXTS_PER_READ = 1 << 16


def check(file: Any, path: Path) -> int:
    """Return the number of values that a file declares; InputError for more or others than results can hold.

    Args:
        file: the open netCDF4 dataset; netCDF does not support a second one of the same file.
        path: of the file.

    Returns:
        Number of declared values.
    """
    groups = [file, *(subgroup for name, subgroup in file.groups.items() if name == OVERVIEW)]
    variables = [variable for group in groups for variable in group.variables.values()]
    if len(variables) > MOST_VARIABLES:
        raise wrong(str(path), f"{len(variables):,} variables", f"at most {MOST_VARIABLES:,}")
    for variable in variables:
        _check_type(variable, f"{path}: {variable.name}")
    values = _check_size(path, variables, _values, "values", most_values(path))
    for variable in variables:
        where = f"{path}: {variable.name}"
        check_variable(read_attributes(variable, where), variable.dtype is str, where)
    _check_size(path, variables, _letters, "letters of labels", most_letters(path))
    for group in groups:
        _check_names(group, str(path))
        check_file(read_attributes(group, str(path)), str(path))
    return values


# --- sizes ------------------------------------------------------------------------------------------------


def most_values(path: Path) -> int:
    """Return the maximum number of values that a file of this size may declare."""
    return max(FEW_VALUES, VALUES_PER_BYTE * path.stat().st_size)


def most_letters(path: Path) -> int:
    """Return the maximum number of characters of labels that a file of this size may declare."""
    return max(FEW_LETTERS, LETTERS_PER_BYTE * path.stat().st_size)


def _check_size(path: Path, variables: list[Any], size_of: Callable[[Any, Path], int], what: str, most: int) -> int:
    """Return the sum of ``size_of`` over all variables; InputError above ``most``, with ``what`` for its unit."""
    total, largest_size, largest_name = 0, 0, ""
    for variable in variables:
        size = size_of(variable, path)
        total += size
        largest_size, largest_name = max((largest_size, largest_name), (size, variable.name))
        if total > most:
            got = f"{total:,} {what} or more, {largest_size:,} of them {largest_name}, in {path.stat().st_size:,} bytes"
            raise wrong(str(path), got, f"{most:,} in a file of that size")
    return total


def _values(variable: Any, path: Path) -> int:
    """Return the number of values of a variable, or of one of its chunks if that is more.

    Raises InputError for chunks of more than 256 MiB.
    """
    chunk, count = variable.chunking() if variable.dimensions else None, math.prod(map(int, variable.shape))
    if isinstance(chunk, list):
        chunk_values = math.prod(map(int, chunk))
        size = chunk_values * (_REFERENCE_BYTES if variable.dtype is str else variable.dtype.itemsize)
        if size > LARGEST_CHUNK:
            got, allowed = (f"{n_bytes / 2**20:,.0f} MiB" for n_bytes in (size, LARGEST_CHUNK))
            raise wrong(f"{path}: {variable.name}", f"chunks of {got}", f"at most {allowed}")
        count = max(count, chunk_values)
    return count


def _letters(variable: Any, path: Path) -> int:
    """Return the number of characters of a variable's texts or flag meanings, each as long as the longest.

    Raises InputError for a text of more than 500 characters.
    """
    count = math.prod(map(int, variable.shape))
    if variable.dtype is not str:
        words = variable.getncattr("flag_meanings").split() if "flag_meanings" in variable.ncattrs() else []
        return count * max(map(len, words), default=0)
    longest = 0
    for texts in _text_batches(variable):
        longest = max(longest, max(map(len, texts), default=0))
        if longest > LONGEST_LABEL:
            got = f"a text of {longest:,} letters"
            raise wrong(f"{path}: {variable.name}", got, f"at most {LONGEST_LABEL} letters")
    return count * longest


def _text_batches(variable: Any) -> Iterator[list[str]]:
    """Yield the texts of a variable in lists, the first text alone: all unwritten texts have its length."""
    shape = tuple(map(int, variable.shape))
    if not all(shape):
        return
    yield [str(variable[(0,) * len(shape)] if shape else variable[...])]
    *outer, last = shape or (1,)
    for position in np.ndindex(*outer) if shape else ():
        for start in range(0, last, _TEXTS_PER_READ):
            yield [str(text) for text in np.ravel(variable[(*position, slice(start, start + _TEXTS_PER_READ))])]


# --- types ------------------------------------------------------------------------------------------------


def _check_type(variable: Any, where: str) -> None:
    """Raise InputError for a variable of neither numbers nor texts (compound, variable-length or unknown type)."""
    kind = "U" if variable.dtype is str else getattr(variable.dtype, "kind", "?")
    plain = isinstance(getattr(variable, "datatype", None), np.dtype) or variable.dtype is str
    if kind not in "iufU" or not plain:
        raise wrong(where, f"values of type {variable.dtype}", "numbers or texts")


def _check_names(group: Any, where: str) -> None:
    """Raise InputError for a repeated dimension, or a variable with a dimension's name and not that dimension alone."""
    for name, variable in group.variables.items():
        if len(set(variable.dimensions)) < len(variable.dimensions):
            raise wrong(f"{where}: {name}", f"dimensions {', '.join(variable.dimensions)}", "each of them once")
        if name in variable.dimensions and variable.dimensions != (name,):
            got = f"dimensions {', '.join(variable.dimensions)}"
            raise wrong(f"{where}: {name}", got, f"{name} alone, whose labels it has")
        if name in group.dimensions and name not in variable.dimensions:
            got = f"dimensions {', '.join(variable.dimensions) or '(none)'}"
            raise wrong(f"{where}: {name}", got, f"{name}, whose labels it has")


#: Maximum lengths of a label or name, and of units, which may be a product of many factors.
LONGEST_LABEL, LONGEST_UNITS = 500, 5_000

#: Integers in a file are below this.
_INTEGER_LIMIT = 2**63

#: Check of an attribute, with its description.
_Rule = tuple[Callable[[Any], bool], str]


def read_attributes(owner: Any, where: str) -> dict[str, Any]:
    """Return the attributes of a group or a variable; InputError if netCDF cannot read one."""
    try:
        return {name: owner.getncattr(name) for name in owner.ncattrs()}
    except (RuntimeError, AttributeError, UnicodeError) as error:
        raise wrong(where, f"an attribute that cannot be read ({error})", "attributes as dse wrote them") from None


def check_variable(attrs: Mapping[str, Any], is_text: bool, where: str) -> None:
    """Raise InputError for an attribute of a variable, of texts or numbers, of a wrong type."""
    _check_attributes(attrs, _rules("variables") | (_rules("texts") if is_text else {}), where)
    words = attrs.get("flag_meanings", "").split()
    for name in ("flag_values", "flag_masks"):
        if name in attrs and np.size(attrs[name]) != len(words):
            got = f"{np.size(attrs[name]):,} {name} and {len(words):,} flag_meanings"
            raise wrong(where, got, "a meaning for each")
    if len(max(words, key=len, default="")) > LONGEST_LABEL:
        raise wrong(f"{where}: attribute flag_meanings", "a longer word", f"words of at most {LONGEST_LABEL} letters")


def check_file(attrs: Mapping[str, Any], where: str) -> None:
    """Raise InputError for a global attribute of a wrong type."""
    _check_attributes(attrs, _rules("files"), where)
    counts = [len(attrs.get(name, "").split()) for name in ("best_designs", "best_values")]
    if counts[0] != counts[1] and {"best_designs", "best_values"} <= set(attrs):
        got = f"{counts[0]:,} best_designs and {counts[1]:,} best_values"
        raise wrong(where, got, "a value for each")


def _check_attributes(attrs: Mapping[str, Any], rules: Mapping[str, _Rule], where: str) -> None:
    """Raise InputError for an attribute that breaks its rule; those without one are not read."""
    for name, value in attrs.items():
        is_right, allowed = rules.get(name, (lambda _: True, ""))
        if not is_right(value):
            raise wrong(f"{where}: attribute {name}", _value_text(value), allowed)


def _value_text(value: Any) -> str:
    """Return the text of a value in an error; long texts and arrays are abbreviated."""
    if isinstance(value, str):
        return repr(value) if len(value) <= 100 else f"a text of {len(value):,} letters"
    return f"{np.asarray(value).reshape(-1)[:3].tolist()} of type {np.asarray(value).dtype}"


# --- of variables ------------------------------------------------------------------------------------------


def _is_text(value: Any) -> bool:
    """Return True for a text."""
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    """Return True for one integer or floating-point number, no array; not for truth values."""
    return np.ndim(value) == 0 and np.asarray(value).dtype.kind in "iuf"


def _is_at_most(letters: int) -> _Rule:
    """Return the rule, check and description, for a text of at most this many characters."""
    return (lambda value: _is_text(value) and len(value) <= letters), f"a text of at most {letters:,} letters"


def _are_integers(value: Any) -> bool:
    """Return True for an integer or a one-dimensional array of integers."""
    return np.ndim(value) <= 1 and np.asarray(value).dtype.kind in "iu"


# --- of files ---------------------------------------------------------------------------------------------


def _is_count(value: Any) -> bool:
    """Return True for a whole number of any numeric type, 0 or more and below 2^63."""
    return _is_number(value) and bool(np.isfinite(value)) and 0 <= int(value) < _INTEGER_LIMIT and int(value) == value


def _is_size(value: Any) -> bool:
    """Return True for a number of 0 or more, infinity included."""
    return _is_number(value) and not np.isnan(value) and bool(value >= 0)


def _document(is_key: Callable[[Any, Any], bool]) -> Callable[[Any], bool]:
    """Return a check for the text of a JSON object all of whose (key, value) pairs meet ``is_key``."""

    def is_right(value: Any) -> bool:
        document = _parsed(value)
        return isinstance(document, dict) and all(is_key(key, item) for key, item in document.items())

    return is_right


def _parsed(value: Any) -> Any:
    """Return the content of a JSON text; None if it is invalid or no text."""
    if not isinstance(value, str):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _is_plain(value: Any) -> bool:
    """Return True if a value is a finite number of JSON; Python accepts more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _are_designs(value: Any) -> bool:
    """Return True if a value is a text of indices of designs, separated by spaces."""
    words = value.split() if isinstance(value, str) else ["?"]
    return all(word.isascii() and word.isdecimal() and len(word) < 20 and int(word) < _INTEGER_LIMIT for word in words)


def _are_values(value: Any) -> bool:
    """Return True if a value is a text of numbers, separated by spaces."""
    try:
        return isinstance(value, str) and all(isinstance(float(word), float) for word in value.split())
    except ValueError:
        return False


#: What values are (``attributes.toml``) → (check, description).
_RULES: dict[str, _Rule] = {
    "text": (_is_text, "a text"),
    "label": _is_at_most(LONGEST_LABEL),
    "units": _is_at_most(LONGEST_UNITS),
    "title": _is_at_most(LONGEST_TITLE),
    "integers": (_are_integers, "whole numbers"),
    "number": (_is_number, "a number"),
    "truth_word": (lambda value: value in ("true", "false"), "true or false"),
    "encoding": (lambda value: value == "utf-8", "utf-8"),
    "count": (_is_count, "a whole number"),
    "size": (_is_size, "a number of 0 or more"),
    "design_indices": (_are_designs, "indices of designs with spaces between them"),
    "values": (_are_values, "numbers with spaces between them"),
    "counts_by_reason": (
        _document(lambda _, value: isinstance(value, int) and 0 <= value < _INTEGER_LIMIT),
        "a JSON object of counts by reason",
    ),
    "digests_by_entry": (_document(lambda _, value: isinstance(value, str)), "a JSON object of digests by entry"),
    "numbers_by_leaf": (_document(lambda _, value: _is_plain(value)), "a JSON object of numbers by leaf"),
    "object": (_document(lambda *_: True), "a JSON object"),
    "list": (lambda value: isinstance(_parsed(value), list), "a JSON list"),
}


@functools.cache
def _rules(owner: str) -> dict[str, _Rule]:
    """Return attribute → its rule, of ``variables``, ``texts`` (further ones of variables of texts) or ``files``."""
    table = toml.table(Path(__file__).with_name("attributes.toml"))
    return {name: _RULES[kind] for kind, names in table[owner].items() for name in names}
