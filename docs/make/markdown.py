"""Pages in Markdown: their parts, tables, numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence


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
    "what", "objective", "at", "yes or no", "in how many of them differs",
)  # fmt: skip


def table(header: Sequence[str], rows: Iterable[Sequence[str]], words: Collection[str] = _TEXTS) -> str:
    """A table; columns of words are set left, all others right."""
    rule = ["---" if h in words else "---:" for h in header]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
