"""Multi-head latent attention: low-rank queries, keys and values, projected up to all heads."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from dse.model.choice import nothing
from dse.model.layout import Layout
from dse.model.work.grouped import Grouped, block_scales, rotary
from dse.model.work.operators import NORM, elementwise, linear
from dse.types import Design, Latent, Operator, Recompute, Scalar, Serving


@dataclass(frozen=True)
class Compressed(Grouped):
    """Latent keys and values, shared by all heads and not split by tp (DeepSeek-AI 2024, section 2.1)."""

    latent: Latent

    @property
    def value_dim(self) -> Scalar:
        """As of :class:`Grouped`."""
        return self.latent.v_dim

    @property
    def mean_dim(self) -> Scalar:
        """As of :class:`Grouped`."""
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
        """As of :class:`Grouped`."""
        return self.latent.q_rank * self.workload.head_dim + self.latent.kv_rank * self.keys_up

    @property
    def gathered(self) -> Scalar:
        """Compressed columns, over the hidden size: outputs of the down-projections, which every tp rank has whole.

        Queries, keys and values, and the rotary columns of keys (Megatron-Core, ``MLASelfAttention``); uncompressed
        queries come from the hidden state.
        """
        hidden, latent = self.workload.hidden, self.latent
        queries = jnp.where(latent.q_rank > 0.0, latent.q_rank, hidden)
        return (queries + latent.kv_rank + latent.rope_dim) / hidden

    @property
    def index_depth(self) -> Scalar:
        """As of :class:`Grouped`."""
        return self.latent.q_rank

    def matrices(self, tp: Scalar) -> Scalar:
        """Parameters of the projections, of which tp splits those by heads.

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
        """Down-projections, norms, up-projections and rotation (DeepSeek-AI 2024, section 2.1).

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
        q_input, kv_input = (e.stored_input * tokens * rank for rank in (latent.q_rank, latent.kv_rank))

        def norm(name: str, rank: Scalar, kept: Scalar, present: Scalar = 1.0) -> Operator:
            return elementwise(
                name, tokens * rank, 2.0 * act, 6.0 * act, kept, flops=NORM, present=present, recomputed_from=up
            )

        return [
            linear("q_down", tokens, q_rank, w.hidden, e, 0.0, present=compressed),
            norm("q_norm", q_rank, q_stored, present=compressed),
            linear(
                "q_up", layout.tokens, layout.query_width, q_depth, e, q_input, recomputed_from=up, not_stored_from=up
            ),
            linear("kv_down", tokens, latent.kv_rank + latent.rope_dim, w.hidden, e, stored, not_stored_from=up),
            norm("kv_norm", latent.kv_rank, kv_stored + act * tokens * latent.rope_dim),
            linear(
                "kv_up", layout.tokens, keys_up, latent.kv_rank, e, kv_input, recomputed_from=up, not_stored_from=up
            ),
            rotary(w, layout, recomputed_from=up),
        ]

    def not_stored(self, layout: Layout) -> Scalar:
        """As of :class:`Grouped`."""
        return layout.element.activation * layout.tokens * (layout.query_width + layout.keys_and_values)

    @property
    def compressed(self) -> float:
        """As of :class:`Grouped`."""
        return 1.0

    @property
    def pair_columns(self) -> tuple[Scalar, Scalar, Scalar]:
        """Scores over compressed and rotary columns, outputs over compressed values; prompts use whole heads."""
        latent = self.latent
        cached = 2.0 * latent.kv_rank + latent.rope_dim
        return cached, self.workload.head_dim + latent.v_dim, latent.kv_rank

    @property
    def sharing(self) -> Scalar:
        """1: no kernel reads the cache per head."""
        return 1.0

    def token_bytes(self, serving: Serving, tp: Scalar) -> Scalar:
        """Bytes of compressed and rotary columns (DeepSeek-AI 2024, table 1).

        Sparse kernels over an 8-bit cache keep the rotary columns in 16 bits, and scales of the others: 512 + 16 + 128
        bytes a token and layer of DeepSeek-V3.2 (FlashMLA; ``fp8_ds_mla`` of vLLM).
        """
        latent, held, share = self.latent, serving.cache_bytes, self.sparse.sparse_layers
        plain = held * (latent.kv_rank + latent.rope_dim)
        if nothing(share):
            return plain
        more = block_scales(held) * latent.kv_rank + jnp.maximum(2.0 - held, 0.0) * latent.rope_dim
        return plain + share * more

    def held(self, tokens: Scalar) -> Scalar:
        """All ``tokens``."""
        return tokens
