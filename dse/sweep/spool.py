"""Finished blocks on disk, so that an interrupted sweep goes on where it stopped.

A part's file name holds the hash of everything its content depends on and its range. It is
written under another name and then renamed: what is there is whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import zipfile
from pathlib import Path

import numpy as np

from dse.errors import InputError
from dse.sweep.keep import Part


def code_digest() -> str:
    """SHA-256 of the source files that decide what a sweep computes."""
    package = Path(__file__).parents[1]
    files = [package / "evaluate.py", package / "types.py"]
    files += [*(package / "model").glob("*.py"), *(package / "sweep").glob("*.py")]
    total = hashlib.sha256()
    for file in sorted(files):
        total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()


class Spool:
    """The parts of one sweep in ``<output>.parts/``."""

    def __init__(self, output: Path, key: str) -> None:
        self.folder = output.with_name(output.name + ".parts")
        self.key = key

    def prepare(self, output: Path, fresh: bool) -> None:
        """Make the folder; one that cannot be written to is an InputError, before anything is computed."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f"probe.{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise InputError(
                f"output {output}", error.strerror or str(error), "a folder that can be written to",
                "give another file with --output",
            ) from None  # fmt: skip
        if output.is_dir():
            raise InputError(f"output {output}", "a folder", "a file name", "add a name such as results.nc")
        if fresh:
            self._clear()

    def _clear(self) -> None:
        for file in (*self.folder.glob("*.npz"), *self.folder.glob("*.tmp")):
            file.unlink(missing_ok=True)

    def path(self, block: range) -> Path:
        """The file of a block."""
        return self.folder / f"{self.key[:16]}-{block.start:015d}-{block.stop:015d}.npz"

    def has(self, block: range) -> bool:
        """Whether the part of a block is there, as far as its table of contents tells."""
        return zipfile.is_zipfile(self.path(block))

    def load(self, block: range) -> Part | None:
        """The part of a block, if it is there and whole."""
        try:
            with np.load(self.path(block)) as arrays:
                return Part(*(arrays[name] for name in Part._fields))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def save(self, block: range, part: Part) -> None:
        """Write the part of a block."""
        whole = self.path(block)
        partial = whole.with_suffix(f".{os.getpid()}.tmp")
        with partial.open("wb") as file:
            np.savez(file, **part._asdict())
        os.replace(partial, whole)

    def remove(self) -> None:
        """Remove all parts, and the folder unless something else is in it."""
        self._clear()
        with contextlib.suppress(OSError):
            self.folder.rmdir()
