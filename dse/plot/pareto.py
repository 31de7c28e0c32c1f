"""Step time against peak memory of all designs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from dse.plot import designs
from dse.plot.style import FRONT, GIB, INK, laid_out, new_figure, plain_ticks, scaled, set_title, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FITS, _TOO_LARGE = "#9dbfdb", "#d9d9d9"


def pareto(results: xr.Dataset, points: int = 20_000) -> Figure:
    """Step time against peak memory of all designs, with the front of those that no other beats in both.

    At most ``points`` designs behind the front are drawn, evenly thinned.
    """
    columns, title = designs.columns(results)
    fits = np.flatnonzero(columns.feasible)
    if not len(fits):
        raise designs.nothing_feasible()
    front = fits[designs.front(columns.time[fits], columns.memory[fits])]
    scale, units = scaled(columns.time[front].min(), "s")
    limit = 8.0 * columns.time[front].min()
    with style():
        figure = new_figure(width=5.0, height=3.6)
        axes = figure.subplots()
        too_large = _thin(np.flatnonzero(columns.memory_alone & (columns.time < limit)), points)
        behind = _thin(fits[columns.time[fits] < limit], points)
        for rows, colour, name in ((too_large, _TOO_LARGE, "does not fit"), (behind, _FITS, "fits")):
            axes.scatter(
                columns.time[rows] * scale, columns.memory[rows] / GIB, color=colour, label=name, s=5, linewidths=0,
                rasterized=True,
            )  # fmt: skip
        axes.step(
            columns.time[front] * scale, columns.memory[front] / GIB, where="post", color=FRONT, linewidth=1.4,
            marker="o", markersize=3.2, label="Pareto front",
        )  # fmt: skip
        if columns.capacity:
            capacity = columns.capacity / GIB
            axes.axhline(capacity, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
            axes.annotate(
                f"usable {capacity:.0f} GiB", (1.0, capacity), xycoords=("axes fraction", "data"),
                xytext=(0, 3), textcoords="offset points", ha="right", fontsize=8,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel=f"step time ({units})", ylabel="peak memory (GiB)")
        plain_ticks(axes.xaxis, axes.yaxis)
        axes.legend(loc="upper right", markerscale=2, fontsize=8)
        set_title(figure, title)
        return laid_out(figure)


def _thin(indices: np.ndarray, most: int) -> np.ndarray:
    return indices[:: math.ceil(len(indices) / most) or 1]
