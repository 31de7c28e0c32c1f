"""Pages in Markdown: their parts, tables, numbers."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path


def document(parts: Iterable[str]) -> str:
    """A page of its parts, a blank line between each two; empty parts are left out."""
    return "\n\n".join(part for part in parts if part) + "\n"


def percent(value: float | None, sign: str = "", digits: int = 1) -> str:
    """A fraction in per cent, a dash for none."""
    return "–" if value is None or math.isnan(value) else f"{100.0 * value:{sign}.{digits}f} %"


#: Columns that hold words.
_TEXTS = (
    "source", "metric", "model", "chip", "stack", "reason", "likely reason", "completed", "note", "claim", "command",
    "term", "class", "run", "share of the energy", "collective, cluster", "device", "table", "file", "space", "method",
    "what", "objective", "at", "acceptance", "in how many of them differs",
)  # fmt: skip


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = _TEXTS) -> str:
    """A table; columns of words are set left, all others right."""
    rule = ["---" if h in words else "---:" for h in header]
    lines = [header, rule, *rows]
    return "\n".join("|" + "|".join(cell.replace("|", "\\|") for cell in line) + "|" for line in lines)


def tight_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of words without padding, for the long ones; empty cells at the end of a row are left out."""
    lines = [list(header), ["---"] * len(header), *map(list, rows)]
    for line in lines:
        while not line[-1]:
            line.pop()
    return "\n".join("|" + "|".join(cell.replace("|", "\\|") for cell in line) + "|" for line in lines)


#: The place of a table in a page whose text is written by hand, and its name.
_MARKED = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def fill(page: str, tables: Mapping[str, str]) -> str:
    """Return the page with these tables in their places; a name without a table is a KeyError."""
    return _MARKED.sub(lambda mark: f"{mark[1]}\n{tables[mark[2]]}\n\n{mark[3]}", page)


#: A long table within a page that is not published yet: the name of its file and its lines.
_FILED = re.compile(r"<!-- file: (\S+) -->\n(.*?)<!-- end of file -->", re.DOTALL)


def filed(name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table that is written to ``tables/NAME.csv`` next to its page, which has a link in its place.

    :func:`publish` takes it out of the page.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerows([header, *([re.sub("[`*]", "", cell) for cell in row] for row in rows)])
    return f"<!-- file: {name} -->\n{lines.getvalue()}<!-- end of file -->"


def publish(page: Path, text: str) -> None:
    """Write a page, and its long tables as files next to it."""
    folder = page.parent / "tables"
    for name, lines in _FILED.findall(text):
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.csv").write_text(lines, encoding="utf-8")
    page.write_text(linked(text), encoding="utf-8")


def linked(text: str) -> str:
    """A page with links in place of its long tables."""
    return _FILED.sub(lambda found: f"[tables/{found[1]}.csv](tables/{found[1]}.csv)", text)
