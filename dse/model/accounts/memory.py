"""Peak memory of the most loaded device: weights, gradients, optimiser, activations, logits, buffers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus, times, where_on
from dse.model.layout import Layout
from dse.model.parallel import pipeline
from dse.model.stage_layers import chunk_layers
from dse.model.work import offload
from dse.model.work.blocks import feed_forward_of
from dse.model.work.experts import backward_bytes
from dse.model.work.parameters import (
    copied_embedding,
    embedding_parameters,
    expert_layer_matrix_parameters,
    head_parameters,
    layer_expert_parameters,
    layer_matrix_parameters,
    layer_parameters,
    usual_layer_parameters,
)
from dse.model.work.state import stored_bytes
from dse.model.work.training import TrainingWork
from dse.types import Design, Group, Scalar


class Memory(NamedTuple):
    """Peak bytes of one device by part; the parts add up to ``total``."""

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
    """Bytes on the host and on storage per device of the first stage, which has most micro-batches in flight.

    A layer that it may lack is counted, since the next stage has it.
    """
    in_flight = pipeline.held(design.mapping, layout.n_micro_batches).stage
    on_host = offload.kept_bytes(work.on_host, layout.layers, in_flight)
    if work.beyond is None:
        return on_host, 0.0
    on_storage = offload.kept_bytes(work.beyond, layout.layers, in_flight)
    return on_host + layout.layers * work.beyond.gradients - on_storage, on_storage


def layer_transient_bytes(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Transient bytes of the backward of one layer: recomputed activations, gradients of inner feed-forward tensors."""
    w = design.workload
    ffn_gradients = w.backward * layout.element.activation * layout.tokens * layout.ffn * (2.0 + w.gated)
    routed = times(w.backward, backward_bytes(design, layout, layout.experts))
    if not nothing(routed):
        dense = jnp.where(layout.experts.first + layout.experts.dense_share > 0.0, ffn_gradients, 0.0)
        ffn_gradients = jnp.maximum(dense, routed)
    return work.kept.recomputed + ffn_gradients


