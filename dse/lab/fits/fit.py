r"""Fits of few physical parameters to measurements, with one loss, one kind of prior, and one problem for all jobs.

For residuals ``e_i(x) = log(predicted / measured)`` and parameters ``x_j = T_j(z_j)``, each ``z_j`` with a normal prior
of standard deviation ``r_j`` (1 by default), a fit minimises (a maximum a posteriori estimate; Barron, CVPR 2019, for
the loss)

.. math:: \sum_i w_i \frac{\delta^2}{\sigma^2} \Big(\sqrt{1 + (e_i/\delta)^2} - 1\Big)
   + \frac12 \sum_j \Big(\frac{z_j}{r_j}\Big)^2

For rows with many outliers the loss redescends, ``delta^2 log(1 + (e / delta)^2 / 2)``: the weight of a row falls with
its residual.

``T_j`` is an exponential for a parameter without an upper bound and a logistic curve between two bounds, scaled such
that one unit of ``z`` is one prior spread of ``log x`` at the prior value.

A job states a :class:`FitProblem`: residuals and slopes of its rows, weights, noise. Problems of hundreds of rows of
the whole model use :func:`gauss_newton`, with slopes that may be finite differences (a clock chosen from a list has no
derivative). Fits to thousands of kernels descend along gradients of the same loss and priors.
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

#: Share of the prior spread below which a posterior spread counts as moved by the data; so does a shift by one spread.
MAX_SPREAD_RATIO = 0.7

#: Damping at which a descent without a gain ends.
_MAX_DAMPING = 1e4

#: One number, or one per row.
Scale = np.ndarray | float


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of a fit: leaf, prior, bounds. ``spread``: prior standard deviation of ``log x``; 0.3: about 30 %."""

    path: str
    prior: float
    spread: float
    lower: float = 0.0
    upper: float = math.inf

    def __post_init__(self) -> None:
        """Check that the bounds enclose the prior."""
        if not (0.0 <= self.lower < self.prior < self.upper and self.spread > 0.0):
            bounds = f"{self.lower:g} < prior < {self.upper:g}, spread > 0"
            got = f"prior {self.prior:g}, spread {self.spread:g}"
            raise InputError(self.path, got, bounds, "correct the parameter")

    def value(self, z: jax.Array | float) -> jax.Array:
        """Return the value of the leaf, in SI units, ``z`` prior spreads from the prior value."""
        if math.isinf(self.upper):
            return self.lower + (self.prior - self.lower) * jnp.exp(self._unit() * z)
        share = (self.prior - self.lower) / (self.upper - self.lower)
        centre = math.log(share / (1.0 - share))
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(centre + self._unit() * z)

    def times(self, factor: float) -> float:
        """Return the ``z`` at which a parameter without an upper bound is ``factor`` times its prior value."""
        return math.log((self.prior * factor - self.lower) / (self.prior - self.lower)) / self._unit()

    def slope(self, z: jax.Array | float) -> float:
        """Return the derivative of the logarithm of the value by ``z``, at ``z``."""
        return float(jax.grad(lambda z_value: jnp.log(self.value(z_value)))(jnp.asarray(z, jnp.result_type(float))))

    def _unit(self) -> float:
        """Return the step of the transform's argument that changes ``log x`` by one spread at the prior."""
        step = self.spread * self.prior / (self.prior - self.lower)
        return step if math.isinf(self.upper) else step * (self.upper - self.lower) / (self.upper - self.prior)


