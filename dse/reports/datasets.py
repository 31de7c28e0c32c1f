"""Labelled results that functions of Python return in place of the report that they are of."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from dse.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

    from dse.reports.report import Report

#: Identity of a dataset → its report, as long as the dataset lives; datasets have no hash.
_REPORTS: dict[int, Report] = {}


def dataset_of(report: Report) -> xr.Dataset:
    """Return the labelled results of a report, from which :func:`report_of` returns the report.

    Args:
        report: with labelled results.
    """
    dataset = report.dataset
    _REPORTS[id(dataset)] = report
    weakref.finalize(dataset, _REPORTS.pop, id(dataset), None)
    return dataset


def report_of(dataset: xr.Dataset) -> Report:
    """Return the report of labelled results: what ``dse run`` prints of them.

    Args:
        dataset: as :func:`dse.run` or :func:`dse.merge` returned it.

    Raises:
        InputError: for other datasets, selections of these included.

    >>> import dse
    >>> report_of(dse.run("sweeps/megatron_1t_4096_a100.toml", output=False))["n_designs"]
    34716
    """
    if id(dataset) not in _REPORTS:
        allowed = "what dse.run or dse.merge returned, not a selection of it"
        raise InputError("report", "a dataset without one", allowed, "ask for it before selecting designs")
    return _REPORTS[id(dataset)]
