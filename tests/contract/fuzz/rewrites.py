"""Results files rewritten: variables, coordinates, dimensions and attributes lost, emptied, renamed or replaced.

What xarray, a netCDF tool or somebody with malice makes of a file of ours: valid netCDF4 throughout, so that the
library reads it and only dse can tell that it holds something else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import netCDF4
import numpy as np
import xarray as xr

Change = Callable[["Content", random.Random], None]


@dataclasses.dataclass
class Variable:
    """A variable as a file holds it."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, Any]


@dataclasses.dataclass
class Content:
    """A group of a file as it holds it, in memory."""

    variables: dict[str, Variable]
    attrs: dict[str, Any]
    groups: dict[str, Content] = dataclasses.field(default_factory=dict)


# --- files ------------------------------------------------------------------------------------------------


def read(path: Path) -> Content:
    """What a file holds."""
    with netCDF4.Dataset(path) as file:
        return _read(file)


def _read(group: netCDF4.Dataset) -> Content:
    group.set_auto_maskandscale(False)
    group.set_auto_chartostring(False)
    variables = {
        name: Variable(one.dimensions, np.asarray(one[...]), {key: one.getncattr(key) for key in one.ncattrs()})
        for name, one in group.variables.items()
    }
    attrs = {key: group.getncattr(key) for key in group.ncattrs()}
    return Content(variables, attrs, {name: _read(one) for name, one in group.groups.items()})


def write(content: Content, path: Path) -> None:
    """Write a file of it; what netCDF4 itself refuses is left out."""
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        _write(content, file)


def _write(content: Content, group: netCDF4.Dataset) -> None:
    for variable in content.variables.values():
        for dim, size in zip(variable.dims, variable.values.shape, strict=True):
            if dim not in group.dimensions:
                group.createDimension(dim, size or None)  # of a fixed length 0 it would be unlimited
    for name, variable in content.variables.items():
        if any(
            len(group.dimensions[dim]) != size and not group.dimensions[dim].isunlimited()
            for dim, size in zip(variable.dims, variable.values.shape, strict=True)
        ):
            continue
        try:
            _put(group, name, variable)
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, IndexError, OverflowError):
            continue
    _attributes(group, content.attrs)
    for name, one in content.groups.items():
        if name not in group.variables:
            _write(one, group.createGroup(name))


def _put(group: netCDF4.Dataset, name: str, variable: Variable) -> None:
    values = variable.values
    text = values.dtype.kind in "UO"
    attrs = dict(variable.attrs)
    fill = attrs.pop("_FillValue", None)
    if text:
        made = group.createVariable(name, str, variable.dims)
    else:
        made = group.createVariable(name, values.dtype, variable.dims, zlib=bool(variable.dims), fill_value=fill)
        made.set_auto_maskandscale(False)
    if values.size:
        made[...] = values.astype(object) if text else values
    _attributes(made, attrs)


def _attributes(of: Any, attrs: dict[str, Any]) -> None:
    for name, value in attrs.items():
        try:
            of.setncattr(name, value)
        except (RuntimeError, ValueError, TypeError, AttributeError, UnicodeError, OverflowError):
            continue


# --- changes ----------------------------------------------------------------------------------------------

#: Texts in the place of others.
TEXTS = (
    "", " ", "x", "nan", "true", "1", "-1", "1e400", "[]", "{}", "[[]]", "null", '{"a": 1}', '{"a": [1]}', "\0",
    "\x1b[31m", "a\nb", "$x^2$", "$\\frac", "{{document}}", "</script>", "é漢字😀", "‮", "x" * 300, "y " * 5000,
    "[" * 3000, "9" * 5000,
    "step_time", "mapping.tp", "workload", "system.accelerator.memory.bandwidth", "days since 2000-01-01", "seconds",
    "s", "furlong", "bool", "pareto", "serving", "training", "title = 1", "[workload]\nname = 3", "[axes]\ntp = []",
    "all", "0 1 2", "3 4 nan", "99999999999999999999999999", "utf-8", "utf-99", "mapping design searcher seed",
)  # fmt: skip

#: Numbers in the place of others.
NUMBERS = (
    0, 1, -1, 0.5, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 1e300, -1e300, 1e-300, math.nan, math.inf, -math.inf,
)  # fmt: skip

