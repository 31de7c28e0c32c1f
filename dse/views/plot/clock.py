"""Time, energy and power against the clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dse.errors import InputError
from dse.io.quantities import scale as scale_of
from dse.views.plot.grid import Machines, axes_of, machines, spread_positions
from dse.views.plot.style import (
    COLUMN,
    PAGE,
    axis_label,
    canvas,
    figure_of,
    series,
    wrap_label,
)

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Leaves that set a clock.
_CLOCKS = ("system.accelerator.power.clock", "system.accelerator.chip.clock_ratio")

_MOST_LINES, _MOST_PANELS = 8, 3

#: Ratio of lines above which they are drawn relative to their value at the highest clock.
_MAX_RATIO = 3.0

#: Inches of a panel with its ticks, and of a line of text.
_PANEL, _LINE = 1.8, 0.14

#: Minimum ratio of both ends of a line to its minimum.
_DEPTH = 1.002

#: Upper end of a panel with a minimum, over the highest right end of a line.
_HIGHEST = 1.6


def clock_axis(results: xr.Dataset) -> str | None:
    """Return the name of the first axis that is a clock with three positions or more, None without one."""
    return next(
        (n for n in axes_of(results) if results.sizes[n] > 2 and n in results.coords and _is_clock(results[n])), None
    )


def _is_clock(coordinate: xr.DataArray) -> bool:
    """Return True for an axis of a leaf that sets a clock."""
    return coordinate.attrs.get("path") in _CLOCKS


def clock(results: xr.Dataset) -> Figure:
    """Draw energy, time and power against the clock.

    One line per workload, or per value of the axis with most effect.

    A dot marks the minimum of a line that falls and rises, as energy does. All other axes have their values of the
    best machine.

    Args:
        results: a dataset of :func:`dse.run` with an axis of clocks.

    Returns:
        The figure.

    Raises:
        InputError: for results without the required variables.
    """
    name = clock_axis(results)
    if name is None:
        raise InputError(
            "results", "no axis of three clocks or more", "an axis power.clock or chip.clock_ratio", "sweep the clock"
        )
    grid = machines(results)
    study_metrics = (grid.study.energy, grid.study.totals[0], "device_power")
    candidates = dict.fromkeys([str(results.attrs.get("objective", "")), *study_metrics])
    metrics = [metric for metric in candidates if metric in grid.points][:_MOST_PANELS]
    line_axis = "workload" if "workload" in grid.axes else grid.most_influential_axis(metrics[0], except_for=(name,))
    width, most = (PAGE, 4) if len(metrics) > 1 else (COLUMN, 2)
    legend = {"most": most, "handlelength": 2.6, "title": wrap_label(grid.heading(line_axis))} if line_axis else None
    fixed_values = grid.fixed_values_text(name, *([line_axis] if line_axis else []))
    looks: dict[str, Any] = {
        "titles": [grid.title, f"at {fixed_values}" if fixed_values else ""],
        "cautions": grid.cautions,
    }
    with canvas(width, 2.9, (1, len(metrics)), **looks, panels=_height, legend=legend) as panels:
        for axes, metric in zip(panels, metrics, strict=True):
            _draw(axes, grid, metric, name, line_axis, 0.8 * width / len(metrics))
    return figure_of(panels[0])


def _height(panels: list[Axes]) -> float:
    """Return the inches of height of panels with the lines of their titles and labels."""
    above = max(axes.get_title(loc="left").count("\n") + 1 for axes in panels)
    return _PANEL + _LINE * (above + max(axes.get_xlabel().count("\n") + 1 for axes in panels))


def _draw(axes: Axes, grid: Machines, metric: str, name: str, line_axis: str | None, inches: float) -> None:
    """Draw one metric against the clock."""
    line = grid.slice_along(name, *([line_axis] if line_axis else []))
    x_scale, x_units = scale_of(float(line[name].max()), line[name].attrs.get("units", "1"))
    values = line[metric].transpose(*([line_axis] if line_axis else []), name).values.reshape(-1, line.sizes[name])
    positions = spread_positions(len(values), _MOST_LINES, grid.best_position[line_axis] if line_axis else 0)
    values, is_relative = _relative_lines(values[positions])
    factor, units = 1.0, ""
    if not is_relative:
        factor, units = scale_of(float(np.nanmin(values)), line[metric].attrs.get("units", "1"))
    texts, highest = grid.labels(line_axis) if line_axis else [""], []
    looks = series(list(map(str, positions)))
    for row, position, look in zip(values, positions, looks.values(), strict=True):
        x, y = line[name].values * x_scale, row * factor
        if len(x) > 12:
            look = look | {"marker": None}
        axes.plot(x, y, linewidth=1.3, label=texts[position], markersize=3, **look)
        minimum = _inner_minimum(y)
        if minimum is not None:
            axes.plot(x[minimum], y[minimum], color=look["color"], marker="o", markersize=6)
            highest.append(float(y[np.isfinite(y)][-1]))
    title = axis_label(line[metric], units or ("relative to the highest clock" if is_relative else ""))
    axes.set_title(wrap_label(title, inches), loc="left")
    axes.set_xlabel(wrap_label(axis_label(line[name], x_units), inches))
    axes.locator_params(nbins=5)  # the same ticks for any layout of the panel
    axes.margins(y=0.08)
    if highest:  # shows the minimum, not the climb on its left
        axes.set_ylim(top=min(axes.get_ylim()[1], _HIGHEST * max(highest)))


def _inner_minimum(values: np.ndarray) -> int | None:
    """Return the index of the minimum of a line that falls and rises, None for other lines."""
    finite = np.flatnonzero(np.isfinite(values))
    if not len(finite):
        return None
    lowest = int(finite[values[finite].argmin()])
    return lowest if min(values[finite[0]], values[finite[-1]]) > _DEPTH * values[lowest] else None


def _relative_lines(values: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return lines [line, clock], divided by their last finite value if far from each other, and whether they were."""
    middles = [float(np.median(row[np.isfinite(row)])) for row in values if np.isfinite(row).any()]
    if not middles or max(middles) <= _MAX_RATIO * min(middles):
        return values, False
    last = np.array([row[np.isfinite(row)][-1] if np.isfinite(row).any() else np.nan for row in values])
    return values / last[:, None], True
