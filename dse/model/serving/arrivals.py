"""Open loads: requests in flight, utilisation and wait where requests arrive at a rate, whatever is in flight."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import value_or
from dse.model.queues import waiting_share
from dse.model.serving.intake import output_tokens_per_step
from dse.model.serving.steady import SteadyState, continuous_batching, engine_steps
from dse.model.serving.work import Rank
from dse.types import Requests, Scalar, Serving

#: Iterations of the requests in flight.
_ITERATIONS = 5

#: Least first guess of the requests in flight, and least share of an engine's time that prompts and sequences leave.
_FIRST_GUESS, _MIN_IDLE_SHARE = 16.0, 1e-3

#: Sequences in flight before any are known to be too few, or too many.
_BOUNDS = 1e-3, 1e12


class Arrivals(NamedTuple):
    """Requests that arrive at a data-parallel rank, and those in flight there."""

    rate: Scalar  # requests/s
    variation: Scalar  # squared coefficient of variation of the time between arrivals
    capacity: Scalar  # requests/s that it can serve
    decoding_sequences: Scalar  # mean
    in_flight: Scalar  # requests that an arriving one makes, itself included, mean

    @property
    def utilisation(self) -> Scalar:
        """Request rate over capacity; above 1 the queue grows without end."""
        return self.rate / self.capacity


class OpenLoop(NamedTuple):
    """An engine whose requests arrive at a rate."""

    steady_state: SteadyState
    busy_share: Scalar  # share of the time with a request


def arrivals_in_flight(rank: Rank, ranks: Scalar, limit: Scalar) -> Arrivals:
    """Return the open load of one of ``ranks`` data-parallel ranks, to which requests go at random.

    That is its rate, its capacity and the mean requests in flight. Requires a request rate (AssertionError).

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
    request_rate = requests.request_rate / ranks
    decode_steps = (requests.output_tokens - 1.0) / output_tokens_per_step(serving)
    full_state, full_steps = continuous_batching(rank, limit, 1.0, False)
    rho, growth_share = request_rate / full_state.rate, full_steps.sequence_time * limit / full_steps.decode.total
    first_guess = limit * rho * (1.0 - growth_share) / jnp.maximum(1.0 - rho * growth_share, _MIN_IDLE_SHARE)
    in_flight: Scalar = jnp.clip(first_guess, jnp.minimum(limit, _FIRST_GUESS), limit)
    decoding: Scalar = 0.0
    previous_in_flight: Scalar = 0.0
    previous_deficit: Scalar = 0.0
    low: Scalar
    high: Scalar
    low, high = _BOUNDS
    for _ in range(_ITERATIONS):
        intake, steps = engine_steps(rank, in_flight, False)
        increment, min_step_time = steps.prompt_increment
        added_time = jnp.maximum(increment, min_step_time - steps.decode_time(in_flight - 1.0))
        prompt_time = intake.steps_per_prompt * jnp.where(steps.separate_prefill, steps.mixed_time, added_time)
        idle_share = jnp.maximum(
            1.0 - request_rate * (prompt_time + decode_steps * steps.sequence_time), _MIN_IDLE_SHARE
        )
        decoding = request_rate * decode_steps * steps.empty_decode.total / idle_share
        deficit = jnp.clip(decoding + request_rate * steps.mixed_time + 1.0, 1.0, limit) - in_flight
        low, high = jnp.where(deficit > 0.0, in_flight, low), jnp.where(deficit > 0.0, high, in_flight)
        change = in_flight - previous_in_flight
        has_changed = jnp.abs(change) > 1e-6 * in_flight
        slope = jnp.where(
            has_changed & (previous_in_flight > 0.0),
            (previous_deficit - deficit) / jnp.where(has_changed, change, 1.0),
            1.0,
        )
        previous_in_flight, previous_deficit = in_flight, deficit
        guess = in_flight + deficit / jnp.clip(slope, 0.1, 10.0)
        in_flight = jnp.where((guess >= low) & (guess <= high), guess, jnp.sqrt(low * high))
        in_flight = jnp.clip(in_flight, 1.0, limit)
    variation = 1.0 + (requests.arrival_variation - 1.0) / ranks
    return Arrivals(request_rate, variation, full_state.rate, jnp.minimum(decoding, limit), in_flight)


