"""Designs of results one by one: their values in rows, and those that a search keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.doors import study_of_metrics
from dse.errors import InputError
from dse.sweep.results.layout import FRONT, OF_SEARCH

if TYPE_CHECKING:
    import xarray as xr


def is_search(results: xr.Dataset) -> bool:
    """Return True if a search wrote these results, with best designs by method and seed.

    Args:
        results: dataset of a results file.
    """
    return OF_SEARCH[0] in results.dims


def single_designs(results: xr.Dataset) -> xr.Dataset:
    """Return the results of a search along ``design``: its front, else the best of each seed, equal ones once.

    Args:
        results: dataset of a results file; that of a sweep is returned unchanged.
    """
    if not is_search(results):
        return results
    front = {str(name): str(name).removeprefix(FRONT) for name in results if str(name).startswith(FRONT)}
    if front:
        singles = results[list(front)].rename(front)
        singles = singles.assign(feasible=("design", np.ones(singles.sizes["design"], bool)))
    else:
        best = results[[n for n, values in results.variables.items() if set(values.dims) == {*OF_SEARCH}]]
        singles = best.assign(feasible=best.violation == 0.0).stack(design=OF_SEARCH, create_index=False)
        total = study_of_metrics(singles).totals[0]
        singles = singles.isel(design=np.unique(singles[total], return_index=True)[1]) if total in singles else singles
    axes = [name for name, values in singles.data_vars.items() if "axis" in values.attrs or "path" in values.attrs]
    return singles.drop_vars([*OF_SEARCH], errors="ignore").set_coords(axes)


def flat_values(results: xr.Dataset, name: str, template: xr.DataArray) -> np.ndarray:
    """Return a variable at every design, as a flat array [design].

    Args:
        results: dataset of a results file.
        name: of the variable.
        template: array along all dimensions of the designs, which sets their order.
    """
    return flat(results.variables[name], template)


def flat(variable: xr.Variable, template: xr.DataArray) -> np.ndarray:
    """Return the values of a variable at every design, see :func:`flat_values`; faster than with indices."""
    return np.ravel(variable.set_dims(dict(template.sizes)).transpose(*template.dims).values)


def nothing_feasible() -> InputError:
    """Return the InputError for results without a feasible design."""
    return InputError(
        "results", "no feasible design", "one or more", "widen the sweep; dse run prints the reasons of infeasibility"
    )
