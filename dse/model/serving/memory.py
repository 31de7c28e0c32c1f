"""Bytes of a serving engine on a device: weights, cache, its own; and how many sequences these leave room for."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import given, nothing, plus, times
from dse.model.formats import operand_bytes
from dse.model.layout import Layout
from dse.model.serving.work import Stage, bytes_a_weight, cache_bytes
from dse.model.work.parameters import head_parameters, stage_expert_parameters, stage_parameters
from dse.types import Design, Engine, FarMemory, Requests, Scalar, Serving, Spill, System

#: Of a mapping that has weights and cache on its devices alone.
NEAR = Spill()


class KvCapacity(NamedTuple):
    """Memory of the fullest device, and what fits into it."""

    weights: Scalar
    a_sequence: Scalar  # bytes of cache
    runtime: Scalar
    sequences: Scalar  # that one rank of data parallelism holds, not rounded
    prompts: Scalar  # that fit into the spread of what one answer takes
    buffers: Scalar = 0.0  # bytes of a sequence beside its cache, where operators have buffers of their own

    @property
    def each(self) -> Scalar:
        """Bytes that a sequence takes."""
        return plus(self.a_sequence, self.buffers)

    def engine(self, running: Scalar) -> Scalar:
        """Bytes that are the engine's own while so many sequences run."""
        return plus(self.runtime, times(running, self.buffers))


def kv_capacity(stage: Stage, requests: Requests, serving: Serving, engine: Engine) -> KvCapacity:
    """``(share x capacity - weights - runtime) / bytes of a sequence``.

    An engine's own memory holds the activations of a usual step; those of longer ones come on top of it.

    A sequence has its prompt and, where pages are taken as it grows, half of its answer in the mean, beside the share
    of the other half that admission keeps free; all of it where it is allocated whole.
    """
    design, layout = stage.design, stage.layout
    weights = weight_bytes(design, layout, serving)
    kept = jnp.where(serving.paged > 0.0, serving.reserved_answer, 1.0)
    answer = 0.5 * (1.0 + kept) * requests.output_tokens
    a_sequence = layout.layers * cache_bytes(design, serving, requests.prompt_tokens + answer)
    prompts = _prompts_in_spread(stage, requests, serving, kept, a_sequence)
    runtime = engine.runtime_memory + more_activations(stage, serving, engine)
    left = serving.memory_share * design.system.accelerator.memory.capacity - weights - runtime
    buffers = times(given(engine.own_buffers, 0.0), own_buffers(stage, requests))
    near = KvCapacity(weights, a_sequence, runtime, 0.0, prompts, buffers)
    near = near._replace(sequences=jnp.maximum(left, 0.0) / near.each)
    return _with_far(design, design.mapping.spill or NEAR, layout, near, left)


def _prompts_in_spread(
    stage: Stage, requests: Requests, serving: Serving, kept: Scalar, a_sequence: Scalar
) -> Scalar:
    """Prompts that are admitted into the standard deviation of what one answer takes: ``(1 - r) a / sqrt(12) / p``.

    Answers at any of their tokens alike have taken a share of their cache ``a`` that is evenly spread. A request that
    is admitted needs its prompt and the share ``r`` of its answer that is kept free, together ``p``.
    """
    prompt = stage.layout.layers * cache_bytes(stage.design, serving, requests.prompt_tokens)
    answer = 2.0 / (1.0 + kept) * (a_sequence - prompt) * (1.0 - 1.0 / requests.output_tokens)
    return (1.0 - kept) / math.sqrt(12.0) * answer / (prompt + kept * answer)


