"""Hybrids of attention and layers with a state from the ``config.json`` of a model on Hugging Face.

Gated DeltaNet of Qwen (``layer_types`` or every so many layers), and the Mamba-2, attention, feed-forward and expert
blocks of Nemotron-H, one part each (``hybrid_override_pattern`` or ``layers_block_type``).
"""

from __future__ import annotations

from collections import Counter

from dse.designs.catalog.config_keys import NOT_YET, Config, needed, whole
from dse.errors import InputError

#: Keys that only such models have; others refuse them.
HYBRID_KEYS = ("linear_conv_kernel_dim",)

#: Kinds of blocks of Nemotron-H, by letter and by name.
_BLOCKS = {
    "M": "mamba",
    "*": "attention",
    "-": "mlp",
    "E": "moe",
    "mamba": "mamba",
    "attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}

#: Fields of a workload file, dotted → value; a text has its unit.
HybridFields = dict[str, int | float | bool | str]


def fields(config: Config, kind: str, layers: int, where: str) -> HybridFields:
    """Fields of the parts of a hybrid, and ``n_layers``.

    Args:
        config: as parsed.
        kind: ``delta`` for Qwen's, ``mamba`` for Nemotron-H's.
        layers: blocks of the configuration.
        where: how errors call it.

    Raises:
        InputError: for blocks of other kinds, and for experts beside dense feed-forwards or in a latent space.
    """
    return _delta(config, layers, where) if kind == "delta" else _mamba(config, layers, where)


def _delta(config: Config, layers: int, where: str) -> HybridFields:
    listed = config.get("layer_types")
    if isinstance(listed, list):
        attends = listed.count("full_attention")
    else:
        attends = layers // needed(config, ("full_attention_interval",), where)
    heads, width = (needed(config, (f"linear_{key}",), where) for key in ("num_value_heads", "value_head_dim"))
    return {
        "n_layers": layers,
        "recurrent.attention_layers": attends,
        "recurrent.recurrent_layers": layers - attends,
        "recurrent.ffn_layers": layers,
        "recurrent.state_heads": heads,
        "recurrent.state_key_heads": needed(config, ("linear_num_key_heads",), where),
        "recurrent.state_key_dim": needed(config, ("linear_key_head_dim",), where),
        "recurrent.state_value_dim": width,
        "recurrent.state_gates": heads * width + 2 * heads,  # of the output, decay and learning rate
        "recurrent.convolution": needed(config, ("linear_conv_kernel_dim",), where),
        "recurrent.output_gate": True,
    }


def _mamba(config: Config, layers: int, where: str) -> HybridFields:
    key = "hybrid_override_pattern" if "hybrid_override_pattern" in config else "layers_block_type"
    listed = list(config.get(key) or ())
    other = [one for one in listed if _BLOCKS.get(str(one)) is None]
    if other or len(listed) != layers:
        got = f"{other[0]!r}" if other else f"{len(listed)} blocks"
        raise InputError(f"{where}: {key}", got, f"mamba, attention, mlp or moe, of {layers} blocks", NOT_YET)
    counts = Counter(_BLOCKS[str(one)] for one in listed)
    if counts["mlp"] and counts["moe"]:
        raise InputError(f"{where}: {key}", "mlp and moe", "feed-forwards of one kind", NOT_YET)
    if whole(config, ("moe_latent_size",), where, least=0):
        raise InputError(f"{where}: moe_latent_size", str(config["moe_latent_size"]), "experts of full width", NOT_YET)
    heads, width = (needed(config, (f"mamba_{key}",), where) for key in ("num_heads", "head_dim"))
    wide = config.get("mamba_ssm_cache_dtype", "float32") == "float32"
    return {
        # A mixture of experts is in every block here: blocks of one part are joined.
        "n_layers": counts["moe"] or layers,
        "recurrent.attention_layers": counts["attention"],
        "recurrent.recurrent_layers": counts["mamba"],
        "recurrent.ffn_layers": counts["moe"] or counts["mlp"],
        "recurrent.state_heads": heads,
        "recurrent.state_key_heads": needed(config, ("n_groups",), where),
        "recurrent.state_key_dim": needed(config, ("ssm_state_size",), where),
        "recurrent.state_value_dim": width,
        "recurrent.state_gates": heads * width + heads,  # of the output, steps
        "recurrent.convolution": needed(config, ("conv_kernel",), where),
        "recurrent.state_bytes": "4 B" if wide else "2 B",
    }
