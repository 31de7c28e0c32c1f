"""Best values along every axis: exact in every mode, whatever the chunks and nests, and found by name."""

import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings, strategies as st

import dse
from dse.sweep import execute, open_results, plan
from dse.sweep.engine.engine import SweepEngine
from dse.sweep.engine.nesting import Inner, Nest
from dse.sweep.reduce.overview import lower_minima
from tests.conftest import slow
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep

AXES = MAPPING_AXES + 'memory.bandwidth = ["1 TB/s", "2 TB/s", "3 TB/s"]\nmemory.capacity = ["1 kB", "30 GB", "90 GB"]'
OBJECTIVE = '[objective]\nminimize = ["step_time", "peak_memory"]\nmaximize = "mfu"\n'
MODES = ["all", "feasible", "best", "top:7", "pareto"]


def found_by(mode, chunk=None, axes=AXES, more=OBJECTIVE, **options):
    return execute(sweep(axes, more=more), keep=mode, chunk=chunk, study=toy.STUDY, **({"output": False} | options))


@pytest.fixture(scope="module")
def everything():
    return found_by("all")[0]


def brute(dataset, axis, values, how):
    """Label → the best of a metric among the feasible designs there, design by design."""
    values = values.where(dataset.feasible)
    along = dataset[axis].broadcast_like(values).values
    chosen = {label: values.values[along == label] for label in np.unique(dataset[axis])}
    return {label: how(some) if np.isfinite(some).any() else np.nan for label, some in chosen.items()}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunk", [None, slow(700)])
def test_every_objective_by_every_axis(everything, mode, chunk):
    found = dse.overview(found_by(mode, chunk)[0])
    axes = [*everything.indexes["mapping"].names, "memory_bandwidth", "memory_capacity"]
    assert len(axes) == 12
    for axis in axes:
        for name, how in (("step_time", np.nanmin), ("peak_memory", np.nanmin), ("mfu", np.nanmax)):
            best = found[f"best_{name}_by_{axis}"]
            expected = brute(everything, axis, everything[name], how)
            labels = found[f"by_{axis}"].values
            wanted = [expected[label] for label in labels]
            assert best.dims == (f"by_{axis}",) and set(labels) == set(expected)
            np.testing.assert_allclose(best, wanted, rtol=1e-6, err_msg=best.name)
    assert np.isnan(found.best_step_time_by_memory_capacity.sel(by_memory_capacity=1e3))
    assert found.best_mfu_by_tp.long_name.startswith("largest mfu")
    assert found.best_step_time_by_tp.long_name.startswith("least step_time")
    assert found.best_step_time_by_tp.units == "s"


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    "mode", ["top:7", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("best", "pareto"))]
)
def test_chunks_and_nests_change_no_bit(monkeypatch, mode):
    whole = dse.overview(found_by(mode)[0])
    for chunk in (123, 5000):
        xr.testing.assert_identical(dse.overview(found_by(mode, chunk)[0]), whole)
    monkeypatch.setattr("dse.sweep.reduce.keep._CHUNKS_PER_BLOCK", 1)
    xr.testing.assert_identical(dse.overview(found_by(mode, 700)[0]), whole)
    grid, _ = plan(sweep(AXES, more=OBJECTIVE))
    for inner in [Inner(), Inner((2, 4)) if mode == "best" else Inner((1, 2), (4,)), Inner((2, 3, 4), (5, 6))]:
        nest = Nest(grid, inner)
        for name in ("full_nest", "_joint_nest"):
            monkeypatch.setattr(SweepEngine, name, nest)
        xr.testing.assert_allclose(dse.overview(found_by(mode, 700)[0]), whole, rtol=1e-6)


@pytest.mark.parametrize("mode", [mode if mode in ("all", "best") else slow(mode) for mode in MODES])
def test_found_by_name_after_reopening(tmp_path, mode):
    found = dse.overview(found_by(mode, output=tmp_path / "r.nc")[0])
    with xr.open_dataset(tmp_path / "r.nc", group="overview") as plain, open_results(tmp_path / "r.nc") as ours:
        for again in (dse.overview(ours), dse.overview(tmp_path / "r.nc"), plain):
            assert again.best_step_time_by_tp.sel(by_tp=2) == found.best_step_time_by_tp.sel(by_tp=2)
            assert again.best_mfu_by_recompute.sel(by_recompute="full") > 0
            assert again.best_mfu_by_overlap_dp.sel(by_overlap_dp=True) > 0
            assert again.best_step_time_by_memory_bandwidth.sel(by_memory_bandwidth=2e12) > 0
            assert set(again.variables) == set(found.variables)
        assert not set(ours.variables) & set(found.variables)


def test_zipped_axes_and_expressions():
    axes = 'workload = ["gpt-3-125m", "gpt-3-350m"]\nn_devices = [8, 16]\ntp = [1, 2]\noverlap_dp = [false, true]\n'
    axes += "overlap_tp = [false, true]"
    more = '[objective]\nmaximize = ["mfu / step_time", "mfu/step_time"]\n[zip]\n'
    more += 'groups = [["workload", "n_devices"], ["overlap_dp", "overlap_tp"]]'
    found = dse.overview(found_by("top:3", axes=axes, more=more)[0])
    assert found.best_mfu_step_time_by_workload.sel(by_workload="gpt-3-125m") > 0
    assert found.best_mfu_step_time_by_workload.attrs["units"] == "s-1"
    np.testing.assert_array_equal(found.best_mfu_step_time_by_tp, found.best_mfu_step_time_2_by_tp)
    np.testing.assert_array_equal(found.best_mfu_step_time_by_overlap_dp, found.best_mfu_step_time_by_overlap_tp)


def test_an_objective_that_is_no_number_cannot_be_best():
    for mode in ("feasible", "top:3"):
        found, summary = found_by(mode, more='[objective]\nminimize = "step_time * (tp - 2) / (tp - 2)"')
        assert summary.n_feasible > 0
        best = dse.overview(found).best_step_time_tp_2_tp_2_by_tp
        assert np.isnan(best.sel(by_tp=2)) and best.sel(by_tp=1) > 0 and best.sel(by_tp=4) > 0


@settings(max_examples=100, deadline=None)
@given(radices=st.lists(st.integers(1, 20), min_size=1, max_size=4), seed=st.integers(0, 999), data=st.data())
def test_a_run_of_a_mixed_radix_number(radices, seed, data):
    total = math.prod(radices)
    first = data.draw(st.integers(0, total - 1))
    last = data.draw(st.integers(first + 1, total))
    extra = data.draw(st.integers(0, 30))
    values = np.random.default_rng(seed).random((2, last - first)).astype(np.float32)
    found = [np.full((2, radix), np.inf, np.float32) for radix in radices]
    expected = [least.copy() for least in found]
    digits = np.unravel_index(np.arange(first, last), radices)
    for least, digit in zip(expected, digits, strict=True):
        np.minimum.at(least.T, digit, values.T)
    padded = np.pad(values, [(0, 0), (0, extra)], constant_values=np.inf)
    lower_minima(found, [int(digit[0]) for digit in digits], padded)
    for least, wanted in zip(found, expected, strict=True):
        np.testing.assert_array_equal(least, wanted)
