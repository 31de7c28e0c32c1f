"""Hybrids of attention and layers with a state.

They are those with Gated DeltaNet of Qwen (``layer_types``, or every so many layers), the Mamba-2, attention,
feed-forward and expert blocks of Nemotron-H, one part each, the layers of Bamba and Granite 4.0 (Mamba-2 or attention,
each with a feed-forward), and lightning attention of MiniMax-Text-01.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from dse.designs.catalog.huggingface.families import Family
from dse.designs.catalog.huggingface.values import NOT_YET, Values, short
from dse.errors import InputError

#: Kinds of blocks of Nemotron-H, by letter and by name.
_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_BLOCKS |= {name: name for name in _BLOCKS.values()} | {"linear_attention": "mamba", "full_attention": "attention"}

#: Kind of hybrid → kinds of its layers that keep a state.
STATES = {
    "delta": frozenset({"linear_attention"}),
    "mamba": frozenset({"mamba"}),
    "lightning": frozenset({"linear_attention"}),
}

#: Fields of a workload file, dotted → value; a text has its unit.
HybridFields = dict[str, int | float | bool | str]


def hybrid_kind(values: Values, family: Family) -> str:
    """Return the kind of hybrid of a configuration, "" for a model all of whose layers attend."""
    if family.hybrid in ("mamba", "blocks", "lightning"):
        return family.hybrid
    if family.hybrid == "delta" or values.get("linear_conv_kernel_dim") is not None:
        return "delta"
    layer_kinds = values.get("layer_types", "layers_block_type")
    is_mamba = values.get("mamba_n_heads") is not None and isinstance(layer_kinds, list) and "mamba" in layer_kinds
    return "mamba" if is_mamba else ""


def hybrid_fields(values: Values, family: Family, kind: str, layers: int) -> HybridFields:
    """Return field → value of the parts of a hybrid, ``n_layers`` included; empty where all layers attend.

    Args:
        values: of the configuration.
        family: what its type says.
        kind: of hybrid.
        layers: blocks of the configuration.

    Raises:
        InputError: for blocks of other kinds, and for experts beside dense feed-forwards or in a latent space.
    """
    if kind == "delta":
        return _delta(values, family, layers)
    return {"mamba": _mamba, "blocks": _blocks, "lightning": _lightning}[kind](values, layers)


def _counts(attends: int, layers: int) -> dict[str, int]:
    """Return the counts of parts of layers that attend or keep a state, each with a feed-forward."""
    return {"attention_layers": attends, "recurrent_layers": layers - attends, "ffn_layers": layers}


def _delta(values: Values, family: Family, layers: int) -> HybridFields:
    """Return field → value of a hybrid of Qwen's kind."""
    layer_types = values.layer_list("layer_types", layers)
    if layer_types is None:
        interval = values.required_integer(("full_attention_interval",))
        attends = layers // interval
    else:
        values.read |= {"full_attention_interval"} & {*values.config}
        attends = layers - layer_types.count("linear_attention")
    state = values.part("delta")
    convolution, state_heads = state.pop("convolution"), state["state_heads"]
    gates = state_heads * state["state_value_dim"] + 2 * state_heads  # of the output, decay and learning rate
    gate = values.get("attn_output_gate")
    has_gate = family.output_gate if gate is None else gate is True
    last: HybridFields = {"state_gates": gates, "convolution": convolution}
    return {"n_layers": layers} | _recurrent(
        _counts(attends, layers), state, last | ({"output_gate": True} if has_gate else {})
    )


def _recurrent(*parts: Mapping[str, int | float | bool | str]) -> HybridFields:
    """Return dotted field → value of layers with a state."""
    return {f"recurrent.{field}": value for values in parts for field, value in values.items()}


def _state_bytes(values: Values) -> str:
    """Return the bytes of an element of the state, with their unit."""
    return "4 B" if (values.get("mamba_ssm_cache_dtype") or "float32") == "float32" else "2 B"


