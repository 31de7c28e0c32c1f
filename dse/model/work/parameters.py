"""Parameters of a model and of its parts on one device, and its FLOPs by the field's conventions."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.types import Design, Scalar, Workload


def layer_matrix_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Matrix parameters of one layer on one device of a tensor-parallel group of ``tp``.

    ``h d (a + 2 g) + a d h + (2 or 3) h f``; key/value heads are replicated when tp exceeds them.
    """
    w = workload
    kv_heads = jnp.maximum(w.n_kv_heads / tp, 1.0)
    attention = w.hidden * w.head_dim * (2.0 * w.n_heads / tp + 2.0 * kv_heads)
    return attention + position_parameters(w, tp) + (2.0 + w.gated) * w.hidden * w.ffn_hidden / tp


def position_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Parameters of one layer's projection of relative positions (Transformer-XL), where there is one."""
    return workload.relative_positions * workload.hidden * workload.n_heads * workload.head_dim / tp


def layer_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Parameters of one layer on one device: matrices, and the vectors of two norms, which tp does not split."""
    return layer_matrix_parameters(workload, tp) + 2.0 * workload.norm_vectors * workload.hidden


def embedding_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Token embedding (split over tp) and learned positions (not split)."""
    return workload.vocab * workload.hidden / tp + workload.learned_positions * workload.seq_len * workload.hidden


def head_parameters(workload: Workload, tp: Scalar = 1.0) -> Scalar:
    """Output projection (split over tp); the same count whether or not it is tied to the embedding."""
    return workload.vocab * workload.hidden / tp


def stage_parameters(design: Design, layout: Layout) -> Scalar:
    """Parameters on the device that holds most: its layers and the larger of embedding and head.

    These count as much as they have more than the layer that their stage may lack.
    """
    w, m = design.workload, design.mapping
    layer, embedding, head = layer_parameters(w, m.tp), embedding_parameters(w, m.tp), head_parameters(w, m.tp)
    alone = embedding + jnp.where(w.tied_embeddings > 0.0, 0.0, head)
    larger = jnp.maximum(embedding - layout.stages.first_lacks * layer, head - layout.stages.last_lacks * layer)
    ends = jnp.where(m.pp > 1.0, jnp.maximum(larger, 0.0), alone)
    return layout.layers * layer + ends


def parameter_count(workload: Workload) -> Scalar:
    """All parameters of the model, biases left out (as in the published shape tables)."""
    head = (1.0 - workload.tied_embeddings) * head_parameters(workload)
    return (
        workload.n_layers * layer_parameters(workload)
        + embedding_parameters(workload)
        + head
        + workload.hidden  # final norm
    )


# FLOPs by convention


def attention_flops(workload: Workload) -> Scalar:
    """Forward FLOPs a token of scores and context over all layers, full square: ``4 L s a d``."""
    return 4.0 * workload.n_layers * workload.seq_len * workload.n_heads * workload.head_dim


def forward_flops(workload: Workload) -> Scalar:
    """Forward FLOPs a token of the layers' matrices, full attention square, no head."""
    a_layer = layer_matrix_parameters(workload) - position_parameters(workload)  # positions, not tokens, meet those
    return 2.0 * workload.n_layers * a_layer + attention_flops(workload)


def repeated_flops(workload: Workload) -> Scalar:
    """Forward FLOPs a token that recompute operator by operator repeats.

    Every other product of query, key, value, output, gate, up and down, in this order: key, output, up.
    """
    w = workload
    again = w.head_dim * (w.n_kv_heads + w.n_heads) + w.gated * w.ffn_hidden
    return 2.0 * w.n_layers * w.hidden * again


def model_flops(workload: Workload, attention_share: Scalar = 1.0) -> Scalar:
    """Model FLOPs of one step: three passes, head counted, recompute not (Narayanan et al. 2021, eq. 3).

    The forward alone is one pass.

    ``attention_share`` scales the attention square: 1 is the Megatron/PaLM convention.
    """
    without_square = forward_flops(workload) - (1.0 - attention_share) * attention_flops(workload)
    head = 2.0 * head_parameters(workload)
    passes = 1.0 + 2.0 * workload.backward
    return passes * workload.global_batch * workload.seq_len * (without_square + head)
