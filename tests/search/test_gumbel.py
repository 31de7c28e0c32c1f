"""Straight-through Gumbel search: hard samples are valid, slopes are finite, seeds repeat, and it beats random."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.search import driver, problem, spec
from dse.search import space as spaces
from dse.search.methods import METHODS, gumbel
from dse.search.slopes import judged_with_slopes, logarithm

TEXT = """
title = "a small search"

[workload]
name = "gpt-3-13b"
global_batch = 256

[system]
name = "selene"
n_devices = 64

[axes]
tp = "divisors"
pp = "divisors"
micro_batch = "divisors"
recompute = ["none", "selective", "full"]
zero_stage = [0, 1, 3]
overlap_dp = [false, true]

[search]
method = "gumbel"
seeds = 3
"""


@pytest.fixture(scope="module")
def task():
    return problem.build(spec.from_text(TEXT))


@pytest.fixture(scope="module")
def searched(task):
    return _searched(task, "gumbel", 20)


def _searched(task, name, steps):
    own = dataclasses.replace(task.spec, methods=(name,), options={name: METHODS[name].defaults})
    one = driver.driver(dataclasses.replace(task, spec=own), name)
    done = 0
    while done < steps:
        count = min(one.chunk, steps - done)
        one.advance(done, count)
        done += count
    return one


def test_hard_samples_are_valid_designs(task):
    space = task.space
    searcher = gumbel.searcher(**METHODS["gumbel"].defaults)
    parameters = searcher.init(jax.random.key(1), space).parameters
    noise = gumbel._gumbel(jax.random.key(2), space, searcher.batch)
    points = jax.vmap(lambda p, n: gumbel._hard(space, p, n))(parameters, noise)
    again = spaces.canonical(space, points)
    np.testing.assert_array_equal(points.digits, again.digits)
    assert len(np.unique(np.asarray(points.digits), axis=0)) > searcher.batch // 2


def test_slopes_are_those_of_the_model(task):
    """By the leaves of a design: the gradient of the logarithm of step time, and nothing that is not a number."""
    points = spaces.sample(task.space, jax.random.key(0), (64,))
    _, by_leaf = judged_with_slopes(
        task, task.space, lambda objectives: objectives[..., 0], points, jnp.zeros(64), jnp.float32(0.0)
    )
    assert all(np.all(np.isfinite(np.asarray(slope))) for slope in by_leaf.values())
    one = jax.tree.map(lambda a: a[0], spaces.values(task.space, points))
    wanted = jax.grad(lambda values: logarithm(task.at(values).objectives[0]))(one)
    for path, slope in wanted.items():
        np.testing.assert_allclose(by_leaf[path][0], slope, rtol=1e-3, atol=1e-6, err_msg=path)


def test_log_chance_of_a_design_grows_along_its_gradient(task):
    space = task.space
    parameters = jax.tree.map(
        lambda a: a[0], gumbel.searcher(**METHODS["gumbel"].defaults).init(jax.random.key(1), space).parameters
    )
    digits = jax.tree.map(lambda a: a[0], spaces.sample(space, jax.random.key(3), (1,))).digits

    def chance(at):
        logits = gumbel._noisy(space, at, None)
        return sum(float(jax.nn.log_softmax(each)[i]) for each, i in zip(logits, digits, strict=True))

    slope = gumbel._towards(space, parameters, (digits,), (jnp.float32(1.0),))
    moved = jax.tree.map(lambda p, s: p - 0.1 * s, parameters, slope)
    assert chance(moved) > chance(parameters)


def test_same_seed_same_search(task, searched):
    again = _searched(task, "gumbel", 20)
    np.testing.assert_array_equal(searched.best.value, again.best.value)
    np.testing.assert_array_equal(searched.best.point.digits, again.best.point.digits)
    for one, other in zip(searched.state_arrays(), again.state_arrays(), strict=True):
        assert np.all(np.isfinite(one[np.isfinite(one)])) and not np.any(np.isnan(one))
        np.testing.assert_array_equal(one, other)


def test_no_worse_than_the_median_of_random_search(task, searched):
    random = _searched(task, "random", 20 * searched.batch // METHODS["random"].defaults["population"])
    assert np.all(np.asarray(searched.best.evaluation.violation) == 0.0)
    assert np.min(searched.best.value) <= np.median(random.best.value)
