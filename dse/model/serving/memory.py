"""Device memory of a serving engine in bytes: weights, KV cache, runtime; and the capacity for sequences."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus, times, value_or
from dse.model.formats import operand_bytes
from dse.model.layout import NO_SHARERS, Layout, Sharers
from dse.model.machine.rates import host_link_rate
from dse.model.serving.work import Stage, bytes_per_weight, cache_bytes
from dse.model.work.parameters import head_parameters, stage_expert_parameters, stage_parameters
from dse.types import Design, Engine, FarMemory, Requests, Scalar, Serving, Spill, System

#: Of a mapping without far memory.
NO_SPILL = Spill()


class KvCapacity(NamedTuple):
    """Memory of the most loaded device in bytes, and its capacity for sequences."""

    weights: Scalar
    cache_per_sequence: Scalar  # KV cache of a sequence alone
    runtime: Scalar
    sequences: Scalar  # of one data-parallel rank, not rounded
    prompts: Scalar  # prompts that fit into the standard deviation of an answer's cache
    buffers: Scalar = 0.0  # further bytes per sequence, where each operator has its own output buffer
    prefix: Scalar = 0.0  # KV cache of the prefix that sequences share

    @property
    def bytes_per_sequence(self) -> Scalar:
        """Bytes per sequence on the device: cache and output buffers."""
        return plus(self.cache_per_sequence, self.buffers)

    def engine(self, running: Scalar) -> Scalar:
        """Return the bytes of runtime and output buffers with ``running`` sequences."""
        return plus(self.runtime, times(running, self.buffers))


def kv_capacity(stage: Stage, requests: Requests, serving: Serving, engine: Engine) -> KvCapacity:
    """Return the memory of an engine's most loaded device, B, and its capacity for sequences, not rounded.

    ``(share x capacity - weights - runtime) / bytes of a sequence``.

    The runtime memory holds the activations of a usual step; longer steps add to it. With paged allocation a sequence
    takes its prompt, on average half of its answer, and the reserved share of the other half; without it, both whole.
    The prefix that prompts share is stored once.

    Args:
        stage: a stage of the engine.
        requests: lengths of the requests.
        serving: how the engine serves.
        engine: parameters of the engine.
    """
    design, layout = stage.design, stage.layout
    weights = weight_bytes(design, layout, serving)
    reserved_share = jnp.where(serving.paged > 0.0, serving.reserved_answer, 1.0)
    answer_tokens = 0.5 * (1.0 + reserved_share) * requests.running_answer
    prefix = times(requests.prefix_share, layout.layers * cache_bytes(design, serving, requests.prompt_tokens))
    sequence_total = layout.layers * cache_bytes(design, serving, requests.prompt_tokens + answer_tokens)
    sequence_cache = plus(sequence_total, times(-1.0, prefix))
    prompts = _prompts_in_spread(stage, requests, serving, reserved_share, sequence_cache, prefix)
    runtime = runtime_bytes(stage, serving, engine)
    free_bytes = serving.memory_share * design.system.accelerator.memory.capacity - weights - plus(runtime, prefix)
    buffers = times(value_or(engine.own_buffers, 0.0), operator_buffer_bytes(stage, requests))
    near = KvCapacity(weights, sequence_cache, runtime, 0.0, prompts, buffers, prefix)
    near = near._replace(sequences=jnp.maximum(free_bytes, 0.0) / near.bytes_per_sequence)
    return _with_far_memory(design, design.mapping.spill or NO_SPILL, layout, near, free_bytes)


def _prompts_in_spread(
    stage: Stage,
    requests: Requests,
    serving: Serving,
    reserved_share: Scalar,
    sequence_bytes: Scalar,
    prefix_bytes: Scalar,
) -> Scalar:
    """Return the count of prompts in the standard deviation of an answer's cache: ``(1 - r) a / sqrt(12) / p``.

    The progress of answers is uniform, and with it their share of the cache ``a``. Admission needs ``p`` bytes: the
    prompt beyond a shared ``prefix_bytes`` and the reserved share ``r`` of its answer.
    """
    prompt_total = stage.layout.layers * cache_bytes(stage.design, serving, requests.prompt_tokens)
    prompt_bytes = jnp.maximum(plus(prompt_total, times(-1.0, prefix_bytes)), 1.0)
    answer_bytes = 2.0 / (1.0 + reserved_share) * (sequence_bytes - prompt_bytes) * (1.0 - 1.0 / requests.output_tokens)
    return (1.0 - reserved_share) / math.sqrt(12.0) * answer_bytes / (prompt_bytes + reserved_share * answer_bytes)


#: Share of the runtime memory that longest steps of few tokens leave: context of the driver, kernels, graphs.
LEAST_RUNTIME = 0.3
#: Buffers of communicators, B, of a device that has peers: 16 to 32 channels of 4 MiB and more in both directions, of
#: two communicators (NCCL's defaults in PyTorch and vLLM, from memory).
PEER_BUFFERS = 0.5e9


def runtime_bytes(stage: Stage, serving: Serving, engine: Engine) -> Scalar:
    """Return the memory of a device besides weights and cache, B, reserved from the start.

    ``max(R + A (chunk - t) - alone P, 0.3 R)``: the engine's runtime memory ``R`` with activations of ``t`` tokens and
    buffers ``P`` for messages to peers.

    Args:
        stage: a stage of the engine.
        serving: how the engine serves.
        engine: parameters of the engine.
    """
    peers = stage.layout.groups.tp.size * stage.design.mapping.pp * stage.exchange.group.size
    more = activation_bytes_per_token(stage) * (serving.chunk - engine.runtime_tokens)
    needed = engine.runtime_memory + more - jnp.where(peers > 1.0, 0.0, PEER_BUFFERS)
    return jnp.maximum(needed, LEAST_RUNTIME * engine.runtime_memory)


def activation_bytes_per_token(stage: Stage) -> Scalar:
    """Return the activation bytes on a device per token of the longest step (a chunk).

    Three vectors of the hidden size per token, which tp does not split, and the widest product: feed-forward, queries
    with keys and values, or the rows of a rank's experts with their activation inputs.
    """
    w, m, layout = stage.design.workload, stage.design.mapping, stage.layout
    widest_columns = jnp.maximum((1.0 + w.gated) * w.ffn_hidden, (w.n_heads + 2.0 * w.n_kv_heads) * w.head_dim) / m.tp
    if w.experts is not None and m.experts is not None:
        rows = w.experts.top_k * m.experts.etp / m.tp
        widest_columns = jnp.maximum(
            widest_columns, rows * (w.hidden + (1.0 + w.gated) * w.experts.expert_ffn / m.experts.etp)
        )
    # Gathered tokens and their sums, where ranks share feed-forwards.
    gathered = times(layout.sharers.dense - 1.0, 2.0 * w.hidden)
    return layout.element.activation * plus(3.0 * w.hidden + widest_columns, gathered)


def operator_buffer_bytes(stage: Stage, requests: Requests) -> Scalar:
    """Return the bytes per sequence on a device of output buffers, one for each operator, prompts all in one step.

    Per token six vectors of the hidden size (input, output, two norms, attention, layer), not split by tp; queries,
    keys and values twice, attention outputs twice, activation inputs. Per sequence the attention scores, their mask,
    and two fp32 logits (allocateBuffer of FasterTransformer's ParallelGpt, its context decoder and layers; from
    memory).
    """
    w, m, layout = stage.design.workload, stage.design.mapping, stage.layout
    act, tokens = layout.element.activation, requests.prompt_tokens
    head_columns = 4.0 * layout.query_width + 4.0 * layout.kv_width
    token_columns = 6.0 * w.hidden + head_columns + (1.0 + w.gated) * w.ffn_hidden / m.tp
    return act * tokens * (token_columns + (layout.heads + 1.0) * tokens) + 8.0 * w.vocab


def _with_far_memory(design: Design, spill: Spill, layout: Layout, kv: KvCapacity, free_bytes: Scalar) -> KvCapacity:
    """Return the capacity with shares of weights and cache in far memory, itself limited; unchanged without any.

    Weights are streamed through two buffers of a layer each; device memory that they free adds to ``free_bytes``.
    """
    if nothing(spill.far_weights) and nothing(spill.far_cache):
        return kv
    buffer_share = jnp.minimum(2.0 / layout.layers, 1.0)
    near_weights = kv.weights * (1.0 - spill.far_weights * (1.0 - buffer_share))
    near_sequence = jnp.maximum(1.0 - spill.far_cache, 1e-6) * kv.cache_per_sequence
    far_free_bytes = far_tier(design.system).capacity - spill.far_weights * kv.weights
    far_sequences = jnp.maximum(far_free_bytes, 0.0) / jnp.maximum(spill.far_cache * kv.cache_per_sequence, 1e-6)
    sequences = jnp.minimum(
        jnp.maximum(free_bytes + kv.weights - near_weights, 0.0) / plus(near_sequence, kv.buffers), far_sequences
    )
    return kv._replace(
        weights=near_weights,
        cache_per_sequence=near_sequence,
        sequences=jnp.where(far_free_bytes < 0.0, 0.0, sequences),
    )


class FarReads(NamedTuple):
    """Seconds of a stage's reads from far memory, and the share of its attention that is computed there."""

    weights: Scalar
    cache: Scalar
    attention_share: Scalar

    @property
    def total(self) -> Scalar:
        """Seconds of all reads."""
        return plus(self.weights, self.cache)


