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
    """Bytes that a device of the first stage, which has most micro-batches in flight, keeps on the host."""
    m = design.mapping
    in_flight = pipeline.in_flight(m.pp, m.virtual_stages, layout.n_micro_batches)
    return offload.host_bytes(work.on_host, layout.layers, in_flight)


def layer_transient_bytes(design: Design, layout: Layout, work: TrainingWork) -> Scalar:
    """Bytes alive only while one layer runs backward.

    What recompute brings back for it, and the gradients of the feed-forward's inner tensors.
    """
    brought_back = stored_bytes(work.layer) - work.kept
    w = design.workload
    ffn_gradients = w.backward * layout.element.activation * layout.tokens * layout.ffn * (2.0 + w.gated)
    return brought_back + ffn_gradients


def standing_buffer_bytes(design: Design, layout: Layout) -> Scalar:
    """Bytes of buffers that live all step long.

    Under sequence parallelism a gathered input and its unreduced gradient, a cached 16-bit weight gradient for
    each weight shape; under ZeRO-2 a layer's unreduced gradient; under ZeRO-3 two layers' gathered weights and
    the head's.
    """
    m, w = design.mapping, design.workload
    act = layout.element.activation
    gathered = jnp.where((layout.split > 0.0) & (m.tp > 1.0), 2.0 * act * layout.tokens * w.hidden, 0.0)
    cached = w.backward * design.software.gradient_cache * act * layer_matrix_parameters(w, m.tp)
    layer, several = act * layer_parameters(w, m.tp), layout.groups.dp.size > 1.0
    unreduced = jnp.where((m.zero_stage >= 2.0) & several, w.backward * layer, 0.0)
    whole_weights = jnp.where((m.zero_stage >= 3.0) & several, 2.0 * layer + act * head_parameters(w, m.tp), 0.0)
    return gathered + cached + unreduced + whole_weights


class End(NamedTuple):
    """What the embedding or the head adds to a stage."""

    parameters: Scalar
    activations: Scalar
    transient: Scalar  # the part of the activations that is gone when the layers run backward
    buffers: Scalar


def stage_memory(
    design: Design, layout: Layout, work: TrainingWork, end: End, micro_batches: Scalar
) -> Memory:
    """Memory of a stage with ``micro_batches`` micro-batches in flight.

    The peak is in the head's backward or in a layer's, whichever needs more on top of what both hold.
    """
    w, m, layers, state = design.workload, design.mapping, layout.layers, work.state
    one = layer_parameters(w, m.tp)
    transient = jnp.maximum(layer_transient_bytes(design, layout, work) - end.transient, 0.0)
    return Memory(
        weights=offload.resident(layers, m.offload_weights) * one * state.weights,
        gradients=layers * one * state.gradients,
        optimizer=offload.resident(layers, m.offload_optimizer) * one * state.optimizer,
        embedding_and_head=end.parameters * state.total,
        activations=offload.resident(micro_batches * layers, m.offload_activations) * work.kept,
        logits=end.activations,
        buffers=standing_buffer_bytes(design, layout) + end.buffers + transient,
    )


def peak_memory(design: Design, layout: Layout, work: TrainingWork) -> Memory:
    """Memory of the fuller of the first stage (most micro-batches in flight) and the last (head, logits)."""
    w, m = design.workload, design.mapping
    in_flight = pipeline.in_flight(m.pp, m.virtual_stages, layout.n_micro_batches)
    in_flight_last = pipeline.in_flight_last(m.pp, m.virtual_stages, layout.n_micro_batches)
    act = layout.element.activation
    output = End(
        parameters=head_parameters(w, m.tp) + w.hidden,
        activations=stored_bytes(work.head),
        transient=design.software.logit_bytes * layout.tokens * layout.vocab,
        buffers=w.backward * design.software.gradient_cache * act * head_parameters(w, m.tp),
    )
    alone = jnp.where(m.pp > 1.0, 0.0, 1.0)
    tied = alone * w.tied_embeddings * head_parameters(w, m.tp)
    first = End(
        parameters=embedding_parameters(w, m.tp) + alone * output.parameters - tied,
        activations=in_flight * stored_bytes(work.embedding) + alone * output.activations,
        transient=alone * output.transient,
        buffers=alone * output.buffers,
    )
    on_first = stage_memory(design, layout, work, first, in_flight)
    on_last = stage_memory(design, layout, work, output, in_flight_last)
    first_is_fuller = (alone > 0.0) | (on_first.total >= on_last.total)
    return Memory(*(jnp.where(first_is_fuller, a, b) for a, b in zip(on_first, on_last, strict=True)))
