"""Parameters of a model and of its parts on one device, and its FLOPs by the field's conventions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.types import Design, Recompute, Recurrent, Scalar, Workload


def layer_matrix_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Matrix parameters of one layer with a dense feed-forward, on one device of a tensor-parallel group of ``tp``.

    ``h d (a + 2 g) + a d h + (2 or 3) h f``; key/value heads are replicated when tp exceeds them.
    """
    w = workload
    attention = attention_matrix_parameters(w, tp)
    ffn = (2.0 + w.gated) * w.hidden * w.ffn_hidden / tp
    if w.recurrent is not None:
        ffn = w.recurrent.ffn_layers / w.n_layers * ffn
    return attention + position_parameters(w, tp) + ffn


def attention_matrix_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Matrix parameters of one layer's attention; of a hybrid of what is in its place, in the mean over the blocks."""
    w, recurrent = workload, workload.recurrent
    if recurrent is None:
        return one_attention_parameters(w, tp)
    gate = recurrent.output_gate * w.hidden * w.n_heads * w.head_dim / tp
    attends = recurrent.attention_layers * (one_attention_parameters(w, tp) + gate)
    return (attends + recurrent.recurrent_layers * state_parameters(recurrent, w.hidden, tp)) / w.n_layers


def one_attention_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Matrix parameters of a layer that attends: queries, keys, values, output; the indexer of sparse attention.

    Latent attention: ``h q_r + q_r a d`` of the queries (``h a d`` uncompressed), ``h (k_r + d_rope)`` and
    ``k_r a (d - d_rope + d_v)`` of keys and values, ``a d_v h``; tp splits heads, so no projection down, nor an
    indexer (DeepSeek-AI 2024, section 2.1; 2025).
    """
    w, latent = workload, workload.latent
    index: Scalar = 0.0
    if w.sparse is not None:
        queries = w.hidden if latent is None else latent.q_rank
        index = w.sparse.index_heads * (w.sparse.index_dim * queries + w.hidden) + w.hidden * w.sparse.index_dim
        index = w.sparse.sparse_layers * index
    if latent is None:
        kv_heads = jnp.maximum(w.n_kv_heads / tp, 1.0)
        return w.hidden * w.head_dim * (2.0 * w.n_heads / tp + 2.0 * kv_heads) + index
    heads = w.n_heads / tp
    compressed = latent.q_rank * (w.hidden + heads * w.head_dim)
    queries = jnp.where(latent.q_rank > 0.0, compressed, w.hidden * heads * w.head_dim)
    up = latent.kv_rank * heads * (w.head_dim - latent.rope_dim + latent.v_dim)
    down = w.hidden * (latent.kv_rank + latent.rope_dim)
    return queries + down + up + heads * latent.v_dim * w.hidden + index


def state_parameters(recurrent: Recurrent, hidden: Scalar, tp: Scalar = 1.0) -> Scalar:
    """Parameters of a layer with a state: ``h (2 G N + 2 H P + gates)`` and a convolution's taps (Dao and Gu 2024)."""
    keys, values, gates = state_columns(recurrent, tp)
    return hidden * (2.0 * keys + 2.0 * values + gates) + recurrent.convolution * (2.0 * keys + values)


def state_columns(recurrent: Recurrent, tp: Scalar = 1.0) -> tuple[Scalar, Scalar, Scalar]:
    """Columns of keys (queries have as many), of values and of gates of a layer with a state, on one of tp devices."""
    r = recurrent
    keys = jnp.maximum(r.state_key_heads / tp, 1.0) * r.state_key_dim
    return keys, r.state_heads * r.state_value_dim / tp, r.state_gates / tp


def position_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Parameters of one layer's projection of relative positions (Transformer-XL), where there is one."""
    return workload.relative_positions * workload.hidden * workload.n_heads * workload.head_dim / tp


def layer_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Parameters of one layer with a dense feed-forward on one device: matrices, and vectors that tp does not split."""
    return layer_matrix_parameters(workload, tp) + vector_parameters(workload)


def vector_parameters(workload: Workload) -> Scalar:
    """Parameters of the norms of a layer: two, and those of compressed queries, and keys and values."""
    of_layer = norms_of_block(workload) * workload.norm_vectors * workload.hidden
    latent = workload.latent
    return of_layer if latent is None else of_layer + workload.norm_vectors * (latent.q_rank + latent.kv_rank)


def norms_of_block(workload: Workload) -> Scalar:
    """Norms of a block of the width of the model: one for what attends or has a state, one for a feed-forward."""
    r = workload.recurrent
    return 2.0 if r is None else (r.attention_layers + r.recurrent_layers + r.ffn_layers) / workload.n_layers


def serial_block(workload: Workload) -> Scalar:
    """1 where a layer's feed-forward follows its attention, with a norm and a sum of its own between them."""
    return 1.0 if workload.parallel_block is None else 1.0 - workload.parallel_block


def embedding_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Token embedding (split over tp) and learned positions (not split)."""
    return workload.vocab * workload.hidden / tp + workload.learned_positions * workload.seq_len * workload.hidden


def head_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Output projection (split over tp); the same count whether or not it is tied to the embedding."""
    return workload.vocab * workload.hidden / tp


