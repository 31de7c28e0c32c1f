"""The best design of each group of designs that have the same labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from dse.errors import InputError, unknown_name
from dse.sweep.reduce.winners import best_of_each
from dse.sweep.results.indexing import NUMBERS
from dse.sweep.results.layout import SINGLE
from dse.sweep.results.rows import DesignRows
from dse.sweep.results.singles import flat


class Grouping(NamedTuple):
    """Rows of designs by the labels of a coordinate."""

    name: str
    labels: np.ndarray  #: distinct, numbers ascending, texts in their order in the results
    codes: xr.Variable  #: position in ``labels`` of each place along the dimensions of the coordinate
    attrs: dict[str, Any]  #: of the coordinate


def grouping(rows: DesignRows, name: str) -> Grouping:
    """Return the groups of a coordinate, or of a part of the mapping that is a variable.

    Raises:
        InputError: for a name that the results do not have.
    """
    if not isinstance(name, str):
        fix = "write results.dse.best('tp'); results.dse.table(10) has the best ten designs"
        raise InputError("results.dse", repr(name), "names of labels", fix)
    variables = rows.results.variables
    if name not in variables or not (name in rows.results.coords or "path" in variables[name].attrs):
        raise unknown_name("results.dse", name, {*rows.labels, *map(str, rows.results.coords)}, "labels of designs")
    variable = variables[name]
    if not set(variable.dims) <= set(rows.dims):
        got = f"{name} along {', '.join(map(str, variable.dims))}"
        raise InputError("results.dse", got, f"labels along {', '.join(rows.dims)}", "name an axis of the sweep")
    values = np.asarray(variable.values)
    values = values.astype(str) if values.dtype.kind == "O" else values
    labels, first, codes = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable") if labels.dtype.kind == "U" else np.arange(len(labels))
    ranks = np.argsort(order, kind="stable")
    return Grouping(name, labels[order], xr.Variable(variable.dims, ranks[codes.reshape(values.shape)]), variable.attrs)


def best_by_group(rows: DesignRows, names: tuple[str, ...], by: str | None) -> xr.Dataset:
    """Return the best design of each combination of labels, along a dimension a name.

    Args:
        rows: designs.
        names: of labels; each of them once.
        by: metric; None for the first objective.

    Raises:
        InputError: for a name or a metric that the results lack, and for results without a feasible design.
    """
    scores, groupings = rows.scores(by, names), [grouping(rows, name) for name in dict.fromkeys(names)]
    sizes = {groups.name: len(groups.labels) for groups in groupings}
    codes = [flat(groups.codes, rows.feasible) for groups in groupings]
    group = np.ravel_multi_index(codes, [*sizes.values()])
    candidates = np.flatnonzero(np.isfinite(scores))
    best = candidates[best_of_each(group[candidates], scores[candidates], candidates)]
    numbers, singles = group[best], rows.at(best)
    coords = {groups.name: xr.Variable(groups.name, groups.labels, groups.attrs) for groups in groupings}
    follows = {name: variable for groups in groupings for name, variable in _following(rows, groups)}
    same = {name: rows.results.variables[name].values for name in rows.labels if name not in coords}
    same = {name: values.flat[0] for name, values in same.items() if (values == values.flat[0]).all()}
    fixed = {str(n): v for n, v in singles.coords.variables.items() if not v.dims}
    fixed |= {name: xr.Variable((), value, rows.results.variables[name].attrs) for name, value in same.items()}
    chosen = {str(name): variable for name, variable in singles.variables.items() if variable.dims}
    chosen = {name: v for name, v in chosen.items() if name not in {*SINGLE, *coords, *follows, *fixed}}
    data = {
        name: xr.Variable([*sizes], _spread(variable.values, numbers, [*sizes.values()], name), variable.attrs)
        for name, variable in (chosen | _numbers(rows, best)).items()
        if name not in {*coords, "infeasible_reason"}  # of the designs that can run alone
    }
    return xr.Dataset(data, follows | fixed | coords, rows.results.attrs)


def _numbers(rows: DesignRows, chosen: np.ndarray) -> dict[str, xr.Variable]:
    """Return the numbers [design] of designs along ``mapping`` or ``design``, by which ``sel`` finds them."""
    dims = [dim for dim in SINGLE if dim in rows.dims]
    return {dim: xr.Variable("design", rows.column(dim)[chosen], rows.results[dim].attrs) for dim in dims}


def _following(rows: DesignRows, groups: Grouping) -> Iterator[tuple[str, xr.Variable]]:
    """Yield (name, variable along the groups) of coordinates that have one value a label of the groups."""
    codes = groups.codes.values
    first = np.unique(codes, return_index=True)[1]
    for name, variable in rows.results.coords.variables.items():
        if name == groups.name or name in NUMBERS or variable.dims != groups.codes.dims or len(variable.dims) != 1:
            continue
        values = variable.values
        by_label = values[first]
        if np.array_equal(by_label[codes], values, equal_nan=values.dtype.kind == "f"):
            yield str(name), xr.Variable(groups.name, by_label, variable.attrs)


def _spread(values: np.ndarray, groups: np.ndarray, shape: list[int], name: str) -> np.ndarray:
    """Return values at their groups; NaN, False, 0 or "" where no design of a group can run, -1 for its number."""
    values = values.astype(str) if values.dtype.kind == "O" else values
    missing = {"f": np.nan, "b": False}.get(values.dtype.kind, -1 if name in NUMBERS else values.dtype.type())
    spread = np.full(math.prod(shape), missing, values.dtype)
    spread[groups] = values
    return spread.reshape(shape)
