"""Gap against evaluations of every method, a panel for each space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.search.reading import Reading
from dse.views.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Method → (colour, dashes): the hues of Okabe and Ito, told apart by colour-blind readers; baselines are grey.
_LINES: dict[str, tuple[str, Any]] = {
    "random": ("#222222", (0, (4, 2))),
    "evolution": ("#0072b2", "-"),
    "annealing": ("#d55e00", "-"),
    "relaxed": ("#7f3c8d", "-"),
    "nsga2": ("#2f94d0", (0, (5, 1, 1, 1))),
}

#: Gaps are drawn down to this; what is found exactly lies on it.
_FLOOR = 1e-4

_COLUMNS = 3

#: Large numbers in words.
_WORDS = ((1e9, "billion"), (1e6, "million"), (1e3, "thousand"))


def draw(document: dict[str, Any], path: Path) -> Path:
    """Draw the record of the suite."""
    reading = Reading(document)
    rows = -(-len(reading.spaces) // _COLUMNS)
    with style.style():
        figure = style.new_figure(7.6, 0.9 + 2.1 * rows)
        panels = figure.subplots(rows, _COLUMNS, sharex=True, sharey=True, squeeze=False).reshape(-1)
        for axes, name in zip(panels, reading.spaces, strict=False):
            _panel(axes, reading, name)
        for axes in panels[len(reading.spaces) :]:
            axes.set_visible(False)
        for axes in panels[::_COLUMNS]:
            axes.set_ylabel("gap, median seed")
        for axes in panels[max(len(reading.spaces) - _COLUMNS, 0) : len(reading.spaces)]:
            axes.set_xlabel("evaluations of a seed")
            axes.tick_params(labelbottom=True)
        handles = {name: line for axes in panels for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
        known = [name for name in _LINES if name.replace("_", " ") in handles]
        shown = [name.replace("_", " ") for name in known]
        style.legend_below(figure, [handles[name] for name in shown], shown, most=5, handlelength=2.4)
        return style.save(style.freeze_layout(figure), path, force=True)


def in_words(count: float) -> str:
    """A large number to two digits: ``1.4 million``."""
    factor, word = next(((f, word) for f, word in _WORDS if count >= f), (1.0, ""))
    digits = float(f"{count / factor:.2g}")
    return f"{digits:g} {word}".rstrip()


def _panel(axes: Axes, reading: Reading, name: str) -> None:
    optimum = reading.optima[name]
    for method, found in reading.methods(name).items():
        colour, dashes = _LINES.get(method, (style.OTHER, "-"))
        if optimum.front:
            gaps = [1.0 - share for share in found["together"]]
        else:
            gaps = [np.nan if quantiles[1] is None else quantiles[1] for quantiles in found["gap"]]
        label, width = method.replace("_", " "), 1.3
        axes.plot(
            found["marks"], np.maximum(gaps, _FLOOR), color=colour, linestyle=dashes, linewidth=width, label=label
        )
    if not optimum.front:
        axes.axhline(0.01, color=style.PALE, linewidth=0.6, zorder=0)
        share = 0.01 * optimum.designs
        if share <= max(max(found["marks"]) for found in reading.methods(name).values()):
            axes.axvline(share, color=style.PALE, linewidth=0.6, zorder=0)
    axes.set_title(f"{name.replace('_', ' ')}\n{in_words(optimum.designs)} designs", fontsize=8)
    if optimum.front:
        what = "volume that the fronts\nof all seeds lack"
        axes.text(0.97, 0.95, what, transform=axes.transAxes, ha="right", va="top", fontsize=7)
    axes.set(xscale="log", yscale="log", ylim=(_FLOOR * 0.8, 1.0))
    ticks = [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    axes.set_yticks(ticks, ["≤ 0.01 %", "0.1 %", "1 %", "10 %", "100 %"])
    counts = (100, 1_000, 10_000)
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.minorticks_off()
