"""Heads, windows, latent and sparse attention of a configuration."""

from __future__ import annotations

from typing import Any

from dse.designs.catalog.huggingface.families import KEYS, UNKNOWN, Family
from dse.designs.catalog.huggingface.values import NOT_YET, Values, short
from dse.errors import InputError

_SHAPE, _WINDOW, _LOCAL = KEYS["shape"], KEYS["window"], frozenset(KEYS["window"]["local"])

#: Field of a workload file, dotted for those of tables → number.
Fields = dict[str, int | float]


def heads(values: Values, numbers: dict[str, int], n_local: int, notes: list[str]) -> dict[str, int]:
    """Return the query heads, key/value heads and columns per head of grouped attention.

    A workload has one number of each for all layers. Where layers with a window have other query heads, it is the mean
    over layers, rounded to a multiple of the key/value heads; key/value heads are those of layers that attend to all,
    which hold most of the cache. Keys and values of different widths count by their mean, which has the same
    parameters, FLOPs and cache.

    Args:
        values: of the configuration.
        numbers: numbers of its shape.
        n_local: layers with a window.
        notes: sentences, to which those on differences are added.

    Raises:
        InputError: for heads that do not divide, and for other widths in some layers.
    """
    layers, n_heads = numbers["n_layers"], numbers["n_heads"]
    kv_heads = numbers.get("n_kv_heads", n_heads)
    fields = {"n_heads": n_heads, "n_kv_heads": kv_heads}
    _check_heads(values, numbers, n_heads, kv_heads)
    head_dim = numbers.get("head_dim", numbers["hidden"] // n_heads)
    value_dim = values.integer(("v_head_dim",)) or head_dim
    if n_local:
        _check_local_widths(values, head_dim, value_dim)
        local_heads, local_kv = values.integer(_WINDOW["heads"]), values.integer(_WINDOW["kv_heads"])
        if local_heads is not None and local_heads != n_heads:
            mean = (n_local * local_heads + (layers - n_local) * n_heads) / layers
            fields["n_heads"] = max(round(mean / kv_heads), 1) * kv_heads
            notes.append(
                f"layers with a window have {local_heads} query heads, the others {n_heads}: {fields['n_heads']} in all"
            )
        if local_kv is not None and local_kv != kv_heads:
            more = n_local * (local_kv - kv_heads) * numbers["hidden"] * (head_dim + value_dim)
            notes.append(
                f"layers with a window have {local_kv} key/value heads, the others {kv_heads}, which count: "
                f"{abs(more) / 1e6:,.0f} million parameters {'fewer' if more > 0 else 'more'} than the model has"
            )
    if value_dim != head_dim:
        if (head_dim + value_dim) % 2:
            raise InputError(values.place("v_head_dim"), str(value_dim), f"an even sum with {head_dim}", NOT_YET)
        notes.append(
            f"heads have {head_dim} columns of keys and {value_dim} of values: {(head_dim + value_dim) // 2} each"
        )
        fields["head_dim"] = (head_dim + value_dim) // 2
    elif "head_dim" in numbers:
        fields["head_dim"] = head_dim
    if "n_kv_heads" not in numbers:
        fields.pop("n_kv_heads")
    return fields


def _check_heads(values: Values, numbers: dict[str, int], n_heads: int, kv_heads: int) -> None:
    """Raise InputError for heads that key/value heads, or a width that heads, do not divide."""
    if n_heads % kv_heads:
        where, allowed = values.place(_SHAPE["n_kv_heads"]), f"divisors of {values.name(_SHAPE['n_heads'])} = {n_heads}"
        raise InputError(where, str(kv_heads), allowed, "correct one of the two")
    if "head_dim" not in numbers and numbers["hidden"] % n_heads:
        hidden, allowed = numbers["hidden"], f"multiples of {values.name(_SHAPE['n_heads'])} = {n_heads}"
        raise InputError(values.place(_SHAPE["hidden"]), str(hidden), allowed, "add head_dim")


def _check_local_widths(values: Values, head_dim: int, value_dim: int) -> None:
    """Raise InputError for heads of another width in layers with a window."""
    for keys, width in ((_WINDOW["head_dim"], head_dim), (_WINDOW["v_head_dim"], value_dim)):
        local_width = values.integer(keys)
        if local_width is not None and local_width != width:
            raise InputError(values.place(keys), str(local_width), f"{width}, as in the other layers", NOT_YET)


def latent(values: Values) -> dict[str, int]:
    """Return field → ranks and columns of latent attention, empty without it.

    A query or key has columns with and without rotation.

    Raises:
        InputError: where a configuration has some of the keys of latent attention only.
    """
    if values.get("kv_lora_rank") is None:
        if values.get("q_lora_rank") is not None:
            raise InputError(
                values.place("q_lora_rank"),
                short(values.get("q_lora_rank")),
                "kv_lora_rank with it",
                "add kv_lora_rank",
            )
        return {}
    numbers = values.part("latent")
    values.read |= {"head_dim", "qk_head_dim", *_SHAPE["n_kv_heads"]} & {*values.config}
    return {
        "head_dim": numbers["nope_dim"] + numbers["rope_dim"],
        "latent.q_rank": values.integer(("q_lora_rank",), minimum=0) or 0,
        "latent.kv_rank": numbers["kv_rank"],
        "latent.rope_dim": numbers["rope_dim"],
        "latent.v_dim": numbers["v_dim"],
    }


def sparse(values: Values, is_latent: bool) -> dict[str, int]:
    """Return the fields of an indexer that picks the tokens attended to, empty without one.

    Raises:
        InputError: for an indexer without some of its keys, and for one beside other than latent attention.
    """
    if values.get("index_topk") is None:
        return {}
    if not is_latent:
        got = f"{short(values.get('index_topk'))}, without kv_lora_rank"
        raise InputError(values.place("index_topk"), got, "an indexer of latent attention", NOT_YET)
    return {f"sparse.{field}": number for field, number in values.part("sparse").items()}


def local_layers(values: Values, family: Family, layers: int, longest: int, notes: list[str]) -> tuple[int, int]:
    """Return the window in tokens and the number of layers with it, zeros without one or for one of any context.

    Args:
        values: of the configuration.
        family: what its type says of the layers with a window.
        layers: of the model.
        longest: context in tokens.
        notes: sentences, to which that on a guess is added.

    Raises:
        InputError: for lists of another length, and for kinds of layers that dse does not know.
    """
    tokens = values.integer(_WINDOW["tokens"], minimum=-1) or 0
    kinds, switch = _kinds(values, layers), values.get("use_sliding_window")
    if tokens <= 0 or switch is False:
        values.read |= {"max_window_layers", *_WINDOW["interval"], *_WINDOW["flags"]} & {*values.config}
        if any(kind in _LOCAL for kind in kinds) and switch is not False:
            got = f"layers with a window, without {_WINDOW['tokens'][0]}"
            raise InputError(values.place(_WINDOW["kinds"]), got, "a window in tokens", f"add {_WINDOW['tokens'][0]}")
        return 0, 0
    n_local = _n_local(values, family, layers, kinds, notes)
    return (tokens, n_local) if n_local and tokens < longest else (0, 0)


def _kinds(values: Values, layers: int) -> list[Any]:
    """Return the kinds of the layers that attend, empty where nothing says them; layers that draft are not counted."""
    for key in _WINDOW["kinds"]:
        kinds = values.get(key)
        drafting = values.integer(KEYS["mixture"]["predicted"], minimum=0) or 0
        if isinstance(kinds, list) and layers < len(kinds) == layers + drafting:
            return kinds[:layers]
        if (listed := values.layer_list(key, layers)) is not None:
            return listed
    return []


def check_kinds(values: Values, layers: int, states: frozenset[str]) -> None:
    """Raise InputError for a kind of layer that neither attends nor is one of the ``states`` of a hybrid."""
    known = {*_WINDOW["full"], *_LOCAL, *states}
    for kind in _kinds(values, layers):
        if not isinstance(kind, str) or kind not in known:
            allowed = f"{_WINDOW['full'][0]}, {', '.join(sorted({_WINDOW['local'][0], *states}))}"
            raise InputError(values.place(_WINDOW["kinds"]), f"{short(kind)}, a kind of layer", allowed, NOT_YET)
    flags = values.get("attn_type_list")
    if not states and flags is not None and not (isinstance(flags, list) and all(flag == 1 for flag in flags)):
        raise InputError(values.place("attn_type_list"), short(flags), "a list of 1, layers that attend", NOT_YET)


def _n_local(values: Values, family: Family, layers: int, kinds: list[Any], notes: list[str]) -> int:
    """Return the number of layers with a window, by a list of layers, an interval, or the family."""
    if kinds:
        return sum(kind in _LOCAL for kind in kinds)
    if (flags := values.layer_list(_WINDOW["flags"][0], layers)) is not None:
        if any(type(flag) is not int or flag not in (0, 1) for flag in flags):
            raise InputError(values.place(_WINDOW["flags"]), short(flags), "a list of 0 and 1 (a window)", NOT_YET)
        return sum(flags)
    pattern = values.get(*_WINDOW["interval"])
    if isinstance(pattern, str) and pattern and {*pattern.upper()} <= {"L", "G"}:  # local and global, in turns
        return sum(pattern[layer % len(pattern)].upper() == "L" for layer in range(layers))
    if interval := values.integer(_WINDOW["interval"], minimum=0):
        return layers - layers // interval
    if family.local == "late":  # only where it is asked for, from one layer on
        if values.get("use_sliding_window") is not True:
            return 0
        first_layer = values.integer(("max_window_layers",), minimum=0)
        return layers if first_layer is None else max(layers - first_layer, 0)
    if family is UNKNOWN:
        notes.append("no key says which layers have the window: all of them, as in Mistral")
    if not family.local and family is not UNKNOWN:
        return 0
    interval = int(family.local.rpartition(" ")[2]) if " of " in family.local else 0
    return layers - layers // interval if interval else layers


def scales_rotary(values: Values) -> bool:
    """True where a key stretches rotary positions by YaRN with an attention factor other than 1.

    ``0.1 m ln f + 1`` over the same of ``m_all`` (Peng et al. 2023, equation 22; ``_compute_yarn_parameters`` of
    Transformers), so 1 where both are equal. Attention on compressed keys has a kernel that scales them too.
    """
    scalings = [values.get(name) for name in KEYS["lengths"]["original"]]
    for scaling in (scaling for scaling in scalings if isinstance(scaling, dict)):
        if "yarn" in (scaling.get("rope_type"), scaling.get("type")):
            mscale = scaling.get("mscale")
            return not mscale or mscale != scaling.get("mscale_all_dim")
    return False
