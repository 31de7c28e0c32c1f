"""What figures of ranked designs leave out, and the notes that say so."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np


def worst_shown(scores: np.ndarray, factor: float) -> float:
    """Return the score that is worse than the best by a factor, infinite where the best is 0.

    >>> worst_shown(np.array([30.0, 10.0]), 2.0), worst_shown(np.array([-3.0, -10.0]), 2.0)
    (20.0, -5.0)
    """
    best = float(scores.min())
    return best * factor if best > 0.0 else best / factor if best < 0.0 else np.inf


def hidden_note(count: int, shown_count: int, groups: Iterable[str], objective: str) -> str:
    """Return a note on the groups of designs that a figure leaves out, or "" where there are none.

    >>> hidden_note(15, 3, ["memory", "concurrency"], "time per output token")
    'best by time per output token; 12 others of 15 (memory, concurrency) are not shown'
    """
    hidden_count = count - shown_count
    if not hidden_count:
        return ""
    noun, verb = ("others", "are") if hidden_count > 1 else ("other", "is")
    return f"best by {objective}; {hidden_count:,} {noun} of {count:,} ({', '.join(groups)}) {verb} not shown"
