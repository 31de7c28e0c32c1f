"""Results of a sweep: labelled arrays in memory, xarray datasets, reading of files.

xarray takes a third of a second to import and is imported where it is used; :mod:`dse.sweep.results.writing` does not
need it.

A file holds every metric, along the axes of the sweep and ``mapping`` or along ``design``; the labels of axes and of
parts of the mapping as coordinates; and the group ``overview`` of all designs, kept or not. Text labels along
``mapping`` or ``design`` are stored as integers with their meanings (``flag_values`` and ``flag_meanings`` of CF; -1 is
missing). Integers of an enumeration (``recompute``, ``precision``, …) are the codes of :mod:`dse.types.choices`, the
same in every file, in :func:`dse.design` and in specifications.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.errors import InputError, nearest
from dse.io import inputs
from dse.io.files import is_sealed
from dse.sweep.results import declared, layout, schema
from dse.sweep.results.constants import with_repeats
from dse.sweep.results.labelled import Labelled
from dse.sweep.results.schema import OVERVIEW

if TYPE_CHECKING:
    import xarray as xr

#: Global attribute of a file: its compression.
COMPRESSION = "compression"


def to_xarray(results: Labelled) -> xr.Dataset:
    """Return the dataset of labelled results, equal to that of :func:`open_results`."""
    from dse.sweep.results import accessor
    from dse.sweep.results.cautioned import with_cautions
    from dse.sweep.results.indexing import with_index

    accessor.register()
    dataset = with_cautions(with_index(_plain(results)))
    if results.overview:
        dataset.encoding[OVERVIEW] = _plain(results.overview)
    return dataset


def dataset_of(results: Labelled | None, path: Path | None) -> xr.Dataset:
    """Return the dataset of labelled results; of the file of an earlier run, loaded, where there are none."""
    if results is not None:
        return to_xarray(results)
    assert path is not None, "a run without results has read them from a file"
    with open_results(path) as dataset:
        return dataset.load()


def _plain(results: Labelled) -> xr.Dataset:
    """Return labelled results as a dataset of xarray without an index of mappings or designs."""
    import xarray as xr

    data = {name: xr.Variable(*variable) for name, variable in results.data.items()}
    coords = {name: xr.Variable(*variable) for name, variable in results.coords.items()}
    return xr.Dataset(data, coords, results.attrs)


def open_results(path: str | Path) -> xr.Dataset:
    """Open the results of a sweep, lazily loaded, with text labels and designs selectable by label.

    Args:
        path: netCDF4 file of ``dse run``, or of ``to_netcdf`` on a dataset of this function.

    Returns:
        The dataset; every variable has ``units`` and ``long_name``. Global attributes give its provenance and, a line
        each, ``cautions`` on its best designs, with which its representation ends. Parts of the mapping (for single
        designs all axes) are levels of an index: ``results.sel(tp=8, recompute="full")``; the coordinate ``mapping``
        (``design``) numbers the rows: ``results.sel(mapping=3)``. A value that the specification fixes may be named
        too. With ``best`` the parts of the mapping are variables: ``results.where(results.tp == 8)``. ``results.dse``
        has what xarray does not do on results, such as ``results.dse.best("tp", "pp")``
        (:class:`dse.sweep.results.accessor.DesignAccessor`).

    Raises:
        InputError: for a file that does not exist, is no netCDF4, is damaged, declares more than its size allows
            (:mod:`dse.sweep.results.declared`) or has another layout (:mod:`dse.sweep.results.layout`).

    >>> import tempfile
    >>> import dse
    >>> file = f"{tempfile.mkdtemp()}/best.nc"
    >>> _ = dse.run("sweeps/megatron_1t_4096_a100.toml", file, keep="top:3")
    >>> results = open_results(file)
    >>> results.step_time.attrs["units"]
    's'
    >>> bool(results.step_time.sel(design=0) == results.step_time.min())
    True
    >>> results.dse.best("tp", "pp").step_time.sel(tp=8, pp=64).astype(int).item()
    72
    """
    from dse.sweep.results import accessor
    from dse.sweep.results.cautioned import with_cautions
    from dse.sweep.results.indexing import with_index

    accessor.register()
    stored = _open_dataset(path)
    try:
        schema.check(stored.attrs, str(path))
        results = with_repeats(_with_texts(stored, str(path)), str(path))
        layout.check(results, str(path))
        results = with_cautions(with_index(results))
    except BaseException:
        stored.close()
        raise
    results.set_close(stored.close)  # otherwise the file stays open until garbage collection
    return results


def overview(results: xr.Dataset | str | Path) -> xr.Dataset:
    """Return the overview of all designs of a sweep, kept in the results or not.

    Args:
        results: a dataset of :func:`dse.run` or :func:`open_results`, or the path of a results file.

    Returns:
        Along ``by_<axis>``: ``best_<objective>_by_<axis>``, the best value of the objective over the feasible designs
        at each value of every axis. With ``histogram`` in the specification, along ``bin``: ``count_by_<objective>``,
        the number of feasible designs from ``bin_of_<objective>_from`` up to ``bin_of_<objective>_to``.

    Raises:
        InputError: for a selection of another dataset, and for a file without an overview.

    >>> import dse
    >>> found = overview(dse.run("sweeps/megatron_1t_4096_a100.toml", output=False, keep="top:3"))
    >>> bool(found.best_step_time_by_tp.sel(by_tp=8) < found.best_step_time_by_tp.sel(by_tp=4))
    True
    """
    if not isinstance(results, str | Path) and OVERVIEW in results.encoding:
        return results.encoding[OVERVIEW]
    path = results if isinstance(results, str | Path) else results.encoding.get("source")
    if path:
        try:
            with _open_dataset(path, OVERVIEW) as stored:
                return stored.load()
        except InputError:
            open_results(path).close()  # raises the fault of the whole file, if there is one
            raise
    raise InputError(
        "results",
        "a dataset without its overview",
        "what dse.run or dse.open_results gave, or the path of its file",
        "ask for the overview before selecting designs",
    )


def _open_dataset(path: str | Path, group: str | None = None) -> xr.Dataset:
    """Return a results file or a group of it, as stored, lazily loaded; InputError if it cannot be opened."""
    path = Path(path)
    if not path.exists():
        near = nearest(path.name, [p.name for p in path.parent.glob("*.nc")]) if path.parent.is_dir() else []
        fix = f"did you mean {path.parent / near[0]}?" if near else "run the sweep first: dse run SWEEP.toml"
        raise InputError(str(path), "no such file", "a results file (netCDF4)", fix)
    inputs.check_input(path, inputs.MAX_RESULTS_BYTES, "a results file (netCDF4)")
    try:
        sealed = is_sealed(path)
        if sealed is False:
            raise _damaged(path, "its content does not match its checksum")
        store = _store(path, group)
        try:
            root = store.ds if group is None else store.ds.parent
            count = declared.check(root, path)
            if sealed is None or count <= declared.FEW_VALUES:
                _check_readable(store, path)
            dataset = _decoded(store)
        except BaseException:
            store.close()
            raise
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            str(path), str(error.strerror or error), "a netCDF4 file", "give the output of dse run"
        ) from None
    except Exception as error:  # libraries raise anything on files they have not written
        raise _damaged(path, f"{type(error).__name__}: {error}") from None
    dataset.encoding["source"] = str(path)
    return dataset


def _store(path: Path, group: str | None) -> Any:
    """Return xarray's store of an open file or of a group of it; InputError where the file lacks the group."""
    import xarray as xr

    try:
        return xr.backends.NetCDF4DataStore.open(str(path), group=group)
    except OSError as error:
        if isinstance(error.strerror, KeyError):  # a valid file without this group
            raise schema.wrong(str(path), f"no group {group!r}", "the overview of all designs") from None
        raise


