"""Shares of the step time along each axis of a grid of machines."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from dse.plot.breakdown import in_legend_order
from dse.plot.grid import Machines, machines, thinned
from dse.plot.style import (
    PALE,
    PARTS,
    laid_out,
    new_figure,
    plain,
    scaled,
    set_title,
    style,
    text_width,
)
from dse.plot.style import part as named

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Parts of the step time drawn as one: name, label, colour.
_TOGETHER = {"forward": "compute", "backward": "compute"}
_COMPUTE = ("layers, forward and backward", PARTS["forward"][1])

#: Most bars of an axis; the share up to which a part is one of the others; inches of a bar, and of a panel's frame.
_MOST_BARS, _LEAST_SHARE, _BAR, _FRAME = 12, 0.01, 0.2, 0.5

#: Inches of a column: its bars with their times, and the least with labels.
_BARS, _NARROWEST = 2.7, 3.8

#: Letters of a line of a panel's title, points of the labels.
_LETTERS, _SIZE = 28, 8.0


def shares(results: xr.Dataset) -> Figure:
    """Shares of the step time along each axis, one panel an axis, the others as at the fastest machine.

    Every bar is the best mapping of its machine. The bound shows as the part that is left when one axis moves on.
    """
    return along_axes(machines(results))


def along_axes(grid: Machines) -> Figure:
    """The parts of the step time of a grid as shares along each axis."""
    with style():
        columns = _in_two_columns(grid)
        tallest = max(sum(_height(grid, name) for name in column) for column in columns)
        figure = new_figure(width=_NARROWEST, height=1.0 + tallest)
        widths = [_width(figure, grid, column) for column in columns]
        figure.set_figwidth(sum(widths))
        drawn = _drawn(grid)
        outer = figure.add_gridspec(1, len(columns), width_ratios=widths)
        for place, column in enumerate(columns):
            heights = [_height(grid, name) for name in column]
            spare = tallest - sum(heights)
            inner = outer[place].subgridspec(
                len(column) + (spare > 0), 1, height_ratios=[*heights, spare][: len(column) + (spare > 0)]
            )
            for row, name in enumerate(column):
                axes = figure.add_subplot(inner[row])
                _draw(axes, grid, name, drawn)
                if row == len(column) - 1:
                    axes.set_xlabel("share of the step time (%)", fontsize=8)
        figure.set_layout_engine("constrained", w_pad=0.1)
        handles = _legend(figure, drawn)
        figure.legend(
            handles.values(), handles, loc="outside lower center", ncols=min(4, 2 * len(columns)), handlelength=1.1,
            columnspacing=1.6,
        )  # fmt: skip
        set_title(figure, grid.title, f"Along each axis from the fastest machine (bold): {grid.others()}")
        return laid_out(figure)


def _in_two_columns(grid: Machines) -> list[list[str]]:
    """The axes in two columns of about the same height, in one where there is one axis."""
    columns: list[list[str]] = [[], []]
    for name in sorted(grid.axes, key=lambda name: -grid.points.sizes[name]):
        min(columns, key=lambda column: sum(_height(grid, other) for other in column)).append(name)
    return [column for column in columns if column]


def _width(figure: Figure, grid: Machines, names: list[str]) -> float:
    """Inches of a column of panels."""
    longest = max(text_width(figure, text, _SIZE) for name in names for text in grid.labels(name))
    return max(_NARROWEST, _BARS + longest)


def _height(grid: Machines, name: str) -> float:
    """Inches of a panel."""
    return _FRAME + _BAR * min(grid.points.sizes[name], _MOST_BARS)


def bars(grid: Machines, name: str) -> list[int]:
    """The positions of an axis that are drawn."""
    return thinned(grid.points.sizes[name], _MOST_BARS, grid.at[name])


def _parts(grid: Machines, name: str) -> dict[str, np.ndarray]:
    """Part of the step time → its share at each position of an axis."""
    line = grid.along(name)
    parts: dict[str, np.ndarray] = {}
    for variable in map(str, line.data_vars):
        if variable.startswith("step_time_"):
            part = variable.removeprefix("step_time_")
            part = _TOGETHER.get(part, part)
            parts[part] = parts.get(part, 0.0) + (line[variable] / line.step_time).fillna(0.0).values
    return parts


def _drawn(grid: Machines) -> list[str]:
    """The parts that are worth a colour: of a share that can be seen along some axis. Compute first."""
    shares_of = [_parts(grid, name) for name in grid.axes]
    seen = {part: None for parts in shares_of for part, share in parts.items() if share.max() > _LEAST_SHARE}
    return sorted(in_legend_order(seen), key="compute".__ne__)


def _named(part: str) -> tuple[str, str]:
    """Label and colour."""
    return _COMPUTE if part == "compute" else named(part)


def _legend(figure: Figure, drawn: list[str]) -> dict[str, Any]:
    """Label → its bars, in the order in which they are stacked."""
    found = {text: bar for axes in figure.axes for bar, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    return {text: found[text] for text, _ in map(_named, [*drawn, "other"]) if text in found}


def _draw(axes: Axes, grid: Machines, name: str, drawn: list[str]) -> None:
    line, fastest = grid.along(name), grid.at[name]
    places = bars(grid, name)
    parts, at = _parts(grid, name), np.arange(len(places))
    left = np.zeros(len(places))
    parts["other"] = sum((share for part, share in parts.items() if part not in drawn), np.zeros(line.sizes[name]))
    for part in [*drawn, "other"]:
        label, colour = _named(part)
        width = 100.0 * parts[part][places]
        hidden = part == "other" and width.max() <= 100.0 * _LEAST_SHARE  # from the legend
        axes.barh(at, width, left=left, height=0.78, color=colour, label="_" if hidden else label, linewidth=0)
        left += width
    times = line.step_time.values[places]
    for row, time in enumerate(times.tolist()):
        scale, units = scaled(time, "s")
        text = f"{plain(time * scale)} {units}" if np.isfinite(time) else "nothing fits"
        axes.annotate(text, (100.0 if np.isfinite(time) else 0.0, row), xytext=(3, 0), textcoords="offset points",
                      va="center", fontsize=7.5, color=PALE if not np.isfinite(time) else None)  # fmt: skip
    texts = grid.labels(name)
    axes.set_yticks(at, [texts[place] for place in places], fontsize=_SIZE)
    axes.get_yticklabels()[places.index(fastest)].set_fontweight("bold")
    axes.set(xlim=(0, 100), ylim=(len(places) - 0.4, -0.6))
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines["left"].set_visible(False)
    title = textwrap.fill(grid.heading(name), _LETTERS)
    axes.set_title(title, fontsize=9, fontweight="bold", loc="left", pad=3)
