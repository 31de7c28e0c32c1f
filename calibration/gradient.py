"""A descent by gradient for kernels: thousands of rows of formulas that JAX differentiates, in one program.

The loss and the priors are those of :mod:`dse.lab.fits.fit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dse.errors import InputError
from dse.lab.fits.fit import Fit, Parameter, curvature, fit_at, influence, posterior, robust


def fit(
    log_errors: Callable[..., jax.Array],
    parameters: Sequence[Parameter],
    weights: Any = None,
    data: tuple = (),
    *,
    delta: float = 0.1,
    redescending: bool = False,
    noise: float = 0.1,
    starts: int = 3,
    steps: int = 300,
    rate: float = 0.15,
    seed: int = 0,
) -> Fit:
    """The most probable values of ``parameters`` given ``log_errors(values, *data)``, one residual a row.

    Args:
        log_errors: log(predicted / measured) of every row; must trace under ``jit``.
        parameters: what to fit.
        weights: of each row; default 1. Weights that sum to less than the rows widen the posterior.
        data: arrays handed to ``log_errors``; large ones belong here, not into its closure.
        delta: size of a residual from which it counts linearly, not by its square.
        redescending: whether large residuals cease to count at all, as where many rows are false readings.
        noise: standard deviation of a residual that the optimum weighs the priors against.
        starts: optimisations; the first starts at the priors, the others half a spread around them.
        steps: of adam.
        rate: its first step in prior spreads, which decays as a cosine.
        seed: of the starts.

    Returns:
        Values, and how far the data narrowed each of them below its prior.

    References:
        Barron, CVPR 2019 (the loss); Kingma and Ba 2015 (adam).

    >>> import jax.numpy as jnp
    >>> found = fit(lambda values: jnp.log(values["rate"] / 2.0)[None], [Parameter("rate", 1.0, 2.0)], noise=0.01)
    >>> round(float(found.values["rate"]), 1)
    2.0
    """

    def values(z: jax.Array) -> dict[str, jax.Array]:
        return {p.path: p.value(z[i]) for i, p in enumerate(parameters)}

    rows = jax.eval_shape(lambda z: log_errors(values(z), *data), jnp.zeros(len(parameters))).shape[0]
    w = jnp.ones(rows) if weights is None else jnp.asarray(weights, jnp.result_type(float))

    def loss(z: jax.Array, w: jax.Array, data: tuple) -> jax.Array:
        e = log_errors(values(z), *data)
        return jnp.sum(w * robust(e, delta, redescending)) / noise**2 + 0.5 * jnp.sum(z * z)

    found, losses = _minimise(loss, _starts(len(parameters), starts, seed), (w, data), steps, rate)
    if not np.isfinite(losses).any():
        raise InputError("fit", "no finite loss", "finite residuals at the priors", "drop the rows that fail")
    best = found[int(np.nanargmin(losses))]
    errors, jacobian = _linearised(lambda z, data: log_errors(values(z), *data), best, data)
    counts = np.asarray(w) * influence(errors, delta, redescending)
    variance = max(float(np.sum(counts * errors**2) / max(np.sum(counts), 1e-30)), 1e-12)
    after = posterior(curvature(jacobian, counts / variance))
    return fit_at(parameters, np.asarray(best), after, errors, *map(float, losses))


def _starts(count: int, starts: int, seed: int) -> jax.Array:
    """Starting points in prior spreads: the priors, then draws around them."""
    around = 0.5 * jax.random.normal(jax.random.key(seed), (starts, count))
    return around.at[0].set(0.0)


def _minimise(
    loss: Callable[..., jax.Array], starts: jax.Array, arguments: tuple, steps: int, rate: float
) -> tuple[jax.Array, np.ndarray]:
    """Optima and losses of all starts by adam with a cosine decay, in one compiled program."""
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def descend(start: jax.Array, arguments: tuple) -> tuple[jax.Array, jax.Array]:
        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            z, state = carry
            slope = jax.grad(loss)(z, *arguments)
            with jax.numpy_dtype_promotion("standard"):  # optax counts steps in integers
                update, state = optimizer.update(slope, state)
            return (optax.apply_updates(z, update), state), None

        (z, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), None, length=steps)
        return z, loss(z, *arguments)

    found, losses = jax.jit(lambda starts, arguments: jax.lax.map(lambda s: descend(s, arguments), starts))(
        starts, arguments
    )
    return found, np.asarray(losses)


def _linearised(residuals: Callable, z: jax.Array, data: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Residuals and their derivatives (rows x parameters) at ``z``."""
    errors, jacobian = jax.jit(lambda z, data: (residuals(z, data), jax.jacfwd(residuals)(z, data)))(z, data)
    return np.asarray(errors, float), np.asarray(jacobian, float)
