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

A job states a :class:`FitProblem`: residuals and slopes of its rows, weights, noise. Slopes are derivatives of a
function that JAX traces (:func:`derivatives`), or finite differences (:func:`differences`): a clock that is chosen from
a list has no derivative. All are solved by damped Gauss-Newton steps (Levenberg 1944, Marquardt 1963).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
        return self.lower + (self.upper - self.lower) * jax.nn.sigmoid(self._logit(self.prior) + self._unit() * z)

    def z_of(self, value: float) -> float:
        """Return the ``z`` of a value (the inverse of :meth:`value`), infinite at a bound and beyond."""
        if not self.lower < value < self.upper:
            return math.copysign(math.inf, value - self.prior)
        if math.isinf(self.upper):
            return math.log((value - self.lower) / (self.prior - self.lower)) / self._unit()
        return (self._logit(value) - self._logit(self.prior)) / self._unit()

    def times(self, factor: float) -> float:
        """Return the ``z`` at which a parameter is ``factor`` times its prior value."""
        return self.z_of(self.prior * factor)

    def slope(self, z: jax.Array | float) -> float:
        """Return the derivative of the logarithm of the value by ``z``, at ``z``."""
        return float(jax.grad(lambda z_value: jnp.log(self.value(z_value)))(jnp.asarray(z, jnp.result_type(float))))

    def _logit(self, value: float) -> float:
        """Return the logarithm of the odds of a value's place between the bounds."""
        share = (value - self.lower) / (self.upper - self.lower)
        return math.log(share / (1.0 - share))

    def _unit(self) -> float:
        """Return the step of the transform's argument that changes ``log x`` by one spread at the prior."""
        step = self.spread * self.prior / (self.prior - self.lower)
        return step if math.isinf(self.upper) else step * (self.upper - self.lower) / (self.upper - self.prior)


def parameters_of(table: Mapping[str, Mapping[str, Any]], prefix: str = "") -> tuple[Parameter, ...]:
    """Return the parameters of a table: name of a leaf, after ``prefix``, → prior, spread, bounds, in SI units."""
    bounds = ("lower", "upper")
    return tuple(
        Parameter(f"{prefix}{name}", row["prior"], row["spread"], **{end: row[end] for end in bounds if end in row})
        for name, row in table.items()
    )


@dataclasses.dataclass(frozen=True)
class Fit:
    """Result of a fit."""

    values: dict[str, float]
    spread: dict[str, float]  #: posterior standard deviation of ``log x`` (Laplace)
    is_informed: dict[str, bool]  #: whether the data changed or narrowed the prior
    errors: np.ndarray  #: log(predicted / measured) per row
    loss: float
    rows: int

    @property
    def median_error(self) -> float:
        """Median of |predicted / measured - 1|."""
        return float(np.median(np.abs(np.expm1(self.errors))))