def standing_buffer_bytes(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Bytes of buffers allocated for the whole step.

    Sequence parallelism: a gathered input and its unreduced gradient, a cached 16-bit weight gradient per weight shape;
    ZeRO-2: the unreduced gradient, ZeRO-3: twice the gathered weights, of the unit that a stack moves: a layer, or a
    matrix.
    """
    m, w = design.mapping, design.workload
    act = layout.element.activation
    gathered = jnp.where((layout.split > 0.0) & (m.tp > 1.0), 2.0 * act * layout.tokens * w.hidden, 0.0)
    at_once = _moved_at_once(design, usual_layer_parameters(w, m.tp))
    layer, changing = act * plus(at_once, work.trained.added), act * work.trained.of(at_once)
    cached = w.backward * design.software.gradient_cache * act * matrix_shapes(design, layout)
    cached = times(work.trained.whole, cached)
    unreduced = _where_split(layout, 2.0, w.backward * changing)
    buffers = plus(gathered, cached, unreduced) + _where_split(layout, 3.0, 2.0 * layer)
    at_once = 1.0 / jnp.where(design.software.gathers_matrices > 0.0, 2.0 + w.gated, 1.0)
    routed, replicas = times(act * at_once, layer_expert_parameters(design, layout)), layout.experts.replicas
    unreduced = times(work.trained.whole, _where_split(layout, 2.0, times(w.backward, routed), replicas))
    return plus(buffers, unreduced, _where_split(layout, 3.0, times(2.0, routed), replicas))


def _moved_at_once(design: Design, layer: Scalar) -> Scalar:
    """Parameters per gather and scatter, of those of a ``layer``: all, or those of its largest matrix.

    FSDP wraps layers (Zhao et al. 2023); XLA's partitioner gathers an operand where it is used (Xu et al. 2021, GSPMD).
    """
    w = design.workload
    widest = jnp.maximum(w.ffn_hidden, w.n_heads * w.head_dim)
    matrix = jnp.minimum(layer, w.hidden * widest / design.mapping.tp)
    return jnp.where(design.software.gathers_matrices > 0.0, matrix, layer)


def _head_by_itself(design: Design, layout: Layout) -> Scalar:
    """Bytes per element of a head that is gathered separately; 0 where it is part of the outermost unit."""
    return jnp.where(design.software.gathers_matrices > 0.0, layout.element.activation, 0.0)


def matrix_shapes(design: Design, layout: Layout) -> Scalar:
    """Parameters of the distinct matrices of a layer, one of several equal experts."""
    w, tp, feed_forward = design.workload, design.mapping.tp, feed_forward_of(design.workload)
    with_experts = expert_layer_matrix_parameters(w, tp), feed_forward.expert(layout.experts.etp.size)
    return feed_forward.usual(layer_matrix_parameters(w, tp), lambda: plus(*with_experts))


def _where_split(layout: Layout, stage: float, size: Scalar, replicas: Group | None = None) -> Scalar:
    """``size`` bytes from a ZeRO stage on, where several devices share the split state, else 0."""
    shared = (replicas or layout.groups.dp).size
    return 0.0 if nothing(size) else jnp.where((layout.zero >= stage) & (shared > 1.0), size, 0.0)


class MemoryStage(NamedTuple):
    """Contents of a stage: its layers, and its embedding or head."""

    layers: Scalar
    held: Scalar  # layers x micro-batches of stored activations at the peak
    parameters: Scalar = 0.0
    activations: Scalar = 0.0
    transient: Scalar = 0.0  # activations that are freed before the backward of the layers
    buffers: Scalar = 0.0
    first_layers: Scalar = 0.0  # first dense layers of a mixture
    first_held: Scalar = 0.0  # these x micro-batches
    put_off: Scalar = 0.0  # layers x micro-batches with deferred weight gradients and recomputed activations


def stage_memory(design: Design, layout: Layout, work: TrainingWork, stage: MemoryStage) -> Memory:
    """Peak memory of a stage by part, in the backward of the head or of a layer, whichever is larger."""
    w, m, state = design.workload, design.mapping, work.state
    usual, ends = usual_layer_parameters(w, m.tp), work.trained.of_model(state)
    layer = work.trained.of(usual)
    weights = plus(usual * ends.weights, times(work.trained.added, state.weights))
    gradients = stage.layers * (layer * state.gradients)
    optimizer = offload.resident(stage.layers, m.offload_optimizer) * (layer * state.optimizer)
    if m.tiers is not None:
        some, own = offload.state_left(m)
        ends = ends._replace(gradients=some * ends.gradients, optimizer=own * ends.optimizer)
        gradients = offload.resident(stage.layers, m.tiers.offload_gradients) * (layer * state.gradients)
        off = jnp.minimum(stage.layers, offload.BUFFERED_LAYERS) * (1.0 - own)  # the host updates without buffers
        optimizer = optimizer - off * (layer * state.optimizer)
    # FSDP gathers embedding and head once, as its outermost unit, and frees them at the end; stacks that gather
    # matrices gather the head for its products only.
    by_layer = layout.element.activation - _head_by_itself(design, layout)
    whole = _where_split(layout, 3.0, by_layer * stage.parameters)
    transient = jnp.maximum(layer_transient_bytes(design, layout, work) - stage.transient, 0.0)
    memory = Memory(
        weights=offload.resident(stage.layers, m.offload_weights) * weights,
        gradients=gradients,
        optimizer=optimizer,
        embedding_and_head=stage.parameters * ends.total,
        activations=offload.resident(stage.held, m.offload_activations) * work.kept.mean,
        logits=stage.activations,
        buffers=standing_buffer_bytes(design, layout, work) + stage.buffers + whole + transient,
    )
    if not nothing(layout.pipeline.folded):
        brought_back = w.backward * stored_bytes(work.layer) - work.kept.mean
        # Pairs of passes defer the weight gradients of the last p / 2 micro-batches.
        drained = (stage.put_off + 0.5 * stage.layers) * (work.kept.mean + brought_back)
        memory = memory._replace(
            activations=jnp.where(
                pipeline.pairs(m) > 0.0,
                jnp.maximum(memory.activations, drained),
                memory.activations + stage.put_off * brought_back,
            )
        )
    return with_experts(memory, design, layout, work, stage)


def with_experts(memory: Memory, design: Design, layout: Layout, work: TrainingWork, stage: MemoryStage) -> Memory:
    """Memory of a stage with its routed experts and first dense layers."""
    experts, w, m = work.routed_state, design.workload, design.mapping
    if nothing(layout.experts.local):
        return memory
    routed = times(stage.layers - stage.first_layers, layer_expert_parameters(design, layout))
    dense = times(stage.first_layers, layer_parameters(w, m.tp) - usual_layer_parameters(w, m.tp))
    any_dense = where_on(plus(stage.first_layers, layout.experts.dense_share), 1.0, 0.0)
    shapes = times(any_dense, (2.0 + w.gated) * w.hidden * layout.ffn)
    usual = work.trained.of_model(work.state)
    cached = times(work.trained.whole, w.backward * design.software.gradient_cache)
    layers = jnp.maximum(stage.layers, 1.0)
    here, optimizer_here = (
        offload.resident(layers, offloaded) / layers for offloaded in (m.offload_weights, m.offload_optimizer)
    )
    return memory._replace(
        weights=plus(memory.weights, times(here, plus(times(routed, experts.weights), times(dense, usual.weights)))),
        gradients=plus(memory.gradients, times(routed, experts.gradients), times(dense, usual.gradients)),
        optimizer=plus(
            memory.optimizer,
            times(optimizer_here, plus(times(routed, experts.optimizer), times(dense, usual.optimizer))),
        ),
        activations=plus(memory.activations, times(stage.first_held, work.first_kept.mean - work.kept.mean)),
        buffers=plus(memory.buffers, times(cached, times(layout.element.activation, shapes))),
    )


def head_buffer_bytes(design: Design, layout: Layout, logits: Scalar) -> Scalar:
    """Bytes of the head's backward beyond the stored ``logits``, part of which are free by then.

    First the 16-bit gradients of all logits, from those stored for the loss; then these alone, while the weight
    gradient is computed into a 16-bit buffer (``VocabParallelCrossEntropy`` and
    ``LinearWithGradAccumulationAndAsyncCommunication`` of Megatron-Core).
    """
    act = layout.element.activation
    gradients = act * (layout.tokens * layout.vocab)
    return jnp.maximum(gradients, gradients + act * head_parameters(design.workload, design.mapping.tp) - logits)


def peak_memory(design: Design, layout: Layout, work: TrainingWork) -> tuple[Scalar, Memory]:
    """Peak memory of the most loaded stage in bytes, total and by part.

    The most loaded stage is the first (most micro-batches in flight), the last (head, logits), or the second where the
    first has a layer less.
    """
    first_of, *others = (stage_memory(design, layout, work, stage) for stage in memory_stages(design, layout, work))
    peak, parts = first_of.total, first_of
    for other in others:
        total = other.total
        parts = Memory(*(jnp.where(peak >= total, a, b) for a, b in zip(parts, other, strict=True)))
        peak = jnp.maximum(peak, total)
    return peak, parts


def memory_stages(design: Design, layout: Layout, work: TrainingWork) -> tuple[MemoryStage, MemoryStage, MemoryStage]:
    """Contents of the first, the second and the last stage at their peaks."""
    w, m, n, stages = design.workload, design.mapping, layout.n_micro_batches, layout.stages
    in_first, in_second, in_last = (pipeline.held(m, n, stage) for stage in (0.0, 1.0, m.pp - 1.0))
    in_flight, in_first_chunk = in_first.stage, in_first.first_chunk
    alone = jnp.where(m.pp > 1.0, 0.0, 1.0)
    first_dense = layout.experts.first
    # A single stage counts as second and last, too.
    single_stage = dict.fromkeys(("first_layers", "first_held"), times(alone, first_dense))
    last_parameters = head_parameters(w, m.tp) + w.hidden
    logits = design.software.logit_bytes * (layout.tokens * layout.vocab)
    last_parameters = plus(last_parameters, feed_forward_of(w).prediction(), copied_embedding(w, m.pp, m.tp))
    logits = times(plus(1.0, w.predicted), logits)
    cached = w.backward * design.software.gradient_cache * head_buffer_bytes(design, layout, logits)
    gathered = _where_split(layout, 3.0, _head_by_itself(design, layout) * head_parameters(w, m.tp))
    output = MemoryStage(
        layers=stages.fullest - stages.last_lacks,
        held=in_last.stage * stages.chunks - stages.short_last * in_last.last_chunk,
        parameters=last_parameters,
        activations=stored_bytes(work.head),
        transient=logits + gathered,
        buffers=plus(gathered, times(work.trained.whole, cached)),
        **single_stage,
    )
    tied = alone * w.tied_embeddings * head_parameters(w, m.tp)
    first = MemoryStage(
        layers=stages.fullest - stages.first_lacks,
        held=in_flight * stages.chunks - stages.short_first * in_first_chunk,
        parameters=embedding_parameters(w, m.tp) + alone * output.parameters - tied,
        activations=in_flight * stored_bytes(work.embedding) + alone * output.activations,
        transient=alone * output.transient,
        buffers=alone * output.buffers,
        first_layers=first_dense,
        first_held=times(first_dense, in_first_chunk),
    )
    second = MemoryStage(stages.fullest, in_second.stage * stages.fullest, **single_stage)
    if not nothing(layout.pipeline.folded):
        waiting = (pipeline.put_off(m, n, stage) for stage in (jnp.maximum(m.pp - 2.0, 0.0), m.pp - 1.0))
        second, output = (s._replace(put_off=k * s.layers) for s, k in zip((second, output), waiting, strict=True))
        first, second, output = folded(design, layout, (first, second, output))
    return first, second, output


def folded(
    design: Design, layout: Layout, stages: tuple[MemoryStage, MemoryStage, MemoryStage]
) -> tuple[MemoryStage, MemoryStage, MemoryStage]:
    """First, second and last stage of a pipeline, of which a folded one has the last chunk on the first device.

    That device has embedding and head; the others hold at most as much as the second, twice that with two copies.
    """
    first, second, last = stages
    w, m, n, is_folded, copies = design.workload, design.mapping, layout.n_micro_batches, *layout.pipeline
    held = pipeline.held(m, n)
    short = chunk_layers(w, m)
    lacks = short.short_first + short.short_last
    # Multi-token prediction shares the embedding of its own device.
    tied = plus(w.tied_embeddings * head_parameters(w, m.tp), copied_embedding(w, m.pp, m.tp))
    ends = first._replace(
        layers=copies * layout.stages.chunks - lacks,
        held=held.stage * layout.stages.chunks - held.first_chunk * short.short_first - short.short_last,
        parameters=first.parameters + last.parameters - tied,
        activations=first.activations + last.activations,
        transient=last.transient,
        buffers=last.buffers,
        put_off=pipeline.put_off(m, n, 0.0) * first.layers,
    )
    inmost = jnp.where(copies > 1.0, 0.5 * m.pp - 1.0, m.pp - 1.0)  # the middle for two copies, else the fold
    waiting = pipeline.put_off(m, n, inmost) * second.layers
    middle = second._replace(layers=copies * second.layers, put_off=waiting)

    def where_folded(yes: MemoryStage, no: MemoryStage) -> MemoryStage:
        return MemoryStage(*(jnp.where(is_folded > 0.0, a, b) for a, b in zip(yes, no, strict=True)))

    return where_folded(ends, first), where_folded(middle, second), where_folded(middle, last)
