"""What a results file declares, looked at before a value of it is read.

netCDF packs well: what is never written, or one number over and over, takes no room in a file and all of it in memory.
So the values that a file declares are bounded by its bytes. No file of ours can hold more than 570 values a byte: a
chunk of 32,768 equal ones takes 57 bytes, zstd and its place in the index together; real ones take a byte or more each.

Types are looked at too: of variables, and of attributes (:mod:`dse.sweep.results.attributes`).
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

#: Values that a byte of a file may stand for; values that any file may declare.
VALUES_A_BYTE, FEW_VALUES = 600, 8 << 20

#: The same of letters of labels, which codes stand for in our files.
LETTERS_A_BYTE, FEW_LETTERS = 2_500, 16 << 20

#: Bytes of a chunk, which is unpacked as a whole however little of it is asked for; ours have 256 KiB.
LARGEST_CHUNK = 256 << 20

#: Variables of a file; ours have some hundred.
MOST_VARIABLES = 2_000

#: Bytes of the place of a text of any length in a file.
_PLACE = 16

#: Texts that are read at once.
_AT_ONCE = 1 << 16


def check(file: Any, path: Path) -> int:
    """That a file declares what results may hold; else an InputError.

    Args:
        file: the netCDF4 dataset of it, open; no second one is opened, for netCDF does not take it well.
        path: of the file.

    Returns:
        How many values it has.
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
    """Values that a file may declare."""
    return max(FEW_VALUES, VALUES_A_BYTE * path.stat().st_size)


def most_letters(path: Path) -> int:
    """Letters of labels that a file may declare."""
    return max(FEW_LETTERS, LETTERS_A_BYTE * path.stat().st_size)


def _check_size(
    path: Path, variables: list[Any], size_of: Callable[[Any, Path], int], what: str, most: int
) -> int:
    """What all variables have together, which is within the limit; ``size_of`` gives what one has, in a file."""
    total, largest = 0, (0, "")
    for one in variables:
        size = size_of(one, path)
        total, largest = total + size, max(largest, (size, one.name))
        if total > most:
            got = f"{total:,} {what} or more, {largest[0]:,} of them {largest[1]}, in {path.stat().st_size:,} bytes"
            raise wrong(str(path), got, f"{most:,} in a file of that size")
    return total


def _values(variable: Any, path: Path) -> int:
    """Values of a variable, or of one of its chunks where that has more."""
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
    """Letters of the texts of a variable, or of those that its codes stand for, each as long as the longest."""
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
    """The texts of a variable, some at once; the first one alone, for where none is written all are as long."""
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
    """That a variable holds numbers or texts: nothing compound, of a length of its own, or unknown to netCDF."""
    kind = "U" if variable.dtype is str else getattr(variable.dtype, "kind", "?")
    plain = isinstance(getattr(variable, "datatype", None), np.dtype) or variable.dtype is str
    if kind not in "iufU" or not plain:
        raise wrong(where, f"values of type {variable.dtype}", "numbers or texts")


def _check_names(group: Any, where: str) -> None:
    """That no dimension is twice in a variable, and that one with the name of a dimension is along that alone."""
    for name, variable in group.variables.items():
        if len(set(variable.dimensions)) < len(variable.dimensions):
            raise wrong(f"{where}: {name}", f"dimensions {', '.join(variable.dimensions)}", "each of them once")
        if name in variable.dimensions and variable.dimensions != (name,):
            got = f"dimensions {', '.join(variable.dimensions)}"
            raise wrong(f"{where}: {name}", got, f"{name} alone, whose labels it has")
        if name in group.dimensions and name not in variable.dimensions:
            got = f"dimensions {', '.join(variable.dimensions) or '(none)'}"
            raise wrong(f"{where}: {name}", got, f"{name}, whose labels it has")