def copied_embedding(workload: Workload, pp: Scalar, tp: Scalar) -> Scalar:
    """Parameters of the embedding that the last of several stages needs too, to predict further tokens."""
    if workload.experts is None:
        return 0.0
    needed = (pp > 1.0) & (workload.experts.n_predict > 0.0)
    return jnp.where(needed, embedding_parameters(workload, tp), 0.0)


def stage_parameters(design: Design, layout: Layout) -> Scalar:
    """Parameters on the device that holds most but for routed experts: its layers and the larger of embedding and head.

    These count as much as they have more than the layer that their stage may lack.
    """
    w, m = design.workload, design.mapping
    layer, embedding, head = usual_layer_parameters(w, m.tp), embedding_parameters(w, m.tp), head_parameters(w, m.tp)
    if layout.experts is not None:  # the first layers' dense feed-forward is the first stage's, as the embedding is
        head = head + prediction_parameters(w) + copied_embedding(w, m.pp, m.tp)
        embedding = embedding + layout.experts.first * (layer_parameters(w, m.tp) - layer)
    alone = embedding + jnp.where(w.tied_embeddings > 0.0, 0.0, head)
    larger = jnp.maximum(embedding - layout.stages.first_lacks * layer, head - layout.stages.last_lacks * layer)
    ends = jnp.where(m.pp > 1.0, jnp.maximum(larger, 0.0), alone)
    if layout.pipeline is not None:  # a device that has both ends of a folded pipeline lacks what either stage does
        both = jnp.maximum(alone - layout.pipeline.copies * layout.stages.first_lacks * layer, 0.0)
        ends = jnp.where(layout.pipeline.folded > 0.0, both, ends)
        return layout.pipeline.copies * layout.layers * layer + ends
    return layout.layers * layer + ends


def parameter_count(workload: Workload) -> Scalar:
    """All parameters of the model, biases left out (as in the published shape tables)."""
    everywhere = common_parameters(workload)
    return everywhere if workload.experts is None else everywhere + routed_parameters(workload)


def main_model(workload: Workload) -> Workload:
    """The model without the layers that predict further tokens: what is served, and what publications count."""
    if workload.experts is None:
        return workload
    return dataclasses.replace(workload, experts=dataclasses.replace(workload.experts, n_predict=0.0))


def common_parameters(workload: Workload) -> Scalar:
    """Parameters of the model but for the routed experts, which have a data parallel size of their own."""
    head = (1.0 - workload.tied_embeddings) * head_parameters(workload)
    found = (
        all_layers(workload, layer_parameters(workload), expert_layer_parameters(workload))
        + embedding_parameters(workload)
        + head
        + workload.hidden  # final norm
    )
    return found if workload.experts is None else found + prediction_parameters(workload)


# Experts


def usual_layer_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Parameters of one layer but for routed experts, as all layers have them or all but the first ones."""
    return behind_first(workload, layer_parameters(workload, tp), expert_layer_parameters(workload, tp))


def stage_expert_parameters(design: Design, layout: Layout) -> Scalar:
    """Parameters of routed experts on the device that holds most; of one stage all layers but the first dense ones."""
    if layout.experts is None or design.mapping.experts is None:
        return 0.0
    first = jnp.where(design.mapping.pp > 1.0, 0.0, layout.experts.first)
    held = (layout.layers - first) * layer_expert_parameters(design, layout)
    return held if layout.pipeline is None else layout.pipeline.copies * held


def layer_expert_parameters(design: Design, layout: Layout) -> Scalar:
    """Parameters of the routed experts of one layer on one device; the mean where not all layers have experts."""
    if layout.experts is None or design.mapping.experts is None:
        return 0.0
    held = layout.experts.local * one_expert_parameters(design.workload, design.mapping.experts.etp)
    return behind_first(design.workload, 0.0, held)


def all_layers(workload: Workload, dense: Scalar, with_experts: Scalar) -> Scalar:
    """Something summed over the layers of a model, of which those with a dense feed-forward have ``dense`` each."""
    if workload.experts is None:
        return workload.n_layers * dense
    first = jnp.minimum(workload.experts.first_dense, workload.blocks)
    return first * dense + (workload.blocks - first) * behind_first(workload, dense, with_experts)


def behind_first(workload: Workload, dense: Scalar, with_experts: Scalar) -> Scalar:
    """The mean over the layers behind the first dense ones of a model with experts, one in ``moe_every`` of which."""
    if workload.experts is None:
        return dense
    return dense + (with_experts - dense) / workload.experts.moe_every


def prediction_parameters(workload: Workload) -> Scalar:
    """Parameters of what predicts further tokens, beside its layers, and the embedding and head that it shares.

    ``2 h^2`` to join the hidden state with the token's embedding, and three norms (DeepSeek-AI 2024, section 2.2).
    """
    w, experts = workload, workload.experts
    return 0.0 if experts is None else experts.n_predict * (2.0 * w.hidden + 3.0 * w.norm_vectors) * w.hidden


def expert_layer_matrix_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Matrix parameters of one layer with experts but for the routed ones: attention, router, shared expert.

    The router is not split.
    """
    w, experts = workload, workload.experts
    if experts is None:
        return 0.0
    ffn = w.hidden * experts.n_experts + (2.0 + w.gated) * w.hidden * experts.shared_ffn / tp
    return attention_matrix_parameters(w, tp) + position_parameters(w, tp) + ffn