def _decoded(store: Any, **options: Any) -> xr.Dataset:
    """Return the dataset of a store as xarray decodes it, without dates."""
    import xarray as xr

    return xr.open_dataset(store, decode_times=False, decode_timedelta=False, **options)


def _check_readable(store: Any, path: Path) -> None:
    """Raise InputError where a variable of a file cannot be read: later reads would raise errors of libraries."""
    for name, variable in _decoded(store, cache=False).variables.items():
        try:
            _ = variable.values
        except Exception as error:  # netCDF's, or xarray's on what it cannot decode
            raise _damaged(path, f"{name} cannot be read ({error})") from None


def _damaged(path: Path, why: str) -> InputError:
    """Return the error for a damaged file; ``why``: in words."""
    return schema.wrong(str(path), f"a damaged file: {why}", "results as dse wrote them")


#: Meanings of the codes 0 and 1 of a truth value.
_TRUTH_WORDS = ["false", "true"]


def _with_texts(dataset: xr.Dataset, where: str) -> xr.Dataset:
    """Return the dataset with texts or truth values in place of flags; its compression moves to the encoding."""
    texts = {
        name: _from_flags(variable, f"{where}: {name}")
        for name, variable in dataset.variables.items()
        if {"flag_values", "flag_meanings"} <= set(variable.attrs) and variable.dtype.kind in "iu"
    }
    dataset = dataset.assign(texts)
    if COMPRESSION in dataset.attrs:  # describes the file, not the results
        dataset.encoding[COMPRESSION] = dataset.attrs.pop(COMPRESSION)
    return dataset


def _from_flags(variable: xr.Variable, where: str) -> xr.Variable:
    """Return the texts, or truth values, of a variable's codes, "" for -1; InputError for others without meaning."""
    codes, words = np.atleast_1d(variable.attrs["flag_values"]), variable.attrs["flag_meanings"].split()
    order = np.argsort(codes, kind="stable")
    values = variable.values
    insertion = np.searchsorted(codes, values, sorter=order).clip(max=max(len(codes) - 1, 0))
    position = np.where(values == -1, len(codes), order[insertion] if len(codes) else -1)
    valid_codes = np.append(codes, -1)
    if not (valid_codes[position] == values).all():
        wrong = values[valid_codes[position] != values].reshape(-1)[0]
        raise schema.wrong(where, f"a code {wrong} that has no meaning", ", ".join(map(str, codes[:20])))
    if words == _TRUTH_WORDS and codes.tolist() == [0, 1]:
        return type(variable)(variable.dims, values == 1, variable.attrs)
    attrs = {key: value for key, value in variable.attrs.items() if not key.startswith("flag_")}
    return type(variable)(variable.dims, np.array([*words, ""])[position], attrs)
