"""Load of one data-parallel rank: from the requests of a design to its latencies, in each way that they may arrive."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import select
from dse.model.serving.arrivals import arrivals_in_flight, open_loop_state
from dse.model.serving.intake import output_tokens_per_step
from dse.model.serving.memory import KvCapacity
from dse.model.serving.steady import EnginePhase, EngineSteps, Phases, SteadyState, continuous_batching
from dse.model.serving.step import EngineStepTime
from dse.model.serving.work import Rank
from dse.model.work.batch import split_batch
from dse.types import Load, Requests, Scalar


def static_batches(
    requests: Requests, batch: Scalar, prompt: Scalar, decode: EngineStepTime, waves: Scalar
) -> SteadyState:
    """Return the state under static batching: all prompts, then ``OSL - 1`` decode steps, ``waves`` batches in turn.

    Args:
        requests: lengths of the requests.
        batch: requests of a batch.
        prompt: time of the step of all prompts, s.
        decode: time per output token by part, s.
        waves: count of batches.
    """
    batch_time = prompt + (requests.output_tokens - 1.0) * decode.total
    waiting = 0.5 * (waves - 1.0) * batch_time
    return SteadyState(
        decode, decode.total, waiting, waiting, prompt, batch / batch_time, running=batch, decoding=batch
    )


def rank_steady_state(rank: Rank, ranks: Scalar, kv: KvCapacity) -> tuple[SteadyState, Phases, Scalar]:
    """Return (latencies and load of one data-parallel rank, kinds of engine steps, utilisation, 1 but for open loads).

    Args:
        rank: the rank with its requests and engine.
        ranks: data-parallel ranks that share the requests.
        kv: KV-cache capacity of the rank.
    """
    requests, load = rank.requests, rank.requests.load
    limit = jnp.maximum(jnp.minimum(kv.sequences, rank.engine.most_sequences), 1.0)
    is_offline, requests_in_flight, arrivals = load == float(Load.offline), requests.concurrency / ranks, None
    if requests.request_rate is not None:
        arrivals = arrivals_in_flight(rank, ranks, limit)
        requests_in_flight = jnp.where(load == float(Load.rate), arrivals.in_flight, requests_in_flight)
    # With fewer requests than ranks, each rank serves one at a time and is idle otherwise.
    busy_share = jnp.where(is_offline, 1.0, jnp.minimum(requests_in_flight, 1.0))
    requested = jnp.maximum(requests_in_flight, 1.0)
    rank_queue = requests.queue / ranks
    queue_length = jnp.where(is_offline & (requests.queue > 0.0), rank_queue, jnp.inf)
    running = jnp.minimum(jnp.where(is_offline, jnp.maximum(queue_length, 1.0), requested), limit)
    is_static = load == float(Load.static)
    running = jnp.where(is_static, requested, running)
    in_waves = load == float(Load.waves)
    waves = jnp.where(in_waves, jnp.ceil(requested / running), 1.0)
    running = jnp.where(in_waves, requested / waves, running)
    waiting = jnp.where(is_offline, 0.0, requested - running)
    is_batch = is_static | in_waves
    continuous, steps = continuous_batching(rank, running, waiting, is_batch)
    # The last of m parts leaves a pipeline of p stages after m + p - 1 stage times, a single part after p; decoding
    # keeps the pipeline full.
    prompt_time = (
        steps.prompt_part_ratio * steps.mixed_time * (1.0 + (steps.prompt_parts - 1.0) / rank.stage.design.mapping.pp)
    )
    tokens_per_step = output_tokens_per_step(rank.serving)
    static_state = static_batches(requests, running, prompt_time, steps.decode.per(tokens_per_step), waves)
    state = select(is_batch, static_state, continuous)
    busy_share = busy_share / (
        1.0
        + state.rate
        * _drain_time(requests, steps, state.mixed, rank_queue / running)
        / (tokens_per_step * queue_length)
    )
    state = state._replace(rate=busy_share * state.rate)
    utilisation: Scalar = 1.0
    if arrivals is not None:
        open_loop = open_loop_state(requests, rank.serving, state, arrivals, limit)
        is_open = load == float(Load.rate)
        utilisation = jnp.where(is_open, arrivals.utilisation, 1.0)
        state = select(is_open, open_loop.steady_state, state)._replace(decode=state.decode)
        busy_share = jnp.where(is_open, open_loop.busy_share, busy_share)
    state = _with_preemption(state, rank, kv)
    return state, _phases(rank, state, steps, is_batch, busy_share), utilisation


def _drain_time(requests: Requests, steps: EngineSteps, mixed: Scalar, waves: Scalar) -> Scalar:
    """Return the seconds that the drain of an offline queue adds, where steps hold fewer and fewer sequences.

    The fixed part of a decode step, once per token by which the longest answer exceeds the mean, and per token of the
    last of ``w`` waves that is empty: ``ceil(w) - w`` of it where requests start and end together, half of it where
    their prompts, in a share ``mixed`` of the steps, keep them apart.
    """
    extra_tokens = jnp.maximum(requests.longest_answer - requests.output_tokens, 0.0)
    empty_share = jnp.ceil(waves) - waves
    empty_share = empty_share + mixed * (jnp.where(waves > 1.0, 0.5, 0.0) - empty_share)
    return (extra_tokens + empty_share * requests.output_tokens) * steps.empty_decode.total


def _with_preemption(state: SteadyState, rank: Rank, kv: KvCapacity) -> SteadyState:
    """Return the state with waits and preemption of requests beyond the KV-cache capacity.

    A prompt is admitted as soon as it fits into the cache that ``n`` answers leave free at the moment, ``m`` prompts on
    average (``sqrt(n)`` times the spread of one answer). The last request is preempted as answers grow: of ``W``
    requests beyond the capacity ``W m / (W + m)``, a form with both as limits.
    """
    early_prompts = jnp.where(kv.sequences < rank.engine.most_sequences, kv.prompts * jnp.sqrt(state.running), 0.0)
    wait = state.waiting - state.wait_in_slot
    seconds_per_request = wait / jnp.maximum(wait * state.rate + early_prompts, 1e-12)
    preemption_time = early_prompts * seconds_per_request / jnp.maximum(rank.requests.output_tokens - 1.0, 1.0)
    return state._replace(
        waiting=state.wait_in_slot + wait * state.rate * seconds_per_request, preempted=preemption_time
    )


def _phases(rank: Rank, state: SteadyState, steps: EngineSteps, is_batch: Scalar, busy_share: Scalar) -> Phases:
    """Return the two kinds of engine steps, with their counts per output token."""
    requests, pp, tokens_per_step = rank.requests, rank.stage.design.mapping.pp, output_tokens_per_step(rank.serving)
    mixed_sequences = jnp.where(jnp.logical_or(is_batch, steps.separate_prefill), 0.0, state.decoding)
    decode = split_batch(steps.batch._replace(sequences=state.decoding, prompt=0.0), pp)
    passes = state.decoding / jnp.maximum(decode.sequences, 1e-6)
    parts = jnp.where(mixed_sequences > 0.0, passes, steps.prompt_parts)
    mixed = steps.batch._replace(sequences=mixed_sequences / parts, prompt=steps.batch.prompt / parts, padding=0.0)
    computed_tokens = requests.prompt_tokens * (1.0 - requests.prefix_share)
    return Phases(
        decode=EnginePhase(decode, passes, state.decode.scaled(tokens_per_step), steps.clocks[0]),
        mixed=EnginePhase(mixed, parts, steps.with_prompts, steps.clocks[1]),
        decode_steps=1.0 / jnp.maximum(state.decoding * tokens_per_step, 1e-6),
        chunks=computed_tokens / jnp.maximum(steps.batch.prompt * requests.output_tokens, 1e-6),
        busy=busy_share,
    )
