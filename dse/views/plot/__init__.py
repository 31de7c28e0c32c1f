"""Figures of a results dataset.

``breakdown`` of the time of a step or an output token of the best mappings; ``pareto``, the front of the objectives
where a sweep or a search kept it, else time against memory of all, of serving tokens a second of a device against those
of a user; and of a grid of machines
``shares`` of the step time along each axis, ``energy`` against time, metrics against the ``clock``, and ``bounds``: the
shares by what bounds them, compute, memory or network; of any other sweep they are told of its best mappings.
``suited`` tells which of them a dataset is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import xarray as xr

from dse.doors.studies import of_metrics
from dse.sweep.results.rebuilding import SPECIFICATION
from dse.views.plot.bounds import bounds
from dse.views.plot.breakdown import breakdown
from dse.views.plot.clock import clock, clock_axis
from dse.views.plot.designs import is_work
from dse.views.plot.energy import energy
from dse.views.plot.grid import axes_of
from dse.views.plot.machines import shares
from dse.views.plot.pareto import front_of, pareto, trades
from dse.views.plot.style import ENDINGS, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ENDINGS", "KINDS", "bounds", "breakdown", "clock", "energy", "pareto", "save", "shares", "suited"]

#: Name on the command line → figure.
KINDS: dict[str, Callable[[xr.Dataset], Figure]] = {
    "breakdown": breakdown, "pareto": pareto, "shares": shares, "energy": energy, "clock": clock, "bounds": bounds,
}  # fmt: skip


def suited(results: xr.Dataset) -> list[str]:
    """The kinds of figures that tell most of a dataset.

    The breakdown; of a sweep or a search that kept a front the front; of a grid of machines those of its axes.

    Args:
        results: what :func:`dse.run` or :func:`dse.open_results` gave.

    Returns:
        Names of functions of this room that draw them.

    >>> import dse
    >>> suited(dse.run("sweeps/megatron_1t_4096_a100.toml", output=False))
    ['breakdown']
    """
    study = of_metrics(results)
    is_grid = bool(axes_of(results)) and results.sizes.get("mapping", 1) == 1
    fits = {
        "breakdown": True,
        "pareto": front_of(results) is not None or trades(results),
        "shares": is_grid,
        "energy": is_grid and study.energy in results and not all(is_work(results[name]) for name in axes_of(results)),
        "clock": clock_axis(results) is not None,
        "bounds": is_grid and study.bounds is not None and SPECIFICATION in results.attrs,
    }
    return [kind for kind, yes in fits.items() if yes]
