r"""Few physical parameters from measurements: one loss, one kind of prior, one problem for all jobs.

For residuals ``e_i(x) = log(predicted / measured)`` and parameters ``x_j = T_j(z_j)``, each ``z_j`` with a normal prior
of standard deviation ``r_j`` (1 by default), a fit minimises (a maximum a posteriori estimate; Barron, CVPR 2019, for
the loss)

.. math:: \sum_i w_i \frac{\delta^2}{\sigma^2} \Big(\sqrt{1 + (e_i/\delta)^2} - 1\Big)
   + \frac12 \sum_j \Big(\frac{z_j}{r_j}\Big)^2

For rows of which many are false readings the loss redescends, ``delta^2 log(1 + (e / delta)^2 / 2)``: the weight of a
row fades with its residual.

``T_j`` is an exponential for a parameter without an upper bound and a logistic curve between two bounds, scaled such
that one unit of ``z`` is one prior spread of ``log x`` at the prior value.

A job states a :class:`FitProblem`: residuals and slopes of its rows, their weights, the noise. Problems of hundreds of
rows of the whole model descend by :func:`gauss_newton`, whose slopes may be finite differences (a clock that is chosen
among clocks has no derivative). Thousands of kernels descend by gradient (``calibration/gradient.py``).
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

from dse.errors import InputError

#: A posterior spread below this share of the prior's counts as moved by the data; so does a value one spread off.
MOVED = 0.7

#: A descent ends where even a step damped so much gains nothing.
_MOST_DAMPED = 1e4

#: One number, or one a row.
Scale = np.ndarray | float


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


def fit_at(
    parameters: Sequence[Parameter], z: np.ndarray, after: np.ndarray, errors: np.ndarray, *losses: float
) -> Fit:
    """A fit at ``z``, where ``after`` is the standard deviation of each ``z`` after the data."""
    each = list(zip(parameters, z, after, strict=True))
    return Fit(
        values={p.path: float(p.value(at)) for p, at, _ in each},
        spread={p.path: float(s * abs(p.slope(at))) for p, at, s in each},
        moved={p.path: bool(s < MOVED or abs(at) > 1.0) for p, at, s in each},
        errors=np.asarray(errors), loss=float(np.nanmin(losses)), losses=losses, rows=len(errors),
    )  # fmt: skip


class Minimum(NamedTuple):
    """Where a descent ended."""

    z: np.ndarray
    errors: np.ndarray  #: log(predicted / measured) a row
    curvature: np.ndarray  #: of the loss, by Gauss and Newton
    loss: float

    def fit(self, parameters: Sequence[Parameter]) -> Fit:
        """Values, spreads and errors here."""
        return fit_at(parameters, self.z, posterior(self.curvature), self.errors, self.loss)


def gauss_newton(
    residuals: Callable[[np.ndarray], np.ndarray], slopes: Callable[[np.ndarray, np.ndarray], np.ndarray],
    start: np.ndarray, weights: np.ndarray, *, noise: Scale, delta: Scale, prior: Scale = 1.0,
    pace: tuple[float, float] = (0.2, 5.0), tolerance: float = 1e-4, steps: int = 40,
) -> Minimum:  # fmt: skip
    """The nearest minimum by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963) of at most one unit of ``z``.

    Args:
        residuals: log(predicted / measured) of every row at ``z``.
        slopes: their derivatives (rows x parameters) at ``z``, where the residuals are those given.
        start: ``z`` to begin with.
        weights: of each row.
        noise: standard deviation of a residual, or of each one, that the optimum weighs the priors against.
        delta: size of a residual from which it counts linearly.
        prior: standard deviation of each ``z`` before the data.
        pace: factors of the damping after a step that gained and after one that did not.
        tolerance: share of the loss; a step that gains less ends the descent and is not taken.
        steps: at most.
    """

    def loss_of(z: np.ndarray, errors: np.ndarray) -> float:
        return float(weights @ (robust(errors, delta) / noise**2) + 0.5 * np.sum((z / prior) ** 2))

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


@dataclasses.dataclass(frozen=True)
class FitProblem:
    """A fit as data: the residuals and slopes of rows, what they weigh, and what is believed before them."""

    residuals: Callable[[np.ndarray], np.ndarray]  #: log(predicted / measured) of every row at ``z``
    slopes: Callable[[np.ndarray, np.ndarray], np.ndarray]  #: (rows x parameters) at ``z``, given the residuals
    weights: np.ndarray  #: of each row
    noise: Scale  #: standard deviation of a residual that the optimum weighs the priors against
    delta: Scale  #: size of a residual from which it counts linearly
    prior: np.ndarray  #: standard deviation of each ``z`` before the data
    starts: int = 1  #: descents: the first from the priors, the others half a spread around them
    pace: tuple[float, float] = (0.2, 5.0)  #: see :func:`gauss_newton`, as the next two
    tolerance: float = 1e-4
    steps: int = 40

    def solve(self, weights: np.ndarray | float = 1.0, start: np.ndarray | None = None) -> Minimum:
        """The most probable ``z`` with the rows' weights times ``weights``: from ``start``, else the best of all."""
        draws = 0.5 * np.random.default_rng(0).standard_normal((self.starts - 1, len(self.prior)))
        firsts = [np.zeros(len(self.prior)), *draws] if start is None else [start]
        ends = [
            gauss_newton(
                self.residuals, self.slopes, first, self.weights * weights, noise=self.noise, delta=self.delta,
                prior=self.prior, pace=self.pace, tolerance=self.tolerance, steps=self.steps,
            )
            for first in firsts
        ]  # fmt: skip
        return min(ends, key=lambda end: end.loss)

    def held_out(
        self, labels: Sequence[Hashable], start: np.ndarray | None = None, otherwise: np.ndarray | None = None
    ) -> np.ndarray:
        """Residual of every row by a fit without the rows of its label.

        Args:
            labels: one a row.
            start: of each fit, by default the priors.
            otherwise: ``z`` where no row is left to fit; by default the fit to none.
        """
        first = np.zeros(len(self.prior)) if start is None else start

        def without(part: np.ndarray) -> np.ndarray:
            if otherwise is not None and part.all():
                return self.residuals(otherwise)
            return self.solve(~part, first).errors

        return held_out(labels, without)


