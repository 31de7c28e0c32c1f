"""Parameters of a model and of its parts per device, and FLOPs by convention."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp

from dse.model.choice import nothing, plus, times, value_or, where_on
from dse.model.layout import Layout
from dse.model.work.blocks import attention_of, feed_forward_of, shares_of, states_of
from dse.types import Design, Recompute, Scalar, Workload


def layer_matrix_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the matrix parameters of one layer with a dense feed-forward, on one of ``tp`` devices.

    ``h d (a + 2 g) + a d h + (2 or 3) h f``; key/value heads are replicated when tp exceeds them.
    """
    w = workload
    ffn = times(shares_of(w).feeds, (2.0 + w.gated) * w.hidden * w.ffn_hidden / tp)
    return attention_matrix_parameters(w, tp) + position_parameters(w, tp) + ffn


def attention_matrix_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the matrix parameters of attention per layer, on one of ``tp`` devices.

    A hybrid has the mean over attention and state-space blocks.
    """
    w, shares = workload, shares_of(workload)
    gate = times(shares.gate, w.hidden * w.n_heads * w.head_dim / tp)
    attends = times(shares.attends, plus(attention_of(w).parameters(tp), gate))
    return plus(attends, times(shares.keeps, states_of(w).parameters(w.hidden, tp)))


def position_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the parameters of one layer's projection of relative positions (Transformer-XL), 0 without them."""
    return workload.relative_positions * workload.hidden * workload.n_heads * workload.head_dim / tp


def layer_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the parameters of one layer with a dense feed-forward, on one of ``tp`` devices.

    Matrices, and vectors, which tp does not split.
    """
    return layer_matrix_parameters(workload, tp) + vector_parameters(workload)


def vector_parameters(workload: Workload) -> Scalar:
    """Return the norm parameters of a layer: two norms of the model's width, and those of compressed columns."""
    of_layer = shares_of(workload).norms * workload.norm_vectors * workload.hidden
    return plus(of_layer, times(workload.norm_vectors, attention_of(workload).normalised))


def serial_block(workload: Workload) -> Scalar:
    """Return 1 where the feed-forward follows attention with a norm and a residual between them, else 0."""
    return 1.0 - value_or(workload.parallel_block, 0.0)


def embedding_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the parameters of the token embedding (split over tp) and of learned positions (not split)."""
    return workload.vocab * workload.hidden / tp + workload.learned_positions * workload.seq_len * workload.hidden


def head_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the parameters of the output projection, split over tp, whether or not it is tied to the embedding."""
    return workload.vocab * workload.hidden / tp


def second_embedding_parameters(workload: Workload, pp: Scalar, tp: Scalar) -> Scalar:
    """Return the parameters of multi-token prediction's embedding on the last of several stages, else 0."""
    predicted = workload.predicted
    if nothing(predicted):
        return 0.0
    return jnp.where((pp > 1.0) & (predicted > 0.0), embedding_parameters(workload, tp), 0.0)


def stage_parameters(design: Design, layout: Layout) -> Scalar:
    """Return the parameters of the most loaded device without routed experts: its layers, and embedding or head.

    Embedding or head count by their excess over the layer that their stage may lack.
    """
    w, m = design.workload, design.mapping
    layer, embedding, head = usual_layer_parameters(w, m.tp), embedding_parameters(w, m.tp), head_parameters(w, m.tp)
    # The dense feed-forward of the first layers is on the first stage, like the embedding.
    head = plus(head, feed_forward_of(w).prediction(), second_embedding_parameters(w, m.pp, m.tp))
    embedding = plus(embedding, times(layout.experts.first, layer_parameters(w, m.tp) - layer))
    single_stage = embedding + jnp.where(w.tied_embeddings > 0.0, 0.0, head)
    larger = jnp.maximum(embedding - layout.stages.first_lacks * layer, head - layout.stages.last_lacks * layer)
    ends = jnp.where(m.pp > 1.0, jnp.maximum(larger, 0.0), single_stage)
    # A device with both ends of a folded pipeline lacks a layer for each.
    copies = layout.pipeline.copies
    both_ends = jnp.maximum(single_stage - times(copies, layout.stages.first_lacks * layer), 0.0)
    return times(copies, layout.layers * layer) + where_on(layout.pipeline.folded, both_ends, ends)


def parameter_count(workload: Workload) -> Scalar:
    """Return the count of all parameters of the model without biases, multi-token prediction included."""
    return plus(common_parameters(workload), routed_parameters(workload))


def main_model(workload: Workload) -> Workload:
    """Return the workload without multi-token prediction, as served, and as counted by publications."""
    if workload.experts is None:
        return workload
    return dataclasses.replace(workload, experts=dataclasses.replace(workload.experts, n_predict=0.0))


def common_parameters(workload: Workload) -> Scalar:
    """Return the parameters of the model without routed experts, which have a data-parallel size of their own."""
    head = (1.0 - workload.tied_embeddings) * head_parameters(workload)
    feed_forward, final_norm = feed_forward_of(workload), workload.hidden
    layers = feed_forward.layers(layer_parameters(workload), lambda: expert_layer_parameters(workload))
    return plus(layers + embedding_parameters(workload) + head + final_norm, feed_forward.prediction())


# Experts


