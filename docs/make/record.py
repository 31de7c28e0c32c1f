"""The record of forecasts: tables that only grow, each line with the hash of itself and of all lines before it."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Column of the hash, and digits of it.
HASH, _DIGITS = "chain", 16


class BrokenRecordError(ValueError):
    """A line of a record is not as it was written."""


def read(path: Path) -> list[dict[str, str]]:
    """Lines of a record in order, [] without a file; BrokenRecordError for one that was edited, moved or left out."""
    if not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    before = ""
    for number, line in enumerate(lines, 1):
        before = chained(before, line)
        if line.get(HASH) != before:
            raise BrokenRecordError(f"{path}: line {number} is not as it was written")
    return lines


def chained(before: str, line: Mapping[str, str]) -> str:
    """Hash of a line and of all before it."""
    text = "\x1f".join(f"{name}={value}" for name, value in line.items() if name != HASH)
    return hashlib.sha256(f"{before}\x1e{text}".encode()).hexdigest()[:_DIGITS]


def append(path: Path, added: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Write further lines at the end of a record; all lines. BrokenRecordError for other columns than it has."""
    lines = read(path)
    before = lines[-1][HASH] if lines else ""
    for one in added:
        line = {name: str(value) for name, value in one.items()}
        if lines and [*line, HASH] != [*lines[0]]:
            raise BrokenRecordError(f"{path}: columns {', '.join(line)} in place of {', '.join(lines[0])}")
        before = chained(before, line)
        lines.append(line | {HASH: before})
    if added:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*lines[0]], lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    return lines
