"""Step time by bound: compute, device memory, links between dies, network, rest.

Results do not store bounds: the designs drawn are rebuilt from the specification of the results and evaluated
(:func:`dse.doors.evaluation.bounds`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.doors import Study
from dse.errors import InputError
from dse.sweep.results.ranking import ranking_variables
from dse.sweep.results.singles import is_search
from dse.types import Design
from dse.views.plot import designs
from dse.views.plot.breakdown import best_by_group, draw_mappings, ranking_note
from dse.views.plot.grid import axes_of, best_mappings, machines
from dse.views.plot.machines import bar_positions, draw_shares
from dse.views.plot.style import part

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

#: Tolerance between step times in the results and of rebuilt designs, in single precision.
_TOLERANCE = 1e-4


def bounds(results: xr.Dataset) -> Figure:
    """Draw the step time by bound: as shares along each axis of a grid of machines, else of the best mappings.

    Kernels count to their side of the roofline, exposed messages to the network, the optimiser's traffic to memory; the
    rest is bubble, host waits, kernel floors and transfers to the host.

    Args:
        results: a dataset of :func:`dse.run`.

    Returns:
        The figure.

    Raises:
        InputError: for results without the required variables.
    """
    if is_search(results):
        fix = "draw another kind, or run a sweep of its best designs"
        raise InputError("results", "results of a search", "results of dse run", fix)
    _check(results, "draw another kind")
    return _machine_bounds(results) if axes_of(results) else _mapping_bounds(results)


def bound_times(results: xr.Dataset) -> xr.Dataset:
    """Evaluate the step time by bound of the best mapping at every point of a grid of machines.

    Args:
        results: a dataset of :func:`dse.run`, or a slice of one.

    Returns:
        ``bound_by_compute``, ``bound_by_memory``, ``bound_by_network``, ``bound_by_rest``, of packages
        ``bound_by_die_links``, in s, with the dimensions and coordinates of the results without mappings. They sum to
        the step time, and are missing where nothing fits.

    Raises:
        InputError: for results of another study than training, or of another version.
    """
    import xarray as xr

    study = _check(results, "pass other results")
    points = best_mappings(results)
    total = points[study.totals[0]]
    times = np.where(points.feasible, total, np.nan)
    seconds = _seconds_by_bound(points, np.flatnonzero(np.isfinite(times.ravel())), times.size)
    return xr.Dataset(
        {
            name: (total.dims, values.reshape(total.shape), {"units": "s", "long_name": part(name).label})
            for name, values in seconds.items()
        },
        total.coords,
    )


def _check(results: xr.Dataset, fix: str) -> Study:
    """Return the study of results; raise an InputError for one without bounds."""
    study = designs.check_results(results)
    if study.bounds is None:
        raise InputError("results", f"results of {study.name}", "results of training", fix)
    return study


def _machine_bounds(results: xr.Dataset) -> Figure:
    """Draw shares of the bounds along each axis, as :func:`dse.views.plot.shares` does for parts."""
    grid = machines(results)
    time, total = grid.time, grid.study.totals[0]
    row_numbers = np.arange(time.size).reshape(time.shape)
    lines = [
        row_numbers[tuple(bar_positions(grid, d) if d == name else grid.best_position[d] for d in grid.axes)]
        for name in grid.axes
    ]
    rows = np.unique(np.concatenate([line.ravel() for line in lines]))
    rows = rows[np.isfinite(time.values.ravel()[rows])]
    # With all mappings kept, metrics other than those that rank are many and not needed.
    variables = list(dict.fromkeys([total, *ranking_variables(results), "feasible"]))
    dataset = results[variables].load() if "mapping" in results[total].dims else results
    parts = {
        name: (time.dims, seconds.reshape(time.shape))
        for name, seconds in _seconds_by_bound(best_mappings(dataset), rows, time.size).items()
    }
    return draw_shares(grid._replace(points=grid.points.assign(parts), parts={name: name for name in parts}))


def _mapping_bounds(results: xr.Dataset) -> Figure:
    """Draw the bounds of the best mapping of each (tp, pp), as :func:`dse.views.plot.breakdown` does for parts."""
    columns, title = designs.columns(results)
    rows, _ = best_by_group(columns, factor=2.0, bars=16, missing=0)
    title = "\n".join(filter(None, (title, ranking_note(columns, len(rows)))))
    parts = _seconds_by_bound(results.isel(designs.best_point(results)), np.array(rows), len(columns.time))
    return draw_mappings(columns._replace(parts=parts), title, rows, [])


def _seconds_by_bound(results: xr.Dataset, rows: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """Evaluate ``bound_by_NAME`` → seconds [``count`` designs], NaN outside of the design indices ``rows``."""
    from dse.sweep.results.rebuilding import grid_of, singles_at

    grid = grid_of(results)
    bounds_of, designs = _bounds_of(grid.spec.study), singles_at(results, rows, grid)
    bounds_by_design = [bounds_of(design)[0]._asdict() for design in designs]
    seconds = {name: np.array([each[name] for each in bounds_by_design]) for name in bounds_by_design[0]}
    times = results[grid.spec.study.totals[0]].values.ravel()[rows]
    if not np.allclose(sum(seconds.values()), times, rtol=_TOLERANCE):
        allowed = "results of this version and this catalogue"
        raise InputError("results", "times that are not the model's", allowed, "run the sweep again with --fresh")
    parts = {}
    for name, values in seconds.items():
        if name != "die_links" or values.any():
            parts[f"bound_by_{name}"] = np.full(count, np.nan)
            parts[f"bound_by_{name}"][rows] = values
    return parts


@functools.cache
def _bounds_of(study: Study) -> Callable[[Design], Any]:
    """Return the function from a design to (its seconds by bound, None), uncompiled, as a figure has few designs."""
    from dse.equations import ScalarFunction

    def bounds_of(design: Design) -> tuple[Any, None]:
        assert study.bounds is not None  # checked by bounds()
        return study.bounds(design), None

    return ScalarFunction(bounds_of, f"bounds of {study.name}" if study.is_builtin else None)
