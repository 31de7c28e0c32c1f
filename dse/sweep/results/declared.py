"""What a results file declares, looked at before a value of it is read.

netCDF packs well: what is never written, or one number over and over, takes no room in a file and all of it in memory.
So the bytes that a file declares are bounded by the bytes that it has. Results of ours pack 2 to 50 times. No chunk of
theirs could pack more than 3,700 times: 32,768 float64 of one number take 71 bytes of a file, zstd and index together
(float32: 1,940 times).

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

#: Bytes in memory that a byte of a file may stand for; bytes that any file may declare.
MOST_PACKED, ALWAYS = 4_000, 64 << 20

#: Bytes of a chunk, which is unpacked as a whole however little of it is asked for; ours have 256 KiB.
LARGEST_CHUNK = 256 << 20

#: Variables of a file; ours have some hundred.
MOST_VARIABLES = 2_000

#: Bytes of a text in memory for each of its letters; of the place of a text of any length in a file.
_LETTER, _PLACE = 4, 16

#: Bytes of texts that are read at once, whatever each of them is.
_TEXTS_AT_ONCE = 64 << 20


def check(file: Any, path: Path) -> float:
    """That a file declares what results may hold; else an InputError.

    Args:
        file: the netCDF4 dataset of it, open; no second one is opened, for netCDF does not take it well.
        path: of the file.

    Returns:
        Bytes of all its values in memory.
    """
    groups = [file, *(one for name, one in file.groups.items() if name == OVERVIEW)]
    variables = [one for group in groups for one in group.variables.values()]
    if len(variables) > MOST_VARIABLES:
        raise wrong(str(path), f"{len(variables):,} variables", f"at most {MOST_VARIABLES:,}")
    for one in variables:
        _check_type(one, f"{path}: {one.name}")
    stored = _check_size(path, variables, _stored)
    for one in variables:
        where = f"{path}: {one.name}"
        attributes.check_variable(attributes.read(one, where), one.dtype is str, where)
    texts = _check_size(path, variables, _texts)
    for group in groups:
        _check_names(group, str(path))
        attributes.check_file(attributes.read(group, str(path)), str(path))
    return stored + texts


# --- sizes ------------------------------------------------------------------------------------------------


def limit(path: Path) -> int:
    """Bytes in memory that a file may declare."""
    return max(ALWAYS, MOST_PACKED * path.stat().st_size)


def _check_size(path: Path, variables: list[Any], size_of: Callable[[Any, Path], float]) -> float:
    """The bytes of all variables, which are within the limit; ``size_of`` gives those of one, in a file."""
    most, total = limit(path), 0.0
    largest = (0.0, "")
    for one in variables:
        size = size_of(one, path)
        total, largest = total + size, max(largest, (size, one.name))
        if total > most:
            got = f"{_mib(total)} or more in memory, {_mib(largest[0])} of it {largest[1]}, in a file of"
            raise wrong(str(path), f"{got} {path.stat().st_size:,} bytes",
                         f"{_mib(most)} of such a file: results pack less than {MOST_PACKED:,}-fold")  # fmt: skip
    return total


def _mib(size: float) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _stored(variable: Any, path: Path) -> float:
    """Bytes of a variable, or of one of its chunks where that is larger."""
    chunk, count = variable.chunking() if variable.dimensions else None, math.prod(map(int, variable.shape))
    each = _PLACE if variable.dtype is str else variable.dtype.itemsize
    if isinstance(chunk, list):
        a_chunk = math.prod(map(int, chunk))
        if (size := a_chunk * each) > LARGEST_CHUNK:
            raise wrong(f"{path}: {variable.name}", f"chunks of {_mib(size)}", f"at most {_mib(LARGEST_CHUNK)}")
        count = max(count, a_chunk)
    return float(count) * each


def _texts(variable: Any, path: Path) -> float:
    """Bytes of the texts of a variable, or of those that its codes stand for."""
    if variable.dtype is not str:
        words = variable.getncattr("flag_meanings").split() if "flag_meanings" in variable.ncattrs() else []
        return float(_LETTER * math.prod(map(int, variable.shape)) * max(map(len, words), default=0))
    longest = 0
    for texts in _pieces(variable, max(1, _TEXTS_AT_ONCE // max(path.stat().st_size, 1))):
        longest = max(longest, max(map(len, texts), default=0))
        if longest > LONGEST_LABEL:
            got = f"a text of {longest:,} letters"
            raise wrong(f"{path}: {variable.name}", got, f"at most {LONGEST_LABEL} letters")
    return float(_LETTER * math.prod(map(int, variable.shape)) * longest)


def _pieces(variable: Any, most: int) -> Iterator[list[str]]:
    """The texts of a variable, so many at once: each may be as long as the file, or longer where it was not written."""
    if not variable.dimensions:
        yield [str(variable[...])]
        return
    shape = tuple(map(int, variable.shape))
    along = max(1, most // max(math.prod(shape[1:]), 1))
    if not all(shape):
        return
    if math.prod(shape[1:]) <= most:
        for start in range(0, shape[0], along):
            yield [str(one) for one in np.ravel(variable[start : start + along])]
        return
    for place in np.ndindex(*shape[:-1]):
        for start in range(0, shape[-1], most):
            yield [str(one) for one in np.ravel(variable[(*place, slice(start, start + most))])]


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
