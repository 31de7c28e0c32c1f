"""Histograms of the objectives: exact counts of all feasible designs in bins that a pilot decides."""

import numpy as np
import pytest
import xarray as xr

import dse
from dse.errors import InputError
from dse.sweep import execute, from_text, plan
from dse.sweep.engine.clock import CompileClock
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.reductions import count_below
from dse.sweep.engine.scores import count_below_on_host
from dse.sweep.reduce import overview as overviews
from dse.sweep.reduce.collection import Collection
from dse.sweep.reduce.keep import block_ranges, block_results
from tests.conftest import slow
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep

AXES = MAPPING_AXES + 'memory.bandwidth = ["1 TB/s", "2 TB/s", "3 TB/s"]\nmemory.capacity = ["1 GB", "30 GB", "90 GB"]'
OBJECTIVE = '[objective]\nminimize = ["step_time", "step_time - 10"]\nmaximize = "mfu"\n'
NAMES = ("step_time", "step_time_10", "mfu")
MODES = ["all", "feasible", "best", "top:7", "pareto"]


def spec(bins=12, axes=AXES, **options):
    return sweep(axes, more=f"{OBJECTIVE}[output]\nhistogram = {bins}", **options)


def found_by(mode, chunk=None, output=False, **options):
    return execute(spec(**options), output, keep=mode, chunk=chunk, study=toy.STUDY)


def values_of(dataset):
    """Objectives of the feasible designs, by name."""
    step_time, mfu = (dataset[name].values[dataset.feasible.values] for name in ("step_time", "mfu"))
    return dict(zip(NAMES, (step_time, step_time - np.float32(10.0), mfu), strict=True))


@pytest.mark.parametrize("bins", [4, 12, 256])
def test_counts_are_those_of_all_feasible_designs(bins):
    dataset, summary = found_by("all", bins=bins)
    told = dse.overview(dataset)
    for name, values in values_of(dataset).items():
        counts = told[f"count_by_{name}"]
        first, last = told[f"bin_of_{name}_from"].values, told[f"bin_of_{name}_to"].values
        np.testing.assert_array_equal(first[1:], last[:-1])
        place = np.clip(np.searchsorted(first, values, side="right") - 1, 0, bins - 1)
        np.testing.assert_array_equal(counts, np.bincount(place, minlength=bins))
        assert counts.dims == ("bin",) and counts.sum() == summary.n_feasible > 0
        ratio, difference = last / first, last - first
        assert np.ptp(difference if first[0] <= 0 else ratio) < 1e-3 * (last[-1] - first[0] if first[0] <= 0 else 1)
    assert told.bin_of_step_time_from.units == "s" and told.count_by_step_time.attrs["units"] == "1"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("mode", [mode if mode == "pareto" else slow(mode) for mode in MODES])
def test_modes_and_chunks_count_alike(monkeypatch, mode):
    names = [
        f"{word}{name}{end}"
        for name in NAMES
        for word, end in (("count_by_", ""), ("bin_of_", "_from"), ("bin_of_", "_to"))
    ]
    whole = dse.overview(found_by("all")[0])[names].drop_attrs()
    monkeypatch.setattr("dse.sweep.reduce.keep._CHUNKS_PER_BLOCK", 2)
    for chunk in (None, 700, 5000):
        xr.testing.assert_identical(dse.overview(found_by(mode, chunk)[0])[names].drop_attrs(), whole)


def test_no_histogram_unless_asked_for(tmp_path):
    found, _ = execute(sweep(AXES), output=False, keep="top:3", study=toy.STUDY)
    told = dse.overview(found)
    assert "bin" not in told.sizes and not [name for name in told if str(name).startswith("count_by")]
    assert not found_by("top:3", output=tmp_path / "r.nc")[1].finished
    assert found_by("top:3", output=tmp_path / "r.nc")[1].finished
    assert not found_by("top:3", output=tmp_path / "r.nc", bins=13)[1].finished, "other bins, other results"
    again = dse.overview(tmp_path / "r.nc")
    assert again.sizes["bin"] == 13 and "count_by_mfu" in again


@pytest.mark.parametrize("bins", ["3", "257", "true", "'many'", "-1"])
def test_bad_numbers_of_bins(bins):
    with pytest.raises(InputError, match=r"output\.histogram: .*4 to 256 bins"):
        from_text(f"[output]\nhistogram = {bins}")


def test_nothing_feasible():
    axes = 'tp = [1, 2]\nmemory.capacity = ["1 kB"]\nrecompute = ["none", "full"]'
    for mode in MODES:
        found, _ = found_by(mode, axes=axes)
        told = dse.overview(found)
        assert told.count_by_step_time.sum() == 0 and np.isfinite(told.bin_of_step_time_from).all()


@pytest.mark.usefixtures("compiled")
def test_one_program_counts_for_all_edges():
    found_by("top:3", chunk=700)
    compiled = CompileClock.read()[2]
    found_by("top:3", chunk=700, workload="hidden = 512")
    assert CompileClock.read()[2] == compiled


@pytest.mark.parametrize("n", [1, 4096, 4097, 69_396, 10**9, 10**17])
def test_the_pilot_is_spread_evenly(n):
    index = overviews.pilot(n)
    assert index[0] >= 0 and index[-1] < n and (np.diff(index) > 0).all()
    assert len(index) > 0.85 * min(n, 4096)
    np.testing.assert_array_equal(index, overviews.pilot(n))
    if n > 10**6:
        assert np.diff(index).max() < 3 * n / 4096
        assert len(np.unique(index % 1024)) > 800, "in step with no axis"


@pytest.mark.parametrize("n_thresholds", [1, 3, 31])
def test_the_device_counts_as_the_host_does(n_thresholds):
    random = np.random.default_rng(n_thresholds)
    scores = random.integers(0, 20, (2, 37, 1000)).astype(np.float32)
    scores[random.random(scores.shape) < 0.3] = np.inf
    thresholds = np.sort(random.integers(-2, 25, (2, n_thresholds)), axis=1).astype(np.float32)
    thresholds[:, -1] = np.inf
    expected = count_below_on_host(scores.reshape(2, -1), thresholds)
    one, computed = {"owners": ((0, 0), (0, 1)), "feasible_bit": 2}, scores.reshape(2, 37, 40, 25)
    np.testing.assert_array_equal(count_below((computed,), (computed[0] < np.inf,), thresholds, **one), expected)
    np.testing.assert_array_equal(expected[:, -1], np.isfinite(scores).sum(axis=(1, 2)))


def test_parts_of_different_edges_are_not_added():
    grid, keep = plan(spec(), "top:3", toy.STUDY)
    engine = SweepEngine(grid)
    (part,) = block_results(engine, keep, block_ranges(engine, keep)[:1])
    found = Collection(grid, keep)
    found.add(part)
    found.add(part._replace(edges=part.edges * np.float32(1.01)))
    with pytest.raises(InputError, match="different edges"):
        found.result()


@pytest.mark.parametrize("value", [1.0, 123456.0, 0.00123456, 7e-9, 9.999e20])
def test_edges_are_rounded_outwards(value):
    low, high = (overviews.rounded_edge(value, how) for how in (np.floor, np.ceil))
    assert low <= value * (1 + 1e-12) and value <= high * (1 + 1e-12) and high - low <= 0.011 * value
