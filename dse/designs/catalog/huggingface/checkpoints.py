"""Formats of the weights of a checkpoint: bytes per weight by class of tensors.

``quantization_config`` of a configuration, or ``hf_quant_config.json`` of ModelOpt, says the format of the linear
layers and which of them it leaves in 16 bits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dse.designs.catalog.huggingface.modules import CLASSES, TABLE, excluded_shares, module_class
from dse.designs.catalog.huggingface.values import is_set, short
from dse.errors import InputError
from dse.types.choices import INT4_BYTES, WEIGHTS_ALONE

#: How to go on with a format that dse cannot tell.
_FIX = "give the config.json of the model in 16 bits, and set precision and weight_bytes in the design"

#: Most names of modules that a configuration leaves in 16 bits.
_MOST_NAMES = 50_000

#: Largest difference of bytes per weight that is none.
_SAME = 0.005

#: Formats of a workload file's ``checkpoint`` whose weights are widened to 16 bits.
_WIDENED = ("int4", "mxfp4")

#: Bytes of a weight in 16 bits.
_SIXTEEN_BITS = 2.0


@dataclasses.dataclass(frozen=True)
class WeightFormat:
    """Format of the weights of a linear layer."""

    name: str  #: ``fp8``, ``int4`` …
    bytes_per_weight: float  #: with its scales
    recipe: str  #: precision in which it is multiplied: that of the format, ``bf16``, or ``fp8`` of W4A8


@dataclasses.dataclass(frozen=True)
class CheckpointFormat:
    """Format of a checkpoint: bytes per weight of each class of tensors, and how a design serves it."""

    method: str  #: as the configuration calls it
    name: str  #: of the format of most weights
    bytes_by_class: Mapping[str, float]  #: class of tensors → bytes per weight, with scales
    checkpoint: str  #: precision of the workload file's ``checkpoint``, "" for weights widened to 16 bits
    weight_bytes: float  #: bytes per weight without experts: a mean over attention and feed-forwards
    expert_bytes: float  #: bytes per weight of a routed expert, 0 without experts
    cache_bytes: float | None  #: bytes per element of the cache, None where nothing says it

    def fields(self) -> dict[str, float | str]:
        """Return the fields of a workload file: the checkpoint, and bytes where they do not follow from it."""
        fields: dict[str, float | str] = {"checkpoint": self.checkpoint} if self.checkpoint else {}
        weight, expert = _bytes_of_checkpoint(self.checkpoint, bool(self.expert_bytes))
        if abs(weight - self.weight_bytes) > _SAME or (self.expert_bytes and abs(expert - self.expert_bytes) > _SAME):
            fields["weight_bytes"] = f"{self.weight_bytes:.6g} B"
            if self.expert_bytes:
                fields["expert_bytes"] = f"{self.expert_bytes:.6g} B"
        return fields

    def leaves(self) -> dict[str, float | str]:
        """Return full path → value of a design that serves the checkpoint in its format, on a device that can.

        Bytes are 0 where they are those of the precision, as in :class:`dse.types.Serving`.
        """
        widened = self.checkpoint in ("", *_WIDENED)
        operand = _SIXTEEN_BITS if widened else TABLE["formats"][self.checkpoint]["bytes"]
        weight = 0.0 if abs(self.weight_bytes - operand) < _SAME else self.weight_bytes
        expert = 0.0 if abs(self.expert_bytes - (weight or operand)) < _SAME else self.expert_bytes
        cache = {} if self.cache_bytes is None else {"mapping.serving.cache_bytes": self.cache_bytes}
        return {
            "mapping.precision": "bf16" if widened else self.checkpoint,
            "mapping.serving.weight_bytes": weight,
            "mapping.serving.expert_bytes": expert,
            **cache,
        }

    def sentence(self) -> str:
        """Return a sentence on the format, for readers."""
        texts = [f"{words} {number:.4g} B" for words, number in self.class_texts()]
        cache = "" if self.cache_bytes is None else f"; its cache in {self.cache_bytes:g} B an element"
        return f"the checkpoint keeps its weights in {self.name} ({self.method}; {', '.join(texts)} a weight){cache}"

    def class_texts(self) -> list[tuple[str, float]]:
        """Return (classes of tensors with the same bytes, bytes per weight)."""
        by_bytes: dict[float, list[str]] = {}
        for tensors, number in self.bytes_by_class.items():
            by_bytes.setdefault(number, []).append(tensors.replace("_", " "))
        return [(" and ".join(names), number) for number, names in by_bytes.items()]


def _bytes_of_checkpoint(checkpoint: str, is_mixture: bool) -> tuple[float, float]:
    """Return the bytes per weight, and of experts, that dse takes where a workload file states a checkpoint alone."""
    if checkpoint == "mxfp4":
        return _SIXTEEN_BITS, WEIGHTS_ALONE["w4a16"]
    if checkpoint == "int4":
        return (_SIXTEEN_BITS if is_mixture else INT4_BYTES), INT4_BYTES
    number = TABLE["formats"].get(checkpoint, {}).get("bytes", _SIXTEEN_BITS)
    return number, number


def read_checkpoint(
    quantization: object, parameters: Mapping[str, float], layers: int, where: str
) -> CheckpointFormat | None:
    """Return the format of a checkpoint, None for weights in 16 bits.

    Args:
        quantization: ``quantization_config`` of a configuration, or the whole of ``hf_quant_config.json``.
        parameters: class of tensors → weights of all layers, those of experts included.
        layers: of the model.
        where: name of the configuration in errors.

    Raises:
        InputError: for formats that dse cannot tell.
    """
    place = f"{where}: quantization_config"
    if quantization is None or quantization == {}:
        return None
    if not isinstance(quantization, Mapping):
        raise InputError(place, short(quantization), "a table", "correct it")
    quantization = _unwrapped(quantization)
    method, row = _method(quantization, place)
    formats = _formats(quantization, method, row, place)
    if not formats:
        return None
    ignored = [name for key in row.get("ignore", ()) for name in _strings(quantization.get(key))]
    ignored += [name[2:] for name in _strings(list(_table(quantization.get("dynamic")))) if name.startswith("-:")]
    others = _table(quantization.get("extra_config"))  # layers with bits of their own
    ignored += [name for name, row in others.items() if _table(row).get("bits") in (16, 32)]
    if len(ignored) > _MOST_NAMES:
        allowed = f"at most {_MOST_NAMES:,} names of modules"
        raise InputError(place, f"{len(ignored):,} names that are left in 16 bits", allowed, _FIX)
    excluded = excluded_shares(ignored, layers)
    present = {tensors: number for tensors, number in parameters.items() if number > 0.0}
    by_class = {
        tensors: _mean(formats.get(tensors), excluded.get(tensors, 0.0)) for tensors in CLASSES if tensors in present
    }
    return _checkpoint(method, formats, by_class, present, _cache_bytes(quantization))


def _checkpoint(
    method: str,
    formats: Mapping[str, WeightFormat],
    by_class: Mapping[str, float],
    parameters: Mapping[str, float],
    cache_bytes: float | None,
) -> CheckpointFormat | None:
    """Return the format of a checkpoint from the bytes of its classes of tensors; None where all are in 16 bits."""
    narrow = [tensors for tensors, number in by_class.items() if number < _SIXTEEN_BITS - _SAME and tensors in formats]
    if not narrow:
        return None
    main = formats[max(narrow, key=lambda tensors: parameters[tensors])]
    others = [tensors for tensors in by_class if tensors != "experts"]
    total = sum(parameters[tensors] for tensors in others)
    weight = sum(parameters[tensors] * by_class[tensors] for tensors in others) / total if total else _SIXTEEN_BITS
    widened = main.name if main.name in _WIDENED else ""
    checkpoint = widened if main.recipe == "bf16" else main.recipe
    return CheckpointFormat(
        method=method,
        name=main.name,
        bytes_by_class={tensors: round(number, 6) for tensors, number in by_class.items()},
        checkpoint=checkpoint,
        weight_bytes=round(weight, 6),
        expert_bytes=round(by_class.get("experts", 0.0), 6),
        cache_bytes=cache_bytes,
    )


def _mean(weight_format: WeightFormat | None, excluded: float) -> float:
    """Return the bytes per weight of a class of tensors of which a share is in 16 bits."""
    if weight_format is None:
        return _SIXTEEN_BITS
    return excluded * _SIXTEEN_BITS + (1.0 - excluded) * weight_format.bytes_per_weight


def _unwrapped(quantization: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table of a format: that of ``hf_quant_config.json`` is within it, with its producer beside."""
    inner = quantization.get("quantization")
    if isinstance(inner, Mapping):
        return {"quant_method": "modelopt", **inner}
    return quantization