def _mamba(values: Values, layers: int) -> HybridFields:
    """Return field → value of a hybrid whose layers keep a state of Mamba-2 or attend, empty where all attend."""
    kinds = values.layer_list("layer_types", layers) or values.layer_list("layers_block_type", layers)
    indices = values.get("attn_layer_indices")
    if kinds is not None:
        attends = layers - kinds.count("mamba")
    elif isinstance(indices, list) and all(type(layer) is int and 0 <= layer < layers for layer in indices):
        attends = len({*indices})
    else:
        raise InputError(
            values.place("layer_types"), short(indices), "a list of mamba and attention", "add layer_types"
        )
    values.read |= {key for key in values.config if key.startswith("mamba_")}
    if attends == layers:
        return {}
    state = values.part("mamba")
    convolution, state_heads = state.pop("convolution"), state["state_heads"]
    width = values.get("mamba_d_head")
    if width is None or width == "auto":
        expand = values.integer(("mamba_expand",)) or 2
        state["state_value_dim"] = expand * values.required_integer(("hidden_size",)) // state_heads
    else:
        state["state_value_dim"] = values.required_integer(("mamba_d_head",))
    gates = state_heads * state["state_value_dim"] + state_heads  # of the output, steps
    last: HybridFields = {"state_gates": gates, "convolution": convolution, "state_bytes": _state_bytes(values)}
    return {"n_layers": layers} | _recurrent(_counts(attends, layers), state, last)


def _lightning(values: Values, layers: int) -> HybridFields:
    """Return field → value of a hybrid with lightning attention: a state of one matrix per head."""
    kinds = values.layer_list("layer_types", layers)
    flags = kinds if kinds is not None else values.layer_list("attn_type_list", layers)
    if flags is None or any(flag not in (0, 1, "linear_attention", "full_attention") for flag in flags):
        got, allowed = short(flags), "a list of 0 (lightning) and 1 (full), or of kinds of layers"
        raise InputError(values.place("attn_type_list"), got, allowed, "add attn_type_list")
    attends = sum(flag in (1, "full_attention") for flag in flags)
    n_heads = values.required_integer(("num_attention_heads",))
    width = values.integer(("head_dim",)) or values.required_integer(("hidden_size",)) // n_heads
    state = {"state_heads": n_heads, "state_key_heads": n_heads, "state_key_dim": width, "state_value_dim": width}
    last: HybridFields = {"state_gates": n_heads * width, "state_bytes": "4 B"}
    return {"n_layers": layers} | _recurrent(_counts(attends, layers), state, last)


def has_expert_blocks(values: Values) -> bool:
    """True for a pattern of Nemotron-H's blocks with any of experts."""
    listed = values.get("hybrid_override_pattern", "layers_block_type", "layer_types")
    blocks = listed if isinstance(listed, list | str) else ()
    return any(isinstance(block, str) and _BLOCKS.get(block) == "moe" for block in blocks)


def _blocks(values: Values, layers: int) -> HybridFields:
    """Return field → value of a hybrid of Nemotron-H's kind; InputError for what dse does not represent."""
    keys = ("hybrid_override_pattern", "layers_block_type", "layer_types")
    key, listed = values.name(keys), values.get(*keys)
    blocks = list(listed) if isinstance(listed, list | str) else []
    other = [block for block in blocks if not isinstance(block, str) or block not in _BLOCKS]
    if other or len(blocks) != layers:
        got = short(other[0]) if other else f"{len(blocks)} blocks"
        raise InputError(values.place(key), got, f"mamba, attention, mlp or moe, of {layers} blocks", NOT_YET)
    counts = Counter(_BLOCKS[block] for block in blocks)
    if counts["mlp"] and counts["moe"]:
        raise InputError(values.place(key), "mlp and moe", "feed-forwards of one kind", NOT_YET)
    if not counts["mamba"] or not (counts["mlp"] or counts["moe"]):
        raise InputError(values.place(key), short(listed), "blocks of a state and feed-forwards", NOT_YET)
    state = values.part("blocks")
    convolution, state_heads = state.pop("convolution"), state["state_heads"]
    layer_counts = {
        "attention_layers": counts["attention"],
        "recurrent_layers": counts["mamba"],
        "ffn_layers": counts["moe"] or counts["mlp"],
    }
    gates = state_heads * state["state_value_dim"] + state_heads  # of the output, steps
    last: HybridFields = {"state_gates": gates, "convolution": convolution, "state_bytes": _state_bytes(values)}
    # A mixture of experts is in every block here: blocks of one part are joined.
    return {"n_layers": counts["moe"] or layers} | _recurrent(layer_counts, state, last)
