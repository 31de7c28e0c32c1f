"""Files: their origin, temporary names, and checksums."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import socket
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.io.interruption import uninterrupted

#: Mark of every file written by dse.
MARK = "Written by dse, which may replace this file"

#: Kinds of files that are neither read nor written, in words.
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}

_SEAL = f"\n# {MARK}\n# sha256 "
_SEALED = re.compile(rb"# sha256 [0-9a-f]{64}")
_SEAL_LENGTH = len(_SEAL) + 64 + 1


#: Folder of the package.
_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def distribution_folder(folder: str) -> Path:
    """Return the path of a folder of the distribution, in the installed package or next to it in a checkout.

    Raises:
        InputError: for a folder that is in neither place.
    """
    for candidate in (_PACKAGE / folder, _PACKAGE.parent / folder):
        if candidate.is_dir():
            return candidate
    raise InputError(folder, "no such folder", str(_PACKAGE.parent / folder), "reinstall the package")


@functools.cache
def code_digest() -> str:
    """Return the SHA-256 (hexadecimal) of the source files that determine the results of a sweep."""
    return files_digest(result_sources())


def result_sources() -> list[Path]:
    """Return the paths of the source files that determine the results of a sweep."""
    rooms = ("io", "types", "designs", "model", "equations", "doors", "spec", "sweep")
    return [*_PACKAGE.glob("*.py"), *(file for room in rooms for file in sources(_PACKAGE / room))]


@functools.cache
def search_digest() -> str:
    """Return the SHA-256 (hexadecimal) of the source files that determine the results of a search."""
    return files_digest(sources(_PACKAGE / "optimizers"), code_digest())


def sources(folder: Path) -> list[Path]:
    """Return the paths of the Python files of a folder and its subfolders, and of their tables in TOML, sorted."""
    return sorted(path for pattern in ("*.py", "*.toml") for path in folder.rglob(pattern))


@functools.cache
def folder_digest(folder: Path) -> str:
    """Return the SHA-256 (hexadecimal) of the source files of a folder and its subfolders."""
    return files_digest(sources(folder))


def folder_of(function: Callable[..., Any]) -> Path:
    """Return the folder of the source file of a function, or of the one that a partial calls."""
    while isinstance(function, functools.partial):
        function = function.func
    return Path(function.__code__.co_filename).parent


def files_digest(files: Iterable[Path], begin: str = "") -> str:
    """Return the SHA-256 (hexadecimal) of names and contents of files, and of a text ``begin`` before them."""
    total = hashlib.sha256(begin.encode())
    for file in sorted(files):
        total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


def unique_suffix() -> str:
    """Return the suffix of temporary names of this process (``HOST.PID.tmp``), unlike those of others."""
    return f"{socket.gethostname()}.{os.getpid()}.tmp"


def strange_kind(path: Path) -> str:
    """Return the kind of a path that is not a regular file in words, "" for a regular file.

    Raises:
        OSError: for a path without a file.
    """
    mode = path.stat().st_mode
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no regular file")


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield the path of a new empty file next to ``path``, renamed to it when the block succeeds, else removed."""
    partial = path.with_name(f".{path.name}.{unique_suffix()}")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # never a link laid by others
    try:
        yield partial
        with uninterrupted():
            os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


# Seals
# netCDF and zip files may be followed by any bytes: a few lines at the end state the writer and the checksum of a file,
# and are verified before a library reads it.


def digest(path: Path) -> str:
    """Return the SHA-256 (hexadecimal) of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(path: Path, about: str = "") -> None:
    """Append a line to a file with its checksum.

    Args:
        path: of the file.
        about: text that the checksum includes, for example a name that the content depends on.
    """
    ending = _seal(_digest_before(path, path.stat().st_size, about))
    with path.open("ab") as file:
        file.write(ending)


def is_sealed(path: Path, about: str = "") -> bool | None:
    """True where a file is as it was sealed, False where it has changed, None without a seal.

    Args:
        path: of the file.
        about: as of :func:`seal`.
    """
    if strange_kind(path):  # a pipe would block
        return None
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - 2 * _SEAL_LENGTH))
        end = file.read()
    if MARK.encode() not in end and not _SEALED.search(end):
        return None
    begin = size - _SEAL_LENGTH
    return begin >= 0 and end.endswith(_seal(_digest_before(path, begin, about)))


def bears_mark(path: Path) -> bool:
    """True for a file with dse's mark at its beginning or end."""
    with path.open("rb") as file:
        begin = file.read(4096)
        file.seek(max(0, path.stat().st_size - 8192))
        end = file.read()
    return any(MARK.encode() in piece or _SEALED.search(piece) for piece in (begin, end))


def _seal(checksum: str) -> bytes:
    """Return the line, as bytes, that seals a file of this checksum."""
    return f"{_SEAL}{checksum}\n".encode()


def _digest_before(path: Path, stop: int, about: str) -> str:
    """Return the SHA-256 (hexadecimal) of a text and the first ``stop`` bytes of a file."""
    total, remaining = hashlib.sha256(about.encode()), stop
    with path.open("rb") as file:
        while remaining > 0 and (piece := file.read(min(remaining, 1 << 20))):
            total.update(piece)
            remaining -= len(piece)
    return total.hexdigest()
