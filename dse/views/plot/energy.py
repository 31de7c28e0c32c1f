"""Energy per step against step time, for the best mapping of each machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.doors import study_of_metrics
from dse.errors import InputError
from dse.io.quantities import scale as scale_of
from dse.sweep.results.singles import nothing_feasible
from dse.views.plot import designs
from dse.views.plot.grid import Machines, machines
from dse.views.plot.pareto import Cloud, draw_designs
from dse.views.plot.style import (
    PAGE,
    axis_label,
    canvas,
    figure_of,
    series,
    wrap_label,
)

if TYPE_CHECKING:
    import xarray as xr
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
        raise nothing_feasible()
    front = finite[designs.front(time.values.ravel()[finite], joules.values.ravel()[finite])]
    factors = [scale_of(float(values.median()), values.attrs.get("units", "1")) for values in (time, joules)]
    x, y = (values.values.ravel() * factor for values, (factor, _) in zip((time, joules), factors, strict=True))
    legend: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "handlelength": 1.2}
    legend |= {"title": wrap_label(grid.heading(coloured_by), 1.8), "borderaxespad": 0.0}
    titles = [grid.title, *_front_ends(grid, front), _work_text(all_machines)]
    look = {"linewidth": 1.1, "marker": "o", "markersize": 5, "markerfacecolor": "none"}
    labels = axis_label(time, factors[0][1]), wrap_label(axis_label(joules, factors[1][1]))
    with canvas(PAGE, 3.6, titles=titles, cautions=all_machines.cautions, panels=3.2) as (axes,):
        clouds = _machine_clouds(grid, coloured_by, x, y)
        draw_designs(axes, clouds, Cloud("Pareto front", x[front], y[front], look), labels)
        axes.legend(**legend)
    return figure_of(axes)


def _work_text(grid: Machines) -> str:
    """Return a text on the workload of all machines, "" where the results have one."""
    workload_text = grid.fixed_values_text(*grid.with_best_work().axes)
    return f"all at {workload_text}" if workload_text else ""


def _machine_clouds(grid: Machines, name: str, x: np.ndarray, y: np.ndarray) -> Iterator[Cloud]:
    """Yield one dot per machine, coloured by its position along an axis."""
    texts = grid.labels(name)
    shape = [-1 if dim == name else 1 for dim in grid.time.dims]
    place = np.broadcast_to(np.arange(len(texts)).reshape(shape), grid.time.shape).ravel()
    for position, (text, look) in enumerate(
        zip(texts, series(list(map(str, range(len(texts))))).values(), strict=True)
    ):
        is_here = place == position
        label = text if len(texts) <= 12 or position % (len(texts) // 6) == 0 else None
        dots = {"s": 11, "color": look["color"], "marker": look["marker"], "alpha": 0.85}
        yield Cloud(label, x[is_here], y[is_here], dots)


def _front_ends(grid: Machines, front: np.ndarray) -> list[str]:
    """Return a line on the machine at each end of the front of flat indices ``front``, or one where it is a point."""
    template = grid.time
    names = [str(d) for d in template.dims]
    ends = [dict(zip(names, map(int, np.unravel_index(int(i), template.shape)), strict=True)) for i in front[[0, -1]]]
    if len(front) == 1:
        return [f"Fastest and lowest energy: {grid._replace(best_position=ends[0]).fixed_values_text()}"]
    fastest, lowest_energy = (grid._replace(best_position=end).fixed_values_text() for end in ends)
    return [f"Fastest: {fastest}", f"Lowest energy: {lowest_energy}"]
