"""From one engine step to what a user sees: latency, throughput, waiting."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.serving.batch import Batch
from dse.model.serving.clock import Running, at_limit
from dse.model.serving.memory import KvCapacity
from dse.model.serving.step import EngineStepTime, engine_step, per_stage_batch
from dse.model.serving.work import Rank
from dse.types import Engine, Load, Requests, Scalar, Serving

#: Rounds of the fixed point of a steady state, which has none of them where prompts take no time.
ROUNDS = 3


class Served(NamedTuple):
    """What a user of one rank of data parallelism sees, in seconds, and how many are served."""

    decode: EngineStepTime  # an output token of a step without prompts
    prefill: Scalar  # what prompts of others add to it
    preempted: Scalar  # what waiting for memory in the middle of an answer adds to it
    median: Scalar  # time between two tokens
    waiting: Scalar  # of the time to the first token
    placed: Scalar  # of it, what is not for a place
    prompt: Scalar
    rate: Scalar  # requests a second
    running: Scalar  # sequences that decode, or wait for their prompt, at once
    mixed: Scalar  # share of steps with prompts
    decoding: Scalar  # sequences of a decode step

    @property
    def token(self) -> Scalar:
        """Mean seconds between two tokens."""
        return self.decode.total + self.prefill + self.preempted


def tokens_of_a_step(serving: Serving) -> Scalar:
    """Tokens that a step adds to an answer: ``(1 - a^(k + 1)) / (1 - a)`` with k drafts (Leviathan et al. 2023)."""
    alpha = serving.acceptance
    return jnp.where(serving.drafts > 0.0, (1.0 - alpha ** (serving.drafts + 1.0)) / (1.0 - alpha), 1.0)


class EnginePhase(NamedTuple):
    """A step as its energy is asked for."""

    batch: Batch  # of one pass of a stage
    passes: Scalar  # of a step through each stage: fewer than there are stages leave some of them idle
    time: EngineStepTime  # of all stages
    clock: Running


class Phases(NamedTuple):
    """The two kinds of steps, and how many of them there are for an output token."""

    decode: EnginePhase
    mixed: EnginePhase  # with prompts, beside what decodes where they mix
    decode_steps: Scalar  # all steps in which sequences decode
    chunks: Scalar  # steps with prompts
    busy: Scalar  # share of the time in which there is a request

    @property
    def over(self) -> Any:
        """Whether no clock meets the power limit."""
        return self.decode.clock.over | self.mixed.clock.over


class Steps(NamedTuple):
    """Engine steps, whose time is taken to be linear in the sequences between half of them and all."""

    all: Scalar  # sequences
    mixing: Scalar  # of them, beside prompts
    decode: EngineStepTime  # of all
    decode_half: EngineStepTime
    with_prompts: EngineStepTime  # a step of all with prompts, or of prompts alone where they do not mix
    apart: Scalar  # whether they do not
    batch: Batch  # of all, with their prompts
    clocks: tuple[Running, Running]  # of decoding, and of steps with prompts
    alone: Scalar  # steps with prompts that a part of the prompts takes through all stages, one after the other
    parts: Scalar  # of the prompts, that are in as many stages at once

    @property
    def mixed(self) -> Scalar:
        """Seconds of a step with prompts."""
        return self.with_prompts.total

    @property
    def decode_of_none(self) -> EngineStepTime:
        """What a step that decodes takes however few sequences there are: the line through half of them and all."""
        pairs = zip(self.decode, self.decode_half, strict=True)
        return EngineStepTime(*(jnp.maximum(2.0 * half - many, 0.0) for many, half in pairs))

    def decode_at(self, sequences: Scalar) -> EngineStepTime:
        """A step of so many sequences that decode."""
        share = sequences / jnp.maximum(self.all, 1e-6)
        pairs = zip(self.decode, self.decode_of_none, strict=True)
        return EngineStepTime(*(none + share * (many - none) for many, none in pairs))

    @property
    def a_sequence(self) -> Scalar:
        """What one more sequence adds to a step that decodes."""
        return (self.decode.total - self.decode_of_none.total) / jnp.maximum(self.all, 1e-6)

    def seconds_of(self, sequences: Scalar) -> Scalar:
        """Seconds of a step of so many sequences that decode."""
        return self.decode_of_none.total + sequences * self.a_sequence

    @property
    def beside(self) -> tuple[Scalar, Scalar]:
        """Seconds that prompts add to a step that decodes, and the least that a step with prompts takes.

        It is shorter than one beside all by as much as that one is, but half as long at least; apart from decoding it
        is as long as ever.
        """
        added = jnp.where(self.apart, -self.decode.total, self.mixed - self.seconds_of(self.mixing))
        return added, jnp.where(self.apart, 1.0, 0.5) * self.mixed


class _Round(NamedTuple):
    """Steps of so many that decode, of which a share carries prompts."""

    mixed: Scalar  # seconds of one with prompts
    step: Scalar  # of one that decodes, in the mean, with what prompts add to it
    longer: Scalar  # what they add
    busy: Scalar  # steps with prompts, those that one that comes meets
    met: Scalar  # seconds of the step in which one comes, where its half is what it waits
    own: Scalar  # of the steps that take its prompt


def _round(steps: Steps, taken: _PromptIntake, decode: Scalar, others: Scalar, come: Scalar) -> _Round:
    """Steps that take ``decode`` seconds without prompts, beside whom ``others`` decode whose ends bring prompts.

    Apart from decoding prompts are served for a share ``rho`` of the time; of ``1 / left`` prompts at once those that
    come meanwhile wait for ``rho + left rho^2 / (1 - rho)`` halves of such a step (M/D/1 of one at once).

    Beside decoding a step takes the prompts of answers that ended in the one before it, ``a`` in the mean, each of
    ``p`` seconds, a share ``rho`` of the time: steps vary by ``p^2 a`` about their mean ``S`` (Poisson). One that
    comes, where ``come`` is 1, meets a step of ``B = S + p rho``, and shares its own with all that come in ``B``, or
    with as many as it holds.
    """
    delays, apart, beside = others * taken.pieces / taken.turns, steps.apart, steps.beside
    left = jnp.where(apart, taken.pieces, 0.0)
    added = jnp.maximum(beside[0], beside[1] - decode)
    mixed = decode + added
    prompts = delays * mixed
    longer = jnp.where(apart, prompts, delays * added)
    step = decode + longer
    meets = jnp.where(apart, prompts / step, delays)
    busy = meets + left * meets * prompts / decode
    a_prompt, rho = taken.pieces * added, longer / step
    met = jnp.minimum(step + come * a_prompt * rho, decode + taken.holds * a_prompt)
    beside_it = jnp.minimum(1.0 + others / taken.turns * met / step, taken.holds)
    together = decode + beside_it * a_prompt
    own = jnp.where(apart, mixed, together) + (taken.whole - 1.0) * mixed
    return _Round(mixed, step, longer, busy, jnp.where(apart, step + busy * mixed, met), own)


def steady(rank: Rank, running: Scalar, waiting: Scalar, at_once: Scalar) -> tuple[Served, Steps]:
    """Continuous batching of ``running`` requests in a rank, ``waiting`` more of which wait for a place.

    Every request that ends brings a prompt: of the steps a share ``f = n ISL / (OSL q)`` carries ``q`` prompt tokens,
    all that have come, up to a chunk. A prompt waits for the end of a step, and once steps are full for those before
    it. Engines that do not mix stop decoding instead. What is in its prompt does not decode: a fixed point, in which a
    request sees the others as they are without it (mean-value analysis, Reiser and Lavenberg 1980). The other result
    are the steps it consists of; where all prompts come ``at_once`` their one step is that of them all.

    Under a pipeline the pieces of a prompt follow each other through the stages, and the last one crosses them all:
    one piece alone has one stage at work at a time, whatever the others do for other prompts.
    """
    requests, serving = rank.requests, rank.serving
    speed = tokens_of_a_step(serving)
    taken = _taken(requests, serving, running)
    fresh, each, turns, full, q, most, *_ = taken
    apart = serving.mixed <= 0.0
    prompt = jnp.where(at_once, running * fresh, q)
    mixing = jnp.where(at_once, 0.0, jnp.where(apart, 0.0, jnp.minimum(running, most)))
    many = jnp.where(at_once, jnp.maximum(running, prompt / serving.chunk), q / each)
    steps = _steps(rank, running, mixing, prompt, many)
    # Whoever decodes sees itself, and of the others those that decode; their prompts alone delay it, not its own.
    itself, rest = jnp.minimum(running, 1.0), jnp.maximum(running - 1.0, 0.0) / jnp.maximum(running, 1e-6)
    offline = requests.load == float(Load.offline)
    # A place that another one waits for is never empty: who takes it comes as a step begins. Others come in the middle
    # of a step, as likely of a long one as it is long, and of all that are looked at together.
    come = jnp.where(offline, 0.0, jnp.maximum(1.0 - waiting, 0.0))
    # Of what one step cannot take, Poisson arrivals leave ``rho^2 / (2 R (1 - rho))`` of a step of ``R`` prompts in the
    # way of each.
    filled = jnp.where(apart, 0.0, rest / most)
    behind = 0.5 * each / full * filled / turns
    # One prompt alone never shares the step that it waits for; its last step gives the first token, beside decoding.
    taken = taken._replace(whole=taken.whole + jnp.maximum(steps.alone - 1.0, 0.0))
    later = (requests.output_tokens - 1.0) / speed
    n, by_itself, tokens = 0.5 * running, steps.seconds_of(itself), jnp.where(apart, turns, later)
    for _ in range(ROUNDS):
        others = rest * n
        at = _round(steps, taken, by_itself + others * steps.a_sequence, others, come)
        busy, idle = at.own / at.step, 0.5 * come * _seen(serving, at) / at.step
        works = (tokens + busy + idle) / turns
        delay = _delay(running * filled, works, behind * n * at.mixed / at.step)
        n = running / (works + delay)
    alone = steps.decode_at(itself + n * rest)
    at = _round(steps, taken, alone.total, n * rest, come)
    other, step = at.mixed, at.step
    opening = _opening(steps, rank, running * fresh)
    # Of those that run, who neither decodes nor computes its prompt waits for others' prompts. Little's law: a place is
    # taken for as long as a request works, and a user who waits to be seen, or is outside of the engine, asks for no
    # other. Offline no place is ever empty.
    working = later * step + at.own
    outside = jnp.where(offline, 0.0, rank.engine.request_time)
    opening = opening + 0.5 * come * _seen(serving, at)
    # Seconds that a request runs beyond those that it works: term by term, for both are nearly equal.
    gap = jnp.maximum(1.0 / speed, 1.0 - later)  # steps of an answer over those after its first token
    more = jnp.where(apart, gap, 0.0)
    idling = step * (more + idle + turns * delay) + (step * busy - at.own)
    left = n * ((busy + idle - jnp.where(apart, 0.0, gap)) / turns + delay)  # running - n
    # In turn: all prompts and all of an answer, less those of the steps that a request works.
    in_turn = gap * steps.decode.total + later * rest * left * steps.a_sequence - at.own
    in_turn = in_turn + taken.pieces * other * (itself + rest * (left + n * gap / turns))
    of_full = running * _least_time(steps, taken) - working
    idling = jnp.maximum(idling, jnp.where(apart, in_turn, of_full))
    used = jnp.maximum(idling, 0.0)
    for_a_place = waiting / running * (working + used)
    by_place, by_step = used + for_a_place - outside, jnp.maximum(idling, jnp.where(offline, 0.0, opening))
    waits = jnp.maximum(by_place, by_step)
    rate = (running + waiting) / (working + outside + waits)
    found = Served(
        decode=EngineStepTime(*(part / speed for part in alone)),
        prefill=at.longer / speed,
        preempted=0.0,
        median=jnp.where(apart, alone.total, jnp.where(at.busy > 0.5, other, alone.total)) / speed,
        waiting=waits,  # for a place, then for a step
        placed=jnp.where(by_place >= by_step, used - outside, by_step - waiting / rate),
        prompt=at.own,
        rate=rate,
        running=running,
        mixed=jnp.minimum(n * taken.pieces / turns, 1.0),
        decoding=itself + n * rest,
    )
    return found, steps


def _seen(serving: Serving, at: _Round) -> Scalar:
    """Seconds between two looks at new requests, about the one that comes between them."""
    return at.met + (serving.admission_steps - 1.0) * at.step


class _PromptIntake(NamedTuple):
    """What steps take of prompts."""

    fresh: Scalar  # tokens of a prompt that are computed
    each: Scalar  # the same, one at least
    turns: Scalar  # steps of an answer
    full: Scalar  # tokens of prompts in a full step
    q: Scalar  # in a step that has some
    most: Scalar  # requests that decode, of whom as many end as full steps take prompts
    pieces: Scalar  # steps with prompts for a prompt
    whole: Scalar  # the same of one, one at least
    holds: Scalar  # prompts that fit into one


def _taken(requests: Requests, serving: Serving, running: Scalar) -> _PromptIntake:
    """Of full steps, in which some wait for their prompt, prompts have the share that they have of a request's tokens.

    Others carry the prompts that have come since the last one, up to a chunk.
    """
    fresh = requests.prompt_tokens * (1.0 - requests.prefix_share)
    turns = jnp.maximum(requests.output_tokens / tokens_of_a_step(serving), 1.0)
    beside = (1.0 + serving.drafts) * jnp.where(serving.mixed > 0.0, 1.0, 0.0)
    each = jnp.maximum(fresh, 1.0)
    full = serving.chunk * each / jnp.maximum(fresh + turns * beside, 1.0)
    come = _mean_of_some(jnp.maximum(running - 1.0, 0.0) / turns)
    tokens = jnp.maximum(serving.chunk - running * beside, full)
    holds, q = tokens / each, jnp.minimum(tokens, each * come)
    steps = fresh / q
    return _PromptIntake(fresh, each, turns, full, q, turns * full / each, steps, jnp.maximum(steps, 1.0), holds)


def _least_time(steps: Steps, taken: _PromptIntake) -> Scalar:
    """Seconds of an engine that a request takes at least where prompts and decoding mix.

    A request's own prompt delays none of its tokens; yet no more of them end than full steps take prompts.
    """
    return (steps.seconds_of(taken.most) + steps.beside[0] * taken.full / taken.q) * taken.each / taken.full


def _opening(steps: Steps, rank: Rank, tokens: Scalar) -> Scalar:
    """Seconds that a request waits in the mean where all prompts come at once: for half of them, chunk after chunk."""
    chunk = jnp.maximum(jnp.minimum(rank.serving.chunk, tokens), 1.0)
    chunks = jnp.maximum(tokens / chunk - 1.0, 0.0)
    batch = Batch(0.0, 0.0, chunk, _prompt_context(rank.requests))
    step = engine_step(steps.clocks[1].stage, rank.met, rank.serving, rank.engine, batch).total
    return 0.5 * rank.requests.burst * jnp.where(chunks > 0.0, chunks + 1.0, 1.0) * step


def _prompt_context(requests: Requests) -> Scalar:
    """Tokens that one of a prompt attends to in the mean, those of a shared prefix among them."""
    return 0.5 * requests.prompt_tokens * (1.0 + requests.prefix_share)


def _mean_of_some(mean: Scalar) -> Scalar:
    """Mean of a Poisson distribution where it is not 0: ``m / (1 - exp(-m))``, near 0 its series."""
    least = 1e-3
    return jnp.where(mean > least, mean / -jnp.expm1(-jnp.maximum(mean, least)), 1.0 + 0.5 * mean)


def _delay(ends: Scalar, works: Scalar, backlog: Scalar) -> Scalar:
    """Requests that wait for their prompt, for each that decodes: of ``N`` that run ``n = N / (works + delay)`` decode.

    ``N = n (works + backlog e / (1 - e))`` of the share ``e = n ends / N`` of a full step's prompts, below 1: a
    quadratic equation, ``delay^2 - 2 h delay = ends backlog`` of ``2 h = ends - works``.

    Args:
        ends: prompts that all that run would bring to a step, over those that a full step takes.
        works: steps that a request works, over those of its answer.
        backlog: steps that a prompt waits for those before it, over the same, where steps are half full.
    """
    half, middle = 0.5 * (ends - works), 0.5 * (ends + works)
    size = jnp.maximum(half, -half)
    more = jnp.maximum(ends * backlog, 1e-6 * middle * middle - half * half)
    return 2.0 * jnp.maximum(half, 0.0) + more / (size + jnp.sqrt(half * half + more))


def _steps(rank: Rank, running: Scalar, mixing: Scalar, prompt: Scalar, many: Scalar) -> Steps:
    """Steps of all that run and of half of them, and one of ``prompt`` tokens beside ``mixing`` that decode.

    These are so ``many`` prompts, or pieces of them: what there is to be in several stages at once.
    """
    stage, met, requests, serving, engine = rank
    context = requests.prompt_tokens + 0.5 * requests.output_tokens
    apart = serving.mixed <= 0.0

    def of(sequences: Scalar, tokens: Scalar) -> Batch:
        return Batch(sequences, context, tokens, _prompt_context(requests), serving.drafts)

    def step(clock: Running, batch: Batch) -> EngineStepTime:
        return engine_step(clock.stage, met, serving, engine, batch)

    batches = of(running, 0.0), of(mixing, prompt)
    decoding, filling = (at_limit(stage, met, serving, engine, batch) for batch in batches)
    with_prompts, stages = step(filling, batches[1]), stage.design.mapping.pp
    parts = jnp.clip(many, 1.0, stages)
    # One that carries a part whole, where a step is taken to have them spread over all stages.
    alone = step(filling, of(mixing, prompt * stages / parts)).total / with_prompts.total
    return Steps(
        running, mixing, step(decoding, batches[0]), step(decoding, of(0.5 * running, 0.0)), with_prompts, apart,
        of(running, prompt), (decoding, filling), alone, parts,
    )  # fmt: skip


def together(requests: Requests, batch: Scalar, prompt: Scalar, decode: EngineStepTime, waves: Scalar) -> Served:
    """A batch that starts and ends together, ``waves`` of which follow each other: prompts, then ``OSL - 1`` steps.

    ``prompt``: seconds of the step of all prompts; ``decode``: a token of it.
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
    )


