"""Residuals hold the share they are asked to, whatever the errors look like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dse.lab.fits.residuals import class_residual, coverage, residual, unmeasured_residual


@given(
    seed=st.integers(0, 99),
    heavy=st.booleans(),
    share=st.sampled_from([0.5, 0.8, 0.95]),
    deviation=st.sampled_from([0.0, 0.02]),
)
def test_the_share_asked_for_is_held(seed, heavy, share, deviation):
    rng = np.random.default_rng(seed)
    errors = 0.1 * (rng.standard_t(2, 200) if heavy else rng.standard_normal(200))
    deviations = np.full(200, deviation)
    found = residual(errors, deviations, np.ones(200), share)
    assert coverage(errors, deviations, np.full(200, found), share) == pytest.approx(share, abs=0.01)


def test_spread_of_parameters_leaves_less_to_explain():
    errors = np.random.default_rng(0).normal(0.0, 0.1, 500)
    alone, beside = (residual(errors, np.full(500, d), np.ones(500)) for d in (0.0, 0.06))
    assert alone == pytest.approx(0.1, rel=0.15)
    assert np.hypot(beside, 0.06) == pytest.approx(alone, rel=0.02)


def test_few_rows_lean_on_the_others():
    rng = np.random.default_rng(1)
    errors = np.concatenate([np.zeros(2), rng.normal(0.0, 0.1, 100)])
    sources = np.array(["a"] * 2 + ["b"] * 100)
    few = class_residual(sources == "a", sources, errors, np.zeros(102), np.ones(102))
    many = class_residual(sources == "b", sources, errors, np.zeros(102), np.ones(102))
    assert 0.05 < few < 1.2 * many


def test_each_source_counts_alike_for_strangers():
    errors = np.concatenate([np.full(1000, 0.01), np.full(3, 0.3), np.full(3, 0.3)])
    sources = np.array(["large"] * 1000 + ["b"] * 3 + ["c"] * 3)
    assert unmeasured_residual(sources, errors, np.zeros(1006), np.ones(1006)) > 0.2
