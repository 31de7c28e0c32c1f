"""Results of a sweep: labelled arrays in memory, xarray datasets, files read back.

xarray takes a third of a second to import and is imported where it is used;
:mod:`dse.sweep.results.writing` does without it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse import inputs
from dse.errors import InputError, nearest
from dse.files import is_sealed

if TYPE_CHECKING:
    import xarray as xr

#: Global attribute that names the levels of the ``mapping`` multi-index.
LEVELS = "mapping_levels"

#: Global attribute of a file that tells how it is compressed.
COMPRESSION = "compression"


class Variable(NamedTuple):
    """Values along named dimensions, and what they are."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Labelled:
    """The results of a sweep, by name."""

    data: dict[str, Variable]
    coords: dict[str, Variable]
    levels: tuple[str, ...] = ()  #: coordinates of the dimension ``mapping`` that together are its index
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Dimension → its length."""
        variables = [*self.coords.values(), *self.data.values()]
        return {dim: size for v in variables for dim, size in zip(v.dims, v.values.shape, strict=True)}


def to_xarray(results: Labelled) -> xr.Dataset:
    """The dataset of labelled results, the parts of the mapping as levels of a ``mapping`` multi-index."""
    import xarray as xr

    data = {name: xr.Variable(*variable) for name, variable in results.data.items()}
    coords = {name: xr.Variable(*variable) for name, variable in results.coords.items()}
    return _stacked(xr.Dataset(data, coords, results.attrs), list(results.levels))


def open_results(path: str | Path) -> xr.Dataset:
    """The results of a sweep, lazily read, with the ``mapping`` multi-index and readable labels restored.

    Args:
        path: netCDF4 file that ``dse run`` has written.

    Returns:
        The dataset; every variable has ``units`` and ``long_name``, attributes tell where it comes from.

    Raises InputError for a file that is not there, is no netCDF4 or is not as it was written.
    """
    import xarray as xr

    path = Path(path)
    if not path.exists():
        near = nearest(path.name, [p.name for p in path.parent.glob("*.nc")]) if path.parent.is_dir() else []
        fix = f"did you mean {path.parent / near[0]}?" if near else "run the sweep first: dse run SWEEP.toml"
        raise InputError(str(path), "no such file", "a results file (netCDF4)", fix)
    inputs.checked(path, inputs.RESULTS, "a results file (netCDF4)")
    if is_sealed(path) is False:
        raise InputError(
            str(path), "a damaged file: its content is not what its checksum says", "results as dse wrote them",
            "run the sweep again, dse run SWEEP.toml, or take an undamaged copy",
        )  # fmt: skip
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
    if COMPRESSION in dataset.attrs:  # of the file, not of what it tells
        dataset.encoding[COMPRESSION] = dataset.attrs.pop(COMPRESSION)
    return _stacked(dataset, dataset.attrs.pop(LEVELS, "").split())


def _from_flags(variable: xr.Variable) -> xr.Variable:
    words = np.array([*variable.attrs["flag_meanings"].split(), ""])
    attrs = {key: value for key, value in variable.attrs.items() if not key.startswith("flag_")}
    return type(variable)(variable.dims, words[variable.values], attrs)


def _stacked(dataset: xr.Dataset, levels: list[str]) -> xr.Dataset:
    """The dataset with these coordinates of ``mapping`` as levels of its multi-index."""
    if not levels:
        return dataset
    import pandas as pd
    import xarray as xr

    index = pd.MultiIndex.from_arrays([dataset[name].values for name in levels], names=levels)
    attributes = {name: dataset[name].attrs for name in levels}
    plain = dataset.drop_vars(levels)
    stacked = plain.assign_coords(xr.Coordinates.from_pandas_multiindex(index, "mapping"))
    for name in levels:
        stacked[name].attrs.update(attributes[name])
    return stacked
