"""Searches over axes that mix structures: every position is a design of the sweep, evaluated by its own program."""

import itertools

import jax
import numpy as np
import pytest

import dse
from dse.errors import InputError
from dse.optimizers import outcome, perform, plan, problem, space as spaces
from dse.optimizers.codesign import problem as descents
from dse.optimizers.evaluation import Evaluator, padded_values
from dse.optimizers.functions import Penalty
from dse.optimizers.run import SearchOptions
from dse.spec import search as spec
from dse.sweep.engine.engine import SweepEngine
from tests.conftest import slow
from tests.unit.optimizers.small import DENSE

TEXT = """
title = "dense and mixture"
[workload]
global_batch = 64
seq_len = 2048
[system]
name = "eos"
n_devices = 16
[axes]
workload = ["llama-3-8b", "deepseek-v2-lite", "mixtral-8x7b"]
tp = [1, 2, 8]
pp = [1, 2]
ep = [1, 2, 8]
imbalance = {imbalance}
recompute = ["none", "full"]
overlap_dp = [false, true]
[constraints]
all = ["ep * tp <= 16", "step_time * ep <= 1000"]
[objective]
minimize = ["step_time", "peak_memory"]
[search]
method = {methods}
evaluations = {evaluations}
seeds = 2
"""
LISTED = "[1.0, 1.5]"
#: A leaf of pods, which one of these networks has.
PODS = (
    LISTED
    + """
scale_out = ["ethernet-400-roce", "slingshot-11-frontier"]
"pods.oversubscription" = { from = 1.0, to = 4.0, continuous = true }
"""
)


def text(imbalance=LISTED, methods='["random"]', evaluations=300):
    return TEXT.format(imbalance=imbalance, methods=methods, evaluations=evaluations)


def task(imbalance=LISTED):
    return problem.build(spec.from_text(text(imbalance)))


@pytest.fixture(scope="module")
def listed():
    return task()


def points_of(task, index):
    digits, column = task.grid.locate(index)
    options = np.unravel_index(column, task.space.sizes[task.space.row_digit + 1 :])
    return spaces.Point(np.stack([*digits, *options], axis=1).astype(np.int32), np.zeros((len(index), 0), np.float32))


def test_the_space_is_the_sweep(listed):
    index = listed.grid.indices(np.arange(listed.grid.n_designs))
    every = np.array(list(itertools.product(*map(range, listed.space.radices))), np.int32)
    found = jax.jit(spaces.from_coordinates)(listed.space, every, np.zeros((len(every), 0), np.float32))
    wanted = set(map(tuple, points_of(listed, index).digits.tolist()))
    assert set(map(tuple, np.asarray(found.digits).tolist())) == wanted
    assert listed.space.size == listed.grid.n_designs == len(wanted)


def test_unlike_work_is_remarked(listed):
    assert "unlike work along workload" in listed.remark and "tokens per second" in listed.remark
    assert not problem.build(spec.from_text(f'title = "dense"\n{DENSE}')).remark


def test_evaluation_is_that_of_the_sweep(listed):
    index = listed.grid.indices(np.arange(listed.grid.n_designs))
    points = points_of(listed, index)
    metrics, objectives = SweepEngine(listed.grid).designs(index)
    plain, same = listed.evaluate_by_numpy(points)
    np.testing.assert_array_equal(plain.step_time, metrics.step_time)
    np.testing.assert_array_equal(np.stack(same), np.stack(objectives))
    found = listed.evaluate(points)
    np.testing.assert_allclose(found.objectives, np.stack(objectives, axis=1), rtol=1e-5)
    np.testing.assert_array_equal(found.reason, metrics.infeasible_reason)


def test_slopes_are_those_of_each_structure_alone(listed):
    points = jax.device_get(spaces.sample(listed.space, jax.random.key(3), (60,)))
    size = listed.evaluator.size
    values = padded_values(listed.space, points, size)
    penalty = Penalty(np.tile(np.float32([1.0, 0.0]), (size, 1)), np.zeros(size, np.float32), np.ones(size, np.float32))
    found, slopes = listed.evaluator(values, 60, penalty)
    structure = np.asarray(values[spaces.STRUCTURE])[:60]
    assert set(structure) == {0.0, 1.0, 2.0} and not slopes[spaces.STRUCTURE].any()
    assert not slopes["mapping.experts.ep"][:60][structure == 0.0].any()
    assert slopes["mapping.experts.ep"][:60][structure > 0.0].any()
    grid = listed.grid.structure_grids[0]
    paths = {path for path in values if path in listed.searched_leaves(grid)}
    alone = Evaluator(listed.program, grid.base, 60, 60)
    own, by_leaf = alone({path: values[path] for path in paths}, 60, penalty)
    rows = np.flatnonzero(structure == 0.0)
    np.testing.assert_array_equal(found.objectives[rows], own.objectives[rows])
    for path in paths:
        np.testing.assert_array_equal(slopes[path][rows], by_leaf[path][rows])


@pytest.mark.parametrize("imbalance", [slow(LISTED), PODS])
def test_steps_and_samples_stay_in_the_space(imbalance):
    made = task(imbalance)
    points = spaces.sample(made.space, jax.random.key(1), (200,))
    again = spaces.canonical(made.space, points)
    for one, other in zip(points, again, strict=True):
        np.testing.assert_array_equal(one, other)
    digits, reals = map(np.asarray, points)
    assert (digits[:, 0] == 0).any() and not digits[digits[:, 0] == 0, 1].any(), "dense models have no imbalance"
    if reals.size:
        assert not reals[digits[:, 2] == 0].any() and reals[digits[:, 2] == 1].all()
    near, other = jax.vmap(lambda point: spaces.neighbours(made.space, point))(points)
    near = spaces.canonical(made.space, near), near
    for one, same in zip(*near, strict=True):
        np.testing.assert_array_equal(one, same)
    assert np.asarray(other).any()


def test_a_search_finds_what_the_sweep_does(tmp_path):
    asked = text(methods='["random", "annealing", "relaxed"]').replace('["step_time", "peak_memory"]', '"step_time"')
    (tmp_path / "s.toml").write_text(asked)
    labelled, found = perform(plan(tmp_path / "s.toml"), SearchOptions(tmp_path / "s.nc"))
    head = asked[: asked.index("[search]")]
    best = dse.run(dse.sweep.from_text(head), output=False, keep="top:1")
    assert isinstance(found, outcome.SearchOutcome)
    assert found.designs[0].objectives[0] == pytest.approx(float(best.step_time[0]), rel=1e-5)
    assert found.designs[0].labels["ep"] == int(best.ep[0]) and "ep" in labelled.data
    results = dse.open_results(tmp_path / "s.nc")
    assert float(results.step_time.min()) == pytest.approx(float(best.step_time[0]), rel=1e-5)


def test_co_designs_are_of_one_structure():
    with pytest.raises(InputError, match="several structures"):
        descents._check(task().grid, "codesign.toml")
