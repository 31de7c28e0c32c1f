r"""What a measurement is worth to a decision: expected value of sample information, from the shared factors.

The log metrics of the designs, and of what could be measured, are linear in the same standard normals ``z``
(:class:`dse.measured.uncertainty.posterior.Posterior`). A measurement ``y = c z + e`` with noise ``e`` of standard
deviation ``n`` moves the expected log metrics along one direction,

.. math:: E[u \mid y] = u_0 + s \, \xi, \qquad s = \frac{B c}{\sqrt{c^\top c + n^2}}, \qquad \xi \sim N(0, 1),

so its value, :math:`\min_d u_{0d} - E_\xi[\min_d (u_{0d} + s_d \xi)]`, is an integral over one number, without nested
simulation (Raiffa and Schlaifer, *Applied Statistical Decision Theory*, 1961, chapter 5; Frazier, Powell and Dayanik,
INFORMS J. Computing 21, 2009). What all designs share has the same ``s`` for each, and the value 0. Losses are of the
logarithm: how much worse, relatively, the chosen design is expected to be than the best.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dse.measured.uncertainty.posterior import Posterior, normal_quantiles


class MeasurementCandidate(NamedTuple):
    """A measurement that could be made."""

    name: str
    kind: str  #: ``gemm``, ``attention``, ``collective`` or ``run``
    effects: Mapping[str, float]  #: factor → change of its log by one standard deviation
    noise: float  #: standard deviation of the log of a measured value, the model's own error of it included
    predicted: float  #: value in SI units
    line: str = ""  #: command that measures it
    row: Mapping[str, str] = {}  #: columns of the table that ``dse calibrate`` reads back; the value is left open
    seconds: float = 0.0  #: how long it takes, roughly


#: Spread of a measurement of which nothing is open, but for rounding.
_MIN_SPREAD = 1e-9


class Belief(NamedTuple):
    """Expected losses of designs (log, the less the better), and the factors that they depend on."""

    losses: np.ndarray  #: expected [designs]
    matrix: np.ndarray  #: effects of independent standard normals [designs, factors]
    factors: list[str]  #: keys of the columns, as believed before any measurement
    basis: np.ndarray  #: factors before any measurement by those of today [factors, factors]
    centre: np.ndarray  #: their expectation [factors]

    @classmethod
    def from_posterior(cls, posterior: Posterior, higher_is_better: bool, extra_factors: Sequence[str] = ()) -> Belief:
        """Return the belief of a posterior, in losses: logs, of a metric of which more is better with the other sign.

        Args:
            posterior: log metrics of the designs with their factors.
            higher_is_better: direction of the metric.
            extra_factors: factors that only measurements have.
        """
        keys = list(dict.fromkeys([*posterior.effects, *extra_factors]))
        matrix, sign = posterior.effects_of(keys), -1.0 if higher_is_better else 1.0
        return cls(sign * posterior.logs, sign * matrix, keys, np.eye(len(keys)), np.zeros(len(keys)))

    def effects_of(self, candidate: MeasurementCandidate) -> np.ndarray:
        """Return the effects [factor] of today's factors on the log of a measurement."""
        return np.array([candidate.effects.get(key, 0.0) for key in self.factors]) @ self.basis

    def expected(self, candidate: MeasurementCandidate) -> float:
        """Return the expected log ratio of a measurement to its prediction before any other."""
        return float(np.array([candidate.effects.get(key, 0.0) for key in self.factors]) @ self.centre)

    def slope(self, candidate: MeasurementCandidate) -> np.ndarray:
        """Return the change of expected losses [design] per standard deviation of a measurement, 0 if none is open."""
        effects = self.effects_of(candidate)
        spread = np.sqrt(effects @ effects + candidate.noise**2)
        return np.asarray(self.matrix @ effects / spread) if spread > _MIN_SPREAD else np.zeros(len(self.losses))

    def after_measurement(self, candidate: MeasurementCandidate, change: float | None = None) -> Belief:
        """Return the belief after a measurement (a Gaussian update).

        Args:
            candidate: what is measured.
            change: measured over predicted before any measurement, logarithm; None: as expected, so that the spreads
                narrow alone.
        """
        effects = self.effects_of(candidate)
        squared = float(effects @ effects)
        if squared <= _MIN_SPREAD**2:
            return self
        variance = squared + candidate.noise**2
        gain = effects / variance
        surprise = 0.0 if change is None else change - self.expected(candidate)
        # Square root of 1 - c c' / (c'c + n^2): narrower along c alone.
        shrinkage = (1.0 - np.sqrt(candidate.noise**2 / variance)) / squared
        narrow = np.eye(len(effects)) - shrinkage * np.outer(effects, effects)
        return Belief(
            self.losses + self.matrix @ gain * surprise,
            self.matrix @ narrow,
            self.factors,
            self.basis @ narrow,
            self.centre + self.basis @ gain * surprise,
        )

    @property
    def best_design(self) -> int:
        """Index of the design of least expected loss."""
        return int(np.argmin(self.losses))

    @property
    def loss(self) -> float:
        """Expected loss of choosing today: the value of perfect information, in logarithms."""
        return loss_after(self, np.zeros((len(self.losses), 0)))


