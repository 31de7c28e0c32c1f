"""How sure the designs of ``top:K`` are, as part of the results of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dse.sweep import Grid

if TYPE_CHECKING:
    import numpy as np


def judge(grid: Grid, index: np.ndarray) -> Mapping[str, tuple[np.ndarray, dict[str, str]]]:
    """Return further variables of designs of a sweep (:func:`dse.measured.decisions.choice.judge`).

    What computes them is imported when it is first asked for: sweeps without ``top:K`` do without.
    """
    from dse.measured.decisions import choice

    return choice.judge(grid, index)
