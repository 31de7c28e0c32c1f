"""Results as labelled data: parts to an xarray dataset, to netCDF4 and back.

In memory the mapping's parts are levels of a ``mapping`` multi-index. On disk they are plain
coordinates, names as CF flags (``flag_values``, ``flag_meanings``), so that any netCDF reader
understands the file; :func:`open_results` puts the index together again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import pandas as pd
import xarray as xr

from dse.design import leaves
from dse.errors import InputError, nearest
from dse.sweep.axis_values import Axis
from dse.sweep.degrees import DEGREES
from dse.sweep.engine import CONSTRAINT
from dse.sweep.grid import Grid, part_label, variable_name
from dse.sweep.keep import METRIC_NAMES, Part
from dse.sweep.spec import Keep
from dse.types import INFEASIBLE_MEANING, Infeasible, Metrics, field_metadata

_LEVELS = "mapping_levels"  # global attribute that names the levels of the multi-index
_BOOLEAN = {"flag_values": np.array([0, 1], np.int8), "flag_meanings": "false true"}
_CHUNK = 1 << 18  # values of a chunk on disk
_COMPRESSED = {"zlib": True, "complevel": 1, "shuffle": True}


def build(grid: Grid, keep: Keep, part: Part, attributes: dict[str, Any]) -> xr.Dataset:
    """The dataset of what was kept, every variable with units and long name."""
    layout = {"all": _whole, "best": _best}.get(keep.mode, _single_designs)
    dataset = layout(grid, part)
    fixed = {variable_name(axis): _coordinate((), axis, _labels(axis)[0]) for axis in grid.fixed}
    dataset = dataset.assign_coords({name: value for name, value in fixed.items() if name not in dataset.coords})
    return dataset.assign_attrs(attributes)


def _whole(grid: Grid, part: Part) -> xr.Dataset:
    """Dimensions of the sweep x mapping."""
    levels = {axis: _part_labels(axis, grid.mapping_values(axis)) for axis in grid.mapping_axes}
    dims = (*(dimension.name for dimension in grid.dimensions), "mapping")
    shape = (*grid.shape, grid.table.n_mappings)
    variables = {name: (dims, values.reshape(shape), attrs) for name, values, attrs in _metrics(part.values)}
    dataset = xr.Dataset(variables, coords=_dimension_coordinates(grid))
    return _stacked(dataset.assign_coords({
        variable_name(axis): _coordinate("mapping", axis, labels) for axis, labels in levels.items()
    }), [variable_name(axis) for axis in levels])  # fmt: skip


def _single_designs(grid: Grid, part: Part) -> xr.Dataset:
    """One dimension ``design`` with every axis as a coordinate, best first where designs are ranked."""
    digits, _ = grid.locate(part.index)
    mapping = part.index % grid.table.n_mappings
    coordinates = {"index": ("design", part.index, {"units": "1", "long_name": "index of the design in the sweep"})}
    for position, dimension in enumerate(grid.dimensions):
        for axis in dimension.axes:
            coordinates[variable_name(axis)] = _coordinate("design", axis, _labels(axis)[digits[position]])
    for axis in grid.mapping_axes:
        labels = _part_labels(axis, grid.mapping_values(axis)[mapping])
        coordinates[variable_name(axis)] = _coordinate("design", axis, labels)
    variables = {name: ("design", values, attrs) for name, values, attrs in _metrics(part.values)}
    return xr.Dataset(variables, coords=coordinates)


def _best(grid: Grid, part: Part) -> xr.Dataset:
    """The best mapping of each point: metrics and parts of the mapping, missing where nothing is feasible."""
    dims = tuple(dimension.name for dimension in grid.dimensions)
    point, mapping = np.divmod(part.index, grid.table.n_mappings)

    def spread(values: np.ndarray, missing: Any) -> np.ndarray:
        whole = np.full(grid.n_points, missing, np.result_type(values))
        whole[point] = values
        return whole.reshape(grid.shape)

    variables: dict[str, Any] = {}
    for name, values, attrs in _metrics(part.values):
        if name != "infeasible_reason":  # of which mapping? each has its own
            variables[name] = (dims, spread(values, False if values.dtype == bool else np.nan), attrs)
    for axis in grid.mapping_axes:
        labels = _part_labels(axis, grid.mapping_values(axis)[mapping])
        missing = "" if labels.dtype.kind == "U" else 0
        variables[variable_name(axis)] = _coordinate(dims, axis, spread(labels, missing))
    return xr.Dataset(variables, coords=_dimension_coordinates(grid))


# --- pieces -----------------------------------------------------------------------------------------------


def _metrics(values: np.ndarray) -> list[tuple[str, np.ndarray, dict[str, Any]]]:
    """(name, values, attributes) of every metric."""
    found = []
    for name, row in zip(METRIC_NAMES, values, strict=True):
        about = field_metadata(Metrics, name)
        attrs = {"units": about["units"], "long_name": about["long_name"]}
        if name == "feasible":
            row, attrs = row != 0, attrs | _BOOLEAN
        elif name == "infeasible_reason":
            row, attrs = row.astype(np.int32), attrs | _reason_flags()
        found.append((name, row, attrs))
    return found


def _reason_flags() -> dict[str, Any]:
    """CF flags of ``infeasible_reason``: the model's bits and the specification's constraints."""
    meanings = {bit.name: text for bit, text in INFEASIBLE_MEANING.items()}
    meanings["constraint"] = "a constraint of the sweep is not met"
    return {
        "flag_masks": np.array([*map(int, Infeasible), CONSTRAINT], np.int32),
        "flag_meanings": " ".join([*(bit.name for bit in Infeasible), "constraint"]),
        "comment": "; ".join(f"{name}: {text}" for name, text in meanings.items()),
    }


def _coordinate(dims: Any, axis: Axis, labels: np.ndarray) -> xr.Variable:
    """Labels of an axis, or of designs along it, with what they are."""
    attrs = {"long_name": axis.long_name, "path": axis.key}
    if axis.units:
        attrs["units"] = axis.units
    return xr.Variable(dims, labels, attrs | (_BOOLEAN if labels.dtype.kind == "b" else {}))


def _labels(axis: Axis) -> np.ndarray:
    """The labels of an axis as an array: whole counts as integers, names as texts."""
    labels = np.array(axis.labels)
    whole = labels.dtype.kind == "f" and leaves()[axis.key]["units"] == "1" and np.all(labels == np.round(labels))
    return labels.astype(np.int64) if whole else labels


def _part_labels(axis: Axis, values: np.ndarray) -> np.ndarray:
    """Labels of a part of the mapping: whole numbers, names or truth values."""
    if axis.key in DEGREES:
        return values.astype(np.int32)
    known, code = np.unique(values, return_inverse=True)
    labels = np.array([part_label(axis, float(value)) for value in known])
    return (labels.astype(np.int32) if labels.dtype.kind == "i" else labels)[code]


def _dimension_coordinates(grid: Grid) -> dict[str, Any]:
    return {
        variable_name(axis): _coordinate(dimension.name, axis, _labels(axis))
        for dimension in grid.dimensions
        for axis in dimension.axes
    }


def _stacked(dataset: xr.Dataset, levels: list[str]) -> xr.Dataset:
    """The dataset with these coordinates of ``mapping`` as levels of its multi-index."""
    index = pd.MultiIndex.from_arrays([dataset[name].values for name in levels], names=levels)
    attributes = {name: dataset[name].attrs for name in levels}
    plain = dataset.drop_vars(levels)
    stacked = plain.assign_coords(xr.Coordinates.from_pandas_multiindex(index, "mapping"))
    for name in levels:
        stacked[name].attrs.update(attributes[name])
    return stacked


# --- files ------------------------------------------------------------------------------------------------


def write(dataset: xr.Dataset, path: Path) -> None:
    """Write netCDF4 (zlib 1, shuffled) under a temporary name, then rename: the file is whole or not there."""
    plain = _flattened(dataset)
    encoding = {name: _encoding(variable) for name, variable in plain.variables.items()}
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    cache = netCDF4.get_chunk_cache()
    try:
        netCDF4.set_chunk_cache(_CHUNK * 4)  # one chunk a variable: they are written once, in order
        plain.to_netcdf(partial, engine="netcdf4", format="NETCDF4", encoding=encoding)
        os.replace(partial, path)
    finally:
        netCDF4.set_chunk_cache(*cache)
        partial.unlink(missing_ok=True)


def _encoding(variable: xr.Variable) -> dict[str, Any]:
    """How a variable lies on disk."""
    kind = variable.dtype.kind
    encoding: dict[str, Any] = {}
    if variable.size > 1 and kind in "fiub":
        encoding = _COMPRESSED | {"chunksizes": _chunk_shape(variable.shape)}
    if kind == "f" and not variable.isnull().any():
        encoding["_FillValue"] = None
    return encoding


def _chunk_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Whole trailing dimensions up to about ``_CHUNK`` values."""
    chunk: list[int] = []
    left = _CHUNK
    for size in reversed(shape):
        chunk.append(max(1, min(size, left)))
        left //= chunk[-1]
    return tuple(reversed(chunk))


