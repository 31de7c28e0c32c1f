"""The version of the layout of results files."""

import pytest
import xarray as xr

import dse
from dse.errors import InputError
from dse.sweep.results import schema


def test_results_state_their_version(small_results):
    with dse.open_results(small_results[1]) as results:
        assert schema.version(results.attrs) == schema.VERSION
    assert schema.version(small_results[0].attrs) == schema.VERSION


def test_a_file_of_the_future_is_refused(tmp_path, small_results):
    with xr.open_dataset(small_results[1]) as results:
        results.load().assign_attrs(dse_schema=99, source="dse 9.9").to_netcdf(tmp_path / "later.nc")
    with pytest.raises(InputError, match=r"version 99, written by dse 9\.9"):
        dse.open_results(tmp_path / "later.nc")
