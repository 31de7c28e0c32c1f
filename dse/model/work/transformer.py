"""One transformer layer, the embedding and the head under a mapping: operators, messages, parameters.

A new operator is one line in :func:`layer_operators`; time, memory and FLOPs are folds over that list.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import divides, operand_bytes
from dse.model.work.operators import (
    ACTIVATION,
    DROPOUT,
    MASK_BYTES,
    NORM,
    RESIDUAL,
    SOFTMAX,
    Element,
    Flops,
    batched_matmul,
    elementwise,
    flash_attention,
    linear,
)
from dse.types import (
    Attention,
    Design,
    Mapping,
    Operator,
    OperatorKind,
    Precision,
    Recompute,
    Scalar,
    SequenceParallel,
    Software,
    Workload,
)


class Local(NamedTuple):
    """What one device holds of one layer and one micro-batch."""

    tokens: Scalar  # b s / c, rows of every linear layer
    norm_tokens: Scalar  # rows of norms, dropout and residuals: / t with sequence parallelism
    heads: Scalar  # query heads
    kv_heads: Scalar  # key/value heads (at least one)
    query_width: Scalar  # heads x head size
    kv_width: Scalar  # key/value heads x head size
    ffn: Scalar  # feed-forward width
    vocab: Scalar  # vocabulary rows
    flash: Scalar  # 1 for flash attention
    fused: Scalar  # 1 for fused element-wise chains
    eager: Scalar  # 1 when unfused attention runs its softmax as single kernels
    split: Scalar  # 1 when the sequence is split over tp in norms, dropout and residuals
    edges: Scalar  # 1 when there is an embedding and a head: a vocabulary
    element: Element


def local_sizes(design: Design) -> Local:
    """Sizes on one device of ``design``."""
    w, m, software = design.workload, design.mapping, design.software
    tokens = m.micro_batch * w.seq_len / m.cp
    heads = w.n_heads / m.tp
    kv_heads = jnp.maximum(w.n_kv_heads / m.tp, 1.0)
    operand = operand_bytes(m.precision)
    split = splits_sequence(m.sequence_parallel)
    return Local(
        tokens=tokens,
        norm_tokens=tokens / jnp.where(split > 0.0, m.tp, 1.0),
        heads=heads,
        kv_heads=kv_heads,
        query_width=heads * w.head_dim,
        kv_width=kv_heads * w.head_dim,
        ffn=w.ffn_hidden / m.tp,
        vocab=w.vocab / m.tp,
        flash=jnp.where(software.attention == float(Attention.flash), 1.0, 0.0),
        fused=software.fused_elementwise,
        eager=eager_softmax(m.micro_batch * heads, software),
        split=split,
        edges=jnp.minimum(w.vocab, 1.0),
        element=Element(
            operand=operand,
            activation=activation_bytes(m.precision),
            gradient=software.gradient_bytes,
            cache=design.system.accelerator.cache,
        ),
    )


def splits_sequence(choice: Scalar) -> Scalar:
    """1 where this choice of :class:`SequenceParallel` splits norms, dropout and residuals over tp, else 0."""
    inside = (choice > 0.0) & (choice != float(SequenceParallel.at_cuts))
    return jnp.where(inside, 1.0, 0.0)


def kept_inputs(mapping: Mapping, local: Local) -> tuple[Scalar, Scalar]:
    """Tokens of the inputs that the attention's and the feed-forward's first matrices keep for the backward.

    Their share of a split sequence, or all when gathered inputs are kept. Selective recompute starts from the
    attention's share, so that it is gathered again.
    """
    kept = mapping.sequence_parallel == float(SequenceParallel.keep_gathered)
    selective = mapping.recompute == float(Recompute.selective)
    ffn = jnp.where(kept, local.tokens, local.norm_tokens)
    return jnp.where(selective, local.norm_tokens, ffn), ffn


def activation_bytes(precision: Scalar) -> Scalar:
    """Bytes of one activation: 4 in fp32 and tf32 training, 2 in every mixed-precision recipe."""
    full = (precision == float(Precision.fp32)) | (precision == float(Precision.tf32))
    return jnp.where(full, 4.0, 2.0)


def causal_pairs(queries: Scalar, window: Scalar) -> Scalar:
    """Query-key pairs of causal attention with a window: ``s w - w^2 / 2``, the half square without one."""
    reach = jnp.minimum(window, queries)
    return queries * reach - 0.5 * reach * reach


def flash_pairs(workload: Workload) -> Scalar:
    """Mean pairs a head over local (windowed) and global layers."""
    s = workload.seq_len
    local = workload.local_layers
    return (1.0 - local) * causal_pairs(s, s) + local * causal_pairs(s, workload.window)


#: Bytes an element that a softmax of single kernels moves beyond a fused one: to fp32, mask, softmax, back to 16 bits.
EAGER_FORWARD, EAGER_BACKWARD = 25.0, 27.0


def eager_softmax(batch: Scalar, software: Software) -> Scalar:
    """1 where unfused attention over ``batch`` sequences x heads falls back on a softmax of single kernels, else 0.

    The fused kernel works on several of them at a time (four in Megatron-LM's ``fused_softmax``).
    """
    fused = divides(software.softmax_batch, batch) | (software.attention == float(Attention.flash))
    return jnp.where(fused, 0.0, 1.0)


def attention_operators(design: Design, local: Local) -> list[Operator]:
    """The attention core, unfused (full square through memory) or flash (causal half, no square stored)."""
    w, m = design.workload, design.mapping
    e = local.element.sixteen_bit()
    batch = m.micro_batch * local.heads
    square = batch * w.seq_len * (w.seq_len / m.cp)  # cp splits the queries
    unfused = 1.0 - local.flash
    act = e.activation
    queries = w.seq_len / m.cp
    qk_stored = act * local.tokens * (local.query_width + local.kv_width)
    value_stored = act * local.tokens * local.kv_width
    dropped = w.dropout
    # The context product keeps its left operand: the dropped-out copy, or the softmax output itself.
    probabilities = value_stored + dropped * act * square
    statistics = 4.0 * batch * queries  # one fp32 log-sum-exp a row
    flash_stored = qk_stored + value_stored + statistics
    eager = local.eager
    return [
        batched_matmul("attention_scores", batch, queries, w.seq_len, w.head_dim, e, qk_stored, unfused),
        elementwise(
            "attention_softmax", square, 2.0 * act + eager * EAGER_FORWARD, 3.0 * act + eager * EAGER_BACKWARD,
            act * square, flops=SOFTMAX, present=unfused, core=True,
        ),
        elementwise(
            "attention_dropout", square, 2.0 * act + MASK_BYTES, 2.0 * act + MASK_BYTES,
            MASK_BYTES * square, flops=DROPOUT, present=unfused * dropped, core=True,
        ),
        batched_matmul("attention_context", batch, queries, w.head_dim, w.seq_len, e, probabilities, unfused),
        flash_attention(
            batch, queries, w.seq_len, flash_pairs(w) / m.cp, w.head_dim, m.micro_batch * local.kv_heads,
            e, flash_stored, local.flash,
        ),
    ]  # fmt: skip


def layer_operators(design: Design, local: Local) -> list[Operator]:
    """Every operator of one layer and micro-batch on one device, in forward order.

    Stored bytes follow Korthikanti et al. 2022, section 4.1: each operator keeps its input, dropout its mask.
    """
    w = design.workload
    e, act = local.element, local.element.activation
    rows = local.norm_tokens * w.hidden  # elements of a residual-stream tensor
    gate = 1.0 + w.gated
    # Bytes per element: fused chains touch each tensor once, unfused ones go through memory between kernels.
    residual = 3.0 * act + (1.0 - local.fused) * 4.0 * act
    residual_dropout = residual + w.dropout * MASK_BYTES
    residual_back = w.dropout * (2.0 * act + MASK_BYTES)
    chain = 1.0 + (1.0 - local.fused)
    norm_stored = act * rows
    mask_stored = w.dropout * MASK_BYTES * rows
    activated = design.software.activation_output_kept * e.operand * local.tokens * local.ffn
    attention_input, ffn_input = (e.operand * tokens * w.hidden for tokens in kept_inputs(design.mapping, local))
    # The attention's backward needs its output in 16 bits, a narrower projection its own copy too.
    context = local.tokens * local.query_width * (act + jnp.where(e.operand < act, e.operand, 0.0))
    return [
        elementwise("attention_norm", rows, 2.0 * act, 6.0 * act, norm_stored, flops=NORM),
        linear("qkv", local.tokens, local.query_width + 2.0 * local.kv_width, w.hidden, e, attention_input),
        elementwise(
            "rotary", local.tokens * (local.query_width + local.kv_width), 2.0 * act, 2.0 * act, 0.0,
            present=w.rotary,
        ),
        *attention_operators(design, local),
        linear("projection", local.tokens, w.hidden, local.query_width, e, context),
        elementwise("attention_residual", rows, residual_dropout, residual_back, mask_stored, flops=RESIDUAL),
        elementwise("ffn_norm", rows, 2.0 * act, 6.0 * act, norm_stored, flops=NORM),
        linear("ffn_up", local.tokens, gate * local.ffn, w.hidden, e, ffn_input),
        elementwise(
            "ffn_activation", local.tokens * local.ffn, act * (gate + 1.0) * chain,
            act * (2.0 * gate + 1.0) * chain, act * gate * local.tokens * local.ffn, flops=ACTIVATION,
        ),
        linear("ffn_down", local.tokens, w.hidden, local.ffn, e, activated),
        elementwise("ffn_residual", rows, residual_dropout, residual_back, mask_stored, flops=RESIDUAL),
        quantization(design, local),
    ]  # fmt: skip


def quantization(design: Design, local: Local) -> Operator:
    """Casts of a recipe with operands narrower than activations (Micikevicius et al. 2022; Transformer Engine).

    The inputs of the four matrices, and in the backward the gradients of their outputs, are read once and
    written twice, as they are and transposed: 8-bit products take both operands along the inner dimension.
    """
    w, e = design.workload, local.element
    inputs = 2.0 * w.hidden + local.query_width + local.ffn
    outputs = 2.0 * w.hidden + local.query_width + 2.0 * local.kv_width + (1.0 + w.gated) * local.ffn
    cast = e.activation + 2.0 * e.operand
    narrow = jnp.where(e.operand < e.activation, 1.0, 0.0)
    return elementwise(
        "quantization", local.tokens * inputs, cast, cast * outputs / inputs, 0.0, flops=Flops(0.0, 0.0), present=narrow
    )


def embedding_operators(design: Design, local: Local) -> list[Operator]:
    """The first stage's edge: look-up (a gather, not a GEMM), positions and dropout."""
    w = design.workload
    act = local.element.activation
    looked_up = local.tokens * w.hidden
    rows = local.norm_tokens * w.hidden
    scatter = act + 2.0 * local.element.gradient
    return [
        elementwise(
            "embedding", looked_up, 2.0 * act * (1.0 + 0.5 * w.learned_positions), scatter, 0.0, flops=Flops(1.0, 2.0),
            present=local.edges,
        ),
        elementwise(
            "embedding_dropout", rows, 2.0 * act + MASK_BYTES, 2.0 * act + MASK_BYTES, MASK_BYTES * rows,
            flops=DROPOUT, present=w.dropout * local.edges,
        ),
    ]  # fmt: skip


def head_operators(design: Design, local: Local) -> list[Operator]:
    """The last stage's edge: final norm, LM head, cross-entropy over the vocabulary shard."""
    w, software = design.workload, design.software
    e, act = local.element.sixteen_bit(), local.element.activation
    rows = local.norm_tokens * w.hidden
    loss = 0.5 * software.cross_entropy_traffic
    logits = local.tokens * local.vocab
    return [
        elementwise("final_norm", rows, 2.0 * act, 6.0 * act, act * rows, flops=NORM, present=local.edges),
        # At least one row of the vocabulary, so that a model without one has a shape, if no head.
        linear(
            "head", local.tokens, jnp.maximum(local.vocab, 1.0), w.hidden, e, act * rows, OperatorKind.matrix_16,
            present=local.edges,
        ),
        elementwise("cross_entropy", logits, loss, loss, software.logit_bytes * logits, present=local.edges),
    ]


def stored_bytes(operators: list[Operator], core_only: bool = False) -> Scalar:
    """Bytes that the operators keep for the backward pass."""
    return sum(o.present * o.stored for o in operators if o.core or not core_only)


def recomputed_core_bytes(operators: list[Operator], local: Local) -> Scalar:
    """What selective recompute frees: all that the core keeps, but for its inputs (queries, keys, values)."""
    inputs = local.element.activation * local.tokens * (local.query_width + 2.0 * local.kv_width)
    return stored_bytes(operators, core_only=True) - inputs


# --- parameters ---------------------------------------------------------------------------------


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


def parameter_count(workload: Workload) -> Scalar:
    """All parameters of the model, biases left out (as in the published shape tables)."""
    head = (1.0 - workload.tied_embeddings) * head_parameters(workload)
    return (
        workload.n_layers * layer_parameters(workload)
        + embedding_parameters(workload)
        + head
        + workload.hidden  # final norm
    )


# --- FLOPs by convention ------------------------------------------------------------------------


def attention_flops(workload: Workload) -> Scalar:
    """Forward FLOPs a token of scores and context over all layers, full square: ``4 L s a d``."""
    return 4.0 * workload.n_layers * workload.seq_len * workload.n_heads * workload.head_dim


def forward_flops(workload: Workload) -> Scalar:
    """Forward FLOPs a token of the layers' matrices, full attention square, no head."""
    a_layer = layer_matrix_parameters(workload) - position_parameters(workload)  # positions, not tokens, meet those
    return 2.0 * workload.n_layers * a_layer + attention_flops(workload)


def model_flops(workload: Workload, attention_share: Scalar = 1.0) -> Scalar:
    """Model FLOPs of one step: three passes, head counted, recompute not (Narayanan et al. 2021, eq. 3).

    The forward alone is one pass.

    ``attention_share`` scales the attention square: 1 is the Megatron/PaLM convention.
    """
    without_square = forward_flops(workload) - (1.0 - attention_share) * attention_flops(workload)
    head = 2.0 * head_parameters(workload)
    passes = 1.0 + 2.0 * workload.backward
    return passes * workload.global_batch * workload.seq_len * (without_square + head)
