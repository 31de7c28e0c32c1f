"""Designs that the engine of their stack launches, which plans, pools and rollouts propose; a sweep lists them all."""

from __future__ import annotations

import numpy as np
import xarray as xr

from dse.errors import InputError
from dse.launch.runs import ENGINE_DEGREES, by_mapping, engine_fault, engine_runs


def launched(data: xr.Dataset) -> xr.DataArray:
    """Whether the engine of its stack launches the mapping of each design.

    Args:
        data: results of a sweep of serving.

    Returns:
        Truth values over the dimensions of stack and degrees.
    """
    found = _labels(data)
    judged = by_mapping({name: np.ravel(one.values) for name, one in found.items()}, engine_runs)
    return xr.DataArray(np.reshape(judged, found["software"].shape), dims=found["software"].dims)


def _labels(data: xr.Dataset) -> dict[str, xr.DataArray]:
    """Stack and degrees of each design, of one shape."""
    names = [name for name in ("software", *ENGINE_DEGREES) if name in data.coords]
    arrays = xr.broadcast(*(xr.DataArray(data[name].values, dims=data[name].dims) for name in names))
    return dict(zip(names, arrays, strict=True))


def only_launched(data: xr.Dataset, where: str) -> xr.Dataset:
    """The designs that engines launch; InputError at ``where`` if there are designs, but none of these.

    Args:
        data: results of a sweep of serving [design].
        where: what states their mappings.
    """
    kept = np.broadcast_to(launched(data).values, data.sizes["design"])
    if kept.size and not kept.any():
        degrees = {name: one.item() for name, one in _labels(data.isel(design=0)).items()}
        if fault := engine_fault(degrees.pop("software"), degrees):
            raise InputError(where, *fault)
    return data.isel(design=np.flatnonzero(kept))
