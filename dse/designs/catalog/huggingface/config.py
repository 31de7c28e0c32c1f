"""The workload of a configuration: shape, experts, states, and the format of its checkpoint."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from dse.designs.catalog.huggingface import attention, hybrids, mixtures
from dse.designs.catalog.huggingface.checkpoints import CheckpointFormat, read_checkpoint
from dse.designs.catalog.huggingface.counts import weights_by_class
from dse.designs.catalog.huggingface.families import CLASSES, FAMILIES, KEYS, UNKNOWN, Family
from dse.designs.catalog.huggingface.files import check_document
from dse.designs.catalog.huggingface.values import NOT_YET, Config, Values, is_set, matches, short
from dse.errors import InputError

_SHAPE, _WRAPPERS, _GATES = KEYS["shape"], KEYS["wrappers"], KEYS["gates"]

#: Most layers of a model.
_MOST_LAYERS = 10_000

#: Most keys of a configuration.
_MOST_KEYS = 5_000

#: What a file must be.
_DECODER = "a decoder that attends, dense or with experts"


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What a configuration says of a model."""

    model_type: str  #: of the text model, "" where the configuration does not say
    fields: Mapping[str, int | float | bool | str]  #: field of a workload file → value, dotted for those of tables
    checkpoint: CheckpointFormat | None  #: format of the weights, None for 16 bits
    notes: tuple[str, ...]  #: sentences: what is left out, guessed, and in which format the weights are
    defaults: Mapping[str, Any]  #: key that the configuration leaves out → default of its class
    read: tuple[str, ...]  #: keys that were read
    silent: tuple[str, ...]  #: keys that say nothing of the shape
    unread: tuple[str, ...]  #: keys that may say something of the shape and were not read

    @property
    def remarks(self) -> list[str]:
        """Sentences for a reader of the workload: the notes, class defaults, and keys that were not read."""
        remarks = list(self.notes)
        if self.defaults:
            texts = ", ".join(f"{key} {short(value)}" for key, value in self.defaults.items())
            remarks.append(f"by default of the class of {self.model_type}: {texts}")
        if self.unread:
            remarks.append(f"not read: {', '.join(short(key)[1:-1] for key in self.unread[:12])}")
            if len(self.unread) > 12:
                remarks[-1] += f" and {len(self.unread) - 12} more keys"
        return remarks


def read_config(
    config: Config, where: str = "config.json", quantization: Mapping[str, Any] | None = None
) -> ModelConfig:
    """Return what a configuration of Hugging Face says of a model.

    Architectures are read by their keys. What no key says follows from ``model_type`` where its row is known
    (``families.toml``); keys that are absent have the defaults of their class in Transformers (``classes.toml``). Of a
    configuration with several models that of the text counts.

    Args:
        config: as parsed.
        where: how errors call it.
        quantization: ``hf_quant_config.json``, where it lies with a configuration that has no quantization_config.

    Returns:
        The fields of a workload file, with the format of the checkpoint, notes, and the keys by how they were read.

    Raises:
        InputError: for a model that dse does not represent, without a part of its shape, or with keys that contradict.

    >>> small = dict(model_type="gpt2", n_layer=12, n_embd=768, n_head=12, vocab_size=50257, n_positions=1024)
    >>> model = read_config(small)
    >>> model.fields["ffn_hidden"], model.fields["tied_embeddings"], model.fields["seq_len"]
    (3072, True, 1024)
    """
    if not isinstance(config, Mapping):
        raise InputError(where, short(config), "a table of keys", "give the model's config.json")
    check_document(config, where)
    notes: list[str] = []
    text, place, outer = _text_model(config, where, notes)
    kind = _kind(text, outer, place)
    family, defaults = FAMILIES.get(kind, UNKNOWN), CLASSES.get(kind, {})
    values = Values(text, defaults, place)
    _check_blocks(values, kind)
    _left_out_parts(values, notes)
    fields = _fields(values, family, kind, outer, notes)
    notes += _left_out(values, family, fields)
    _check_unread(values)
    inner = text.get("quantization_config") or text.get("compression_config")
    quantization_table = inner or outer.get("quantization_config") or outer.get("compression_config") or quantization
    checkpoint = read_checkpoint(quantization_table, weights_by_class(fields), int(fields["n_layers"]), where)
    if checkpoint is not None:
        fields |= checkpoint.fields()
        notes.append(checkpoint.sentence())
    values.read |= {"model_type", "quantization_config", "compression_config"}
    return ModelConfig(
        model_type=kind,
        fields=fields,
        checkpoint=checkpoint,
        notes=tuple(notes),
        defaults=_defaults(values, fields),
        read=tuple(key for key in text if key in values.read),
        silent=tuple(values.silent()),
        unread=tuple(values.unread()),
    )


