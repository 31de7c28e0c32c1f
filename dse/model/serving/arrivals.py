"""Open loads: requests in flight, utilisation and wait where requests arrive at a rate, whatever is in flight."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import given
from dse.model.queues import waiting_share
from dse.model.serving.intake import tokens_of_a_step
from dse.model.serving.steady import Served, steady, steps_of
from dse.model.serving.work import Rank
from dse.types import Requests, Scalar, Serving

#: Iterations of the sequences in flight.
_ROUNDS = 5

#: Least sequences of the first one, and least share of an engine's time that prompts and sequences leave.
_FIRST, _LEFT = 16.0, 1e-3

#: Sequences in flight before any are known to be too few, or too many.
_BOUNDS = 1e-3, 1e12


class Arriving(NamedTuple):
    """Requests that arrive at a data-parallel rank."""

    rate: Scalar  # requests/s
    variation: Scalar  # squared coefficient of variation of the time between arrivals
    capacity: Scalar  # requests/s that it can serve
    decoding: Scalar  # sequences that decode, mean
    met: Scalar  # requests in flight with an arriving one, mean

    @property
    def utilisation(self) -> Scalar:
        """Rate over capacity; above 1 the queue grows without end."""
        return self.rate / self.capacity


class OpenLoop(NamedTuple):
    """An engine whose requests arrive at a rate."""

    served: Served
    busy: Scalar  # share of the time with a request


def arriving(rank: Rank, ranks: Scalar, limit: Scalar) -> Arriving:
    """Requests at one of ``ranks`` ranks, each of which gets the next one by chance.

    A step with ``n`` decoding sequences takes ``S = T_0 + a n + lambda S p``: ``p`` seconds for each prompt that
    arrived. With ``n = lambda t S`` for ``t`` steps of an answer (Little's law), ``n = lambda t T_0 / (1 - lambda (p +
    t a))``. An arrival finds ``n`` others (Poisson arrivals see time averages, Wolff 1982) and makes one more.

    ``T_0``, ``a`` and ``p`` are those of the sequences in flight, found by a secant from those of a step time that is
    linear up to the limit, and kept between the most that were too few and the fewest that were too many.

    Args:
        rank: the rank with its requests and engine.
        ranks: data-parallel ranks that share the requests.
        limit: most requests in flight.
    """
    requests, serving = rank.requests, rank.serving
    assert requests.request_rate is not None, "asked of open loads alone"
    rate, turns = requests.request_rate / ranks, (requests.output_tokens - 1.0) / tokens_of_a_step(serving)
    full, at_most = steady(rank, limit, 1.0, False)
    rho, grows = rate / full.rate, at_most.a_sequence * limit / at_most.decode.total
    linear = limit * rho * (1.0 - grows) / jnp.maximum(1.0 - rho * grows, _LEFT)
    met: Scalar = jnp.clip(linear, jnp.minimum(limit, _FIRST), limit)
    n: Scalar = 0.0
    before: Scalar = 0.0
    lacked: Scalar = 0.0
    low: Scalar
    high: Scalar
    low, high = _BOUNDS
    for _ in range(_ROUNDS):
        taken, steps = steps_of(rank, met, False)
        added, shortest = steps.mixed_step
        longer = jnp.maximum(added, shortest - steps.seconds_of(met - 1.0))
        a_prompt = taken.pieces * jnp.where(steps.separate_prefill, steps.mixed, longer)
        left = jnp.maximum(1.0 - rate * (a_prompt + turns * steps.a_sequence), _LEFT)
        n = rate * turns * steps.decode_of_none.total / left
        lacks = jnp.clip(n + rate * steps.mixed + 1.0, 1.0, limit) - met
        low, high = jnp.where(lacks > 0.0, met, low), jnp.where(lacks > 0.0, high, met)
        moved = met - before
        has_moved = jnp.abs(moved) > 1e-6 * met
        slope = jnp.where(has_moved & (before > 0.0), (lacked - lacks) / jnp.where(has_moved, moved, 1.0), 1.0)
        before, lacked = met, lacks
        found = met + lacks / jnp.clip(slope, 0.1, 10.0)
        met = jnp.where((found >= low) & (found <= high), found, jnp.sqrt(low * high))
        met = jnp.clip(met, 1.0, limit)
    variation = 1.0 + (requests.arrival_variation - 1.0) / ranks
    return Arriving(rate, variation, full.rate, jnp.minimum(n, limit), met)


def at_rate(requests: Requests, serving: Serving, found: Served, asked: Arriving, limit: Scalar) -> OpenLoop:
    """What is served at a rate: that of a constant number in flight, with a wait for one of ``limit`` places.

    The wait is that of a queue with as many servers (:func:`waiting_share`), times the mean of the squared variations
    of arrivals and answers. The engine is empty for a share ``exp(-L)`` of the time, with ``L`` requests in flight.
    """
    spread = 0.5 * (asked.variation + given(requests.answer_spread, 0.0) ** 2)
    rho, rate = asked.utilisation, jnp.minimum(asked.rate, asked.capacity)
    waits = waiting_share(jnp.minimum(rho, 1.0), limit)
    placed = spread * waits / (asked.capacity * jnp.maximum(1.0 - rho, 1e-6))
    turns = (requests.output_tokens - 1.0) / tokens_of_a_step(serving)
    found = _behind(requests, serving, found._replace(rate=rate, variation=asked.variation), turns)
    latency = found.waiting + found.prompt + (requests.output_tokens - 1.0) * found.token
    inside = jnp.minimum(rate * latency, limit)
    busy = -jnp.expm1(-inside)
    decoding = jnp.minimum(rate * turns * found.token * tokens_of_a_step(serving), limit) / busy
    waiting = found.waiting + placed
    found = found._replace(waiting=waiting, placed=found.waiting, running=inside, decoding=decoding, full=waits)
    return OpenLoop(found, busy)


def _behind(requests: Requests, serving: Serving, found: Served, turns: Scalar) -> Served:
    """Adds what prompts that come by chance do beyond those of a constant number in flight.

    Long prompts queue: full steps compute one in ``x`` seconds, a share ``rho`` of the time, so one waits for
    ``rho x / (1 - rho)`` times the mean of the squared variations of arrivals and lengths (Kingman 1962); where a step
    holds ``h``, for ``h^2`` times less. Prompts apart from decoding wait as for a server with vacations, which are
    decode steps: for half of one more (Levy and Yechiali 1975). Arrivals of variation ``v`` bring ``(v - 1) / 2``
    further ones with each; where it is below 1 they are :func:`_regular`.

    Prompts behind an own one, as many as arrive until it ends, delay its first tokens, but for those that are left when
    it ends: half of one, by the share of the steps that have a prompt, and of regular arrivals one. The first prompt of
    a step makes it longer by ``a_prompt``, each further one by ``a_further``, and a step has no more than it holds.
    """
    speed, apart = tokens_of_a_step(serving), serving.mixed <= 0.0
    step = speed * found.decode.total
    found = _regular(found, speed, apart)
    x = jnp.where(apart, found.a_prompt, found.a_further + step / found.holds)
    rho = jnp.minimum(found.rate * x, 0.95)
    spread = 0.5 * (found.variation + requests.length_spread**2)
    queue = spread * rho * x / (1.0 - rho) / jnp.where(apart, 1.0, jnp.maximum(found.holds, 1.0) ** 2)
    queue = jnp.where(apart, queue, jnp.maximum(queue, found.waiting - 0.5 * found.met))
    met = jnp.where(apart, step, found.met)
    more = 0.5 * (found.variation - 1.0) * found.a_further
    more = jnp.maximum(more, jnp.where(apart, -0.5 * found.rate * met * found.a_further, 0.0))
    often = jnp.minimum(found.rate * found.pieces * (step + speed * found.prefill), 1.0)
    left = 1.0 - poisson_share(found.variation) * (1.0 - 0.5 * often)
    own = jnp.minimum(found.rate * found.a_further, 0.9)
    behind = jnp.maximum(found.rate * (found.prompt + queue) - left, 0.0) / ((1.0 - own) * jnp.maximum(turns, 1.0))
    answer = jnp.maximum(requests.output_tokens / speed, 1.0)
    shared = jnp.maximum((found.decoding - 1.0) / answer, speed * found.prefill / jnp.maximum(found.a_prompt, 1e-12))
    behind = jnp.minimum(behind, jnp.maximum(found.holds - shared, 0.0))
    first = jnp.minimum(behind, jnp.maximum(1.0 / jnp.maximum(found.pieces, 1e-6) - shared, 0.0))
    delay = jnp.where(apart, 0.0, first * found.a_prompt + (behind - first) * found.a_further)
    prefill = found.prefill + delay / speed
    return found._replace(met=met, waiting=0.5 * met + queue + more, prefill=prefill)


def _regular(found: Served, speed: Scalar, apart: Scalar) -> Served:
    """The step that arrivals of a variation ``v`` below 1 meet, and prompts that share theirs.

    Regular arrivals (``v = 0``), ``T`` seconds apart, meet the step of the prompt before, of ``M`` seconds, where it
    lasts: a share ``(D + M - T) / D`` of them, as it begins up to a decode step ``D`` after its arrival; otherwise a
    decode step. Between these and Poisson arrivals times have the weights of :func:`poisson_share`.
    """
    less = jnp.where(apart, 0.0, 1.0 - poisson_share(found.variation))
    decode, mean = speed * found.decode.total, speed * (found.decode.total + found.prefill)
    late = jnp.clip((2.0 * decode + found.a_prompt - 1.0 / found.rate) / decode, 0.0, 1.0)
    met = decode + late * (mean - decode)
    shared = jnp.minimum(found.rate * found.met, found.holds)
    fewer = less * jnp.maximum(shared - jnp.maximum(found.rate * met - 1.0, 0.0), 0.0)
    own = jnp.maximum(found.prompt - fewer * found.a_further, jnp.minimum(found.prompt, found.a_prompt))
    wait = jnp.minimum(0.5 * less * (met - found.met), 0.0)
    return found._replace(met=found.met + less * (met - found.met), prompt=own, waiting=found.waiting + wait)


def poisson_share(variation: Scalar) -> Scalar:
    """Weight of Poisson arrivals, against regular ones, for a variation ``v`` below 1: ``1 - (1 - v)^2``."""
    return 1.0 - jnp.maximum(1.0 - variation, 0.0) ** 2
