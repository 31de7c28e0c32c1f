"""Every way of keeping designs agrees with keeping all of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse.sweep import execute
from dse.sweep.reduce.winners import dominated, pareto_front
from tests.unit.sweep import toy
from tests.unit.sweep.toy import MAPPING_AXES, sweep

AXES = MAPPING_AXES + 'memory.bandwidth = ["1 TB/s", "2 TB/s", "3 TB/s"]\nmemory.capacity = ["1 GB", "30 GB", "90 GB"]'
OBJECTIVE = '[objective]\nminimize = ["step_time", "peak_memory"]\n[constraints]\nall = ["step_time < 20"]'


@pytest.fixture(scope="module")
def everything():
    """(dataset, feasible step times, peak memories and indices of all designs)."""
    dataset, summary = execute(sweep(AXES, more=OBJECTIVE), output=False, study=toy.STUDY)
    feasible = dataset.feasible.values.reshape(-1)
    assert 0 < feasible.sum() == summary.n_feasible < feasible.size == summary.n_designs
    index = np.flatnonzero(feasible)
    scores = np.stack([dataset[name].values.reshape(-1)[index] for name in ("step_time", "peak_memory")])
    return dataset, scores, index


def kept(mode, chunk):
    return execute(sweep(AXES, more=OBJECTIVE), output=False, keep=mode, chunk=chunk, study=toy.STUDY)


@pytest.mark.parametrize("chunk", [None, 700])
def test_feasible(everything, chunk):
    _, scores, index = everything
    found, _ = kept("feasible", chunk)
    np.testing.assert_array_equal(found["index"], index)
    np.testing.assert_array_equal(found.step_time, scores[0])


@pytest.mark.parametrize("chunk", [None, 700])
@pytest.mark.parametrize("count", [1, 25])
def test_top(everything, chunk, count):
    _, scores, index = everything
    found, summary = kept(f"top:{count}", chunk)
    np.testing.assert_allclose(found.step_time, np.sort(scores[0])[:count], rtol=1e-6)
    assert found.feasible.all()
    order = np.lexsort((index, scores[0]))[:count]
    assert_same_designs(found, everything, index[order])
    assert summary.best[0].index == found["index"][0]


def assert_same_designs(found, everything, index):
    """The same designs, but for ties that float32 breaks one way here and the other way there."""
    dataset, _, _ = everything
    times = dataset.step_time.values.reshape(-1)
    differ = found["index"].values != index
    np.testing.assert_allclose(times[found["index"].values[differ]], times[index[differ]], rtol=1e-6)


@pytest.mark.parametrize("chunk", [None, 700])
def test_best(everything, chunk):
    dataset, _, _ = everything
    found, _ = kept("best", chunk)
    wanted = dataset.where(dataset.feasible).step_time.min("mapping")
    np.testing.assert_allclose(found.step_time, wanted, rtol=1e-6)
    assert found.step_time.sizes == {"memory_bandwidth": 3, "memory_capacity": 3}
    np.testing.assert_array_equal(found.feasible, wanted.notnull())
    for bandwidth, capacity in itertools.product(found.memory_bandwidth.values, found.memory_capacity.values):
        point = found.sel(memory_bandwidth=bandwidth, memory_capacity=capacity)
        if point.feasible:
            parts = {name: point[name].item() for name in dataset.indexes["mapping"].names}
            same = dataset.sel(memory_bandwidth=bandwidth, memory_capacity=capacity, **parts)
            np.testing.assert_allclose(same.step_time.item(), point.step_time.item(), rtol=1e-6)


def test_best_is_missing_where_nothing_is_feasible():
    axes = 'tp = [1, 2]\nrecompute = ["none", "full"]\nmemory.capacity = ["1 kB", "90 GB"]'
    found, summary = execute(sweep(axes), output=False, keep="best", study=toy.STUDY)
    assert found.feasible.values.tolist() == [False, True]
    assert np.isnan(found.step_time.values).tolist() == [True, False]
    assert found.recompute.values[0] == "" and found.tp.values[0] == 0
    assert summary.n_feasible == 4


@pytest.mark.parametrize("chunk", [None, 700])
def test_pareto(everything, chunk):
    _, scores, index = everything
    found, _ = kept("pareto", chunk)
    expected = pareto_front(scores, index)
    np.testing.assert_allclose(found.step_time, scores[0, expected], rtol=1e-6)
    np.testing.assert_allclose(found.peak_memory, scores[1, expected], rtol=1e-6)


def test_nothing_feasible():
    axes = 'tp = [1, 2]\nmemory.capacity = ["1 kB"]\nrecompute = ["none", "full"]'
    for mode in ("all", "feasible", "best", "top:3", "pareto"):
        found, summary = execute(sweep(axes, more=OBJECTIVE), output=False, keep=mode, study=toy.STUDY)
        assert summary.n_feasible == 0 and summary.best == () and not found.feasible.any()
        assert summary.reasons["memory"] == 4


def test_counts_agree_between_modes():
    summaries = [kept(mode, None)[1] for mode in ("all", "feasible", "best", "top:3", "pareto")]
    assert len({(s.n_designs, s.n_feasible, tuple(s.reasons.items())) for s in summaries}) == 1
    assert {"memory", "constraint"} <= set(summaries[0].reasons)


def test_what_is_maximised_is_made_large():
    spec = sweep(more='[objective]\nmaximize = "tokens_per_second / peak_memory"')
    dataset, summary = execute(spec, output=False, study=toy.STUDY)
    wanted = (dataset.tokens_per_second / dataset.peak_memory).where(dataset.feasible).max()
    best = summary.best[0].metrics
    np.testing.assert_allclose(best["tokens_per_second"] / best["peak_memory"], wanted, rtol=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(0, 4), min_size=3, max_size=3), min_size=1, max_size=40), st.integers(1, 3))
def test_pareto_front_is_what_nothing_dominates(points, objectives):
    scores = np.array(points, np.float32).T[:objectives]
    index = np.arange(scores.shape[1])
    found = sorted(pareto_front(scores, index))

    def beaten(i):
        better = (scores <= scores[:, [i]]).all(axis=0)
        equal = (scores == scores[:, [i]]).all(axis=0)
        return (better & ~equal).any() or (equal & (index < i)).any()

    assert found == [i for i in index if not beaten(i)]
    on_front = (scores[:, :, None] == scores[:, None, found]).all(axis=0).any(axis=1)
    np.testing.assert_array_equal(dominated(scores[:, found], scores), ~on_front)
    assert not dominated(scores[:, found], scores[:, found] - 1).any()