def measurement_value(belief: Belief, candidate: MeasurementCandidate) -> float:
    """Return by how much a measurement lowers the expected loss of a decision, in logarithms.

    Args:
        belief: before the measurement.
        candidate: what is measured.

    Returns:
        The difference of the expected losses, in logarithms; 0 or more.

    >>> belief = Belief(np.zeros(2), np.eye(2), ["a", "b"], np.eye(2), np.zeros(2))
    >>> round(measurement_value(belief, MeasurementCandidate("of a", "run", {"a": 1.0}, 0.0, 1.0)), 2)
    0.4
    >>> measurement_value(belief, MeasurementCandidate("of both", "run", {"a": 1.0, "b": 1.0}, 0.0, 1.0))
    0.0
    """
    slope = belief.slope(candidate)
    if np.ptp(slope) <= 1e-12:
        return 0.0
    informed = np.min(belief.losses[:, None] + slope[:, None] * normal_quantiles(_POINTS), axis=0).mean()
    return max(float(belief.losses.min() - informed), 0.0)


def loss_after(belief: Belief, slopes: np.ndarray) -> float:
    """Return the expected loss of the decision after measurements with slopes [designs, measurements].

    Args:
        belief: before the measurements.
        slopes: change of the expected losses per standard deviation of each measurement.

    Returns:
        The loss relative to the best design, in logarithms.
    """
    draws = _draws(belief.matrix.shape[1])
    perfect = np.min(belief.losses[:, None] + belief.matrix @ draws, axis=0).mean()
    informed = np.min(belief.losses[:, None] + slopes @ _draws(slopes.shape[1]), axis=0).mean()
    return float(max(informed - perfect, 0.0))


class RankedMeasurement(NamedTuple):
    """A measurement in the order of their gains."""

    candidate: MeasurementCandidate
    value: float  #: alone, before any other
    loss: float  #: expected loss of the decision with it and those before it


def measurement_order(
    belief: Belief, candidates: Sequence[MeasurementCandidate], count: int = 10
) -> list[RankedMeasurement]:
    """Return measurements in the order in which each lowers the expected loss most, given those before it.

    Args:
        belief: before any of them.
        candidates: what could be measured.
        count: at most so many; fewer where no further one is worth anything.

    Returns:
        The measurements, each with its value alone and the expected loss after it.
    """
    ranked: list[RankedMeasurement] = []
    slopes, current, remaining = np.zeros((len(belief.losses), 0)), belief, list(candidates)
    values = {id(candidate): measurement_value(belief, candidate) for candidate in candidates}
    loss = belief.loss
    while remaining and len(ranked) < count:
        losses = [loss_after(belief, np.column_stack([slopes, current.slope(candidate)])) for candidate in remaining]
        best = int(np.argmin(losses))
        if losses[best] > loss - _MIN_GAIN:
            break
        loss = losses[best]
        chosen = remaining.pop(best)
        slopes, current = np.column_stack([slopes, current.slope(chosen)]), current.after_measurement(chosen)
        ranked.append(RankedMeasurement(chosen, values[id(chosen)], loss))
    return ranked


#: Smallest gain of the expected loss that counts: a hundredth of a per cent.
_MIN_GAIN = 1e-4


#: Equally probable values that integrals over one number take.
_POINTS = 2001


@functools.lru_cache(maxsize=64)
def _draws(factors: int) -> np.ndarray:
    """Return standard normal draws [factors, draws] of a Latin hypercube.

    The draws of more factors begin with those of fewer.
    """
    orders = (np.random.default_rng(i).permutation(normal_quantiles(_POINTS)) for i in range(factors))
    return np.array([*orders]).reshape(factors, _POINTS)
