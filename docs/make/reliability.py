"""Reliability diagram of forecasts: share held against the probability of the interval, a panel a level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from dse.views.plot import style

#: Panels: what was left out.
PANELS = ("chip", "vendor", "family", "framework", "size")
_SHARES = (50, 80, 95)

#: Figures → colour and offset.
_LOOKS = {"step": ("#c8470b", -1.1), "serving": ("#0f2f6e", 0.0), "first": ("#8a7a1a", 1.1)}
_NAMES = {"step": "training", "serving": "serving", "first": "first token"}


def draw(lines: Sequence[dict[str, str]], path: Path) -> None:
    """Draw the groups of a table of scores."""
    with style.style():
        figure = style.new_figure(width=style.PAGE, height=2.4)
        panels = figure.subplots(1, len(PANELS), sharey=True)
        for axes, what in zip(panels, PANELS, strict=True):
            axes.plot([45, 100], [45, 100], color=style.PALE, linewidth=0.8, zorder=0)
            for name, (colour, offset) in _LOOKS.items():
                own = [one for one in lines if one["key"] == name and one["left_out"] == what and one["group"] != "all"]
                for share in _SHARES:
                    axes.scatter(
                        [share + offset] * len(own),
                        [100.0 * float(one[f"held_{share}"]) for one in own],
                        s=[4.0 + 3.0 * math.log2(float(one["rows"])) for one in own],
                        color=colour,
                        alpha=0.35,
                        linewidths=0,
                        label=_NAMES[name] if share == _SHARES[0] and own else "_nolegend_",
                    )
                whole = [
                    one
                    for one in lines
                    if one["key"] == name
                    and one["group"] == "all"
                    and one["left_out"] == ("configuration" if what == "size" else what)
                ]
                for one in whole:
                    axes.plot(
                        [share + offset for share in _SHARES],
                        [100.0 * float(one[f"held_{share}"]) for share in _SHARES],
                        color=colour,
                        linewidth=1.1,
                        marker="_",
                        markersize=7,
                    )
            axes.set(xlim=(44, 100), ylim=(-3, 103), xlabel=what, xticks=_SHARES)
        panels[0].set_ylabel("held (%)")
        handles: dict[str, object] = {}
        for axes in panels:
            found, labels = axes.get_legend_handles_labels()
            handles |= dict(zip(labels, found, strict=True))
        style.legend_below(figure, list(handles.values()), list(handles))
        style.set_title(figure, "Held by intervals of 50, 80 and 95 %, by group left out")
        style.save(style.freeze_layout(figure, 2.0), path, force=True)
