"""Goodput: the share of requests that meet both latency limits, from mean latencies and their distributions."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from dse.model.serving.intake import output_tokens_per_step
from dse.model.serving.steady import SteadyState
from dse.types import Load, Requests, Scalar, Serving

#: Three-point Gauss-Hermite quadrature of a normal distribution: points and weights.
_LENGTH_NODES = ((-math.sqrt(3.0), 1.0 / 6.0), (0.0, 2.0 / 3.0), (math.sqrt(3.0), 1.0 / 6.0))


def share_in_time(requests: Requests, serving: Serving, state: SteadyState, request_time: Scalar) -> Scalar:
    """Return the probability that a request meets both its limits of TTFT and TPOT, 1 without limits.

    Queueing time is exponential (Kingman 1962); prefill time is proportional to the prompt length, which is normal. The
    standard deviation of TPOT is that of the share of steps with prompts, ``sqrt(f (1 - f) / steps)``, times the extra
    time of such a step. Offline no first token meets a limit.

    Args:
        requests: with their limits.
        serving: how the engine serves.
        state: latencies of the rank.
        request_time: time of a request outside of the engine, s.
    """
    return _first_token_in_time(requests, state, request_time) * _tokens_in_time(requests, serving, state)


def _first_token_in_time(requests: Requests, state: SteadyState, request_time: Scalar) -> Scalar:
    """Return the probability of meeting the TTFT limit, a mean over prompt lengths, 1 without a limit."""
    limit, wait = requests.first_token_limit, jnp.maximum(state.waiting, 1e-9)

    def share_within(length: Scalar) -> Scalar:
        slack = limit - request_time - state.prompt * jnp.maximum(length, 0.0)
        return -jnp.expm1(-jnp.maximum(slack, 0.0) / wait)

    share = sum(weight * share_within(1.0 + requests.length_spread * point) for point, weight in _LENGTH_NODES)
    return jnp.where(limit > 0.0, jnp.where(has_unbounded_ttft(requests), 0.0, share), 1.0)


def has_unbounded_ttft(requests: Requests) -> Any:
    """Return a mask, true for offline queues, whose TTFT has no mean and no bound."""
    return requests.load == float(Load.offline)


def _tokens_in_time(requests: Requests, serving: Serving, state: SteadyState) -> Scalar:
    """Return the probability of meeting the TPOT limit, 1 without a limit.

    A normal distribution in its logistic approximation (Camilli 1994).
    """
    limit, steps = requests.token_limit, requests.output_tokens / output_tokens_per_step(serving)
    odds = jnp.maximum(1.0 - state.mixed, 0.0) / jnp.maximum(state.mixed * steps, 1e-9)
    spread = jnp.maximum(state.prefill * jnp.sqrt(odds), 1e-4 * state.token)
    z = jnp.clip(1.702 * (limit - state.token) / spread, -60.0, 60.0)
    return jnp.where(limit > 0.0, 1.0 / (1.0 + jnp.exp(-z)), 1.0)
