"""Attention of whole heads, of which several may share keys and values (MHA, GQA, MQA), over all tokens or some.

What a kind of attention brings to training and to serving is asked of one object (:mod:`dse.model.work.blocks` makes
it); another kind is another class with the same members.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp

from dse.model.choice import given, nothing, plus, times
from dse.model.layout import Layout
from dse.model.work.operators import elementwise, linear
from dse.types import Design, Operator, Recompute, Scalar, Serving, Software, Sparse, Workload


@dataclass(frozen=True)
class Grouped:
    """Heads with queries, and keys and values that ``n_heads / n_kv_heads`` of them share."""

    workload: Workload
    sparse: Sparse  # of attention to a choice of the tokens; where it is to all, no layer attends so

    # Shape

    @property
    def mean_dim(self) -> Scalar:
        """Columns of a head's key and of its value, in the mean."""
        return self.workload.head_dim

    @property
    def value_dim(self) -> Scalar:
        """Columns of a head's value."""
        return self.workload.head_dim

    @property
    def normalised(self) -> Scalar:
        """Columns that are normalised beside those of the model's width."""
        return 0.0

    @property
    def projected_up(self) -> Scalar:
        """Weights a head that a token meets in projections up, which recompute of norms runs again."""
        return 0.0

    @property
    def gathered(self) -> Scalar:
        """Columns of the input that tp gathers, and sums gradients of, over those of the hidden state."""
        return 1.0

    @property
    def index_depth(self) -> Scalar:
        """Columns that the queries of an indexer are projected from."""
        return self.workload.hidden

    def matrices(self, tp: Scalar) -> Scalar:
        """Parameters of queries, keys, values and output, on one of tp devices: ``h d (2 a + 2 g)``."""
        w = self.workload
        kv_heads = jnp.maximum(w.n_kv_heads / tp, 1.0)
        return w.hidden * w.head_dim * (2.0 * w.n_heads / tp + 2.0 * kv_heads)

    def parameters(self, tp: Scalar = 1.0) -> Scalar:
        """Matrix parameters of a layer that attends, with the indexer of sparse attention, which tp does not split.

        DeepSeek-AI 2024, section 2.1; 2025.
        """
        s, hidden = self.sparse, self.workload.hidden
        index = s.index_heads * (s.index_dim * self.index_depth + hidden) + hidden * s.index_dim
        return plus(self.matrices(tp), times(s.sparse_layers, index))

    # Training

    def projections(self, design: Design, layout: Layout, stored: Scalar) -> list[Operator]:
        """Queries, keys and values from the ``stored`` bytes of a layer's normalised input, and their rotation."""
        columns = layout.query_width + 2.0 * layout.kv_width
        kept = kept_of(design.software, (layout.query_width + layout.kv_width) / columns)
        return [
            linear(
                "qkv", layout.tokens, columns, self.workload.hidden, layout.element, stored, kept=kept,
                freed=Recompute.norms,
            ),
            rotary(self.workload, layout),
        ]  # fmt: skip

    def freed(self, layout: Layout) -> Scalar:
        """Bytes of queries, keys and values that recompute of norms projects up again."""
        return 0.0

    # Serving

    @property
    def compressed(self) -> float:
        """1 where an engine has small kernels for compressed keys and values in each layer, else 0."""
        return 0.0

    @property
    def pair_columns(self) -> tuple[Scalar, Scalar, Scalar]:
        """Columns a head of keys and values over the cache, of those of a prompt, and of its output over the cache."""
        both = 2.0 * self.workload.head_dim
        return both, both, self.workload.head_dim

    @property
    def sharing(self) -> Scalar:
        """Heads that share keys and values, which old kernels read for each of them."""
        return self.workload.n_heads / self.workload.n_kv_heads

    def token_bytes(self, serving: Serving, tp: Scalar) -> Scalar:
        """Bytes of the keys and values of a token in one layer of a device: of its heads, at least one."""
        w = self.workload
        return 2.0 * serving.cache_bytes * jnp.maximum(w.n_kv_heads / tp, 1.0) * w.head_dim

    def mean_of_layers(self, whole: Scalar, local: Scalar) -> Scalar:
        """The mean over layers that attend to all tokens, and those of local attention."""
        share = self.workload.local_layers
        return (1.0 - share) * whole + share * local

    def held(self, tokens: Scalar) -> Scalar:
        """Of so many tokens those that a layer keeps: layers of local attention a window."""
        return self.mean_of_layers(tokens, jnp.minimum(tokens, self.workload.window))

    def kv_bytes(self, serving: Serving, tp: Scalar, tokens: Scalar) -> Scalar:
        """Bytes that a layer that attends keeps of so many tokens of one sequence; an indexer has a key too."""
        s = self.sparse
        index = s.index_bytes * s.index_dim * jnp.minimum(s.index_heads, 1.0)
        return plus(self.token_bytes(serving, tp) * self.held(tokens), times(s.sparse_layers, times(index, tokens)))

    def read_bytes(self, serving: Serving, tp: Scalar, tokens: Scalar) -> Scalar:
        """Bytes of the cache that a query reads in one layer: all, or of sparse attention what it attends to."""
        return plus(self.kv_bytes(serving, tp, tokens), times(-self.token_bytes(serving, tp), self.skipped(tokens)))

    def skipped(self, tokens: Scalar, among_first: Scalar | None = None) -> Scalar:
        """Tokens of so many that a query does not attend to, in the mean over the layers.

        ``among_first``: those that it would among as many as sparse attention attends to at most, by default these.
        """
        s = self.sparse
        if nothing(s.sparse_layers):
            return 0.0
        near = jnp.minimum(tokens, s.attended) if among_first is None else among_first
        return s.sparse_layers * (1.0 - s.attended_share) * (tokens - near)

    def seen(self, tokens: Scalar) -> Scalar:
        """Tokens of the cache that a query meets, in the mean over the layers."""
        met = self.mean_of_layers(tokens, jnp.minimum(tokens, self.workload.window))
        return plus(met, times(-1.0, self.skipped(tokens)))

    def seen_by_prompt(self, tokens: Scalar) -> Scalar:
        """The same of a token of a prompt, of which each attends to so many in the mean."""
        whole = jnp.maximum(2.0 * tokens, 1.0)
        met = self.mean_of_layers(tokens, causal_pairs(whole, self.workload.window) / whole)
        return plus(met, times(-1.0, self.skipped(tokens, causal_pairs(whole, self.sparse.attended) / whole)))


def causal_pairs(queries: Scalar, window: Scalar) -> Scalar:
    """Query-key pairs of causal attention with a window: ``s w - w^2 / 2``, the half square without one."""
    reach = jnp.minimum(window, queries)
    return queries * reach - 0.5 * reach * reach


def rotary(workload: Workload, layout: Layout, again: int = 0) -> Operator:
    """The rotation of queries and keys."""
    columns, act = layout.query_width + layout.kv_width, 2.0 * layout.element.activation
    return elementwise("rotary", layout.tokens * columns, act, act, 0.0, present=workload.rotary, again=again)


def kept_of(software: Software, every_other: Scalar) -> Scalar:
    """Share of a product that recompute operator by operator keeps: what it keeps of every other one, or all."""
    keeps = given(software.keeps_products, 0.0)
    return every_other if nothing(keeps) else jnp.maximum(every_other, keeps)