def usual_layer_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the parameters of one layer without routed experts, mean over all layers after the first dense ones."""
    dense = layer_parameters(workload, tp)
    return feed_forward_of(workload).after_first_dense(dense, lambda: expert_layer_parameters(workload, tp))


def stage_expert_parameters(design: Design, layout: Layout) -> Scalar:
    """Return the parameters of routed experts on the most loaded device.

    A single stage also has the first dense layers.
    """
    first = jnp.where(design.mapping.pp > 1.0, 0.0, layout.experts.first)
    return times(layout.pipeline.copies, times(layout.layers - first, layer_expert_parameters(design, layout)))


def layer_expert_parameters(design: Design, layout: Layout) -> Scalar:
    """Return the parameters of routed experts per layer and device, a mean where not all layers have experts."""
    feed_forward, experts = feed_forward_of(design.workload), layout.experts
    return feed_forward.after_first_dense(0.0, lambda: times(experts.local, feed_forward.expert(experts.etp.size)))


def expert_layer_matrix_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the matrix parameters of one layer with experts, without the routed ones.

    Attention, router and shared expert.
    """
    attention = attention_matrix_parameters(workload, tp) + position_parameters(workload, tp)
    return plus(attention, feed_forward_of(workload).common(tp))


def expert_layer_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Return the parameters of one layer with experts, without the routed ones: matrices and vectors."""
    return expert_layer_matrix_parameters(workload, tp) + vector_parameters(workload)


def routed_parameters(workload: Workload) -> Scalar:
    """Return the parameters of all routed experts of the model."""
    feed_forward = feed_forward_of(workload)
    return feed_forward.layers(0.0, feed_forward.routed)


def slice_parameters(workload: Workload, dense: Scalar, shared: Scalar) -> Scalar:
    """Return the parameters of the dense feed-forwards and of the shared experts of the model, each times its factor.

    ``(2 or 3) h f`` per layer. The literal 0 for a factor adds no equation.
    """
    w = workload
    per_column = (2.0 + w.gated) * w.hidden
    of_dense = times(dense, times(shares_of(w).feeds, per_column * w.ffn_hidden))
    of_shared: Scalar = 0.0 if w.experts is None else times(shared, per_column * w.experts.shared_ffn)
    return 0.0 if nothing(of_dense) and nothing(of_shared) else feed_forward_of(w).layers(of_dense, lambda: of_shared)


# FLOPs by convention


def attended_tokens(workload: Workload) -> Scalar:
    """Return the tokens that a query attends to by the convention of the full square, mean over layers.

    The sequence, or the window of layers that have one: kernels compute no more.
    """
    w = workload
    return w.seq_len if nothing(w.local_layers) else attention_of(w).cached_tokens(w.seq_len)


def attention_flops(workload: Workload) -> Scalar:
    """Return the forward FLOPs per token of scores and context, full square: ``4 L s a d``.

    ``d`` is the mean head size.

    ``s`` are the :func:`attended_tokens`: of windowed layers the window.
    """
    w = workload
    return 4.0 * w.blocks * attended_tokens(w) * w.n_heads * attention_of(w).mean_dim


def forward_flops(workload: Workload) -> Scalar:
    """Return the forward FLOPs per token of layer matrices and the full attention square, without the head.

    A token uses ``k`` routed experts.
    """
    matrix_parameters = layer_matrix_parameters(workload) - position_parameters(workload)  # not multiplied by tokens
    feed_forward = feed_forward_of(workload)

    def with_experts() -> Scalar:
        common = expert_layer_matrix_parameters(workload) - position_parameters(workload)
        return common + feed_forward.active_share * feed_forward.routed()

    layers = plus(feed_forward.layers(matrix_parameters, with_experts), feed_forward.prediction())
    return 2.0 * layers + attention_flops(workload)


def repeated_flops(workload: Workload, keeps_products: Scalar = 0.0) -> Scalar:
    """Return the forward FLOPs per token that recompute operator by operator repeats.

    Every other product of query, key, value, output, gate, up and down, in this order: key, output, up; or the
    attention core, where all products are kept.
    """
    w = workload
    columns = w.head_dim * (w.n_kv_heads + w.n_heads) + w.gated * w.ffn_hidden
    every_other = 2.0 * w.n_layers * w.hidden * columns
    return where_on(keeps_products, attention_flops(w), every_other)


def recomputed_flops(workload: Workload, levels: Mapping[int, Scalar]) -> Scalar:
    """Return the forward FLOPs per token that levels of expert recompute repeat.

    Args:
        workload: the model.
        levels: level → 1 where active.
    """
    if not levels:
        return 0.0
    up = times(2.0 * levels[Recompute.norms] * workload.blocks * workload.n_heads, attention_of(workload).projected_up)
    return plus(up, feed_forward_of(workload).repeated_flops(levels))


def model_flops(workload: Workload, attention_share: Scalar = 1.0) -> Scalar:
    """Return the model FLOPs of one step: three passes, head counted, recompute not (Narayanan et al. 2021, eq. 3).

    Without a backward one pass. Frozen matrices have no weight gradient, so two passes, without the FLOPs of adapters,
    as in publications. ``attention_share`` scales the attention square: 1 is the Megatron/PaLM convention, in which
    windowed layers have a window for the sequence.
    """
    without_square = forward_flops(workload) - (1.0 - attention_share) * attention_flops(workload)
    head = times(2.0 * head_parameters(workload), plus(1.0, workload.predicted))
    passes = 1.0 + 2.0 * workload.backward
    if not workload.trains_all:
        square = attention_share * attention_flops(workload)
        frozen = (1.0 + workload.backward) * (without_square - square + head)
        return workload.global_batch * workload.seq_len * (frozen + passes * square)
    return passes * workload.global_batch * workload.seq_len * (without_square + head)
