"""Variables of results files without the dimensions along which they are constant: each value once.

Most metrics of a large sweep do not depend on all of its axes: parameters on none, memory on no clock. A file has such
a variable along the dimensions that it varies over, and without any where it is constant; ``constant_along`` names the
others. Plain xarray broadcasts it by itself; :func:`dse.open_results` gives it all dimensions back, without copies.

Objectives, ``feasible`` along the dimensions of a sweep, and labels have all dimensions: selections by label and counts
of designs rely on them. Whether a variable is constant is decided by its values once all designs are evaluated, so that
the parts of a sweep (``--workers``, ``--shard``) need to know nothing of each other.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from dse.sweep.results.schema import CONSTANT_ALONG, wrong

if TYPE_CHECKING:
    import xarray as xr


def constant_dims(dims: tuple[str, ...], values: np.ndarray) -> list[str]:
    """Return the dimensions along which an array is constant, of one value all of them, those of one position too."""
    constant = []
    for axis, dim in enumerate(dims):
        if values.shape[axis] > 1 and _is_constant(values, axis):
            values = values.take([0], axis)  # what is left to compare
            constant.append(dim)
    return list(dims) if constant and values.size == 1 else constant


def _is_constant(values: np.ndarray, axis: int) -> bool:
    """Return True if all positions along an axis have the same values; NaN equals NaN."""
    by_position = np.moveaxis(values, axis, 0)
    first, is_float = by_position[:1], values.dtype.kind == "f"
    if not np.array_equal(first, by_position[1:2], equal_nan=is_float):  # of most variables: without reading the rest
        return False
    return np.array_equal(np.broadcast_to(first, by_position.shape), by_position, equal_nan=is_float)


def with_repeats(dataset: xr.Dataset, where: str) -> xr.Dataset:
    """Return the dataset of a file with reduced variables along all their dimensions, as views that cannot be written.

    Args:
        dataset: of a results file.
        where: its name in errors.

    Raises:
        InputError: for dimensions that no complete variable has.
    """
    variables = dataset.data_vars.items()
    reduced_names = [name for name, variable in variables if CONSTANT_ALONG in variable.attrs]
    dims_by_set = {frozenset(v.dims): v.dims for name, v in variables if name not in reduced_names}

    def repeated(name: Hashable) -> xr.Variable:
        """Return a reduced variable along all its dimensions, in their order in a complete variable."""
        variable = dataset.variables[name]
        constant_dims = str(variable.attrs[CONSTANT_ALONG]).split()
        dims = dims_by_set.get(frozenset((*variable.dims, *constant_dims)))
        if dims is None or set(constant_dims) & set(variable.dims):
            got = f"constant along {', '.join(constant_dims)}"
            raise wrong(f"{where}: {name}", got, "dimensions of another variable")
        attrs = {key: attribute for key, attribute in variable.attrs.items() if key != CONSTANT_ALONG}
        return type(variable)(dims, repeated_values(variable.values, variable.dims, dims, dataset.sizes), attrs)

    return dataset.assign({name: repeated(name) for name in reduced_names})


def repeated_values(
    values: np.ndarray, dims: tuple[Hashable, ...], all_dims: tuple[Hashable, ...], sizes: Mapping[Hashable, int]
) -> np.ndarray:
    """Return values along ``dims`` as a view along ``all_dims``, repeated along those that they lack.

    Raises ValueError for values along a dimension that is not among ``all_dims``.
    """
    along = [dims.index(dim) for dim in all_dims if dim in dims]
    shape = [sizes[dim] if dim in dims else 1 for dim in all_dims]
    return np.broadcast_to(values.transpose(along).reshape(shape), [sizes[dim] for dim in all_dims])