@dataclasses.dataclass(frozen=True)
class Fit:
    """Result of a fit."""

    values: dict[str, float]
    spread: dict[str, float]  #: posterior standard deviation of ``log x`` (Laplace)
    is_informed: dict[str, bool]  #: whether the data changed or narrowed the prior
    errors: np.ndarray  #: log(predicted / measured) per row
    loss: float  #: of the best start
    losses: tuple[float, ...]  #: of every start
    rows: int

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|."""
        return float(np.median(np.abs(np.expm1(self.errors))))


def fit_at(
    parameters: Sequence[Parameter], z: np.ndarray, z_spread: np.ndarray, errors: np.ndarray, *losses: float
) -> Fit:
    """Return the values, spreads of their logarithms and errors of a fit that ended at ``z``.

    Args:
        parameters: fitted parameters.
        z: their values in prior spreads.
        z_spread: posterior standard deviation of each ``z``.
        errors: log(predicted / measured) per row.
        losses: loss of every start.
    """
    parameter_values = list(zip(parameters, z, z_spread, strict=True))
    return Fit(
        values={p.path: float(p.value(z_value)) for p, z_value, _ in parameter_values},
        spread={p.path: float(s * abs(p.slope(z_value))) for p, z_value, s in parameter_values},
        is_informed={p.path: bool(s < MAX_SPREAD_RATIO or abs(z_value) > 1.0) for p, z_value, s in parameter_values},
        errors=np.asarray(errors),
        loss=float(np.nanmin(losses)),
        losses=losses,
        rows=len(errors),
    )


class Minimum(NamedTuple):
    """Minimum of a descent."""

    z: np.ndarray
    errors: np.ndarray  #: log(predicted / measured) per row
    curvature: np.ndarray  #: of the loss, by Gauss and Newton
    loss: float

    def fit(self, parameters: Sequence[Parameter]) -> Fit:
        """Return the values of parameters, spreads of their logarithms, and errors at the minimum."""
        return fit_at(parameters, self.z, posterior(self.curvature), self.errors, self.loss)


def gauss_newton(
    residuals: Callable[[np.ndarray], np.ndarray],
    slopes: Callable[[np.ndarray, np.ndarray], np.ndarray],
    start: np.ndarray,
    weights: np.ndarray,
    *,
    noise: Scale,
    delta: Scale,
    prior: Scale = 1.0,
    centre: Scale = 0.0,
    pace: tuple[float, float] = (0.2, 5.0),
    tolerance: float = 1e-4,
    steps: int = 40,
) -> Minimum:
    """Return a local minimum by damped Gauss-Newton steps of up to one unit of ``z`` (Levenberg 1944, Marquardt 1963).

    Args:
        residuals: log(predicted / measured) of every row at ``z``.
        slopes: their derivatives (rows x parameters) at ``z``, for the given residuals.
        start: initial ``z``.
        weights: per row.
        noise: standard deviation of a residual, one or per row, against which priors are weighted.
        delta: size of a residual above which the loss is linear.
        prior: prior standard deviation of each ``z``.
        centre: prior mean of each ``z``.
        pace: factors of the damping after a successful and after a failed step.
        tolerance: relative reduction of the loss below which the descent ends without the step.
        steps: maximum number.
    """

    def loss_of(z: np.ndarray, errors: np.ndarray) -> float:
        return float(weights @ (robust(errors, delta) / noise**2) + 0.5 * np.sum(((z - centre) / prior) ** 2))

    def expansion(z: np.ndarray, errors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Curvature and gradient of the loss."""
        jacobian, counts = slopes(z, errors), weights * influence(errors, delta) / noise**2
        return curvature(jacobian, counts, prior), jacobian.T @ (counts * errors) + (z - centre) / prior**2

    calm, rough = pace
    z, errors, damping = start, residuals(start), 1e-2
    loss = loss_of(z, errors)
    matrix, gradient = expansion(z, errors)
    for _ in range(steps):
        gain = 0.0
        while not gain and damping < _MAX_DAMPING:
            move = -np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), gradient)
            trial = z + np.clip(move, -1.0, 1.0)
            trial_errors = residuals(trial)
            trial_loss = loss_of(trial, trial_errors)
            gain, damping = (loss - trial_loss, calm * damping) if trial_loss < loss else (0.0, rough * damping)
        if gain < tolerance * (1.0 + loss):
            break
        z, errors, loss = trial, trial_errors, trial_loss
        matrix, gradient = expansion(z, errors)
    return Minimum(z, errors, matrix, loss)


@dataclasses.dataclass(frozen=True)
class FitProblem:
    """A fit as data: residuals and slopes of rows, weights, and priors."""

    residuals: Callable[[np.ndarray], np.ndarray]  #: log(predicted / measured) of every row at ``z``
    slopes: Callable[[np.ndarray, np.ndarray], np.ndarray]  #: (rows x parameters) at ``z``, for the given residuals
    weights: np.ndarray  #: per row
    noise: Scale  #: standard deviation of a residual against which priors are weighted
    delta: Scale  #: size of a residual above which the loss is linear
    prior: np.ndarray  #: prior standard deviation of each ``z``
    centre: Scale = 0.0  #: prior mean of each
    starts: int = 1  #: descents: the first from the priors, the others half a spread around them
    pace: tuple[float, float] = (0.2, 5.0)  #: this and the next two: see :func:`gauss_newton`
    tolerance: float = 1e-4
    steps: int = 40

    def solve(self, weights: np.ndarray | float = 1.0, start: np.ndarray | None = None) -> Minimum:
        """Return the minimum with the rows' weights times ``weights``, from ``start``, else the best of all starts."""
        draws = 0.5 * np.random.default_rng(0).standard_normal((self.starts - 1, len(self.prior)))
        starting_points = [np.zeros(len(self.prior)), *draws] if start is None else [start]
        ends = [
            gauss_newton(
                self.residuals,
                self.slopes,
                first,
                self.weights * weights,
                noise=self.noise,
                delta=self.delta,
                prior=self.prior,
                centre=self.centre,
                pace=self.pace,
                tolerance=self.tolerance,
                steps=self.steps,
            )
            for first in starting_points
        ]
        return min(ends, key=lambda end: end.loss)

    def cross_validate(
        self, labels: Sequence[Hashable], start: np.ndarray | None = None, otherwise: np.ndarray | None = None
    ) -> np.ndarray:
        """Return log(predicted / measured) of every row [row] by a fit without the rows of its label.

        Args:
            labels: one per row.
            start: of each fit, by default the priors.
            otherwise: ``z`` where no row is left; by default that of a fit without rows.
        """
        first = np.zeros(len(self.prior)) if start is None else start

        def errors_without(part: np.ndarray) -> np.ndarray:
            if otherwise is not None and part.all():
                return self.residuals(otherwise)
            return self.solve(~part, first).errors

        return cross_validation_errors(labels, errors_without)


