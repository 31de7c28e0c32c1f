"""Mixtures of experts, latent and sparse attention, and hybrids from the ``config.json`` of a model on Hugging Face.

Every family of models calls the same numbers by other names, and some have layers that the model of experts has not:
:class:`MixtureShape` says what the keys of a family mean. What cannot be represented is an InputError that names the
key.

Hybrids of attention and layers with a state are those with Gated DeltaNet of Qwen (``layer_types`` or every so many
layers), and the Mamba-2, attention, feed-forward and expert blocks of Nemotron-H, one part each
(``hybrid_override_pattern`` or ``layers_block_type``).
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.io import toml

#: Rows of keys and families.
TABLE = toml.table(Path(__file__).with_name("huggingface.toml"))

#: A parsed configuration.
Config = Mapping[str, Any]

#: Numbers of a shape: what is larger is none.
MOST = 10**9

#: How to go on with a model that no key can tell.
NOT_YET = "write the workload by hand if dse models it: docs/reference.md"


def integer(config: Config, keys: Sequence[str], where: str, minimum: int = 1) -> int | None:
    """Return the whole number at the first key that a configuration has, None where it has none of them.

    Args:
        config: as parsed.
        keys: names of the field; the first one that is present counts.
        where: name of the configuration in errors.
        minimum: smallest allowed number.

    Raises:
        InputError: for any other value.
    """
    key = next((key for key in keys if config.get(key) is not None), None)
    if key is None:
        return None
    value = config[key]
    if type(value) is not int or not minimum <= value <= MOST:
        allowed = f"one whole number for all layers, {minimum} to {MOST:,}"
        raise InputError(f"{where}: {key}", repr(value), allowed, "models whose layers differ are not modelled yet")
    return value


def required_integer(config: Config, keys: Sequence[str], where: str) -> int:
    """Return the whole number at the first key that a configuration has, at least 1.

    Raises:
        InputError: where no key of the field is present, and for any other value.
    """
    value = integer(config, keys, where)
    if value is None:
        raise InputError(f"{where}: {keys[0]}", "nothing", "a whole number", f"add {' or '.join(keys)}")
    return value


def present_key(config: Config, keys: Sequence[str]) -> str:
    """Return the first of some keys that a configuration has, else the first of all, for messages."""
    return next((key for key in keys if config.get(key) is not None), keys[0])


#: Field of a workload file, dotted → value.
Fields = dict[str, int]


@dataclasses.dataclass(frozen=True)
class MixtureShape:
    """How the configurations of a family tell of their experts."""

    width: str = "moe_intermediate_size"  #: key of the width of one routed expert
    dense: str = "intermediate_size"  #: key of the width of layers without experts
    one_shared: bool = False  #: whether each layer has one shared expert as wide as a routed one, which no key says
    latent: bool = False  #: whether its attention is multi-head latent attention
    sparse: bool = False  #: whether an indexer picks the tokens that it attends to
    biased: bool = False  #: whether the products of its experts have biases, which no key says


#: Keys of what all families have, the first that is there counts.
_KEYS = {name: tuple(keys) for name, keys in TABLE["mixture"].items()}

#: Part of a model → keys that tell of it; those of another architecture refuse them.
PART_KEYS = {name: tuple(keys) for name, keys in TABLE["keys"].items()}

#: Formats in which the makers of mixtures publish their weights.
_PUBLISHED_IN = ("fp8", "mxfp4", "compressed-tensors", "modelopt")


def fields(config: Config, mixture: MixtureShape, layers: int, where: str) -> Fields:
    """Return field → value of a mixture in addition to those of a dense decoder, without absent ones.

    Args:
        config: as parsed.
        mixture: how its family tells of experts.
        layers: of the model.
        where: how errors call the configuration.

    Raises:
        InputError: for layers that differ otherwise than in front and in turns, and for numbers that contradict.
    """
    values = _experts(config, mixture, where) | _layers(config, layers, where) | _groups(config, where)
    if mixture.latent:
        values |= _latent(config, where)
    if mixture.sparse:
        values |= {f"sparse.{field}": number for field, number in _part(config, "sparse", where).items()}
    return values


def predicted_tokens(config: Config, where: str = "config.json") -> int:
    """Return the number of tokens that training predicts beyond the next one, 0 for none."""
    return 0 if config.get("use_mtp") is False else integer(config, _KEYS["predicted"], where, minimum=0) or 0


def published_in(config: Config) -> str:
    """Return the name of the format in which weights are published, "" where none, or an unknown one, is stated."""
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    return method if method in _PUBLISHED_IN else ""


def _experts(config: Config, mixture: MixtureShape, where: str) -> Fields:
    """Return field → value of the experts; InputError where a token goes to more than there are."""
    count, top_k = required_integer(config, _KEYS["count"], where), required_integer(config, _KEYS["top_k"], where)
    if top_k > count:
        raise InputError(
            f"{where}: {present_key(config, _KEYS['top_k'])}",
            str(top_k),
            f"at most {present_key(config, _KEYS['count'])} = {count}",
            "correct one of the two",
        )
    width = required_integer(config, (mixture.width,), where)
    shared = width if mixture.one_shared else _shared_width(config, width, where)
    values = {"experts.n_experts": count, "experts.top_k": top_k, "experts.expert_ffn": width}
    values |= {"experts.biased": 1} if mixture.biased else {}
    return values | ({"experts.shared_ffn": shared} if shared else {})


def _shared_width(config: Config, width: int, where: str) -> int:
    """Return the hidden width of all shared experts together, 0 for none.

    It is stated by its own key, or as so many experts of ``width``.
    """
    shared_width = integer(config, _KEYS["shared_width"], where, minimum=0)
    return (
        shared_width
        if shared_width is not None
        else width * (integer(config, _KEYS["shared_count"], where, minimum=0) or 0)
    )


def _layers(config: Config, layers: int, where: str) -> Fields:
    """Return field → number of dense layers in front, interval of expert layers, and further predicted tokens.

    Zeros are left out.
    """
    n_dense, interval = integer(config, _KEYS["first"], where, minimum=0) or 0, 1
    if isinstance(config.get("moe_layer_freq"), list):
        n_dense = _n_leading_dense(config, "moe_layer_freq", _dense_by_flag(config["moe_layer_freq"], layers), where)
    else:
        interval = integer(config, _KEYS["every"], where) or 1
    if config.get("mlp_only_layers"):
        n_dense = _n_leading_dense(
            config, "mlp_only_layers", _dense_by_position(config["mlp_only_layers"], layers), where
        )
    if interval > 1:
        n_dense = _in_turns(config, n_dense, interval, layers, where)
    if n_dense > layers:
        raise InputError(
            f"{where}: {present_key(config, _KEYS['first'])}", str(n_dense), f"at most {layers} layers", "correct it"
        )
    fields = {
        "first_dense": n_dense,
        "moe_every": interval if interval > 1 else 0,
        "n_predict": predicted_tokens(config, where),
    }
    return {f"experts.{name}": value for name, value in fields.items() if value}


def _dense_by_flag(values: Sequence[object], layers: int) -> list[bool] | None:
    """Return, by layer, True where it is dense, from flags (0 dense, 1 experts); None for another list."""
    is_list = len(values) == layers and all(type(flag) is int and flag in (0, 1) for flag in values)
    return [flag == 0 for flag in values] if is_list else None


def _dense_by_position(values: object, layers: int) -> list[bool] | None:
    """Return, by layer, True where it is dense, from the indices of dense ones; None for another list."""
    if not isinstance(values, list) or not all(type(layer) is int and 0 <= layer < layers for layer in values):
        return None
    return [layer_index in values for layer_index in range(layers)]


def _n_leading_dense(config: Config, key: str, dense: list[bool] | None, where: str) -> int:
    """Return the number of dense layers in front; InputError where others are dense too."""
    n_dense = 0 if dense is None else sum(dense)
    if dense is None or not all(dense[:n_dense]):
        raise InputError(f"{where}: {key}", _short(config[key]), "dense layers in front alone, of all layers", NOT_YET)
    return n_dense


def _in_turns(config: Config, n_dense: int, interval: int, layers: int, where: str) -> int:
    """Return 0 dense layers in front, for experts in one layer of ``interval``; InputError where keys contradict."""
    expert_layers = config.get("moe_layers")
    if n_dense:
        raise InputError(
            f"{where}: {present_key(config, _KEYS['every'])}", str(interval), "1 with leading dense layers", NOT_YET
        )
    if layers % interval or (
        expert_layers is not None and expert_layers != list(range(interval - 1, layers, interval))
    ):
        key = "moe_layers" if expert_layers is not None else present_key(config, _KEYS["every"])
        got = _short(expert_layers) if expert_layers is not None else str(interval)
        raise InputError(f"{where}: {key}", got, f"one layer in so many, of {layers}", NOT_YET)
    return 0


def _groups(config: Config, where: str) -> Fields:
    """Return the fields of groups of experts where a token may reach only some of them, else empty."""
    groups, limit = integer(config, ("n_group",), where) or 1, integer(config, ("topk_group",), where) or 1
    if limit >= groups or config.get("topk_method") == "greedy":
        return {}
    return {"experts.n_groups": groups, "experts.group_limit": limit}


def _latent(config: Config, where: str) -> Fields:
    """Return field → ranks and columns of latent attention; a query or key has columns with and without rotation."""
    rotated = required_integer(config, ("qk_rope_head_dim",), where)
    return {
        "head_dim": required_integer(config, ("qk_nope_head_dim",), where) + rotated,
        "latent.q_rank": integer(config, ("q_lora_rank",), where, minimum=0) or 0,
        "latent.kv_rank": required_integer(config, ("kv_lora_rank",), where),
        "latent.rope_dim": rotated,
        "latent.v_dim": required_integer(config, ("v_head_dim",), where),
    }


def _part(config: Config, part: str, where: str) -> dict[str, int]:
    """Return field of a part of the model → whole number of its key; InputError for a missing one."""
    return {field: required_integer(config, (key,), where) for field, key in TABLE["parts"][part].items()}


def _short(value: object) -> str:
    """Return the ``repr`` of a value, at most 58 characters of it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


