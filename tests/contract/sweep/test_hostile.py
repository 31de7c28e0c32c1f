"""Results files that declare more than they hold, or other things than results: refused in little memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

import dse
from dse.errors import InputError
from dse.io.files import seal
from dse.sweep import open_results, perform
from dse.sweep.results import declared, writing
from dse.sweep.results.labelled import Labelled, Variable
from tests.conftest import slow
from tests.contract.cli.test_cli import assert_four_parts, command  # noqa: F401 - a fixture

ROOT = Path(__file__).parents[3]
DESIGNS = 600_000_000


def unwritten(file):
    """Chunks that nobody has written: what is read of them is made up."""
    file.createDimension("design", DESIGNS)
    for name in ("step_time", "peak_memory", "mfu"):
        file.createVariable(name, "f4", ("design",), zlib=True, chunksizes=(1 << 20,))


def one_number(file):
    """One number over and over, packed more than any of our chunks could be."""
    file.createDimension("design", 30_000_000)
    made = file.createVariable("step_time", "f4", ("design",), zlib=True, complevel=9, chunksizes=(30_000_000,))
    made[:] = 0.0
    for name in ("peak_memory", "mfu", "hfu"):
        file.createVariable(name, "f4", ("design",), zlib=True, chunksizes=(10_000_000,))


def one_chunk(file):
    """A chunk is unpacked as a whole however little of it is asked for."""
    file.createDimension("design", None)
    file.createVariable("step_time", "f4", ("design",), zlib=True, chunksizes=(900_000_000,))
    file.createDimension("other", 4)


def many_dimensions(file):
    for i in range(8):
        file.createDimension(f"d{i}", 1000)
    file.createVariable("step_time", "f4", tuple(f"d{i}" for i in range(8)), zlib=True, chunksizes=(10,) * 8)


def texts(file):
    """A text in the place of those that are not written, as many as are asked for."""
    file.createDimension("design", 1_000_000)
    file.createVariable("workload", str, ("design",), fill_value="x" * 60_000)


def long_label(file):
    file.createDimension("design", 1)
    file.createVariable("workload", str, ("design",))[:] = np.array(["x" * 60_000], object)


def in_the_overview(file):
    group = file.createGroup("overview")
    group.createDimension("by_tp", DESIGNS)
    group.createVariable("best_step_time_by_tp", "f8", ("by_tp",), zlib=True, chunksizes=(1 << 20,))


def long_words(file):
    """Codes of a byte that stand for texts of many."""
    file.createDimension("design", 3_000_000)
    made = file.createVariable("recompute", "i1", ("design",), zlib=True, chunksizes=(1 << 20,))
    made[:] = 0
    made.setncatts({"flag_values": np.array([0], "i1"), "flag_meanings": "w" * 499})


def many_groups(file):
    group = file
    for _ in range(1500):
        group = group.createGroup("g")


BOMBS = (unwritten, one_number, one_chunk, many_dimensions, texts, long_label, in_the_overview, long_words, many_groups)

#: Opens each of some files within so many MiB beyond what the process has; prints what was told of each.
_OPEN = """
import json, resource, sys
import dse
dse.open_results(sys.argv[1]).load().close()
def size():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
resource.setrlimit(resource.RLIMIT_AS, (size() + (600 << 20), resource.RLIM_INFINITY))
told, before = [], peak()
for path in sys.argv[2:]:
    try:
        dse.open_results(path).close()
        told.append("opened")
    except dse.errors.InputError as error:
        told.append([error.where, error.got, error.allowed, error.fix])
    except BaseException as error:
        told.append(repr(error)[:300])
