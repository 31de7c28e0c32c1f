"""Steady state of continuous batching in closed form: latency, throughput, queueing, from the time of a step."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.choice import times
from dse.model.serving.clock import Running, at_limit
from dse.model.serving.intake import PromptIntake, idle_rows, in_phase, prompt_intake, tokens_of_a_step
from dse.model.serving.step import EngineStepTime, engine_step
from dse.model.serving.work import Rank
from dse.model.work.batch import Batch
from dse.model.work.parameters import forward_flops, routed_parameters
from dse.types import Load, Requests, Scalar, Serving

#: Iterations of the fixed point of a steady state.
ROUNDS = 3


class Served(NamedTuple):
    """Latencies in seconds and load of one data-parallel rank."""

    decode: EngineStepTime  # time per output token in steps without prompts
    prefill: Scalar  # added to it by prompts of other requests
    preempted: Scalar  # added to it by preemption for memory
    median: Scalar  # inter-token latency, median
    waiting: Scalar  # queueing part of the time to first token
    placed: Scalar  # queueing part without the wait for a place
    prompt: Scalar  # prefill part of it
    rate: Scalar  # requests/s
    running: Scalar  # concurrent sequences: decoding, or with a prompt to compute
    mixed: Scalar  # share of steps with prompts
    decoding: Scalar  # sequences per decode step
    met: Scalar  # time of the step in which a request arrives, s; 0 where it waits for none
    a_prompt: Scalar  # time that a prompt adds to the steps of others, s
    a_further: Scalar  # the same of one more prompt in a step that has some, s
    a_sequence: Scalar  # time that a sequence adds to a decode step, s
    holds: Scalar  # prompts that fit into a step
    pieces: Scalar  # steps per prompt, below 1 where a mean step has several
    variation: Scalar = 1.0  # squared coefficient of variation of the time between arrivals
    full: Scalar = 1.0  # share of requests that wait for a place, where any do

    @property
    def token(self) -> Scalar:
        """Time per output token (TPOT), mean, s."""
        return self.decode.total + self.prefill + self.preempted


class EnginePhase(NamedTuple):
    """One kind of engine step, for its energy."""

    batch: Batch  # of one pass of a stage
    passes: Scalar  # per step and stage; fewer than the stages leave some stages idle
    time: EngineStepTime  # of all stages
    clock: Running


class Phases(NamedTuple):
    """The two kinds of engine steps, and their counts per output token."""

    decode: EnginePhase
    mixed: EnginePhase  # prefill, mixed with decoding where the engine mixes them
    decode_steps: Scalar  # steps in which sequences decode, per output token
    chunks: Scalar  # steps with prompts, per output token
    busy: Scalar  # share of the time with at least one request

    @property
    def violates_limit(self) -> Any:
        """Whether even the lowest clock exceeds the power limit."""
        return self.decode.clock.violates_limit | self.mixed.clock.violates_limit


class Steps(NamedTuple):
    """Engine step times, linear in the decoding sequences between half of them and all."""

    all: Scalar  # sequences
    mixing: Scalar  # sequences that decode in a step with prompts
    decode: EngineStepTime  # all sequences, no prompt
    decode_half: EngineStepTime  # half of the sequences
    with_prompts: EngineStepTime  # mixed step, or prefill step where the engine does not mix
    separate_prefill: Scalar  # whether prefill and decode do not mix
    batch: Batch  # all sequences, with their prompts
    clocks: tuple[Running, Running]  # decode steps, steps with prompts
    alone: Scalar  # time of one part of the prompts through all stages over that of a step with prompts
    parts: Scalar  # parts of the prompts, in different stages at the same time
    twice: Scalar  # time of a step with twice the prompts, s

    @property
    def mixed(self) -> Scalar:
        """Time of a step with prompts, s."""
        return self.with_prompts.total

    @property
    def decode_of_none(self) -> EngineStepTime:
        """Decode step time extrapolated to no sequence: ``max(2 T(n / 2) - T(n), 0)``, by part."""
        pairs = zip(self.decode, self.decode_half, strict=True)
        return EngineStepTime(*(jnp.maximum(2.0 * half - many, 0.0) for many, half in pairs))

    def decode_at(self, sequences: Scalar) -> EngineStepTime:
        """Decode step time of ``sequences``, by part."""
        share = sequences / self.all
        pairs = zip(self.decode, self.decode_of_none, strict=True)
        return EngineStepTime(*(none + share * (many - none) for many, none in pairs))

    @property
    def a_sequence(self) -> Scalar:
        """Seconds per further sequence of a decode step."""
        return (self.decode.total - self.decode_of_none.total) / self.all

    def seconds_of(self, sequences: Scalar) -> Scalar:
        """Decode step time of ``sequences``, s."""
        return self.decode_of_none.total + sequences * self.a_sequence

    @property
    def mixed_step(self) -> tuple[Scalar, Scalar]:
        """Seconds that prompts add to a decode step, and lower limit of a step with prompts.

        The lower limit is half of the mixed step of all sequences; a separate prefill step keeps its length.
        """
        longer = jnp.maximum(self.mixed - self.seconds_of(self.mixing), 0.0)  # as no step is for its prompts shorter
        added = jnp.where(self.separate_prefill, -self.decode.total, longer)
        return added, jnp.where(self.separate_prefill, 1.0, 0.5) * self.mixed


class _Round(NamedTuple):
    """One iteration of the fixed point."""

    mixed: Scalar  # time of a step with prompts, s
    step: Scalar  # mean time of a decode step with the delay by prompts, s
    longer: Scalar  # the delay alone, s
    busy: Scalar  # steps with prompts that an arrival finds
    met: Scalar  # time of the step in which a request arrives, s; it waits for half of it
    own: Scalar  # time of the steps that compute its prompt, s


def _round(steps: Steps, taken: PromptIntake, decode: Scalar, others: Scalar, arrivals_waiting: Scalar) -> _Round:
    """Step times with prompts of ``others``, for steps of ``decode`` seconds without prompts.

    Separate prefill: prompts take a share ``rho`` of the time; an arrival waits for ``rho + left rho^2 / (1 - rho)``
    half steps, with ``1 / left`` prompts per step (M/D/1 for one).

    Mixed steps: a step takes the prompts of answers that ended in the step before, ``a`` on average, ``p`` seconds
    each, a share ``rho`` of the time, so step times have the variance ``p^2 a`` about their mean ``S`` (Poisson). An
    arrival (``arrivals_waiting`` = 1) meets a step of ``B = S + p rho`` and shares its own step with the arrivals of
    ``B``, up to a full chunk.

    Ranks whose tokens meet in the experts step together, each as long as the slowest: prompts of one delay all, where
    the engine does not deal them to all at once (:func:`together`).
    """
    own_delays, apart = others * (taken.pieces / taken.turns), steps.separate_prefill
    delays, (added, shortest) = taken.delaying(own_delays), steps.mixed_step
    left = jnp.where(apart, taken.pieces, 0.0)
    added = jnp.maximum(added, shortest - decode)
    mixed = decode + added
    prompts = delays * mixed
    longer = jnp.where(apart, prompts, delays * added)
    step = decode + longer
    meets = jnp.where(apart, prompts / step, delays)
    busy = meets + left * meets * prompts / decode
    a_prompt, rho = taken.pieces * added, longer / step
    met = jnp.minimum(step + arrivals_waiting * a_prompt * rho, decode + taken.holds * a_prompt)
    prompts_of_step = jnp.minimum(1.0 + others / taken.turns * met / step, taken.holds)
    together = decode + prompts_of_step * a_prompt
    own = jnp.where(apart, mixed, together) + (taken.whole - 1.0) * mixed
    return _Round(mixed, step, longer, busy, jnp.where(apart, step + busy * mixed, met), own)


def steady(rank: Rank, running: Scalar, waiting: Scalar, at_once: Scalar) -> tuple[Served, Steps]:
    """Continuous batching in steady state.

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
    speed = tokens_of_a_step(serving)
    taken, steps = steps_of(rank, running, at_once)
    fresh, each, turns, full, limit, apart = *taken[:4], taken.limit, serving.mixed <= 0.0
    # A decoding request meets itself and the others that decode; only the prompts of others delay it.
    rest = (running - 1.0) / running
    offline = requests.load == float(Load.offline)
    # Where requests queue, the next one starts with a step. Otherwise arrivals fall within a step, in proportion to its
    # length, and wait for its end.
    arrivals_waiting = jnp.where(offline, 0.0, jnp.maximum(1.0 - waiting, 0.0))
    # Poisson arrivals beyond the capacity of one step delay each prompt by ``rho^2 / (2 R (1 - rho))`` steps of ``R``
    # prompts.
    filled = jnp.where(apart, 0.0, rest / limit)
    behind = 0.5 * each / full * filled / turns
    # A single prompt never shares the step that it waits for; its last step gives the first token.
    ranks, shared = together(rank)
    taken = taken._replace(whole=taken.whole + jnp.maximum(steps.alone - 1.0, 0.0), ranks=ranks, shared=shared)
    later = (requests.output_tokens - 1.0) / speed
    n, by_itself, tokens = 0.5 * running, steps.seconds_of(1.0), jnp.where(apart, turns, later)
    busy: Scalar = 0.0
    idle: Scalar = 0.0
    delay: Scalar = 0.0
    for _ in range(ROUNDS):
        others = rest * n
        at = _round(steps, taken, by_itself + others * steps.a_sequence, others, arrivals_waiting)
        busy, idle = at.own / at.step, 0.5 * arrivals_waiting * _seen(serving, at) / at.step
        works = (tokens + busy + idle) / turns
        delay = _delay(running * filled, works, behind * n * at.mixed / at.step)
        n = running / (works + delay)
    alone = steps.decode_at(1.0 + n * rest)
    at = _round(steps, taken, alone.total, n * rest, arrivals_waiting)
    other, step = at.mixed, at.step
    opening = _opening(steps, rank, running * fresh)
    # Little's law: a place is taken while its request decodes, computes its prompt or waits for other prompts. A user
    # whose request has not been admitted, or is outside the engine, sends no other. Offline no place is ever empty.
    working = later * step + at.own
    outside = jnp.where(offline, 0.0, rank.engine.request_time)
    opening = opening + 0.5 * arrivals_waiting * _seen(serving, at)
    # Seconds that a request runs beyond those that it works: term by term, for both are nearly equal.
    gap = jnp.maximum(1.0 / speed, 1.0 - later)  # steps of an answer less those after its first token
    idling = step * (jnp.where(apart, gap, 0.0) + idle + turns * delay) + (step * busy - at.own)
    left = n * ((busy + idle - jnp.where(apart, 0.0, gap)) / turns + delay)  # running - n
    # Full load with separate prefill: all prompts and decode steps in turn, less the working time of a request.
    in_turn = gap * steps.decode.total + later * rest * left * steps.a_sequence - at.own
    in_turn = in_turn + taken.pieces * other * (1.0 + rest * (left + n * gap / turns))
    idling = jnp.maximum(idling, jnp.where(apart, in_turn, running * _least_time(steps, taken) - working))
    used = jnp.maximum(idling, 0.0)
    for_a_place = waiting / running * (working + used)
    waits = jnp.maximum(used + for_a_place - outside, jnp.maximum(idling, jnp.where(offline, 0.0, opening)))
    rate = (running + waiting) / (working + outside + waits)
    found = Served(
        decode=EngineStepTime(*(part / speed for part in alone)),
        prefill=at.longer / speed,
        preempted=0.0,
        median=jnp.where(apart, alone.total, jnp.where(at.busy > 0.5, other, alone.total)) / speed,
        waiting=waits,  # for a place, then for a step
        # Of those without a place the users outside of the engine wait for none.
        placed=jnp.maximum(waits - jnp.maximum(waiting / rate - outside, 0.0), 0.0),
        prompt=at.own,
        rate=rate,
        running=running,
        mixed=jnp.minimum(n * taken.pieces / turns, 1.0),
        decoding=1.0 + n * rest,
        met=arrivals_waiting * _seen(serving, at),
        a_prompt=taken.pieces * jnp.where(apart, other, other - alone.total),
        a_further=taken.pieces * jnp.maximum(steps.twice - steps.mixed, 0.0),
        a_sequence=steps.a_sequence,
        holds=taken.holds,
        pieces=taken.pieces,
    )
    return found, steps


