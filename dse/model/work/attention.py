"""The attention core of a layer: unfused, or as one flash kernel."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import divided, given, min_prefer_first, times
from dse.model.layout import Layout
from dse.model.work.blocks import attention_of
from dse.model.work.grouped import causal_pairs
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


def flash_pairs(workload: Workload) -> Scalar:
    """Mean pairs a head over local (windowed) and global layers; of packed documents those inside one."""
    s, local = document_tokens(workload), workload.local_layers
    pairs = (1.0 - local) * causal_pairs(s, s) + local * causal_pairs(s, workload.window)
    return times(documents(workload), pairs)


def document_tokens(workload: Workload) -> Scalar:
    """Tokens that a token attends to or is attended by: its document's, of documents packed into a sequence.

    ``sum s_i^2 / sum s_i`` of documents of ``s_i`` tokens: so many have the pairs of one such after the other.
    """
    if workload.packing is None:
        return workload.seq_len
    return min_prefer_first(workload.packing.document, workload.seq_len)


def documents(workload: Workload) -> Scalar:
    """Documents of a sequence: one, unless some are packed into it."""
    tokens = document_tokens(workload)
    return 1.0 if tokens is workload.seq_len else workload.seq_len / tokens


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
    value_stored, kind = act * layout.tokens * layout.value_width, attention_of(w)
    # What one kernel does on keys and on values it does on their mean size twice.
    value_dim, mean_dim = kind.value_dim, kind.mean_dim
    dropped = w.dropout
    # The context product keeps its left operand: the dropped-out copy, or the softmax output itself.
    probabilities = value_stored + dropped * act * square
    statistics = 4.0 * batch * queries  # one fp32 log-sum-exp a row
    flash_stored = qk_stored + value_stored + statistics
    eager = layout.eager
    # A rank's heads have the queries of all that it exchanged heads with; the kernel runs over documents, each as a
    # sequence of its own.
    over, packed = layout.context.heads_over.size, documents(w)
    flash_batch = times(packed, divided(batch, over))
    flash_queries, pairs = (divided(times(one, over), packed) for one in (queries, flash_pairs(w) / m.cp))
    kv_batch, steps = times(packed, m.micro_batch * layout.context.kv_heads), layout.ring
    keys = document_tokens(w)
    flash = flash_attention(
        Attended(flash_batch, flash_queries, keys, pairs, mean_dim, kv_batch, steps), e, flash_stored, layout.flash
    )
    # Recompute that keeps products keeps no kernel's output.
    flash = flash._replace(kept=1.0 - given(design.software.keeps_products, 0.0))
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
