"""Labelled results to netCDF4, compressed; whole or not there, and the same bytes for the same results.

Every chunk has a checksum of its own (fletcher32), and behind all that netCDF reads the file has one of the whole,
which is looked at before a library is given the file. A note next to it says when, where and in what time it was made.

What a file holds, and how texts are coded: :mod:`dse.sweep.results.files`.

zstd writes several times faster than zlib. netCDF4's wheels bring its filter, and so do most builds of the C library
since 4.9; a reader without it cannot open the file. ``auto`` takes zstd where this machine can write and read it,
and zlib level 1, which every reader knows, elsewhere.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import socket
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np

from dse.designs import all_leaves
from dse.errors import InputError
from dse.io import outputs
from dse.io.files import is_sealed, seal
from dse.sweep.results import declared
from dse.sweep.results.constants import constant_dims
from dse.sweep.results.files import COMPRESSION
from dse.sweep.results.labelled import Labelled, Variable
from dse.sweep.results.schema import CONSTANT_ALONG, OVERVIEW
from dse.types import choice_name

_CHUNK = 1 << 15  # values of a chunk on disk: shuffled and compressed within the processor's cache
_FILTERS: dict[str, dict[str, Any]] = {
    "zstd": {"compression": "zstd", "complevel": 1},  # netCDF4 shuffles for zlib alone
    "zlib": {"compression": "zlib", "complevel": 1, "shuffle": True},
    "none": {},
}


def write(
    results: Labelled, path: Path, compression: str = "auto", force: bool = False, inputs: Iterable[str | Path] = ()
) -> None:
    """Write results to a netCDF4 file that is whole or not there.

    See :func:`dse.io.outputs.check_output` for what is replaced. Raises OSError where the disk refuses.
    """
    algorithm = usable(compression)
    data = {name: _reduced(v) if name in results.reducible else v for name, v in results.data.items()}
    results = dataclasses.replace(results, data=data, attrs=results.attrs | {COMPRESSION: algorithm})
    with outputs.replacing(path, force, inputs) as partial:
        cache = netCDF4.get_chunk_cache()
        try:
            netCDF4.set_chunk_cache(_CHUNK * 8)  # one chunk a variable: they are written once, in order
            with netCDF4.Dataset(partial, "w", format="NETCDF4") as file:
                _fill(file, results, _FILTERS[algorithm] | {"fletcher32": True})
        except RuntimeError as error:  # netCDF's own, whatever the disk has said
            raise OSError(f"{_disk_says(partial)}: {error}") from error
        finally:
            netCDF4.set_chunk_cache(*cache)
        seal(partial)


def write_making(path: Path, seconds: dict[str, float], force: bool = False) -> None:
    """Write the note of when, where and in how many seconds results were made."""
    note = {"created": datetime.now(UTC).isoformat(timespec="seconds"), "host": socket.gethostname()}
    outputs.write_note(path, note | {"seconds": {name: round(value, 3) for name, value in seconds.items()}}, force)


def created(path: Path) -> str:
    """Return the time at which results were made, ISO 8601 in UTC, from their note or else the date of the file."""
    noted = outputs.note_of(path).get("created")
    return str(noted or datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds"))


def is_intact(path: Path) -> bool | None:
    """Return True if a results file is as it was written, False if not; None without a file of dse."""
    return is_sealed(path) if path.is_file() else None


def attributes(path: Path) -> dict[str, Any]:
    """Return the global attributes of a results file; empty without a file, or for one that no run wrote."""
    try:
        with netCDF4.Dataset(path) as file:
            declared.check(file, path)
            return {name: file.getncattr(name) for name in file.ncattrs()}
    except (OSError, RuntimeError, InputError):
        return {}


def _disk_says(path: Path) -> str:
    """Return the reason, in words, why a file cannot be written to, from a write of 64 KiB to its end."""
    try:
        with path.open("ab") as file:
            file.write(b"\0" * (1 << 16))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.strerror or str(error)
    return "netCDF cannot write"


# --- compression ------------------------------------------------------------------------------------------


def usable(compression: str) -> str:
    """Return the name of the compression, ``auto`` resolved; InputError for zstd where it does not work."""
    if compression == "auto":
        return "zstd" if _zstd_works() else "zlib"
    if compression == "zstd" and not _zstd_works():
        raise InputError(
            "output.compression",
            "zstd, which this netCDF library cannot write",
            "auto, zlib or none",
            'write compression = "auto"',
        )
    return compression


@functools.cache
def _zstd_works() -> bool:
    """Return True if a variable compressed with zstd can be written here and read again."""
    if not getattr(netCDF4, "__has_zstandard_support__", False):
        return False
    values = np.arange(1024, dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder:
        try:
            with netCDF4.Dataset(Path(folder) / "try.nc", "w") as file:
                file.createDimension("x", len(values))
                file.createVariable("x", "f4", ("x",), **_FILTERS["zstd"])[:] = values
            with netCDF4.Dataset(Path(folder) / "try.nc") as file:
                return bool(np.array_equal(file["x"][:], values))
        except (RuntimeError, OSError):
            return False


# --- the content of a file --------------------------------------------------------------------------------


def _reduced(variable: Variable) -> Variable:
    """Return a variable without the dimensions along which it is constant."""
    dims = constant_dims(variable.dims, variable.values)
    if not dims:
        return variable
    position = tuple(0 if dim in dims else slice(None) for dim in variable.dims)
    rest = tuple(dim for dim in variable.dims if dim not in dims)
    return Variable(rest, variable.values[position], variable.attrs | {CONSTANT_ALONG: " ".join(dims)})


def _fill(file: netCDF4.Dataset, results: Labelled, filters: dict[str, Any]) -> None:
    """Write results into an open file or group."""
    file.set_fill_off()
    for name, size in results.sizes.items():
        file.createDimension(name, size)
    for name, variable in results.coords.items():
        _put(file, name, variable, filters)
    for name, variable in results.data.items():
        names = [n for n, v in results.coords.items() if n not in v.dims and set(v.dims) <= set(variable.dims)]
        coordinates = {"coordinates": " ".join(names)} if names else {}
        _put(file, name, variable._replace(attrs=variable.attrs | coordinates), filters)
    file.setncatts(results.attrs)
    if results.overview:
        _fill(file.createGroup(OVERVIEW), results.overview, filters)


def _put(file: netCDF4.Dataset, name: str, variable: Variable, filters: dict[str, Any]) -> None:
    """Write a variable with its attributes into an open file or group."""
    dims, values, attrs = _on_disk(name, variable)
    if values.dtype.kind == "U":
        file_variable = file.createVariable(name, str, dims)
        values = values.astype(object)
    else:
        missing = np.float32(np.nan) if values.dtype.kind == "f" and np.isnan(values).any() else False
        layout = filters | {"chunksizes": _chunk_shape(values.shape)} if values.size > 1 else {}
        file_variable = file.createVariable(name, values.dtype, dims, fill_value=missing, **layout)
        file_variable.set_auto_maskandscale(False)
    file_variable.setncatts(attrs)
    file_variable[...] = values


def _on_disk(name: str, variable: Variable) -> Variable:
    """Return a variable as stored: truth values as bytes, texts along dimensions as the codes of CF flags."""
    kind = variable.values.dtype.kind
    if kind == "b":
        return variable._replace(values=variable.values.view(np.int8), attrs=variable.attrs | {"dtype": "bool"})
    return _as_flags(variable) if kind == "U" and variable.dims and name not in variable.dims else variable


def _as_flags(variable: Variable) -> Variable:
    """Return a variable's texts as int32 codes, those of an enumeration as it has them; -1 stands for no text."""
    words, position = np.unique(variable.values, return_inverse=True)
    enum = all_leaves().get(variable.attrs.get("path", ""), {}).get("enum", ())
    enum_codes = {choice_name(member): int(member) for member in enum}
    codes = enum_codes or {word: text_codes for text_codes, word in enumerate(word for word in words if word)}
    text_codes = np.array([codes[word] if word else -1 for word in words], np.int32)[
        position.reshape(variable.values.shape)
    ]
    flags = {"flag_values": np.array([*codes.values()], np.int32), "flag_meanings": " ".join(codes)}
    return Variable(variable.dims, text_codes, variable.attrs | flags)


def _chunk_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a chunk: whole trailing dimensions, up to about 32,768 values."""
    chunk: list[int] = []
    remaining = _CHUNK
    for size in reversed(shape):
        chunk.append(max(1, min(size, remaining)))
        remaining //= chunk[-1]
    return tuple(reversed(chunk))