def open_loop_state(
    requests: Requests, serving: Serving, state: SteadyState, arrivals: Arrivals, limit: Scalar
) -> OpenLoop:
    """Return the state of a rank at a request rate, from that of a constant number in flight, and its busy share.

    Requests wait for one of ``limit`` slots.

    The wait is that of a queue with as many servers (:func:`waiting_share`), times the mean of the squared variations
    of arrivals and answers. The engine is empty for a share ``exp(-L)`` of the time, with ``L`` requests in flight.

    Args:
        requests: their lengths and spreads.
        serving: how the engine serves.
        state: with a constant number of requests in flight.
        arrivals: rate and capacity.
        limit: most requests in flight.
    """
    mean_variation = 0.5 * (arrivals.variation + value_or(requests.answer_spread, 0.0) ** 2)
    rho, served_rate = arrivals.utilisation, jnp.minimum(arrivals.rate, arrivals.capacity)
    slot_wait_share = waiting_share(jnp.minimum(rho, 1.0), limit)
    slot_wait = mean_variation * slot_wait_share / (arrivals.capacity * jnp.maximum(1.0 - rho, 1e-6))
    decode_steps = (requests.output_tokens - 1.0) / output_tokens_per_step(serving)
    state = _with_random_arrivals(
        requests, serving, state._replace(rate=served_rate, variation=arrivals.variation), decode_steps
    )
    latency = state.waiting + state.prompt + (requests.output_tokens - 1.0) * state.token
    in_flight = jnp.minimum(served_rate * latency, limit)
    busy_share = -jnp.expm1(-in_flight)
    decoding = (
        jnp.minimum(served_rate * decode_steps * state.token * output_tokens_per_step(serving), limit) / busy_share
    )
    waiting = state.waiting + slot_wait
    state = state._replace(
        waiting=waiting, wait_in_slot=state.waiting, running=in_flight, decoding=decoding, wait_fraction=slot_wait_share
    )
    return OpenLoop(state, busy_share)


def _with_random_arrivals(
    requests: Requests, serving: Serving, state: SteadyState, decode_steps: Scalar
) -> SteadyState:
    """Return the state with the waits, s, of prompts that arrive at random, beyond those of constant numbers in flight.

    Long prompts queue: full steps compute one in ``x`` seconds, a share ``rho`` of the time, so one waits for
    ``rho x / (1 - rho)`` times the mean of the squared variations of arrivals and lengths (Kingman 1962); where a step
    holds ``h``, for ``h^2`` times less. Prompts apart from decoding wait as for a server with vacations, which are
    decode steps: for half of one more (Levy and Yechiali 1975). Arrivals of variation ``v`` bring ``(v - 1) / 2``
    further ones with each; where it is below 1 they are :func:`_with_regular_arrivals`.

    Prompts that arrive before an own one ends delay its first tokens, but for those that are left when it ends: half of
    one, by the share of the steps that have a prompt, and of regular arrivals one. The first prompt of a step makes it
    longer by ``prompt_time``, each further one by ``extra_prompt_time``, up to ``prompts_per_step`` of them.

    Args:
        requests: their lengths and spreads.
        serving: how the engine serves.
        state: under a constant number in flight, with the rate and variation of the arrivals.
        decode_steps: steps of an answer after its first token.
    """
    tokens_per_step, is_separate = output_tokens_per_step(serving), serving.mixed <= 0.0
    decode_step_time = tokens_per_step * state.decode.total
    state = _with_regular_arrivals(state, tokens_per_step, is_separate)
    x = jnp.where(is_separate, state.prompt_time, state.extra_prompt_time + decode_step_time / state.prompts_per_step)
    rho = jnp.minimum(state.rate * x, 0.95)
    mean_variation = 0.5 * (state.variation + requests.length_spread**2)
    queue_wait = (
        mean_variation
        * rho
        * x
        / (1.0 - rho)
        / jnp.where(is_separate, 1.0, jnp.maximum(state.prompts_per_step, 1.0) ** 2)
    )
    queue_wait = jnp.where(
        is_separate, queue_wait, jnp.maximum(queue_wait, state.waiting - 0.5 * state.arrival_step_time)
    )
    arrival_step_time = jnp.where(is_separate, decode_step_time, state.arrival_step_time)
    burst_wait = 0.5 * (state.variation - 1.0) * state.extra_prompt_time
    burst_wait = jnp.maximum(
        burst_wait, jnp.where(is_separate, -0.5 * state.rate * arrival_step_time * state.extra_prompt_time, 0.0)
    )
    prompt_step_share = jnp.minimum(
        state.rate * state.steps_per_prompt * (decode_step_time + tokens_per_step * state.prefill), 1.0
    )
    remaining_prompts = 1.0 - poisson_share(state.variation) * (1.0 - 0.5 * prompt_step_share)
    prompt_utilisation = jnp.minimum(state.rate * state.extra_prompt_time, 0.9)
    later_prompts = jnp.maximum(state.rate * (state.prompt + queue_wait) - remaining_prompts, 0.0) / (
        (1.0 - prompt_utilisation) * jnp.maximum(decode_steps, 1.0)
    )
    answer_steps = jnp.maximum(requests.output_tokens / tokens_per_step, 1.0)
    sharing_prompts = jnp.maximum(
        (state.decoding - 1.0) / answer_steps, tokens_per_step * state.prefill / jnp.maximum(state.prompt_time, 1e-12)
    )
    later_prompts = jnp.minimum(later_prompts, jnp.maximum(state.prompts_per_step - sharing_prompts, 0.0))
    first_in_step = jnp.minimum(
        later_prompts, jnp.maximum(1.0 / jnp.maximum(state.steps_per_prompt, 1e-6) - sharing_prompts, 0.0)
    )
    delay = jnp.where(
        is_separate, 0.0, first_in_step * state.prompt_time + (later_prompts - first_in_step) * state.extra_prompt_time
    )
    prefill = state.prefill + delay / tokens_per_step
    return state._replace(
        arrival_step_time=arrival_step_time, waiting=0.5 * arrival_step_time + queue_wait + burst_wait, prefill=prefill
    )