def _flattened(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset as it lies on disk: no multi-index, long texts as flags."""
    if "mapping" in dataset.indexes:
        levels = list(dataset.indexes["mapping"].names)
        attributes = {name: dataset[name].attrs for name in levels}
        dataset = dataset.reset_index("mapping").assign_attrs({_LEVELS: " ".join(levels)})
        for name in levels:
            dataset[name].attrs.update(attributes[name])
    flags = {}
    for name, variable in dataset.variables.items():
        if variable.dtype.kind in "UO" and variable.ndim and name not in dataset.dims:
            flags[name] = _as_flags(variable)
    return dataset.assign(flags)


def _as_flags(variable: xr.Variable) -> xr.Variable:
    """Texts as the codes of CF flags; -1 stands for no text."""
    words, code = np.unique(variable.values.astype(str), return_inverse=True)
    shift = int(words[0] == "")
    code = code.reshape(variable.shape).astype(np.int32) - shift
    words = words[shift:]
    flags = {"flag_values": np.arange(len(words), dtype=np.int32), "flag_meanings": " ".join(words)}
    return xr.Variable(variable.dims, code, variable.attrs | flags)


def _from_flags(variable: xr.Variable) -> xr.Variable:
    words = np.array([*variable.attrs["flag_meanings"].split(), ""])
    attrs = {key: value for key, value in variable.attrs.items() if not key.startswith("flag_")}
    return xr.Variable(variable.dims, words[variable.values], attrs)


def open_results(path: str | Path) -> xr.Dataset:
    """The results of a sweep, lazily read, with the ``mapping`` multi-index and readable labels restored."""
    path = Path(path)
    if not path.is_file():
        near = nearest(path.name, [p.name for p in path.parent.glob("*.nc")]) if path.parent.is_dir() else []
        fix = f"did you mean {path.parent / near[0]}?" if near else "run the sweep first: dse run SWEEP.toml"
        raise InputError(str(path), "no such file", "a results file (netCDF4)", fix)
    try:
        dataset = xr.open_dataset(path, engine="netcdf4")
    except OSError as error:
        raise InputError(
            str(path), str(error.strerror or error), "a netCDF4 file", "give the output of dse run"
        ) from None
    texts = {
        name: _from_flags(variable) for name, variable in dataset.variables.items() if "flag_values" in variable.attrs
        and variable.dtype.kind == "i"
    }  # fmt: skip
    dataset = dataset.assign(texts)
    levels = dataset.attrs.pop(_LEVELS, "").split()
    return _stacked(dataset, levels) if levels else dataset