def fit_at(
    parameters: Sequence[Parameter], z: np.ndarray, z_spread: np.ndarray, errors: np.ndarray, loss: float
) -> Fit:
    """Return the values, spreads of their logarithms and errors of a fit that ended at ``z``.

    Args:
        parameters: fitted parameters.
        z: their values in prior spreads.
        z_spread: posterior standard deviation of each ``z``.
        errors: log(predicted / measured) per row.
        loss: at the end.
    """
    parameter_values = list(zip(parameters, z, z_spread, strict=True))
    return Fit(
        values={p.path: float(p.value(z_value)) for p, z_value, _ in parameter_values},
        spread={p.path: float(s * abs(p.slope(z_value))) for p, z_value, s in parameter_values},
        is_informed={p.path: bool(s < MAX_SPREAD_RATIO or abs(z_value) > 1.0) for p, z_value, s in parameter_values},
        errors=np.asarray(errors),
        loss=loss,
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
    redescending: bool = False  #: whether the loss of large residuals is a logarithm instead
    starts: int = 1  #: descents: the first from the priors, the others half a spread around them
    pace: tuple[float, float] = (0.2, 5.0)  #: factors of the damping after a successful and after a failed step
    tolerance: float = 1e-4  #: relative reduction of the loss below which a descent ends without the step
    steps: int = 40  #: of a descent, at most

    def solve(self, weights: np.ndarray | float = 1.0, start: np.ndarray | None = None) -> Minimum:
        """Return the minimum with the rows' weights times ``weights``, from ``start``, else the best of all starts.

        Raises:
            InputError: for residuals that are no numbers at all starts.
        """
        draws = 0.5 * np.random.default_rng(0).standard_normal((self.starts - 1, len(self.prior)))
        starting_points = [np.zeros(len(self.prior)), *draws] if start is None else [start]
        best = min((self._descend(z, self.weights * weights) for z in starting_points), key=lambda end: end.loss)
        if not math.isfinite(best.loss):
            raise InputError("fit", "no finite loss", "finite residuals at the priors", "drop the rows that fail")
        return best

    def _descend(self, z: np.ndarray, weights: np.ndarray) -> Minimum:
        """Return a local minimum by damped Gauss-Newton steps of up to one unit of ``z`` (Levenberg, Marquardt)."""
        errors, damping = self.residuals(z), 1e-2
        loss = self._loss(z, errors, weights)
        matrix, gradient = self._expansion(z, errors, weights)
        if not math.isfinite(loss):
            return Minimum(z, errors, matrix, math.inf)
        for _ in range(self.steps):
            gain = 0.0
            while not gain and damping < _MAX_DAMPING:
                move = -np.linalg.solve(matrix + damping * np.diag(np.diag(matrix)), gradient)
                trial = z + np.clip(move, -1.0, 1.0)
                trial_errors = self.residuals(trial)
                trial_loss = self._loss(trial, trial_errors, weights)
                gain = loss - trial_loss if trial_loss < loss else 0.0
                damping *= self.pace[0] if gain else self.pace[1]
            if gain < self.tolerance * (1.0 + loss):
                break
            z, errors, loss = trial, trial_errors, trial_loss
            matrix, gradient = self._expansion(z, errors, weights)
        return Minimum(z, errors, matrix, loss)

    def _loss(self, z: np.ndarray, errors: np.ndarray, weights: np.ndarray) -> float:
        """Return the loss of rows and priors."""
        of_rows = weights @ (robust(errors, self.delta, self.redescending) / self.noise**2)
        return float(of_rows + 0.5 * np.sum(((z - self.centre) / self.prior) ** 2))

    def _expansion(self, z: np.ndarray, errors: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return curvature and gradient of the loss."""
        jacobian = self.slopes(z, errors)
        counts = weights * influence(errors, self.delta, self.redescending) / self.noise**2
        gradient = jacobian.T @ (counts * errors) + (z - self.centre) / self.prior**2
        return curvature(jacobian, counts, self.prior), gradient

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


#: Functions of ``z`` → residuals [row], and of ``z`` and these → slopes [row, parameter], as a problem takes them.
Linearisation = tuple[Callable[[np.ndarray], np.ndarray], Callable[[np.ndarray, np.ndarray], np.ndarray]]


def differences(residuals_of_sets: Callable[[np.ndarray], np.ndarray], step: float) -> Linearisation:
    """Return residuals, and slopes by differences.

    Args:
        residuals_of_sets: residuals [set, row] at many ``z`` [set, parameter].
        step: of the differences.
    """
    return (
        lambda z: residuals_of_sets(z[None])[0],
        lambda z, errors: (residuals_of_sets(z + step * np.eye(len(z))) - errors).T / step,
    )


def derivatives(residuals: Callable[..., jax.Array], *data: Any) -> Linearisation:
    """Return residuals, and slopes by derivatives of a function that JAX traces.

    Args:
        residuals: of ``z`` and ``data`` → residuals [row].
        data: arrays; large ones belong here, not into a closure.
    """
    errors, slopes = jax.jit(residuals), jax.jit(jax.jacfwd(residuals))

    def array(function: Callable[..., jax.Array], z: np.ndarray) -> np.ndarray:
        return np.asarray(function(jnp.asarray(z, jnp.result_type(float)), *data), float)

    return lambda z: array(errors, z), lambda z, _: array(slopes, z)


def robust(errors: np.ndarray, delta: Scale, redescending: bool = False) -> np.ndarray:
    """Return the robust loss per residual: half the square of small, ``delta`` times large ones (Charbonnier 1994).

    Args:
        errors: residuals.
        delta: size above which the loss is linear.
        redescending: a logarithm for large errors instead.
    """
    square = (errors / delta) ** 2
    return delta**2 * (np.log1p(0.5 * square) if redescending else np.sqrt(1.0 + square) - 1.0)


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
    """Return the error of every row [row] by a fit without the rows of its label, NaN for rows whose label is "".

    Args:
        labels: one per row.
        errors_without: mask of left-out rows → errors of all rows by a fit without them.
    """
    errors = np.full(len(labels), np.nan)
    for label in dict.fromkeys(label for label in labels if label != ""):
        is_left_out = np.array([row_label == label for row_label in labels])
        errors[is_left_out] = errors_without(is_left_out)[is_left_out]
    return errors


def _digest(group: Hashable) -> int:
    """Return a hash of a group as an integer of 64 bits, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(group).encode(), digest_size=8).digest(), "big")