def _with_regular_arrivals(state: SteadyState, tokens_per_step: Scalar, is_separate: Scalar) -> SteadyState:
    """Return the state with the step time that arrivals of a variation ``v`` below 1 meet, and their prompt time.

    Regular arrivals (``v = 0``), ``T`` seconds apart, meet the step of the prompt before, of ``M`` seconds, where it
    lasts: a share ``(D + M - T) / D`` of them, as it begins up to a decode step ``D`` after its arrival; otherwise a
    decode step. Between these and Poisson arrivals times have the weights of :func:`poisson_share`.
    """
    regular_weight = jnp.where(is_separate, 0.0, 1.0 - poisson_share(state.variation))
    decode_time = tokens_per_step * state.decode.total
    mean_step_time = tokens_per_step * (state.decode.total + state.prefill)
    late_share = jnp.clip((2.0 * decode_time + state.prompt_time - 1.0 / state.rate) / decode_time, 0.0, 1.0)
    regular_step_time = decode_time + late_share * (mean_step_time - decode_time)
    sharing_prompts = jnp.minimum(state.rate * state.arrival_step_time, state.prompts_per_step)
    missing_prompts = regular_weight * jnp.maximum(
        sharing_prompts - jnp.maximum(state.rate * regular_step_time - 1.0, 0.0), 0.0
    )
    own_prompt_time = jnp.maximum(
        state.prompt - missing_prompts * state.extra_prompt_time, jnp.minimum(state.prompt, state.prompt_time)
    )
    wait_change = jnp.minimum(0.5 * regular_weight * (regular_step_time - state.arrival_step_time), 0.0)
    return state._replace(
        arrival_step_time=state.arrival_step_time + regular_weight * (regular_step_time - state.arrival_step_time),
        prompt=own_prompt_time,
        waiting=state.waiting + wait_change,
    )


def poisson_share(variation: Scalar) -> Scalar:
    """Return the weight of Poisson arrivals against regular ones: ``1 - (1 - v)^2`` of a variation ``v``, at most 1."""
    return 1.0 - jnp.maximum(1.0 - variation, 0.0) ** 2
