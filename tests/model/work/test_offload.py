"""Shares of what is offloaded: linear on the device, whole at the ends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.model.work.offload import BUFFERED_LAYERS, resident


@given(held=st.integers(1, 500).map(float), share=st.floats(0.0, 1.0))
def test_what_stays_is_linear_in_the_share(held, share):
    here, away = float(resident(held, 0.0)), float(resident(held, 1.0))
    assert here == held
    assert away == pytest.approx(min(held, BUFFERED_LAYERS))
    rounding = 1e-6 * held  # of the difference of two numbers of this size in single precision
    assert float(resident(held, share)) == pytest.approx((1.0 - share) * here + share * away, abs=rounding)
