"""Finished blocks on disk, so that an interrupted sweep goes on where it stopped.

A part's file name holds the hash of everything its content depends on and its range. It is
written under another name and then renamed: what is there is whole.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dse.errors import InputError
from dse.files import unique_suffix
from dse.interruption import changing
from dse.sweep.reduce.keep import Part

_NAME = re.compile(r"([0-9a-f]{16})-(\d{15})-(\d{15})\.npz")
_KEY = 16  # digits of the hash in names


class PartStore:
    """The parts of one sweep in ``<output>.parts/``."""

    def __init__(self, output: Path, key: str) -> None:
        self.output = output
        self.folder = parts_folder(output)
        self.key = key[:_KEY]

    def path(self, block: range) -> Path:
        """The file of a block."""
        return self.folder / f"{self.key}-{block.start:015d}-{block.stop:015d}.npz"

    def has(self, block: range) -> bool:
        """Whether the part of a block is there, as far as its table of contents tells."""
        return zipfile.is_zipfile(self.path(block))

    def load(self, block: range) -> Part | None:
        """The part of a block, if it is there and whole."""
        try:
            with self.path(block).open("rb") as file, np.load(file) as arrays:
                return Part(*(arrays[name] for name in Part._fields))
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def save(self, block: range, part: Part) -> None:
        """Write the part of a block."""
        whole = self.path(block)
        partial = whole.with_suffix(f".{unique_suffix()}")
        with partial.open("wb") as file:
            np.savez(file, **part._asdict())
        with changing():
            os.replace(partial, whole)

    def forget(self, blocks: list[range]) -> None:
        """Remove the parts of these blocks, and of every sweep but this one."""
        unwanted = {self.path(block).name for block in blocks}
        for file in self.folder.glob("*.npz"):
            if file.name in unwanted or not file.name.startswith(self.key):
                file.unlink(missing_ok=True)
        for file in self.folder.glob("*.jsonl"):
            if not file.name.startswith(self.key):
                file.unlink(missing_ok=True)

    def remove_parts(self) -> None:
        """Remove all parts with their manifests."""
        for pattern in ("*.npz", "*.tmp", "*.jsonl"):
            for file in self.folder.glob(pattern):
                file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove all parts and what belongs to them, and the folder unless something else is in it."""
        self.remove_parts()
        (self.folder / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def clear_up(output: Path | None) -> None:
    """Remove the parts that a run has left that was killed between its results and the end.

    They stay where another run is at work there, or the folder refuses: results that are whole are shown all the same.
    """
    if output and parts_folder(output).is_dir():
        with contextlib.suppress(InputError), opened(output):
            PartStore(output, "").remove()


@contextlib.contextmanager
def opened(output: Path, shared: bool = False) -> Iterator[None]:
    """The folder of an output's parts, made and locked; what stands in the way is an InputError.

    Args:
        output: the file of the results.
        shared: shards of a sweep may have the folder at once; a run of the whole sweep wants it alone.
    """
    if output.is_dir():
        raise InputError(f"output {output}", "a folder", "a file name", "add a name such as results.nc")
    folder = parts_folder(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"probe.{unique_suffix()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"output {output}", error.strerror or str(error), "a folder that can be written to",
            "give another file with --output",
        ) from None  # fmt: skip
    with _locked(folder / "lock", shared, output):
        if not shared:
            _sweep_up(output)
        yield


def _sweep_up(output: Path) -> None:
    """Remove the temporary files of runs that were killed; nobody else is writing now."""
    unfinished = output.parent.glob(f".{glob.escape(output.name)}.*.tmp")
    for file in (*unfinished, *parts_folder(output).glob("*.tmp")):
        file.unlink(missing_ok=True)


def parts_folder(output: Path) -> Path:
    """Where the parts of an output are."""
    return output.with_name(output.name + ".parts")


def ranges(folder: Path) -> dict[str, list[range]]:
    """Key → blocks of the parts in a folder, ascending."""
    found: dict[str, list[range]] = {}
    for file in sorted(folder.glob("*.npz")):
        if name := _NAME.fullmatch(file.name):
            found.setdefault(name[1], []).append(range(int(name[2]), int(name[3])))
    return found


@contextlib.contextmanager
def _locked(path: Path, shared: bool, output: Path) -> Iterator[None]:
    """Hold a lock that the system gives back when the process dies; where it knows none, go without."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(
                    f"output {output}", "another run that is writing it", "one run of a sweep, or its shards, at once",
                    "wait for it, or give another file with --output",
                ) from None  # fmt: skip
            except OSError:  # a file system without locks
                yield
                return
            if _is_still(path, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Whether the file is the one that was opened: a run that ended meanwhile has removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return False
