"""Peak memory of the most loaded device: weights, gradients, optimiser, activations, logits, buffers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus, select, times, where_on
from dse.model.layout import Layout
from dse.model.parallel import pipeline
from dse.model.stage_layers import chunk_layers
from dse.model.work import offload
from dse.model.work.blocks import feed_forward_of
from dse.model.work.experts import backward_bytes
from dse.model.work.ledger import sum_records
from dse.model.work.parameters import (
    embedding_parameters,
    expert_layer_matrix_parameters,
    head_parameters,
    layer_expert_parameters,
    layer_matrix_parameters,
    layer_parameters,
    second_embedding_parameters,
    usual_layer_parameters,
)
from dse.model.work.state import stored_bytes
from dse.model.work.training import TrainingWork
from dse.types import Design, Group, Scalar

#: Buffers of CUDA graphs over stored activations: temporary tensors of a forward stay allocated (NVIDIA/NeMo,
#: docs/source/features/optimizations/cudagraphs.md: about a fifth, 10 to 20 GB in all).
GRAPH_BUFFERS = 0.2


class Memory(NamedTuple):
    """Peak bytes of one device by part, which add up to ``total``."""

    weights: Scalar
    gradients: Scalar
    optimizer: Scalar
    embedding_and_head: Scalar
    activations: Scalar
    logits: Scalar
    buffers: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


def outside_memory(design: Design, layout: Layout, work: TrainingWork) -> tuple[Scalar, Scalar]:
    """Return the bytes on the host, and those on storage, per device of the first stage.

    It has most micro-batches in flight.

    A layer that it may lack is counted, since the next stage has it.
    """
    in_flight = pipeline.activations_in_flight(design.mapping, layout.n_micro_batches).stage
    on_host = offload.offloaded_bytes(work.on_host, layout.layers, in_flight)
    if work.tiered is None:
        return on_host, 0.0
    on_storage = offload.offloaded_bytes(work.tiered, layout.layers, in_flight)
    on_host = on_host + layout.layers * (work.tiered.gradients + work.tiered.end_state) - on_storage
    stored_gradients = layout.layers * work.tiered.stored_gradients
    buffers = offload.sub_group_buffers(design, work.tiered, layout.layers)
    return on_host - stored_gradients + buffers, on_storage + stored_gradients


def layer_transient_bytes(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Return the transient bytes per device of the backward of one layer.

    These are recomputed activations and gradients of inner feed-forward tensors.
    """
    w = design.workload
    ffn_gradients = w.backward * layout.element.activation * layout.tokens * layout.ffn * (2.0 + w.gated)
    routed = times(w.backward, backward_bytes(design, layout, layout.experts))
    if not nothing(routed):
        dense = jnp.where(layout.experts.first + layout.experts.dense_share > 0.0, ffn_gradients, 0.0)
        ffn_gradients = jnp.maximum(dense, routed)
    return work.stored_activations.recomputed + ffn_gradients


