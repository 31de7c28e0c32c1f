"""Memory as a constraint in figures: the line of the usable capacity, and designs whose choice it binds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dse.io import setting
from dse.views.plot.designs import Columns
from dse.views.plot.style import INK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes

#: Legend of designs whose choice memory binds, and of those that would be faster than all that fit.
BINDS, FASTER = "memory binds: a better one does not fit", "faster than all that fit, does not fit"

#: Mark of a design whose choice memory binds: a triangle that the line of the capacity stops.
MARK: dict[str, Any] = {
    "marker": ">", "color": INK, "markersize": 6.0, "linestyle": "", "markeredgecolor": "white", "markeredgewidth": 0.7,
}  # fmt: skip


def draw_capacity(axes: Axes, capacity: float, factor: float, along: str) -> None:
    """Draw the line of the usable memory of a device across a panel, with its label.

    Args:
        axes: the panel.
        capacity: bytes.
        factor: units of the axis per byte.
        along: axis of the memory, ``x`` or ``y``.
    """
    value, text = capacity * factor, f"usable {setting(capacity, 'B')}"
    line: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (4, 2))}
    if along == "x":
        axes.axvline(value, **line)
        place: dict[str, Any] = {
            "xy": (value, 1.0),
            "xycoords": ("data", "axes fraction"),
            "xytext": (0, 2),
            "ha": "center",
        }
    else:
        axes.axhline(value, **line)
        place = {"xy": (1.0, value), "xycoords": ("axes fraction", "data"), "xytext": (0, 4), "ha": "right"}
        place["bbox"] = {"color": "white", "alpha": 0.8, "pad": 0.4}
    axes.annotate(text, textcoords="offset points", **place)


def memory_binds(columns: Columns, rows: Sequence[int]) -> np.ndarray:
    """Return a mask [rows] of designs that memory alone keeps from a better one of the same group.

    A design that does not fit for memory alone ranks before it: with more memory the choice would be another.

    Args:
        columns: designs of a figure.
        rows: indices of designs that fit, the best of their groups.
    """
    if not len(rows):
        return np.zeros(0, bool)
    better = np.flatnonzero(columns.memory_alone & (columns.scores < np.max(columns.scores[rows])))
    labels = [columns.labels[name] for name in columns.group_headings]
    better_scores, better_labels = columns.scores[better], [values[better] for values in labels]

    def has_better(row: int) -> bool:
        is_better = better_scores < columns.scores[row]
        for values, row_values in zip(better_labels, labels, strict=True):
            is_better &= values == row_values[row]
        return bool(is_better.any())

    return np.array([has_better(row) for row in rows])


def faster_than_fitting(columns: Columns) -> np.ndarray:
    """Return a mask [design] of designs that do not fit for memory alone and take less time than all that fit.

    Args:
        columns: designs of a figure.
    """
    least = columns.time[columns.feasible].min(initial=np.inf)
    return columns.memory_alone & (columns.time < least)
