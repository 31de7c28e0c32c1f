"""Shares of the time along each axis of a grid of machines."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.io import seconds
from dse.views.plot.breakdown import sort_by_legend
from dse.views.plot.grid import Machines, machines, spread_positions
from dse.views.plot.style import (
    COLUMN,
    PAGE,
    PALE,
    PARTS,
    PlottedPart,
    freeze_layout,
    legend_below,
    new_figure,
    part as part_style,
    set_title,
    small_print,
    stack_bars,
    style,
    wrap_label,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Parts of the step time drawn as one, and their style.
_TOGETHER = {"forward": "compute", "backward": "compute"}
_COMPUTE = PARTS["forward"]._replace(label="layers, forward and backward")

#: Maximum bars per axis; maximum share of a part drawn as one of the others; inches of a bar, of a line of text in it,
#: and of a panel's frame.
_MOST_BARS, _LEAST_SHARE, _BAR, _LINE, _FRAME = 12, 0.01, 0.07, 0.135, 0.5

#: Minimum inches of the bars with their times; letters per line of a panel's title.
_BARS, _LETTERS = 2.1, 28


def shares(results: xr.Dataset) -> Figure:
    """Draw shares of the time of a step, or per output token, along each axis from the best machine.

    Each bar is the best mapping of its machine, by the objective of the results. The bound is the part that remains
    along an axis.

    Args:
        results: a dataset of :func:`dse.run`, of a grid of machines.

    Returns:
        The figure.

    Raises:
        InputError: for results without the required variables.
    """
    return draw_shares(machines(results))


def draw_shares(grid: Machines) -> Figure:
    """Draw the parts of the step time of a grid as shares in per cent along each axis."""
    with style():
        columns = _in_two_columns(grid)
        tallest = max(sum(_panel_height(grid, name) for name in column) for column in columns)
        figure = new_figure(width=PAGE if len(columns) > 1 else COLUMN, height=tallest)
        part_names = _visible_parts(grid)
        column_grid = figure.add_gridspec(1, len(columns))
        for position, column in enumerate(columns):
            heights = [_panel_height(grid, name) for name in column]
            spare = tallest - sum(heights)
            row_grid = column_grid[position].subgridspec(
                len(column) + (spare > 0), 1, height_ratios=[*heights, spare][: len(column) + (spare > 0)]
            )
            for row, name in enumerate(column):
                axes = figure.add_subplot(row_grid[row])
                _draw(axes, grid, name, part_names)
                if row == len(column) - 1:
                    axes.set_xlabel(f"share of the {grid.study.totals[0].replace('_', ' ')} (%)")
        figure.set_layout_engine("constrained", w_pad=0.1)
        handles = _bar_handles(figure, part_names)
        legend_below(figure, list(handles.values()), list(handles))
        best = f"One axis at a time, from the best machine by {grid.objective} (bold): {grid.fixed_values_text()}"
        set_title(figure, grid.title, best)
        small_print(figure, grid.cautions)
        return freeze_layout(figure, 0.3 + tallest)


def _in_two_columns(grid: Machines) -> list[list[str]]:
    """Return the names of the axes in two columns of similar height, or one for a single axis."""
    columns: list[list[str]] = [[], []]
    for name in sorted(grid.axes, key=lambda name: -grid.points.sizes[name]):
        min(columns, key=lambda column: sum(_panel_height(grid, other) for other in column)).append(name)
    return [column for column in columns if column]


def _labels(grid: Machines, name: str) -> list[str]:
    """Return the values along an axis as texts, wrapped to leave room for the bars."""
    return [wrap_label(text, COLUMN - _BARS) for text in grid.labels(name)]


def _panel_height(grid: Machines, name: str) -> float:
    """Return the height in inches of the panel of an axis."""
    lines = max(text.count("\n") + 1 for text in _labels(grid, name))
    above = _LINE * _title(grid, name).count("\n")
    return _FRAME + above + (_BAR + _LINE * lines) * min(grid.points.sizes[name], _MOST_BARS)


def _title(grid: Machines, name: str) -> str:
    """Return the title of the panel of an axis, wrapped."""
    return textwrap.fill(grid.heading(name), _LETTERS)


def bar_positions(grid: Machines, name: str) -> list[int]:
    """Return the indices along an axis that have a bar, the best machine's among them."""
    return spread_positions(grid.points.sizes[name], _MOST_BARS, grid.best_position[name])


def _part_shares(grid: Machines, name: str) -> dict[str, np.ndarray]:
    """Return part of the step time → its share (0 to 1) at each position of an axis, 0 where nothing fits."""
    line, total = grid.slice_along(name), grid.study.totals[0]
    shares: dict[str, np.ndarray] = {}
    for variable, part in grid.parts.items():
        part = _TOGETHER.get(part, part)
        shares[part] = shares.get(part, 0.0) + (line[variable] / line[total]).fillna(0.0).values
    return shares


def _visible_parts(grid: Machines) -> list[str]:
    """Return the names of the parts of a visible share along some axis, compute first."""
    shares_of = [(_part_shares(grid, name), bar_positions(grid, name)) for name in grid.axes]
    visible = {
        part: None
        for parts, positions in shares_of
        for part, share in parts.items()
        if share[positions].max() > _LEAST_SHARE
    }
    return sorted(sort_by_legend(visible), key="compute".__ne__)


def _part_style(part: str) -> PlottedPart:
    """Return label and style of a part, of both passes together for "compute"."""
    return _COMPUTE if part == "compute" else part_style(part)


def _bar_handles(figure: Figure, part_names: list[str]) -> dict[str, Any]:
    """Return label → handle of its bars, in stacking order."""
    bar_by_label = {
        text: bar for axes in figure.axes for bar, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = [_part_style(part).label for part in [*part_names, "other"]]
    return {text: bar_by_label[text] for text in labels if text in bar_by_label}


def _draw(axes: Axes, grid: Machines, name: str, part_names: list[str]) -> None:
    """Draw the bars of one axis."""
    line, best = grid.slice_along(name), grid.best_position[name]
    bar_indices = bar_positions(grid, name)
    parts, positions = _part_shares(grid, name), np.arange(len(bar_indices))
    parts["other"] = sum((share for part, share in parts.items() if part not in part_names), np.zeros(line.sizes[name]))
    bars = {}
    for part in [*part_names, "other"]:
        width, look = 100.0 * parts[part][bar_indices], _part_style(part)
        is_hidden = part == "other" and width.max() <= 100.0 * _LEAST_SHARE  # from the legend
        bars["_" if is_hidden else look.label] = width, look
    stack_bars(axes, positions, bars, 0.78)
    times = line[grid.study.totals[0]].values[bar_indices]
    for row, time in enumerate(times.tolist()):
        text, place, colour = (seconds(time), 100.0, None) if np.isfinite(time) else ("nothing fits", 0.0, PALE)
        axes.annotate(text, (place, row), (3, 0), textcoords="offset points", va="center", color=colour)
    texts = _labels(grid, name)
    axes.set_yticks(positions, [texts[place] for place in bar_indices])
    axes.get_yticklabels()[bar_indices.index(best)].set_fontweight("bold")
    axes.set(xlim=(0, 100), ylim=(len(bar_indices) - 0.4, -0.6))
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_title(_title(grid, name), fontweight="bold", loc="left", pad=3)