#: Names in the place of others.
NAMES = (
    "x", "mapping", "design", "searcher", "seed", "step", "index", "feasible", "infeasible_reason", "step_time",
    "time_per_output_token", "peak_memory", "tp", "pp", "workload", "accelerator", "front_step_time", "violation",
    "memory_bandwidth", "by_tp", "best_step_time_by_tp", "overview", "a b", "é", "x" * 200, "front_", "step_time_",
    "count_by_step_time", "requests_per_second", "mfu", "tokens_per_second",
)  # fmt: skip

TYPES = ("i1", "u1", "i2", "i4", "u4", "i8", "u8", "f4", "f8", "U")


def _some(content: Content, rng: random.Random) -> str | None:
    return rng.choice(list(content.variables)) if content.variables else None


def _drop(content: Content, rng: random.Random) -> None:
    if name := _some(content, rng):
        del content.variables[name]


def _drop_many(content: Content, rng: random.Random) -> None:
    kept = rng.random()
    content.variables = {name: one for name, one in content.variables.items() if rng.random() < kept}


def _rename(content: Content, rng: random.Random) -> None:
    if name := _some(content, rng):
        content.variables[rng.choice((*NAMES, *content.variables))] = content.variables.pop(name)


def _swap(content: Content, rng: random.Random) -> None:
    """Two variables change names."""
    if content.variables:
        one, other = (rng.choice(list(content.variables)) for _ in range(2))
        both = content.variables
        both[one], both[other] = both[other], both[one]


def _rename_dim(content: Content, rng: random.Random) -> None:
    dims = sorted({dim for one in content.variables.values() for dim in one.dims})
    if dims:
        old, new = rng.choice(dims), rng.choice((*NAMES, *dims))
        for one in content.variables.values():
            if rng.random() < 0.95:
                one.dims = tuple(new if dim == old else dim for dim in one.dims)


