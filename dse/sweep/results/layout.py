"""What results hold: metrics of one study along the same dimensions, labels that tell designs apart.

Checked when a file is opened, so that what reads a dataset can rely on it. What only some readers need (a metric, the
specification) they ask for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.designs.leaves import known_leaves
from dse.doors.studies import of_metrics
from dse.sweep.results.schema import wrong

if TYPE_CHECKING:
    import xarray as xr

#: Dimensions of single mappings or designs: their coordinates are selected by.
SINGLE = ("mapping", "design")

#: Dimensions of what a search found by method and seed, and how names of its front begin.
OF_SEARCH, FRONT = ("searcher", "seed"), "front_"

#: Variables of a search that measure what it found, and that count its work.
_FOUND = ("violation", "best_violation", "best_objective", "feasible_share")
_WORK = ("evaluations", "total_evaluations")

#: Kinds of values, as NumPy has them, in words.
_KINDS = {
    "b": "truth values", "iu": "whole numbers", "f": "floating-point numbers", "biuf": "numbers or truth values",
    "biuUO": "texts, truth values or codes", "biufUO": "numbers, truth values or texts",
}  # fmt: skip


#: Reason at a place of the product of axes that is no design: a part of the mapping that its structure does not have.
NO_DESIGN = "not_applicable"


def are_designs(results: xr.Dataset) -> np.ndarray:
    """[place] which places of the product of axes, flattened as ``feasible``, are designs; all of one structure are."""
    whole = np.ones(results["feasible"].size, bool)
    if "infeasible_reason" not in results:
        return whole
    reason = results["infeasible_reason"].transpose(*results["feasible"].dims)
    words, masks = reason.attrs.get("flag_meanings", "").split(), np.atleast_1d(reason.attrs.get("flag_masks", ()))
    if NO_DESIGN not in words or len(words) != len(masks):
        return whole
    found: np.ndarray = (reason.values.reshape(-1) & masks[words.index(NO_DESIGN)]) == 0
    return found


def check(results: xr.Dataset, where: str) -> None:
    """That a dataset is laid out as results are; else an InputError.

    Args:
        results: of a file, with labels as texts.
        where: what errors call it.
    """
    for name, variable in results.variables.items():
        _check_kind(variable, _kinds(str(name), variable, results), f"{where}: {name}")
    if len(dims := [dim for dim in SINGLE if dim in results.dims and dim in _dims_of_metrics(results)]) > 1:
        raise wrong(where, f"dimensions {' and '.join(dims)}", "one of them")
    _check_dims(results, where)
    for name in map(str, results.coords):
        _check_labels(results.variables[name], f"{where}: {name}")


# --- kinds of values --------------------------------------------------------------------------------------


def _kinds(name: str, variable: xr.Variable, results: xr.Dataset) -> str:
    """Kinds of values that a variable may hold, as codes of NumPy."""
    plain, units = name.removeprefix(FRONT), of_metrics(results.variables).units
    if plain == "feasible":
        return "b"
    if plain in ("infeasible_reason", "index") or name in _WORK:
        return "iu"
    if plain in units or name in _FOUND:
        return "f"
    path = variable.attrs.get("path")
    if path in known_leaves():
        return "biuUO" if known_leaves()[path].get("enum") else "biuf"
    return "biufUO"


def _check_kind(variable: xr.Variable, kinds: str, where: str) -> None:
    if variable.dtype.kind not in kinds:
        raise wrong(where, f"values of type {variable.dtype}", _KINDS[kinds])


# --- dimensions -------------------------------------------------------------------------------------------


def _metrics(results: xr.Dataset, prefix: str = "") -> Iterator[str]:
    """Names of the metrics of a dataset, with how they begin."""
    own = (f"{prefix}{name}" for name in of_metrics(results.variables).units)
    return (name for name in own if name in results.variables)


def _dims_of_metrics(results: xr.Dataset) -> set[Any]:
    return {dim for prefix in ("", FRONT) for name in _metrics(results, prefix) for dim in results.variables[name].dims}


def _check_dims(results: xr.Dataset, where: str) -> None:
    """That metrics are data along the same dimensions, and labels along some of these."""
    for prefix in ("", FRONT):
        names = [*_metrics(results, prefix)]
        for name in names:
            if name in results.coords:
                raise wrong(f"{where}: {name}", "a label", "a metric, named by no attribute 'coordinates'")
            dims, others = results.variables[name].dims, results.variables[names[0]].dims
            if set(dims) != set(others):
                raise wrong(f"{where}: {name}", _shown(dims), f"{_shown(others)}, as of {names[0]}")
    if OF_SEARCH[0] in results.dims:
        _check_search(results, where)
    metrics = [*_metrics(results)]
    if metrics and OF_SEARCH[0] not in results.dims:
        _check_dims_of_labels(results, results.variables[metrics[0]].dims, where)


def _check_dims_of_labels(results: xr.Dataset, dims: tuple[Any, ...], where: str) -> None:
    """That what tells designs apart is along dimensions of the metrics, and of single designs along that one."""
    for name, variable in results.variables.items():
        if "path" in variable.attrs and not set(variable.dims) <= set(dims):
            raise wrong(f"{where}: {name}", _shown(variable.dims), f"some of {_shown(dims)}, as of the metrics")


def _check_search(results: xr.Dataset, where: str) -> None:
    """That a search has its best designs by method and seed, or a front."""
    front = [str(name) for name in results.data_vars if str(name).startswith(FRONT)]
    if "violation" not in results.data_vars and not front:
        raise wrong(where, "no variable 'violation'", "what a search has found, by method and seed")
    best = [*_metrics(results), *(name for name in ("violation",) if name in results)]
    for dims, names in ((OF_SEARCH, best), (("design",), front)):
        for name in names:
            if set(results.variables[name].dims) != set(dims):
                raise wrong(f"{where}: {name}", _shown(results.variables[name].dims), _shown(dims))


def _shown(dims: tuple[Any, ...]) -> str:
    return f"dimensions {', '.join(map(str, dims))}" if dims else "no dimension"


# --- labels -----------------------------------------------------------------------------------------------


def _check_labels(variable: xr.Variable, where: str) -> None:
    """That labels are there: finite numbers, and texts that are texts."""
    values = np.asarray(variable.values)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise wrong(where, "a label that is no finite number", "finite numbers")
    if values.dtype.kind == "O" and not all(isinstance(one, str) for one in values.reshape(-1)):
        raise wrong(where, "a label that is no text", "texts")
