"""Results as options state them: a file, an open dataset, or the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.errors import InputError
from dse.reports import Report

if TYPE_CHECKING:
    import xarray as xr


def file_or_dataset(results: Any, where: str) -> Path | xr.Dataset:
    """Return the path or the dataset of results.

    Args:
        results: a path, an open dataset, or a report that has one.
        where: option, for errors.

    Raises:
        InputError: for anything else.
    """
    if isinstance(results, str | Path):
        return Path(results)
    if isinstance(results, Report) and results.load is not None:
        return results.dataset
    if hasattr(results, "data_vars"):
        dataset: xr.Dataset = results
        return dataset
    allowed = "a path, a dataset, or the report of dse.run or dse.search"
    raise InputError(where, repr(results)[:200], allowed, "name a file of results")


def results_name(results: Path | xr.Dataset) -> str:
    """Return the path of results; of a dataset that of its file, else its title."""
    if isinstance(results, Path):
        return str(results)
    return str(results.encoding.get("source") or results.attrs.get("title") or "a dataset")
