"""Queries, keys and values of multi-head latent attention, from a layer's input."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.model.work.operators import NORM, elementwise, linear
from dse.types import Design, Operator, Recompute, Scalar


def latent_operators(design: Design, layout: Layout, stored: Scalar) -> list[Operator]:
    """Projections down, norms, projections up, and rotation (DeepSeek-AI 2024, section 2.1).

    What is projected down is kept twice, as it is and normalised, but for the rotated columns of the keys, once. They
    are copied into the keys of every head, which the attention keeps as it does queries and values. tp splits heads:
    the projections down, of a device's share of a split sequence, are whole on every rank.
    """
    w, latent = design.workload, design.workload.latent
    assert latent is not None
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
        elementwise(
            "rotary", layout.tokens * (layout.query_width + layout.kv_width), 2.0 * act, 2.0 * act, 0.0,
            present=w.rotary, again=up,
        ),
    ]  # fmt: skip
