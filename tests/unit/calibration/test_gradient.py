"""The descent by gradient finds what made synthetic rows, stays at priors where these say nothing, ignores outliers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from calibration.gradient import fit
from dse.errors import InputError
from dse.lab.fits import Parameter

SIZES = np.logspace(3, 9, 200)
PARAMETERS = [
    Parameter("bandwidth", 1e9, 0.7),
    Parameter("latency", 2e-5, 0.7),
    Parameter("efficiency", 0.7, 0.2, upper=1.0),
]


def log_time(values: dict[str, jax.Array], sizes: jax.Array) -> jax.Array:
    """A message over a link; ``efficiency`` does not enter."""
    return jnp.log(values["latency"] + sizes / values["bandwidth"])


def synthetic(noise: float = 0.02) -> np.ndarray:
    rng = np.random.default_rng(1)
    return np.log(5e-5 + SIZES / 3e9) + noise * rng.standard_normal(len(SIZES))


def fitted(measured: np.ndarray, **options: object):
    data = (jnp.asarray(SIZES, jnp.float32), jnp.asarray(measured, jnp.float32))
    return fit(lambda values, sizes, log: log_time(values, sizes) - log, PARAMETERS, data=data, **options)


def test_known_parameters_come_back():
    """Within a few of their own posterior spreads."""
    found = fitted(synthetic())
    for name, true in (("bandwidth", 3e9), ("latency", 5e-5)):
        assert abs(np.log(found.values[name] / true)) < 4.0 * found.spread[name] + 1e-3
        assert found.is_informed[name]
    assert found.rows == len(SIZES)
    assert found.median_error < 0.03


def test_what_the_rows_do_not_touch_stays_at_its_prior():
    found = fitted(synthetic())
    assert found.values["efficiency"] == pytest.approx(0.7, rel=0.01)
    assert found.spread["efficiency"] == pytest.approx(0.2, rel=0.02)
    assert not found.is_informed["efficiency"]


def test_outliers_move_little():
    spoiled = synthetic()
    spoiled[::20] += 2.0
    assert fitted(spoiled).values["bandwidth"] == pytest.approx(3e9, rel=0.02)


def test_rows_of_no_weight_do_not_count():
    spoiled, weights = synthetic(), np.ones(len(SIZES))
    spoiled[100:] += 1.0
    weights[100:] = 0.0
    assert fitted(spoiled, weights=weights).values["latency"] == pytest.approx(5e-5, rel=0.05)


def test_residuals_that_are_not_numbers_are_named():
    with pytest.raises(InputError, match="finite"):
        fitted(np.full(len(SIZES), np.nan))


@pytest.mark.parametrize("redescending", [False, True])
def test_false_readings_hardly_move_a_redescending_fit(redescending):
    """A third of the rows reads a quarter of the truth."""
    false = np.arange(90) % 3 == 0
    measured = jnp.asarray(np.where(false, 0.25, 1.0) * np.exp(0.02 * np.sin(np.arange(90.0))))
    found = fit(
        lambda values: jnp.log(values["x"]) - jnp.log(measured),
        [Parameter("x", 0.8, 0.5)],
        delta=0.1,
        redescending=redescending,
        starts=1,
    )
    assert (abs(found.values["x"] - 1.0) < 0.02) == redescending