print(json.dumps({"told": told, "kib": peak() - before}))
"""


def made(make, folder):
    path = folder / f"{make.__name__}.nc"
    with netCDF4.Dataset(path, "w") as file:
        make(file)
    return path


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is limited as Linux does it")
@pytest.mark.parametrize("sealed", [slow(False), True])
def test_what_declares_more_than_it_holds_is_refused_in_little_memory(tmp_path, small_results, sealed):
    paths = [made(make, tmp_path) for make in BOMBS]
    for path in paths:
        assert path.stat().st_size < 1_000_000
        if sealed:
            seal(path)
    asked = [sys.executable, "-c", _OPEN, small_results[1], *paths]
    done = subprocess.run(list(map(str, asked)), capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    for make, told in zip(BOMBS, found["told"], strict=True):
        assert isinstance(told, list) and all(told) and make.__name__ in told[0], (make.__name__, told)
    assert found["kib"] < 400 << 10, f"{found['kib'] / 1024:.0f} MiB"


def test_every_command_refuses_it_in_four_parts(command, small_results, tmp_path):  # noqa: F811
    path = made(unwritten, tmp_path)
    kept = shutil.copy(small_results[1], tmp_path / "whole.nc")
    for arguments in (["plot", path], ["report", path], ["diff", path, kept], ["diff", kept, path]):
        assert_four_parts(command(*arguments), "unwritten.nc", "600,000,000 values or more", "in a file of that size")
    with pytest.raises(InputError, match="in a file of that size"):
        dse.overview(path)


@pytest.mark.parametrize("compression", ["auto", "zlib", "none"])
def test_what_dse_writes_is_read_however_well_it_packs(tmp_path, compression):
    """One number for all designs packs as nothing else does."""
    about, path = {"units": "s", "long_name": "time"}, tmp_path / "r.nc"
    for kind in (np.float32, np.int8):
        same = np.zeros(40_000_000, kind)
        writing.write(Labelled({"other": Variable(("design",), same, about)}, {}), path, compression)
        with netCDF4.Dataset(path) as file:
            assert declared.FEW_VALUES < declared.check(file, path) < declared.most_values(path)


# --- other things than results ----------------------------------------------------------------------------


def edited(change):
    """What is changed in a file, as netCDF edits it."""

    def edit(path):
        with netCDF4.Dataset(path, "a") as file:
            change(file)

    return edit


def rewritten(change):
    """What xarray writes of a changed dataset."""

    def rewrite(path):
        with xr.open_dataset(path) as found:
            dataset = change(found.load())
        path.unlink()
        dataset.to_netcdf(path)

    return rewrite


#: What is done to a file, what is told of it.
WRONG = {
    "a metric of whole numbers": (rewritten(lambda d: d.assign(step_time=d.step_time.astype(int))), "step_time.*int64"),
    "a metric of texts": (rewritten(lambda d: d.assign(mfu=d.mfu.astype(str))), "mfu.*floating-point"),
    "truth of numbers": (rewritten(lambda d: d.assign(feasible=d.feasible * 1.5)), "feasible.*truth values"),
    "reasons of numbers": (
        rewritten(lambda d: d.assign(infeasible_reason=d.infeasible_reason + 0.5)),
        "infeasible_reason.*whole",
    ),
    "a metric along less": (rewritten(lambda d: d.assign(mfu=d.mfu[0].drop_vars(d.mfu.coords))), "mfu.*no dimension"),
    "a metric along another": (
        rewritten(lambda d: d.assign(mfu=d.mfu.variable.expand_dims("other"))),
        "mfu.*other, mapping.*step_time",
    ),
    "a metric that is a label": (rewritten(lambda d: d.set_coords("step_time")), "step_time.*a label"),
    "a label that is no number": (
        rewritten(lambda d: d.assign_coords(tp=("mapping", np.full(44, np.nan), d.tp.attrs))),
        "tp.*no finite number",
    ),
    "a number that is a text": (
        rewritten(lambda d: d.assign_coords(tp=d.tp.astype(str).assign_attrs(d.tp.attrs))),
        "tp.*numbers or truth",
    ),
    "a code without a meaning": (
        edited(lambda f: f["recompute"].__setitem__(slice(0, 1), 99)),
        "recompute.*code 99 that has no meaning",
    ),
    "codes of fractions": (
        edited(lambda f: f["recompute"].setncattr("flag_values", np.arange(7.0))),
        "flag_values.*whole numbers",
    ),
    "fewer meanings": (edited(lambda f: f["recompute"].setncattr("flag_meanings", "none full")), "7 flag_values and 2"),
    "meanings of numbers": (edited(lambda f: f["recompute"].setncattr("flag_meanings", 3)), "flag_meanings.*a text"),
    "units of numbers": (edited(lambda f: f["step_time"].setncattr("units", [1.0, 2.0])), "attribute units.*a text"),
    "a scale that is a text": (edited(lambda f: f["mfu"].setncattr("scale_factor", "two")), "scale_factor.*a number"),
    "coordinates of numbers": (edited(lambda f: f["mfu"].setncattr("coordinates", 1)), "coordinates.*a text"),
    "a path that is a list": (edited(lambda f: f["tp"].setncattr("path", ["a", "b"])), "attribute path.*a text"),
    "damaged JSON": (edited(lambda f: f.setncattr("base_design", '{"a": 1')), "base_design.*a JSON object"),
    "JSON of something else": (edited(lambda f: f.setncattr("base_design", "[1]")), "base_design.*a JSON object"),
    "a count that is a text": (edited(lambda f: f.setncattr("designs", "many")), "designs.*a whole number"),
    "a version that is infinite": (edited(lambda f: f.setncattr("dse_schema", np.inf)), "dse_schema.*a whole number"),
    "a specification of numbers": (edited(lambda f: f.setncattr("specification", 3)), "specification.*a text"),
    "designs without values": (edited(lambda f: f.setncattr("best_values", "1.0")), "10 best_designs and 1 best_val"),
    "a title without end": (edited(lambda f: f.setncattr("title", "t" * 50_000)), "title.*2,000 letters"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_run_has_written_is_refused_when_it_is_opened(tmp_path, small_results, name):
    change, told = WRONG[name]
    path = tmp_path / "r.nc"
    path.write_bytes(small_results[1].read_bytes())
    change(path)
    for sealed in (False, True):
        if sealed:
            seal(path)
        with pytest.raises(InputError, match=told) as raised:
            open_results(path)
        assert str(path) in raised.value.where and raised.value.fix


#: What is done to a file that can be read all the same.
HARMLESS = {
    "no attributes of the file": rewritten(lambda d: d.drop_attrs(deep=False)),
    "metrics that are not there": rewritten(lambda d: d.drop_vars(["hfu", "run_time"])),
    "labels that are not there": rewritten(lambda d: d.drop_vars(["workload", "system"])),
    "the designs in another order": rewritten(lambda d: d.isel(mapping=slice(None, None, -1))),
    "more attributes": edited(lambda f: f.setncattr("note", [1, 2, 3])),
    "truth as codes": edited(lambda f: f["feasible"].delncattr("dtype")),
    "a variable of one's own": rewritten(lambda d: d.assign(mine=("other", [1, 2, 3]))),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_was_left_out_or_added_is_read(tmp_path, small_results, name):
    path = tmp_path / "r.nc"
    path.write_bytes(small_results[1].read_bytes())
    HARMLESS[name](path)
    with open_results(path) as found:
        assert found.feasible.dtype == bool and int(found.feasible.sum()) == 16 and found.step_time.dtype == np.float32
    assert dse.diff(path, path)["same"]


def test_a_file_under_a_seal_that_lacks_what_a_run_writes_is_made_again(tmp_path, small_sweep, small_results):
    output = tmp_path / "r.nc"
    for change in (
        edited(lambda file: file.delncattr("best_designs")),
        edited(lambda file: file.setncattr("best_designs", "1 2")),
        edited(lambda file: file.setncattr("infeasible_by_reason", "[")),
        edited(lambda file: file.setncatts({"best_designs": "99999 7", "best_values": "1.0 2.0"})),
        rewritten(lambda d: d.assign(step_time=d.step_time.astype(str))),
        rewritten(lambda d: d.assign(index=("mapping", np.full(44, np.nan)))),
        rewritten(lambda d: d.assign(index=((), 7))),
    ):
        output.write_bytes(small_results[1].read_bytes())
        change(output)
        seal(output)
        assert not perform(small_sweep, output)[1].finished
        assert output.read_bytes() == small_results[1].read_bytes()


def test_the_same_file_may_be_open_several_times(small_results):
    """netCDF crashes where one file is opened with and without reading its texts while it is open already."""
    code = """
import sys, dse
first = dse.open_results(sys.argv[1])
for _ in range(4):
    with dse.open_results(sys.argv[1]) as again:
        again.load()
    dse.overview(first)
    dse.open_results(sys.argv[1]).close()
assert first.load().equals(again)
"""
    asked = [sys.executable, "-c", code, str(small_results[1])]
    assert subprocess.run(asked, cwd=ROOT, check=False).returncode == 0
