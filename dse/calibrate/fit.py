r"""Fit few physical parameters to measurements by gradient: robust loss, Gaussian priors, what the data told.

For residuals ``e_i(x) = log(predicted / measured)`` and parameters ``x_j = T_j(z_j)``, each ``z_j`` with a standard
normal prior, the fit minimises (a maximum a posteriori estimate; Barron, CVPR 2019, for the loss)

.. math:: \sum_i w_i \frac{\delta^2}{\sigma^2} \Big(\sqrt{1 + (e_i/\delta)^2} - 1\Big) + \frac12 \sum_j z_j^2

For rows of which many are false readings the loss redescends, ``delta^2 log(1 + (e / delta)^2 / 2)``: what a row that
is far off counts for fades.

``T_j`` is an exponential for a parameter without an upper bound and a logistic curve between two bounds, scaled such
that one unit of ``z`` is one prior spread of ``log x`` at the prior value.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dse.errors import InputError

Values = dict[str, jax.Array]

#: A posterior spread below this share of the prior's counts as moved by the data; so does a value one spread off.
MOVED = 0.7


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One number to fit: where it lives, what is believed of it before the data, and between which bounds.

    ``spread`` is the standard deviation of ``log x`` before the data: 0.3 says "within about 30 %".
    """

    path: str
    prior: float
    spread: float
    lower: float = 0.0
    upper: float = math.inf

    def __post_init__(self) -> None:
        """Bounds enclose the prior."""
        if not (0.0 <= self.lower < self.prior < self.upper and self.spread > 0.0):
            bounds = f"{self.lower:g} < prior < {self.upper:g}, spread > 0"
            got = f"prior {self.prior:g}, spread {self.spread:g}"
            raise InputError(self.path, got, bounds, "correct the parameter")

    def value(self, z: jax.Array) -> jax.Array:
        """The parameter at ``z`` prior spreads from its prior value."""
        if math.isinf(self.upper):
            return self.lower + (self.prior - self.lower) * jnp.exp(self._unit() * z)
        share = (self.prior - self.lower) / (self.upper - self.lower)
        centre = math.log(share / (1.0 - share))
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(centre + self._unit() * z)

    def _unit(self) -> float:
        """Step of the exponential's or logistic's argument that moves ``log x`` by one spread at the prior."""
        step = self.spread * self.prior / (self.prior - self.lower)
        return step if math.isinf(self.upper) else step * (self.upper - self.lower) / (self.upper - self.prior)


@dataclasses.dataclass(frozen=True)
class Fit:
    """What a fit found, and how much of it the data said."""

    values: dict[str, float]
    spread: dict[str, float]  #: standard deviation of ``log x`` after the data (Laplace)
    moved: dict[str, bool]  #: whether the data narrowed the parameter well below its prior
    errors: np.ndarray  #: log(predicted / measured) a row
    loss: float  #: of the best start
    losses: tuple[float, ...]  #: of every start: how alike the optima are
    rows: int

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|."""
        return float(np.median(np.abs(np.expm1(self.errors))))


def fit(
    log_errors: Callable[..., jax.Array], parameters: Sequence[Parameter], weights: Any = None, data: tuple = (), *,
    delta: float = 0.1, redescending: bool = False, noise: float = 0.1, starts: int = 3, steps: int = 300,
    rate: float = 0.15, seed: int = 0,
) -> Fit:  # fmt: skip
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
    """
    values = _values(parameters)
    rows = jax.eval_shape(lambda z: log_errors(values(z), *data), _first(parameters)).shape[0]
    w = jnp.ones(rows) if weights is None else jnp.asarray(weights, jnp.result_type(float))

    def loss(z: jax.Array, w: jax.Array, data: tuple) -> jax.Array:
        e = log_errors(values(z), *data)
        return jnp.sum(w * _robust(e, delta, redescending)) / noise**2 + 0.5 * jnp.sum(z * z)

    found, losses = _minimise(loss, _starts(len(parameters), starts, seed), (w, data), steps, rate)
    if not np.isfinite(losses).any():
        raise InputError("fit", "no finite loss", "finite residuals at the priors", "drop the rows that fail")
    best = found[int(np.nanargmin(losses))]
    errors, jacobian = _linearised(lambda z, data: log_errors(values(z), *data), best, data)
    narrowed = _posterior(errors, jacobian, np.asarray(w) * _influence(errors, delta, redescending))
    at_best = {p.path: float(p.value(z)) for p, z in zip(parameters, best, strict=True)}
    slopes = [float(jax.grad(lambda z, p=p: jnp.log(p.value(z)))(z)) for p, z in zip(parameters, best, strict=True)]
    return Fit(
        values=at_best,
        spread={p.path: float(s * abs(slope)) for p, s, slope in zip(parameters, narrowed, slopes, strict=True)},
        moved={
            p.path: bool(s < MOVED or abs(z) > 1.0) for p, s, z in zip(parameters, narrowed, best, strict=True)
        },
        errors=np.asarray(errors), loss=float(np.nanmin(losses)), losses=tuple(map(float, losses)), rows=rows,
    )  # fmt: skip


def _values(parameters: Sequence[Parameter]) -> Callable[[jax.Array], Values]:
    return lambda z: {p.path: p.value(z[i]) for i, p in enumerate(parameters)}


def _first(parameters: Sequence[Parameter]) -> jax.Array:
    return jnp.zeros(len(parameters))


def _robust(errors: jax.Array, delta: float, redescending: bool) -> jax.Array:
    """Half the square of small errors; of large ones ``delta`` times the size (Charbonnier 1994), or its logarithm."""
    square = (errors / delta) ** 2
    return delta**2 * (jnp.log1p(0.5 * square) if redescending else jnp.sqrt(1.0 + square) - 1.0)


def _influence(errors: np.ndarray, delta: float, redescending: bool) -> np.ndarray:
    """Weight that the robust loss leaves a residual, 1 for small ones: its slope over the residual."""
    square = (errors / delta) ** 2
    return 1.0 / (1.0 + 0.5 * square) if redescending else 1.0 / np.sqrt(1.0 + square)


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


def _posterior(errors: np.ndarray, jacobian: np.ndarray, robust: np.ndarray) -> np.ndarray:
    """Standard deviation of each ``z`` after the data: 1 where it told nothing (Laplace, Gauss-Newton).

    The covariance is ``(J' W J / s^2 + 1)^-1`` with ``W`` the weights as the robust loss reduces them
    (``robust``) and ``s^2`` the residual variance under them.
    """
    variance = max(float(np.sum(robust * errors**2) / max(np.sum(robust), 1e-30)), 1e-12)
    curvature = jacobian.T @ (robust[:, None] * jacobian) / variance
    return np.sqrt(np.diag(np.linalg.inv(curvature + np.eye(len(curvature)))))


def folds(groups: Iterable[Hashable], k: int) -> np.ndarray:
    """Fold of every row, 0 to ``k - 1``: rows of one group share it, in every run and in any order of rows."""
    return np.array([_digest(group) % k for group in groups], int)


def _digest(group: Hashable) -> int:
    return int.from_bytes(hashlib.blake2b(repr(group).encode(), digest_size=8).digest(), "big")
