"""Measured against predicted, as a figure: every timed row, by source."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from docs.make.accuracy import breakdown
from dse.measured.comparison import Comparison
from dse.views.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Colours: ours, and the baseline of one utilisation a source.
_OURS, _BASELINE = "#08519c", "#949494"


def draw(compared: Sequence[Comparison], path: Path) -> bool:
    """Draw predicted over measured step times by source to ``path``; False where there is nothing to draw."""
    by_source = breakdown.sources(compared)
    if not by_source:
        return False
    with style.style():
        figure = style.new_figure(7.2, 1.2 + 0.22 * len(by_source))
        _panel(figure.subplots(), by_source)
        style.save(figure, path, force=True)
    return True


def _panel(axes: Axes, by_source: Mapping[str, Sequence[Comparison]]) -> None:
    axes.axvspan(0.9, 1.1, color="#deebf7", zorder=0)
    axes.axvline(1.0, color="black", linewidth=0.8)
    rng = np.random.default_rng(0)
    for place, rows in enumerate(by_source.values()):
        spread = place + 0.28 * rng.uniform(-1.0, 1.0, len(rows))
        axes.scatter([ratio(c, c.baseline) for c in rows], spread, s=6, color=_BASELINE, linewidths=0)
        axes.scatter([ratio(c, c.predicted) for c in rows], spread, s=7, color=_OURS, linewidths=0)
    labels = [f"{textwrap.shorten(source, 34, placeholder=' …')} ({len(rows)})" for source, rows in by_source.items()]
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.set_xscale("log", base=2)
    ticks = [0.5, 0.75, 1.0, 1.25, 1.5, 2.0]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlim(0.45, 2.2)
    axes.minorticks_off()
    axes.set_xlabel("predicted over measured step time")
    axes.scatter([], [], s=12, color=_OURS, label="this model")
    axes.scatter([], [], s=12, color=_BASELINE, label="one constant MFU a source")
    axes.legend(loc="lower right", fontsize=7, frameon=True)


def ratio(c: Comparison, value: float) -> float:
    """Predicted over measured step time: of a rate, the inverse."""
    return value / c.measured if c.metric == "step_time" else c.measured / value
