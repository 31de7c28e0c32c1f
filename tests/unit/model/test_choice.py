"""Choices as data: whole numbers, and the slope that counts of them have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from dse.designs import replace
from dse.doors.evaluation import evaluate
from dse.model import choice
from tests.designs import make_design

WHOLE = st.integers(1, 1 << 20).map(float)


@given(value=st.floats(0.0, 1e6, width=32, allow_subnormal=False))
def test_a_ceiling_is_exact_and_rises_as_what_is_rounded(value):
    found, slope = jax.value_and_grad(choice.ceiling)(value)
    assert float(found) == float(np.ceil(np.float32(value)))
    assert float(slope) == 1.0


@given(whole=WHOLE, piece=st.sampled_from([1.0, 64.0, 96.0, 128.0, 256.0]))
def test_pieces_are_counted_exactly_and_grow_with_the_whole(whole, piece):
    a_piece = choice.just_below_reciprocal(jnp.float32(piece))
    found, slope = jax.value_and_grad(lambda length: choice.ceiling(length * a_piece))(jnp.float32(whole))
    assert float(found) == -(-whole // piece)
    assert float(slope) == pytest.approx(1.0 / piece, rel=1e-5)


def test_more_devices_a_model_are_less_work_for_each():
    """By its own slope a ceiling says that stages and shards save nothing, and only what they cost is left."""

    def work(degrees):
        found = evaluate(replace(make_design(tp=4.0, pp=4.0), degrees))
        return jnp.log(found.step_time_forward + found.step_time_backward)

    slopes = jax.jit(jax.grad(work))({"mapping.pp": jnp.float32(4.0), "mapping.tp": jnp.float32(4.0)})
    for degree, slope in slopes.items():
        assert -1.2 < float(slope) * 4.0 < -0.3, degree
