"""Designs that the engine of their stack launches, which plans, pools and rollouts propose; a sweep lists them all."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dse.errors import InputError
from dse.sweep import Grid
from dse.tools.runs import ENGINE_DEGREES, engine_degrees, engine_fault, engine_runs, evaluate_by_mapping


def launch_mask(data: xr.Dataset, grid: Grid) -> xr.DataArray:
    """Return a mask, over the dimensions of stack and degrees, of the mappings that the engine of a stack launches.

    Args:
        data: results of a sweep of serving.
        grid: its designs.

    Returns:
        Truth values over the dimensions of stack and degrees.
    """
    labels = _labels(data, grid)
    is_launched = evaluate_by_mapping({name: np.ravel(label.values) for name, label in labels.items()}, engine_runs)
    return xr.DataArray(np.reshape(is_launched, labels["software"].shape), dims=labels["software"].dims)


def _labels(data: xr.Dataset, grid: Grid) -> dict[str, xr.DataArray]:
    """Return name → labels of stack and degrees of each design, all broadcast to one shape."""
    labels = {name: data[name].variable for name in ("software", *ENGINE_DEGREES) if name in data.coords}
    base = {name: xr.Variable((), value) for name, value in engine_degrees(grid.base).items()}
    labels = base | labels
    return dict(zip(labels, xr.broadcast(*map(xr.DataArray, labels.values())), strict=True))


def only_launched(data: xr.Dataset, grid: Grid, where: str) -> xr.Dataset:
    """Return the results [design] of the designs that engines launch.

    InputError where there are designs, none is launched, and the engine names the fault of the first.

    Args:
        data: results of a sweep of serving [design].
        grid: its designs.
        where: what states their mappings.
    """
    is_launched = np.broadcast_to(launch_mask(data, grid).values, data.sizes["design"])
    if is_launched.size and not is_launched.any():
        degrees = {name: label.item() for name, label in _labels(data.isel(design=0), grid).items()}
        if fault := engine_fault(degrees.pop("software"), degrees):
            raise InputError(where, *fault)
    return data.isel(design=np.flatnonzero(is_launched))
