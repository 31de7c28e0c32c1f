"""Overlap of compute and memory within a kernel, and splits of a chain over idle cores."""

from __future__ import annotations

import jax.numpy as jnp

from dse.types import Scalar


def combine(compute: Scalar, memory: Scalar, blend: Scalar) -> Scalar:
    """Return the roofline time of two resources, s: ``max + kappa min`` with ``blend`` as kappa.

    ``kappa = 0`` is the perfect roofline, 1 no overlap; ``kappa = 2^(1/q) - 1`` equals the p-norm of order ``q`` at
    the ridge, at a fortieth of the cost of a power.
    """
    return jnp.maximum(compute, memory) + blend * jnp.minimum(compute, memory)


def overlapped(first: Scalar, second: Scalar, blend: Scalar) -> Scalar:
    """Return the time of two resources that overlap except near the ridge, s: ``max + blend min^2 / max``."""
    max_time, min_time = jnp.maximum(first, second), jnp.minimum(first, second)
    return max_time + blend * min_time * min_time / jnp.maximum(max_time, 1e-12)


def best_splits(chain_time: Scalar, split_time: Scalar, load: Scalar) -> Scalar:
    """Return the optimal count of cores for a chain: ``sqrt(chain_time / split_time)``, from 1 to the idle ones.

    Each further split costs ``split_time``; ``load``: chains per core. (Osama et al., PPoPP 2023, on work-centric
    decomposition of GEMMs; Dao et al. 2023, flash decoding.)
    """
    return jnp.clip(jnp.sqrt(chain_time / split_time), 1.0, jnp.maximum(1.0 / load, 1.0))
