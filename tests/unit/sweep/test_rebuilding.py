"""Designs built again from the rows of results."""

import jax
import numpy as np
import pytest

import dse
from dse.sweep import execute, open_results
from dse.sweep.results.rebuilding import grid_of, singles_at
from tests.conftest import slow
from tests.programs import metrics_of_many
from tests.unit.sweep import toy
from tests.unit.sweep.test_dataset import ALL_MODES, AXES
from tests.unit.sweep.toy import sweep

ZIPPED = """
workload = ["gpt-3-125m", "gpt-3-350m", "gpt-3-350m"]
memory.bandwidth = ["1 TB/s", "1 TB/s", "2 TB/s"]
n_devices = [4, 8]
tp = "divisors"
pp = "divisors"
recompute = ["none", "full"]
overlap_dp = [true, false]

[zip]
groups = [["workload", "memory.bandwidth"]]
"""


def stacked(*of):
    """Designs as one, whose leaves are arrays."""
    return jax.tree.map(lambda *leaves: np.stack(leaves), *singles_at(*of))


@pytest.mark.parametrize(
    ("axes", "keep"),
    [
        *((AXES, keep) for keep in ALL_MODES),
        (ZIPPED, ALL_MODES[0]),
        *(slow(ZIPPED, keep) for keep in ALL_MODES[1:]),
    ],
)
def test_rebuilt_designs_take_the_time_of_their_rows(axes, keep, tmp_path):
    more = '[objective]\nminimize = ["step_time", "peak_memory"]'
    path = tmp_path / "r.nc"
    execute(sweep(axes, more=more), output=path, keep=keep, study=toy.STUDY)
    with open_results(path) as results:
        grid = grid_of(results, toy.STUDY)
        rows = np.flatnonzero(results.feasible.values)
        rows = rows[:: 1 + len(rows) // 400]
        rebuilt = stacked(results, rows, grid)
        found = jax.vmap(toy.evaluate)(rebuilt)
        for metric in ("step_time", "peak_memory"):
            np.testing.assert_allclose(getattr(found, metric), results[metric].values.ravel()[rows], rtol=1e-5)


@pytest.mark.slow
def test_of_the_real_model_too(small_results):
    results = small_results[0]
    rows = np.arange(results.sizes["mapping"])
    found = metrics_of_many(stacked(results, rows, grid_of(results)))
    for metric in ("step_time", "peak_memory", "mfu"):
        np.testing.assert_allclose(getattr(found, metric), results[metric], rtol=1e-5)


def test_a_selection_is_rebuilt_by_its_labels():
    results, _ = execute(sweep(AXES), output=False, keep="best", study=toy.STUDY)
    chosen = results.isel(memory_bandwidth=1, collective=[0])
    rows = np.flatnonzero(chosen.feasible.values)
    found = jax.vmap(toy.evaluate)(stacked(chosen, rows, grid_of(results, toy.STUDY)))
    np.testing.assert_allclose(found.step_time, chosen.step_time.values.ravel()[rows], rtol=1e-5)


def test_what_cannot_be_rebuilt_is_told():
    results, _ = execute(sweep(AXES), output=False, keep="best", study=toy.STUDY)
    grid = grid_of(results, toy.STUDY)
    without = results.copy()
    del without.attrs["specification"]
    with pytest.raises(dse.InputError, match="specification"):
        grid_of(without)
    with pytest.raises(dse.InputError, match="does not have"):
        singles_at(results.assign(tp=0 * results.tp), np.array([0]), grid)
    with pytest.raises(dse.InputError, match="memory_bandwidth"):
        singles_at(results.drop_vars("memory_bandwidth"), np.array([0]), grid)
