"""Energy per step against step time, for the best mapping of each machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.doors import study_of_metrics
from dse.errors import InputError
from dse.io.quantities import scale as scale_of
from dse.views.plot import designs
from dse.views.plot.grid import Machines, machines
from dse.views.plot.style import (
    FRONT,
    PAGE,
    axis_label,
    freeze_layout,
    marker,
    new_figure,
    set_title,
    shades,
    small_print,
    style,
    wrap_label,
)
from dse.views.plot.ticks import plain_ticks

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def energy(results: xr.Dataset) -> Figure:
    """Draw the energy of a step or token against time, one dot per machine, and the Pareto front.

    Colours show the axis with most effect on the energy. Axes of the workload, such as the batch, are fixed at the
    position of the best machine, since steps of different work do not compare.

    Args:
        results: a dataset of :func:`dse.run` with metrics of energy.

    Returns:
        The figure.

    Raises:
        InputError: for results without the required variables.
    """
    study = study_of_metrics(results)
    metric = study.energy
    if not metric:
        raise InputError("results", f"results of {study.name}", "results with energy", "draw another kind")
    if metric not in results:
        raise InputError(
            "results",
            f"no variable {metric!r}",
            "results with energy",
            "leave out energy = false under [output] in the sweep",
        )
    all_machines = machines(results)
    grid = all_machines.with_best_work()
    coloured_by = grid.most_influential_axis(metric)
    if coloured_by is None:
        raise InputError(
            "results", "one machine", "two or more machines for one workload", "sweep an axis of the machine too"
        )
    time, joules = grid.time, grid.points[metric]
    finite = np.flatnonzero(np.isfinite(time.values.ravel()) & np.isfinite(joules.values.ravel()))
    if not len(finite):
        raise designs.nothing_feasible()
    front = finite[designs.front(time.values.ravel()[finite], joules.values.ravel()[finite])]
    factors = [scale_of(float(values.median()), values.attrs.get("units", "1")) for values in (time, joules)]
    x, y = (values.values.ravel() * factor for values, (factor, _) in zip((time, joules), factors, strict=True))
    with style():
        figure = new_figure(width=PAGE, height=3.6)
        axes = figure.subplots()
        _draw_machines(axes, grid, coloured_by, x, y)
        axes.plot(
            x[front],
            y[front],
            color=FRONT,
            linewidth=1.1,
            marker="o",
            markersize=5,
            markerfacecolor="none",
            drawstyle="steps-post",
            label="Pareto front",
        )
        axes.set(xscale="log", yscale="log")
        axes.set_xlabel(axis_label(time, factors[0][1]))
        axes.set_ylabel(wrap_label(axis_label(joules, factors[1][1])))
        plain_ticks(axes.xaxis, axes.yaxis)
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(1.0, 1.0),
            title=wrap_label(grid.heading(coloured_by), 1.8),
            handlelength=1.2,
            borderaxespad=0.0,
        )
        set_title(figure, grid.title, *_front_ends(grid, front), _work_text(all_machines))
        small_print(figure, all_machines.cautions)
        return freeze_layout(figure, 3.2)


def _work_text(grid: Machines) -> str:
    """Return a text on the workload of all machines, "" where the results have one."""
    workload_text = grid.fixed_values_text(*grid.with_best_work().axes)
    return f"all at {workload_text}" if workload_text else ""


def _draw_machines(axes: Axes, grid: Machines, name: str, x: np.ndarray, y: np.ndarray) -> None:
    """Draw one dot per machine, coloured by its position along an axis."""
    texts = grid.labels(name)
    place = np.broadcast_to(
        np.arange(len(texts)).reshape([-1 if d == name else 1 for d in grid.time.dims]),
        grid.time.shape,
    ).ravel()
    for position, (text, colour) in enumerate(zip(texts, shades(len(texts)), strict=True)):
        is_here = place == position
        label = text if len(texts) <= 12 or position % (len(texts) // 6) == 0 else None
        axes.scatter(
            x[is_here], y[is_here], s=11, color=colour, marker=marker(position), linewidths=0, alpha=0.85, label=label
        )


def _front_ends(grid: Machines, front: np.ndarray) -> list[str]:
    """Return a line on the machine at each end of the front of flat indices ``front``, or one where it is a point."""
    template = grid.time
    names = [str(d) for d in template.dims]
    ends = [dict(zip(names, map(int, np.unravel_index(int(i), template.shape)), strict=True)) for i in front[[0, -1]]]
    if len(front) == 1:
        return [f"Fastest and lowest energy: {grid._replace(best_position=ends[0]).fixed_values_text()}"]
    fastest, lowest_energy = (grid._replace(best_position=end).fixed_values_text() for end in ends)
    return [f"Fastest: {fastest}", f"Lowest energy: {lowest_energy}"]
