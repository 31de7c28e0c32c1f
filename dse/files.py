"""Names of files: which code made them, and which process is writing them."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from collections.abc import Iterable
from pathlib import Path


@functools.cache
def code_digest() -> str:
    """SHA-256 of the source files that decide what a sweep computes."""
    package = Path(__file__).parent
    files = [package / f"{name}.py" for name in ("designs", "equations", "evaluation", "study")]
    rooms = ("types", "model", "spec", "sweep")
    return files_digest([*files, *(file for room in rooms for file in sources(package / room))])


@functools.cache
def search_digest() -> str:
    """SHA-256 of those and of the source files of searches."""
    return files_digest(sources(Path(__file__).parent / "search"), code_digest())


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder and those in it."""
    return sorted(folder.rglob("*.py"))


@functools.cache
def folder_digest(folder: Path) -> str:
    """SHA-256 of the Python files of a folder."""
    return files_digest(sources(folder))


def files_digest(files: Iterable[Path], begin: str = "") -> str:
    """SHA-256 of names and contents of files."""
    total = hashlib.sha256(begin.encode())
    for file in sorted(files):
        total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


def unique_suffix() -> str:
    """Ending of a temporary name that no other process uses, here or on another machine."""
    return f"{socket.gethostname()}.{os.getpid()}.tmp"