#: Kinds of blocks of Nemotron-H, by letter and by name.
_BLOCKS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_BLOCKS |= {name: name for name in _BLOCKS.values()}

#: Fields of a workload file, dotted → value; a text has its unit.
HybridFields = dict[str, int | float | bool | str]


def hybrid_fields(config: Config, kind: str, layers: int, where: str) -> HybridFields:
    """Return field → value of the parts of a hybrid, ``n_layers`` included.

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
    """Return field → value of a hybrid of Qwen's kind."""
    layer_types = config.get("layer_types")
    if isinstance(layer_types, list):
        attends = layer_types.count("full_attention")
    else:
        attends = layers // required_integer(config, ("full_attention_interval",), where)
    state = _part(config, "delta", where)
    convolution, heads = state.pop("convolution"), state["state_heads"]
    layer_counts = {"attention_layers": attends, "recurrent_layers": layers - attends, "ffn_layers": layers}
    gates = heads * state["state_value_dim"] + 2 * heads  # of the output, decay and learning rate
    last = {"state_gates": gates, "convolution": convolution, "output_gate": True}
    return {"n_layers": layers} | _recurrent(layer_counts, state, last)


def _recurrent(*parts: Mapping[str, int | float | bool | str]) -> HybridFields:
    """Return dotted field → value of layers with a state."""
    return {f"recurrent.{field}": value for values in parts for field, value in values.items()}