def _cut_dim(content: Content, rng: random.Random) -> None:
    """A dimension of length 0, 1 or half of what it was."""
    dims = sorted({dim for one in content.variables.values() for dim in one.dims})
    if dims:
        dim, share = rng.choice(dims), rng.choice((0, 0, 1, 2))
        for one in content.variables.values():
            if dim in one.dims:
                at = one.dims.index(dim)
                one.values = one.values.take(
                    range(min(one.values.shape[at], share or 0) if share < 2 else one.values.shape[at] // 2), axis=at
                )


def _type(content: Content, rng: random.Random) -> None:
    if name := _some(content, rng):
        one = content.variables[name]
        with np.errstate(all="ignore"):
            try:
                one.values = one.values.astype(rng.choice(TYPES))
            except (ValueError, TypeError, OverflowError):
                one.values = np.zeros(one.values.shape, rng.choice(TYPES))
        one.attrs.pop("_FillValue", None)
        if rng.random() < 0.5:
            one.attrs.pop("dtype", None)


def _values(content: Content, rng: random.Random) -> None:
    """Other values: all of them, or some."""
    if name := _some(content, rng):
        one = content.variables[name]
        if one.values.dtype.kind in "UO":
            made: Any = np.full(one.values.shape, rng.choice(TEXTS), object)
        else:
            with np.errstate(all="ignore"):
                made = np.full(one.values.shape, rng.choice(NUMBERS), float).astype(one.values.dtype)
        part = np.random.default_rng(rng.randrange(2**32)).random(one.values.shape) < rng.choice((0.1, 0.5, 1.0))
        one.values = np.where(part, made, one.values)


def _shuffle(content: Content, rng: random.Random) -> None:
    if name := _some(content, rng):
        one = content.variables[name]
        order = np.random.default_rng(rng.randrange(2**32)).permutation(one.values.size)
        one.values = one.values.reshape(-1)[order].reshape(one.values.shape)


def _dims(content: Content, rng: random.Random) -> None:
    """A variable along fewer, more or other dimensions."""
    if not (name := _some(content, rng)):
        return
    one, kind = content.variables[name], rng.randrange(5)
    sizes = {dim: size for v in content.variables.values() for dim, size in zip(v.dims, v.values.shape, strict=True)}
    if kind == 0 and one.dims:
        one.values, one.dims = one.values.T, one.dims[::-1]
    elif kind == 1 and one.dims and one.values.shape[0]:
        one.values, one.dims = np.asarray(one.values[0], one.values.dtype), one.dims[1:]
    elif kind == 2 and sizes:
        dim = rng.choice(list(sizes))
        if dim not in one.dims:
            one.values = np.broadcast_to(one.values, (sizes[dim], *one.values.shape)).copy()
            one.dims = (dim, *one.dims)
    elif kind == 3:
        one.dims = tuple(f"{dim}_other" for dim in one.dims)
    elif one.dims:
        one.values = np.broadcast_to(one.values, (rng.choice((1, 2, 3)), *one.values.shape)).copy()
        one.dims = ("new", *one.dims)


def _value_of(rng: random.Random, old: Any) -> Any:
    """Another value of an attribute."""
    if isinstance(old, str) and rng.random() < 0.5:
        at, kind = rng.randrange(len(old) + 1), rng.randrange(4)
        words = old.split(" ")
        return (
            old[:at],
            old[:at] + rng.choice(TEXTS) + old[at:],
            old[:at] + old[at + rng.randrange(1, 30) :],
            " ".join(rng.sample(words, len(words))),
        )[kind]
    if isinstance(old, np.ndarray) and old.size and rng.random() < 0.6:
        with np.errstate(all="ignore"):
            changed = old.copy()
            changed[rng.randrange(old.size)] = np.array(rng.choice(NUMBERS), float).astype(old.dtype)
        return rng.choice((changed, old[:-1], old[::-1], np.concatenate([old, old]), old.astype(float)))
    return rng.choice(
        (
            rng.choice(TEXTS),
            rng.choice(NUMBERS),
            np.array(NUMBERS),
            np.arange(rng.choice((0, 1, 3, 5000))),
            ["a", "b"],
            np.int8(1),
            np.float32(2.5),
            np.array([1.5]),
        )
    )


def _attribute(content: Content, rng: random.Random) -> None:
    """An attribute lost or another, of the file or of a variable; or one that readers of netCDF obey."""
    owners = [content.attrs, *(one.attrs for one in content.variables.values())]
    attrs = owners[0] if rng.random() < 0.5 else rng.choice(owners)
    if rng.random() < 0.2:
        name = rng.choice((
            "scale_factor", "add_offset", "missing_value", "_Unsigned", "coordinates", "units", "calendar", "dtype",
            "flag_values", "flag_meanings", "flag_masks", "path", "grid_mapping", "bounds", "_Encoding", "axis",
            "_FillValue", "ancillary_variables", "cell_measures", "valid_range", "long_name", "comment",
        ))  # fmt: skip
    elif attrs:
        name = rng.choice(list(attrs))
    else:
        return
    if rng.random() < 0.2:
        attrs.pop(name, None)
    else:
        attrs[name] = _value_of(rng, attrs.get(name))


def _no_attributes(content: Content, rng: random.Random) -> None:
    if rng.random() < 0.5:
        content.attrs = {}
    if rng.random() < 0.5:
        for one in content.variables.values():
            one.attrs = {}


def _flags(content: Content, rng: random.Random) -> None:
    """The codes of a label, or what they mean."""
    with_flags = [one for one in content.variables.values() if "flag_values" in one.attrs or "flag_masks" in one.attrs]
    if with_flags:
        attrs = rng.choice(with_flags).attrs
        name = rng.choice([key for key in attrs if key.startswith("flag_")])
        if rng.random() < 0.2:
            del attrs[name]
        else:
            attrs[name] = _value_of(rng, attrs[name])


def _group(content: Content, rng: random.Random) -> None:
    """The overview lost, or in the place of all."""
    if content.groups:
        name = rng.choice(list(content.groups))
        if rng.random() < 0.5:
            del content.groups[name]
        else:
            inside = content.groups[name]
            content.variables.update(inside.variables)


def _empty(content: Content, rng: random.Random) -> None:
    content.variables = {}


CHANGES: tuple[Change, ...] = (
    _drop, _drop, _drop_many, _rename, _rename, _swap, _rename_dim, _cut_dim, _type, _type, _values, _values, _values,
    _shuffle, _dims, _dims, _attribute, _attribute, _attribute, _attribute, _no_attributes, _flags, _flags, _group,
)  # fmt: skip


def changed(content: Content, rng: random.Random, others: list[Content]) -> None:
    """One to four changes; now and then something of another file."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        inside = [content, *content.groups.values()]
        of = content if rng.random() < 0.9 else rng.choice(inside)
        if rng.random() < 0.05 and others:
            _mix(of, rng.choice(others), rng)
        elif rng.random() < 0.005:
            _empty(of, rng)
        else:
            rng.choice(CHANGES)(of, rng)


def _mix(content: Content, other: Content, rng: random.Random) -> None:
    """Variables or attributes of another kind of results."""
    if rng.random() < 0.5 and other.attrs:
        name = rng.choice(list(other.attrs))
        content.attrs[name] = other.attrs[name]
    elif other.variables:
        name = rng.choice(list(other.variables))
        content.variables[name] = dataclasses.replace(other.variables[name])


# --- what people do with xarray ----------------------------------------------------------------------------


def _dim(found: xr.Dataset, rng: random.Random) -> str | None:
    return rng.choice([str(dim) for dim in found.dims]) if found.dims else None


def _one(found: xr.Dataset, rng: random.Random) -> str:
    return str(rng.choice(list(found.variables)))


def _selected(found: xr.Dataset, rng: random.Random) -> xr.Dataset:
    dim = _dim(found, rng)
    if dim is None or not found.sizes[dim]:
        return found
    last = found.sizes[dim] - 1
    places = (0, [0], slice(0, 0), slice(None, None, 2), [0, 0], [last, 0], slice(1, None))
    return found.isel({dim: rng.choice(places)})


def _reduced(found: xr.Dataset, rng: random.Random) -> xr.Dataset:
    how, dim = rng.choice(("min", "mean", "max", "median", "count", "any")), _dim(found, rng)
    numbers = found if how in ("min", "max", "count") else found[[n for n in found if found[n].dtype.kind == "f"]]
    return getattr(numbers, how)(dim, keep_attrs=rng.random() < 0.5)


def _masked(found: xr.Dataset, rng: random.Random) -> xr.Dataset:
    kept = found.feasible if "feasible" in found else found[_one(found, rng)].notnull()
    return found.where(kept, drop=rng.random() < 0.5)


def _tabled(found: xr.Dataset, rng: random.Random) -> xr.Dataset:
    table = found.to_dataframe()
    return (table if rng.random() < 0.5 else table.reset_index()).to_xarray()


_BY_XARRAY: tuple[Callable[[xr.Dataset, random.Random], xr.Dataset], ...] = (
    _selected,
    _selected,
    _reduced,
    _masked,
    _tabled,
    lambda found, rng: found.drop_vars(_one(found, rng)),
    lambda found, rng: found[[n for n in found if rng.random() < 0.7]],
    lambda found, rng: found.reset_coords(drop=rng.random() < 0.5),
    lambda found, rng: found.set_coords(_one(found, rng)),
    lambda found, rng: found.drop_attrs(deep=rng.random() < 0.5),
    lambda found, rng: found.rename({_one(found, rng): rng.choice(NAMES)}),
    lambda found, rng: found.expand_dims(rng.choice((*NAMES, "new"))),
    lambda found, rng: found.squeeze(),
    lambda found, rng: found.transpose(*rng.sample(list(found.dims), len(found.dims))),
    lambda found, rng: found.astype(rng.choice(TYPES)),
    lambda found, rng: found.assign({_one(found, rng): found[_one(found, rng)]}),
    lambda found, rng: found.fillna(0.0),
    lambda found, rng: found.reset_index([str(n) for n in found.indexes if rng.random() < 0.7]),
    lambda found, rng: found.stack(all=[str(dim) for dim in found.dims], create_index=False),
    lambda found, rng: found.sortby(_one(found, rng)),
    lambda found, rng: found.pad({_dim(found, rng): 1}),
    lambda found, rng: found.map(lambda one: one * 2 if one.dtype.kind == "f" else one),
)


def by_xarray(original: Path, path: Path, rng: random.Random) -> None:
    """Write what xarray makes of a file in one to three steps, opened by dse or by xarray alone."""
    import dse

    with dse.open_results(original) if rng.random() < 0.5 else xr.open_dataset(original) as opened:
        found = opened.load()
    for _ in range(rng.choice((1, 1, 2, 3))):
        with contextlib.suppress(Exception):  # what xarray itself does not do
            found = rng.choice(_BY_XARRAY)(found, rng)
    with contextlib.suppress(Exception):
        found.to_netcdf(path)
    if not path.exists():
        path.write_bytes(original.read_bytes())