def standing_buffer_bytes(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Return the bytes per device of buffers allocated for the whole step.

    Sequence parallelism: a gathered input and its unreduced gradient, a cached 16-bit weight gradient per weight shape;
    ZeRO-2: the unreduced gradient, ZeRO-3: twice the gathered weights, of the unit that a stack moves: a layer, or a
    matrix.
    """
    m, w = design.mapping, design.workload
    act = layout.element.activation
    gathered = jnp.where((layout.split > 0.0) & (m.tp > 1.0), 2.0 * act * layout.tokens * w.hidden, 0.0)
    parameters_per_gather = _parameters_per_gather(design, usual_layer_parameters(w, m.tp))
    layer = act * plus(parameters_per_gather, work.trained.adapter_parameters)
    changing = act * work.trained.trained_count(parameters_per_gather)
    cached = w.backward * design.software.gradient_cache * act * distinct_matrix_parameters(design, layout)
    cached = times(work.trained.trains_model, cached)
    unreduced = _where_split(layout, 2.0, w.backward * changing)
    buffers = plus(gathered, cached, unreduced) + _where_split(layout, 3.0, 2.0 * layer)
    gathered_share = 1.0 / jnp.where(design.software.gathers_matrices > 0.0, 2.0 + w.gated, 1.0)
    routed, replicas = times(act * gathered_share, layer_expert_parameters(design, layout)), layout.experts.replicas
    unreduced = times(work.trained.trains_model, _where_split(layout, 2.0, times(w.backward, routed), replicas))
    return plus(buffers, unreduced, _where_split(layout, 3.0, times(2.0, routed), replicas))


def _parameters_per_gather(design: Design, layer: Scalar) -> Scalar:
    """Return the parameters per gather and scatter: all ``layer`` parameters of a layer, or its largest matrix.

    FSDP wraps layers (Zhao et al. 2023); XLA's partitioner gathers an operand where it is used (Xu et al. 2021, GSPMD).
    """
    w = design.workload
    widest = jnp.maximum(w.ffn_hidden, w.n_heads * w.head_dim)
    matrix = jnp.minimum(layer, w.hidden * widest / design.mapping.tp)
    return jnp.where(design.software.gathers_matrices > 0.0, matrix, layer)


def _separate_head_bytes(design: Design, layout: Layout) -> Scalar:
    """Return the bytes per parameter of a head that is gathered separately, 0 where the outermost unit has it."""
    return jnp.where(design.software.gathers_matrices > 0.0, layout.element.activation, 0.0)


def distinct_matrix_parameters(design: Design, layout: Layout) -> Scalar:
    """Return the count of parameters of a layer's distinct matrices per device, of equal experts only one."""
    w, tp, feed_forward = design.workload, design.mapping.tp, feed_forward_of(design.workload)
    with_experts = expert_layer_matrix_parameters(w, tp), feed_forward.expert(layout.experts.etp.size)
    return feed_forward.usual(layer_matrix_parameters(w, tp), lambda: plus(*with_experts))


def _where_split(layout: Layout, stage: float, size: Scalar, replicas: Group | None = None) -> Scalar:
    """Return ``size`` bytes from a ZeRO stage on, where several devices share the split state, else 0."""
    shared = (replicas or layout.groups.dp).size
    return 0.0 if nothing(size) else jnp.where((layout.zero >= stage) & (shared > 1.0), size, 0.0)


class MemoryStage(NamedTuple):
    """Contents of a stage: its layers, and its embedding or head."""

    layers: Scalar
    stored_layers: Scalar  # layers x micro-batches of stored activations at the peak
    parameters: Scalar = 0.0
    activations: Scalar = 0.0
    transient: Scalar = 0.0  # activations that are freed before the backward of the layers
    buffers: Scalar = 0.0
    first_layers: Scalar = 0.0  # first dense layers of a mixture
    stored_first_layers: Scalar = 0.0  # these x micro-batches
    deferred_layers: Scalar = 0.0  # layers x micro-batches with deferred weight gradients and recomputed activations


def stage_memory(design: Design, layout: Layout, work: TrainingWork, stage: MemoryStage) -> Memory:
    """Return the peak bytes per device of a stage by part, in the backward of the head or of a layer."""
    w, m, state = design.workload, design.mapping, work.state
    usual, end_state = usual_layer_parameters(w, m.tp), work.trained.of_model(state)
    layer = work.trained.trained_count(usual)
    weights = plus(usual * end_state.weights, times(work.trained.adapter_parameters, state.weights))
    gradients = stage.layers * (layer * state.gradients)
    tiers = m.tiers or offload.NO_TIERS
    depth, activation_depth = tiers.prefetch_depth, tiers.activation_depth
    optimizer = offload.resident_layers(stage.layers, m.offload_optimizer, depth) * (layer * state.optimizer)
    if m.tiers is not None:
        gradient_share, optimizer_share = offload.device_state_shares(m)
        end_state = end_state._replace(
            gradients=gradient_share * end_state.gradients, optimizer=optimizer_share * end_state.optimizer
        )
        device_gradients = offload.resident_layers(stage.layers, tiers.offload_gradients, tiers.gradient_depth)
        gradients = device_gradients * (layer * state.gradients)
        # The host updates without buffers.
        host_layers = jnp.minimum(stage.layers, 1.0 + depth) * (1.0 - optimizer_share)
        optimizer = optimizer - host_layers * (layer * state.optimizer)
    # FSDP gathers embedding and head once, as its outermost unit, and frees them at the end; stacks that gather
    # matrices gather the head for its products only.
    by_layer = layout.element.activation - _separate_head_bytes(design, layout)
    gathered_bytes = _where_split(layout, 3.0, by_layer * stage.parameters)
    transient = jnp.maximum(layer_transient_bytes(design, layout, work) - stage.transient, 0.0)
    memory = Memory(
        weights=offload.resident_layers(stage.layers, m.offload_weights, depth) * weights,
        gradients=gradients,
        optimizer=optimizer,
        embedding_and_head=stage.parameters * end_state.total,
        activations=offload.resident_layers(stage.stored_layers, m.offload_activations, activation_depth)
        * work.stored_activations.mean,
        logits=stage.activations,
        buffers=standing_buffer_bytes(design, layout, work) + stage.buffers + gathered_bytes + transient,
    )
    if not nothing(layout.pipeline.folded):
        brought_back = w.backward * stored_bytes(work.layer) - work.stored_activations.mean
        # Pairs of passes defer the weight gradients of the last p / 2 micro-batches.
        drained_bytes = (stage.deferred_layers + 0.5 * stage.layers) * (work.stored_activations.mean + brought_back)
        memory = memory._replace(
            activations=jnp.where(
                pipeline.pairs_passes(m) > 0.0,
                jnp.maximum(memory.activations, drained_bytes),
                memory.activations + stage.deferred_layers * brought_back,
            )
        )
    memory = with_experts(memory, design, layout, work, stage)
    if m.graph is None:
        return memory
    graph_buffers = jnp.where(m.graph > 0.0, GRAPH_BUFFERS, 0.0) * memory.activations
    return memory._replace(buffers=memory.buffers + graph_buffers)


def with_experts(memory: Memory, design: Design, layout: Layout, work: TrainingWork, stage: MemoryStage) -> Memory:
    """Return ``memory`` of a stage plus its routed experts and first dense layers, bytes; as it is without experts."""
    experts, w, m = work.routed_state, design.workload, design.mapping
    if nothing(layout.experts.local):
        return memory
    routed = times(stage.layers - stage.first_layers, layer_expert_parameters(design, layout))
    dense = times(stage.first_layers, layer_parameters(w, m.tp) - usual_layer_parameters(w, m.tp))
    any_dense = where_on(plus(stage.first_layers, layout.experts.dense_share), 1.0, 0.0)
    dense_shapes = times(any_dense, (2.0 + w.gated) * w.hidden * layout.ffn)
    usual = work.trained.of_model(work.state)
    cached_share = times(work.trained.trains_model, w.backward * design.software.gradient_cache)
    layers = jnp.maximum(stage.layers, 1.0)
    weights_share, optimizer_share = (
        offload.resident_layers(layers, offloaded, (m.tiers or offload.NO_TIERS).prefetch_depth) / layers
        for offloaded in (m.offload_weights, m.offload_optimizer)
    )
    weights, gradients, optimizer = (
        plus(times(routed, of_experts), times(dense, of_model))
        for of_experts, of_model in zip(experts, usual, strict=True)
    )
    stored_difference = work.first_layer_activations.mean - work.stored_activations.mean
    added = Memory(
        times(weights_share, weights),
        gradients,
        times(optimizer_share, optimizer),
        embedding_and_head=0.0,
        activations=times(stage.stored_first_layers, stored_difference),
        logits=0.0,
        buffers=times(cached_share, times(layout.element.activation, dense_shapes)),
    )
    return sum_records([memory, added])


def head_buffer_bytes(design: Design, layout: Layout, logits: Scalar) -> Scalar:
    """Return the bytes of the head's backward beyond the stored ``logits``, part of which are free by then.

    First the 16-bit gradients of all logits, from those stored for the loss; then these alone, while the weight
    gradient is computed into a 16-bit buffer (``VocabParallelCrossEntropy`` and
    ``LinearWithGradAccumulationAndAsyncCommunication`` of Megatron-Core).
    """
    act = layout.element.activation
    gradients = act * (layout.tokens * layout.vocab)
    return jnp.maximum(gradients, gradients + act * head_parameters(design.workload, design.mapping.tp) - logits)


def peak_memory(design: Design, layout: Layout, work: TrainingWork) -> tuple[Scalar, Memory]:
    """Return the peak memory of the most loaded stage in bytes, total and by part.

    The most loaded stage is the first (most micro-batches in flight), the last (head, logits), or the second where the
    first has a layer less.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        work: its ledger.
    """
    first_memory, *other_stages = (
        stage_memory(design, layout, work, stage) for stage in memory_stages(design, layout, work)
    )
    peak, parts = first_memory.total, first_memory
    for other in other_stages:
        total = other.total
        parts = select(peak >= total, parts, other)
        peak = jnp.maximum(peak, total)
    return peak, parts


def memory_stages(design: Design, layout: Layout, work: TrainingWork) -> tuple[MemoryStage, MemoryStage, MemoryStage]:
    """Return the layers, parameters and bytes of the first, the second and the last stage at their peaks."""
    w, m, n, stages = design.workload, design.mapping, layout.n_micro_batches, layout.stages
    in_first, in_second, in_last = (pipeline.activations_in_flight(m, n, stage) for stage in (0.0, 1.0, m.pp - 1.0))
    in_flight, in_first_chunk = in_first.stage, in_first.first_chunk
    single_stage_flag = jnp.where(m.pp > 1.0, 0.0, 1.0)
    first_dense = layout.experts.first
    # A single stage counts as second and last, too.
    single_stage = dict.fromkeys(("first_layers", "stored_first_layers"), times(single_stage_flag, first_dense))
    last_parameters = head_parameters(w, m.tp) + w.hidden
    logits = design.software.logit_bytes * (layout.tokens * layout.vocab)
    last_parameters = plus(last_parameters, feed_forward_of(w).prediction(), second_embedding_parameters(w, m.pp, m.tp))
    logits = times(plus(1.0, w.predicted), logits)
    cached = w.backward * design.software.gradient_cache * head_buffer_bytes(design, layout, logits)
    gathered = _where_split(layout, 3.0, _separate_head_bytes(design, layout) * head_parameters(w, m.tp))
    output = MemoryStage(
        layers=stages.fullest - stages.last_lacks,
        stored_layers=in_last.stage * stages.chunks - stages.short_last * in_last.last_chunk,
        parameters=last_parameters,
        activations=stored_bytes(work.head),
        transient=logits + gathered,
        buffers=plus(gathered, times(work.trained.trains_model, cached)),
        **single_stage,
    )
    tied = single_stage_flag * w.tied_embeddings * head_parameters(w, m.tp)
    first = MemoryStage(
        layers=stages.fullest - stages.first_lacks,
        stored_layers=in_flight * stages.chunks - stages.short_first * in_first_chunk,
        parameters=embedding_parameters(w, m.tp) + single_stage_flag * output.parameters - tied,
        activations=in_flight * stored_bytes(work.embedding) + single_stage_flag * output.activations,
        transient=single_stage_flag * output.transient,
        buffers=single_stage_flag * output.buffers,
        first_layers=first_dense,
        stored_first_layers=times(first_dense, in_first_chunk),
    )
    second = MemoryStage(stages.fullest, in_second.stage * stages.fullest, **single_stage)
    if not nothing(layout.pipeline.folded):
        deferred_micro_batches = (
            pipeline.deferred_micro_batches(m, n, stage) for stage in (jnp.maximum(m.pp - 2.0, 0.0), m.pp - 1.0)
        )
        second, output = (
            s._replace(deferred_layers=k * s.layers)
            for s, k in zip((second, output), deferred_micro_batches, strict=True)
        )
        first, second, output = folded_memory_stages(design, layout, (first, second, output))
    return first, second, output


def folded_memory_stages(
    design: Design, layout: Layout, stages: tuple[MemoryStage, MemoryStage, MemoryStage]
) -> tuple[MemoryStage, MemoryStage, MemoryStage]:
    """Return first, second and last stage, where a pipeline is folded with both ends on the first device.

    That device has embedding and head; the others hold at most as much as the second, twice that with two copies.
    """
    first, second, last = stages
    w, m, n, is_folded, copies = design.workload, design.mapping, layout.n_micro_batches, *layout.pipeline
    in_flight = pipeline.activations_in_flight(m, n)
    chunks = chunk_layers(w, m)
    missing_layers = chunks.short_first + chunks.short_last
    # Multi-token prediction shares the embedding of its own device.
    tied = plus(w.tied_embeddings * head_parameters(w, m.tp), second_embedding_parameters(w, m.pp, m.tp))
    end_stage = first._replace(
        layers=copies * layout.stages.chunks - missing_layers,
        stored_layers=in_flight.stage * layout.stages.chunks
        - in_flight.first_chunk * chunks.short_first
        - chunks.short_last,
        parameters=first.parameters + last.parameters - tied,
        activations=first.activations + last.activations,
        transient=last.transient,
        buffers=last.buffers,
        deferred_layers=pipeline.deferred_micro_batches(m, n, 0.0) * first.layers,
    )
    inmost = jnp.where(copies > 1.0, 0.5 * m.pp - 1.0, m.pp - 1.0)  # the middle for two copies, else the fold
    deferred_layers = pipeline.deferred_micro_batches(m, n, inmost) * second.layers
    middle = second._replace(layers=copies * second.layers, deferred_layers=deferred_layers)
    return select(is_folded > 0.0, (end_stage, middle, middle), stages)