def differences(
    many: Callable[[np.ndarray], np.ndarray], step: float
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Residuals and slopes by finite differences of ``step``, from the residuals at many ``z`` (sets x rows)."""
    return (
        lambda z: many(z[None])[0],
        lambda z, errors: (many(z + step * np.eye(len(z))) - errors).T / step,
    )


def robust(errors: Any, delta: Any, redescending: bool = False) -> Any:
    """Half the square of small errors; of large ones ``delta`` times the size (Charbonnier 1994), or its logarithm."""
    xp = np if isinstance(errors, np.ndarray) else jnp
    square = (errors / delta) ** 2
    return delta**2 * (xp.log1p(0.5 * square) if redescending else xp.sqrt(1.0 + square) - 1.0)


def influence(errors: np.ndarray, delta: Scale, redescending: bool = False) -> np.ndarray:
    """Weight that the robust loss leaves a residual, 1 for small ones: its slope over the residual."""
    square = (errors / delta) ** 2
    return 1.0 / (1.0 + 0.5 * square) if redescending else 1.0 / np.sqrt(1.0 + square)


def curvature(jacobian: np.ndarray, weights: np.ndarray, prior: np.ndarray | float = 1.0) -> np.ndarray:
    """``J' W J`` and that of the priors: what data of such weights say of each ``z`` (Gauss-Newton)."""
    return jacobian.T @ (weights[:, None] * jacobian) + np.diag(np.broadcast_to(prior, jacobian.shape[1]) ** -2.0)


def posterior(curvature: np.ndarray) -> np.ndarray:
    """Standard deviation of each ``z`` after the data (Laplace)."""
    return np.sqrt(np.diag(np.linalg.inv(curvature)))


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


def held_out(labels: Sequence[Hashable], errors_without: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Errors of the rows of each label by ``errors_without(part)``, a fit without these (a mask), which gives all."""
    errors = np.full(len(labels), np.nan)
    for one in dict.fromkeys(labels):
        part = np.array([label == one for label in labels])
        errors[part] = errors_without(part)[part]
    return errors


def _digest(group: Hashable) -> int:
    return int.from_bytes(hashlib.blake2b(repr(group).encode(), digest_size=8).digest(), "big")
