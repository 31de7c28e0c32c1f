"""The share of requests that are answered in time, from means and how requests spread about them."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp

from dse.model.serving.steady import Served, tokens_of_a_step
from dse.types import Load, Requests, Scalar, Serving

#: Three lengths and their weights that have the mean and the variance of a normal distribution (Gauss-Hermite).
_LENGTHS = ((-math.sqrt(3.0), 1.0 / 6.0), (0.0, 2.0 / 3.0), (math.sqrt(3.0), 1.0 / 6.0))


def share_in_time(requests: Requests, serving: Serving, found: Served, request_time: Scalar) -> Scalar:
    """Chance that a request keeps the limits of its first token and of its mean output token; 1 where it has none.

    Waiting is exponential about its mean, as the tail of a queue is (Kingman 1962); a prompt takes time in proportion
    to its length, of which three stand for all. A mean output token spreads as the number of steps with prompts among
    those of an answer does: ``sqrt(f (1 - f) / steps)`` of what such a step takes more. Of an offline queue, which has
    no end, no first token is in time.
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
    """Whether no time to the first token can be promised: an offline queue has no end, its first tokens no mean."""
    return requests.load == float(Load.offline)


def _tokens_in_time(requests: Requests, serving: Serving, found: Served) -> Scalar:
    """A normal distribution, taken as logistic (Camilli 1994)."""
    limit, steps = requests.token_limit, requests.output_tokens / tokens_of_a_step(serving)
    odd = jnp.maximum(1.0 - found.mixed, 0.0) / jnp.maximum(found.mixed * steps, 1e-9)
    spread = jnp.maximum(found.prefill * jnp.sqrt(odd), 1e-4 * found.token)
    z = jnp.clip(1.702 * (limit - found.token) / spread, -60.0, 60.0)
    return jnp.where(limit > 0.0, 1.0 / (1.0 + jnp.exp(-z)), 1.0)
