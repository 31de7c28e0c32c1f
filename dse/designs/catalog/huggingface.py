"""Workloads from the ``config.json`` of a model on Hugging Face.

The keys of a configuration give the shape. What no key says (whether the feed-forward has a gate, how positions are
told, whether embeddings are tied where nothing is said) follows from ``model_type``, as the classes of transformers
have it; what keys say of experts and of latent attention is read by :mod:`dse.designs.catalog.mixtures`. What a
workload cannot represent is an InputError that names the key.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dse.designs.catalog import mixtures
from dse.designs.catalog.mixtures import NOT_YET, PART_KEYS, TABLE, Config, MixtureShape, integer, required_integer
from dse.errors import InputError, unknown_name
from dse.io import inputs


@dataclasses.dataclass(frozen=True)
class Family:
    """What the models of a type have in common."""

    gated: bool = True
    positions: str = "rotary"  #: ``rotary``, ``learned``, or ``alibi`` and ``none``, which have no parameters
    tied: bool = False  #: whether embeddings are tied where the configuration does not say
    local: str = ""  #: which layers have the window: ``all``, ``late``, or how many of how many: ``5 of 6``
    mixture: MixtureShape | None = None  #: how keys tell of its experts, where it has some
    hybrid: str = ""  #: layers with a state among those that attend: ``delta`` or ``mamba``
    left_out: str = ""  #: what of its layers a workload does not have


#: ``model_type`` → its family.
FAMILIES = {
    kind: Family(**row | ({"mixture": MixtureShape(**row["mixture"])} if "mixture" in row else {}))
    for kind, row in TABLE["families"].items()
}

#: Field of a workload → the keys that hold it.
_KEYS: dict[str, tuple[str, ...]] = {field: tuple(keys) for field, keys in TABLE["shape"].items()}

#: Families whose feed-forward is four times as wide as the model where the configuration does not say.
_FOUR_TIMES = ("gpt2", "bloom", "falcon")

#: What a file must be, and a model.
_CONFIG_FILE, _DENSE, _MIXED = (
    "a config.json of Hugging Face",
    "a dense decoder",
    "a decoder that attends, with experts",
)

#: Kinds of layers that attend, in ``layer_types``: to all tokens, or to those of a window or chunk.
_FULL_ATTENTION, _LOCAL_ATTENTION = ("full_attention",), ("sliding_attention", "chunked_attention")


def read(path: str | Path) -> dict[str, Any]:
    """Return the values of a ``config.json``.

    Returns:
        The parsed JSON object.

    Raises:
        InputError: for a file that cannot be read or is no JSON object.
    """
    text = inputs.text(path, _CONFIG_FILE)
    try:
        config = json.loads(text)
    except RecursionError:
        raise InputError(str(path), "brackets nested too deep", _CONFIG_FILE, "check the file") from None
    except ValueError as error:  # of a text that is no JSON, and of endless numbers
        raise InputError(str(path), f"not JSON ({error})", _CONFIG_FILE, "download the file again") from None
    if not isinstance(config, dict):
        raise InputError(str(path), f"a JSON {type(config).__name__}", "a JSON object", "give the model's config.json")
    return config


def workload(config: Config, where: str = "config.json") -> dict[str, int | float | bool | str]:
    """Return field → value of a workload file from a configuration, those of tables dotted (``experts.top_k``).

    Args:
        config: as parsed.
        where: how errors call it.

    Raises:
        InputError: for a model that dse does not represent, of an unknown type, or without a part of its shape.

    >>> small = dict(model_type="gpt2", n_layer=12, n_embd=768, n_head=12, vocab_size=50257, n_positions=1024)
    >>> fields = workload(small)
    >>> fields["ffn_hidden"], fields["tied_embeddings"], fields["seq_len"]
    (3072, True, 1024)
    """
    family = _family(config, where)
    numbers = _numbers(config, family, where)
    tables: dict[str, Any] = {}
    if family.hybrid:
        tables = mixtures.hybrid_fields(config, family.hybrid, numbers["n_layers"], where)
        numbers["n_layers"] = int(tables.pop("n_layers"))
    if family.mixture is not None:
        tables |= mixtures.fields(config, family.mixture, numbers["n_layers"], where)
    if family.hybrid:  # the layer that predicts a further token is of another kind
        tables.pop("experts.n_predict", None)
    if "latent.kv_rank" in tables:  # keys and values of all heads are made of one vector
        numbers["head_dim"] = tables.pop("head_dim")
        numbers.pop("n_kv_heads", None)
    _check_heads(numbers, where)
    positions = "alibi" if config.get("alibi") is True else family.positions
    fields = [name for name in _KEYS if name in numbers and name != "window"]
    shape: dict[str, int | float | bool | str] = {name: numbers[name] for name in fields}
    shape |= {
        "gated": family.gated,
        "tied_embeddings": _tied(config, family, where),
        "rotary": positions == "rotary",
        "learned_positions": positions == "learned",
        "dropout": _drops(config),
        "seq_len": _trained_length(config, numbers),
    }
    return shape | _window(config, family, numbers) | tables


def _numbers(config: Config, family: Family, where: str) -> dict[str, int]:
    """Return field → number of what any decoder has; InputError where one is missing."""
    kind, keys = config["model_type"], dict(_KEYS)
    if family.mixture is not None:
        keys["ffn_hidden"] = tuple(dict.fromkeys((family.mixture.dense, family.mixture.width)))
    numbers = {field: value for field in keys if (value := integer(config, keys[field], where)) is not None}
    if kind in _FOUR_TIMES and "hidden" in numbers:
        numbers.setdefault("ffn_hidden", 4 * numbers["hidden"])
    if kind == "falcon":
        numbers |= _falcon_heads(config, numbers)
    for field in ("n_layers", "hidden", "n_heads", "ffn_hidden", "vocab", "max_seq_len"):
        if field not in numbers:
            numbers[field] = required_integer(config, keys[field], where)
    return numbers


def remarks(config: Config, where: str = "config.json") -> list[str]:
    """Return sentences on what a workload of a configuration leaves out, and what a reader should know of it.

    Returns:
        One sentence per remark.
    """
    return list(_remarks(config, _family(config, where)))


def _remarks(config: Config, family: Family) -> Iterator[str]:
    """Yield the sentences of :func:`remarks`."""
    left_out = [family.left_out] if family.left_out else []
    predicted_tokens = mixtures.predicted_tokens(config) or config.get("mtp_num_hidden_layers")
    left_out += ["the layer that predicts a further token"] if family.hybrid and predicted_tokens else []
    left_out += ["biases of attention"] if config.get("attention_bias") is True else []
    if left_out:
        yield f"left out: {' and '.join(left_out)}"
    if family.mixture is not None and (checkpoint_format := mixtures.published_in(config)):
        yield f"the checkpoint keeps its weights in {checkpoint_format}: a design says its precision"
    if family.hybrid == "mamba" and family.mixture is not None:
        yield "blocks of one part each are joined: a state, experts and in some attention, which a pipeline splits"
    if family.mixture is not None and not family.hybrid and (predicted_tokens := mixtures.predicted_tokens(config)):
        yield f"training predicts {predicted_tokens} further (experts.n_predict); what serves drafts if it is asked to"


def _family(config: Config, where: str) -> Family:
    """Return the family of a configuration; InputError for an unknown type or a part that dse does not represent."""
    kind = config.get("model_type")
    family = FAMILIES.get(kind) if isinstance(kind, str) else None
    if family is not None and family.hybrid and not any(config.get(key) for key in PART_KEYS["experts"]):
        family = dataclasses.replace(family, mixture=None)
    _check_parts(config, family, where)
    if family is None:
        if kind is None:
            allowed = ", ".join(FAMILIES)
            raise InputError(f"{where}: model_type", "nothing", allowed, "add the type that the model is built like")
        raise unknown_name(f"{where}: model_type", str(kind), FAMILIES, "types")
    return family


def _keys_read(config: Config, family: Family | None) -> set[str]:
    """Return the keys of the parts that a family may have, for an unknown type (None) those of all families."""
    if family is None:
        return {"quantization_config", *itertools.chain(*PART_KEYS.values())}
    mixture = family.mixture
    parts = {
        "experts": mixture is not None,
        "latent": mixture is not None and mixture.latent,
        "sparse": mixture is not None and mixture.sparse,
        "hybrid": bool(family.hybrid),
    }
    keys = {key for part, is_present in parts.items() if is_present for key in PART_KEYS[part]}
    return keys | ({"quantization_config"} if mixture is not None and mixtures.published_in(config) else set())


def _check_parts(config: Config, family: Family | None, where: str) -> None:
    """Raise InputError for a part, a kind of layer or a width that the family does not have in dse."""
    family_keys, allows_experts = _keys_read(config, family), family is None or family.mixture is not None
    for key, meaning in TABLE["foreign"].items():
        value = config.get(key)
        if key not in family_keys and (value is True or (value is not None and value not in (False, 0, 1))):
            got = "a table" if isinstance(value, dict | list) else json.dumps(value)
            fix = "give that table alone as a file" if key == "text_config" else NOT_YET
            raise InputError(f"{where}: {key}", f"{got}: {meaning}", _MIXED if allows_experts else _DENSE, fix)
    states = ("linear_attention",) if family is not None and family.hybrid == "delta" else ()
    for key, kinds in (("layer_types", {*_FULL_ATTENTION, *_LOCAL_ATTENTION, *states}), ("attn_type_list", {1})):
        other = [kind for kind in _strings_and_integers(config.get(key)) if kind not in kinds]
        if other:
            allowed = " or ".join(map(str, sorted(kinds, key=str)))
            raise InputError(f"{where}: {key}", f"{other[0]!r}, layers that do not attend", allowed, NOT_YET)
    width = config.get("word_embed_proj_dim")
    if width is not None and width != config.get("hidden_size"):
        raise InputError(f"{where}: word_embed_proj_dim", repr(width), "the value of hidden_size", NOT_YET)


def _strings_and_integers(value: object) -> list[Any]:
    """Return the texts and whole numbers of a list, empty for another value."""
    return [element for element in value if isinstance(element, str | int)] if isinstance(value, list) else []


def _falcon_heads(config: Config, numbers: Mapping[str, int]) -> dict[str, int]:
    """Return ``n_kv_heads`` → number for Falcon: one where ``multi_query`` holds; empty for its newer layers."""
    if config.get("new_decoder_architecture") is True:
        return {}
    return {"n_kv_heads": 1 if config.get("multi_query", True) is True else numbers.get("n_heads", 1)}


def _check_heads(numbers: Mapping[str, int], where: str) -> None:
    """Raise InputError for heads that key/value heads, or a width that heads, do not divide."""
    heads, groups = numbers["n_heads"], numbers.get("n_kv_heads", 1)
    if heads % groups:
        raise InputError(
            f"{where}: num_key_value_heads",
            str(groups),
            f"divisors of num_attention_heads = {heads}",
            "correct one of the two",
        )
    if "head_dim" not in numbers and numbers["hidden"] % heads:
        raise InputError(
            f"{where}: hidden_size",
            str(numbers["hidden"]),
            f"multiples of num_attention_heads = {heads}",
            "add head_dim",
        )


def _tied(config: Config, family: Family, where: str) -> bool:
    """Return whether embeddings are tied, by the family where the configuration does not say."""
    value = config.get("tie_word_embeddings")
    if value is None:
        return family.tied
    if not isinstance(value, bool):
        raise InputError(f"{where}: tie_word_embeddings", repr(value), "true or false", "correct it")
    return value


def _drops(config: Config) -> bool:
    """True where any activation is dropped in training."""
    keys = ("attention_dropout", "hidden_dropout", "resid_pdrop", "attn_pdrop", "dropout", "resid_dropout")
    return any(isinstance(config.get(key), int | float) and config[key] > 0 for key in keys)


def _trained_length(config: Config, numbers: Mapping[str, int]) -> int:
    """Return the tokens that a stretched context was stretched from, else the longest context."""
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    original_length = scaling.get("original_max_position_embeddings") if isinstance(scaling, dict) else None
    original_length = original_length or config.get("original_max_position_embeddings")
    return (
        original_length
        if type(original_length) is int and 1 <= original_length <= numbers["max_seq_len"]
        else numbers["max_seq_len"]
    )


def _window(config: Config, family: Family, numbers: Mapping[str, int]) -> dict[str, int | float]:
    """Return ``window`` (tokens) and ``local_layers`` (share of layers with it); empty where no layer has one."""
    layers, kinds = numbers["n_layers"], config.get("layer_types")
    if "window" not in numbers or not family.local or config.get("use_sliding_window") is False:
        return {}
    if isinstance(kinds, list) and len(kinds) == layers:
        n_local = sum(kind in _LOCAL_ATTENTION for kind in kinds)
    elif family.local == "late":  # only where it is asked for, from one layer on
        if config.get("use_sliding_window") is not True:
            return {}
        first_layer = config.get("max_window_layers")
        n_local = max(layers - first_layer, 0) if type(first_layer) is int and first_layer >= 0 else layers
    else:
        interval = int(family.local.rpartition(" ")[2]) if " of " in family.local else 0
        n_local = layers - layers // interval if interval else layers
    return {"window": numbers["window"], "local_layers": round(n_local / layers, 6)} if n_local else {}


def as_toml(config: Config, name: str, where: str = "config.json") -> str:
    """Return the TOML text of a workload file.

    Args:
        config: as parsed.
        name: of the workload.
        where: how errors, and the source of the file, call the configuration.
    """
    fields = workload(config, where)
    tables = {name for field in fields for name, dot, _ in [field.partition(".")] if dot}
    length = fields.pop("seq_len")
    origin = "longest context of the configuration"
    origin += ", before it was extended" if length != fields["max_seq_len"] else ""
    lines = [
        f"name = {_quoted(name)}",
        f"source = {_quoted(f'{where} of Hugging Face')}",
        'confidence = "paper"',
        *(f"note = {_quoted('; '.join(texts))}" for texts in [remarks(config, where)] if texts),
        "",
        *(f"{field} = {_plain(value)}" for field, value in fields.items() if value is not False and "." not in field),
        "",
        "# the length and the batch of your training: a config.json does not have them",
        f'seq_len = {{ value = {length}, confidence = "estimate", source = "{origin}" }}',
    ]
    for table in sorted(tables):
        table_fields = {name.partition(".")[2]: value for name, value in fields.items() if name.startswith(f"{table}.")}
        lines += ["", f"[{table}]", *(f"{name} = {_plain(value)}" for name, value in table_fields.items())]
    return "\n".join(lines) + "\n"


def _plain(value: float | str) -> str:
    """Return a value as TOML."""
    if isinstance(value, str):
        return _quoted(value)
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def _quoted(text: str) -> str:
    """Return a text as a TOML string, without what cannot be printed."""
    return json.dumps("".join(c for c in text if c.isprintable()), ensure_ascii=False)
