"""Multi-head latent attention: queries, and keys with values, of a few columns that are projected up to all heads."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.model.work.grouped import Grouped, rotary
from dse.model.work.operators import NORM, elementwise, linear
from dse.types import Design, Latent, Operator, Recompute, Scalar, Serving


@dataclass(frozen=True)
class Compressed(Grouped):
    """Compressed keys and values, which all heads share and tp does not split (DeepSeek-AI 2024, section 2.1)."""

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
        """Those of compressed queries, and keys and values."""
        return self.latent.q_rank + self.latent.kv_rank

    @property
    def keys_up(self) -> Scalar:
        """Columns a head of keys and values that are projected up."""
        return self.workload.head_dim - self.latent.rope_dim + self.latent.v_dim

    @property
    def projected_up(self) -> Scalar:
        """As of :class:`Grouped`."""
        return self.latent.q_rank * self.workload.head_dim + self.latent.kv_rank * self.keys_up

    @property
    def gathered(self) -> Scalar:
        """Of what the projections down give, which are whole on every rank and work on a share of a split sequence.

        Queries, keys and values compressed and the keys' rotated columns (Megatron-Core, ``MLASelfAttention``). Queries
        that are not compressed come from the hidden state itself.
        """
        hidden, latent = self.workload.hidden, self.latent
        queries = jnp.where(latent.q_rank > 0.0, latent.q_rank, hidden)
        return (queries + latent.kv_rank + latent.rope_dim) / hidden

    @property
    def index_depth(self) -> Scalar:
        """As of :class:`Grouped`."""
        return self.latent.q_rank

    def matrices(self, tp: Scalar) -> Scalar:
        """Parameters of its projections, of which tp splits those by heads.

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
        """Projections down, norms, projections up, and rotation (DeepSeek-AI 2024, section 2.1).

        What is projected down is kept twice, as it is and normalised, but for the rotated columns of the keys, once.
        They are copied into the keys of every head, which the attention keeps as it does queries and values. tp splits
        heads: the projections down, of a device's share of a split sequence, are whole on every rank.
        """
        w, latent = self.workload, self.latent
        e, act = layout.element, layout.element.activation
        tokens, compressed = layout.norm_tokens, jnp.minimum(latent.q_rank, 1.0)
        # Queries that are not compressed come from the layer's input itself.
        q_depth = jnp.where(latent.q_rank > 0.0, latent.q_rank, w.hidden)
        q_rank = jnp.maximum(latent.q_rank, 1.0)
        keys_up = layout.kv_width + layout.heads * (latent.v_dim - latent.rope_dim)
        up = Recompute.norms  # what is normalised and projected up is run again together
        q_stored, kv_stored = (act * tokens * rank for rank in (latent.q_rank, latent.kv_rank))
        q_input, kv_input = (e.operand * tokens * rank for rank in (latent.q_rank, latent.kv_rank))

        def norm(name: str, rank: Scalar, kept: Scalar, present: Scalar = 1.0) -> Operator:
            return elementwise(name, tokens * rank, 2.0 * act, 6.0 * act, kept, flops=NORM, present=present, again=up)

        return [
            linear("q_down", tokens, q_rank, w.hidden, e, 0.0, present=compressed),
            norm("q_norm", q_rank, q_stored, present=compressed),
            linear("q_up", layout.tokens, layout.query_width, q_depth, e, q_input, again=up, freed=up),
            linear("kv_down", tokens, latent.kv_rank + latent.rope_dim, w.hidden, e, stored, freed=up),
            norm("kv_norm", latent.kv_rank, kv_stored + act * tokens * latent.rope_dim),
            linear("kv_up", layout.tokens, keys_up, latent.kv_rank, e, kv_input, again=up, freed=up),
            rotary(w, layout, again=up),
        ]

    def freed(self, layout: Layout) -> Scalar:
        """As of :class:`Grouped`."""
        return layout.element.activation * layout.tokens * (layout.query_width + layout.keys_and_values)

    @property
    def compressed(self) -> float:
        """As of :class:`Grouped`."""
        return 1.0

    @property
    def pair_columns(self) -> tuple[Scalar, Scalar, Scalar]:
        """Scores over compressed keys and rotated columns, sums of compressed values; prompts are projected up."""
        latent = self.latent
        cached = 2.0 * latent.kv_rank + latent.rope_dim
        return cached, self.workload.head_dim + latent.v_dim, latent.kv_rank

    @property
    def sharing(self) -> Scalar:
        """No kernel reads the cache for each head."""
        return 1.0

    def token_bytes(self, serving: Serving, tp: Scalar) -> Scalar:
        """The compressed ones and the rotated columns (DeepSeek-AI 2024, table 1)."""
        return serving.cache_bytes * (self.latent.kv_rank + self.latent.rope_dim)

    def held(self, tokens: Scalar) -> Scalar:
        """All tokens."""
        return tokens
