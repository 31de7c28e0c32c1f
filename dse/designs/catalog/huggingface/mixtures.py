"""Mixtures of experts of a configuration.

Makers of models call the same numbers by other names, and some have layers that the model of experts has not. What
cannot be represented is an InputError that names the key.
"""

from __future__ import annotations

from collections.abc import Sequence

from dse.designs.catalog.huggingface import hybrids
from dse.designs.catalog.huggingface.families import KEYS, Family
from dse.designs.catalog.huggingface.values import NOT_YET, Values, is_set, short
from dse.errors import InputError

_KEYS = KEYS["mixture"]

#: Field of a workload file, dotted → value.
Fields = dict[str, int]


def has_experts(values: Values, family: Family) -> bool:
    """True for a configuration with more than one expert.

    Raises:
        InputError: for keys of experts, stated, without their number.
    """
    count = values.integer(_KEYS["count"], minimum=0)
    is_mixture_class = any(key in values.defaults for key in _KEYS["count"])
    stated = [key for key in (*_KEYS["top_k"], *_KEYS["width"]) if values.stated(key) is not None]
    alone = next((key for key in stated if is_mixture_class or is_set(values.stated(key))), None)
    if count is None and alone is not None:
        where, got = values.place(alone), f"{short(values.stated(alone))}, without {_KEYS['count'][0]}"
        raise InputError(where, got, "the number of experts with it", f"add {' or '.join(_KEYS['count'][:3])}")
    if family.hybrid == "blocks" and not hybrids.has_expert_blocks(values):
        count = 0
    if (count or 0) > 1:
        return True
    for keys in _KEYS.values():  # experts of a dense model are 0 or 1, and their other numbers say nothing
        values.read |= {key.partition(".")[0] for key in keys if values.has(key)}
    return False


def mixture_fields(values: Values, family: Family, layers: int) -> Fields:
    """Return field → value of a mixture in addition to those of a dense decoder, without absent ones.

    Args:
        values: of the configuration.
        family: how its type tells of experts.
        layers: of the model.

    Raises:
        InputError: for layers that differ otherwise than in front and in turns, and for numbers that contradict.
    """
    return _experts(values, family) | _layers(values, layers) | _groups(values)


def predicted_tokens(values: Values) -> int:
    """Return the number of further tokens that layers of their own predict, 0 without them."""
    if values.get("use_mtp") is False:
        return 0
    return values.integer(_KEYS["predicted"], minimum=0) or 0


def _width_keys(values: Values, family: Family) -> Sequence[str]:
    """Return the keys of the width of a routed expert; where no key is for it alone, that of any feed-forward."""
    if family.expert_width:
        return (family.expert_width,)
    if any(values.has(key) or values.defaults.get(key) is not None for key in _KEYS["width"]):
        return _KEYS["width"]
    return KEYS["shape"]["ffn_hidden"]


def _experts(values: Values, family: Family) -> Fields:
    """Return field → value of the experts; InputError where a token goes to more than there are."""
    count = values.required_integer(_KEYS["count"])
    top_k = values.integer(_KEYS["top_k"])
    if top_k is None:
        where, got = values.place(_KEYS["count"]), f"{count}, without {_KEYS['top_k'][0]}"
        raise InputError(where, got, "the experts of a token with the number of all", f"add {_KEYS['top_k'][0]}")
    if top_k > count:
        allowed = f"at most {values.name(_KEYS['count'])} = {count}"
        raise InputError(values.place(_KEYS["top_k"]), str(top_k), allowed, "correct one of the two")
    width = values.required_integer(_width_keys(values, family))
    shared = width if family.one_shared else _shared_width(values, family, width)
    fields = {"experts.n_experts": count, "experts.top_k": top_k, "experts.expert_ffn": width}
    fields |= {"experts.biased": 1} if family.biased_experts else {}
    fields |= {"experts.clamped": 1} if family.clamped_experts else {}
    return fields | ({"experts.shared_ffn": shared} if shared else {})


def _shared_width(values: Values, family: Family, width: int) -> int:
    """Return the hidden width of all shared experts together, 0 for none.

    It is stated by its own key, or as so many experts of ``width``.
    """
    shared_width = values.integer(_KEYS["shared_width"], minimum=0)
    count = values.integer(_KEYS["shared_count"], minimum=0) or 0
    if values.get(*_KEYS["parallel"]) is True:  # a dense feed-forward that each token has too
        return values.required_integer(KEYS["shape"]["ffn_hidden"])
    if family.shared_switch and values.get(family.shared_switch) is False:
        return 0
    if shared_width is not None:
        return shared_width
    return count * (values.required_integer((family.shared_width,)) if family.shared_width and count else width)


