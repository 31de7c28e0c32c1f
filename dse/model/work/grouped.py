"""Attention with whole heads, several of which may share keys and values (MHA, GQA, MQA), full, windowed or sparse.

A kind of attention is one class with these members, for training and serving, chosen in :mod:`dse.model.work.blocks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp

from dse.model.choice import given, nothing, plus, times
from dse.model.layout import Layout
from dse.model.work.attention import causal_pairs, core_operators
from dse.model.work.batch import Batch
from dse.model.work.operators import elementwise, linear
from dse.types import (
    Design,
    Operator,
    OperatorKind,
    Recompute,
    Scalar,
    Serving,
    Software,
    Sparse,
    Work,
    Workload,
)


@dataclass(frozen=True)
class Grouped:
    """Query heads, of which ``n_heads / n_kv_heads`` share keys and values."""

    workload: Workload
    sparse: Sparse  # sparse attention; its share of layers is 0 where there is none

    # Shape

    @property
    def mean_dim(self) -> Scalar:
        """Mean columns of a head's key and value."""
        return self.workload.head_dim

    @property
    def value_dim(self) -> Scalar:
        """Columns of a head's value."""
        return self.workload.head_dim

    @property
    def normalised(self) -> Scalar:
        """Normalised columns per token beyond those of the model's width."""
        return 0.0

    @property
    def projected_up(self) -> Scalar:
        """Weights per head and token of up-projections that recompute of norms repeats."""
        return 0.0

    @property
    def gathered(self) -> Scalar:
        """Input columns that tp gathers, and whose gradients it sums, over the hidden size."""
        return 1.0

    @property
    def index_depth(self) -> Scalar:
        """Input columns of an indexer's queries."""
        return self.workload.hidden

    def matrices(self, tp: Scalar) -> Scalar:
        """Parameters of queries, keys, values and output, on one of tp devices: ``h d (2 a + 2 g)``."""
        w = self.workload
        kv_heads = jnp.maximum(w.n_kv_heads / tp, 1.0)
        return w.hidden * w.head_dim * (2.0 * w.n_heads / tp + 2.0 * kv_heads)

    def parameters(self, tp: Scalar = 1.0) -> Scalar:
        """Matrix parameters of an attention layer, with the indexer of sparse attention, which tp does not split.

        DeepSeek-AI 2024, section 2.1; 2025.
        """
        s, hidden = self.sparse, self.workload.hidden
        index = s.index_heads * (s.index_dim * self.index_depth + hidden) + hidden * s.index_dim
        return plus(self.matrices(tp), times(s.sparse_layers, index))

    # Training

    def projections(self, design: Design, layout: Layout, stored: Scalar) -> list[Operator]:
        """Projections to queries, keys and values, and their rotation; ``stored``: bytes of the normalised input."""
        columns = layout.query_width + 2.0 * layout.kv_width
        kept = kept_of(design.software, (layout.query_width + layout.kv_width) / columns)
        return [
            linear(
                "qkv",
                layout.tokens,
                columns,
                self.workload.hidden,
                layout.element,
                stored,
                kept=kept,
                not_stored_from=Recompute.norms,
            ),
            rotary(self.workload, layout),
        ]

    def core(self, design: Design, layout: Layout) -> list[Operator]:
        """Operators of scores, softmax and weighted values, per layer and micro-batch of a device."""
        return core_operators(design, layout, self.value_dim, self.mean_dim)

    def not_stored(self, layout: Layout) -> Scalar:
        """Bytes of queries, keys and values that recompute of norms does not store."""
        return 0.0

    # Serving

    def serving_core(
        self, serving: Serving, layout: Layout, batch: Batch, index_flops: Scalar = 0.0, rereads: Scalar = 0.0
    ) -> list[Operator]:
        """Attention of one layer of a device over the cache (decode) and over prompts (prefill).

        Args:
            serving: how the engine serves.
            layout: sizes on one device.
            batch: what the engine step works on.
            index_flops: FLOPs of an indexer per query and token.
            rereads: as of :class:`~dse.types.Engine`.
        """
        tp, act = layout.groups.tp.size, layout.element.activation
        queries = batch.sequences * (1.0 + batch.drafts)
        of_cache, of_prompt, value = (layout.heads * columns for columns in self.pair_columns)
        ends = act * (layout.query_width + value)  # queries and outputs
        reread = 1.0 if nothing(self.sharing - 1.0) else self.sharing**rereads
        read = times(reread, batch.sequences * self.read_bytes(serving, tp, batch.context))
        decode = plus(queries * self.seen(batch.context) * 2.0 * of_cache, times(index_flops, queries * batch.context))
        seen = self.seen_by_prompt(batch.prompt_context)
        whole: Scalar = jnp.maximum(batch.prompt * 2.0 * of_prompt * seen, 0.0)
        whole = plus(whole, times(index_flops, batch.prompt * batch.prompt_context))
        moved = batch.prompt * ends + self.kv_bytes(serving, tp, batch.prompt)
        cached = Work(decode, read + queries * ends, 128.0 * 64.0, math.inf)
        prompts = Work(
            whole,
            moved,
            rows=batch.prompt,
            columns=seen,
            depth=2.0 * self.pair_columns[1],
            batch=layout.heads,
        )
        return [
            Operator("decode_attention", OperatorKind.flash, cached, None, None, 0.0, core=True),
            Operator("prefill_attention", OperatorKind.context, prompts, None, None, 0.0, core=True),
        ]

    def step_bytes(self, serving: Serving, tp: Scalar, batch: Batch) -> Scalar:
        """Cache bytes that a layer reads (decode) and writes (prompts) in an engine step."""
        read = batch.sequences * self.read_bytes(serving, tp, batch.context)
        return read + self.kv_bytes(serving, tp, batch.prompt)

    @property
    def compressed(self) -> float:
        """1 where engines have small kernels for compressed keys and values in each layer, else 0."""
        return 0.0

    @property
    def pair_columns(self) -> tuple[Scalar, Scalar, Scalar]:
        """Columns per head of keys and values over the cache, of those of a prompt, and of outputs over the cache."""
        both = 2.0 * self.workload.head_dim
        return both, both, self.workload.head_dim

    @property
    def sharing(self) -> Scalar:
        """Query heads per key/value head, each of which old kernels read separately."""
        return self.workload.n_heads / self.workload.n_kv_heads

    def token_bytes(self, serving: Serving, tp: Scalar) -> Scalar:
        """Bytes of the keys and values per token, layer and device, of at least one head."""
        w = self.workload
        return 2.0 * serving.cache_bytes * jnp.maximum(w.n_kv_heads / tp, 1.0) * w.head_dim

    def mean_of_layers(self, whole: Scalar, local: Scalar) -> Scalar:
        """Mean over layers of full (``whole``) and windowed (``local``) attention."""
        share = self.workload.local_layers
        return (1.0 - share) * whole + share * local

    def held(self, tokens: Scalar) -> Scalar:
        """Cached tokens of a sequence of ``tokens``, mean over layers; windowed layers keep a window."""
        return self.mean_of_layers(tokens, jnp.minimum(tokens, self.workload.window))

    def kv_bytes(self, serving: Serving, tp: Scalar, tokens: Scalar) -> Scalar:
        """Cache bytes of ``tokens`` of one sequence per attention layer, keys of an indexer included."""
        s, kept = self.sparse, self.token_bytes(serving, tp) * self.held(tokens)
        if nothing(s.sparse_layers):
            return kept
        index = (s.index_bytes + block_scales(s.index_bytes)) * s.index_dim * jnp.minimum(s.index_heads, 1.0)
        return plus(kept, times(s.sparse_layers, times(index, tokens)))

    def read_bytes(self, serving: Serving, tp: Scalar, tokens: Scalar) -> Scalar:
        """Cache bytes that a query reads per layer: all, or with sparse attention the attended tokens."""
        return plus(self.kv_bytes(serving, tp, tokens), times(-self.token_bytes(serving, tp), self.skipped(tokens)))

    def skipped(self, tokens: Scalar, among_first: Scalar | None = None) -> Scalar:
        """Cached tokens that a query skips by sparse attention, mean over layers.

        ``among_first``: mean attended tokens; by default ``min(tokens, attended)``.
        """
        s = self.sparse
        if nothing(s.sparse_layers):
            return 0.0
        near = jnp.minimum(tokens, s.attended) if among_first is None else among_first
        return s.sparse_layers * (1.0 - s.attended_share) * (tokens - near)

    def seen(self, tokens: Scalar) -> Scalar:
        """Cached tokens that a query attends to, mean over layers."""
        met = self.mean_of_layers(tokens, jnp.minimum(tokens, self.workload.window))
        return plus(met, times(-1.0, self.skipped(tokens)))

    def seen_by_prompt(self, tokens: Scalar) -> Scalar:
        """The same per prompt token, where full attention covers ``tokens`` on average."""
        whole = jnp.maximum(2.0 * tokens, 1.0)
        met = self.mean_of_layers(tokens, causal_pairs(whole, self.workload.window) / whole)
        return plus(met, times(-1.0, self.skipped(tokens, causal_pairs(whole, self.sparse.attended) / whole)))


def block_scales(width: Scalar) -> Scalar:
    """Bytes of scales per cached value of ``width`` bytes: an fp32 for 128 values of less than 16 bits, else none.

    DeepSeek-AI 2025 (DSA): keys of the indexer and compressed columns, as FlashMLA and DeepGEMM read them.
    """
    return jnp.where(width < 2.0, 4.0 / 128.0, 0.0)


def rotary(workload: Workload, layout: Layout, recomputed_from: int = 0) -> Operator:
    """Rotary embedding of queries and keys."""
    columns, act = layout.query_width + layout.kv_width, 2.0 * layout.element.activation
    return elementwise(
        "rotary", layout.tokens * columns, act, act, 0.0, present=workload.rotary, recomputed_from=recomputed_from
    )


def kept_of(software: Software, every_other: Scalar) -> Scalar:
    """Share of a product that recompute operator by operator stores: ``every_other``, or all if products are kept."""
    keeps = given(software.keeps_products, 0.0)
    return every_other if nothing(keeps) else jnp.maximum(every_other, keeps)