def steps_of(rank: Rank, running: Scalar, at_once: Scalar) -> tuple[PromptIntake, Steps]:
    """Prompt intake and engine steps with ``running`` sequences; ``at_once``: all prompts in one step."""
    serving, taken = rank.serving, prompt_intake(rank.requests, rank.serving, running)
    prompt = jnp.where(at_once, running * taken.fresh, taken.q)
    # Of steps with prompts as a request that decodes meets them: it is one of the sequences.
    mixed = jnp.minimum(running, jnp.maximum(taken.limit, 1.0))
    mixing = jnp.where(jnp.logical_or(at_once, serving.mixed <= 0.0), 0.0, mixed)
    many = jnp.where(at_once, jnp.maximum(running, prompt / serving.chunk), taken.q / taken.each)
    return taken, _steps(rank, running, mixing, prompt, many)


def together(rank: Rank) -> tuple[Scalar | None, Scalar]:
    """Ranks whose prompts delay each other (None: of no other), and the share of experts in a prompt's FLOPs.

    With ``prompt_balance`` all ranks take prompts in the same steps, and none waits for those of another: TensorRT-LLM
    (``enable_balance`` of ``attention_dp_config``) and SGLang hold prompts back for it. How long is not counted here.
    Ranks whose requests are equal, and all there from the start, take prompts in the same steps in any engine.
    """
    forward, mixture = rank.stage.design.workload, rank.stage.design.workload.experts
    balance = rank.serving.prompt_balance
    if mixture is None or balance is None:
        return None, 0.0
    prompts = dataclasses.replace(forward, seq_len=_prompt_context(rank.requests))
    routed = 2.0 * mixture.top_k / mixture.n_experts * routed_parameters(prompts)
    same = jnp.logical_or(in_phase(rank.requests), balance > 0.0)
    return jnp.where(same, 1.0, rank.met), routed / forward_flops(prompts)


