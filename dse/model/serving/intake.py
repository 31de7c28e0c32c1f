"""What an engine step takes in: output tokens of a sequence, prompts and their pieces."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Engine, Load, Requests, Scalar, Serving


def tokens_of_a_step(serving: Serving) -> Scalar:
    """Output tokens per sequence and step: ``(1 - a^(k + 1)) / (1 - a)`` with k drafts (Leviathan et al. 2023)."""
    alpha = serving.acceptance
    return jnp.where(serving.drafts > 0.0, (1.0 - alpha ** (serving.drafts + 1.0)) / (1.0 - alpha), 1.0)


def in_phase(requests: Requests) -> Scalar:
    """Whether requests that start together end together: a queue with answers of one length."""
    alike = (requests.load == float(Load.offline)) & (requests.longest_answer <= requests.output_tokens)
    return alike if requests.answer_spread is None else alike & (requests.answer_spread <= 0.0)


def idle_rows(serving: Serving, engine: Engine, sequences: Scalar) -> Scalar:
    """Rows that a decode step computes beyond its ``sequences``, up to the next captured graph.

    Graphs are of powers of two, of multiples of a step ``g`` up to ``4 g``, and of the most sequences of the engine
    (``_filter_cuda_graph_batch_sizes`` of ``model_engine.py`` of TensorRT-LLM 1.0, with padding).
    """
    step = serving.graph_step
    if step is None:
        return 0.0
    power = jnp.exp2(jnp.ceil(jnp.log2(jnp.maximum(sequences, 1.0)) - 1e-6))
    multiple = step * jnp.ceil(sequences / step - 1e-6)
    size = jnp.where(multiple <= 4.0 * step, jnp.minimum(power, multiple), power)
    return (1.0 + serving.drafts) * jnp.maximum(jnp.minimum(size, engine.most_sequences) - sequences, 0.0)


def tokens_of_a_sequence(serving: Serving) -> Scalar:
    """Tokens of the limit of a step that a decoding sequence takes: with its drafts; none where prompts are apart."""
    return jnp.where(serving.mixed <= 0.0, 0.0, 1.0 + serving.drafts)


class PromptIntake(NamedTuple):
    """Prompt tokens and prompts per step."""

    fresh: Scalar  # computed tokens of a prompt
    each: Scalar  # the same, at least 1
    turns: Scalar  # steps of an answer
    full: Scalar  # prompt tokens of a full step
    q: Scalar  # prompt tokens of a mean step with prompts
    limit: Scalar  # decoding requests at which every step is full of prompts
    pieces: Scalar  # steps per prompt
    whole: Scalar  # the same, at least 1
    holds: Scalar  # prompts that fit into a step
    ranks: Scalar | None = None  # whose prompts delay each other; None: of no other
    shared: Scalar = 0.0  # share of the work of a prompt that all of them do, in its experts

    def delaying(self, own: Scalar) -> Scalar:
        """Prompts that delay a step, in steps of one rank's prompts, for ``d = own`` of the own rank.

        A step waits for a prompt on any of ``R`` ranks, ``1 - (1 - d)^R``, but for its experts, whose work is the mean.
        """
        if self.ranks is None:
            return own
        any_rank = -jnp.expm1(self.ranks * jnp.log1p(-jnp.minimum(own, 1.0 - 1e-6)))
        return own + (1.0 - self.shared) * jnp.maximum(any_rank - own, 0.0)


def prompt_intake(requests: Requests, serving: Serving, running: Scalar) -> PromptIntake:
    """Prompt intake of engine steps.

    In full steps the share of prompt tokens is that of a request; other steps carry the prompts that arrived since the
    step before, up to a chunk, or as many whole ones as fit into it. Answers in phase end together, and their prompts
    come in full steps, however few these are.
    """
    fresh = requests.prompt_tokens * (1.0 - requests.prefix_share)
    turns = jnp.maximum(requests.output_tokens / tokens_of_a_step(serving), 1.0)
    decoded = tokens_of_a_sequence(serving)
    each = jnp.maximum(fresh, 1.0)
    full = serving.chunk * each / jnp.maximum(fresh + turns * decoded, 1.0)
    arrivals = _mean_if_positive((running - 1.0) / turns)
    left = serving.chunk - running * decoded
    if serving.whole_prompts is not None:
        are_whole = (serving.whole_prompts > 0.0) & (serving.chunk >= each)
        full = jnp.where(are_whole, _whole_prompts(serving.chunk, each, turns, decoded), full)
        left = jnp.where(are_whole, each * jnp.floor(left / each), left)
    tokens = jnp.maximum(left, full)
    arrivals = jnp.where(in_phase(requests), running, arrivals)
    holds, q = tokens / each, jnp.minimum(tokens, each * arrivals)
    steps = fresh / q
    return PromptIntake(fresh, each, turns, full, q, turns * full / each, steps, jnp.maximum(steps, 1.0), holds)


def _whole_prompts(chunk: Scalar, each: Scalar, turns: Scalar, decoded: Scalar) -> Scalar:
    """Prompt tokens of a full step of whole prompts, of ``each`` tokens, whose answers are of ``turns`` steps.

    Of ``c`` tokens ``n`` requests that decode ``q`` tokens each leave ``floor((c - n q) / p)`` prompts, as many as end
    where ``n q = max(k o, c - (k + 1) p + q)`` with ``o`` tokens of an answer and ``k = floor(c / (p + o))``: there the
    number of prompts is the whole ``k``, or a mean of ``k`` and ``k + 1`` as ``n`` keeps close to a step of the floor,
    which the last request has crossed.
    """
    answer = turns * decoded
    many = jnp.floor(chunk / (each + answer))
    return each * jnp.maximum(many, (chunk - (many + 1.0) * each + decoded) / jnp.maximum(answer, 1.0))


def _mean_if_positive(mean: Scalar) -> Scalar:
    """Mean of the positive values of a Poisson distribution: ``m / (1 - exp(-m))``, its series near 0."""
    least = 1e-3
    return jnp.where(mean > least, mean / -jnp.expm1(-jnp.maximum(mean, least)), 1.0 + 0.5 * mean)
