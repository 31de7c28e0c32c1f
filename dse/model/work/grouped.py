"""Attention with heads of which several may share keys and values (MHA, GQA, MQA), full, windowed or sparse; or latent.

A kind of attention is one class with these members, for training and serving, chosen in :mod:`dse.model.work.blocks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import jax.numpy as jnp

from dse.model.choice import nothing, plus, times, value_or
from dse.model.layout import Layout
from dse.model.work.attention import causal_pairs, core_operators
from dse.model.work.batch import Batch
from dse.model.work.operators import Levels, elementwise, linear, norm
from dse.types import (
    Design,
    Latent,
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
class GroupedAttention:
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
        """Weights per head of up-projections that recompute of norms repeats, 0 without them."""
        return 0.0

    @property
    def gathered(self) -> Scalar:
        """Ratio to the hidden size of the input columns that tp gathers and whose gradients it sums: 1."""
        return 1.0

    @property
    def index_depth(self) -> Scalar:
        """Input columns of an indexer's queries."""
        return self.workload.hidden

    def matrices(self, tp: Scalar) -> Scalar:
        """Return the parameters of queries, keys, values and output, on one of tp devices: ``h d (2 a + 2 g)``."""
        w = self.workload
        kv_heads = jnp.maximum(w.n_kv_heads / tp, 1.0)
        return w.hidden * w.head_dim * (2.0 * w.n_heads / tp + 2.0 * kv_heads)

    def parameters(self, tp: Scalar = 1.0) -> Scalar:
        """Return the matrix parameters of an attention layer, with the indexer of sparse attention.

        tp does not split the indexer.

        DeepSeek-AI 2024, section 2.1; 2025.
        """
        s, hidden = self.sparse, self.workload.hidden
        index = s.index_heads * (s.index_dim * self.index_depth + hidden) + hidden * s.index_dim
        return plus(self.matrices(tp), times(s.sparse_layers, index))

    # Training

    def projections(self, design: Design, layout: Layout, stored: Scalar) -> list[Operator]:
        """Return the operators that project to queries, keys and values and rotate them.

        Args:
            design: the design.
            layout: sizes on one device.
            stored: bytes of the normalised input.
        """
        columns, hidden, e = layout.query_width + 2.0 * layout.kv_width, self.workload.hidden, layout.element
        ratio = stored_share(design.software, (layout.query_width + layout.kv_width) / columns)
        return [
            linear("qkv", layout.tokens, columns, hidden, e, stored, stored_ratio=ratio, levels=(0, Recompute.norms)),
            rotary(self.workload, layout),
        ]

    def core(self, design: Design, layout: Layout) -> list[Operator]:
        """Return the operators of scores, softmax and weighted values, per layer and micro-batch of a device."""
        return core_operators(design, layout, self.value_dim, self.mean_dim)

    def not_stored(self, layout: Layout) -> Scalar:
        """Return the bytes per layer of queries, keys and values that recompute of norms does not store: 0."""
        return 0.0

    # Serving

    def serving_core(
        self, serving: Serving, layout: Layout, batch: Batch, index_flops: Scalar = 0.0, rereads: Scalar = 0.0
    ) -> list[Operator]:
        """Return the operators of one layer's attention on a device: over the cache (decode), over prompts (prefill).

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
        token_io_bytes = act * (layout.query_width + value)  # queries and outputs
        read_factor = 1.0 if nothing(self.sharing - 1.0) else self.sharing**rereads
        cache_read_bytes = times(read_factor, batch.sequences * self.read_bytes(serving, tp, batch.context))
        decode_flops = plus(
            queries * self.attended_tokens(batch.context) * 2.0 * of_cache, times(index_flops, queries * batch.context)
        )
        prompt_keys = self.attended_by_prompt(batch.prompt_context)
        prompt_flops: Scalar = jnp.maximum(batch.prompt * 2.0 * of_prompt * prompt_keys, 0.0)
        prompt_flops = plus(prompt_flops, times(index_flops, batch.prompt * batch.prompt_context))
        prompt_bytes = batch.prompt * token_io_bytes + self.kv_bytes(serving, tp, batch.prompt)
        cached = Work(decode_flops, cache_read_bytes + queries * token_io_bytes, 128.0 * 64.0, math.inf)
        prompts = Work(
            prompt_flops,
            prompt_bytes,
            rows=batch.prompt,
            columns=prompt_keys,
            depth=2.0 * self.pair_columns[1],
            batch=layout.heads,
        )
        return [
            Operator("decode_attention", OperatorKind.flash, cached, None, None, 0.0, core=True),
            Operator("prefill_attention", OperatorKind.context, prompts, None, None, 0.0, core=True),
        ]

    def step_bytes(self, serving: Serving, tp: Scalar, batch: Batch) -> Scalar:
        """Return the cache bytes that a layer reads (decode) and writes (prompts) in an engine step."""
        read = batch.sequences * self.read_bytes(serving, tp, batch.context)
        return read + self.kv_bytes(serving, tp, batch.prompt)

    @property
    def compressed(self) -> float:
        """1 where engines have small kernels for compressed keys and values in each layer, else 0."""
        return 0.0

    @property
    def pair_columns(self) -> tuple[Scalar, Scalar, Scalar]:
        """Columns per head of keys and values over the cache, of those of a prompt, and of outputs over the cache."""
        kv_columns = 2.0 * self.workload.head_dim
        return kv_columns, kv_columns, self.workload.head_dim

    @property
    def sharing(self) -> Scalar:
        """Query heads per key/value head, each of which old kernels read separately."""
        return self.workload.n_heads / self.workload.n_kv_heads

    def token_bytes(self, serving: Serving, tp: Scalar) -> Scalar:
        """Return the cache bytes of keys and values per token, layer and device, of at least one head."""
        w = self.workload
        return 2.0 * serving.cache_bytes * jnp.maximum(w.n_kv_heads / tp, 1.0) * w.head_dim

    def mean_of_layers(self, full: Scalar, local: Scalar) -> Scalar:
        """Return the mean over layers of a value that is ``full`` with full, ``local`` with windowed attention."""
        share = self.workload.local_layers
        return (1.0 - share) * full + share * local

    def cached_tokens(self, tokens: Scalar) -> Scalar:
        """Return the count of cached tokens of a sequence of ``tokens``, a mean over full and windowed layers."""
        return self.mean_of_layers(tokens, jnp.minimum(tokens, self.workload.window))

    def kv_bytes(self, serving: Serving, tp: Scalar, tokens: Scalar) -> Scalar:
        """Return the cache bytes of ``tokens`` of one sequence per attention layer, keys of an indexer included."""
        s, kv = self.sparse, self.token_bytes(serving, tp) * self.cached_tokens(tokens)
        if nothing(s.sparse_layers):
            return kv
        index = (s.index_bytes + block_scales(s.index_bytes)) * s.index_dim * jnp.minimum(s.index_heads, 1.0)
        return plus(kv, times(s.sparse_layers, times(index, tokens)))

    def read_bytes(self, serving: Serving, tp: Scalar, tokens: Scalar) -> Scalar:
        """Return the cache bytes that a query reads per layer and device, with sparse attention of attended tokens."""
        return plus(self.kv_bytes(serving, tp, tokens), times(-self.token_bytes(serving, tp), self.skipped(tokens)))

    def skipped(self, tokens: Scalar, among_first: Scalar | None = None) -> Scalar:
        """Return the count of cached tokens that a query skips by sparse attention, mean over layers.

        ``among_first``: mean attended tokens; by default ``min(tokens, attended)``.
        """
        s = self.sparse
        if nothing(s.sparse_layers):
            return 0.0
        near = jnp.minimum(tokens, s.attended) if among_first is None else among_first
        return s.sparse_layers * (1.0 - s.attended_share) * (tokens - near)

    def attended_tokens(self, tokens: Scalar) -> Scalar:
        """Return the count of cached tokens that a query attends to, a mean over layers."""
        tokens_in_window = self.mean_of_layers(tokens, jnp.minimum(tokens, self.workload.window))
        return plus(tokens_in_window, times(-1.0, self.skipped(tokens)))

    def attended_by_prompt(self, tokens: Scalar) -> Scalar:
        """Return the mean count of tokens that a prompt token attends to, where full attention covers ``tokens``."""
        queries = jnp.maximum(2.0 * tokens, 1.0)
        tokens_in_window = self.mean_of_layers(tokens, causal_pairs(queries, self.workload.window) / queries)
        return plus(
            tokens_in_window, times(-1.0, self.skipped(tokens, causal_pairs(queries, self.sparse.attended) / queries))
        )


def block_scales(width: Scalar) -> Scalar:
    """Return the bytes of scales per cached value: an fp32 for 128 values of less than 16 bits, else none.

    DeepSeek-AI 2025 (DSA): keys of the indexer and compressed columns, as FlashMLA and DeepGEMM read them.

    Args:
        width: bytes of a cached value.
    """
    return jnp.where(width < 2.0, 4.0 / 128.0, 0.0)


#: Reads and writes per element of a rotary embedding by single kernels (``_apply_rotary_pos_emb_bshd`` of
#: Megatron-Core, rope_utils.py). Forward: times cosines 2; a negative half 1, joined 2, times sines 2; sum 3; joined
#: with the columns that do not rotate 2. Backward: times sines 2; a negative half 1, joined 2; times cosines 2; sum 3;
#: zeros for the columns that do not rotate 1, summed 3.
SCALED_ROTARY = (12.0, 14.0)


def rotary(workload: Workload, layout: Layout, levels: Levels = (0, 0)) -> Operator:
    """Return the operator of the rotary embedding of queries and keys per layer and micro-batch.

    One kernel reads and writes them. In training none scales them too (``apply_rotary_pos_emb`` of Megatron-Core,
    rope_utils.py): with an attention factor of YaRN it takes :data:`SCALED_ROTARY`.
    """
    elements, act = layout.tokens * (layout.query_width + layout.kv_width), layout.element.activation
    forward = backward = 2.0 * act
    if workload.scaled_rotary is not None and not nothing(workload.backward):
        forward, backward = (act * (2.0 + workload.scaled_rotary * (passes - 2.0)) for passes in SCALED_ROTARY)
    return elementwise("rotary", elements, forward, backward, 0.0, present=workload.rotary, levels=levels)


def stored_share(software: Software, every_other: Scalar) -> Scalar:
    """Return the share, 0 to 1, of a product's output that recompute operator by operator stores.

    It is ``every_other``, or all where a stack keeps products.
    """
    keeps_products = value_or(software.keeps_products, 0.0)
    return every_other if nothing(keeps_products) else jnp.maximum(every_other, keeps_products)


@dataclass(frozen=True)
class LatentAttention(GroupedAttention):
    """Latent keys and values, shared by all heads and not split by tp (DeepSeek-AI 2024, section 2.1)."""

    latent: Latent

    @property
    def value_dim(self) -> Scalar:
        """Columns of a head's value."""
        return self.latent.v_dim

    @property
    def mean_dim(self) -> Scalar:
        """Mean columns of a head's key and value."""
        return 0.5 * (self.workload.head_dim + self.latent.v_dim)

    @property
    def normalised(self) -> Scalar:
        """Columns of compressed queries, keys and values."""
        return self.latent.q_rank + self.latent.kv_rank

    @property
    def keys_up(self) -> Scalar:
        """Columns per head of up-projected keys and values."""
        return self.workload.head_dim - self.latent.rope_dim + self.latent.v_dim

    @property
    def projected_up(self) -> Scalar:
        """Weights per head of the up-projections of queries, keys and values, which recompute of norms repeats."""
        return self.latent.q_rank * self.workload.head_dim + self.latent.kv_rank * self.keys_up

    @property
    def gathered(self) -> Scalar:
        """Ratio to the hidden size of the compressed columns, outputs of down-projections, all on every tp rank.

        Queries, keys and values, and the rotary columns of keys (Megatron-Core, ``MLASelfAttention``); uncompressed
        queries come from the hidden state.
        """
        hidden, latent = self.workload.hidden, self.latent
        queries = jnp.where(latent.q_rank > 0.0, latent.q_rank, hidden)
        return (queries + latent.kv_rank + latent.rope_dim) / hidden

    @property
    def index_depth(self) -> Scalar:
        """Input columns of an indexer's queries: the compressed ones."""
        return self.latent.q_rank

    def matrices(self, tp: Scalar) -> Scalar:
        """Return the parameters of the projections on one of tp devices, of which tp splits those by heads.

        ``h q_r + q_r a d`` of the queries (``h a d`` uncompressed), ``h (k_r + d_rope)`` and
        ``k_r a (d - d_rope + d_v)`` of keys and values, ``a d_v h`` of the output.
        """
        w, latent, heads = self.workload, self.latent, self.workload.n_heads / tp
        compressed = latent.q_rank * (w.hidden + heads * w.head_dim)
        queries = jnp.where(latent.q_rank > 0.0, compressed, w.hidden * heads * w.head_dim)
        up = latent.kv_rank * heads * self.keys_up
        down = w.hidden * (latent.kv_rank + latent.rope_dim)
        return queries + down + up + heads * latent.v_dim * w.hidden

    def projections(self, design: Design, layout: Layout, stored: Scalar) -> list[Operator]:
        """Return the operators of down-projections, norms, up-projections and rotation (DeepSeek-AI 2024, section 2.1).

        Compressed columns are stored before and after their norm, rotary columns once. tp splits heads; every rank runs
        the whole down-projections on its share of a split sequence.
        """
        w, latent = self.workload, self.latent
        e, act = layout.element, layout.element.activation
        tokens, compressed = layout.norm_tokens, jnp.minimum(latent.q_rank, 1.0)
        # Uncompressed queries come from the layer's input.
        q_depth = jnp.where(latent.q_rank > 0.0, latent.q_rank, w.hidden)
        q_rank = jnp.maximum(latent.q_rank, 1.0)
        keys_up = layout.kv_width + layout.heads * (latent.v_dim - latent.rope_dim)
        up = Recompute.norms  # recomputes norms and up-projections
        q_stored, kv_stored = (act * tokens * rank for rank in (latent.q_rank, latent.kv_rank))
        rotary_stored = act * tokens * latent.rope_dim
        q_input, kv_input = (e.stored_input * tokens * rank for rank in (latent.q_rank, latent.kv_rank))
        return [
            linear("q_down", tokens, q_rank, w.hidden, e, 0.0, present=compressed),
            norm("q_norm", tokens * q_rank, act, q_stored, compressed, (up, 0)),
            linear("q_up", layout.tokens, layout.query_width, q_depth, e, q_input, levels=(up, up)),
            linear("kv_down", tokens, latent.kv_rank + latent.rope_dim, w.hidden, e, stored, levels=(0, up)),
            norm("kv_norm", tokens * latent.kv_rank, act, kv_stored + rotary_stored, levels=(up, 0)),
            linear("kv_up", layout.tokens, keys_up, latent.kv_rank, e, kv_input, levels=(up, up)),
            rotary(w, layout, (up, 0)),
        ]

    def not_stored(self, layout: Layout) -> Scalar:
        """Return the bytes per layer of queries, keys and values that recompute of norms does not store."""
        return layout.element.activation * layout.tokens * (layout.query_width + layout.keys_and_values)

    @property
    def compressed(self) -> float:
        """1: engines have small kernels for compressed keys and values in each layer."""
        return 1.0

    @property
    def pair_columns(self) -> tuple[Scalar, Scalar, Scalar]:
        """Columns per head of keys and values over the cache (compressed), of those of a prompt, and of outputs."""
        latent = self.latent
        cached = 2.0 * latent.kv_rank + latent.rope_dim
        return cached, self.workload.head_dim + latent.v_dim, latent.kv_rank

    @property
    def sharing(self) -> Scalar:
        """1: no kernel reads the cache per head."""
        return 1.0

    def token_bytes(self, serving: Serving, tp: Scalar) -> Scalar:
        """Return the cache bytes of compressed and rotary columns per token and layer (DeepSeek-AI 2024, table 1).

        Sparse kernels over an 8-bit cache keep the rotary columns in 16 bits, and scales of the others: 512 + 16 + 128
        bytes a token and layer of DeepSeek-V3.2 (FlashMLA; ``fp8_ds_mla`` of vLLM).
        """
        latent, cache_bytes, share = self.latent, serving.cache_bytes, self.sparse.sparse_layers
        column_bytes = cache_bytes * (latent.kv_rank + latent.rope_dim)
        if nothing(share):
            return column_bytes
        scale_and_rotary_bytes = (
            block_scales(cache_bytes) * latent.kv_rank + jnp.maximum(2.0 - cache_bytes, 0.0) * latent.rope_dim
        )
        return column_bytes + share * scale_and_rotary_bytes

    def cached_tokens(self, tokens: Scalar) -> Scalar:
        """Return all ``tokens``, as no layer has a window."""
        return tokens
