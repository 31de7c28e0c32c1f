"""Time, energy or another metric over logic nodes in nanometres: a line a memory, a panel a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.doors import study_of_metrics
from dse.errors import InputError, unknown_name
from dse.io.quantities import scale as scale_of
from dse.views.plot.grid import axes_of, machines, spread_positions
from dse.views.plot.style import (
    COLUMN,
    INK,
    PAGE,
    axis_label,
    canvas,
    figure_of,
    heading,
    labels,
    series,
    wrap_label,
)
from dse.views.plot.ticks import plain_ticks, tick_text

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The axis of nodes, its length in nm, and whether the figures of a node continue a trend.
_NODE, _LENGTH, _EXTRAPOLATED = "node", "node_nm", "node_extrapolated"

#: Lines first, panels next, where a sweep has these axes.
_LINES, _PANELS = ("memory", "workload"), ("workload", "scale_out", "scale_up")

_MOST_LINES, _MOST_PANELS = 8, 3

#: Inches of a panel with its ticks; share of the axis between the numbers of two nodes.
_PANEL, _GAP = 2.3, 0.085


def has_nodes(results: xr.Dataset) -> bool:
    """Return True for a grid of machines in two nodes or more, all with a length."""
    along = all(name in results.coords and results[name].dims == (_NODE,) for name in (_LENGTH, _EXTRAPOLATED))
    if _NODE not in axes_of(results) or not along or results[_LENGTH].dtype.kind not in "fi":
        return False
    lengths = results[_LENGTH].values
    return bool((np.isfinite(lengths) & (lengths > 0.0)).all()) and lengths.min() < lengths.max()


def nodes(results: xr.Dataset, metric: str | None = None) -> Figure:
    """Draw a metric over the logic nodes, both axes logarithmic and newer nodes to the right.

    A line per memory and a panel per network or workload, where these are axes; along all other axes the best machine
    counts. Nodes that continue a trend, of which nothing is announced, have hollow markers on grey.

    Args:
        results: a dataset of :func:`dse.run` with an axis of nodes.
        metric: name of a variable; by default the time that the study minimises.

    Returns:
        The figure.

    Raises:
        InputError: for results without an axis of nodes, and for a metric that they lack.
    """
    if not has_nodes(results):
        lacks = "no lengths along an axis of logic nodes" if _NODE in results.coords else "no axis of logic nodes"
        raise InputError("results", lacks, 'node = ["n5", "n3e", "n2"]', "sweep nodes that have a length (again)")
    grid = machines(results)
    metric = study_of_metrics(results).totals[0] if metric is None else metric
    if metric not in grid.points:
        raise unknown_name("metric", metric, sorted(map(str, grid.points.data_vars)), "names")
    others = [name for name in grid.axes if name != _NODE]
    line_axis = next((name for name in _LINES if name in others), None) or grid.most_influential_axis(metric, (_NODE,))
    panel_axis = next((name for name in _PANELS if name in others and name != line_axis), None)
    shown = [name for name in (line_axis, panel_axis) if name]
    values = grid.points[metric].min([name for name in others if name not in shown])
    factor, units = scale_of(float(values.min()), grid.points[metric].attrs.get("units", "1"))
    values = factor * values
    panels = (
        spread_positions(grid.points.sizes[panel_axis], _MOST_PANELS, grid.best_position[panel_axis])
        if panel_axis
        else [0]
    )
    hollow = "; hollow: extrapolated" if results[_EXTRAPOLATED].any() else ""
    legend = {"most": 5, "handlelength": 2.6, "title": f"{heading(line_axis)}{hollow}"} if line_axis else None
    width, looks = COLUMN if len(panels) == 1 else PAGE, {"titles": [grid.title], "cautions": grid.cautions}
    with canvas(width, 3.0, (1, len(panels)), **looks, panels=_PANEL, legend=legend, sharey=True) as drawn:
        for axes, place in zip(drawn, panels, strict=True):
            panel = values.isel({panel_axis: place}) if panel_axis else values
            _draw_panel(axes, panel, results, line_axis, grid.labels(line_axis) if line_axis else [])
            if panel_axis:
                axes.set_title(f"{heading(panel_axis)} {labels(grid.points[panel_axis])[place]}")
        drawn[0].set_ylabel(wrap_label(axis_label(grid.points[metric], units), 2.0))
        plain_ticks(drawn[0].yaxis)
    return figure_of(drawn[0])


def _draw_panel(axes: Axes, values: xr.DataArray, results: xr.Dataset, line_axis: str | None, names: list[str]) -> None:
    """Draw the lines of a panel over the lengths of the nodes."""
    by_length = np.argsort(-results[_LENGTH].values)
    lengths = results[_LENGTH].values[by_length]
    continued = results[_EXTRAPOLATED].values[by_length].astype(bool)
    rows = values.transpose(*([line_axis] if line_axis else []), _NODE).values.reshape(-1, len(lengths))
    places = spread_positions(len(rows), _MOST_LINES, 0)
    looks = series([names[place] if names else "" for place in places])
    for place, (name, look) in zip(places, looks.items(), strict=True):
        row = rows[place][by_length]
        plain = {"color": look["color"], "marker": look["marker"], "markersize": 4.5, "linewidth": 1.2}
        axes.plot(lengths, row, label=name, linestyle=look["linestyle"], **plain)
        axes.plot(lengths[continued], row[continued], linestyle="none", markerfacecolor="white", **plain)
    axes.set(xscale="log", yscale="log", xlim=(1.12 * lengths.max(), lengths.min() / 1.12))
    axes.set_xlabel("logic node (nm)")
    if continued.any():
        edge = np.sqrt(lengths[continued].max() * lengths[~continued].min()) if (~continued).any() else lengths.max()
        axes.axvspan(edge, lengths.min() / 1.12, color="#f0f0f0", zorder=0, linewidth=0.0)
    ticks: list[float] = []
    span = np.log(lengths.max() / lengths.min())
    for length in lengths:
        if not ticks or np.log(ticks[-1] / length) > _GAP * span:
            ticks.append(float(length))
    axes.set_xticks(ticks, [tick_text(tick) for tick in ticks], color=INK)
    axes.minorticks_off()
