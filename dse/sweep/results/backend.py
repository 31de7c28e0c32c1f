"""Results files for xarray alone: ``xr.open_dataset("results.nc", engine="dse")``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import xarray as xr
from xarray.backends import BackendEntrypoint

from dse.sweep.results.files import open_results


class ResultsBackend(BackendEntrypoint):
    """Engine of xarray that opens results files as :func:`dse.open_results` does."""

    description = "Results of dse run and dse search, with names of choices and an index of their designs"
    open_dataset_parameters = ("filename_or_obj", "drop_variables")

    def open_dataset(self, filename_or_obj: Any, *, drop_variables: str | Iterable[str] | None = None) -> xr.Dataset:
        """Return the dataset of a results file, see :func:`dse.open_results`.

        Args:
            filename_or_obj: path of the file.
            drop_variables: names of variables that are left out.
        """
        names = [drop_variables] if isinstance(drop_variables, str) else [*(drop_variables or ())]
        results = open_results(filename_or_obj)
        opened = results.drop_vars(names, errors="ignore")
        opened.set_close(results._close)
        return opened

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return False: files open with this engine where it is named."""
        return False