def expert_layer_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Parameters of one layer with experts but for the routed ones: matrices and vectors."""
    if workload.experts is None:
        return 0.0
    return expert_layer_matrix_parameters(workload, tp) + vector_parameters(workload)


def one_expert_parameters(workload: Workload, etp: Scalar = 1.0) -> Scalar:
    """Parameters of one routed expert on one of ``etp`` devices: ``(2 or 3) h f_e / etp``."""
    w, experts = workload, workload.experts
    return 0.0 if experts is None else (2.0 + w.gated) * w.hidden * experts.expert_ffn / etp


def routed_parameters(workload: Workload) -> Scalar:
    """Parameters of all routed experts of the model."""
    if workload.experts is None:
        return 0.0
    return all_layers(workload, 0.0, workload.experts.n_experts * one_expert_parameters(workload))


def active_parameters(workload: Workload) -> Scalar:
    """Parameters that one token meets: of the routed experts ``k`` of ``E``."""
    if workload.experts is None:
        return parameter_count(workload)
    share = workload.experts.top_k / workload.experts.n_experts
    return common_parameters(workload) + share * routed_parameters(workload)


# FLOPs by convention


def attention_flops(workload: Workload) -> Scalar:
    """Forward FLOPs a token of scores and context over all layers, full square: ``4 L s a d``.

    Where a value has another size than a key, their mean.
    """
    w = workload
    head_dim = w.head_dim if w.latent is None else 0.5 * (w.head_dim + w.latent.v_dim)
    return 4.0 * w.blocks * w.seq_len * w.n_heads * head_dim


def forward_flops(workload: Workload) -> Scalar:
    """Forward FLOPs a token of the matrices of layers, full attention square, no head; of experts those it meets."""
    a_layer = layer_matrix_parameters(workload) - position_parameters(workload)  # positions, not tokens, meet those
    if workload.experts is None:
        return 2.0 * workload.n_layers * a_layer + attention_flops(workload)
    routed = workload.experts.top_k * one_expert_parameters(workload)
    with_experts = expert_layer_matrix_parameters(workload) - position_parameters(workload) + routed
    layers = all_layers(workload, a_layer, with_experts) + prediction_parameters(workload)
    return 2.0 * layers + attention_flops(workload)


def repeated_flops(workload: Workload, keeps_products: Scalar | None = None) -> Scalar:
    """Forward FLOPs a token that recompute operator by operator repeats.

    Every other product of query, key, value, output, gate, up and down, in this order: key, output, up; or the
    attention core, where all products are kept.
    """
    w = workload
    again = w.head_dim * (w.n_kv_heads + w.n_heads) + w.gated * w.ffn_hidden
    every_other = 2.0 * w.n_layers * w.hidden * again
    if keeps_products is None:
        return every_other
    return jnp.where(keeps_products > 0.0, attention_flops(w), every_other)


def flops_of_levels(workload: Workload, again: Mapping[int, Scalar]) -> Scalar:
    """Forward FLOPs a token that levels of recompute of experts repeat; ``again``: level → 1 where it is reached."""
    w, experts = workload, workload.experts
    if experts is None:
        return 0.0
    latent, wide = w.latent, experts.top_k * experts.expert_ffn + experts.shared_ffn
    heads: Scalar = 0.0
    if latent is not None:
        up = latent.q_rank * w.head_dim + latent.kv_rank * (w.head_dim - latent.rope_dim + latent.v_dim)
        heads = again[Recompute.norms] * w.blocks * w.n_heads * up
    gate = again[Recompute.expert_inner] * (1.0 + w.gated)
    block = again[Recompute.expert_block]
    dense = w.hidden * w.ffn_hidden * (gate + block)
    return 2.0 * (heads + all_layers(w, dense, w.hidden * (wide * (gate + block) + block * experts.n_experts)))


def model_flops(workload: Workload, attention_share: Scalar = 1.0) -> Scalar:
    """Model FLOPs of one step: three passes, head counted, recompute not (Narayanan et al. 2021, eq. 3).

    The forward alone is one pass. Frozen matrices have no weight gradient, so two; the FLOPs of adapters are left out,
    as publications do.

    ``attention_share`` scales the attention square: 1 is the Megatron/PaLM convention.
    """
    without_square = forward_flops(workload) - (1.0 - attention_share) * attention_flops(workload)
    head = 2.0 * head_parameters(workload)
    if workload.experts is not None:
        head = head * (1.0 + workload.experts.n_predict)
    passes = 1.0 + 2.0 * workload.backward
    if workload.adapters is not None:
        square = attention_share * attention_flops(workload)
        frozen = (1.0 + workload.backward) * (without_square - square + head)
        return workload.global_batch * workload.seq_len * (frozen + passes * square)
    return passes * workload.global_batch * workload.seq_len * (without_square + head)