def differences(
    residuals_of_sets: Callable[[np.ndarray], np.ndarray], step: float
) -> tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Return two functions: ``z`` → residuals [row], and ``z``, residuals → slopes [row, parameter], by differences.

    Args:
        residuals_of_sets: residuals [set, row] at many ``z`` [set, parameter].
        step: of the differences.
    """
    return (
        lambda z: residuals_of_sets(z[None])[0],
        lambda z, errors: (residuals_of_sets(z + step * np.eye(len(z))) - errors).T / step,
    )


def robust(errors: Any, delta: Any, redescending: bool = False) -> Any:
    """Return the robust loss per residual: half the square of small, ``delta`` times large ones (Charbonnier 1994).

    Args:
        errors: residuals.
        delta: size above which the loss is linear.
        redescending: a logarithm for large errors instead.
    """
    xp = np if isinstance(errors, np.ndarray) else jnp
    square = (errors / delta) ** 2
    return delta**2 * (xp.log1p(0.5 * square) if redescending else xp.sqrt(1.0 + square) - 1.0)


def influence(errors: np.ndarray, delta: Scale, redescending: bool = False) -> np.ndarray:
    """Return the weight (0 to 1) of residuals in the robust loss, its slope over the residual: 1 for small ones.

    Args:
        errors: residuals.
        delta: size above which the loss is linear.
        redescending: of the logarithmic loss instead.
    """
    square = (errors / delta) ** 2
    return 1.0 / (1.0 + 0.5 * square) if redescending else 1.0 / np.sqrt(1.0 + square)


def curvature(jacobian: np.ndarray, weights: np.ndarray, prior: np.ndarray | float = 1.0) -> np.ndarray:
    """Return ``J' W J`` plus the curvature of the priors [parameter, parameter] (Gauss-Newton).

    Args:
        jacobian: slopes of residuals [row, parameter].
        weights: of the rows, ``W``.
        prior: prior standard deviation of each ``z``.
    """
    return jacobian.T @ (weights[:, None] * jacobian) + np.diag(np.broadcast_to(prior, jacobian.shape[1]) ** -2.0)


def posterior(curvature: np.ndarray) -> np.ndarray:
    """Return the posterior standard deviation of each ``z`` from the curvature [parameter, parameter] (Laplace)."""
    return np.sqrt(np.diag(np.linalg.inv(curvature)))


def folds(groups: Iterable[Hashable], k: int) -> np.ndarray:
    """Return the index of the fold of every row [row], the same for a group in every run and order of rows.

    Args:
        groups: group of each row.
        k: number of folds.

    Returns:
        0 to ``k - 1``, [rows].
    >>> first, second, third = folds(["a", "b", "a"], 5)
    >>> bool(first == third)
    True
    """
    return np.array([_digest(group) % k for group in groups], int)


def cross_validation_errors(
    labels: Sequence[Hashable], errors_without: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Return the error of every row [row] by a fit without the rows of its label.

    Args:
        labels: one per row.
        errors_without: mask of left-out rows → errors of all rows by a fit without them.
    """
    errors = np.full(len(labels), np.nan)
    for label in dict.fromkeys(labels):
        is_left_out = np.array([row_label == label for row_label in labels])
        errors[is_left_out] = errors_without(is_left_out)[is_left_out]
    return errors


def _digest(group: Hashable) -> int:
    """Return a hash of a group as an integer of 64 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(group).encode(), digest_size=8).digest(), "big")