def _method(quantization: Mapping[str, Any], place: str) -> tuple[str, Mapping[str, Any]]:
    """Return the method and its row; a table without one is told by its other keys."""
    method = quantization.get("quant_method")
    if method is None:
        guesses = {"load_in_4bit": "bitsandbytes", "load_in_8bit": "bitsandbytes", "quant_algo": "modelopt"}
        guesses |= {"config_groups": "compressed-tensors", "weight_block_size": "fp8"}
        method = next((guess for key, guess in guesses.items() if is_set(quantization.get(key))), None)
    methods = TABLE["methods"]
    name = str(TABLE["aliases"].get(method, method)) if isinstance(method, str) else ""
    if name not in methods:
        got = "nothing" if method is None else short(method)
        raise InputError(f"{place}.quant_method", got, ", ".join(methods), _FIX)
    return name, methods[name]


def _formats(
    quantization: Mapping[str, Any], method: str, row: Mapping[str, Any], place: str
) -> Mapping[str, WeightFormat]:
    """Return class of tensors → format of its weights."""
    if method in ("compressed-tensors", "modelopt") and isinstance(quantization.get("config_groups"), Mapping):
        return _of_groups(quantization["config_groups"], place)
    if method == "compressed-tensors":
        allowed = "a table of groups of layers with their weights"
        raise InputError(f"{place}.config_groups", short(quantization.get("config_groups")), allowed, _FIX)
    if method == "modelopt":
        return _of_algorithm(quantization, place)
    if method == "bitsandbytes":
        return dict.fromkeys(CLASSES, _of_bitsandbytes(quantization, place))
    if method == "quark":
        return dict.fromkeys(CLASSES, _of_quark(quantization, place))
    if "format" in row:
        tensors = ("experts",) if row.get("experts_alone") else CLASSES
        return dict.fromkeys(tensors, _named(row["format"], bool(row.get("experts_alone"))))
    bits = _integer(quantization, row["bits"], row["default_bits"], place)
    group = _integer(quantization, row["group"], row["default_group"], place)
    zero = _first(quantization, row.get("zero", ()), row.get("zero_default", False))
    symmetric = _first(quantization, row.get("symmetric", ()), not zero)
    return dict.fromkeys(CLASSES, _of_integers(bits, group, is_set(symmetric), "bf16", place))