def _mamba(config: Config, layers: int, where: str) -> HybridFields:
    """Return field → value of a hybrid of Nemotron-H's kind; InputError for what dse does not represent."""
    key = "hybrid_override_pattern" if "hybrid_override_pattern" in config else "layers_block_type"
    blocks = list(config.get(key) or ())
    other = [block for block in blocks if _BLOCKS.get(str(block)) is None]
    if other or len(blocks) != layers:
        got = f"{other[0]!r}" if other else f"{len(blocks)} blocks"
        raise InputError(f"{where}: {key}", got, f"mamba, attention, mlp or moe, of {layers} blocks", NOT_YET)
    counts = Counter(_BLOCKS[str(block)] for block in blocks)
    if counts["mlp"] and counts["moe"]:
        raise InputError(f"{where}: {key}", "mlp and moe", "feed-forwards of one kind", NOT_YET)
    if integer(config, ("moe_latent_size",), where, minimum=0):
        raise InputError(f"{where}: moe_latent_size", str(config["moe_latent_size"]), "experts of full width", NOT_YET)
    state = _part(config, "mamba", where)
    convolution, heads = state.pop("convolution"), state["state_heads"]
    layer_counts = {
        "attention_layers": counts["attention"],
        "recurrent_layers": counts["mamba"],
        "ffn_layers": counts["moe"] or counts["mlp"],
    }
    gates = heads * state["state_value_dim"] + heads  # of the output, steps
    state_bytes = "4 B" if config.get("mamba_ssm_cache_dtype", "float32") == "float32" else "2 B"
    last: HybridFields = {"state_gates": gates, "convolution": convolution, "state_bytes": state_bytes}
    # A mixture of experts is in every block here: blocks of one part are joined.
    return {"n_layers": counts["moe"] or layers} | _recurrent(layer_counts, state, last)
