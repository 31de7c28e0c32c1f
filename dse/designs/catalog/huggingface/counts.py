"""Weights of a workload by class of tensors, to weigh their formats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def weights_by_class(fields: Mapping[str, Any]) -> dict[str, float]:
    """Return class of tensors → weights of its matrices in all layers, without norms, router and embeddings.

    Args:
        fields: field of a workload file → value, dotted for those of tables.

    >>> small = dict(n_layers=2, hidden=8, n_heads=4, n_kv_heads=2, ffn_hidden=16, gated=True)
    >>> weights_by_class(small)["attention"], weights_by_class(small)["feed_forward"]
    (384.0, 768.0)
    """
    layers, hidden, matrices = fields["n_layers"], fields["hidden"], 3.0 if fields["gated"] else 2.0
    ffn_layers, attends = fields.get("recurrent.ffn_layers", layers), fields.get("recurrent.attention_layers", layers)
    attention = float(attends) * _attention_weights(fields)
    if "recurrent.recurrent_layers" in fields:
        keys = fields["recurrent.state_key_heads"] * fields["recurrent.state_key_dim"]
        columns = fields["recurrent.state_heads"] * fields["recurrent.state_value_dim"]
        attention += fields["recurrent.recurrent_layers"] * hidden * (2.0 * keys + 2.0 * columns)
    count = fields.get("experts.n_experts", 0)
    if not count:
        return {"attention": attention, "feed_forward": ffn_layers * matrices * hidden * fields["ffn_hidden"]}
    first = fields.get("experts.first_dense", 0)
    expert_layers = (ffn_layers - first) / fields.get("experts.moe_every", 1)
    return {
        "attention": attention,
        "feed_forward": (ffn_layers - expert_layers) * matrices * hidden * fields["ffn_hidden"],
        "shared_expert": expert_layers * matrices * hidden * fields.get("experts.shared_ffn", 0),
        "experts": expert_layers * matrices * hidden * fields["experts.expert_ffn"] * count,
    }


def _attention_weights(fields: Mapping[str, Any]) -> float:
    """Return the weights of attention of a layer, grouped or latent."""
    hidden, heads = fields["hidden"], fields["n_heads"]
    width = fields.get("head_dim", hidden // heads)
    if "latent.kv_rank" in fields:
        rank, rope, value = fields["latent.kv_rank"], fields["latent.rope_dim"], fields["latent.v_dim"]
        query_rank = fields["latent.q_rank"]
        queries = query_rank * (hidden + heads * width) if query_rank else hidden * heads * width
        return float(queries + hidden * (rank + rope) + rank * heads * (width - rope + value) + heads * value * hidden)
    return float(hidden * width * (2 * heads + 2 * fields.get("n_kv_heads", heads)))
