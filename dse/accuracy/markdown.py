"""Tables and figures of pages in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence


def percent(value: float | None, sign: str = "", digits: int = 1) -> str:
    """A fraction in per cent, a dash for none."""
    return "–" if value is None or math.isnan(value) else f"{100.0 * value:{sign}.{digits}f} %"


#: Columns that hold words.
_TEXTS = (
    "source", "metric", "model", "chip", "stack", "reason", "likely reason", "completed", "note", "claim", "command",
    "term", "class", "run", "share of the energy", "collective, cluster", "device", "table", "file", "space", "method",
    "what", "objective", "at", "yes or no", "in how many of them differs",
)  # fmt: skip


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; columns of words are set left."""
    rule = ["---" if h in _TEXTS else "---:" for h in header]
    lines = [header, rule, *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
