"""Figures of a results dataset.

``breakdown``: time by part of the best mappings; ``pareto``: the front of the objectives where a sweep or a search kept
one, else time against memory, or for serving tokens/s per device against tokens/s per user; ``interactivity``: these
with a front per accelerator and a panel per workload. For a grid of machines also ``shares`` of the step time along
each axis, ``energy`` against time, metrics against the ``clock`` and over logic ``nodes`` in nm, and ``bounds``: shares
by compute, memory and network (of the best mappings for other sweeps; ``bound_times`` has the numbers). ``suited``
lists the figures for a dataset. ``collectives`` needs no dataset: bus bandwidth against message size by topology;
``timeline`` draws the passes of scheduled steps.

Start with ``style.canvas``, on which every figure is drawn: a function of the results draws on its panels, labels come
from the metadata of variables. ``pareto.draw_designs`` draws designs in two metrics with a front, ``style.stack_bars``
bars of parts, ``style.series`` are the looks of lines; ``designs.py`` and ``grid.py`` read datasets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dse.doors import study_of_metrics
from dse.sweep.results.ranking import is_work
from dse.sweep.results.schema import SPECIFICATION
from dse.views.plot.bounds import bound_times as bound_times, bounds as bounds
from dse.views.plot.breakdown import breakdown
from dse.views.plot.clock import clock as clock, clock_axis
from dse.views.plot.collectives import collectives
from dse.views.plot.energy import energy
from dse.views.plot.fleets import fleets
from dse.views.plot.grid import axes_of
from dse.views.plot.interactivity import interactivity
from dse.views.plot.machines import shares as shares
from dse.views.plot.nodes import has_nodes, nodes as nodes
from dse.views.plot.pareto import front_of, has_trade_off, pareto
from dse.views.plot.posttraining import posttraining
from dse.views.plot.style import ENDINGS, save
from dse.views.plot.timeline import timeline

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = [
    "ENDINGS", "KINDS", "breakdown", "collectives", "energy", "fleets", "interactivity", "pareto",
    "posttraining", "save", "suited", "timeline",
]  # fmt: skip

#: Name on the command line → figure.
KINDS: dict[str, Callable[[xr.Dataset], Figure]] = {
    "breakdown": breakdown,
    "pareto": pareto,
    "shares": shares,
    "energy": energy,
    "clock": clock,
    "bounds": bounds,
    "nodes": nodes,
    "interactivity": interactivity,
}


def _is_compared(results: xr.Dataset) -> bool:
    """Return True if designs are on several accelerators or systems."""
    return any(name in results and results[name].dims for name in ("accelerator", "system"))


def suited(results: xr.Dataset) -> list[str]:
    """Return the names of the kinds of figures that suit a dataset.

    The breakdown; for a sweep or a search with a front the front; for a grid of machines those of its axes.

    Args:
        results: dataset of :func:`dse.run` or :func:`dse.open_results`.

    Returns:
        Names of functions of this package that draw them.

    >>> import dse
    >>> suited(dse.run("sweeps/megatron_1t_4096_a100.toml", output=False))
    ['breakdown']
    """
    study = study_of_metrics(results)
    is_grid = bool(axes_of(results)) and results.sizes.get("mapping", 1) == 1
    suitability = {
        "breakdown": True,
        "pareto": front_of(results) is not None or has_trade_off(results),
        "shares": is_grid,
        "energy": is_grid and study.energy in results and not all(is_work(results[name]) for name in axes_of(results)),
        "interactivity": has_trade_off(results) and _is_compared(results),
        "clock": clock_axis(results) is not None,
        "nodes": is_grid and has_nodes(results),
        "bounds": is_grid and study.bounds is not None and SPECIFICATION in results.attrs,
    }
    return [kind for kind, is_suited in suitability.items() if is_suited]
