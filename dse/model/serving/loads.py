"""Load of one data-parallel rank: from the requests of a design to its latencies, in each way that they may arrive."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.serving.arrivals import arriving, at_rate
from dse.model.serving.intake import tokens_of_a_step
from dse.model.serving.memory import KvCapacity
from dse.model.serving.steady import EnginePhase, Phases, Served, Steps, steady
from dse.model.serving.step import EngineStepTime, per_stage_batch
from dse.model.serving.work import Rank
from dse.types import Load, Requests, Scalar


def together(requests: Requests, batch: Scalar, prompt: Scalar, decode: EngineStepTime, waves: Scalar) -> Served:
    """Static batching: prompts, then ``OSL - 1`` decode steps, in ``waves`` batches one after the other.

    Args:
        requests: lengths of the requests.
        batch: requests of a batch.
        prompt: time of the step of all prompts, s.
        decode: time per output token.
        waves: batches.
    """
    whole = prompt + (requests.output_tokens - 1.0) * decode.total
    return Served(
        decode=decode,
        prefill=0.0,
        preempted=0.0,
        median=decode.total,
        waiting=0.5 * (waves - 1.0) * whole,
        placed=0.5 * (waves - 1.0) * whole,
        prompt=prompt,
        rate=batch / whole,
        running=batch,
        mixed=0.0,
        decoding=batch,
        met=0.0,
        a_prompt=0.0,
        a_further=0.0,
        a_sequence=0.0,
        holds=1.0,
        pieces=1.0,
    )


def served(rank: Rank, ranks: Scalar, held: KvCapacity) -> tuple[Served, Phases, Scalar]:
    """Latencies and load of one of ``ranks`` data-parallel ranks, its kinds of engine steps, and its utilisation.

    Args:
        rank: the rank with its requests and engine.
        ranks: data-parallel ranks that share the requests.
        held: KV-cache capacity of the rank.
    """
    requests, load = rank.requests, rank.requests.load
    limit = jnp.maximum(jnp.minimum(held.sequences, rank.engine.most_sequences), 1.0)
    offline, in_flight, arrives = load == float(Load.offline), requests.concurrency / ranks, None
    if requests.request_rate is not None:
        arrives = arriving(rank, ranks, limit)
        in_flight = jnp.where(load == float(Load.rate), arrives.met, in_flight)
    # With fewer requests than ranks, each rank serves one at a time and is idle otherwise.
    busy, asked = jnp.where(offline, 1.0, jnp.minimum(in_flight, 1.0)), jnp.maximum(in_flight, 1.0)
    own = requests.queue / ranks
    queue = jnp.where(offline & (requests.queue > 0.0), own, jnp.inf)
    running = jnp.minimum(jnp.where(offline, jnp.maximum(queue, 1.0), asked), limit)
    static = load == float(Load.static)
    running = jnp.where(static, asked, running)
    in_waves = load == float(Load.waves)
    waves = jnp.where(in_waves, jnp.ceil(asked / running), 1.0)
    running = jnp.where(in_waves, asked / waves, running)
    waiting = jnp.where(offline, 0.0, asked - running)
    is_batch = static | in_waves
    flowing, steps = steady(rank, running, waiting, is_batch)
    # The last of m parts leaves a pipeline of p stages after m + p - 1 stage times, a single part after p; decoding
    # keeps the pipeline full.
    prompts = steps.alone * steps.mixed * (1.0 + (steps.parts - 1.0) / rank.stage.design.mapping.pp)
    speed = tokens_of_a_step(rank.serving)
    at_once = together(requests, running, prompts, EngineStepTime(*(part / speed for part in steps.decode)), waves)

    def choose(a: Scalar, b: Scalar) -> Scalar:
        return jnp.where(is_batch, a, b)

    decode = EngineStepTime(*map(choose, at_once.decode, flowing.decode))
    found = Served(decode, *map(choose, at_once[1:], flowing[1:]))
    busy = busy / (1.0 + found.rate * _emptying(requests, steps, found.mixed, own / running) / (speed * queue))
    found = found._replace(rate=busy * found.rate)
    utilisation: Scalar = 1.0
    if arrives is not None:
        open_loop = at_rate(requests, rank.serving, found, arrives, limit)
        is_open = load == float(Load.rate)
        utilisation = jnp.where(is_open, arrives.utilisation, 1.0)
        found = Served(
            EngineStepTime(*found.decode),
            *(jnp.where(is_open, a, b) for a, b in zip(open_loop.served[1:], found[1:], strict=True)),
        )
        busy = jnp.where(is_open, open_loop.busy, busy)
    found = _with_preempted(found, rank, held)
    return found, _phases(rank, found, steps, is_batch, busy), utilisation


def _emptying(requests: Requests, steps: Steps, mixed: Scalar, waves: Scalar) -> Scalar:
    """Seconds added by the drain of an offline queue, where steps hold fewer and fewer sequences.

    The fixed part of a decode step, once per token by which the longest answer exceeds the mean, and per token of the
    last of ``w`` waves that is empty: ``ceil(w) - w`` of it where requests start and end together, half of it where
    their prompts, in a share ``mixed`` of the steps, keep them apart.
    """
    longer = jnp.maximum(requests.longest_answer - requests.output_tokens, 0.0)
    left = jnp.ceil(waves) - waves
    left = left + mixed * (jnp.where(waves > 1.0, 0.5, 0.0) - left)
    return (longer + left * requests.output_tokens) * steps.decode_of_none.total


def _with_preempted(found: Served, rank: Rank, held: KvCapacity) -> Served:
    """Adds preemption: of ``W`` requests beyond the KV-cache capacity, some have had their first token.

    A prompt is admitted as soon as it fits into the cache that ``n`` answers leave free at the moment, ``m`` prompts on
    average (``sqrt(n)`` times the spread of one answer). The last request is preempted as answers grow:
    ``W m / (W + m)`` of the ``W``, a form with both as limits.
    """
    early = jnp.where(held.sequences < rank.engine.most_sequences, held.prompts * jnp.sqrt(found.running), 0.0)
    wait = found.waiting - found.placed
    apart = wait / jnp.maximum(wait * found.rate + early, 1e-12)
    of_token = early * apart / jnp.maximum(rank.requests.output_tokens - 1.0, 1.0)
    return found._replace(waiting=found.placed + wait * found.rate * apart, preempted=of_token)


def _phases(rank: Rank, found: Served, steps: Steps, at_once: Scalar, busy: Scalar) -> Phases:
    """Kinds of engine steps, with their counts per output token."""
    requests, pp, speed = rank.requests, rank.stage.design.mapping.pp, tokens_of_a_step(rank.serving)
    mixing = jnp.where(jnp.logical_or(at_once, steps.separate_prefill), 0.0, found.decoding)
    decode = per_stage_batch(steps.batch._replace(sequences=found.decoding, prompt=0.0), pp)
    passes = found.decoding / jnp.maximum(decode.sequences, 1e-6)
    parts = jnp.where(mixing > 0.0, passes, steps.parts)
    mixed = steps.batch._replace(sequences=mixing / parts, prompt=steps.batch.prompt / parts, padding=0.0)
    fresh = requests.prompt_tokens * (1.0 - requests.prefix_share)
    return Phases(
        decode=EnginePhase(decode, passes, EngineStepTime(*(part * speed for part in found.decode)), steps.clocks[0]),
        mixed=EnginePhase(mixed, parts, steps.with_prompts, steps.clocks[1]),
        decode_steps=1.0 / jnp.maximum(found.decoding * speed, 1e-6),
        chunks=fresh / jnp.maximum(steps.batch.prompt * requests.output_tokens, 1e-6),
        busy=busy,
    )
