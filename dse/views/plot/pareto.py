"""Pareto fronts of the objectives of a sweep with a front, else of two metrics of the study over all designs.

Step time against peak memory for training, tokens/s per device against tokens/s per user for serving.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.doors import study_of_metrics
from dse.io import counted
from dse.io.quantities import GIB, scale, settings
from dse.sweep.reduce.fronts import select_front
from dse.sweep.results.ranking import expression_values, objectives_of
from dse.sweep.results.schema import SPECIFICATION, cautions
from dse.views.plot import designs
from dse.views.plot.capacity import FASTER, draw_capacity, faster_than_fitting
from dse.views.plot.style import (
    COLUMN,
    FITS,
    FRONT,
    INK,
    TOO_LARGE,
    axis_label,
    freeze_layout,
    heading,
    legend_below,
    new_figure,
    series,
    set_title,
    small_print,
    style,
    wrap_label,
)
from dse.views.plot.ticks import plain_ticks

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dse.spec import Expression

#: Designs of a front that are drawn with their intervals, at most.
_MOST_INTERVALS = 40

#: Kinds of designs with different colours.
_MOST_COLOURS = 8


def pareto(results: xr.Dataset, points: int = 20_000) -> Figure:
    """Draw the front of a sweep or search of several objectives, else two metrics of the study over all designs.

    Args:
        results: a dataset of :func:`dse.run` or of a search.
        points: maximum number of designs behind the front, evenly thinned.

    Returns:
        The figure.

    Raises:
        InputError: for results without the required variables.
    """
    stored_front = front_of(results)
    if stored_front:
        return _front_figure(*stored_front)
    return (
        _time_memory_figure(results, points)
        if study_of_metrics(results).front_axes is None
        else _trade_off_figure(results, points)
    )


# Stored fronts


class PlottedObjective(NamedTuple):
    """One objective of all designs of a front."""

    label: str
    values: np.ndarray  # in the units of its label
    sign: float  # 1 to minimise, -1 to maximise
    metric: str = ""  # or expression
    factor: float = 1.0  # units of its label per SI unit


def front_of(results: xr.Dataset) -> tuple[xr.Dataset, list[PlottedObjective]] | None:
    """Return the designs of a stored front and its objectives with their values; None for fewer than two."""
    is_search_result = designs.is_search(results)
    if SPECIFICATION not in results.attrs or not (is_search_result or str(results.attrs.get("keep", "")) == "pareto"):
        return None
    spec_objectives, singles = objectives_of(results), designs.single_designs(results)
    total = study_of_metrics(singles).totals[0]
    if total not in singles or singles[total].dims != ("design",):
        return None
    variable_by_path = {str(values.attrs.get("path", name)): values for name, values in singles.variables.items()}
    evaluated = (
        (objective, expression_values(singles, objective.expression, singles[total])) for objective in spec_objectives
    )
    objectives = [
        _objective(objective.expression, values, objective.sign, variable_by_path)
        for objective, values in evaluated
        if values is not None
    ]
    return (singles, objectives) if len(objectives) > 1 else None


def representatives(objectives: list[PlottedObjective], most: int) -> np.ndarray:
    """Return at most ``most`` indices of designs of a front: its ends and some between, along its first objective."""
    scores = np.stack([objective.sign * objective.values for objective in objectives])
    return select_front(scores, (_three_digits,) * len(objectives), most).positions


def _three_digits(value: float) -> float:
    """Return a number rounded to three significant digits."""
    return float(f"{value:.3g}")


def _objective(
    expression: Expression, values: np.ndarray, sign: float, variable_by_path: dict[str, xr.Variable]
) -> PlottedObjective:
    """Return an objective with its values [design] in the units of its label."""
    import xarray as xr

    factor, units = scale(float(np.nanmedian(values)), expression.units)
    attributes = variable_by_path[expression.text].attrs if expression.text in variable_by_path else {}
    label = axis_label(xr.DataArray(values, name=expression.text, attrs=attributes), units)
    text = label if sign > 0.0 else f"{label}, more is better"
    return PlottedObjective(text, values * factor, sign, expression.text, factor)


def _front_figure(singles: xr.Dataset, objectives: list[PlottedObjective]) -> Figure:
    """Draw the first objective against the second."""
    first, second, *further_objectives = objectives
    order = np.argsort(first.values, kind="stable")
    x, y = first.values[order], second.values[order]
    fits = np.isfinite(x) & np.isfinite(y)
    if not fits.any():
        raise designs.nothing_feasible()
    with style():
        figure = new_figure(width=COLUMN, height=3.2)
        axes = figure.subplots()
        steps = "steps-post" if first.sign > 0.0 else "steps-pre"
        line: dict[str, Any] = {"linestyle": ""} if further_objectives else {"drawstyle": steps}
        axes.plot(x[fits], y[fits], color=FRONT, marker="o", markersize=3.2, linewidth=1.2, **line)
        axes.set_xlabel(wrap_label(first.label))
        axes.set_ylabel(wrap_label(second.label))
        memory, capacity = study_of_metrics(singles).memory, float(singles.attrs.get("memory_capacity_bytes", 0.0))
        for along, objective in (("x", first), ("y", second)):
            if objective.metric == memory and capacity > 0.0:
                draw_capacity(axes, capacity, objective.factor, along)
        positive = [(axis, values.min() > 0.0) for axis, values in (("x", x[fits]), ("y", y[fits]))]
        axes.set(**{f"{axis}scale": "log" for axis, is_positive in positive if is_positive})
        plain_ticks(*(getattr(axes, f"{axis}axis") for axis, is_positive in positive if is_positive))
        projection_note = f", two of {len(objectives)} objectives" if further_objectives else ""
        set_title(
            figure, designs.full_title(singles), f"Pareto front{projection_note}: {counted(int(fits.sum()), 'design')}"
        )
        small_print(figure, cautions(singles.attrs))
        return freeze_layout(figure, 2.8)


# Trade-off of serving: rate per device against rate per user


def has_trade_off(results: xr.Dataset) -> bool:
    """Return True for several feasible designs, not of a search, of a study with a trade-off of two metrics."""
    trade = study_of_metrics(results).front_axes
    if trade is None or not all(name in results for name in (*trade, "feasible")) or designs.is_search(results):
        return False
    return int(results.feasible.sum()) > 1


def _trade_off_figure(results: xr.Dataset, points: int) -> Figure:
    """Draw both metrics of all feasible designs with their front, coloured by the first label that differs."""
    singles = designs.single_designs(results)
    study = study_of_metrics(singles)
    names = study.front_axes or ("", "")
    designs.check_results(singles, *names)
    template = singles[names[0]]
    metric_values = [designs.flat_values(singles, name, template) for name in names]
    fits = designs.flat_values(singles, "feasible", template).astype(bool) & np.isfinite(metric_values).all(axis=0)
    if not fits.any():
        raise designs.nothing_feasible()
    x, y = (values[fits] for values in metric_values)
    front = designs.front(-x, -y)
    distinguished_by, coloured = _distinguishing_label(singles, template, fits)
    with style():
        figure = new_figure(width=COLUMN, height=3.4)
        axes = figure.subplots()
        for text, marker_style in series(list(coloured)).items():
            rows = _subsample(coloured[text], points)
            axes.scatter(
                x[rows],
                y[rows],
                color=marker_style["color"],
                marker=marker_style["marker"],
                s=9,
                linewidths=0,
                label=text,
            )
        axes.step(
            x[front],
            y[front],
            where="post",
            color=FRONT,
            linewidth=1.2,
            label="Pareto front",
        )
        _draw_intervals(
            axes,
            x,
            y,
            front,
            *(designs.interval_distances(singles, name, np.flatnonzero(fits)[front]) for name in names),
        )
        axes.set(xscale="log", yscale="log")
        axes.set(xlabel=wrap_label(rate_label(singles[names[0]])), ylabel=wrap_label(rate_label(singles[names[1]])))
        plain_ticks(axes.xaxis, axes.yaxis)
        legend_below(figure, *axes.get_legend_handles_labels(), title=heading(distinguished_by) or None)
        set_title(figure, designs.full_title(results))
        small_print(figure, cautions(results.attrs))
        return freeze_layout(figure, 2.8)


def _draw_intervals(axes: Axes, x: np.ndarray, y: np.ndarray, front: np.ndarray, *sizes: np.ndarray | None) -> None:
    """Draw 80 % intervals of the designs of a short front, of metrics whose intervals the results have."""
    across, up = sizes
    if len(front) <= _MOST_INTERVALS and any(size is not None for size in sizes):
        axes.errorbar(
            x[front],
            y[front],
            xerr=across,
            yerr=up,
            fmt="none",
            ecolor=FRONT,
            elinewidth=0.7,
            alpha=0.6,
            label="80 % interval",
        )


def rate_label(variable: xr.DataArray) -> str:
    """Return name and unit of a rate for an axis: ``output tokens/s per user``."""
    words = str(variable.name).replace("_per_second", "/s").replace("_", " ")
    return words if "/s" in words else axis_label(variable, str(variable.attrs.get("units", "")).removeprefix("1"))


def _distinguishing_label(
    singles: xr.Dataset, template: xr.DataArray, fits: np.ndarray
) -> tuple[str, dict[str, np.ndarray]]:
    """Return the first label that differs between designs and its value → indices; ("", all) without one."""
    for name in ("accelerator", "system", "workload", "precision", "tp"):
        if name in singles and singles[name].dims:
            values = designs.flat_values(singles, name, template)[fits]
            kinds = list(dict.fromkeys(values.tolist()))
            if 1 < len(kinds) <= _MOST_COLOURS:
                texts = settings(kinds, str(singles[name].attrs.get("units", "1")))
                return name, {text: np.flatnonzero(values == kind) for text, kind in zip(texts, kinds, strict=True)}
    return "", {"designs": np.arange(int(fits.sum()))}


# Time against memory


def _time_memory_figure(results: xr.Dataset, points: int) -> Figure:
    """Draw step time against peak memory in GiB, with the front."""
    columns, title = designs.columns(results)
    fits = np.flatnonzero(columns.feasible)
    if not len(fits):
        raise designs.nothing_feasible()
    front = fits[designs.front(columns.time[fits], columns.memory[fits])]
    factor, units = scale(columns.time[front].min(), "s")
    limit = 8.0 * columns.time[front].min()
    with style():
        figure = new_figure(width=COLUMN, height=3.4)
        axes = figure.subplots()
        is_faster = faster_than_fitting(columns)
        too_large = _subsample(np.flatnonzero(columns.memory_alone & ~is_faster & (columns.time < limit)), points)
        fitting = _subsample(fits[columns.time[fits] < limit], points)
        for rows, colour, marker, name in (
            (too_large, TOO_LARGE, "s", "does not fit"),
            (_subsample(np.flatnonzero(is_faster), points), INK, "s", FASTER),
            (fitting, FITS, "o", "fits"),
        ):
            if not len(rows):
                continue  # without an entry in the legend
            axes.scatter(
                columns.time[rows] * factor,
                columns.memory[rows] / GIB,
                color=colour,
                marker=marker,
                label=name,
                s=5,
                linewidths=0,
                rasterized=True,
            )
        axes.step(
            columns.time[front] * factor,
            columns.memory[front] / GIB,
            where="post",
            color=FRONT,
            linewidth=1.4,
            marker="o",
            markersize=3.2,
            label="Pareto front",
        )
        time, memory = (
            None
            if f"{quantity}_low" not in columns.interval_ends
            else factors
            * np.abs([columns.interval_ends[f"{quantity}_{end}"][front] - middle[front] for end in ("low", "high")])
            for quantity, middle, factors in (("time", columns.time, factor), ("memory", columns.memory, 1.0 / GIB))
        )
        _draw_intervals(axes, columns.time * factor, columns.memory / GIB, front, time, memory)
        if columns.capacity:
            draw_capacity(axes, columns.capacity, 1.0 / GIB, "y")
        axes.set(xscale="log", yscale="log", xlabel=f"step time ({units})", ylabel="peak memory (GiB)")
        plain_ticks(axes.xaxis, axes.yaxis)
        legend_below(figure, *axes.get_legend_handles_labels(), markerscale=2)
        set_title(figure, title)
        small_print(figure, columns.cautions)
        return freeze_layout(figure, 2.8)


def _subsample(indices: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` of the indices, evenly thinned."""
    return indices[:: math.ceil(len(indices) / most) or 1]
