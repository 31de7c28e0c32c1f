"""Pareto fronts of the objectives of a sweep with a front, else of two metrics of the study over all designs.

Step time against peak memory for training, tokens/s per device against tokens/s per user for serving.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.doors import study_of_metrics
from dse.io import counted
from dse.io.quantities import GIB, scale, settings
from dse.sweep.reduce.fronts import select_front
from dse.sweep.results.ranking import expression_values, objectives_of
from dse.sweep.results.schema import SPECIFICATION, cautions
from dse.sweep.results.singles import flat_values, is_search, nothing_feasible, single_designs
from dse.views.plot import designs
from dse.views.plot.capacity import FASTER, draw_capacity, faster_than_fitting
from dse.views.plot.style import (
    COLUMN,
    FITS,
    FRONT,
    INK,
    TOO_LARGE,
    axis_label,
    canvas,
    figure_of,
    heading,
    series,
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
    is_search_result = is_search(results)
    if SPECIFICATION not in results.attrs or not (is_search_result or str(results.attrs.get("keep", "")) == "pareto"):
        return None
    spec_objectives, singles = objectives_of(results), single_designs(results)
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


class Cloud(NamedTuple):
    """Designs of one look in a figure of two metrics."""

    label: str | None
    x: np.ndarray
    y: np.ndarray
    look: dict[str, Any]  # keywords of matplotlib


def draw_designs(
    axes: Axes,
    clouds: Iterable[Cloud],
    front: Cloud,
    labels: tuple[str, str],
    distances: Sequence[np.ndarray | None] = (None, None),
    scales: tuple[str, str] = ("log", "log"),
    capacities: Iterable[tuple[float, float, str]] = (),
) -> None:
    """Draw designs in two metrics with their Pareto front.

    Args:
        axes: the panel.
        clouds: designs, those without any left out.
        front: its designs in order, and the look of its line.
        labels: of both axes.
        distances: of both metrics of the front, to the ends of their intervals [2, design]; None for none.
        scales: of both axes.
        capacities: lines of device memory, as :func:`draw_capacity` takes them.
    """
    for cloud in clouds:
        if len(cloud.x):
            axes.scatter(cloud.x, cloud.y, label=cloud.label, linewidths=0, **cloud.look)
    axes.plot(front.x, front.y, label=front.label, **{"color": FRONT, "drawstyle": "steps-post", **front.look})
    if len(front.x) <= _MOST_INTERVALS and any(distance is not None for distance in distances):
        bars: dict[str, Any] = {"fmt": "none", "ecolor": FRONT, "elinewidth": 0.7, "alpha": 0.6}
        across, up = distances
        axes.errorbar(front.x, front.y, xerr=across, yerr=up, label="80 % interval", **bars)
    for capacity in capacities:
        draw_capacity(axes, *capacity)
    axes.set(xscale=scales[0], yscale=scales[1], xlabel=labels[0], ylabel=labels[1])
    plain_ticks(*(axis for axis, scale in zip((axes.xaxis, axes.yaxis), scales, strict=True) if scale == "log"))


def _front_figure(singles: xr.Dataset, objectives: list[PlottedObjective]) -> Figure:
    """Draw the first objective against the second."""
    first, second, *further_objectives = objectives
    order = np.argsort(first.values, kind="stable")
    x, y = first.values[order], second.values[order]
    fits = np.isfinite(x) & np.isfinite(y)
    if not fits.any():
        raise nothing_feasible()
    look: dict[str, Any] = {"drawstyle": "steps-post" if first.sign > 0.0 else "steps-pre"}
    look = {"linestyle": "", "drawstyle": None} if further_objectives else look
    front = Cloud(None, x[fits], y[fits], look | {"marker": "o", "markersize": 3.2, "linewidth": 1.2})
    projection_note = f", two of {len(objectives)} objectives" if further_objectives else ""
    titles = [designs.full_title(singles), f"Pareto front{projection_note}: {counted(int(fits.sum()), 'design')}"]
    scales = ("log" if front.x.min() > 0.0 else "linear", "log" if front.y.min() > 0.0 else "linear")
    memory, capacity = study_of_metrics(singles).memory, float(singles.attrs.get("memory_capacity_bytes", 0.0))
    along = [("x", first), ("y", second)] if capacity > 0.0 else []
    lines = [(capacity, objective.factor, axis) for axis, objective in along if objective.metric == memory]
    with canvas(COLUMN, 3.2, titles=titles, cautions=cautions(singles.attrs), panels=2.8) as (axes,):
        labels = wrap_label(first.label), wrap_label(second.label)
        draw_designs(axes, (), front, labels, scales=scales, capacities=lines)
    return figure_of(axes)


# Trade-off of serving: rate per device against rate per user


def has_trade_off(results: xr.Dataset) -> bool:
    """Return True for several feasible designs, not of a search, of a study with a trade-off of two metrics."""
    trade = study_of_metrics(results).front_axes
    if trade is None or not all(name in results for name in (*trade, "feasible")) or is_search(results):
        return False
    return int(results.feasible.sum()) > 1


def _trade_off_figure(results: xr.Dataset, points: int) -> Figure:
    """Draw both metrics of all feasible designs with their front, coloured by the first label that differs."""
    singles = single_designs(results)
    study = study_of_metrics(singles)
    names = study.front_axes or ("", "")
    designs.check_results(singles, *names)
    template = singles[names[0]]
    metric_values = [flat_values(singles, name, template) for name in names]
    fits = flat_values(singles, "feasible", template).astype(bool) & np.isfinite(metric_values).all(axis=0)
    if not fits.any():
        raise nothing_feasible()
    x, y = (values[fits] for values in metric_values)
    front = designs.front(-x, -y)
    distinguished_by, coloured = _distinguishing_label(singles, template, fits)
    clouds = []
    for text, look in series(list(coloured)).items():
        rows = _subsample(coloured[text], points)
        clouds.append(Cloud(text, x[rows], y[rows], {"color": look["color"], "marker": look["marker"], "s": 9}))
    distances = [designs.interval_distances(singles, name, np.flatnonzero(fits)[front]) for name in names]
    labels = wrap_label(rate_label(singles[names[0]])), wrap_label(rate_label(singles[names[1]]))
    looks: dict[str, Any] = {
        "titles": [designs.full_title(results)],
        "cautions": cautions(results.attrs),
        "panels": 2.8,
    }
    with canvas(COLUMN, 3.4, **looks, legend={"title": heading(distinguished_by) or None}) as (axes,):
        front_line = Cloud("Pareto front", x[front], y[front], {"linewidth": 1.2})
        draw_designs(axes, clouds, front_line, labels, distances)
    return figure_of(axes)


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
            values = flat_values(singles, name, template)[fits]
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
        raise nothing_feasible()
    front = fits[designs.front(columns.time[fits], columns.memory[fits])]
    factor, units = scale(columns.time[front].min(), "s")
    time, memory = columns.time * factor, columns.memory / GIB
    is_faster, is_near = faster_than_fitting(columns), columns.time < 8.0 * columns.time[front].min()
    too_large = np.flatnonzero(columns.memory_alone & ~is_faster & is_near)
    clouds = []
    for rows, colour, marker, name in (
        (too_large, TOO_LARGE, "s", "does not fit"),
        (np.flatnonzero(is_faster), INK, "s", FASTER),
        (fits[is_near[fits]], FITS, "o", "fits"),
    ):
        thinned = _subsample(rows, points)
        look = {"color": colour, "marker": marker, "s": 5, "rasterized": True}
        clouds.append(Cloud(name, time[thinned], memory[thinned], look))
    distances = [
        scaling * np.abs(columns.intervals[name][:, front] - middle[front]) if name in columns.intervals else None
        for name, middle, scaling in (("time", columns.time, factor), ("memory", columns.memory, 1.0 / GIB))
    ]
    front_look = {"linewidth": 1.4, "marker": "o", "markersize": 3.2}
    looks: dict[str, Any] = {
        "titles": [title],
        "cautions": columns.cautions,
        "panels": 2.8,
        "legend": {"markerscale": 2},
    }
    with canvas(COLUMN, 3.4, **looks) as (axes,):
        front_line = Cloud("Pareto front", time[front], memory[front], front_look)
        lines = [(columns.capacity, 1.0 / GIB, "y")] if columns.capacity else []
        labels = f"step time ({units})", "peak memory (GiB)"
        draw_designs(axes, clouds, front_line, labels, distances, capacities=lines)
    return figure_of(axes)


def _subsample(indices: np.ndarray, most: int) -> np.ndarray:
    """Return at most ``most`` of the indices, evenly thinned."""
    return indices[:: math.ceil(len(indices) / most) or 1]
