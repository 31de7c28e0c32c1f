"""Parameters stay in their bounds, groups in one fold, a problem finds what made its rows and ignores outliers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dse.errors import InputError
from dse.lab.fits import FitProblem, Parameter, folds
from dse.lab.fits.fit import Minimum, derivatives, differences, parameters_of


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


SIZES = np.logspace(3, 9, 200)
PARAMETERS = [
    Parameter("bandwidth", 1e9, 0.7),
    Parameter("latency", 2e-5, 0.7),
    Parameter("efficiency", 0.7, 0.2, upper=1.0),
]


def log_time(z: jax.Array, sizes: jax.Array, measured: jax.Array) -> jax.Array:
    """Error of a message over a link; ``efficiency`` does not enter."""
    bandwidth, latency, _ = (p.value(z[i]) for i, p in enumerate(PARAMETERS))
    return jnp.log(latency + sizes / bandwidth) - measured


def synthetic(noise: float = 0.02) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.log(5e-5 + SIZES / 3e9) + noise * rng.standard_normal(len(SIZES))


def solved(measured: np.ndarray, weights: np.ndarray | None = None) -> Minimum:
    """The fit to messages, with slopes by derivatives."""
    rows = (jnp.asarray(SIZES, jnp.float32), jnp.asarray(measured, jnp.float32))
    weights = np.ones(len(SIZES)) if weights is None else weights
    return FitProblem(*derivatives(log_time, *rows), weights, 0.1, 0.1, np.ones(3)).solve()


def test_known_parameters_come_back():
    """Within a few of their own posterior spreads."""
    found = solved(synthetic()).fit(PARAMETERS)
    for name, true in (("bandwidth", 3e9), ("latency", 5e-5)):
        assert abs(np.log(found.values[name] / true)) < 4.0 * found.spread[name] + 1e-3
        assert found.is_informed[name]
    assert found.rows == len(SIZES)
    assert found.median_error < 0.03


def test_what_the_rows_do_not_touch_stays_at_its_prior():
    found = solved(synthetic()).fit(PARAMETERS)
    assert found.values["efficiency"] == pytest.approx(0.7, rel=0.01)
    assert found.spread["efficiency"] == pytest.approx(0.2, rel=0.02)
    assert not found.is_informed["efficiency"]


def test_outliers_move_little():
    spoiled = synthetic()
    spoiled[::20] += 2.0
    assert solved(spoiled).fit(PARAMETERS).values["bandwidth"] == pytest.approx(3e9, rel=0.02)


def test_rows_of_no_weight_do_not_count():
    spoiled, weights = synthetic(), np.ones(len(SIZES))
    spoiled[100:] += 1.0
    weights[100:] = 0.0
    assert solved(spoiled, weights).fit(PARAMETERS).values["latency"] == pytest.approx(5e-5, rel=0.05)


def test_residuals_that_are_not_numbers_are_named():
    with pytest.raises(InputError, match="finite"):
        solved(np.full(len(SIZES), np.nan))


@pytest.mark.parametrize("redescending", [False, True])
def test_false_readings_hardly_move_a_redescending_fit(redescending):
    """A third of the rows reads a quarter of the truth."""
    false = np.arange(90) % 3 == 0
    measured = np.log(np.where(false, 0.25, 1.0) * np.exp(0.02 * np.sin(np.arange(90.0))))
    parameter = Parameter("x", 0.8, 0.5)
    rows = derivatives(lambda z, logs: jnp.log(parameter.value(z[0])) - logs, jnp.asarray(measured, jnp.float32))
    found = FitProblem(*rows, np.ones(90), 0.1, 0.1, np.ones(1), redescending=redescending).solve().fit([parameter])
    assert (abs(found.values["x"] - 1.0) < 0.02) == redescending


def test_parameters_are_read_from_a_table():
    (read,) = parameters_of({"rate": {"prior": 0.5, "spread": 0.2, "upper": 1.0, "own": True}}, "links.")
    assert read == Parameter("links.rate", 0.5, 0.2, upper=1.0)


@pytest.mark.parametrize("upper", [2.5, float("inf")])
def test_the_z_of_a_value_is_the_inverse(upper):
    """By hand: without an upper bound the double of what is above the bound is ln 2 over the unit, 0.3 x 1.5 / 0.5."""
    parameter = Parameter("x", prior=1.5, spread=0.3, lower=1.0, upper=upper)
    for z in (-2.0, 0.0, 0.7):
        assert parameter.z_of(float(parameter.value(z))) == pytest.approx(z, abs=1e-4)
    assert parameter.z_of(1.0) == -np.inf and parameter.z_of(upper) == np.inf
    if upper == np.inf:
        assert parameter.z_of(2.0) == pytest.approx(np.log(2.0) / 0.9)
