"""Finished blocks on disk, so that an interrupted sweep goes on where it stopped.

A part's file name holds the hash of everything its content depends on and its range. It is
written under another name and then renamed: what is there is whole. It ends with a checksum of its name and content:
what was damaged, put in another's place or made by somebody else is no part.
"""

from __future__ import annotations

import bisect
import contextlib
import glob
import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path

from dse.errors import InputError
from dse.io.files import unique_suffix
from dse.io.outputs import link_target
from dse.sweep.reduce.keep import BlockResult
from dse.sweep.store import arrays

_NAME = re.compile(r"([0-9a-f]{16})-(\d{15})-(\d{15})\.npz")
_KEY = 16  # digits of the hash in names

#: Names of what dse leaves in a folder of parts; whatever else is there is not touched.
_FILE_NAMES = re.compile(rf"{_NAME.pattern}|[0-9a-f]{{16}}-\d{{5,}}-of-\d{{5,}}\.jsonl|search-\w+\.npz|.*\.\d+\.tmp")


class PartStore:
    """The parts of one sweep in ``<output>.parts/``."""

    def __init__(self, output: Path, key: str) -> None:
        self.output = output
        self.folder = parts_folder(output)
        self.key = key[:_KEY]

    def path(self, block: range) -> Path:
        """Return the path of the file of a block's part."""
        return self.folder / f"{self.key}-{block.start:015d}-{block.stop:015d}.npz"

    def has(self, block: range) -> bool:
        """Return True if a part of a block is there; :meth:`load` tells whether it may be believed."""
        return self.path(block).is_file()

    def load(self, block: range) -> BlockResult | None:
        """Return the part of a block; None unless it is there as it was saved."""
        stored = arrays.load(self.path(block))
        is_part = stored.keys() >= {*BlockResult._fields}
        return BlockResult(*(stored[name] for name in BlockResult._fields)) if is_part else None

    def save(self, block: range, part: BlockResult) -> None:
        """Write the part of a block; readers see all of it or nothing."""
        arrays.save(self.path(block), part._asdict())

    def aligned_blocks(self, blocks: list[range]) -> list[range]:
        """Return the same indices, the blocks cut where parts of another division begin and end."""
        chosen = _most_indices(stored_ranges(self.folder).get(self.key, []))
        cuts = {cut for part_range in chosen for cut in (part_range.start, part_range.stop)}
        return [block_range for block in blocks for block_range in _cut(block, cuts)]

    def forget(self, blocks: list[range]) -> None:
        """Remove the parts of these blocks, and of every sweep but this one."""
        unwanted = {self.path(block).name for block in blocks}
        for file in self.folder.glob("*.npz"):
            if file.name in unwanted or (_FILE_NAMES.fullmatch(file.name) and not file.name.startswith(self.key)):
                file.unlink(missing_ok=True)
        for file in self.folder.glob("*.jsonl"):
            if _FILE_NAMES.fullmatch(file.name) and not file.name.startswith(self.key):
                file.unlink(missing_ok=True)

    def remove_parts(self) -> None:
        """Remove what dse leaves in the folder but its lock: parts, manifests, files of searches, temporary ones."""
        for file in self.folder.iterdir():
            if _FILE_NAMES.fullmatch(file.name):
                file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove what :meth:`remove_parts` does and the lock, and the folder unless something else is in it."""
        self.remove_parts()
        (self.folder / "lock").unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def _most_indices(candidates: list[range]) -> list[range]:
    """Return the disjoint choice of overlapping ranges with the most indices (weighted interval scheduling)."""
    candidates = sorted(candidates, key=lambda block: block.stop)
    stops = [block.stop for block in candidates]
    n_covered, n_before = [0], list[int]()
    for i, block in enumerate(candidates):
        n_before.append(bisect.bisect_right(stops, block.start, hi=i))
        n_covered.append(max(n_covered[i], n_covered[n_before[i]] + len(block)))
    chosen, i = list[range](), len(candidates)
    while i:
        is_chosen = n_covered[i] > n_covered[i - 1]
        chosen += [candidates[i - 1]] if is_chosen else []
        i = n_before[i - 1] if is_chosen else i - 1
    return chosen


def clear_up(output: Path | None) -> None:
    """Remove the parts that a run has left that was killed between writing results and removing them.

    They stay where another run is at work there, or the folder refuses: results that are whole are shown all the same.
    """
    if output and parts_folder(output).is_dir():
        with contextlib.suppress(InputError), lock_output(output):
            PartStore(output, "").remove()


@contextlib.contextmanager
def lock_output(output: Path, shared: bool = False) -> Iterator[None]:
    """Make and lock the folder of an output's parts while the context lasts; InputError where it cannot.

    Args:
        output: the file of the results.
        shared: shards of a sweep may have the folder at once; a run of the whole sweep wants it alone.
    """
    folder = parts_folder(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f"probe.{unique_suffix()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"output {output}",
            error.strerror or str(error),
            "a folder that can be written to",
            "name another file",
        ) from None
    with _locked(folder / "lock", shared, output):
        if not shared:
            _sweep_up(output)
        yield


def _sweep_up(output: Path) -> None:
    """Remove the temporary files of runs that were killed; nobody else is writing now."""
    target = link_target(output)
    unfinished = target.parent.glob(f".{glob.escape(target.name)}.*.tmp")
    for file in (*unfinished, *parts_folder(output).glob("*.tmp")):
        if _FILE_NAMES.fullmatch(file.name):
            file.unlink(missing_ok=True)


def parts_folder(output: Path) -> Path:
    """Return the path of the folder of an output's parts: ``<output>.parts``."""
    return output.with_name(output.name + ".parts")


def stored_ranges(folder: Path) -> dict[str, list[range]]:
    """Return key (16 digits) → blocks of the parts in a folder, ascending; not read, so maybe damaged."""
    ranges_by_key: dict[str, list[range]] = {}
    for file in sorted(folder.glob("*.npz")):
        if name := _NAME.fullmatch(file.name):
            ranges_by_key.setdefault(name[1], []).append(range(int(name[2]), int(name[3])))
    return ranges_by_key


def _cut(block: range, cuts: set[int]) -> list[range]:
    """Return a block divided at the cuts that are inside of it."""
    limits = sorted({block.start, block.stop} | {cut for cut in cuts if block.start < cut < block.stop})
    return [range(*pair) for pair in itertools.pairwise(limits)]


@contextlib.contextmanager
def _locked(path: Path, shared: bool, output: Path) -> Iterator[None]:
    """Lock a file while the context lasts; InputError if another run has it, no lock where the system has none."""
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
                    f"output {output}",
                    "another run that is writing it",
                    "one run of a sweep at a time, or its shards",
                    "wait for it, or name another file",
                ) from None
            except OSError:  # a file system without locks
                yield
                return
            if _is_still(path, descriptor):
                yield
                return
        finally:
            os.close(descriptor)


def _is_still(path: Path, descriptor: int) -> bool:
    """Return True if the file is the one that was opened; if it has gone, make its folder and return False."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return False