def _named(name: str, weights_alone: bool = False, activations: str = "") -> WeightFormat:
    """Return a format by its name; weights alone are widened to 16 bits, others multiplied in their recipe."""
    row = TABLE["formats"][name]
    recipe = activations or ("bf16" if weights_alone else row["checkpoint"])
    return WeightFormat(row["checkpoint"] if name.startswith("nf4") else name, row["bytes"], recipe)


def _of_integers(bits: int, group: int, symmetric: bool, recipe: str, place: str) -> WeightFormat:
    """Return the format of integers: ``bits / 8``, and a 16-bit scale (and a zero point) for a group of weights."""
    if bits not in (2, 3, 4, 5, 6, 8):
        raise InputError(f"{place}.bits", short(bits), "2 to 8 bits", _FIX)
    scale = 0.0 if group <= 0 else (2.0 + (0.0 if symmetric else bits / 8.0)) / group
    return WeightFormat("int8" if bits == 8 else "int4" if bits == 4 else f"int{bits}", bits / 8.0 + scale, recipe)


def _of_groups(groups: Mapping[str, Any], place: str) -> Mapping[str, WeightFormat]:
    """Return class of tensors → format of groups of layers, of which those for some modules count before others."""
    formats: dict[str, WeightFormat] = {}
    specific: dict[str, WeightFormat] = {}
    for name, group in groups.items():
        where = f"{place}.config_groups.{short(name)[1:-1]}"
        if not isinstance(group, Mapping):
            raise InputError(where, short(group), "a table with weights", _FIX)
        weights = group.get("weights")
        if weights is None:
            continue
        weight_format = _of_scheme(weights, group.get("input_activations"), where)
        targets = _strings(group.get("targets")) or ["Linear"]
        for target in targets:
            tensors = module_class(target)
            if tensors in CLASSES:
                specific.setdefault(tensors, weight_format)
            elif tensors is None:
                formats |= dict.fromkeys(CLASSES, weight_format)
    return formats | specific


def _of_scheme(weights: object, activations: object, where: str) -> WeightFormat:
    """Return the format of the weights of a group of compressed-tensors, with or without quantised activations."""
    if not isinstance(weights, Mapping):
        raise InputError(f"{where}.weights", short(weights), "a table with num_bits", _FIX)
    bits, kind, group = weights.get("num_bits"), weights.get("type", "int"), weights.get("group_size")
    group = group if type(group) is int else 0
    activation_bits = activations.get("num_bits") if isinstance(activations, Mapping) else None
    weights_alone = type(activation_bits) is not int or activation_bits > 8
    if kind == "float" and bits in (4, 8):
        name = ("nvfp4" if 0 < group <= 16 else "mxfp4") if bits == 4 else ("mxfp8" if group == 32 else "fp8")
        return _named(name, weights_alone, "fp8" if bits == 4 and activation_bits == 8 else "")
    if kind == "int" and type(bits) is int:
        recipe = "bf16" if weights_alone else "int8"
        if not weights_alone and isinstance(activations, Mapping) and activations.get("type") == "float":
            recipe = "fp8"
        return _of_integers(bits, group, weights.get("symmetric") is not False, recipe, where)
    got = f"{short(bits)} bits of type {short(kind)}"
    raise InputError(f"{where}.weights", got, "num_bits 4 or 8 of type int or float", _FIX)


