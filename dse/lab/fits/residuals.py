"""Residual uncertainty beyond the fitted parameters, from rows unseen by the fit.

A class of rows (a software stack) gets the residual at which a share ``SHARE`` of its unseen rows lies within their
intervals. Since classes are small, the rows of all other stacks count too, together as ``OTHERS`` rows.
"""

from __future__ import annotations

import numpy as np

from dse.measured.uncertainty.parts import SHARE, quantile

#: Weight of the rows of all other stacks, equal per source.
OTHERS = 6.0

#: Minimum residual: clocks alone differ by this between nodes.
_LEAST = 0.01


def residual(errors: np.ndarray, deviations: np.ndarray, weights: np.ndarray, share: float = SHARE) -> float:
    """The residual whose intervals cover ``share`` of the weight.

    Args:
        errors: log(predicted / measured) of rows.
        deviations: standard deviations of the log predictions over the parameters' spread.
        weights: of the rows.
        share: covered share.
    """
    needed = np.sqrt(np.maximum((errors / quantile(share)) ** 2 - deviations**2, 0.0))
    order = np.argsort(needed)
    held = np.cumsum(weights[order])
    # Half of a row's own weight counts as covered; otherwise few rows would always get wide intervals.
    place = np.searchsorted(held - 0.5 * weights[order], share * held[-1])
    return max(float(needed[order][min(place, len(order) - 1)]), _LEAST)


def of_class(
    members: np.ndarray, sources: np.ndarray, errors: np.ndarray, deviations: np.ndarray, trust: np.ndarray
) -> float:
    """The residual of the rows marked by ``members``, with a small weight on all others."""
    weights = np.where(members, trust, 0.0)
    others = np.where(members, 0.0, trust * _equal_weights(sources))
    if others.sum() > 0.0:
        weights = weights + others * OTHERS / others.sum()
    return residual(errors, deviations, weights)


def of_unmeasured(sources: np.ndarray, errors: np.ndarray, deviations: np.ndarray, trust: np.ndarray) -> float:
    """The residual of a stack without rows, from the errors of sources unseen by the fit.

    All publishers have equal weight, since several releases of one publisher are not independent.
    """
    publishers = np.array([source.partition("_")[0] for source in sources])
    return residual(errors, deviations, trust * _equal_weights(publishers))


def _equal_weights(sources: np.ndarray) -> np.ndarray:
    """Weights that sum to the same value per source."""
    size = {source: np.count_nonzero(sources == source) for source in set(sources)}
    return np.array([1.0 / size[source] for source in sources])


def coverage(errors: np.ndarray, deviations: np.ndarray, residuals: np.ndarray, share: float = SHARE) -> float:
    """Share of the rows within their intervals."""
    return float(np.mean(np.abs(errors) <= quantile(share) * np.hypot(deviations, residuals)))