def _seen(serving: Serving, at: _Round) -> Scalar:
    """Seconds between two admissions of requests, around an arrival."""
    return at.met + (serving.admission_steps - 1.0) * at.step


def _least_time(steps: Steps, taken: PromptIntake) -> Scalar:
    """Engine seconds per request at full load where steps are mixed: full steps of prompts."""
    return (steps.seconds_of(taken.limit) + steps.mixed_step[0] * taken.full / taken.q) * taken.each / taken.full


def _opening(steps: Steps, rank: Rank, tokens: Scalar) -> Scalar:
    """Mean queueing time in seconds where all prompts arrive together: half of their chunks."""
    chunk = jnp.maximum(jnp.minimum(rank.serving.chunk, tokens), 1.0)
    chunks = jnp.maximum(tokens / chunk - 1.0, 0.0)
    batch = Batch(0.0, 0.0, chunk, _prompt_context(rank.requests))
    step = engine_step(steps.clocks[1].stage, rank.met, rank.serving, rank.engine, batch).total
    return 0.5 * rank.requests.burst * jnp.where(chunks > 0.0, chunks + 1.0, 1.0) * step


def _prompt_context(requests: Requests) -> Scalar:
    """Mean tokens that a prompt token attends to, a shared prefix included."""
    return 0.5 * requests.prompt_tokens * (1.0 + requests.prefix_share)


