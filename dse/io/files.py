"""Files: which code made them, which process is writing them, whether they are whole and as they were written."""

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
from dse.io.interruption import changing

#: What every file of dse's own making says of itself.
MARK = "Written by dse, which may replace this file"

#: Kinds of files that are neither read nor written, in words.
_KINDS = {
    stat.S_IFDIR: "a folder", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip

_SEAL = f"\n# {MARK}\n# sha256 "
_SEALED = re.compile(rb"# sha256 [0-9a-f]{64}")
_SEAL_LENGTH = len(_SEAL) + 64 + 1


#: The folder of the package.
_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def shipped(folder: str) -> Path:
    """A folder that comes with the package: inside it when installed, next to it in a checkout."""
    for found in (_PACKAGE / folder, _PACKAGE.parent / folder):
        if found.is_dir():
            return found
    raise InputError(folder, "no such folder", str(_PACKAGE.parent / folder), "reinstall the package")


@functools.cache
def code_digest() -> str:
    """SHA-256 of the source files that decide what a sweep computes."""
    return files_digest(computing())


def computing() -> list[Path]:
    """Those source files: the doors, all that they import, and the sweep."""
    rooms = ("io", "types", "designs", "model", "doors", "spec", "sweep")
    return [*_PACKAGE.glob("*.py"), *(file for room in rooms for file in sources(_PACKAGE / room))]


@functools.cache
def search_digest() -> str:
    """SHA-256 of those and of the source files of searches."""
    return files_digest(sources(_PACKAGE / "search"), code_digest())


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder and those in it."""
    return sorted(folder.rglob("*.py"))


@functools.cache
def folder_digest(folder: Path) -> str:
    """SHA-256 of the Python files of a folder."""
    return files_digest(sources(folder))


def folder_of(function: Callable[..., Any]) -> Path:
    """The folder of the file that a function is written in."""
    while isinstance(function, functools.partial):
        function = function.func
    return Path(function.__code__.co_filename).parent


def files_digest(files: Iterable[Path], begin: str = "") -> str:
    """SHA-256 of names and contents of files."""
    total = hashlib.sha256(begin.encode())
    for file in sorted(files):
        total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


def unique_suffix() -> str:
    """Ending of a temporary name that no other process uses, here or on another machine."""
    return f"{socket.gethostname()}.{os.getpid()}.tmp"


def strange_kind(path: Path) -> str:
    """What a path is in words where it is no regular file, else an empty text; OSError where there is nothing."""
    mode = path.stat().st_mode
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "no regular file")


@contextlib.contextmanager
def whole_or_absent(path: Path) -> Iterator[Path]:
    """A new file next to ``path`` that takes its name when the block succeeds, else is removed."""
    partial = path.with_name(f".{path.name}.{unique_suffix()}")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))  # ours: no link that someone has laid
    try:
        yield partial
        with changing():
            os.replace(partial, path)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


# --- seals ------------------------------------------------------------------------------------------------
# netCDF and zip files may be followed by anything: a few lines at the end tell who has written a file and what its
# checksum is, before a library is given a byte of it.


def digest(path: Path) -> str:
    """SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def seal(path: Path, about: str = "") -> None:
    """End a file with its checksum, which holds ``about`` too: a name, say, under which alone it is what it is."""
    ending = _seal(_digest_before(path, path.stat().st_size, about))
    with path.open("ab") as file:
        file.write(ending)


def is_sealed(path: Path, about: str = "") -> bool | None:
    """Whether a file is as it was sealed; None where it bears no seal, not even a broken one."""
    if strange_kind(path):  # a pipe would be waited for
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
    """Whether a file says at its beginning or its end that dse has written it."""
    with path.open("rb") as file:
        begin = file.read(4096)
        file.seek(max(0, path.stat().st_size - 8192))
        end = file.read()
    return any(MARK.encode() in piece or _SEALED.search(piece) for piece in (begin, end))


def _seal(checksum: str) -> bytes:
    return f"{_SEAL}{checksum}\n".encode()


def _digest_before(path: Path, stop: int, about: str) -> str:
    """SHA-256 of a text and the first ``stop`` bytes of a file."""
    total, left = hashlib.sha256(about.encode()), stop
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(min(left, 1 << 20))):
            total.update(piece)
            left -= len(piece)
    return total.hexdigest()
