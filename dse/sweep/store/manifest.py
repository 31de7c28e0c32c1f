"""Who computed what: the identity of a sweep's results, and a record of every block in JSON lines."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import dse
from dse.designs import catalog
from dse.doors import Study
from dse.io.environment import device_kind, jax_version
from dse.io.files import code_digest
from dse.spec.output import Keep
from dse.sweep.grid.grid import Grid
from dse.sweep.reduce.keep import BlockResult

#: Name of the checksum in a line.
_CHECK = "check"


class Shard(NamedTuple):
    """One of a number of equal shares of a sweep."""

    number: int = 1  #: from 1
    of: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def identity(grid: Grid, keep: Keep) -> dict[str, str]:
    """Return name → text of all that results depend on; equal identities give equal results, bit for bit."""
    return circumstances(grid) | {"keep": str(keep), "histogram": str(grid.spec.histogram or "none")}


def circumstances(grid: Grid) -> dict[str, str]:
    """Return name → text of all that the numbers of a grid's designs depend on, whatever is kept of them."""
    study = grid.spec.study
    return {
        "specification_hash": grid.spec.hash(),
        "catalog_digest": catalog.digest(grid.catalog_entries),
        "code_version": dse.__version__,
        "code_digest": code_digest(),
        "study": study.name,
        "model": study.evaluate.__module__,
        "jax_version": jax_version(),
        "device": device_kind(),
        "dtype": "float32",
        "any_option": "yes" if grid.spec.any_option else "no",
    }


def key(identity: dict[str, str], blocks: list[range]) -> str:
    """Return the SHA-256, hexadecimal, of everything that the content of a part depends on."""
    content = [sorted(identity.items()), len(blocks[0])]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def reasons(counts: Any, study: Study) -> dict[str, int]:
    """Return reason → number of designs, of those that occur, from the counts of a part."""
    return {name: int(count) for name, count in zip(study.reason_bits, counts[1:-1], strict=True) if count}


class Manifest:
    """The record of one process: its sweep in the first line, then a line a block.

    Lines are appended whole; one that a killed process has left half-written is skipped by readers.
    """

    def __init__(self, folder: Path, key: str, shard: Shard) -> None:
        self.path = folder / f"{key[:16]}-{shard.number:05d}-of-{shard.of:05d}.jsonl"
        self._last = time.perf_counter()

    def begin(self, grid: Grid, identity: dict[str, str], blocks: list[range], shard: Shard) -> None:
        """Append the header: what this process computes, with what and when."""
        self._end_broken_line()
        self._study = grid.spec.study
        self._append(
            {
                "sweep": identity,
                "specification": grid.spec.text,
                "file": grid.spec.file,
                "shard": str(shard),
                "blocks": [blocks[0].start, blocks[-1].stop] if blocks else [],
                "n_outer": grid.n_outer,
                "process": os.getpid(),
                "started": datetime.now(UTC).isoformat(timespec="seconds"),
            }
        )
        self._last = time.perf_counter()

    def finished(self, block: range, part: BlockResult) -> None:
        """Append that the part of a block is on disk, with its seconds and counts."""
        seconds, self._last = time.perf_counter() - self._last, time.perf_counter()
        counts = {"feasible": int(part.counts[0]), "infeasible_by_reason": reasons(part.counts, self._study)}
        if part.counts[-1]:
            counts["unranked"] = int(part.counts[-1])
        self._append({"block": [block.start, block.stop], "seconds": round(seconds, 6)} | counts)

    def failed(self, block: range, error: BaseException) -> None:
        """Append that a block could not be computed, with the error."""
        self._append({"block": [block.start, block.stop], "failure": f"{type(error).__name__}: {error}"})

    def _append(self, line: dict[str, Any]) -> None:
        """Append a line of JSON with its checksum."""
        with self.path.open("ab") as file:
            file.write(json.dumps(line | {_CHECK: _checksum(line)}).encode() + b"\n")

    def _end_broken_line(self) -> None:
        """End a line that a killed process has left half-written; remove what is no regular file."""
        if self.path.exists() and not self.path.is_file():
            self.path.unlink()
        if self.path.exists() and not self.path.read_bytes().endswith(b"\n"):
            with self.path.open("ab") as file:
                file.write(b"\n")


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a manifest as decoded from JSON, those that are whole and as they were written."""
    records: list[dict[str, Any]] = []
    if not path.is_file():  # a pipe would be waited for
        return records
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            line = json.loads(text)
            if isinstance(line, dict) and line.pop(_CHECK, None) == _checksum(line):
                records.append(line)
    return records


def _checksum(line: dict[str, Any]) -> str:
    """Return the checksum of everything else in a line: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(line).encode()).hexdigest()[:16]
