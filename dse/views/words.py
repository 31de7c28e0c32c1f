"""Short names of axes, texts of their values, and shares among metrics: common to tables, figures and messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dse.io import toml

#: All words: by axis, and by kind of study (``words.toml``).
WORDS: dict[str, Any] = toml.table(Path(__file__).with_name("words.toml"))

#: Leaf of the mapping → its letters, in the order of columns.
LETTERS: dict[str, str] = WORDS["letters"]

#: Axis → its heading, in the order of the columns; other axes keep their names.
SHORT: dict[str, str] = LETTERS | WORDS["axes"]

#: Metrics in per cent.
IN_PER_CENT: tuple[str, ...] = tuple(WORDS["in_per_cent"])


def label_text(name: str, value: Any) -> str:
    """Return the value of an axis as text, with the unit of its leaf for a number.

    Args:
        name: of the axis.
        value: number in SI units, truth value, or name of a choice.

    >>> label_text("tp", 8.0), label_text("memory.bandwidth", 3.35e12), label_text("recompute", "full")
    ('8', '3.35 TB/s', 'full')
    """
    from dse.designs import all_leaves, leaf_path
    from dse.io import setting

    if isinstance(value, bool | str):
        return setting(value)
    return setting(value, all_leaves()[leaf_path(name)]["units"])
