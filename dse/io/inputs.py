"""Reading of user files: regular files up to a size limit."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from dse.errors import InputError
from dse.io.files import strange_kind

#: Maximum bytes of a specification or a file of the catalogue.
MAX_TEXT_BYTES = 4 << 20

#: Maximum bytes of a table of measurements, unpacked.
MAX_TABLE_BYTES = 256 << 20

#: Maximum bytes of a results file.
MAX_RESULTS_BYTES = 1 << 40

#: Maximum bytes of an unpacked file for each packed one, beyond the first MiB: real traces and tables have 5 to 20.
_UNPACKED = 64


def check_input(path: str | Path, limit: int, allowed: str) -> Path:
    """Return the path of a file, after a check that it is regular and of at most ``limit`` bytes.

    Args:
        path: of the file.
        limit: maximum bytes.
        allowed: kind of the file, for errors.

    Raises:
        InputError: for a file of another kind or above the limit.
        OSError: for a path without a file.
    """
    path = Path(path)
    if kind := strange_kind(path):
        raise InputError(str(path), kind, allowed, "give the path of a file; save what a pipe or device gives first")
    if path.stat().st_size > limit:
        raise _too_large(path, limit, allowed)
    return path


def content(path: str | Path, limit: int, allowed: str, unpack: bool = False) -> bytes:
    """Return the bytes of a regular file, unpacked where that is wanted.

    Args:
        path: of the file.
        limit: bytes, unpacked.
        allowed: kind of the file, for errors.
        unpack: whether to unpack a file with the ending ``.gz``.

    Raises:
        InputError: for a file of another kind, above the limit, or that unpacks to far more than it has.
    """
    path = check_input(path, limit, allowed)
    max_bytes = max_unpacked_bytes(path, limit, allowed) if unpack else limit
    with gzip.open(path) if unpack and path.suffix == ".gz" else path.open("rb") as file:
        unpacked_bytes = file.read(max_bytes + 1)
    if len(unpacked_bytes) > max_bytes:
        raise archive_error(path, allowed) if max_bytes < limit else _too_large(path, limit, allowed)
    return unpacked_bytes


def max_unpacked_bytes(path: Path, limit: int, allowed: str) -> int:
    """Return the most bytes that a file may unpack to, in proportion to its size where it ends in ``.gz``.

    Args:
        path: of the file.
        limit: maximum bytes of any file.
        allowed: kind of the file, for errors.

    Raises:
        InputError: for a packed file that states more bytes.
    """
    if path.suffix != ".gz":
        return limit
    max_bytes = min(limit, (1 << 20) + _UNPACKED * path.stat().st_size)
    with path.open("rb") as file:
        file.seek(-min(4, path.stat().st_size), 2)
        if max_bytes < int.from_bytes(file.read(), "little") and max_bytes < limit:  # the size that ends a packed file
            raise archive_error(path, allowed)
    return max_bytes


def archive_error(path: Path, allowed: str) -> InputError:
    """Return the error for a packed file that is cut or unpacks to far more than it has."""
    got = f"an archive that is cut, or {_UNPACKED} times as long when it is unpacked"
    return InputError(str(path), got, allowed, "copy the file again, or give it unpacked")


def text(
    path: str | Path,
    allowed: str,
    fix: str = "check the path",
    display_name: str = "",
    limit: int = MAX_TEXT_BYTES,
    unpack: bool = False,
) -> str:
    """Return the text of a regular UTF-8 file.

    Args:
        path: of the file.
        allowed: kind of the file, for errors.
        fix: fix for a file that cannot be read.
        display_name: name of the file in errors, by default its path.
        limit: bytes, unpacked.
        unpack: whether to unpack a file with the ending ``.gz``.

    Raises:
        InputError: for a file that cannot be read, is too large, or is not UTF-8.
    """
    try:
        return content(path, limit, allowed, unpack).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        got = getattr(error, "strerror", None) or str(error)
        raise InputError(display_name or str(path), got, allowed, fix) from None
    except UnicodeDecodeError as error:
        raise InputError(
            display_name or str(path), f"byte {error.start} is not UTF-8", allowed, "save it as UTF-8"
        ) from None


def _too_large(path: Path, limit: int, allowed: str) -> InputError:
    """Return the error for a file above the limit in bytes."""
    return InputError(
        str(path),
        f"more than {limit / 2**20:,.0f} MiB",
        f"{allowed} of at most {limit / 2**20:,.0f} MiB",
        "check that it is the right file",
    )
