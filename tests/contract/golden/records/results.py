"""A results file in short: its shape, its attributes, and of every variable the sum, the ends and values between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import dse

#: Attributes that change with every edit of dse, of the catalogue or of a comment, or from machine to machine.
_VOLATILE = {
    "specification", "specification_hash", "catalog_digest", "code_version", "code_digest", "jax_version", "device",
    "search_digest", "source", "model",
}  # fmt: skip

#: Attributes that are JSON: of entries of the catalogue only the names, the values are their digests.
_JSON = ("infeasible_by_reason", "base_design", "catalog_entries")


def summary(path: Path, count: int = 64) -> dict[str, Any]:
    """What a record holds of a results file.

    Args:
        path: the file.
        count: values of a variable, evenly spaced from the first to the last.
    """
    with dse.open_results(path) as data:
        return {
            "dimensions": {str(name): size for name, size in data.sizes.items()},
            "coordinates": {str(name): _variable(data[name], count) for name in data.coords},
            "variables": {str(name): _variable(data[name], count) for name in data.data_vars},
            "attributes": {
                str(name): _attribute(str(name), value) for name, value in data.attrs.items() if name not in _VOLATILE
            },
        }


def _attribute(name: str, value: Any) -> Any:
    if name not in _JSON:
        return _plain(value)
    document = json.loads(value)
    return sorted(document) if name == "catalog_entries" else document


def _variable(variable: Any, count: int) -> dict[str, Any]:
    values = np.asarray(variable.values).ravel()
    some = values[np.linspace(0, values.size - 1, min(values.size, count)).round().astype(int)]
    told: dict[str, Any] = {
        "dimensions": [*map(str, variable.dims)],
        "dtype": "text" if values.dtype.kind in "OUS" else str(values.dtype),
        "attributes": {str(name): _plain(value) for name, value in variable.attrs.items()},
        "size": values.size,
    }
    if values.dtype.kind in "OUS":
        kinds, counts = np.unique(values.astype(str), return_counts=True)
        return told | {"counts": dict(zip(kinds.tolist(), counts.tolist(), strict=True))} | {"values": _plain(some)}
    if values.dtype.kind == "f":
        finite = values[np.isfinite(values)].astype(np.float64)
        ends = {"sum": finite.sum(), "min": finite.min(), "max": finite.max()} if finite.size else {}
        numbers = [_short(number) for number in some]
        return told | {"finite": finite.size} | {name: float(end) for name, end in ends.items()} | {"values": numbers}
    ends = {"sum": int(values.sum()), "min": int(values.min()), "max": int(values.max())} if values.size else {}
    return told | ends | {"values": some.astype(int).tolist()}


def _short(number: Any) -> float:
    """With the digits that single precision has."""
    return float(f"{number:.9g}") if number.dtype == np.float32 else float(number)


def _plain(value: Any) -> Any:
    """Of NumPy's types those that JSON has."""
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value
