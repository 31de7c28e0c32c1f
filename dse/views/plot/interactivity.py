"""Throughput per device over interactivity: one Pareto front per accelerator, one panel per workload.

The figure by which vendors and InferenceMAX compare accelerators that serve: output tokens/s per device against output
tokens/s per user, over all mappings and numbers of requests in flight of a sweep.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.doors import study_of_metrics
from dse.errors import InputError
from dse.io import setting
from dse.sweep.results.ranking import is_work
from dse.sweep.results.schema import cautions
from dse.sweep.results.singles import flat_values, nothing_feasible, single_designs
from dse.views.plot import designs
from dse.views.plot.pareto import rate_label
from dse.views.plot.style import (
    COLUMN,
    PAGE,
    SIZE,
    THIN,
    canvas,
    figure_of,
    heading,
    series,
    style,
    text_width,
    wrap_label,
)
from dse.views.plot.ticks import plain_ticks

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Scales of both axes.
SCALES = ("linear", "log")

#: Leaves of the load, which moves a design along its curve.
_LOAD = tuple(f"workload.requests.{name}" for name in ("concurrency", "request_rate", "load", "queue"))

#: Panels side by side; their height in inches.
_ACROSS, _HEIGHT = 2, 2.6

#: Offsets of a label from a curve, in letter heights: (right, up) of its left or right end.
_PLACES = tuple(
    (side * right, up)
    for far in (1.0, 1.5)
    for side in (1.0, -1.0)
    for right, up in ((0.7 * far, 0.0), (0.5 * far, 0.8 * far), (0.5 * far, -0.8 * far))
)


#: Left, low, right and high end of a label, in pixels.
Box = tuple[float, float, float, float]


class Curve(NamedTuple):
    """Pareto front of an accelerator with a workload."""

    accelerator: str
    per_user: np.ndarray  # output tokens/s, ascending
    per_device: np.ndarray  # output tokens/s, descending


def interactivity(results: xr.Dataset, scale: str = "linear") -> Figure:
    """Draw output tokens/s per device over output tokens/s per user.

    Args:
        results: a dataset of :func:`dse.run` of a serving study; ``keep = "all"`` has the whole fronts.
        scale: of both axes, ``linear`` or ``log``.

    Returns:
        The figure: one panel per workload (model, lengths of prompts and answers), one front per accelerator. Designs
        of unlike workloads are never on one front.

    Raises:
        InputError: for results of training, without a feasible design, and for another scale.
    """
    if scale not in SCALES:
        raise InputError("--scale", repr(scale), ", ".join(SCALES), "choose one of these")
    panels = fronts(results)
    chips = list(dict.fromkeys(curve.accelerator for curves in panels.values() for curve in curves))
    style_by_accelerator = series(chips)
    column_count = min(len(panels), _ACROSS)
    row_count = math.ceil(len(panels) / column_count)
    width, height = COLUMN if column_count == 1 else PAGE, _HEIGHT * row_count
    looks: dict[str, Any] = {
        "titles": [designs.full_title(results)],
        "cautions": cautions(results.attrs),
        "panels": height,
    }
    with canvas(width, height, (row_count, column_count), **looks) as grid:
        for axes, (work, curves) in zip(grid, panels.items(), strict=False):
            _draw(axes, work, curves, style_by_accelerator, scale, results)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
    with style():  # labels are placed in the layout as it stays
        for axes, curves in zip(grid, panels.values(), strict=False):
            _label_curves(axes, curves, _short_names(chips), style_by_accelerator)
    return figure_of(grid[0])


def fronts(results: xr.Dataset) -> dict[str, list[Curve]]:
    """Return workload in words → Pareto fronts (tokens/s per user and per device) of its accelerators.

    Args:
        results: as of :func:`interactivity`.
    """
    singles = single_designs(results)
    trade = study_of_metrics(singles).front_axes
    if trade is None:
        raise InputError("results", "a study of training", "one of serving", "plot results with a section [serving]")
    designs.check_results(singles, *trade)
    template = singles[trade[0]]
    per_user, per_device = (flat_values(singles, name, template) for name in trade)
    fits = flat_values(singles, "feasible", template).astype(bool)
    fits &= np.isfinite([per_user, per_device]).all(axis=0)
    if not fits.any():
        raise nothing_feasible()
    chip = next((name for name in ("accelerator", "system") if name in singles), "")
    chips = flat_values(singles, chip, template)[fits] if chip else np.full(int(fits.sum()), "designs")
    work = _workload_texts(singles, template, fits)
    panels: dict[str, list[Curve]] = {}
    for text, name in dict.fromkeys(zip(work, chips.tolist(), strict=True)):
        is_curve = (np.array(work) == text) & (chips == name)
        first, second = per_user[fits][is_curve], per_device[fits][is_curve]
        order = designs.front(-first, -second)[::-1]
        panels.setdefault(text, []).append(Curve(str(name), first[order], second[order]))
    return panels


def _workload_texts(singles: xr.Dataset, template: xr.DataArray, fits: np.ndarray) -> list[str]:
    """Return a text on the workload of each feasible design: values that differ, without the load."""
    import xarray as xr

    names = [
        str(name)
        for name, values in singles.variables.items()
        if values.dims
        and set(values.dims) <= set(template.dims)
        and is_work(xr.DataArray(values))
        and values.attrs.get("path") not in _LOAD
    ]
    columns = []
    for name in names:
        values = flat_values(singles, name, template)[fits].tolist()
        units = str(singles[name].attrs.get("units", "1"))
        texts = {value: setting(value, units) for value in dict.fromkeys(values)}
        if len(texts) > 1:
            prefix = "" if name == "workload" else f"{heading(name)} "
            columns.append([f"{prefix}{texts[value]}" for value in values])
    common_workload = str(singles["workload"].values) if "workload" in singles and not singles["workload"].dims else ""
    return [", ".join(parts) for parts in zip(*columns, strict=True)] or [common_workload] * int(fits.sum())


def _draw(
    axes: Axes, work: str, curves: list[Curve], style_by_accelerator: Any, scale: str, results: xr.Dataset
) -> None:
    """Draw the curves of one workload on one panel."""
    for curve in curves:
        line_style = style_by_accelerator[curve.accelerator]
        axes.plot(curve.per_user, curve.per_device, **THIN, **line_style)
    user_metric, device_metric = study_of_metrics(results).front_axes or ("", "")
    axes.set(xscale=scale, yscale=scale, title=work)
    axes.set(xlabel=wrap_label(rate_label(results[user_metric])), ylabel=wrap_label(rate_label(results[device_metric])))
    if scale == "log":
        plain_ticks(axes.xaxis, axes.yaxis)
    else:
        axes.set_xlim(left=0.0)
        axes.set_ylim(bottom=0.0)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter("{x:,.10g}")


def _short_names(chips: Iterable[str]) -> dict[str, str]:
    """Return name → its first part where that has a digit and no other name shares it (``h200``), else itself."""
    first = {name: name.partition("-")[0] for name in chips}
    counts = Counter(first.values())
    return {name: part if counts[part] == 1 and any(map(str.isdigit, part)) else name for name, part in first.items()}


def _label_curves(axes: Axes, curves: list[Curve], names: dict[str, str], style_by_accelerator: Any) -> None:
    """Write names next to the curves, where they cover least and are nearest to their own curve."""
    figure: Any = axes.figure
    letter = SIZE / 72.0 * figure.dpi
    curve_points = np.concatenate([_curve_pixels(axes, curve) for curve in curves])
    frame = axes.get_window_extent()
    label_boxes: list[Box] = []
    for place in sorted(range(len(curves)), key=lambda place: -float(curves[place].per_user[-1])):
        curve, text = curves[place], names[curves[place].accelerator]
        other_points = np.concatenate(
            [_curve_pixels(axes, other) for other in curves if other is not curve] or [np.empty((0, 2))]
        )
        width = text_width(figure, text, SIZE) * figure.dpi
        boxes: list[Box] = []
        for x, y in _curve_pixels(axes, curve, 4)[::-1]:
            for right, up in _PLACES:
                x_left = x + right * letter - (width if right < 0.0 else 0.0)
                boxes.append((x_left, y + (up - 0.5) * letter, x_left + width, y + (up + 0.5) * letter))
        costs = [_label_penalty(box, curve_points, other_points, label_boxes, frame) for box in boxes]
        chosen = boxes[int(np.argmin(costs))]
        label_boxes.append(chosen)
        axes.annotate(
            text,
            tuple(axes.transData.inverted().transform(chosen[:2]).tolist()),
            va="bottom",
            color=style_by_accelerator[curve.accelerator]["color"],
            annotation_clip=False,
        )


def _curve_pixels(axes: Axes, curve: Curve, steps: int = 40) -> np.ndarray:
    """Return points of a curve in pixels [n, 2], ``steps`` for each pair of neighbouring designs."""
    ends = axes.transData.transform(np.column_stack([curve.per_user, curve.per_device]))
    places = np.linspace(0.0, len(ends) - 1.0, (len(ends) - 1) * steps + 1)
    return np.column_stack([np.interp(places, range(len(ends)), ends[:, i]) for i in (0, 1)])


def _label_penalty(
    box: Box, curve_points: np.ndarray, other_points: np.ndarray, label_boxes: Sequence[Box], frame: Any
) -> float:
    """Return the penalty of a label's box in pixels: names and frame first, then covered points and nearness."""
    x0, y0, x1, y1 = box
    label_count = sum(x0 < right and left < x1 and y0 < top and bottom < y1 for left, bottom, right, top in label_boxes)
    overhang = sum(max(excess, 0.0) for excess in (frame.x0 - x0, x1 - frame.x1, frame.y0 - y0, y1 - frame.y1))
    gap = 0.25 * (y1 - y0)
    is_covered = (
        (curve_points[:, 0] > x0 - gap)
        & (curve_points[:, 0] < x1 + gap)
        & (curve_points[:, 1] > y0)
        & (curve_points[:, 1] < y1)
    )
    distances = np.maximum(np.maximum([x0, y0] - other_points, other_points - [x1, y1]), 0.0)
    nearness = float(np.exp(-np.hypot(*distances.T).min(initial=np.inf) / (y1 - y0)))
    return 1e6 * label_count + 1e3 * overhang + float(is_covered.sum()) + nearness