def served(rank: Rank, ranks: Scalar, held: KvCapacity) -> tuple[Served, Phases]:
    """What the users of one of so many ranks see under the load of the requests, and the steps behind it."""
    requests, load = rank.requests, rank.requests.load
    most = jnp.maximum(jnp.minimum(held.sequences, rank.engine.most_sequences), 1.0)
    offline, in_flight = load == float(Load.offline), requests.concurrency / ranks
    # With fewer requests than ranks each serves one at a time, for a share of the time.
    busy, asked = jnp.where(offline, 1.0, jnp.minimum(in_flight, 1.0)), jnp.maximum(in_flight, 1.0)
    queue = jnp.where(offline & (requests.queue > 0.0), requests.queue / ranks, jnp.inf)
    running = jnp.minimum(jnp.where(offline, jnp.maximum(queue, 1.0), asked), most)
    static = load == float(Load.static)
    running = jnp.where(static, asked, running)
    in_waves = load == float(Load.waves)
    waves = jnp.where(in_waves, jnp.ceil(asked / running), 1.0)
    running = jnp.where(in_waves, asked / waves, running)  # as many in each of them
    waiting = jnp.where(offline, 0.0, asked - running)
    is_batch = static | in_waves
    flowing, steps = steady(rank, running, waiting, is_batch)
    # A pipeline of p stages has to fill before the last of m parts comes out, m + p - 1 stages' time, of which a part
    # alone takes p; in decoding parts follow each other.
    prompts = steps.alone * steps.mixed * (1.0 + (steps.parts - 1.0) / rank.stage.design.mapping.pp)
    speed = tokens_of_a_step(rank.serving)
    at_once = together(requests, running, prompts, EngineStepTime(*(part / speed for part in steps.decode)), waves)

    def choose(a: Scalar, b: Scalar) -> Scalar:
        return jnp.where(is_batch, a, b)

    decode = EngineStepTime(*map(choose, at_once.decode, flowing.decode))
    found = Served(decode, *map(choose, at_once[1:], flowing[1:]))
    busy = busy / (1.0 + found.rate * _emptying(requests, steps) / (speed * queue))
    found = found._replace(rate=busy * found.rate)
    found = _with_preempted(found, requests, rank.engine, held, jnp.where(is_batch, 0.0, waiting))
    return found, _phases(rank, found, steps, is_batch, busy)


