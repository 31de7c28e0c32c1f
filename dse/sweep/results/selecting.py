"""Selection of designs by labels that are no index: fixed values, and axes that move with others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.designs import catalog
from dse.errors import InputError, nearest, unknown_name
from dse.io import setting

if TYPE_CHECKING:
    import xarray as xr

#: Labels that an error lists, at most.
_MOST_LISTED = 12


def without_fixed(results: xr.Dataset, labels: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the labels without those of values that the specification fixes.

    Args:
        results: dataset whose coordinates without a dimension are the fixed values.
        labels: name → label, list of labels or slice, as :meth:`xarray.Dataset.sel` takes them.

    Raises:
        InputError: for another label than the fixed one.
    """
    fixed = {name for name in labels if name in results.coords and not results.coords[name].dims}
    for name in fixed:
        variable = results.coords[name].variable
        if not _chooses(variable, labels[name], name)[()]:
            text = setting(variable.values.item(), str(variable.attrs.get("units", "1")))
            raise InputError(
                f"sel: {name}",
                _label_text(labels[name]),
                f"{text}, which all these designs have",
                f"select from all results, or sweep {name}: list several values under [axes]",
            )
    return {name: label for name, label in labels.items() if name not in fixed}


def select(results: xr.Dataset, labels: Mapping[Any, Any]) -> xr.Dataset:
    """Return the designs that have these labels.

    Args:
        results: dataset of results.
        labels: name → label, list of labels or slice: of axes, parts of the mapping, numbers of rows, fixed values,
            and axes that move with another one; of a number also a text with its unit.

    Raises:
        InputError: for an unknown name, for a label that no design has, and for parts of the mapping that are data
            (``keep = "best"``).
    """
    labels = without_fixed(results, labels)
    for name in labels:
        if name not in results.variables and name not in results.dims:
            raise unknown_name("sel", str(name), map(str, results.coords), "labels of designs")
    indexed = {name: label for name, label in labels.items() if name in results.xindexes or name not in results.coords}
    parts = [name for name in indexed if name in results.data_vars]
    dims = results[parts[0]].dims if parts else ()
    if parts and not dims:  # of one design alone
        for name in parts:
            if not _chooses(results.variables[name], labels[name], name).all():
                raise _no_such_label(results, str(name), labels[name])
        return select(results, {name: label for name, label in labels.items() if name not in parts})
    if parts:
        raise InputError(
            f"sel: {parts[0]}",
            f"a value for each point of {', '.join(map(str, results[parts[0]].dims))}",
            "labels along one dimension",
            f"choose the designs that have it: results.dse.query('{parts[0]} == …')",
        )
    selected = _select_indexed(results, indexed) if indexed else results
    for name, label in labels.items():
        if name in indexed or not without_fixed(selected, {name: label}):
            continue
        positions = np.flatnonzero(_chooses(selected.variables[name], label, name))
        if not len(positions):
            raise _no_such_label(selected, str(name), label)
        single = len(positions) == 1 and np.ndim(label) == 0 and not isinstance(label, slice)
        selected = selected.isel({selected.variables[name].dims[0]: int(positions[0]) if single else positions})
    return selected


def _select_indexed(results: xr.Dataset, labels: Mapping[Any, Any]) -> xr.Dataset:
    """Return the designs with these labels of indices; InputError where none has one of them, or all of them."""
    numbers = {name: _number(results.variables.get(name), label, name) for name, label in labels.items()}
    try:
        return results.sel(numbers)
    except KeyError:
        for name, label in numbers.items():
            if name in results.variables and not _chooses(results.variables[name], label, name).any():
                raise _no_such_label(results, str(name), label) from None
        got = ", ".join(f"{name} {_label_text(label)}" for name, label in labels.items())
        raise InputError("sel", got, "labels that one design has", "list them: results.dse.to_dataframe()") from None


def _number(variable: xr.Variable | None, label: Any, name: Any) -> Any:
    """Return texts with a unit, of a slice or a list too, as numbers where a variable has numbers."""
    if variable is None or variable.dtype.kind not in "iuf":
        return label
    if isinstance(label, slice):
        return slice(_number(variable, label.start, name), _number(variable, label.stop, name), label.step)
    if isinstance(label, list | tuple):
        return type(label)(_number(variable, item, name) for item in label)
    units = str(variable.attrs.get("units", "1"))
    return catalog.quantity(label, units, f"sel: {name}") if isinstance(label, str) else label


def _chooses(variable: xr.Variable, label: Any, name: Any) -> np.ndarray:
    """Return truth values of a variable's places: it has the label, one of the labels, or a value within a slice."""
    values, label = np.asarray(variable.values), _number(variable, label, name)
    if isinstance(label, slice):
        is_above = values >= label.start if label.start is not None else np.ones(values.shape, bool)
        return np.asarray(is_above & (values <= label.stop if label.stop is not None else True))
    return np.any([values == item for item in np.ravel(label).tolist()] or [np.zeros(values.shape, bool)], axis=0)


def _no_such_label(results: xr.Dataset, name: str, label: Any) -> InputError:
    """Return the error for a label that no design has."""
    variable = results.variables[name]
    units = str(variable.attrs.get("units", "1"))
    texts = [setting(value, units) for value in np.unique(variable.values).tolist()]
    listed = ", ".join(texts[:_MOST_LISTED]) + (f" … ({len(texts)} in all)" if len(texts) > _MOST_LISTED else "")
    near = nearest(str(label), texts) if isinstance(label, str) else []
    fix = f"did you mean {near[0]!r}?" if near else f"pick one of the labels of {name} listed"
    return InputError(f"sel: {name}", _label_text(label), listed, fix)


def _label_text(label: Any) -> str:
    """Return a label as text for errors."""
    return f"{label.start} to {label.stop}" if isinstance(label, slice) else repr(label)
