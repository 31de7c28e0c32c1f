"""Names of files: which code made them, and which process is writing them."""

from __future__ import annotations

import functools
import hashlib
import os
import socket
from pathlib import Path


@functools.cache
def code_digest() -> str:
    """SHA-256 of the source files that decide what a sweep computes."""
    package = Path(__file__).parents[1]
    files = [package / "design.py", package / "evaluate.py", *sorted((package / "types").glob("*.py"))]
    files += [*(package / "model").glob("*.py"), *(package / "sweep").glob("*.py")]
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


def unique_suffix() -> str:
    """Ending of a temporary name that no other process uses, here or on another machine."""
    return f"{socket.gethostname()}.{os.getpid()}.tmp"