def _emptying(requests: Requests, steps: Steps) -> Scalar:
    """Seconds that a queue takes longer at its end, where steps of a token each have ever fewer sequences.

    Of ``s`` steps with ``n_s`` sequences as many are decoded as of full ones, whatever the lengths are: what steps take
    however few there are is paid once for each token that the longest answer is longer than the mean.
    """
    return jnp.maximum(requests.longest_answer - requests.output_tokens, 0.0) * steps.decode_of_none.total


def _with_preempted(found: Served, requests: Requests, engine: Engine, held: KvCapacity, waiting: Scalar) -> Served:
    """The same where of ``W`` requests beyond the room of memory some have had their first token.

    A prompt is admitted as soon as it fits, into what the caches of ``n`` answers, ``sqrt(n)`` times the spread of one,
    leave free for the moment: ``m`` prompts in the mean. Whoever came last is preempted as answers grow, and waits for
    the rest of its answer: of ``W`` that wait, ``W m / (W + m)``. That both are limits is the reason of the form.
    """
    early = jnp.where(held.sequences < engine.most_sequences, held.prompts * jnp.sqrt(found.running), 0.0)
    share = waiting / jnp.maximum((waiting + early) * found.rate, 1e-12)
    of_token = early * share / jnp.maximum(requests.output_tokens - 1.0, 1.0)
    return found._replace(waiting=found.placed + waiting * share, preempted=of_token)