def _layers(values: Values, layers: int) -> Fields:
    """Return field → number of dense layers in front, interval of expert layers, and further predicted tokens.

    Zeros are left out.
    """
    n_dense, interval = _dense_layers(values, layers)
    if interval > 1:
        n_dense = _in_turns(values, n_dense, interval, layers)
    if n_dense > layers:
        raise InputError(values.place(_KEYS["first"]), str(n_dense), f"at most {layers} layers", "correct it")
    end = values.get(*_KEYS["end"])
    if end is not None and end not in (-1, layers - 1):
        raise InputError(values.place(_KEYS["end"]), short(end), f"-1 or {layers - 1}, the last layer", NOT_YET)
    numbers = {
        "first_dense": n_dense,
        "moe_every": interval if interval > 1 else 0,
        "n_predict": predicted_tokens(values),
    }
    return {f"experts.{name}": value for name, value in numbers.items() if value}


def _dense_layers(values: Values, layers: int) -> tuple[int, int]:
    """Return the dense layers in front, and the interval of layers with experts, by numbers and lists of layers."""
    n_dense, interval = values.integer(_KEYS["first"], minimum=0) or 0, 1
    if isinstance(values.get("moe_layer_freq"), list):
        flags = values.get("moe_layer_freq")
        n_dense = _n_leading_dense(values, "moe_layer_freq", _dense_by_flag(flags, layers, (0, 1)))
    else:
        interval = values.integer(_KEYS["every"]) or 1
    if values.get("mlp_only_layers"):
        n_dense = _n_leading_dense(values, "mlp_only_layers", _dense_by_position(values.get("mlp_only_layers"), layers))
    if (kinds := values.layer_list(_KEYS["kinds"][0], layers)) is not None:
        n_dense = _n_leading_dense(values, _KEYS["kinds"][0], _dense_by_flag(kinds, layers, ("dense", "sparse")))
    enumerated = values.get("moe_layers_enum")
    listed = enumerated.split(",") if isinstance(enumerated, str) else enumerated
    key = "moe_layers_enum"
    if interval == 1 and not listed and isinstance(moe_layers := values.get("moe_layers"), list):
        key, listed = "moe_layers", moe_layers
    if isinstance(listed, list) and listed:
        by_position = _dense_by_position([_layer_number(word) for word in listed[: 2 * layers]], layers)
        dense = None if by_position is None else [not is_sparse for is_sparse in by_position]
        n_dense = _n_leading_dense(values, key, dense)
    return n_dense, interval


def _layer_number(word: object) -> object:
    """Return the number of a layer from its text, another value as it is."""
    return int(word) if isinstance(word, str) and len(word) < 10 and word.strip().isdecimal() else word


def _dense_by_flag(flags: Sequence[object], layers: int, dense_sparse: tuple[object, object]) -> list[bool] | None:
    """Return, by layer, True where it is dense, from flags for dense and sparse ones; None for another list."""
    kinds = type(dense_sparse[0])
    is_list = len(flags) == layers and all(type(flag) is kinds and flag in dense_sparse for flag in flags)
    return [flag == dense_sparse[0] for flag in flags] if is_list else None


def _dense_by_position(positions: object, layers: int) -> list[bool] | None:
    """Return, by layer, True where it is dense, from the indices of dense ones; None for another list."""
    if not isinstance(positions, list) or not all(type(layer) is int and 0 <= layer < layers for layer in positions):
        return None
    listed = {*positions}
    return [layer in listed for layer in range(layers)]


def _n_leading_dense(values: Values, key: str, dense: list[bool] | None) -> int:
    """Return the number of dense layers in front; InputError where others are dense too."""
    n_dense = 0 if dense is None else sum(dense)
    if dense is None or not all(dense[:n_dense]):
        got, allowed = short(values.get(key)), "dense layers in front alone, of all layers"
        raise InputError(values.place(key), got, allowed, NOT_YET)
    return n_dense


def _in_turns(values: Values, n_dense: int, interval: int, layers: int) -> int:
    """Return 0 dense layers in front, for experts in one layer of ``interval``; InputError where keys contradict."""
    expert_layers = values.get("moe_layers") or None
    if n_dense:
        got = f"{interval} with {n_dense} leading dense layers"
        raise InputError(values.place(_KEYS["every"]), got, "1 with leading dense layers", NOT_YET)
    by_position = None if expert_layers is None else _dense_by_position(expert_layers, layers)
    listed = expert_layers is None or by_position == [(layer + 1) % interval == 0 for layer in range(layers)]
    if layers % interval or not listed:
        key = "moe_layers" if expert_layers is not None else values.name(_KEYS["every"])
        got = short(expert_layers) if expert_layers is not None else str(interval)
        raise InputError(values.place(key), got, f"one layer in so many, of {layers}", NOT_YET)
    return 0


def _groups(values: Values) -> Fields:
    """Return the fields of groups of experts where a token may reach only some of them, else empty."""
    groups, limit = values.integer(_KEYS["groups"]) or 1, values.integer(_KEYS["group_limit"]) or 1
    if limit >= groups or values.get("topk_method") == "greedy":
        return {}
    return {"experts.n_groups": groups, "experts.group_limit": limit}
