"""Straight-through Gumbel search: hard samples are valid, slopes are finite, seeds repeat, and it beats random."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.search import space as spaces
from dse.search.judging import Judgement, logarithm
from dse.search.methods import METHODS, Worth, gumbel
from dse.search.slopes import predicted_change
from tests.search.small import searched, small_problem

EVALUATIONS = 160


@pytest.fixture(scope="module")
def task():
    return small_problem()


@pytest.fixture(scope="module")
def gumbel_search(task):
    return searched(task, "gumbel", EVALUATIONS, seeds=3)


def test_hard_samples_are_valid_designs(task):
    space = task.space
    searcher = gumbel.searcher(**METHODS["gumbel"].defaults)
    parameters = searcher.init(jax.random.key(1), space).parameters
    noise = gumbel.noise_of(jax.random.key(2), space, searcher.batch)
    points = jax.vmap(lambda p, n: gumbel.hard_point(space, p, n))(parameters, noise)
    again = spaces.canonical(space, points)
    np.testing.assert_array_equal(points.digits, again.digits)
    assert len(np.unique(np.asarray(points.digits), axis=0)) > searcher.batch // 2


def test_slopes_are_those_of_the_model(task):
    """By the leaves of a design: the gradient of the logarithm of step time, and nothing that is not a number."""
    points = spaces.sample(task.space, jax.random.key(0), (64,))
    _, by_leaf = task.slopes(points)
    assert all(np.all(np.isfinite(np.asarray(slope))) for slope in by_leaf.values())
    one = jax.tree.map(lambda a: a[0], spaces.values(task.space, points))
    wanted = jax.grad(lambda values: logarithm(task.at(values).objectives[0]))(one)
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
    told = (np.abs(change) > 0.01) & (np.abs(expected) > 0.01)
    assert told.sum() > 1000
    assert np.mean(np.sign(change[told]) == np.sign(expected[told])) > 0.85


def test_log_chance_of_a_design_grows_along_its_gradient(task):
    space = task.space
    parameters = jax.tree.map(
        lambda a: a[0], gumbel.searcher(**METHODS["gumbel"].defaults).init(jax.random.key(1), space).parameters
    )
    digits = jax.tree.map(lambda a: a[0], spaces.sample(space, jax.random.key(3), (1,))).digits

    def chance(at):
        logits = gumbel.noisy_logits(space, at, None)
        return sum(float(jax.nn.log_softmax(each)[i]) for each, i in zip(logits, digits, strict=True))

    slope = gumbel.slope_towards(space, parameters, (digits,), (jnp.float32(1.0),))
    moved = jax.tree.map(lambda p, s: p - 0.1 * s, parameters, slope)
    assert chance(moved) > chance(parameters)


def test_a_start_that_samples_one_design_begins_again(task):
    """What it would evaluate from there it knows: its first logits are drawn anew, those of the others go on."""
    space, method = task.space, gumbel.searcher(**METHODS["gumbel"].defaults | {"starts": 2})
    state = method.init(jax.random.key(1), space)
    certain = jax.tree.map(lambda logits: logits.at[0, 0].add(1e3), state.parameters.logits)
    state = state._replace(parameters=state.parameters._replace(logits=certain), age=jnp.ones(2, jnp.int32))
    values = {path: jnp.zeros(2) for path in spaces.leaf_paths(space)}
    for step in range(12):
        state, points = method.propose(jax.random.key(step), state, space)
        found = Worth(Judgement(jnp.zeros(2), jnp.ones(2)), values)
        state = method.update(jax.random.key(step), state, space, points, found)
        if int(state.age[0]) == 0:
            break
    assert int(state.age[0]) == 0 and 6 <= step < 11 and int(state.age[1]) == step + 2
    anew, _ = method.propose(jax.random.key(99), state, space)
    assert max(float(jnp.max(jnp.abs(logits[0]))) for logits in anew.parameters.logits) < 100.0
    for logits, before in zip(anew.parameters.logits, state.parameters.logits, strict=True):
        np.testing.assert_array_equal(logits[1], before[1])


def test_same_seed_same_search(task, gumbel_search):
    again = searched(task, "gumbel", EVALUATIONS, seeds=3)
    np.testing.assert_array_equal(gumbel_search.best.value, again.best.value)
    np.testing.assert_array_equal(gumbel_search.best.point.digits, again.best.point.digits)
    for one, other in zip(gumbel_search.state_arrays(), again.state_arrays(), strict=True):
        assert not np.any(np.isnan(one))
        np.testing.assert_array_equal(one, other)


def test_every_seed_finds_a_design_that_can_run(gumbel_search):
    assert np.all(np.asarray(gumbel_search.best.evaluation.violation) == 0.0)
