"""Steady state of continuous batching in closed form: latency, throughput, queueing, from the time of a step."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus, times
from dse.model.layout import NO_SHARERS
from dse.model.serving.clock import StageAtClock, stage_at_power_limit
from dse.model.serving.intake import (
    PromptIntake,
    ends_together,
    idle_rows,
    output_tokens_per_step,
    prompt_hold,
    prompt_intake,
)
from dse.model.serving.step import EngineStepTime, engine_step
from dse.model.serving.work import Rank, sliced_shares
from dse.model.work.batch import Batch
from dse.model.work.blocks import feed_forward_of
from dse.model.work.parameters import forward_flops, routed_parameters, slice_parameters
from dse.types import Load, Requests, Scalar, Serving

#: Iterations of the fixed point of a steady state.
ROUNDS = 3


class SteadyState(NamedTuple):
    """Latencies in seconds and load of one data-parallel rank in steady state."""

    decode: EngineStepTime  # time per output token in steps without prompts
    median: Scalar  # inter-token latency, median
    waiting: Scalar  # queueing part of the time to first token
    wait_in_slot: Scalar  # queueing part once the request has a slot
    prompt: Scalar  # prefill part of it
    rate: Scalar  # requests/s
    running: Scalar  # concurrent sequences: decoding, or with a prompt to compute
    decoding: Scalar  # sequences per decode step
    prefill: Scalar = 0.0  # added to the time per output token by prompts of other requests
    preempted: Scalar = 0.0  # added to it by preemption for memory
    mixed: Scalar = 0.0  # share of steps with prompts
    arrival_step_time: Scalar = 0.0  # time of the step in which a request arrives, s; 0 where it waits for none
    prompt_time: Scalar = 0.0  # time that a prompt adds to the steps of others, s
    extra_prompt_time: Scalar = 0.0  # time that one more prompt adds to a step that has some, s
    sequence_time: Scalar = 0.0  # time that a sequence adds to a decode step, s
    prompts_per_step: Scalar = 1.0  # prompts that fit into a step
    steps_per_prompt: Scalar = 1.0  # below 1 where a mean step has several
    variation: Scalar = 1.0  # squared coefficient of variation of the time between arrivals
    wait_fraction: Scalar = 1.0  # share of requests that wait for a slot, where any do

    @property
    def token(self) -> Scalar:
        """Time per output token (TPOT), mean, s."""
        return self.decode.total + self.prefill + self.preempted


class EnginePhase(NamedTuple):
    """One kind of engine step, for its energy."""

    batch: Batch  # of one pass of a stage
    passes: Scalar  # per step and stage; fewer than the stages leave some stages idle
    time: EngineStepTime  # of all stages
    clock: StageAtClock


class Phases(NamedTuple):
    """The two kinds of engine steps, and their counts per output token."""

    decode: EnginePhase
    mixed: EnginePhase  # prefill, mixed with decoding where the engine mixes them
    decode_steps: Scalar  # steps in which sequences decode, per output token
    chunks: Scalar  # steps with prompts, per output token
    busy: Scalar  # share of the time with at least one request

    @property
    def violates_limit(self) -> Any:
        """Mask, true where even the lowest clock exceeds the power limit in either kind of step."""
        return self.decode.clock.violates_limit | self.mixed.clock.violates_limit


class EngineSteps(NamedTuple):
    """Engine step times, linear in the decoding sequences between half of them and all."""

    sequences: Scalar  # that decode
    mixed_sequences: Scalar  # sequences that decode in a step with prompts
    decode: EngineStepTime  # all sequences, no prompt
    decode_half: EngineStepTime  # half of the sequences
    with_prompts: EngineStepTime  # mixed step, or prefill step where the engine does not mix
    separate_prefill: Scalar  # whether prefill and decode do not mix
    batch: Batch  # all sequences, with their prompts
    clocks: tuple[StageAtClock, StageAtClock]  # decode steps, steps with prompts
    prompt_part_ratio: Scalar  # time of one part of the prompts through all stages over that of a step with prompts
    prompt_parts: Scalar  # parts of the prompts, in different stages at the same time
    double_prompt_time: Scalar  # time of a step with twice the prompts, s

    @property
    def mixed_time(self) -> Scalar:
        """Time of a step with prompts, s."""
        return self.with_prompts.total

    @property
    def empty_decode(self) -> EngineStepTime:
        """Decode step time extrapolated to no sequence, by part, s: ``max(2 T(n / 2) - T(n), 0)``."""
        pairs = zip(self.decode, self.decode_half, strict=True)
        return EngineStepTime(*(jnp.maximum(2.0 * half - full, 0.0) for full, half in pairs))

    def decode_at(self, sequences: Scalar) -> EngineStepTime:
        """Return the decode step time of ``sequences``, by part, s."""
        share = sequences / self.sequences
        pairs = zip(self.decode, self.empty_decode, strict=True)
        return EngineStepTime(*(none + share * (full - none) for full, none in pairs))

    @property
    def sequence_time(self) -> Scalar:
        """Seconds per further sequence of a decode step."""
        return (self.decode.total - self.empty_decode.total) / self.sequences

    def decode_time(self, sequences: Scalar) -> Scalar:
        """Return the decode step time of ``sequences``, s."""
        return self.empty_decode.total + sequences * self.sequence_time

    @property
    def prompt_increment(self) -> tuple[Scalar, Scalar]:
        """Seconds that prompts add to a decode step, and the lower limit of a step with prompts, s.

        The lower limit is half of the mixed step of all sequences; a separate prefill step keeps its length.
        """
        # No step is for its prompts shorter.
        increment = jnp.maximum(self.mixed_time - self.decode_time(self.mixed_sequences), 0.0)
        added = jnp.where(self.separate_prefill, -self.decode.total, increment)
        return added, jnp.where(self.separate_prefill, 1.0, 0.5) * self.mixed_time


class _Iteration(NamedTuple):
    """One iteration of the fixed point."""

    mixed_step_time: Scalar  # time of a step with prompts, s
    mean_step_time: Scalar  # mean time of a decode step with the delay by prompts, s
    prompt_delay: Scalar  # the delay alone, s
    steps_with_prompts: Scalar  # steps with prompts that an arrival finds
    arrival_step_time: Scalar  # time of the step in which a request arrives, s; it waits for half of it
    own_prompt_time: Scalar  # time of the steps that compute its prompt, s


def _iterate(
    steps: EngineSteps, intake: PromptIntake, decode_time: Scalar, other_sequences: Scalar, arrivals_waiting: Scalar
) -> _Iteration:
    """Return one iteration of the fixed point: step times, s, with prompts of ``other_sequences``.

    Steps without prompts take ``decode_time`` seconds.

    Separate prefill: prompts take a share ``rho`` of the time; an arrival waits for ``rho + q rho^2 / (1 - rho)``
    half steps, with ``1 / q`` prompts per step (M/D/1 for one).

    Mixed steps: a step takes the prompts of answers that ended in the step before, ``a`` on average, ``p`` seconds
    each, a share ``rho`` of the time, so step times have the variance ``p^2 a`` about their mean ``S`` (Poisson). An
    arrival (``arrivals_waiting`` = 1) meets a step of ``B = S + p rho`` and shares its own step with the arrivals of
    ``B``, up to a full chunk.

    Ranks whose tokens meet in the experts step together, each as long as the slowest: prompts of one delay all, where
    the engine does not deal them to all at once (:func:`prompt_coupling`).
    """
    rank_delays, is_separate = other_sequences * (intake.steps_per_prompt / intake.answer_steps), steps.separate_prefill
    delays, (increment, min_step_time) = intake.delaying_prompts(rank_delays), steps.prompt_increment
    queue_factor = jnp.where(is_separate, intake.steps_per_prompt, 0.0)
    increment = jnp.maximum(increment, min_step_time - decode_time)
    mixed_step_time = decode_time + increment
    prompts = delays * mixed_step_time
    prompt_delay = jnp.where(is_separate, prompts, delays * increment)
    mean_step_time = decode_time + prompt_delay
    prompt_step_share = jnp.where(is_separate, prompts / mean_step_time, delays)
    steps_with_prompts = prompt_step_share + queue_factor * prompt_step_share * prompts / decode_time
    prompt_time, rho = intake.steps_per_prompt * increment, prompt_delay / mean_step_time
    arrival_step_time = jnp.minimum(
        mean_step_time + arrivals_waiting * prompt_time * rho, decode_time + intake.prompts_per_step * prompt_time
    )
    interval_steps = plus(arrival_step_time / mean_step_time, intake.held_steps)
    prompts_of_step = jnp.minimum(1.0 + other_sequences / intake.answer_steps * interval_steps, intake.prompts_per_step)
    shared_step_time = decode_time + prompts_of_step * prompt_time
    own_prompt_time = (
        jnp.where(is_separate, mixed_step_time, shared_step_time) + (intake.prompt_steps - 1.0) * mixed_step_time
    )
    return _Iteration(
        mixed_step_time,
        mean_step_time,
        prompt_delay,
        steps_with_prompts,
        jnp.where(is_separate, mean_step_time + steps_with_prompts * mixed_step_time, arrival_step_time),
        own_prompt_time,
    )


def continuous_batching(
    rank: Rank, running: Scalar, waiting: Scalar, at_once: Scalar
) -> tuple[SteadyState, EngineSteps]:
    """Return continuous batching in steady state with ``running`` requests, and its engine steps.

    Each finished request is replaced by a prompt: a share ``f = n ISL / (OSL q)`` of the steps carries ``q`` prompt
    tokens, up to a chunk. A prompt waits for the end of the current step and, once steps are full, for earlier
    prompts. Engines with separate prefill stop decoding meanwhile. Sequences in prefill do not decode, which makes a
    fixed point, solved by mean-value analysis (Reiser and Lavenberg 1980).

    Under a pipeline the pieces of a prompt follow each other through the stages.

    Args:
        rank: one data-parallel rank with its requests and engine.
        running: concurrent requests of the rank.
        waiting: further requests that wait for a place.
        at_once: whether all prompts arrive together, in one step.

    Returns:
        Latencies and load, and the step times behind them.
    """
    requests, serving = rank.requests, rank.serving
    tokens_per_step = output_tokens_per_step(serving)
    intake, steps = engine_steps(rank, running, at_once)
    computed_tokens, prompt_tokens, answer_steps, full_step_tokens, *_ = intake
    saturating_sequences, is_separate = intake.saturating_sequences, serving.mixed <= 0.0
    # A decoding request meets itself and the others that decode; only the prompts of others delay it.
    other_share = (running - 1.0) / running
    offline = requests.load == float(Load.offline)
    # Where requests queue, the next one starts with a step. Otherwise arrivals fall within a step, in proportion to its
    # length, and wait for its end.
    arrivals_waiting = jnp.where(offline, 0.0, jnp.maximum(1.0 - waiting, 0.0))
    # Poisson arrivals beyond the capacity of one step delay each prompt by ``rho^2 / (2 R (1 - rho))`` steps of ``R``
    # prompts.
    filled_share = jnp.where(is_separate, 0.0, other_share / saturating_sequences)
    backlog_steps = 0.5 * prompt_tokens / full_step_tokens * filled_share / answer_steps
    # A single prompt never shares the step that it waits for; its last step gives the first token.
    ranks, shared_work_share = prompt_coupling(rank)
    intake = intake._replace(
        prompt_steps=intake.prompt_steps + jnp.maximum(steps.prompt_part_ratio - 1.0, 0.0),
        ranks=ranks,
        shared_work_share=shared_work_share,
    )
    decode_steps = (requests.output_tokens - 1.0) / tokens_per_step
    decoding = 0.5 * running
    single_step_time = steps.decode_time(1.0)
    steps_in_engine = jnp.where(is_separate, answer_steps, decode_steps)
    own_prompt_steps: Scalar = 0.0
    idle_steps: Scalar = 0.0
    delay_ratio: Scalar = 0.0
    for _ in range(ROUNDS):
        other_sequences = other_share * decoding
        state = _iterate(
            steps, intake, single_step_time + other_sequences * steps.sequence_time, other_sequences, arrivals_waiting
        )
        own_prompt_steps = state.own_prompt_time / state.mean_step_time
        idle_steps = 0.5 * arrivals_waiting * _admission_interval(serving, intake, state) / state.mean_step_time
        work_ratio = (steps_in_engine + own_prompt_steps + idle_steps) / answer_steps
        delay_ratio = _waiting_ratio(
            running * filled_share, work_ratio, backlog_steps * decoding * state.mixed_step_time / state.mean_step_time
        )
        decoding = running / (work_ratio + delay_ratio)
    decode_step = steps.decode_at(1.0 + decoding * other_share)
    state = _iterate(steps, intake, decode_step.total, decoding * other_share, arrivals_waiting)
    mixed_step_time, mean_step_time = state.mixed_step_time, state.mean_step_time
    opening_wait = _opening_wait(steps, rank, running * computed_tokens)
    # Little's law: a place is taken while its request decodes, computes its prompt or waits for other prompts. A user
    # whose request has not been admitted, or is outside the engine, sends no other. Offline no place is ever empty.
    working_time = decode_steps * mean_step_time + state.own_prompt_time
    request_time = jnp.where(offline, 0.0, rank.engine.request_time)
    opening_wait = opening_wait + 0.5 * arrivals_waiting * _admission_interval(serving, intake, state)
    # Seconds that a request runs beyond those that it works: term by term, for both are nearly equal.
    gap = jnp.maximum(1.0 / tokens_per_step, 1.0 - decode_steps)  # steps of an answer less those after its first token
    idle_time = mean_step_time * (jnp.where(is_separate, gap, 0.0) + idle_steps + answer_steps * delay_ratio) + (
        mean_step_time * own_prompt_steps - state.own_prompt_time
    )
    waiting_steps = own_prompt_steps + idle_steps - jnp.where(is_separate, 0.0, gap)
    not_decoding = decoding * (waiting_steps / answer_steps + delay_ratio)  # running - decoding
    # Full load with separate prefill: all prompts and decode steps in turn, less the working time of a request.
    turn_time = (
        gap * steps.decode.total
        + decode_steps * other_share * not_decoding * steps.sequence_time
        - state.own_prompt_time
    )
    turn_time = turn_time + intake.steps_per_prompt * mixed_step_time * (
        1.0 + other_share * (not_decoding + decoding * gap / answer_steps)
    )
    idle_time = jnp.maximum(
        idle_time, jnp.where(is_separate, turn_time, running * _full_load_time(steps, intake) - working_time)
    )
    queue_time = jnp.maximum(idle_time, 0.0)
    slot_wait = waiting / running * (working_time + queue_time)
    waiting_time = jnp.maximum(
        queue_time + slot_wait - request_time, jnp.maximum(idle_time, jnp.where(offline, 0.0, opening_wait))
    )
    rate = (running + waiting) / (working_time + request_time + waiting_time)
    steady_state = SteadyState(
        decode=decode_step.per(tokens_per_step),
        prefill=state.prompt_delay / tokens_per_step,
        median=jnp.where(
            is_separate,
            decode_step.total,
            jnp.where(state.steps_with_prompts > 0.5, mixed_step_time, decode_step.total),
        )
        / tokens_per_step,
        waiting=waiting_time,  # for a place, then for a step
        # Of those without a place the users outside of the engine wait for none.
        wait_in_slot=jnp.maximum(waiting_time - jnp.maximum(waiting / rate - request_time, 0.0), 0.0),
        prompt=state.own_prompt_time,
        rate=rate,
        running=running,
        mixed=jnp.minimum(decoding * intake.steps_per_prompt / answer_steps, 1.0),
        decoding=1.0 + decoding * other_share,
        arrival_step_time=arrivals_waiting * _admission_interval(serving, intake, state),
        prompt_time=intake.steps_per_prompt
        * jnp.where(is_separate, mixed_step_time, mixed_step_time - decode_step.total),
        extra_prompt_time=intake.steps_per_prompt * jnp.maximum(steps.double_prompt_time - steps.mixed_time, 0.0),
        sequence_time=steps.sequence_time,
        prompts_per_step=intake.prompts_per_step,
        steps_per_prompt=intake.steps_per_prompt,
    )
    return steady_state, steps


def engine_steps(rank: Rank, running: Scalar, at_once: Scalar) -> tuple[PromptIntake, EngineSteps]:
    """Return the prompt intake and the engine step times with ``running`` sequences.

    Args:
        rank: one data-parallel rank with its requests and engine.
        running: concurrent requests.
        at_once: true where all prompts come in one step.
    """
    serving, hold = rank.serving, prompt_hold(rank.requests, rank.serving, running, rank.experts_dp)
    intake = prompt_intake(rank.requests, serving, running, hold)
    prompt = jnp.where(at_once, running * intake.computed_tokens, intake.mean_step_tokens)
    # Of steps with prompts as a request that decodes meets them: it is one of the sequences.
    saturated_sequences = jnp.minimum(running, jnp.maximum(intake.saturating_sequences, 1.0))
    mixed_sequences = jnp.where(jnp.logical_or(at_once, serving.mixed <= 0.0), 0.0, saturated_sequences)
    prompt_parts = jnp.where(
        at_once, jnp.maximum(running, prompt / serving.chunk), intake.mean_step_tokens / intake.prompt_tokens
    )
    return intake, _engine_steps(rank, running, mixed_sequences, prompt, prompt_parts)


def prompt_coupling(rank: Rank) -> tuple[Scalar | None, Scalar]:
    """Return (count of ranks whose prompts delay each other, share in a prompt's FLOPs of what they have in common).

    That are routed experts, and feed-forwards in slices; (None, 0.0) without either, or where the engine's balance of
    prompts is unknown; a count of 1: no other rank.

    With ``prompt_balance`` all ranks take prompts in the same steps, and none waits for those of another; how long
    prompts wait for that is :func:`~dse.model.serving.intake.prompt_hold` where a ``prompt_timeout`` is stated.
    Ranks whose requests are equal, and all there from the start, take prompts in the same steps in any engine.
    """
    forward, mixture = rank.stage.design.workload, rank.stage.design.workload.experts
    sharers, balance = rank.stage.layout.sharers, rank.serving.prompt_balance
    if balance is None or (mixture is None and sharers is NO_SHARERS):
        return None, 0.0
    prompts = dataclasses.replace(forward, seq_len=_prompt_context(rank.requests))
    feed_forward = feed_forward_of(prompts)
    routed = 2.0 * feed_forward.active_share * routed_parameters(prompts)
    sliced = slice_parameters(prompts, *sliced_shares(rank.stage.layout))
    same = jnp.logical_or(ends_together(rank.requests), balance > 0.0)
    return jnp.where(same, 1.0, rank.experts_dp), plus(routed, times(2.0, sliced)) / forward_flops(prompts)


def _admission_interval(serving: Serving, intake: PromptIntake, state: _Iteration) -> Scalar:
    """Return the seconds between the two admissions of requests around an arrival of a request."""
    return state.arrival_step_time + plus(serving.admission_steps - 1.0, intake.held_steps) * state.mean_step_time


def _full_load_time(steps: EngineSteps, intake: PromptIntake) -> Scalar:
    """Return the engine seconds per request at full load, where every step is mixed and full of prompts."""
    return (
        (
            steps.decode_time(intake.saturating_sequences)
            + steps.prompt_increment[0] * intake.full_step_tokens / intake.mean_step_tokens
        )
        * intake.prompt_tokens
        / intake.full_step_tokens
    )


def _opening_wait(steps: EngineSteps, rank: Rank, tokens: Scalar) -> Scalar:
    """Return the mean queueing time, s, where all prompts arrive together: half of their steps, times ``burst``."""
    chunk = jnp.maximum(jnp.minimum(rank.serving.chunk, tokens), 1.0)
    chunks = jnp.maximum(tokens / chunk - 1.0, 0.0)
    batch = Batch(0.0, 0.0, chunk, _prompt_context(rank.requests))
    step = engine_step(steps.clocks[1].stage, rank.experts_dp, rank.serving, rank.engine, batch).total
    return 0.5 * rank.requests.burst * jnp.where(chunks > 0.0, chunks + 1.0, 1.0) * step


def _prompt_context(requests: Requests) -> Scalar:
    """Return the mean count of tokens that a prompt token attends to, a shared prefix included."""
    return 0.5 * requests.prompt_tokens * (1.0 + requests.prefix_share)


def _waiting_ratio(ends: Scalar, works: Scalar, backlog: Scalar) -> Scalar:
    """Return the requests that wait for their prompt per decoding request, ``delay``, at least 0.

    Of ``N`` running requests ``n = N / (works + delay)`` decode. ``N = n (works + backlog e / (1 - e))`` with the share
    ``e = n ends / N`` of a full step's prompts, below 1: a quadratic equation, ``delay^2 - 2 h delay = ends backlog``
    with ``2 h = ends - works``.

    Args:
        ends: prompts per step if all running requests decoded, over those of a full step.
        works: working steps of a request, over the steps of its answer.
        backlog: steps that a prompt waits for earlier prompts, over the same, in half-full steps.
    """
    half, middle = 0.5 * (ends - works), 0.5 * (ends + works)
    abs_half = jnp.maximum(half, -half)
    discriminant_term = jnp.maximum(ends * backlog, 1e-6 * middle * middle - half * half)
    return 2.0 * jnp.maximum(half, 0.0) + discriminant_term / (abs_half + jnp.sqrt(half * half + discriminant_term))


def _engine_steps(
    rank: Rank, running: Scalar, mixed_sequences: Scalar, prompt: Scalar, max_parts: Scalar
) -> EngineSteps:
    """Return the times of a decode step of all running sequences and of half of them, and of steps with prompts.

    Args:
        rank: one data-parallel rank with its requests and engine.
        running: decoding sequences.
        mixed_sequences: decoding sequences of the step with prompts.
        prompt: prompt tokens of that step.
        max_parts: prompts, or pieces of them, that several stages can work on at the same time.
    """
    stage, experts_dp, requests, serving, engine = rank
    context = requests.prompt_tokens + 0.5 * requests.running_answer
    is_separate = serving.mixed <= 0.0

    def batch_of(sequences: Scalar, tokens: Scalar, padding: Scalar = 0.0) -> Batch:
        return Batch(sequences, context, tokens, _prompt_context(requests), serving.drafts, padding)

    def step(clock: StageAtClock, batch: Batch) -> EngineStepTime:
        return engine_step(clock.stage, experts_dp, serving, engine, batch)

    stages = stage.design.mapping.pp
    idle = times(stages, idle_rows(serving, engine, running / stages))
    batches = batch_of(running, 0.0, idle), batch_of(mixed_sequences, prompt)
    decoding, filling = (stage_at_power_limit(stage, experts_dp, serving, engine, batch) for batch in batches)
    with_prompts = step(filling, batches[1])
    parts = jnp.clip(max_parts, 1.0, stages)
    # A step spreads its prompts over all stages; this one carries one part whole.
    part_ratio = step(filling, batch_of(mixed_sequences, prompt * stages / parts)).total / with_prompts.total
    half = batch_of(0.5 * running, 0.0, times(0.5, idle))
    return EngineSteps(
        running,
        mixed_sequences,
        step(decoding, batches[0]),
        step(decoding, half),
        with_prompts,
        is_separate,
        batch_of(running, prompt, idle),
        (decoding, filling),
        part_ratio,
        parts,
        step(filling, batch_of(mixed_sequences, 2.0 * prompt)).total,
    )