def _phases(rank: Rank, found: Served, steps: Steps, at_once: Scalar, busy: Scalar) -> Phases:
    """The steps of what was found; each answer needs its prompt once."""
    requests, pp, speed = rank.requests, rank.stage.design.mapping.pp, tokens_of_a_step(rank.serving)
    beside = jnp.where(at_once, 0.0, jnp.where(steps.apart, 0.0, found.decoding))
    decode = per_stage_batch(steps.batch._replace(sequences=found.decoding, prompt=0.0), pp)
    passes = found.decoding / jnp.maximum(decode.sequences, 1e-6)
    parts = jnp.where(beside > 0.0, passes, steps.parts)
    mixed = steps.batch._replace(sequences=beside / parts, prompt=steps.batch.prompt / parts)
    fresh = requests.prompt_tokens * (1.0 - requests.prefix_share)
    return Phases(
        decode=EnginePhase(decode, passes, EngineStepTime(*(part * speed for part in found.decode)), steps.clocks[0]),
        mixed=EnginePhase(mixed, parts, steps.with_prompts, steps.clocks[1]),
        decode_steps=1.0 / jnp.maximum(found.decoding * speed, 1e-6),
        chunks=fresh / jnp.maximum(steps.batch.prompt * requests.output_tokens, 1e-6),
        busy=busy,
    )
