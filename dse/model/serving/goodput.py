"""Goodput: the share of requests that meet both latency limits, from mean latencies and their distributions."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from dse.model.serving.intake import tokens_of_a_step
from dse.model.serving.steady import Served
from dse.types import Load, Requests, Scalar, Serving

#: Three-point Gauss-Hermite quadrature of a normal distribution: points and weights.
_LENGTHS = ((-math.sqrt(3.0), 1.0 / 6.0), (0.0, 2.0 / 3.0), (math.sqrt(3.0), 1.0 / 6.0))


def share_in_time(requests: Requests, serving: Serving, found: Served, request_time: Scalar) -> Scalar:
    """Probability that a request meets its limits of TTFT and TPOT; 1 without limits.

    Queueing time is exponential (Kingman 1962); prefill time is proportional to the prompt length, which is normal. The
    standard deviation of TPOT is that of the share of steps with prompts, ``sqrt(f (1 - f) / steps)``, times the extra
    time of such a step. Offline no first token meets a limit.
    """
    return _first_in_time(requests, found, request_time) * _tokens_in_time(requests, serving, found)


def _first_in_time(requests: Requests, found: Served, request_time: Scalar) -> Scalar:
    limit, wait = requests.first_token_limit, jnp.maximum(found.waiting, 1e-9)

    def within(length: Scalar) -> Scalar:
        left = limit - request_time - found.prompt * jnp.maximum(length, 0.0)
        return -jnp.expm1(-jnp.maximum(left, 0.0) / wait)

    share = sum(weight * within(1.0 + requests.length_spread * point) for point, weight in _LENGTHS)
    return jnp.where(limit > 0.0, jnp.where(promises_none(requests), 0.0, share), 1.0)


def promises_none(requests: Requests) -> Any:
    """Whether TTFT is unbounded: offline queues have no mean TTFT."""
    return requests.load == float(Load.offline)


def _tokens_in_time(requests: Requests, serving: Serving, found: Served) -> Scalar:
    """Probability of meeting the TPOT limit: a normal distribution in its logistic approximation (Camilli 1994)."""
    limit, steps = requests.token_limit, requests.output_tokens / tokens_of_a_step(serving)
    odd = jnp.maximum(1.0 - found.mixed, 0.0) / jnp.maximum(found.mixed * steps, 1e-9)
    spread = jnp.maximum(found.prefill * jnp.sqrt(odd), 1e-4 * found.token)
    z = jnp.clip(1.702 * (limit - found.token) / spread, -60.0, 60.0)
    return jnp.where(limit > 0.0, 1.0 / (1.0 + jnp.exp(-z)), 1.0)
