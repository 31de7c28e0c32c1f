"""Bytes on the fullest device: weights, gradients, optimiser, activations, logits, buffers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.model.parallel import pipeline
from dse.model.work import offload
from dse.model.work.parameters import (
    embedding_parameters,
    head_parameters,
    layer_matrix_parameters,
    layer_parameters,
)
from dse.model.work.state import stored_bytes
from dse.model.work.training import TrainingWork
from dse.types import Design, Scalar


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


def host_memory(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Bytes that a device of the first stage, which has most micro-batches in flight, keeps on the host.

    A layer that it may lack is counted: the next stage has it.
    """
    m = design.mapping
    in_flight = pipeline.in_flight(m.pp, m.virtual_stages, layout.n_micro_batches)
    return offload.host_bytes(work.on_host, layout.layers, in_flight)


def layer_transient_bytes(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Bytes alive only while one layer runs backward.

    What recompute brings back for it, and the gradients of the feed-forward's inner tensors.
    """
    w = design.workload
    ffn_gradients = w.backward * layout.element.activation * layout.tokens * layout.ffn * (2.0 + w.gated)
    return work.kept.again + ffn_gradients


def standing_buffer_bytes(design: Design, layout: Layout) -> Scalar:
    """Bytes of buffers that live all step long.

    Under sequence parallelism a gathered input and its unreduced gradient, a cached 16-bit weight gradient for
    each weight shape; under ZeRO-2 a layer's unreduced gradient; under ZeRO-3 two layers' gathered weights.
    """
    m, w = design.mapping, design.workload
    act = layout.element.activation
    gathered = jnp.where((layout.split > 0.0) & (m.tp > 1.0), 2.0 * act * layout.tokens * w.hidden, 0.0)
    cached = w.backward * design.software.gradient_cache * act * layer_matrix_parameters(w, m.tp)
    layer = act * layer_parameters(w, m.tp)
    unreduced = _where_split(layout, 2.0, w.backward * layer)
    return gathered + cached + unreduced + _where_split(layout, 3.0, 2.0 * layer)


def _where_split(layout: Layout, stage: float, size: Scalar) -> Scalar:
    """Bytes that there are from a ZeRO stage on, where several devices share what it splits."""
    return jnp.where((layout.zero >= stage) & (layout.groups.dp.size > 1.0), size, 0.0)


class Stage(NamedTuple):
    """What a stage has of the layers, and what the embedding or the head adds to it."""

    layers: Scalar
    held: Scalar  # layers x micro-batches whose activations it keeps at its peak
    parameters: Scalar = 0.0
    activations: Scalar = 0.0
    transient: Scalar = 0.0  # the part of the activations that is gone when the layers run backward
    buffers: Scalar = 0.0


def stage_memory(design: Design, layout: Layout, work: TrainingWork, stage: Stage) -> Memory:
    """Memory of a stage.

    The peak is in the head's backward or in a layer's, whichever needs more on top of what both hold.
    """
    w, m, state = design.workload, design.mapping, work.state
    layer = layer_parameters(w, m.tp)
    # FSDP's outermost unit, embedding and head, is gathered once and freed at the end.
    whole = _where_split(layout, 3.0, layout.element.activation * stage.parameters)
    transient = jnp.maximum(layer_transient_bytes(design, layout, work) - stage.transient, 0.0)
    return Memory(
        weights=offload.resident(stage.layers, m.offload_weights) * (layer * state.weights),
        gradients=stage.layers * (layer * state.gradients),
        optimizer=offload.resident(stage.layers, m.offload_optimizer) * (layer * state.optimizer),
        embedding_and_head=stage.parameters * state.total,
        activations=offload.resident(stage.held, m.offload_activations) * work.kept.mean,
        logits=stage.activations,
        buffers=standing_buffer_bytes(design, layout) + stage.buffers + whole + transient,
    )


def peak_memory(design: Design, layout: Layout, work: TrainingWork) -> tuple[Scalar, Memory]:
    """Bytes of the fullest stage, in all and by part.

    That is the first (most micro-batches in flight), the last (head, logits), or the second where the first has a
    layer less. Without one, the second has nothing that the first has not.
    """
    w, m, n, stages = design.workload, design.mapping, layout.n_micro_batches, layout.stages
    in_flight, in_second, in_last = (
        pipeline.in_flight(m.pp, m.virtual_stages, n, stage) for stage in (0.0, 1.0, m.pp - 1.0)
    )
    in_first_chunk = pipeline.in_first_chunk(m.pp, m.virtual_stages, n)
    in_last_chunk = pipeline.in_last_chunk(m.pp, m.virtual_stages, n)
    act = layout.element.activation
    output = Stage(
        layers=stages.fullest - stages.last_lacks,
        held=in_last * stages.chunks - stages.short_last * in_last_chunk,
        parameters=head_parameters(w, m.tp) + w.hidden,
        activations=stored_bytes(work.head),
        transient=design.software.logit_bytes * layout.tokens * layout.vocab,
        buffers=w.backward * design.software.gradient_cache * act * head_parameters(w, m.tp),
    )
    alone = jnp.where(m.pp > 1.0, 0.0, 1.0)
    tied = alone * w.tied_embeddings * head_parameters(w, m.tp)
    first = Stage(
        layers=stages.fullest - stages.first_lacks,
        held=in_flight * stages.chunks - stages.short_first * in_first_chunk,
        parameters=embedding_parameters(w, m.tp) + alone * output.parameters - tied,
        activations=in_flight * stored_bytes(work.embedding) + alone * output.activations,
        transient=alone * output.transient,
        buffers=alone * output.buffers,
    )
    second = Stage(stages.fullest, in_second * stages.fullest)
    first_of, *others = (stage_memory(design, layout, work, stage) for stage in (first, second, output))
    peak, parts = first_of.total, first_of
    for other in others:
        total = other.total
        parts = Memory(*(jnp.where(peak >= total, a, b) for a, b in zip(parts, other, strict=True)))
        peak = jnp.maximum(peak, total)
    return peak, parts