def far_tier(system: System) -> FarMemory:
    """Return the far memory of a device, the system's, or that of its host where the system has none."""
    return system.far or FarMemory(capacity=system.host.capacity, bandwidth=host_link_rate(system))


def weight_bytes(design: Design, layout: Layout, serving: Serving) -> Scalar:
    """Return the weight bytes of the most loaded device.

    Matrices are at the recipe's precision, embedding and head in 16 bits.

    Parts in slices (:class:`~dse.types.Slices`) are those of one of their ranks; the embedding is not in slices.

    Weights, and those of experts, may have a format of their own. A single stage holds both embedding and head. Layers
    that draft tokens (multi-token prediction, EAGLE) add one layer, on the stage of the head.

    Args:
        design: design whose shapes, recipe and mapping are read.
        layout: its layers by pipeline stage.
        serving: formats of weights that the engine stores.

    Returns:
        Bytes of one device.
    """
    w, m, sharers = design.workload, design.mapping, layout.sharers
    operand = operand_bytes(m.precision)
    head = head_parameters(w, m.tp)
    end_parameters = head * jnp.where(m.pp > 1.0, 1.0, 2.0 - w.tied_embeddings)
    expert_bytes = bytes_per_weight(serving, operand, True) * stage_expert_parameters(design, layout)
    other_bytes = bytes_per_weight(serving, operand, False) * jnp.maximum(
        stage_parameters(with_slice_widths(design, sharers), layout) - end_parameters, 0.0
    )
    if sharers is not NO_SHARERS:  # the embedding is whole, and a head tied to it
        end_parameters = end_parameters - head * (1.0 - w.tied_embeddings) * (1.0 - 1.0 / sharers.head)
    drafting_share = jnp.minimum(serving.drafts, 1.0) / layout.layers
    return (1.0 + drafting_share) * (other_bytes + expert_bytes) + jnp.maximum(operand, 2.0) * end_parameters


def with_slice_widths(design: Design, sharers: Sharers) -> Design:
    """Return the design with the feed-forward widths whose tp shares are those of a slice, unchanged without slices."""
    if sharers is NO_SHARERS:
        return design
    w, experts = design.workload, design.workload.experts
    if experts is not None:
        experts = dataclasses.replace(experts, shared_ffn=experts.shared_ffn / sharers.shared)
    workload = dataclasses.replace(w, ffn_hidden=w.ffn_hidden / sharers.dense, experts=experts)
    return dataclasses.replace(design, workload=workload)
