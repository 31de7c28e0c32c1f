"""The operators of one transformer layer, of the embedding and of the head under a mapping.

A new operator is one line in :func:`layer_operators`; time, energy and memory are folds over that list.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import nothing, times
from dse.model.layout import Layout
from dse.model.work.blocks import attention_of
from dse.model.work.experts import expert_operators, expert_quantization
from dse.model.work.grouped import stored_share
from dse.model.work.operators import (
    DROPOUT,
    MASK_BYTES,
    RESIDUAL,
    CastElements,
    FeedForwardShape,
    FeedForwardStored,
    Flops,
    casts,
    elementwise,
    feed_forward_operators,
    linear,
    norm,
)
from dse.model.work.parameters import serial_block
from dse.types import Design, Mapping, Operator, OperatorKind, Recompute, Scalar, SequenceParallel


def layer_operators(design: Design, layout: Layout, core: list[Operator] | None = None) -> list[Operator]:
    """Return all operators of one layer with a dense feed-forward, per micro-batch and device, in forward order.

    Stored bytes follow Korthikanti et al. 2022, section 4.1: each operator stores its input, dropout its mask.
    ``core``: attention operators of a serving step, instead of those of training.
    """
    return layer_with_feed_forward(design, layout, feed_forward(design, layout), quantization(design, layout), core)


def expert_layer_operators(design: Design, layout: Layout, core: list[Operator] | None = None) -> list[Operator]:
    """Return all operators of one layer with experts, per micro-batch and device, in forward order."""
    ffn_input = layout.element.stored_input * stored_input_tokens(design.mapping, layout)[1] * design.workload.hidden
    operators = expert_operators(design, layout, ffn_input)
    return layer_with_feed_forward(design, layout, operators, expert_quantization(design, layout), core)


def layer_with_feed_forward(
    design: Design,
    layout: Layout,
    feed_forward: list[Operator],
    quantization: Operator,
    core: list[Operator] | None = None,
) -> list[Operator]:
    """Return all operators of a layer in forward order, with those of ``feed_forward`` and ``quantization``."""
    w = design.workload
    e, act = layout.element, layout.element.activation
    rows = layout.norm_tokens * w.hidden  # elements of a residual-stream tensor
    # Bytes per element: fused chains touch each tensor once, unfused ones go through memory between kernels.
    residual = 3.0 * act + (1.0 - layout.fused) * 4.0 * act
    residual_dropout = residual + w.dropout * MASK_BYTES
    residual_back = w.dropout * (2.0 * act + MASK_BYTES)
    norm_stored = act * rows
    mask_stored = w.dropout * MASK_BYTES * rows
    serial = serial_block(w)
    attention_input = e.stored_input * stored_input_tokens(design.mapping, layout)[0] * w.hidden
    # Attention's backward needs its output in 16 bits; a projection in a narrower format stores a copy.
    context = layout.tokens * layout.context_width * (act + jnp.where(e.stored_input < act, e.stored_input, 0.0))
    projected = stored_share(design.software, 0.0)
    return [
        norm("attention_norm", rows, act, norm_stored, levels=(Recompute.norms, 0)),
        *attention_of(w).projections(design, layout, attention_input),
        *(core or attention_of(w).core(design, layout)),
        linear("projection", layout.tokens, w.hidden, layout.context_width, e, context, stored_ratio=projected),
        elementwise(
            "attention_residual", rows, residual_dropout, residual_back, mask_stored, flops=RESIDUAL, present=serial
        ),
        norm("ffn_norm", rows, act, norm_stored, serial, (Recompute.norms, 0)),
        *feed_forward,
        elementwise("ffn_residual", rows, residual_dropout, residual_back, mask_stored, flops=RESIDUAL),
        quantization,
    ]


def feed_forward(design: Design, layout: Layout) -> list[Operator]:
    """Return the operators of a dense feed-forward: up (and gate), activation, down."""
    w, e, software = design.workload, layout.element, design.software
    ffn_input = serial_block(w) * (e.stored_input * stored_input_tokens(design.mapping, layout)[1] * w.hidden)
    stored = FeedForwardStored(
        inputs=ffn_input,
        output=software.activation_output_kept * e.stored_input,
        inputs_until=Recompute.norms,
        ratios=(stored_share(software, 1.0 - 0.5 * w.gated), 1.0),
    )
    shape = FeedForwardShape(times(layout.sharers.dense, layout.tokens), layout.ffn)
    return feed_forward_operators("ffn", shape, design, layout, stored)


def quantization(design: Design, layout: Layout) -> Operator:
    """Return the operator of a dense layer's casts to narrower operands (Micikevicius et al. 2022).

    The inputs of the four matrices, and in the backward the gradients of their outputs, are read once and
    written twice, as they are and transposed: 8-bit products take both operands along the inner dimension.
    """
    w, e = design.workload, layout.element
    sharers = layout.sharers.dense
    inputs = (1.0 + sharers) * w.hidden + layout.context_width + times(sharers, layout.ffn)
    projection_columns = layout.query_width + layout.keys_and_values
    outputs = 2.0 * w.hidden + projection_columns + (1.0 + w.gated) * layout.ffn
    weights = w.hidden * (projection_columns + layout.context_width + (2.0 + w.gated) * layout.ffn)
    elements = CastElements(layout.tokens * inputs, layout.tokens * outputs, weights)
    return casts(elements, e, w.backward, w.trains_all)


def embedding_operators(design: Design, layout: Layout) -> list[Operator]:
    """Return the operators of the first stage beyond its layers.

    Look-up (a gather, not a GEMM), positions and dropout.
    """
    w = design.workload
    act = layout.element.activation
    elements, rows, present = layout.tokens * w.hidden, layout.norm_tokens * w.hidden, layout.has_vocabulary
    gather, scatter = 2.0 * act * (1.0 + 0.5 * w.learned_positions), act + 2.0 * layout.element.gradient
    masked, mask = 2.0 * act + MASK_BYTES, MASK_BYTES * rows
    return [
        elementwise("embedding", elements, gather, scatter, 0.0, Flops(1.0, 2.0), present),
        elementwise("embedding_dropout", rows, masked, masked, mask, DROPOUT, w.dropout * present),
    ]


def head_operators(design: Design, layout: Layout) -> list[Operator]:
    """Return the operators of the last stage beyond its layers.

    Final norm, LM head, and cross-entropy over the vocabulary shard.
    """
    w, software = design.workload, design.software
    e, act = layout.element.sixteen_bit(), layout.element.activation
    rows = layout.norm_tokens * w.hidden
    loss = 0.5 * software.cross_entropy_traffic
    logits, vocab = layout.tokens * layout.vocab, jnp.maximum(layout.vocab, 1.0)
    return [
        *prediction_operators(design, layout),
        norm("final_norm", rows, act, act * rows, layout.outputs),
        # At least one row, so that a model without a vocabulary has a shape.
        linear("head", layout.tokens, vocab, w.hidden, e, act * rows, OperatorKind.matrix_16, layout.outputs),
        elementwise("cross_entropy", logits, loss, loss, software.logit_bytes * logits, present=layout.outputs),
    ]


def prediction_operators(design: Design, layout: Layout) -> list[Operator]:
    """Return the operators that join hidden state and next token's embedding, empty without multi-token prediction.

    Two norms and one product of the concatenation (DeepSeek-AI 2024, section 2.2); a layer and a head follow.
    """
    w, e, act = design.workload, layout.element, layout.element.activation
    rows, count = 2.0 * layout.norm_tokens * w.hidden, w.predicted
    if nothing(count):
        return []
    return [
        norm("prediction_norms", rows, act, act * rows, count),
        linear(
            "prediction_join", layout.norm_tokens, w.hidden, 2.0 * w.hidden, e, e.stored_input * rows, present=count
        ),
    ]


def stored_input_tokens(mapping: Mapping, layout: Layout) -> tuple[Scalar, Scalar]:
    """Return the counts of tokens of the stored inputs of attention's and of the feed-forward's first matrices.

    A share of a split sequence, or all where gathered inputs are kept. Selective recompute restarts from the share of
    attention, which is gathered again.
    """
    keeps_gathered = mapping.sequence_parallel == float(SequenceParallel.keep_gathered)
    selective = mapping.recompute == float(Recompute.selective)
    ffn = jnp.where(keeps_gathered, layout.tokens, layout.norm_tokens)
    return jnp.where(selective, layout.norm_tokens, ffn), ffn