def _defaults(values: Values, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the class defaults that a reader should know of: no switches that are off, and no window of no layer."""
    tokens = () if "window" in fields else (*KEYS["window"]["tokens"], *KEYS["window"]["interval"], "max_window_layers")
    experts = () if "experts.n_experts" in fields else itertools.chain(*KEYS["mixture"].values())
    other = {*tokens, *experts}
    return {key: value for key, value in values.defaults_read.items() if value is not False and key not in other}


# Which model of a configuration


def _text_model(config: Config, where: str, notes: list[str]) -> tuple[Config, str, Config]:
    """Return the configuration of the text model, its place, and the values of those around it."""
    outer: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for _ in range(4):  # a thinker has a text model of its own
        key = next((key for key in _WRAPPERS["text"] if isinstance(config.get(key), dict)), None)
        if key is None:
            break
        left_out |= {part: words for part, words in _WRAPPERS["parts"].items() if is_set(config.get(part))}
        kinds = [outer.get("model_type"), config.get("model_type")]
        outer |= {name: value for name, value in config.items() if value is not None and not isinstance(value, list)}
        outer["model_types"] = [kind for kind in kinds if isinstance(kind, str)]
        config, where = config[key], f"{where}: {key}"
    if left_out:
        notes.append(f"left out: {' and '.join(dict.fromkeys(left_out.values()))} ({', '.join(left_out)})")
    return config, where, outer


def _kind(config: Config, outer: Config, where: str) -> str:
    """Return the type of a text model, "" where nothing says it; a wrapper of a known text model tells it too."""
    kind = config.get("model_type")
    if kind is not None and not isinstance(kind, str):
        raise InputError(f"{where}: model_type", short(kind), "a name", "correct it")
    for wrapper in [*reversed(outer.get("model_types", ())), outer.get("model_type")] if not kind else ():
        if isinstance(wrapper, str):
            return next((name for name in (f"{wrapper}_text", wrapper) if name in FAMILIES), wrapper)
    kind = kind or ""
    if kind not in FAMILIES and f"{kind}_text" in FAMILIES:  # a text model under the name of its wrapper
        return f"{kind}_text"
    if kind in KEYS["types"]:
        raise InputError(f"{where}: model_type", f"{kind}: {KEYS['types'][kind]}", _DECODER, NOT_YET)
    return kind


def _check_blocks(values: Values, kind: str) -> None:
    """Raise InputError for a key of a block that dse does not have."""
    values.read |= {*KEYS["blocks"], *KEYS["not_false"]} & {*values.config}
    for key, meaning in KEYS["blocks"].items():
        value, origin = values.config.get(key), ""
        if key not in values.config and is_set(values.defaults.get(key)):
            value, origin = values.defaults[key], f" (default of the class of {kind})"
        if is_set(value):
            raise InputError(values.place(key), f"{_shown(value)}{origin}: {meaning}", _DECODER, NOT_YET)
    for key, meaning in KEYS["not_false"].items():
        if values.config.get(key) is False:
            raise InputError(values.place(key), f"false: {meaning}", _DECODER, NOT_YET)
    hidden = values.get(*_SHAPE["hidden"])
    for key in KEYS["widths"]["keys"]:
        width = values.get(key)
        if width is not None and width != hidden:
            raise InputError(values.place(key), short(width), "the width of the model", NOT_YET)
    names = values.config.get("architectures")
    for name in names[:8] if isinstance(names, list) else ():
        if isinstance(name, str) and name.endswith(("ForMaskedLM", "ForImageClassification")):
            raise InputError(values.place("architectures"), short(name), _DECODER, "give the config.json of a decoder")


def _check_unread(values: Values) -> None:
    """Raise InputError for a key that no part of the model has read and whose name is that of another block."""
    patterns = KEYS["block_patterns"]
    for key in [key for key in values.unread() if matches(key, patterns)]:
        value = values.config[key]
        if not is_set(value):
            values.read.add(key)
            continue
        meaning = next(meaning for pattern, meaning in patterns.items() if matches(key, (pattern,)))
        raise InputError(values.place(short(key)[1:-1]), f"{_shown(value)}: {meaning}", _DECODER, NOT_YET)


def _shown(value: object) -> str:
    """Return a value for messages, tables and lists by their kind alone."""
    return "a table" if isinstance(value, dict) else "a list" if isinstance(value, list) else short(value)


# Its shape


def _fields(
    values: Values, family: Family, kind: str, outer: Config, notes: list[str]
) -> dict[str, int | float | bool | str]:
    """Return field → value of a workload file, those of tables dotted."""
    is_mixture = mixtures.has_experts(values, family)
    numbers = _numbers(values, family, is_mixture)
    layers = numbers["n_layers"]
    hybrid = hybrids.hybrid_kind(values, family)
    tables: dict[str, Any] = hybrids.hybrid_fields(values, family, hybrid, layers) if hybrid else {}
    numbers["n_layers"] = int(tables.pop("n_layers", layers))
    if hybrid == "blocks":
        values.read |= {*KEYS["window"]["tokens"]} & {*values.config}
    else:
        attention.check_kinds(values, layers, hybrids.STATES.get(hybrid, frozenset()))
    if is_mixture:
        tables |= mixtures.mixture_fields(values, family, numbers["n_layers"])
    drafting = mixtures.predicted_tokens(values)
    if drafting and (tables.pop("experts.n_predict", None) is None or hybrid):
        tables["draft_layers"] = drafting
    elif drafting:
        tables["experts.n_predict"] = drafting
    window, n_local = (
        (0, 0) if hybrid == "blocks" else attention.local_layers(values, family, layers, numbers["max_seq_len"], notes)
    )
    if n_local and tables.get("recurrent.recurrent_layers"):
        got = f"{window}, in layers among those with a state"
        raise InputError(values.place(KEYS["window"]["tokens"]), got, "no window in hybrids", NOT_YET)
    latent = attention.latent(values)
    if latent:  # keys and values of all heads are made of one vector
        shape: dict[str, Any] = {"n_heads": numbers["n_heads"], "head_dim": latent.pop("head_dim")}
        tables |= latent | attention.sparse(values, is_latent=True)
    else:
        shape = attention.heads(values, numbers, n_local, notes)
        tables |= attention.sparse(values, is_latent=False)
    shape = {field: number for field, number in (numbers | shape).items() if field in shape or field not in _HEADS}
    positions = _positions(values, family)
    learned = positions == "learned"
    fields: dict[str, int | float | bool | str] = {field: shape[field] for field in _SHAPE if field in shape}
    fields |= {
        "gated": _is_gated(values, family, kind, notes),
        "tied_embeddings": _tied(values, outer),
        "rotary": positions == "rotary",
        "learned_positions": learned,
        "dropout": _drops(values),
        "seq_len": _trained_length(values, numbers["max_seq_len"]),
    }
    if family.norm_vectors == 2 or (family.norm_vectors == 0 and _shifts(values)):
        fields["norm_vectors"] = 2
    parallel = ("use_parallel_residual", "use_parallel_block", "parallel_attn")
    if True in (family.parallel, *[values.get(key) for key in parallel]):
        fields["parallel_block"] = 1
    if fields["rotary"] and not latent and attention.scales_rotary(values):
        fields["scaled_rotary"] = 1
    if n_local:
        fields |= {"window": window, "local_layers": round(n_local / layers, 6)}
    draft = tables.pop("draft_layers", None)
    return fields | ({"draft_layers": draft} if draft else {}) | tables


def _shifts(values: Values) -> bool:
    """True where a key says that norms have a shift beside their scale."""
    return any(values.config.get(key) is not None for key in KEYS["gates"]["layer_norm"])


#: Fields that attention decides.
_HEADS = ("n_heads", "n_kv_heads", "head_dim")


def _numbers(values: Values, family: Family, is_mixture: bool) -> dict[str, int]:
    """Return field → number of what any decoder has; InputError where one is missing."""
    keys = {field: tuple(names) for field, names in _SHAPE.items()}
    if family.dense_width:
        values.read |= {*keys["ffn_hidden"]} & {*values.config}
        keys["ffn_hidden"] = (family.dense_width,)
    elif is_mixture:  # all layers may have experts
        keys["ffn_hidden"] = (*keys["ffn_hidden"], *KEYS["mixture"]["width"])
    _check_file(values)
    numbers = {field: value for field in keys if (value := values.integer(keys[field], minimum=0)) is not None}
    for field in ("n_kv_heads", "head_dim"):
        if not numbers.get(field):  # 0 is as none
            numbers.pop(field, None)
    ratio = values.integer(("expansion_ratio",)) or (4 if family.four_times else 0)
    if "ffn_hidden" not in numbers and ratio and numbers.get("hidden"):
        numbers["ffn_hidden"] = ratio * numbers["hidden"]
    numbers |= {"ffn_hidden": numbers["ffn_hidden"] // family.ffn_divisor} if numbers.get("ffn_hidden") else {}
    if not numbers.get("ffn_hidden") and is_mixture and (width := values.integer(KEYS["mixture"]["width"])):
        numbers["ffn_hidden"] = width
    if (shared := _shared_heads(values, numbers)) is not None:
        numbers["n_kv_heads"] = shared
    if (
        "n_layers" not in numbers
        and isinstance(blocks := values.get("layers_block_type", "layer_types"), list)
        and blocks
    ):
        numbers["n_layers"] = len(blocks)
    if not numbers.get("ffn_hidden") and family.dense_width and is_mixture:
        keys["ffn_hidden"] = (family.dense_width, *_SHAPE["ffn_hidden"])
        numbers["ffn_hidden"] = values.required_integer(keys["ffn_hidden"])
    for field in ("n_layers", "hidden", "n_heads", "ffn_hidden", "vocab", "max_seq_len"):
        if not numbers.get(field):
            numbers[field] = values.required_integer(keys[field])
    if numbers["n_layers"] > _MOST_LAYERS:
        where, got = values.place(keys["n_layers"]), f"{numbers['n_layers']:,}"
        raise InputError(where, got, f"at most {_MOST_LAYERS:,} layers", "correct it")
    return numbers


def _check_file(values: Values) -> None:
    """Raise InputError for a file of another kind, told by its keys where it has none of a shape."""
    if any(values.key(_SHAPE[field]) is not None for field in ("n_layers", "hidden", "n_heads")):
        return
    key = next((key for key in KEYS["other_files"] if key in values.config), None)
    meaning, fix = KEYS["other_files"][key] if key else ("no key of a shape", "give the config.json of a model")
    got = f"{meaning} (key {short(key)[1:-1]})" if key else f"{meaning}, of {len(values.config)} keys"
    raise InputError(values.where, got, f"{_SHAPE['n_layers'][0]}, {_SHAPE['hidden'][0]} and so on", fix)


def _shared_heads(values: Values, numbers: Mapping[str, int]) -> int | None:
    """Return 1 for keys and values of one head for all (multi-query), None where no key says so.

    Falcon's newer layers say the number of heads, and so does ChatGLM's.
    """
    if values.get("new_decoder_architecture") is True or values.config.get("multi_query_group_num") is not None:
        return None
    if values.config.get("multi_query_attention") is not None:
        return None
    switch = values.get("multi_query")
    return None if switch is None else 1 if switch is True else numbers.get("n_heads", 1)


def _positions(values: Values, family: Family) -> str:
    """Return how a model tells positions: ``rotary``, ``learned``, ``alibi`` or ``none``."""
    if values.get("alibi") is True:
        return "alibi"
    word = values.get("position_embedding_type")
    if family is UNKNOWN and isinstance(word, str):
        plain = word.lower()
        if plain in _GATES["learned"]:
            return "learned"
        if plain == "alibi" or plain in _GATES["none"]:
            return "none"
    return family.positions


def _is_gated(values: Values, family: Family, kind: str, notes: list[str]) -> bool:
    """Return whether feed-forwards have a gate; guessed by the activation for a type without a row, and said so."""
    if family.gated is not None:
        return family.gated
    name = values.get(*_GATES["activation"])
    activation = name.lower() if isinstance(name, str) else ""
    has_layer_norm = any(key in values.config for key in _GATES["layer_norm"]) and "rms_norm_eps" not in values.config
    is_plain = activation in _GATES["plain"] or (activation in _GATES["plain_with_layer_norm"] and has_layer_norm)
    words = "without a gate" if is_plain else "with a gate"
    subject = f"the type {short(kind)[1:-1]} has no row" if kind else "nothing says the type"
    notes.append(
        f"{subject} and is read by its keys: a feed-forward {words}, by its activation {activation or '(none)'}"
    )
    return not is_plain


def _tied(values: Values, outer: Config) -> bool:
    """Return whether embeddings are tied: by its key, that of a wrapper, or the classes of both."""
    value = values.config.get("tie_word_embeddings")
    values.read |= {"tie_word_embeddings"} & {*values.config}
    if value is None:
        value = outer.get("tie_word_embeddings")
    if value is None:
        wrapper = CLASSES.get(str(outer.get("model_type")), {})
        value = wrapper.get("tie_word_embeddings", values.defaults.get("tie_word_embeddings", False))
        values.defaults_read["tie_word_embeddings"] = value
    if not isinstance(value, bool):
        raise InputError(values.place("tie_word_embeddings"), short(value), "true or false", "correct it")
    return value


def _drops(values: Values) -> bool:
    """True where any activation is dropped in training."""
    keys = ("attention_dropout", "hidden_dropout", "resid_pdrop", "attn_pdrop", "dropout", "resid_dropout")
    values.read |= {*keys} & {*values.config}
    return any(isinstance(rate := values.config.get(key), int | float) and rate > 0 for key in keys)


def _trained_length(values: Values, longest: int) -> int:
    """Return the tokens that a stretched context was stretched from, else the longest context."""
    key = KEYS["lengths"]["key"]
    scalings = (values.get(name) for name in KEYS["lengths"]["original"])
    lengths = [scaling.get(key) for scaling in scalings if isinstance(scaling, dict)]
    length = next((length for length in [*lengths, values.get(key)] if length), None)
    return length if type(length) is int and 1 <= length <= longest else longest


# What is left out


def _left_out_parts(values: Values, notes: list[str]) -> None:
    """Add a sentence on models of images and sound that stand with the keys of a text model."""
    parts = {key: words for key, words in _WRAPPERS["parts"].items() if is_set(values.config.get(key))}
    values.read |= {*parts, *_WRAPPERS["text"]} & {*values.config}
    if parts:
        notes.append(f"left out: {' and '.join(dict.fromkeys(parts.values()))} ({', '.join(parts)})")


def _left_out(values: Values, family: Family, fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield sentences on what of its layers a workload does not have."""
    left_out = [family.left_out] if family.left_out else []
    if fields.get("draft_layers"):
        left_out.append("the layer that predicts a further token")
    if biases := _biases(values, family, fields):
        left_out.append(biases)
    if left_out:
        yield f"left out: {' and '.join(left_out)}"
    if family.hybrid == "blocks" and "experts.n_experts" in fields:
        yield "blocks of one part each are joined: a state, experts and in some attention, which a pipeline splits"
    if predicted := fields.get("experts.n_predict"):
        yield f"training predicts {predicted} further (experts.n_predict); what serves drafts if it is asked to"


def _biases(values: Values, family: Family, fields: Mapping[str, Any]) -> str:
    """Return words on the biases that a model has and a workload has not, "" without them."""
    matrices = {family.biases} if family.biases else set[str]()
    for key, kind in KEYS["biases"].items():
        if key in values.config:
            values.read.add(key)
            if values.config[key] is True:
                matrices.add(kind)
        elif values.defaults.get(key) is True:
            matrices.add(kind)
    if not matrices:
        return ""
    words = (
        "biases" if "all" in matrices else "biases of attention" if "mlp" not in matrices else "biases of feed-forwards"
    )
    if "all" not in matrices and {"mlp", "qkv"} <= matrices:
        words = "biases"
    heads = fields["n_heads"] + 2 * fields.get("n_kv_heads", fields["n_heads"])
    width = heads * fields.get("head_dim", fields["hidden"] // fields["n_heads"])
    count = fields["n_layers"] * (
        width * bool({"qkv", "all"} & matrices)
        + fields["hidden"] * (bool({"output", "all"} & matrices) + bool({"mlp", "all"} & matrices))
        + (1 + fields["gated"]) * fields["ffn_hidden"] * bool({"mlp", "all"} & matrices)
    )
    return f"{words} ({count / 1e6:.3g} million)" if count >= 1e4 else words
