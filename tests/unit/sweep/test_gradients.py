"""``dse.value_and_grad``: slopes are those of JAX and of finite differences, of few designs and of many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dse
from dse.designs import leaf, leaf_path, replace
from dse.doors import TRAINING, evaluation
from dse.errors import InputError
from dse.io.environment import double_precision
from dse.sweep.engine.gradients import BLOCK
from tests.panel import design

DENSE = "dense, eager attention"
PATHS = ("memory.bandwidth", "scale_out.bandwidth", "matrix_rate.fp16", "software.host_time", "kernel_floor")
COUNT = 5 * BLOCK + 77


def scaled(one, paths=PATHS, count=COUNT):
    """Leaves of many designs, each by a factor of its own; all of them positive."""
    draw = np.random.default_rng(0)
    return {name: leaf(one, leaf_path(name)) * draw.uniform(0.7, 1.5, count) for name in paths}


@pytest.fixture(scope="module")
def many():
    """Values and slopes of many designs, which are compiled."""
    return dse.value_and_grad("step_time", design(DENSE), PATHS)(scaled(design(DENSE)))


def close(found, expected, rounding):
    """Equal but for rounding, beside the largest slope."""
    np.testing.assert_allclose(found, expected, rtol=rounding, atol=rounding * np.max(np.abs(expected)))


def test_slopes_are_those_of_jax(many):
    value, slopes = many
    full = {name: leaf_path(name) for name in PATHS}
    at = {full[name]: jnp.float32(column) for name, column in scaled(design(DENSE)).items()}

    def step_time(values):
        return evaluation.evaluate(replace(design(DENSE), values)).step_time

    expected, by_leaf = jax.jit(jax.vmap(jax.value_and_grad(step_time)))(at)
    assert value.shape == (COUNT,) and value.dtype == np.float32
    np.testing.assert_allclose(value, expected, rtol=2e-6)
    for name, path in full.items():
        close(slopes[name], by_leaf[path], 2e-5)


def test_few_designs_have_the_slopes_of_many(many):
    """Fewer than a block are differentiated by NumPy; a study stands for its objective."""
    places = np.arange(0, COUNT, 37)[: BLOCK - 1]
    few = {name: column[places] for name, column in scaled(design(DENSE)).items()}
    value, slopes = dse.value_and_grad(TRAINING, design(DENSE), PATHS)(few)
    np.testing.assert_allclose(value, many[0][places], rtol=2e-6)
    for name in PATHS:
        close(slopes[name], many[1][name][places], 2e-5)


def test_slopes_are_finite_differences_in_double_precision():
    one, step = design("served, dense"), 1e-6
    with double_precision():
        request_latency = dse.value_and_grad("request_latency", one, ["memory.bandwidth", "scale_up.bandwidth"])
        at = scaled(one, ("memory.bandwidth", "scale_up.bandwidth"), BLOCK)
        _, slopes = request_latency(at)
        for name, column in at.items():
            ends = [request_latency(at | {name: column * (1.0 + sign * step)})[0] for sign in (-1, 1)]
            close(slopes[name], (ends[1] - ends[0]) / (2.0 * step * column), 1e-4)
            assert slopes[name].dtype == np.float64


def test_other_leaves_may_differ_too_and_any_function_be_differentiated():
    """By the energy-delay product of designs whose tensor parallelism differs as well, and of one design."""

    def product(one):
        found = dse.evaluate(one)
        return found.step_time * found.energy_per_step

    one = design(DENSE)
    tp = np.where(np.arange(BLOCK) % 2, 4.0, 8.0)
    value, slopes = dse.value_and_grad(product, one, ["memory.bandwidth"])({"tp": tp})
    assert list(slopes) == ["memory.bandwidth"] and len(set(value.tolist())) == 2
    alone, slope = dse.value_and_grad(product, one, ["memory.bandwidth"])({})
    close(value[tp == 8.0][:1], alone, 2e-6)
    close(slopes["memory.bandwidth"][tp == 8.0][:1], slope["memory.bandwidth"], 2e-5)


@pytest.mark.parametrize(
    "objective, paths, values, got",
    [
        ("step_tim", ["memory.bandwidth"], {}, "'step_tim'"),
        ("feasible", ["memory.bandwidth"], {}, "'feasible'"),
        ("step_time", ["bandwith"], {}, "'bandwith'"),
        ("step_time", ["recompute"], {}, "'recompute'"),
        ("step_time", ["power.limit"], {}, "'power.limit'"),
        ("step_time", ["experts.ep"], {}, "'experts.ep'"),
        ("step_time", ["tp"], {"experts.ep": 2.0}, "'experts.ep'"),
        ("step_time", ["tp"], {"tp": np.ones(3), "pp": np.ones(4)}, "arrays of shapes [(3,), (4,)]"),
        ("step_time", ["tp"], {"tp": np.ones((3, 3))}, "arrays of shapes [(3, 3)]"),
    ],
)
def test_bad_input_is_refused(objective, paths, values, got):
    with pytest.raises(InputError) as error:
        dse.value_and_grad(objective, design(DENSE), paths)(values)
    assert error.value.got == got
