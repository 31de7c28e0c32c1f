"""From a predicted to a measured step: its causes one after the other, in seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dse.lab.evidence.causes import Explained
from dse.views.plot.style import FRONT, INK, PAGE, PALE, laid_out, new_figure, set_title, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Colours of the steps, of causes that stand out, and of what predictions err by.
_STEP, _NAMED, _OTHER = INK, FRONT, PALE


def gap(found: Explained, title: str = "") -> Figure:
    """The causes of a gap as a waterfall.

    Args:
        found: the causes.
        title: of the figure.

    Returns:
        The figure.
    """
    rows = [("predicted", 0.0, found.predicted, _STEP)]
    at = found.predicted
    for one in found.causes:
        rows.append((one.name, at, one.seconds, _NAMED if one in found.named else _OTHER))
        at += one.seconds
    rows.append(("measured", 0.0, found.measured, _STEP))
    with style():
        figure = new_figure(width=PAGE, height=2.0)
        axes = figure.subplots()
        for place, (_, start, length, colour) in enumerate(rows):
            axes.barh(place, 1e3 * length, left=1e3 * start, color=colour, height=0.62)
            end, sign = 1e3 * max(start, start + length), "" if colour == _STEP else "+" if length >= 0.0 else "−"
            axes.annotate(
                f"{sign}{1e3 * abs(length):.4g} ms",
                (end, place),
                xytext=(3, 0),
                va="center",
                textcoords="offset points",
            )
        axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("Time (ms)")
        axes.margins(x=0.14)
        axes.set_xlim(left=0.0)
        set_title(figure, title)
        return laid_out(figure, 0.55 + 0.24 * len(rows))