def _delay(ends: Scalar, works: Scalar, backlog: Scalar) -> Scalar:
    """Requests that wait for their prompt per decoding request: ``n = N / (works + delay)`` of ``N`` running ones.

    ``N = n (works + backlog e / (1 - e))`` with the share ``e = n ends / N`` of a full step's prompts, below 1: a
    quadratic equation, ``delay^2 - 2 h delay = ends backlog`` with ``2 h = ends - works``.

    Args:
        ends: prompts per step if all running requests decoded, over those of a full step.
        works: working steps of a request, over the steps of its answer.
        backlog: steps that a prompt waits for earlier prompts, over the same, in half-full steps.
    """
    half, middle = 0.5 * (ends - works), 0.5 * (ends + works)
    size = jnp.maximum(half, -half)
    more = jnp.maximum(ends * backlog, 1e-6 * middle * middle - half * half)
    return 2.0 * jnp.maximum(half, 0.0) + more / (size + jnp.sqrt(half * half + more))


def _steps(rank: Rank, running: Scalar, mixing: Scalar, prompt: Scalar, many: Scalar) -> Steps:
    """Decode steps of all running sequences and of half of them, and a step with prompts.

    Args:
        rank: one data-parallel rank with its requests and engine.
        running: decoding sequences.
        mixing: decoding sequences of the step with prompts.
        prompt: prompt tokens of that step.
        many: prompts, or pieces of them, that several stages can work on at the same time.
    """
    stage, met, requests, serving, engine = rank
    context = requests.prompt_tokens + 0.5 * requests.running_answer
    apart = serving.mixed <= 0.0

    def of(sequences: Scalar, tokens: Scalar, padding: Scalar = 0.0) -> Batch:
        return Batch(sequences, context, tokens, _prompt_context(requests), serving.drafts, padding)

    def step(clock: Running, batch: Batch) -> EngineStepTime:
        return engine_step(clock.stage, met, serving, engine, batch)

    stages = stage.design.mapping.pp
    idle = times(stages, idle_rows(serving, engine, running / stages))
    batches = of(running, 0.0, idle), of(mixing, prompt)
    decoding, filling = (at_limit(stage, met, serving, engine, batch) for batch in batches)
    with_prompts = step(filling, batches[1])
    parts = jnp.clip(many, 1.0, stages)
    # A step spreads its prompts over all stages; this one carries one part whole.
    alone = step(filling, of(mixing, prompt * stages / parts)).total / with_prompts.total
    half = of(0.5 * running, 0.0, times(0.5, idle))
    return Steps(
        running,
        mixing,
        step(decoding, batches[0]),
        step(decoding, half),
        with_prompts,
        apart,
        of(running, prompt, idle),
        (decoding, filling),
        alone,
        parts,
        step(filling, of(mixing, 2.0 * prompt)).total,
    )
