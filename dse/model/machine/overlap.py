"""Two resources of a device that work on one kernel: how their times combine, and how idle cores share a chain."""

from __future__ import annotations

import jax.numpy as jnp

from dse.types import Scalar


def combine(compute: Scalar, memory: Scalar, blend: Scalar) -> Scalar:
    """Roofline of two resources: ``max + kappa min``.

    ``kappa = 0`` is the perfect roofline, 1 no overlap; ``kappa = 2^(1/q) - 1`` meets the p-norm of
    order ``q`` at the ridge, at a fortieth of the cost of a power.
    """
    return jnp.maximum(compute, memory) + blend * jnp.minimum(compute, memory)


def overlapped(longer: Scalar, shorter: Scalar, blend: Scalar) -> Scalar:
    """Two resources that overlap but near the ridge: ``max + kappa min^2 / max``, whichever is longer."""
    most, least = jnp.maximum(longer, shorter), jnp.minimum(longer, shorter)
    return most + blend * least * least / jnp.maximum(most, 1e-12)


def best_splits(whole: Scalar, split_time: Scalar, load: Scalar) -> Scalar:
    """Cores over which a chain of ``whole`` seconds is split best: ``sqrt(whole / split_time)``, as far as some idle.

    One more split costs ``split_time``; ``load`` is the chains of each core. (Osama et al., PPoPP 2023, on
    work-centric decomposition of GEMMs; Dao et al. 2023, flash decoding.)
    """
    return jnp.clip(jnp.sqrt(whole / split_time), 1.0, jnp.maximum(1.0 / load, 1.0))
