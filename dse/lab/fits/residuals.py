"""Residual uncertainty beyond the fitted parameters, from rows unseen by the fit.

A class of rows (a software stack) gets the residual at which a share ``SHARE`` of its unseen rows lies within their
intervals. Since classes are small, the rows of all other stacks count too, together as ``OTHERS`` rows.
"""

from __future__ import annotations

import numpy as np

from dse.measured.uncertainty.parts import COVERAGE, quantile

#: Weight of the rows of all other stacks, equal per source.
OTHERS_WEIGHT = 6.0

#: Minimum residual: clocks alone differ by this between nodes.
_MIN_RESIDUAL = 0.01


def residual(errors: np.ndarray, deviations: np.ndarray, weights: np.ndarray, share: float = COVERAGE) -> float:
    """Return the residual (deviation of the logarithm, at least 0.01) whose intervals cover ``share`` of the weight.

    Args:
        errors: log(predicted / measured) of rows.
        deviations: standard deviations of the log predictions over the parameters' spread.
        weights: of the rows.
        share: covered share.
    """
    row_residuals = np.sqrt(np.maximum((errors / quantile(share)) ** 2 - deviations**2, 0.0))
    order = np.argsort(row_residuals)
    cumulative_weights = np.cumsum(weights[order])
    # Half of a row's own weight counts as covered; otherwise few rows would always get wide intervals.
    index = np.searchsorted(cumulative_weights - 0.5 * weights[order], share * cumulative_weights[-1])
    return max(float(row_residuals[order][min(index, len(order) - 1)]), _MIN_RESIDUAL)


def class_residual(
    members: np.ndarray, sources: np.ndarray, errors: np.ndarray, deviations: np.ndarray, trust: np.ndarray
) -> float:
    """Return the residual (deviation of the logarithm) of a class of rows, with a small weight on all others.

    Args:
        members: mask of the rows of the class.
        sources: source of each row.
        errors: log(predicted / measured) of rows.
        deviations: standard deviations of the log predictions over the parameters' spread.
        trust: weight of each row.
    """
    weights = np.where(members, trust, 0.0)
    other_weights = np.where(members, 0.0, trust * _equal_weights(sources))
    if other_weights.sum() > 0.0:
        weights = weights + other_weights * OTHERS_WEIGHT / other_weights.sum()
    return residual(errors, deviations, weights)


def unmeasured_residual(sources: np.ndarray, errors: np.ndarray, deviations: np.ndarray, trust: np.ndarray) -> float:
    """Return the residual (deviation of the logarithm) of a stack without rows, from sources unseen by the fit.

    All publishers have equal weight, since several releases of one publisher are not independent.

    Args:
        sources: source of each row.
        errors: log(predicted / measured) by fits without the source.
        deviations: standard deviations of the log predictions over the parameters' spread.
        trust: weight of each row.
    """
    publishers = np.array([source.partition("_")[0] for source in sources])
    return residual(errors, deviations, trust * _equal_weights(publishers))


def _equal_weights(sources: np.ndarray) -> np.ndarray:
    """Return weights [row] that sum to 1 per source."""
    size = {source: np.count_nonzero(sources == source) for source in set(sources)}
    return np.array([1.0 / size[source] for source in sources])


def coverage(errors: np.ndarray, deviations: np.ndarray, residuals: np.ndarray, share: float = COVERAGE) -> float:
    """Return the share (0 to 1) of the rows within their intervals.

    Args:
        errors: log(predicted / measured) of rows.
        deviations: standard deviations of the log predictions over the parameters' spread.
        residuals: residual of each row.
        share: that intervals should cover.
    """
    return float(np.mean(np.abs(errors) <= quantile(share) * np.hypot(deviations, residuals)))
