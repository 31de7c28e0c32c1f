"""Variables that do not depend on an axis are stored without it: in files read by anybody, and by every reader here."""

import re

import netCDF4
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.errors import InputError
from dse.sweep import Shard, execute, from_text, merge, perform_shard

TEXT = """
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "eos"
n_devices = 64
[mapping]
zero_stage = 1
[axes]
"memory.bandwidth" = ["2 TB/s", "3 TB/s", "4 TB/s"]
seq_len = [2048]
tp = [1, 2, 4, 8]
pp = [1, 2]
recompute = ["none", "full"]
[objective]
minimize = ["step_time", "peak_memory"]
"""
KEEPS = ("all", "best", "feasible", "top:9", "pareto")
LABELS = "path"


@pytest.fixture(scope="module", params=KEEPS)
def results(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("constants") / "r.nc"
    return execute(from_text(TEXT), output=path, keep=request.param)[0], path


def constant_dims(values):
    """Dimensions of several positions along which values are the same, by their definition."""
    dims = [dim for dim, size in values.sizes.items() if size > 1]
    return [
        dim
        for dim in dims
        if all(values.variable.isel({dim: i}).equals(values.variable.isel({dim: 0})) for i in range(values.sizes[dim]))
    ]


def test_no_metric_is_repeated_along_an_axis_that_it_does_not_depend_on(results):
    complete, path = results
    along_all = {
        "step_time",
        "peak_memory",
        *(["feasible"] if {"mapping", "memory_bandwidth"} & set(complete.dims) else []),
    }
    with xr.open_dataset(path) as plain:
        metrics = {name: values for name, values in plain.data_vars.items() if LABELS not in values.attrs}
        assert metrics.keys() > along_all
        assert not [name for name, values in metrics.items() if constant_dims(values) and name not in along_all]
        assert plain.parameters.dims == () and plain.parameters == complete.parameters.max()
        assert plain.step_time.dims == complete.step_time.dims


def test_what_is_stored_once_broadcasts_to_what_was_computed(results):
    complete, path = results
    with xr.open_dataset(path) as plain:
        for name, values in plain.data_vars.items():
            if LABELS in values.attrs:  # codes in the file
                continue
            spread = values.broadcast_like(plain.step_time).transpose(*complete[name].dims)
            np.testing.assert_array_equal(spread.values, complete[name].values, err_msg=str(name))
            stated = set(values.attrs.get("constant_along", "").split())
            assert stated == set(complete[name].dims) - set(values.dims), name


def test_our_reader_gives_all_dimensions_back(results):
    complete, path = results
    with dse.open_results(path) as again:
        assert not any("constant_along" in values.attrs for values in again.variables.values())
        xr.testing.assert_identical(again.load(), complete)


def test_what_was_read_can_be_written_again_and_turned_into_a_table(results, tmp_path):
    complete, path = results
    with dse.open_results(path) as again:
        rows = again.to_dataframe()
        assert len(rows) == complete.step_time.size and rows.parameters.nunique() == 1
        again.to_netcdf(tmp_path / "again.nc")
    with dse.open_results(tmp_path / "again.nc") as twice:
        xr.testing.assert_equal(twice.load(), complete)


@pytest.mark.parametrize("words", [["plot", "-o", "{}/figure.png"], ["page", "-o", "{}/page.html"], ["diff"]])
def test_every_command_reads_it(results, words, tmp_path):
    _, path = results
    command, *rest = [word.format(tmp_path) for word in words]
    files = [path, path] if command == "diff" else [path]
    ended = CliRunner().invoke(app, [command, *map(str, files), *rest], prog_name="dse")
    assert ended.exit_code == 0, ended.output


def test_a_file_of_before_reads_the_same_and_differs_in_nothing(results, tmp_path):
    """All variables along all dimensions, as earlier versions wrote them."""
    _, path = results
    with dse.open_results(path) as again:
        again.to_netcdf(tmp_path / "before.nc")
    ended = CliRunner().invoke(app, ["diff", str(path), str(tmp_path / "before.nc")], prog_name="dse")
    assert ended.exit_code == 0 and "nan" not in ended.output


def test_shards_join_to_the_file_of_a_single_run(tmp_path):
    """Each part alone may look constant where the whole is not."""
    single, joined = tmp_path / "single.nc", tmp_path / "joined.nc"
    sweep = tmp_path / "sweep.toml"
    sweep.write_text(TEXT, encoding="utf-8")
    execute(from_text(TEXT, str(sweep)), output=single)
    for number in (1, 2, 3):
        perform_shard(sweep, Shard(number, 3), joined)
    merge(joined)
    with xr.open_dataset(single) as one, xr.open_dataset(joined) as other:
        assert {name: values.dims for name, values in one.items()} == {
            name: values.dims for name, values in other.items()
        }


@pytest.mark.parametrize("dims", ["elsewhere", "mapping mapping_of_another", "memory_bandwidth"])
def test_dimensions_that_no_other_variable_has_are_refused(dims, tmp_path):
    path = tmp_path / "r.nc"
    execute(from_text(TEXT), output=path)
    copy = tmp_path / "copy.nc"
    with netCDF4.Dataset(path) as old, netCDF4.Dataset(copy, "w") as new:  # without our checksum
        for name, size in old.dimensions.items():
            new.createDimension(name, len(size))
        for name, variable in old.variables.items():
            stored = new.createVariable(name, variable.dtype, variable.dimensions)
            stored.setncatts({key: variable.getncattr(key) for key in variable.ncattrs() if key != "_FillValue"})
            if name == "parameters":
                stored.constant_along = dims
            variable.set_auto_maskandscale(False)
            stored.set_auto_maskandscale(False)
            stored[...] = variable[...]
    with pytest.raises(InputError, match=re.escape("parameters")):
        dse.open_results(copy)
