"""What fitted parameters leave unexplained, set by rows that the fit had not seen.

A class of rows (a software stack) gets the residual at which the share ``SHARE`` of its unseen rows lies in their
intervals. Few rows say little, so the rows of all other stacks count too, together as ``OTHERS`` rows.
"""

from __future__ import annotations

import numpy as np

from dse.measured.uncertainty import SHARE, quantile

#: Rows that the other stacks count as, each source alike.
OTHERS = 6.0

#: No residual is below this: clocks alone differ that much between nodes.
_LEAST = 0.01


def residual(errors: np.ndarray, deviations: np.ndarray, weights: np.ndarray, share: float = SHARE) -> float:
    """The residual whose intervals hold ``share`` of the weight.

    Args:
        errors: log(predicted / measured) of rows.
        deviations: of their predictions over the parameters' spread, as standard deviations of the logarithm.
        weights: of the rows.
        share: to be held.
    """
    needed = np.sqrt(np.maximum((errors / quantile(share)) ** 2 - deviations**2, 0.0))
    order = np.argsort(needed)
    held = np.cumsum(weights[order])
    # Half of a row's own weight counts as held: else few rows would always be held too widely.
    place = np.searchsorted(held - 0.5 * weights[order], share * held[-1])
    return max(float(needed[order][min(place, len(order) - 1)]), _LEAST)


def of_class(
    members: np.ndarray, sources: np.ndarray, errors: np.ndarray, deviations: np.ndarray, trust: np.ndarray
) -> float:
    """The residual of the rows that ``members`` marks, with some weight on all others."""
    weights = np.where(members, trust, 0.0)
    others = np.where(members, 0.0, trust * _alike(sources))
    if others.sum() > 0.0:
        weights = weights + others * OTHERS / others.sum()
    return residual(errors, deviations, weights)


def of_unmeasured(sources: np.ndarray, errors: np.ndarray, deviations: np.ndarray, trust: np.ndarray) -> float:
    """The residual of a stack without rows, from the errors of sources that a fit had not seen.

    Each publisher counts alike: releases of one are not strangers to one another, so many of them say little.
    """
    publishers = np.array([source.partition("_")[0] for source in sources])
    return residual(errors, deviations, trust * _alike(publishers))


def _alike(sources: np.ndarray) -> np.ndarray:
    """Weights by which each source counts the same."""
    size = {source: np.count_nonzero(sources == source) for source in set(sources)}
    return np.array([1.0 / size[source] for source in sources])


def coverage(errors: np.ndarray, deviations: np.ndarray, residuals: np.ndarray, share: float = SHARE) -> float:
    """Share of the rows that lie in their intervals."""
    return float(np.mean(np.abs(errors) <= quantile(share) * np.hypot(deviations, residuals)))
