r"""Few physical parameters from measurements: one loss, one kind of prior, one way to say what the data told.

For residuals ``e_i(x) = log(predicted / measured)`` and parameters ``x_j = T_j(z_j)``, each ``z_j`` with a normal prior
of standard deviation ``r_j`` (1 unless said otherwise), a fit minimises (a maximum a posteriori estimate; Barron, CVPR
2019, for the loss)

.. math:: \sum_i w_i \frac{\delta^2}{\sigma^2} \Big(\sqrt{1 + (e_i/\delta)^2} - 1\Big)
   + \frac12 \sum_j \Big(\frac{z_j}{r_j}\Big)^2

For rows of which many are false readings the loss redescends, ``delta^2 log(1 + (e / delta)^2 / 2)``: what a row that
is far off counts for fades.

``T_j`` is an exponential for a parameter without an upper bound and a logistic curve between two bounds, scaled such
that one unit of ``z`` is one prior spread of ``log x`` at the prior value.

Jobs differ in how they come down. Kernels are thousands of rows of formulas that JAX differentiates, under a loss that
may redescend: :func:`fit`, by gradient from several starts in one program. Steps and power limits are hundreds of rows
of the whole model, of which a clock that is chosen among clocks has no derivative: :func:`gauss_newton`, by residuals
and slopes that the caller finds as it can.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dse.errors import InputError

Values = dict[str, jax.Array]

#: A posterior spread below this share of the prior's counts as moved by the data; so does a value one spread off.
MOVED = 0.7

#: A descent ends where even a step damped so much gains nothing.
_MOST_DAMPED = 1e4


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

    def value(self, z: jax.Array | float) -> jax.Array:
        """The parameter at ``z`` prior spreads from its prior value."""
        if math.isinf(self.upper):
            return self.lower + (self.prior - self.lower) * jnp.exp(self._unit() * z)
        share = (self.prior - self.lower) / (self.upper - self.lower)
        centre = math.log(share / (1.0 - share))
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(centre + self._unit() * z)

    def times(self, factor: float) -> float:
        """The ``z`` at which a parameter without an upper bound is ``factor`` times its prior value."""
        return math.log((self.prior * factor - self.lower) / (self.prior - self.lower)) / self._unit()

    def slope(self, z: jax.Array | float) -> float:
        """Change of the logarithm of the value for one unit of ``z``."""
        return float(jax.grad(lambda at: jnp.log(self.value(at)))(jnp.asarray(z, jnp.result_type(float))))

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

    Returns:
        Values, and how far the data narrowed each of them below its prior.

    References:
        Barron, CVPR 2019 (the loss); Kingma and Ba 2015 (adam).

    >>> import jax.numpy as jnp
    >>> found = fit(lambda values: jnp.log(values["rate"] / 2.0)[None], [Parameter("rate", 1.0, 2.0)], noise=0.01)
    >>> round(float(found.values["rate"]), 1)
    2.0
    """
    values = _values(parameters)
    rows = jax.eval_shape(lambda z: log_errors(values(z), *data), _first(parameters)).shape[0]
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
    return fit_at(parameters, np.asarray(best), after, errors, losses.tolist())


def fit_at(
    parameters: Sequence[Parameter], z: np.ndarray, after: np.ndarray, errors: np.ndarray, losses: np.ndarray
) -> Fit:
    """A fit at ``z``, where ``after`` is the standard deviation of each ``z`` after the data."""
    each = list(zip(parameters, z, after, strict=True))
    return Fit(
        values={p.path: float(p.value(at)) for p, at, _ in each},
        spread={p.path: float(s * abs(p.slope(at))) for p, at, s in each},
        moved={p.path: bool(s < MOVED or abs(at) > 1.0) for p, at, s in each},
        errors=np.asarray(errors), loss=float(np.nanmin(losses)), losses=tuple(map(float, losses)), rows=len(errors),
    )  # fmt: skip


class Minimum(NamedTuple):
    """Where a descent ended."""

    z: np.ndarray
    errors: np.ndarray  #: log(predicted / measured) a row
    curvature: np.ndarray  #: of the loss, by Gauss and Newton
    loss: float


