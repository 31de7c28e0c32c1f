"""Layout of results: metrics of one study along common dimensions, with labels that distinguish designs.

Checked when a file is opened, so that all readers can rely on it. Readers check what only they need (a metric, the
specification).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.designs import all_leaves
from dse.doors import study_of_metrics
from dse.sweep.results.schema import is_number_of_name, wrong

if TYPE_CHECKING:
    import xarray as xr

#: Dimensions of single mappings or designs.
SINGLE = ("mapping", "design")

#: Dimensions of a search's best designs, and prefix of the variables of its front.
OF_SEARCH, FRONT = ("searcher", "seed"), "front_"

#: Variables of a search: measures of quality and counts of work.
_QUALITY = ("violation", "best_violation", "best_objective", "feasible_share")
_WORK = ("evaluations", "total_evaluations")

#: Descriptions of NumPy's kinds of values.
_KINDS = {
    "b": "truth values",
    "iu": "whole numbers",
    "f": "floating-point numbers",
    "biuf": "numbers or truth values",
    "biuUO": "texts, truth values or codes",
    "biufUO": "numbers, truth values or texts",
}


#: Reason of a place in the product of axes without a design: its structure lacks a part of the mapping.
NO_DESIGN = "not_applicable"


def are_designs(results: xr.Dataset) -> np.ndarray:
    """Return [place, flattened as ``feasible``] True where the place is a design; True for designs of one structure."""
    all_designs = np.ones(results["feasible"].size, bool)
    if "infeasible_reason" not in results:
        return all_designs
    reason = results["infeasible_reason"].transpose(*results["feasible"].dims)
    words, masks = reason.attrs.get("flag_meanings", "").split(), np.atleast_1d(reason.attrs.get("flag_masks", ()))
    if NO_DESIGN not in words or len(words) != len(masks):
        return all_designs
    is_design: np.ndarray = (reason.values.reshape(-1) & masks[words.index(NO_DESIGN)]) == 0
    return is_design


def check(results: xr.Dataset, where: str) -> None:
    """Raise InputError if a dataset does not have the layout of results.

    Args:
        results: of a file, with text labels.
        where: its name in errors.
    """
    for name, variable in results.variables.items():
        kinds = _kinds(str(name), variable, results)
        if variable.dtype.kind not in kinds:
            raise wrong(f"{where}: {name}", f"values of type {variable.dtype}", _KINDS[kinds])
    if len(dims := [dim for dim in SINGLE if dim in results.dims and dim in _dims_of_metrics(results)]) > 1:
        raise wrong(where, f"dimensions {' and '.join(dims)}", "one of them")
    _check_dims(results, where)
    for name in map(str, results.coords):
        _check_labels(results.variables[name], f"{where}: {name}")


# --- kinds of values --------------------------------------------------------------------------------------


def _kinds(name: str, variable: xr.Variable, results: xr.Dataset) -> str:
    """Return the allowed kinds of values of a variable, NumPy's codes in one text, a key of ``_KINDS``."""
    plain, units = name.removeprefix(FRONT), study_of_metrics(results.variables).units
    if plain == "feasible":
        return "b"
    if plain in ("infeasible_reason", "index") or name in _WORK:
        return "iu"
    if plain in units or name in _QUALITY:
        return "f"
    path = variable.attrs.get("path")
    if path in all_leaves():
        return "biuUO" if all_leaves()[path].get("enum") else "biuf"
    return "biufUO"


# --- dimensions -------------------------------------------------------------------------------------------


def _metrics(results: xr.Dataset, prefix: str = "") -> Iterator[str]:
    """Return an iterator over the names of the metrics of a dataset, those with the prefix, as they are there."""
    names = (f"{prefix}{name}" for name in study_of_metrics(results.variables).units)
    return (name for name in names if name in results.variables)


def _dims_of_metrics(results: xr.Dataset) -> set[Any]:
    """Return the names of the dimensions of all metrics, a search's front included."""
    return {dim for prefix in ("", FRONT) for name in _metrics(results, prefix) for dim in results.variables[name].dims}


def _check_dims(results: xr.Dataset, where: str) -> None:
    """Raise InputError unless metrics have common dimensions and labels some of these."""
    for prefix in ("", FRONT):
        names = [*_metrics(results, prefix)]
        for name in names:
            if name in results.coords:
                raise wrong(f"{where}: {name}", "a label", "a metric, named by no attribute 'coordinates'")
            dims, reference_dims = results.variables[name].dims, results.variables[names[0]].dims
            if set(dims) != set(reference_dims):
                raise wrong(f"{where}: {name}", _dims_text(dims), f"{_dims_text(reference_dims)}, as of {names[0]}")
    if OF_SEARCH[0] in results.dims:
        _check_search(results, where)
    metrics = [*_metrics(results)]
    if metrics and OF_SEARCH[0] not in results.dims:
        _check_dims_of_labels(results, results.variables[metrics[0]].dims, where)


def _check_dims_of_labels(results: xr.Dataset, dims: tuple[Any, ...], where: str) -> None:
    """Raise InputError for labels along dimensions that the metrics do not have."""
    for name, variable in results.variables.items():
        if "path" in variable.attrs and not set(variable.dims) <= set(dims):
            raise wrong(f"{where}: {name}", _dims_text(variable.dims), f"some of {_dims_text(dims)}, as of the metrics")


def _check_search(results: xr.Dataset, where: str) -> None:
    """Raise InputError unless a search has best designs by method and seed, or a front."""
    front = [str(name) for name in results.data_vars if str(name).startswith(FRONT)]
    if "violation" not in results.data_vars and not front:
        raise wrong(where, "no variable 'violation'", "what a search has found, by method and seed")
    best = [*_metrics(results), *(name for name in ("violation",) if name in results)]
    for dims, names in ((OF_SEARCH, best), (("design",), front)):
        for name in names:
            if set(results.variables[name].dims) != set(dims):
                raise wrong(f"{where}: {name}", _dims_text(results.variables[name].dims), _dims_text(dims))


def _dims_text(dims: tuple[Any, ...]) -> str:
    """Return the dimensions as text for errors."""
    return f"dimensions {', '.join(map(str, dims))}" if dims else "no dimension"


# --- labels -----------------------------------------------------------------------------------------------


def _check_labels(variable: xr.Variable, where: str) -> None:
    """Raise InputError for missing labels: numbers must be finite, texts must be texts."""
    values = np.asarray(variable.values)
    is_label = not is_number_of_name(variable.attrs)
    if is_label and values.dtype.kind == "f" and not np.isfinite(values).all():
        raise wrong(where, "a label that is no finite number", "finite numbers")
    if values.dtype.kind == "O" and not all(isinstance(text, str) for text in values.reshape(-1)):
        raise wrong(where, "a label that is no text", "texts")
