"""Labels of axes in results, with units and long names."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.designs import all_leaves
from dse.spec import Axis
from dse.sweep.grid.degrees import ALL_DEGREES
from dse.sweep.grid.grid import Grid, part_label
from dse.sweep.results.labelled import Variable

#: CF attributes of truth values.
BOOLEAN = {"flag_values": np.array([0, 1], np.int8), "flag_meanings": "false true"}


def coordinate(dims: tuple[str, ...], axis: Axis, labels: Any) -> Variable:
    """Return the labels of an axis, or of designs along it, as a variable with long name, path and units."""
    labels = np.asarray(labels)
    attrs = {"long_name": axis.long_name, "path": axis.key}
    if axis.units:
        attrs["units"] = axis.units
    return Variable(dims, labels, attrs | (BOOLEAN if labels.dtype.kind == "b" else {}))


def along(grid: Grid, number: int, values: np.ndarray, digits: np.ndarray | None) -> tuple[tuple[str, ...], np.ndarray]:
    """Return (dimensions, values) in results of what has a value at each position of a dimension of the sweep.

    Args:
        grid: of the sweep.
        number: of the dimension.
        values: [position].
        digits: [dimension, design] positions of single designs; None for results along the dimensions of the sweep.
    """
    return ((grid.dimensions[number].name,), values) if digits is None else (("design",), values[digits[number]])


def labels(axis: Axis) -> np.ndarray:
    """Return the labels of an axis as an array: integers, numbers or texts."""
    labels = np.array(axis.labels)
    are_integers = (
        labels.dtype.kind == "f" and all_leaves()[axis.key]["units"] == "1" and np.all(labels == np.round(labels))
    )
    return labels.astype(np.int64) if are_integers else labels


def part_labels(axis: Axis, values: np.ndarray) -> np.ndarray:
    """Return [value] the labels of a part of the mapping: numbers (integers if all are), names or truth values."""
    if axis.key in ALL_DEGREES:
        return values.astype(np.int32)
    distinct_values, code = np.unique(values, return_inverse=True)
    labels = np.array([part_label(axis, float(value)) for value in distinct_values])
    return (labels.astype(np.int32) if labels.dtype.kind == "i" else labels)[code]
