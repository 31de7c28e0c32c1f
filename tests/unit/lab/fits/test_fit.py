"""Parameters stay in their bounds, groups in one fold, and a problem finds what made its rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.errors import InputError
from dse.lab.fits import FitProblem, Parameter, folds
from dse.lab.fits.fit import differences


def test_values_stay_between_bounds():
    parameter = Parameter("share", 0.5, 1.0, lower=0.2, upper=0.9)
    values = [float(parameter.value(jnp.asarray(z))) for z in (-50.0, -1.0, 0.0, 1.0, 50.0)]
    assert values[2] == pytest.approx(0.5)
    assert values == sorted(values)
    assert values[0] >= 0.2
    assert values[-1] <= 0.9


@pytest.mark.parametrize("bounds", [{}, {"upper": 0.9}])
def test_one_unit_is_one_prior_spread(bounds: dict[str, float]):
    parameter = Parameter("share", 0.6, 0.25, lower=0.1, **bounds)
    slope = jax.grad(lambda z: jnp.log(parameter.value(z)))(jnp.asarray(0.0))
    assert float(slope) == pytest.approx(0.25, rel=1e-4)


def test_a_prior_outside_its_bounds_is_named():
    with pytest.raises(InputError, match="share"):
        Parameter("share", 1.5, 0.1, upper=1.0)


def test_folds_are_disjoint_by_group_and_steady():
    groups = [(f"shape{i % 37}", i % 37) for i in range(1000)]
    found = folds(groups, 5)
    assert set(found) <= set(range(5))
    assert len(set(found)) == 5
    by_group = {}
    for group, fold in zip(groups, found, strict=True):
        assert by_group.setdefault(group, fold) == fold
    assert list(folds(groups[::-1], 5)) == list(found[::-1])


def problem(weights: np.ndarray, steps: float = 0.1) -> FitProblem:
    """Two numbers of rows that are 1, 2 or one over the other off."""
    true = np.array([0.5, -0.3, 0.8] * 4)
    return FitProblem(
        *differences(lambda zs: np.stack([np.tile([z[0], z[1], z[0] - z[1]], 4) for z in zs]) - true, steps),
        weights,
        np.full(12, 0.01),
        0.02 * np.ones(12),
        np.ones(2),
    )


def test_a_problem_finds_what_made_its_rows_and_nothing_without_rows():
    found = problem(np.ones(12)).solve().fit([Parameter("a", 1.0, 1.0), Parameter("b", 1.0, 1.0)])
    assert [found.values["a"], found.values["b"]] == pytest.approx([np.exp(0.5), np.exp(-0.3)], rel=1e-3)
    assert np.abs(found.errors).max() < 1e-3 and all(found.is_informed.values())
    assert np.abs(problem(np.zeros(12)).solve().z).max() < 1e-6


def test_rows_are_held_out_by_their_label():
    """Of one label all rows: without them a fit stays at its priors, or where it is asked to."""
    one, labels = problem(np.ones(12)), [index % 4 for index in range(12)]
    assert np.abs(one.cross_validate(labels)).max() < 1e-3
    alone = one.cross_validate(["all"] * 12)
    assert alone == pytest.approx(one.residuals(np.zeros(2)), abs=1e-6)
    assert np.abs(one.cross_validate(["all"] * 12, otherwise=np.array([0.5, -0.3]))).max() < 1e-9
