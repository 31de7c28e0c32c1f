"""What an engine step takes in: output tokens of a sequence, prompts and their pieces."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dse.model.choice import times, value_or
from dse.model.serving.work import largest_deviate
from dse.types import Engine, Load, Requests, Scalar, Serving


def output_tokens_per_step(serving: Serving) -> Scalar:
    """Return the mean output tokens per sequence and step: ``(1 - a^(k + 1)) / (1 - a)`` with k drafts, 1 with none.

    Leviathan et al. 2023.
    """
    alpha = serving.acceptance
    return jnp.where(serving.drafts > 0.0, (1.0 - alpha ** (serving.drafts + 1.0)) / (1.0 - alpha), 1.0)


def ends_together(requests: Requests) -> Scalar:
    """Return a mask, true for offline queues with answers of one length: requests that start together end together."""
    equal_answers = (requests.load == float(Load.offline)) & (requests.longest_answer <= requests.output_tokens)
    return equal_answers if requests.answer_spread is None else equal_answers & (requests.answer_spread <= 0.0)


def idle_rows(serving: Serving, engine: Engine, sequences: Scalar) -> Scalar:
    """Return the rows (tokens) that a decode step computes beyond its ``sequences``, up to the next captured graph.

    Graphs are of powers of two, of multiples of a step ``g`` up to ``4 g``, and of the most sequences of the engine
    (``_filter_cuda_graph_batch_sizes`` of ``model_engine.py`` of TensorRT-LLM 1.0, with padding).

    Args:
        serving: how the engine serves.
        engine: parameters of the engine.
        sequences: that decode.
    """
    graph_step = serving.graph_step
    if graph_step is None:
        return 0.0
    graphs = value_or(serving.graphs, 1.0)
    power_of_two = jnp.exp2(jnp.ceil(jnp.log2(jnp.maximum(sequences, 1.0)) - 1e-6))
    multiple = graph_step * jnp.ceil(sequences / graph_step - 1e-6)
    graph_sequences = jnp.where(multiple <= 4.0 * graph_step, jnp.minimum(power_of_two, multiple), power_of_two)
    idle = jnp.maximum(jnp.minimum(graph_sequences, engine.most_sequences) - sequences, 0.0)
    return times(graphs, (1.0 + serving.drafts) * idle)


def limit_tokens_per_sequence(serving: Serving) -> Scalar:
    """Return the tokens of the step limit that a decoding sequence takes: itself and its drafts.

    0 where prompts have steps of their own.
    """
    return jnp.where(serving.mixed <= 0.0, 0.0, 1.0 + serving.drafts)


class PromptIntake(NamedTuple):
    """Prompt tokens and prompts per step."""

    computed_tokens: Scalar  # computed tokens of a prompt
    prompt_tokens: Scalar  # the same, at least 1
    answer_steps: Scalar  # steps of an answer
    full_step_tokens: Scalar  # prompt tokens of a full step
    mean_step_tokens: Scalar  # prompt tokens of a mean step with prompts
    saturating_sequences: Scalar  # decoding requests at which every step is full of prompts
    steps_per_prompt: Scalar  # steps per prompt
    prompt_steps: Scalar  # the same, at least 1
    prompts_per_step: Scalar  # prompts that fit into a step
    ranks: Scalar | None = None  # whose prompts delay each other; None: of no other
    shared_work_share: Scalar = 0.0  # share of the work of a prompt that all of them do, in its experts
    held_steps: Scalar = 0.0  # further decode steps between admissions, where ranks take prompts together
    busiest: Scalar = 1.0  # prompts of the busiest rank over the mean, where ranks take them together

    def delaying_prompts(self, own_delays: Scalar) -> Scalar:
        """Return the steps with prompts of any rank per decode step, from those of the own rank, ``d = own_delays``.

        The same where prompts delay no other rank.

        A step waits for a prompt on any of ``R`` ranks, ``1 - (1 - d)^R``, but for its experts, whose work is the mean.
        Where ranks take prompts together it waits for the rank with most of them.
        """
        if self.ranks is None:
            return own_delays
        any_rank = -jnp.expm1(self.ranks * jnp.log1p(-jnp.minimum(own_delays, 1.0 - 1e-6)))
        slowest_rank = times(self.busiest, any_rank)
        return own_delays + (1.0 - self.shared_work_share) * jnp.maximum(slowest_rank - own_delays, 0.0)


#: Nodes and weights of Gauss-Legendre quadrature from 0 to 1.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(10)
_NODES, _WEIGHTS = (0.5 * (_NODES + 1.0)).tolist(), (0.5 * _WEIGHTS).tolist()


class PromptHold(NamedTuple):
    """Prompts that are held back until ranks take them together."""

    steps: Scalar  # decode steps between two admissions, mean
    prompts: Scalar  # of a rank in one of them, mean
    busiest: Scalar  # those of the rank with most of them, over the mean


def prompt_hold(requests: Requests, serving: Serving, running: Scalar, ranks: Scalar) -> PromptHold | None:
    """Return the steps between admissions of ranks that take prompts together, None where none is counted.

    A rank gets ``a`` prompts a step (Poisson). The first of ``R`` ranks has one after ``1 / (R a)`` steps, and ``t``
    steps later all others with probability ``F(t) = (1 - exp(-a t))^(R - 1)``. Engines admit ``B`` steps after that
    (``prompt_batching``), or after ``W`` steps (``prompt_timeout``): ``P = 1 / (R a) + int_0^W (1 - F) dt + B F(W)``
    steps from one admission to the next. Of ``m = a P`` prompts a rank the busiest has about ``m + sqrt(m) d``
    (:func:`largest_deviate` ``d`` of ``R``), but no more than whole ones fit into a step.

    Args:
        requests: of a rank.
        serving: how the engine serves.
        running: requests in flight of a rank.
        ranks: whose tokens meet in the experts.
    """
    if serving.prompt_balance is None or serving.prompt_timeout is None:
        return None
    answer_steps = jnp.maximum(requests.output_tokens / output_tokens_per_step(serving), 1.0)
    arrivals = jnp.maximum((running - 1.0) / answer_steps, 1e-6)
    limit = jnp.maximum(serving.prompt_timeout, 1e-3)

    def all_have(steps: Scalar) -> Scalar:
        return jnp.exp((ranks - 1.0) * jnp.log(jnp.maximum(-jnp.expm1(-arrivals * steps), 1e-12)))

    waiting = sum(weight * (1.0 - all_have(node * limit)) for node, weight in zip(_NODES, _WEIGHTS, strict=True))
    steps = 1.0 / (ranks * arrivals) + limit * waiting + value_or(serving.prompt_batching, 0.0) * all_have(limit)
    is_held = (serving.prompt_balance > 0.0) & (serving.prompt_timeout > 0.0) & (ranks > 1.0)
    is_held = jnp.logical_and(is_held, jnp.logical_not(ends_together(requests)))
    steps = jnp.where(is_held, jnp.maximum(steps, 1.0), 1.0)
    prompts = arrivals * steps
    busiest = 1.0 + largest_deviate(ranks) / jnp.sqrt(jnp.maximum(prompts, 1.0))
    return PromptHold(steps, prompts, jnp.where(is_held, busiest, 1.0))


def prompt_intake(
    requests: Requests, serving: Serving, running: Scalar, hold: PromptHold | None = None
) -> PromptIntake:
    """Return the prompt tokens and prompts per engine step with ``running`` requests in flight.

    In full steps the share of prompt tokens is that of a request; other steps carry the prompts that arrived since the
    step before, up to a chunk, or as many whole ones as fit into it. Answers in phase end together, and their prompts
    come in full steps, however few these are.
    """
    computed_tokens = requests.prompt_tokens * (1.0 - requests.prefix_share)
    answer_steps = jnp.maximum(requests.output_tokens / output_tokens_per_step(serving), 1.0)
    sequence_tokens = limit_tokens_per_sequence(serving)
    prompt_tokens = jnp.maximum(computed_tokens, 1.0)
    full_step_tokens = (
        serving.chunk * prompt_tokens / jnp.maximum(computed_tokens + answer_steps * sequence_tokens, 1.0)
    )
    arrivals = _mean_if_positive((running - 1.0) / answer_steps)
    free_tokens = serving.chunk - running * sequence_tokens
    if serving.whole_prompts is not None:
        fits_prompts = (serving.whole_prompts > 0.0) & (serving.chunk >= prompt_tokens)
        full_step_tokens = jnp.where(
            fits_prompts,
            _whole_prompt_tokens(serving.chunk, prompt_tokens, answer_steps, sequence_tokens),
            full_step_tokens,
        )
        free_tokens = jnp.where(fits_prompts, prompt_tokens * jnp.floor(free_tokens / prompt_tokens), free_tokens)
    tokens = jnp.maximum(free_tokens, full_step_tokens)
    arrivals = arrivals if hold is None else jnp.maximum(arrivals, hold.prompts)
    arrivals = jnp.where(ends_together(requests), running, arrivals)
    prompts_per_step, mean_step_tokens = tokens / prompt_tokens, jnp.minimum(tokens, prompt_tokens * arrivals)
    steps_per_prompt = computed_tokens / mean_step_tokens
    busiest: Scalar = 1.0
    if hold is not None:  # prompts are not cut where a step holds them: those beyond wait for the next admission
        held = jnp.maximum(prompts_per_step / hold.prompts, 1.0)
        busiest = jnp.where(serving.chunk >= prompt_tokens, jnp.minimum(hold.busiest, held), hold.busiest)
    return PromptIntake(
        computed_tokens,
        prompt_tokens,
        answer_steps,
        full_step_tokens,
        mean_step_tokens,
        answer_steps * full_step_tokens / prompt_tokens,
        steps_per_prompt,
        jnp.maximum(steps_per_prompt, 1.0),
        prompts_per_step,
        held_steps=0.0 if hold is None else jnp.maximum(hold.steps - serving.admission_steps, 0.0),
        busiest=busiest,
    )


def _whole_prompt_tokens(chunk: Scalar, prompt_tokens: Scalar, answer_steps: Scalar, sequence_tokens: Scalar) -> Scalar:
    """Return the mean prompt tokens of a full step that takes whole prompts only.

    Of ``c`` tokens ``n`` requests that decode ``q`` tokens each leave ``floor((c - n q) / p)`` prompts, as many as end
    where ``n q = max(k o, c - (k + 1) p + q)`` with ``o`` tokens of an answer and ``k = floor(c / (p + o))``: there the
    number of prompts is the whole ``k``, or a mean of ``k`` and ``k + 1`` as ``n`` keeps close to a step of the floor,
    which the last request has crossed.
    """
    answer_tokens = answer_steps * sequence_tokens
    prompts = jnp.floor(chunk / (prompt_tokens + answer_tokens))
    return prompt_tokens * jnp.maximum(
        prompts, (chunk - (prompts + 1.0) * prompt_tokens + sequence_tokens) / jnp.maximum(answer_tokens, 1.0)
    )


def _mean_if_positive(mean: Scalar) -> Scalar:
    """Return the mean of a Poisson variable's positive values, ``m / (1 - exp(-m))`` for its mean ``m``."""
    series_limit = 1e-3
    return jnp.where(mean > series_limit, mean / -jnp.expm1(-jnp.maximum(mean, series_limit)), 1.0 + 0.5 * mean)