def more_activations(stage: Stage, serving: Serving, engine: Engine) -> Scalar:
    """Bytes of activations of the longest step, a chunk, beyond those that the engine's own memory holds.

    Engines reserve them whatever is asked later. Alive at once are three vectors of the hidden size, which tp does not
    split, and the widest product: that of the feed-forward, or queries, keys and values. Of experts' it is the rows
    that a rank gets, with what feeds their activations.
    """
    w, m, layout = stage.design.workload, stage.design.mapping, stage.layout
    wide = jnp.maximum((1.0 + w.gated) * w.ffn_hidden, (w.n_heads + 2.0 * w.n_kv_heads) * w.head_dim) / m.tp
    if w.experts is not None and m.experts is not None:
        rows = w.experts.top_k * m.experts.etp / m.tp
        wide = jnp.maximum(wide, rows * (w.hidden + (1.0 + w.gated) * w.experts.expert_ffn / m.experts.etp))
    a_token = layout.element.activation * (3.0 * w.hidden + wide)
    return a_token * jnp.maximum(serving.chunk - engine.runtime_tokens, 0.0)


def own_buffers(stage: Stage, requests: Requests) -> Scalar:
    """Bytes of a sequence in buffers that every operator has for its output, prompts of all sequences in one step.

    Of the hidden size six a token (input, output, twice normalised, attention and layer), which tp does not split;
    queries, keys and values as they are projected and again by head, what the heads give twice, what feeds the
    activation; a sequence the scores of its heads, their mask, and its logits twice in fp32 (allocateBuffer of
    FasterTransformer's ParallelGpt, its context decoder and layers; from memory).
    """
    w, m, layout = stage.design.workload, stage.design.mapping, stage.layout
    act, tokens = layout.element.activation, requests.prompt_tokens
    heads = 4.0 * layout.query_width + 4.0 * layout.kv_width
    a_token = 6.0 * w.hidden + heads + (1.0 + w.gated) * w.ffn_hidden / m.tp
    return act * tokens * (a_token + (layout.heads + 1.0) * tokens) + 8.0 * w.vocab


def _with_far(design: Design, spill: Spill, layout: Layout, whole: KvCapacity, left: Scalar) -> KvCapacity:
    """The room with shares of weights and cache in a far memory, whose own is limited as well.

    Weights come through two buffers of a layer each; what these leave of the device's memory adds to the ``left``.
    """
    if nothing(spill.far_weights) and nothing(spill.far_cache):
        return whole
    buffers = jnp.minimum(2.0 / layout.layers, 1.0)
    near = whole.weights * (1.0 - spill.far_weights * (1.0 - buffers))
    near_sequence = jnp.maximum(1.0 - spill.far_cache, 1e-6) * whole.a_sequence
    beyond = far_tier(design.system).capacity - spill.far_weights * whole.weights
    far = jnp.maximum(beyond, 0.0) / jnp.maximum(spill.far_cache * whole.a_sequence, 1e-6)
    fits = jnp.minimum(jnp.maximum(left + whole.weights - near, 0.0) / plus(near_sequence, whole.buffers), far)
    return whole._replace(weights=near, a_sequence=near_sequence, sequences=jnp.where(beyond < 0.0, 0.0, fits))


def far_tier(system: System) -> FarMemory:
    """The memory beyond a device's own: its share of the host's where the system has no other."""
    return system.far or FarMemory(capacity=system.host.capacity, bandwidth=system.host.bandwidth)


def weight_bytes(design: Design, layout: Layout, serving: Serving) -> Scalar:
    """Bytes of the weights on the device that holds most: matrices as the recipe has them, the ends in 16.

    Weights, and those of experts, are in a format of their own where they have one. A stage of its own holds embedding
    and head; where there is one stage, it holds both. What drafts tokens is a layer more (multi-token prediction,
    EAGLE), on the stage of the head.
    """
    w = design.workload
    narrow = operand_bytes(design.mapping.precision)
    ends = head_parameters(w, design.mapping.tp) * jnp.where(
        design.mapping.pp > 1.0, 1.0, 2.0 - w.tied_embeddings
    )
    experts = bytes_a_weight(serving, narrow, True) * stage_expert_parameters(design, layout)
    others = bytes_a_weight(serving, narrow, False) * jnp.maximum(stage_parameters(design, layout) - ends, 0.0)
    drafting = jnp.minimum(serving.drafts, 1.0) / layout.layers
    return (1.0 + drafting) * (others + experts) + jnp.maximum(narrow, 2.0) * ends