def gauss_newton(
    residuals: Callable[[np.ndarray], np.ndarray], slopes: Callable[[np.ndarray, np.ndarray], np.ndarray],
    start: np.ndarray, weights: np.ndarray, *, noise: float, delta: float, prior: np.ndarray | float = 1.0,
    pace: tuple[float, float] = (0.2, 5.0), tolerance: float = 1e-4, steps: int = 40,
) -> Minimum:  # fmt: skip
    """The nearest minimum by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963) of at most one unit of ``z``.

    Args:
        residuals: log(predicted / measured) of every row at ``z``.
        slopes: their derivatives (rows x parameters) at ``z``, where the residuals are those given.
        start: ``z`` to begin with.
        weights: of each row.
        noise: standard deviation of a residual that the optimum weighs the priors against.
        delta: size of a residual from which it counts linearly.
        prior: standard deviation of each ``z`` before the data.
        pace: factors of the damping after a step that gained and after one that did not.
        tolerance: share of the loss; a step that gains less ends the descent and is not taken.
        steps: at most.
    """

    def loss_of(z: np.ndarray, errors: np.ndarray) -> float:
        return float(weights @ robust(errors, delta) / noise**2 + 0.5 * np.sum((z / prior) ** 2))

    def expansion(z: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Curvature and gradient of the loss."""
        jacobian, counts = slopes(z, errors), weights * influence(errors, delta) / noise**2
        return curvature(jacobian, counts, prior), jacobian.T @ (counts * errors) + z / prior**2

    calm, rough = pace
    z, errors, damping = start, residuals(start), 1e-2
    loss = loss_of(z, errors)
    matrix, gradient = expansion(z, errors)
    for _ in range(steps):
        gained = 0.0
        while not gained and damping < _MOST_DAMPED:
            move = -np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), gradient)
            trial = z + np.clip(move, -1.0, 1.0)
            tried = residuals(trial)
            after = loss_of(trial, tried)
            gained, damping = (loss - after, calm * damping) if after < loss else (0.0, rough * damping)
        if gained < tolerance * (1.0 + loss):
            break
        z, errors, loss = trial, tried, after
        matrix, gradient = expansion(z, errors)
    return Minimum(z, errors, matrix, loss)


def _values(parameters: Sequence[Parameter]) -> Callable[[jax.Array], Values]:
    return lambda z: {p.path: p.value(z[i]) for i, p in enumerate(parameters)}


def _first(parameters: Sequence[Parameter]) -> jax.Array:
    return jnp.zeros(len(parameters))


def robust(errors: Any, delta: float, redescending: bool = False) -> Any:
    """Half the square of small errors; of large ones ``delta`` times the size (Charbonnier 1994), or its logarithm."""
    xp = np if isinstance(errors, np.ndarray) else jnp
    square = (errors / delta) ** 2
    return delta**2 * (xp.log1p(0.5 * square) if redescending else xp.sqrt(1.0 + square) - 1.0)


def influence(errors: np.ndarray, delta: float, redescending: bool = False) -> np.ndarray:
    """Weight that the robust loss leaves a residual, 1 for small ones: its slope over the residual."""
    square = (errors / delta) ** 2
    return 1.0 / (1.0 + 0.5 * square) if redescending else 1.0 / np.sqrt(1.0 + square)


def curvature(jacobian: np.ndarray, weights: np.ndarray, prior: np.ndarray | float = 1.0) -> np.ndarray:
    """``J' W J`` and that of the priors: what data of such weights say of each ``z`` (Gauss-Newton)."""
    return jacobian.T @ (weights[:, None] * jacobian) + np.diag(np.broadcast_to(prior, jacobian.shape[1]) ** -2.0)


def posterior(curvature: np.ndarray) -> np.ndarray:
    """Standard deviation of each ``z`` after the data (Laplace), that before it where it told nothing."""
    return np.sqrt(np.diag(np.linalg.inv(curvature)))


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


def folds(groups: Iterable[Hashable], k: int) -> np.ndarray:
    """Fold of every row: rows of one group share it, in every run and in any order of rows.

    Args:
        groups: what is not to be torn apart, one a row.
        k: how many folds.

    Returns:
        0 to ``k - 1``, [rows].

    >>> first, second, third = folds(["a", "b", "a"], 5)
    >>> bool(first == third)
    True
    """
    return np.array([_digest(group) % k for group in groups], int)


def held_out(parts: Iterable[np.ndarray], errors_without: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Errors of the rows of each part (a mask) by a fit without them, ``errors_without(part)``, which gives all."""
    parts = list(parts)
    errors = np.full(len(parts[0]), np.nan)
    for part in parts:
        errors[part] = errors_without(part)[part]
    return errors


def _digest(group: Hashable) -> int:
    return int.from_bytes(hashlib.blake2b(repr(group).encode(), digest_size=8).digest(), "big")
