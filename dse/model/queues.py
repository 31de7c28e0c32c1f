"""Waits in queues, of plain numbers and of traced ones."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

from dse.types import Scalar


def waiting_share(utilisation: Scalar, places: Scalar) -> Scalar:
    """Return the share of requests that wait for one of ``places``, ``rho^(sqrt(2 (c + 1)) - 1)`` (Sakasegawa 1977).

    Over ``C (1 - rho)``, for a capacity ``C`` in requests/s, it is the mean wait in s where arrivals and answers have a
    squared coefficient of variation of 1; other ones scale it by their mean (Allen and Cunneen 1990).

    Args:
        utilisation: rate over capacity, 0 to 1.
        places: requests that are served at once.
    """
    root = jnp.sqrt if isinstance(places, jax.Array) else math.sqrt
    return utilisation ** (root(2.0 * (places + 1.0)) - 1.0)
