"""Limits on the declarations of a results file, checked before any value is read.

netCDF compresses well: missing or constant values take no space in a file and all of it in memory. So the number of
declared values is limited by the file's size. Files of dse hold at most 570 values per byte: a chunk of 32,768 equal
values takes 57 bytes (zstd and its index entry); real values take a byte or more each.

Types of variables and of attributes (:mod:`dse.sweep.results.attributes`) are checked too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dse.sweep.results import attributes
from dse.sweep.results.attributes import LONGEST_LABEL
from dse.sweep.results.schema import OVERVIEW, wrong

#: Maximum values per byte of a file, and values that any file may declare.
VALUES_A_BYTE, FEW_VALUES = 600, 8 << 20

#: The same for characters of labels, which files of dse store as codes.
LETTERS_A_BYTE, FEW_LETTERS = 2_500, 16 << 20

#: Maximum size of a chunk in bytes, which is decompressed as a whole; files of dse have 256 KiB.
LARGEST_CHUNK = 256 << 20

#: Maximum number of variables of a file; files of dse have a few hundred.
MOST_VARIABLES = 2_000

#: Size of the reference to a variable-length text in a file, bytes.
_PLACE = 16

#: Number of texts that are read at once.
_AT_ONCE = 1 << 16


def check(file: Any, path: Path) -> int:
    """InputError if a file declares more or other than results can hold.

    Args:
        file: the open netCDF4 dataset; netCDF does not support a second one of the same file.
        path: of the file.

    Returns:
        Number of declared values.
    """
    groups = [file, *(one for name, one in file.groups.items() if name == OVERVIEW)]
    variables = [one for group in groups for one in group.variables.values()]
    if len(variables) > MOST_VARIABLES:
        raise wrong(str(path), f"{len(variables):,} variables", f"at most {MOST_VARIABLES:,}")
    for one in variables:
        _check_type(one, f"{path}: {one.name}")
    values = _check_size(path, variables, _values, "values", most_values(path))
    for one in variables:
        where = f"{path}: {one.name}"
        attributes.check_variable(attributes.read(one, where), one.dtype is str, where)
    _check_size(path, variables, _letters, "letters of labels", most_letters(path))
    for group in groups:
        _check_names(group, str(path))
        attributes.check_file(attributes.read(group, str(path)), str(path))
    return values


# --- sizes ------------------------------------------------------------------------------------------------


def most_values(path: Path) -> int:
    """Maximum number of values that a file may declare."""
    return max(FEW_VALUES, VALUES_A_BYTE * path.stat().st_size)


def most_letters(path: Path) -> int:
    """Maximum number of characters of labels that a file may declare."""
    return max(FEW_LETTERS, LETTERS_A_BYTE * path.stat().st_size)


def _check_size(path: Path, variables: list[Any], size_of: Callable[[Any, Path], int], what: str, most: int) -> int:
    """Sum of ``size_of`` over all variables; InputError above the limit."""
    total, largest = 0, (0, "")
    for one in variables:
        size = size_of(one, path)
        total, largest = total + size, max(largest, (size, one.name))
        if total > most:
            got = f"{total:,} {what} or more, {largest[0]:,} of them {largest[1]}, in {path.stat().st_size:,} bytes"
            raise wrong(str(path), got, f"{most:,} in a file of that size")
    return total


def _values(variable: Any, path: Path) -> int:
    """Number of values of a variable, or of one of its chunks if that is more."""
    chunk, count = variable.chunking() if variable.dimensions else None, math.prod(map(int, variable.shape))
    if isinstance(chunk, list):
        a_chunk = math.prod(map(int, chunk))
        size = a_chunk * (_PLACE if variable.dtype is str else variable.dtype.itemsize)
        if size > LARGEST_CHUNK:
            got, allowed = (f"{one / 2**20:,.0f} MiB" for one in (size, LARGEST_CHUNK))
            raise wrong(f"{path}: {variable.name}", f"chunks of {got}", f"at most {allowed}")
        count = max(count, a_chunk)
    return count


def _letters(variable: Any, path: Path) -> int:
    """Number of characters of a variable's texts or flag meanings, each as long as the longest."""
    count = math.prod(map(int, variable.shape))
    if variable.dtype is not str:
        words = variable.getncattr("flag_meanings").split() if "flag_meanings" in variable.ncattrs() else []
        return count * max(map(len, words), default=0)
    longest = 0
    for texts in _pieces(variable):
        longest = max(longest, max(map(len, texts), default=0))
        if longest > LONGEST_LABEL:
            got = f"a text of {longest:,} letters"
            raise wrong(f"{path}: {variable.name}", got, f"at most {LONGEST_LABEL} letters")
    return count * longest


def _pieces(variable: Any) -> Iterator[list[str]]:
    """Texts of a variable in pieces, the first text alone: all unwritten texts have its length."""
    shape = tuple(map(int, variable.shape))
    if not all(shape):
        return
    yield [str(variable[(0,) * len(shape)] if shape else variable[...])]
    *outer, last = shape or (1,)
    for place in np.ndindex(*outer) if shape else ():
        for start in range(0, last, _AT_ONCE):
            yield [str(one) for one in np.ravel(variable[(*place, slice(start, start + _AT_ONCE))])]


# --- types ------------------------------------------------------------------------------------------------


def _check_type(variable: Any, where: str) -> None:
    """InputError for a variable of neither numbers nor texts (compound, variable-length or unknown type)."""
    kind = "U" if variable.dtype is str else getattr(variable.dtype, "kind", "?")
    plain = isinstance(getattr(variable, "datatype", None), np.dtype) or variable.dtype is str
    if kind not in "iufU" or not plain:
        raise wrong(where, f"values of type {variable.dtype}", "numbers or texts")


def _check_names(group: Any, where: str) -> None:
    """InputError for a repeated dimension, and for a coordinate variable with other dimensions than its own."""
    for name, variable in group.variables.items():
        if len(set(variable.dimensions)) < len(variable.dimensions):
            raise wrong(f"{where}: {name}", f"dimensions {', '.join(variable.dimensions)}", "each of them once")
        if name in variable.dimensions and variable.dimensions != (name,):
            got = f"dimensions {', '.join(variable.dimensions)}"
            raise wrong(f"{where}: {name}", got, f"{name} alone, whose labels it has")
        if name in group.dimensions and name not in variable.dimensions:
            got = f"dimensions {', '.join(variable.dimensions) or '(none)'}"
            raise wrong(f"{where}: {name}", got, f"{name}, whose labels it has")
