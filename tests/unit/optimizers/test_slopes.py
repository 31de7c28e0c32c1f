"""The relaxed gradient: slopes are those of the model and predict steps; a search that follows them repeats."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from dse.optimizers import space as spaces
from dse.optimizers.functions import evaluate
from dse.optimizers.judging import logarithm
from dse.optimizers.methods.relaxed import predicted_change
from tests.unit.optimizers.small import searched, small_problem

EVALUATIONS = 160


@pytest.fixture(scope="module")
def task():
    return small_problem()


@pytest.fixture(scope="module")
def guided_search(task):
    return searched(task, "relaxed", EVALUATIONS, seeds=3)


def test_slopes_are_those_of_the_model(task):
    """By the leaves of a design: the gradient of the logarithm of step time, and nothing that is not a number."""
    points = spaces.sample(task.space, jax.random.key(0), (64,))
    _, by_leaf = task.slopes(points)
    assert all(np.all(np.isfinite(np.asarray(slope))) for slope in by_leaf.values())
    one = jax.tree.map(lambda a: a[0], spaces.values(task.space, points))
    wanted = jax.grad(lambda values: logarithm(evaluate(task.program, task.grid.base, values).objectives[0]))(one)
    for path, slope in wanted.items():
        np.testing.assert_allclose(by_leaf[path][0], slope, rtol=1e-3, atol=1e-6, err_msg=path)


def test_slopes_predict_what_steps_do(task):
    """Of steps to valid neighbours that change the time by more than a per cent, most are predicted with their sign."""
    points = spaces.sample(task.space, jax.random.key(0), (256,))
    near, _ = jax.vmap(lambda point: spaces.neighbours(task.space, point))(points)
    here, by_leaf = task.slopes(points)
    there = task.evaluate(near)
    change = np.asarray(logarithm(there.objectives[..., 0]) - logarithm(here.objectives[:, 0])[:, None])
    expected = np.asarray(
        jax.vmap(predicted_change)(by_leaf, spaces.values(task.space, points), spaces.values(task.space, near))
    )
    clear = (np.abs(change) > 0.01) & (np.abs(expected) > 0.01)
    assert clear.sum() > 1000
    assert np.mean(np.sign(change[clear]) == np.sign(expected[clear])) > 0.85


def test_same_seed_same_search(task, guided_search):
    again = searched(task, "relaxed", EVALUATIONS, seeds=3)
    np.testing.assert_array_equal(guided_search.best.value, again.best.value)
    np.testing.assert_array_equal(guided_search.best.point.digits, again.best.point.digits)
    for one, other in zip(guided_search.state_arrays(), again.state_arrays(), strict=True):
        assert not np.any(np.isnan(one))
        np.testing.assert_array_equal(one, other)


def test_every_seed_finds_a_design_that_can_run(guided_search):
    assert np.all(np.asarray(guided_search.best.evaluation.violation) == 0.0)
