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
    package = Path(__file__).parents[1]
    files = [package / "design.py", package / "evaluate.py"]
    return files_digest([*files, *(file for room in ("types", "model", "sweep") for file in sources(package / room))])


@functools.cache
def search_digest() -> str:
    """SHA-256 of those and of the source files of searches."""
    folder = Path(__file__).parents[1] / "search"
    return files_digest(sources(folder) + sources(folder / "methods"), code_digest())


def sources(folder: Path) -> list[Path]:
    """The Python files of a folder."""
    return sorted(folder.glob("*.py"))


def files_digest(files: Iterable[Path], begin: str = "") -> str:
    """SHA-256 of names and contents of files."""
    total = hashlib.sha256(begin.encode())
    for file in sorted(files):
        total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


def unique_suffix() -> str:
    """Ending of a temporary name that no other process uses, here or on another machine."""
    return f"{socket.gethostname()}.{os.getpid()}.tmp"
