"""Common parts of attention cores: query-key pairs, unfused and flash kernels, sums of a ring."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import min_prefer_first, quotient, times, value_or
from dse.model.layout import Layout
from dse.model.work.operators import (
    DROPOUT,
    MASK_BYTES,
    RESCALED,
    SOFTMAX,
    FlashShape,
    Products,
    batched_matmul,
    elementwise,
    flash_attention,
)
from dse.types import Design, Operator, Scalar, Workload


def causal_pairs(queries: Scalar, window: Scalar) -> Scalar:
    """Return the count of query-key pairs of causal attention: ``s w - w^2 / 2``, half the square for ``w >= s``."""
    reach = jnp.minimum(window, queries)
    return queries * reach - 0.5 * reach * reach


def flash_pairs(workload: Workload) -> Scalar:
    """Return the count of causal query-key pairs per head within the documents of one sequence.

    A mean over local (windowed) and global layers.
    """
    s, local = document_tokens(workload), workload.local_layers
    pairs = (1.0 - local) * causal_pairs(s, s) + local * causal_pairs(s, workload.window)
    return times(documents_per_sequence(workload), pairs)


def document_tokens(workload: Workload) -> Scalar:
    """Return the mean tokens per document of a packed sequence, weighted by tokens, at most the sequence length.

    Without packing it is the sequence length.

    ``sum s_i^2 / sum s_i`` of documents of ``s_i`` tokens: documents of this length have as many pairs.
    """
    if workload.packing is None:
        return workload.seq_len
    return min_prefer_first(workload.packing.document, workload.seq_len)


def documents_per_sequence(workload: Workload) -> Scalar:
    """Return the count of documents packed into a sequence, 1 without packing."""
    tokens = document_tokens(workload)
    return 1.0 if tokens is workload.seq_len else workload.seq_len / tokens


#: Bytes per element of an unfused softmax beyond a fused one: cast to fp32, mask, softmax, cast to 16 bits.
EAGER_FORWARD, EAGER_BACKWARD = 25.0, 27.0


def core_operators(design: Design, layout: Layout, value_dim: Scalar, mean_dim: Scalar) -> list[Operator]:
    """Return the operators of unfused and of flash attention in training, 0 or 1 ``present`` by the stack.

    The first move the full square through memory, the second computes the causal half and stores no square.

    Args:
        design: its training design.
        layout: sizes on one device.
        value_dim: columns of a head's value.
        mean_dim: mean columns of a head's key and value, on which the flash kernel is modelled.
    """
    w, m = design.workload, design.mapping
    e = layout.element.sixteen_bit()
    batch = m.micro_batch * layout.heads
    square = batch * w.seq_len * (w.seq_len / m.cp)  # cp splits the queries
    unfused = 1.0 - layout.flash
    act = e.activation
    queries = w.seq_len / m.cp
    qk_stored = act * layout.tokens * (layout.query_width + layout.kv_width)
    value_stored, dropout = act * layout.tokens * layout.value_width, w.dropout
    # The context product stores its left operand: the copy after dropout, or the softmax output itself.
    probabilities = value_stored + dropout * act * square
    statistics = 4.0 * batch * queries  # one fp32 log-sum-exp per row
    flash_stored = qk_stored + value_stored + statistics
    softmax_bytes = 2.0 * act + layout.eager * EAGER_FORWARD, 3.0 * act + layout.eager * EAGER_BACKWARD
    masked, mask = 2.0 * act + MASK_BYTES, MASK_BYTES * square
    # After an exchange of heads, a rank has the queries of all ranks of the exchange; each document is a sequence of
    # its own.
    exchange_size, n_documents = layout.context.head_exchange.size, documents_per_sequence(w)
    flash_batch = times(n_documents, quotient(batch, exchange_size))
    flash_queries, pairs = (
        quotient(times(count, exchange_size), n_documents) for count in (queries, flash_pairs(w) / m.cp)
    )
    kv_batch, steps = times(n_documents, m.micro_batch * layout.context.kv_heads), layout.ring
    keys = document_tokens(w)
    flash = flash_attention(
        FlashShape(flash_batch, flash_queries, keys, pairs, mean_dim, kv_batch, steps), e, flash_stored, layout.flash
    )
    # Recompute that stores products stores no output of other kernels.
    flash = flash._replace(retained_share=1.0 - value_or(design.software.keeps_products, 0.0))
    return [
        batched_matmul("attention_scores", Products(batch, queries, w.seq_len, w.head_dim), e, qk_stored, unfused),
        elementwise("attention_softmax", square, *softmax_bytes, act * square, SOFTMAX, unfused, core=True),
        elementwise("attention_dropout", square, masked, masked, mask, DROPOUT, unfused * dropout, core=True),
        batched_matmul("attention_context", Products(batch, queries, value_dim, w.seq_len), e, probabilities, unfused),
        flash,
        ring_sums(flash_batch * flash_queries * mean_dim, kv_batch / flash_batch, steps, act, layout.flash),
    ]


def ring_sums(queries: Scalar, keys: Scalar, steps: Scalar, element_bytes: Scalar, present: Scalar) -> Operator:
    """Return the operator that sums the results of the ``steps`` of a ring (Liu et al. 2023, section 3).

    Forward outputs of ``queries`` elements; backward the gradients of queries, keys and values, the latter two of
    ``keys queries`` elements each. A sum reads both operands and writes one.
    """
    elements, a_sum, present = (steps - 1.0) * queries, 3.0 * element_bytes, present * jnp.minimum(steps - 1.0, 1.0)
    return elementwise("ring_sums", elements, a_sum, a_sum * (1.0 + 2.0 * keys), 0.0, RESCALED, present, core=True)
