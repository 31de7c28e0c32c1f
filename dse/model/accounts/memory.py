"""Bytes on the fullest device: weights, gradients, optimiser, activations, logits, buffers."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.parallel import offload, pipeline
from dse.model.work.transformer import (
    Local,
    activation_bytes,
    embedding_parameters,
    head_parameters,
    layer_matrix_parameters,
    layer_parameters,
    recomputed_core_bytes,
    stored_bytes,
)
from dse.types import Design, Operator, Recompute, Scalar


class Memory(NamedTuple):
    """Peak bytes of one device by part; the parts add up to ``total``."""

    weights: Scalar
    gradients: Scalar
    optimizer: Scalar
    edge: Scalar
    activations: Scalar
    logits: Scalar
    buffers: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class StateBytes(NamedTuple):
    """Bytes a parameter on one device of weights, gradients and optimiser state, after ZeRO."""

    weights: Scalar
    gradients: Scalar
    optimizer: Scalar

    @property
    def total(self) -> Scalar:
        """All model state of one parameter."""
        return self.weights + self.gradients + self.optimizer


def optimizer_bytes(precision: Scalar) -> Scalar:
    """Adam state a parameter: two fp32 moments, and an fp32 master copy unless the weights are fp32."""
    return 16.0 - 2.0 * activation_bytes(precision)


def state_bytes(design: Design) -> StateBytes:
    """Bytes a parameter after ZeRO (Rajbhandari et al. 2020).

    Stage 1 splits the optimiser over all replicas, 2 the gradients too, 3 the weights too. Unsplit mixed
    precision: 2 + 4 + 12 = 18.
    """
    m, trained = design.mapping, design.workload.backward
    replicas = m.dp * m.cp

    def split(stage: float) -> Scalar:
        return jnp.where(m.zero_stage >= stage, replicas, 1.0)

    return StateBytes(
        weights=activation_bytes(m.precision) / split(3.0),
        gradients=trained * design.software.gradient_bytes / split(2.0),
        optimizer=trained * optimizer_bytes(m.precision) / split(1.0),
    )


def layer_activation_bytes(design: Design, local: Local, operators: list[Operator]) -> Scalar:
    """Bytes one layer keeps for one micro-batch under the recompute policy (Korthikanti et al. 2022, table 2)."""
    everything = stored_bytes(operators)
    without_core = everything - recomputed_core_bytes(operators, local)
    layer_input = local.element.activation * local.norm_tokens * design.workload.hidden
    policy = design.mapping.recompute
    kept = jnp.where(policy == float(Recompute.selective), without_core, everything)
    return design.workload.backward * jnp.where(policy == float(Recompute.full), layer_input, kept)


def offloaded_layer(design: Design, kept: Scalar) -> offload.OneLayer:
    """Bytes of one layer, which keeps ``kept`` of a micro-batch, that the mapping has on the host."""
    parameters = layer_parameters(design.workload, design.mapping.tp)
    state = state_bytes(design)
    return offload.on_host(design.mapping, parameters * state.weights, kept, parameters * state.optimizer)


def host_memory(design: Design, layer: offload.OneLayer, n_micro_batches: Scalar) -> Scalar:
    """Bytes that a device of the first stage, which has most micro-batches in flight, keeps on the host."""
    m = design.mapping
    in_flight = pipeline.in_flight(m.pp, m.virtual_stages, n_micro_batches)
    return offload.host_bytes(layer, pipeline.most_layers(design.workload.n_layers, m.pp), in_flight)


def layer_transient_bytes(design: Design, local: Local, operators: list[Operator], kept: Scalar) -> Scalar:
    """Bytes alive only while one layer, which keeps ``kept``, runs backward.

    What recompute brings back for it, and the gradients of the feed-forward's inner tensors.
    """
    brought_back = stored_bytes(operators) - kept
    w = design.workload
    ffn_gradients = w.backward * local.element.activation * local.tokens * local.ffn * (2.0 + w.gated)
    return brought_back + ffn_gradients


def standing_buffer_bytes(design: Design, local: Local) -> Scalar:
    """Bytes of buffers that live all step long.

    Under sequence parallelism a gathered input and its unreduced gradient, a cached 16-bit weight gradient for
    each weight shape; under ZeRO-2 a layer's unreduced gradient; under ZeRO-3 two layers' gathered weights and
    the head's.
    """
    m, w = design.mapping, design.workload
    act = local.element.activation
    gathered = jnp.where((local.split > 0.0) & (m.tp > 1.0), 2.0 * act * local.tokens * w.hidden, 0.0)
    cached = w.backward * design.software.gradient_cache * act * layer_matrix_parameters(w, m.tp)
    layer, several = act * layer_parameters(w, m.tp), m.dp * m.cp > 1.0
    unreduced = jnp.where((m.zero_stage >= 2.0) & several, w.backward * layer, 0.0)
    whole_weights = jnp.where((m.zero_stage >= 3.0) & several, 2.0 * layer + act * head_parameters(w, m.tp), 0.0)
    return gathered + cached + unreduced + whole_weights


class Edge(NamedTuple):
    """What the embedding or the head adds to a stage."""

    parameters: Scalar
    activations: Scalar
    transient: Scalar  # the part of the activations that is gone when the layers run backward
    buffers: Scalar


def stage_memory(
    design: Design, local: Local, kept: Scalar, layer_transient: Scalar, edge: Edge, micro_batches: Scalar
) -> Memory:
    """Memory of a stage with ``micro_batches`` micro-batches in flight; a layer keeps ``kept`` bytes of each.

    The peak is in the head's backward or in a layer's, whichever needs more on top of what both hold.
    """
    w, m = design.workload, design.mapping
    layers = pipeline.most_layers(w.n_layers, m.pp)
    state = state_bytes(design)
    one = layer_parameters(w, m.tp)
    transient = jnp.maximum(layer_transient - edge.transient, 0.0)
    return Memory(
        weights=offload.resident(layers, m.offload_weights) * one * state.weights,
        gradients=layers * one * state.gradients,
        optimizer=offload.resident(layers, m.offload_optimizer) * one * state.optimizer,
        edge=edge.parameters * state.total,
        activations=offload.resident(micro_batches * layers, m.offload_activations) * kept,
        logits=edge.activations,
        buffers=standing_buffer_bytes(design, local) + edge.buffers + transient,
    )


def peak_memory(
    design: Design, local: Local, layer: list[Operator], embedding: list[Operator], head: list[Operator],
    kept: Scalar, n_micro_batches: Scalar,
) -> Memory:  # fmt: skip
    """Memory of the fuller of the first stage (most micro-batches in flight) and the last (head, logits).

    A layer keeps ``kept`` bytes of a micro-batch.
    """
    w, m = design.workload, design.mapping
    in_flight = pipeline.in_flight(m.pp, m.virtual_stages, n_micro_batches)
    in_flight_last = pipeline.in_flight_last(m.pp, m.virtual_stages, n_micro_batches)
    output = Edge(
        parameters=head_parameters(w, m.tp) + w.hidden,
        activations=stored_bytes(head),
        transient=design.software.logit_bytes * local.tokens * local.vocab,
        buffers=w.backward * design.software.gradient_cache * local.element.activation * head_parameters(w, m.tp),
    )
    alone = jnp.where(m.pp > 1.0, 0.0, 1.0)
    tied = alone * w.tied_embeddings * head_parameters(w, m.tp)
    first = Edge(
        parameters=embedding_parameters(w, m.tp) + alone * output.parameters - tied,
        activations=in_flight * stored_bytes(embedding) + alone * output.activations,
        transient=alone * output.transient,
        buffers=alone * output.buffers,
    )
    transient = layer_transient_bytes(design, local, layer, kept)
    on_first = stage_memory(design, local, kept, transient, first, in_flight)
    on_last = stage_memory(design, local, kept, transient, output, in_flight_last)
    first_is_fuller = (alone > 0.0) | (on_first.total >= on_last.total)
    return Memory(*(jnp.where(first_is_fuller, a, b) for a, b in zip(on_first, on_last, strict=True)))
