"""The attention core of a layer: unfused, or as one flash kernel."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import least
from dse.model.layout import Layout
from dse.model.work.operators import (
    DROPOUT,
    MASK_BYTES,
    RESCALED,
    SOFTMAX,
    Attended,
    Products,
    batched_matmul,
    elementwise,
    flash_attention,
)
from dse.types import Design, Operator, Scalar, Workload


def causal_pairs(queries: Scalar, window: Scalar) -> Scalar:
    """Query-key pairs of causal attention with a window: ``s w - w^2 / 2``, the half square without one."""
    reach = jnp.minimum(window, queries)
    return queries * reach - 0.5 * reach * reach


def flash_pairs(workload: Workload) -> Scalar:
    """Mean pairs a head over local (windowed) and global layers; of packed documents those inside one."""
    s = workload.seq_len
    local = workload.local_layers
    if workload.packing is not None:
        s = document_tokens(workload)
    pairs = (1.0 - local) * causal_pairs(s, s) + local * causal_pairs(s, workload.window)
    return pairs if workload.packing is None else pairs * workload.seq_len / s


def document_tokens(workload: Workload) -> Scalar:
    """Tokens that a token attends to or is attended by: its document's, of documents packed into a sequence.

    ``sum s_i^2 / sum s_i`` of documents of ``s_i`` tokens: so many have the pairs of one such after the other.
    """
    return workload.seq_len if workload.packing is None else least(workload.packing.document, workload.seq_len)


#: Bytes an element that a softmax of single kernels moves beyond a fused one: to fp32, mask, softmax, back to 16 bits.
EAGER_FORWARD, EAGER_BACKWARD = 25.0, 27.0


def attention_operators(design: Design, layout: Layout) -> list[Operator]:
    """The attention core, unfused (full square through memory) or flash (causal half, no square stored)."""
    w, m = design.workload, design.mapping
    e = layout.element.sixteen_bit()
    batch = m.micro_batch * layout.heads
    square = batch * w.seq_len * (w.seq_len / m.cp)  # cp splits the queries
    unfused = 1.0 - layout.flash
    act = e.activation
    queries = w.seq_len / m.cp
    qk_stored = act * layout.tokens * (layout.query_width + layout.kv_width)
    value_stored = act * layout.tokens * (layout.kv_width if layout.value_width is None else layout.value_width)
    value_dim = w.head_dim if w.latent is None else w.latent.v_dim
    # What one kernel does on keys and on values it does on their mean size twice.
    mean_dim = w.head_dim if w.latent is None else 0.5 * (w.head_dim + value_dim)
    dropped = w.dropout
    # The context product keeps its left operand: the dropped-out copy, or the softmax output itself.
    probabilities = value_stored + dropped * act * square
    statistics = 4.0 * batch * queries  # one fp32 log-sum-exp a row
    flash_stored = qk_stored + value_stored + statistics
    eager = layout.eager
    flash_batch, flash_queries, keys = batch, queries, w.seq_len
    kv_batch, pairs, steps = m.micro_batch * layout.kv_heads, flash_pairs(w) / m.cp, layout.ring
    if layout.context is not None:  # a rank's heads have the queries of all that it exchanged heads with
        over = layout.context.heads_over.size
        flash_batch, flash_queries, pairs = batch / over, queries * over, pairs * over
        kv_batch = m.micro_batch * layout.context.kv_width / w.head_dim
    if w.packing is not None:  # the kernel runs over documents, each as a sequence of its own
        keys = document_tokens(w)
        documents = w.seq_len / keys
        flash_batch, kv_batch = documents * flash_batch, documents * kv_batch
        flash_queries, pairs = flash_queries / documents, pairs / documents
    flash = flash_attention(
        Attended(flash_batch, flash_queries, keys, pairs, mean_dim, kv_batch, steps), e, flash_stored, layout.flash
    )
    if design.software.keeps_products is not None:  # recompute that keeps products keeps no kernel's output
        flash = flash._replace(kept=1.0 - design.software.keeps_products)
    return [
        batched_matmul(
            "attention_scores", Products(batch, queries, w.seq_len, w.head_dim), e, qk_stored, unfused
        ),
        elementwise(
            "attention_softmax", square, 2.0 * act + eager * EAGER_FORWARD, 3.0 * act + eager * EAGER_BACKWARD,
            act * square, flops=SOFTMAX, present=unfused, core=True,
        ),
        elementwise(
            "attention_dropout", square, 2.0 * act + MASK_BYTES, 2.0 * act + MASK_BYTES,
            MASK_BYTES * square, flops=DROPOUT, present=unfused * dropped, core=True,
        ),
        batched_matmul(
            "attention_context", Products(batch, queries, value_dim, w.seq_len), e, probabilities, unfused
        ),
        flash,
        ring_sums(flash_batch * flash_queries * mean_dim, kv_batch / flash_batch, steps, act, layout.flash),
    ]  # fmt: skip


def ring_sums(queries: Scalar, keys: Scalar, steps: Scalar, element_bytes: Scalar, present: Scalar) -> Operator:
    """What each of ``steps`` of a ring adds to what those before it found (Liu et al. 2023, section 3).

    Forward the outputs, as many as ``queries`` has elements; backward the gradients of queries and, ``keys`` times as
    many each, of keys and values. A sum reads both and writes one.
    """
    a_sum = 3.0 * element_bytes
    return elementwise(
        "ring_sums", (steps - 1.0) * queries, a_sum, a_sum * (1.0 + 2.0 * keys), 0.0, flops=RESCALED,
        present=present * jnp.minimum(steps - 1.0, 1.0), core=True,
    )  # fmt: skip
