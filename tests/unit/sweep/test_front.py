"""The exact front of two to four objectives, found chunk by chunk with pivots on the device, and its ties."""

import jax.numpy as jnp
import numpy as np
import pytest

from dse.sweep import plan
from dse.sweep.engine.engine import CHUNK_SCORES, SweepEngine
from dse.sweep.engine.reductions import gathered, padded_rows
from dse.sweep.reduce.collection import Collection
from dse.sweep.reduce.keep import block_ranges, block_results
from tests.conftest import slow
from tests.unit.sweep import toy
from tests.unit.sweep.toy import sweep

AXES = """
tp = "divisors"
pp = "divisors"
micro_batch = "divisors"
recompute = ["none", "full"]
zero_stage = [0, 1, 3]
overlap_dp = [false, true]
memory.bandwidth = ["1 TB/s", "2 TB/s", "3 TB/s"]
memory.capacity = ["30 GB", "90 GB"]
"""
#: The later ones are small whole numbers: many designs have the same.
OBJECTIVES = ["step_time", "peak_memory", "tp * pp + 0 * step_time", "zero_stage - micro_batch + 0 * step_time"]


def engine_of(n_objectives, chunk=300):
    wanted = ", ".join(f'"{text}"' for text in OBJECTIVES[:n_objectives])
    grid, keep = plan(sweep(AXES, more=f"[objective]\nminimize = [{wanted}]"), "pareto", toy.STUDY)
    return SweepEngine(grid, chunk, by_numpy=False), keep


def all_scores(engine):
    """(index, scores) of every feasible design, as the device gives them."""
    nest, n = engine.score_nest(by_point=False), len(engine.program.objectives)
    length = engine.length(nest, CHUNK_SCORES)
    index, scores = [], []
    for first in range(0, nest.n_outer, length):
        scored = engine.scores(nest, first, length, np.full((1, n), np.inf, np.float32))
        found = engine.inner_scores(nest, scored, np.arange(min(length, nest.n_outer - first)))
        outer, inner = np.nonzero(np.isfinite(found[0]))
        index.append(nest.design_index(first + outer, inner))
        scores.append(found[:, outer, inner])
    return np.concatenate(index), np.concatenate(scores, axis=1)


def brute_front(index, scores):
    """Indices of what nothing dominates, of equals the lowest: every design against every other."""
    found = []
    for number, point in zip(index, scores.T, strict=True):
        no_worse = (scores <= point[:, None]).all(axis=0)
        equal = (scores == point[:, None]).all(axis=0)
        if not (no_worse & (~equal | (index < number))).any():
            found.append(number)
    return np.sort(found)


@pytest.mark.parametrize("n_objectives", [2, slow(3), 4])
@pytest.mark.parametrize("chunks_a_block", [1, 4, slow(16)])
def test_the_front_is_exact(monkeypatch, n_objectives, chunks_a_block):
    engine, keep = engine_of(n_objectives)
    expected = brute_front(*all_scores(engine))
    asked = []
    scores = SweepEngine.scores

    def noting(self, nest, line, count, pivots, *others):
        found = scores(self, nest, line, count, pivots, *others)
        asked.append((np.isfinite(pivots[:, 0]).sum(), np.asarray(found.candidates).sum()))
        return found

    monkeypatch.setattr(SweepEngine, "scores", noting)
    monkeypatch.setattr("dse.sweep.reduce.keep._CHUNKS_PER_BLOCK", chunks_a_block)
    found = Collection(engine.grid, keep)
    for part in block_results(engine, keep, block_ranges(engine, keep)):
        found.add(part)
    front = found.result()
    np.testing.assert_array_equal(np.sort(front.index), expected)
    assert len(asked) > 8 and len(expected) > 5
    active = [candidates for pivots, candidates in asked if pivots]
    if chunks_a_block > 1:
        assert len(active) >= 4, "pivots that earlier chunks have found"
    again, objectives = engine.designs(front.index)
    assert again.feasible.all()
    np.testing.assert_allclose(np.stack(objectives), front.scores, rtol=1e-6)


def test_of_equal_designs_the_lowest_index_is_on_the_front():
    engine, keep = engine_of(4)
    index, scores = all_scores(engine)
    _, code, counts = np.unique(scores, axis=1, return_inverse=True, return_counts=True)
    assert (counts > 1).any(), "there are ties"
    (part,) = [found for block in [range(engine.grid.n_outer)] for found in block_results(engine, keep, [block])]
    for number in part.index:
        equals = index[code.reshape(-1) == code.reshape(-1)[index == number]]
        assert number == equals.min()


@pytest.mark.parametrize("mode", ["top:40", "best"])
def test_ties_go_to_the_lowest_index(mode):
    wanted = OBJECTIVES[2]
    for chunk in (300, 5000):
        grid, keep = plan(sweep(AXES, more=f'[objective]\nminimize = "{wanted}"'), mode, toy.STUDY)
        engine = SweepEngine(grid, chunk, by_numpy=False)
        found = Collection(grid, keep)
        for part in block_results(engine, keep, block_ranges(engine, keep)):
            found.add(part)
        index, scores = all_scores(engine)
        order = np.lexsort((index, scores[0]))
        if mode == "best":
            order = order[np.unique(index[order] // grid.table.n_mappings, return_index=True)[1]]
        np.testing.assert_array_equal(found.result().index, index[order][: keep.count or None])


def test_of_other_devices_only_the_rows_asked_for_are_copied():
    values = np.arange(2 * 3 * 40, dtype=np.float32).reshape(2, 3, 40)
    for rows in (np.array([7]), np.array([0, 39, 12]), np.arange(40)):
        found = np.asarray(gathered(jnp.asarray(values), padded_rows(rows)))
        np.testing.assert_array_equal(found[..., : len(rows)], values[..., rows])
        assert found.shape[2] in (1, 4, 64)
