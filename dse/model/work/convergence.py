"""Tokens of a training run as a function of the batch size."""

from __future__ import annotations

import jax.numpy as jnp

from dse.types import Convergence, Scalar, Workload


def critical_batch(convergence: Convergence) -> Scalar:
    """Return the critical batch size in tokens, where a loss takes twice the minimum tokens and twice the steps.

    At least 1; as stated, or by the target loss: ``B* / L^(1 / alpha_B)`` (Kaplan et al. 2020, section 5.1).
    """
    c = convergence
    by_loss = c.critical_scale / c.target_loss ** (1.0 / c.critical_exponent)
    return jnp.maximum(jnp.where(c.critical_batch > 0.0, c.critical_batch, by_loss), 1.0)


def run_tokens(workload: Workload) -> Scalar:
    """Return the count of tokens of a training run at the batch size of ``workload``.

    Without a convergence model they are its ``run_tokens``.

    ``E = E_min (1 + B / B_crit)`` in ``S = E / B = S_min (1 + B_crit / B)`` steps (McCandlish et al. 2018, equation
    2.11); ``run_tokens`` holds at the reference batch.
    """
    convergence = workload.convergence
    if convergence is None:
        return workload.run_tokens
    critical = critical_batch(convergence)
    batch = workload.global_batch * workload.seq_len
    return workload.run_tokens * ((critical + batch) / (critical + convergence.reference_batch))
