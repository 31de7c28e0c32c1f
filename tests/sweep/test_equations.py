"""A function as equations: the same values, nothing twice, nothing that is not needed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dse
from dse.sweep import plan
from dse.sweep.engine import equations
from tests.sweep.toy import sweep


def test_equal_equations_are_merged_and_unneeded_ones_left_out():
    def model(a, b):
        jnp.sin(a)
        return jnp.exp(a) * b, jnp.where(b > 0.0, jnp.exp(a), 0.0), jnp.where(b > 0.0, jnp.exp(a), 0.0)

    found, _ = equations.trace(model, 1.0, 2.0)
    assert sorted(e.primitive.name for e in found.equations) == ["exp", "gt", "mul", "select_n"]
    np.testing.assert_array_equal(found(1.5, -1.0), jnp.stack(model(1.5, -1.0)))


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_signs_of_zero_differ(zero):
    found, _ = equations.trace(lambda a: (a + 0.0, a + (-0.0)), 1.0)
    assert len(found.equations) == 2
    np.testing.assert_array_equal(np.signbit(found(zero)), np.signbit([zero + 0.0, zero + -0.0]))


def test_functions_called_twice_keep_their_inputs_apart():
    twice = jax.jit(lambda a: 2.0 * a)
    found, _ = equations.trace(lambda a, b: (twice(a) - twice(b), twice(a) + twice(b)), 1.0, 1.0)
    assert len(found.equations) == 4
    np.testing.assert_array_equal(found(3.0, 1.0), [4.0, 8.0])


def test_outputs_may_be_inputs_and_constants():
    table = jnp.arange(3.0)
    found, _ = equations.trace(lambda a: (a, 2.0, table), 1.0)
    assert [np.asarray(value).tolist() for value in found(5.0)] == [5.0, 2.0, [0.0, 1.0, 2.0]]


def test_the_model_is_the_same():
    base = jax.tree.map(np.float32, plan(sweep())[0].base)
    found, structure = equations.trace(dse.evaluate, base)
    plain = jax.jit(dse.evaluate)(base)
    for own, theirs in zip(jax.tree.leaves(jax.tree.unflatten(structure, jax.jit(found)(*jax.tree.leaves(base)))),
                           jax.tree.leaves(plain), strict=True):  # fmt: skip
        np.testing.assert_allclose(own, theirs, rtol=1e-6)
    assert len(found.equations) < 0.6 * len(jax.make_jaxpr(dse.evaluate)(base).eqns)