def _of_algorithm(quantization: Mapping[str, Any], place: str) -> Mapping[str, WeightFormat]:
    """Return class of tensors → format of ModelOpt, of all layers or layer by layer."""
    layers = quantization.get("quantized_layers")
    if isinstance(layers, Mapping) and layers:
        formats: dict[str, WeightFormat] = {}
        for name, row in layers.items():
            tensors = module_class(str(name))
            if tensors in CLASSES and tensors not in formats:
                formats[tensors] = _algorithm(_table(row), place)
        return formats
    if quantization.get("quant_algo") in (None, "", "NO_QUANT"):
        return {}
    return dict.fromkeys(CLASSES, _algorithm(quantization, place))


def _algorithm(row: Mapping[str, Any], place: str) -> WeightFormat:
    """Return the format of a ``quant_algo`` of ModelOpt."""
    name, algorithms = row.get("quant_algo"), TABLE["algorithms"]
    algorithm = algorithms.get(name.upper()) if isinstance(name, str) else None
    if algorithm is None:
        raise InputError(f"{place}.quant_algo", short(name), ", ".join(algorithms), _FIX)
    if "format" in algorithm:
        return _named(algorithm["format"], bool(algorithm.get("weights_alone")), algorithm.get("activations", ""))
    group = row.get("group_size")
    group = group if type(group) is int else algorithm.get("group", 0)
    return _of_integers(algorithm["bits"], group, True, algorithm.get("activations", "bf16"), place)


def _of_bitsandbytes(quantization: Mapping[str, Any], place: str) -> WeightFormat:
    """Return the format of bitsandbytes: 8 bits, or 4 in blocks of 64; both are widened to 16 bits."""
    if is_set(quantization.get("load_in_4bit")) or quantization.get("_load_in_4bit") is True:
        return _named("nf4_double" if is_set(quantization.get("bnb_4bit_use_double_quant")) else "nf4", True)
    if is_set(quantization.get("load_in_8bit")) or quantization.get("_load_in_8bit") is True:
        return _named("int8", True)
    raise InputError(f"{place}.load_in_4bit", "neither load_in_4bit nor load_in_8bit", "one of them true", _FIX)


def _of_quark(quantization: Mapping[str, Any], place: str) -> WeightFormat:
    """Return the format of AMD Quark."""
    scheme = _table(quantization.get("global_quant_config"))
    weight, activations = scheme.get("weight"), scheme.get("input_tensors")
    weight = weight[0] if isinstance(weight, list) and weight else weight
    dtype = _table(weight).get("dtype")
    name = TABLE["quark"].get(dtype) if isinstance(dtype, str) else None
    if name is None:
        raise InputError(f"{place}.global_quant_config.weight.dtype", short(dtype), ", ".join(TABLE["quark"]), _FIX)
    return _named(name, weights_alone=not isinstance(activations, Mapping | list) or name == "mxfp4")


def _cache_bytes(quantization: Mapping[str, Any]) -> float | None:
    """Return the bytes per element of the cache that a checkpoint has scales for, None without any."""
    scheme, name = _table(quantization.get("kv_cache_scheme")), quantization.get("kv_cache_quant_algo")
    if scheme.get("num_bits") in (4, 8):
        return float(scheme["num_bits"]) / 8.0
    if isinstance(name, str) and name.upper() in ("FP8", "INT8"):
        return 1.0
    return 0.5625 if isinstance(name, str) and name.upper() == "NVFP4" else None


# Values of a table


def _table(value: object) -> Mapping[str, Any]:
    """Return a table, an empty one for another value."""
    return value if isinstance(value, Mapping) else {}


def _strings(value: object) -> list[str]:
    """Return the texts of a list, empty for another value."""
    return [text for text in value if isinstance(text, str)] if isinstance(value, list) else []


def _first(quantization: Mapping[str, Any], keys: Iterable[str], default: Any) -> Any:
    """Return the first value of some keys, a dot for a table within; ``default`` without one."""
    for key in keys:
        value: Any = quantization
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            return value
    return default


def _integer(quantization: Mapping[str, Any], keys: Sequence[str], default: int, place: str) -> int:
    """Return the whole number at the first of some keys; InputError for another value."""
    value = _first(quantization, keys, default)
    if type(value) is not int or not -1 <= value <= 1 << 20:
        raise InputError(f"{place}.{keys[0]}", short(value), "a whole number", _FIX)
    return value
