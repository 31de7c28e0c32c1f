"""Shapes of models as options of Megatron-LM, with what its parser computes where they are absent.

Defaults are those of ``validate_args`` in megatron/training/arguments.py; they complete a shape where the options
state layers and hidden size, so that options of a mapping alone say nothing of a shape.
"""

from __future__ import annotations

import fnmatch
import functools
import math
from collections.abc import Mapping

from dse.tools.layouts import layer_kinds
from dse.tools.options import (
    N_LAYERS,
    CompositeOption,
    Lookup,
    Pairs,
    degrees,
    is_dense,
    is_on,
    number,
    option_number,
)
from dse.tools.rows import table

_EXPERTS, _LATENT = "workload.experts.", "workload.latent."
_Options = Mapping[str, str]


def _has_shape(options: _Options) -> bool:
    """True where options state a model, of which the parser computes the rest."""
    return "--num-layers" in options and "--hidden-size" in options


# --- attention --------------------------------------------------------------------------------------------

_HEAD_SIZES = (
    "workload.head_dim",
    *(f"{_LATENT}{name}" for name in ("rope_dim", "q_rank", "kv_rank", "v_dim")),
)


def _head_sizes(leaf: Lookup) -> Pairs:
    """Return the columns of a head as options, with latent attention its ranks and its rotary and other columns."""
    size, rotated = leaf("workload.head_dim") or 0.0, leaf(f"{_LATENT}rope_dim")
    if rotated is None:
        return [("--kv-channels", number(size))]
    sizes = [("--qk-head-dim", number(size - rotated)), ("--qk-pos-emb-head-dim", number(rotated))]
    names = {"--q-lora-rank": "q_rank", "--kv-lora-rank": "kv_rank", "--v-head-dim": "v_dim"}
    values = [(option, leaf(f"{_LATENT}{name}") or 0.0) for option, name in names.items()]
    return [("--multi-latent-attention", ""), *sizes, *((option, number(value)) for option, value in values if value)]


def _read_head_sizes(options: _Options) -> dict[str, float]:
    """Return path → columns of a head and ranks of latent attention that options state.

    Defaults of latent attention: ``_add_mla_args``.
    """
    hidden, heads = option_number(options, "--hidden-size"), option_number(options, "--num-attention-heads")
    if is_on(options, "--multi-latent-attention"):
        rotated = option_number(options, "--qk-pos-emb-head-dim") or 64.0
        return {
            "workload.head_dim": (option_number(options, "--qk-head-dim") or 128.0) + rotated,
            f"{_LATENT}rope_dim": rotated,
            f"{_LATENT}q_rank": option_number(options, "--q-lora-rank") or 0.0,
            f"{_LATENT}kv_rank": option_number(options, "--kv-lora-rank") or 32.0,
            f"{_LATENT}v_dim": option_number(options, "--v-head-dim") or 128.0,
        }
    size = option_number(options, "--kv-channels")
    if size is None and hidden is not None and heads is not None:
        size = hidden / heads
    return {} if size is None else {"workload.head_dim": size}


_WINDOW = ("workload.window", "workload.local_layers")


def _window(leaf: Lookup) -> Pairs | None:
    """Return the window of local layers as options; None for shares of layers other than all and 1 - 1 / n."""
    window, local_share = map(leaf, _WINDOW)
    if not window or not local_share:
        return []
    pairs = [("--window-size", f"{number(window)},0")]
    interval = math.inf if local_share >= 1.0 else 1.0 / (1.0 - local_share)
    if interval == math.inf:
        return pairs
    if not math.isclose(interval, round(interval), rel_tol=0.02):
        return None
    return [*pairs, ("--window-attn-skip-freq", number(round(interval)))]


def _read_window(options: _Options) -> dict[str, float]:
    """Return path → window and share of local layers that options state.

    ``--window-attn-skip-freq n`` has one layer with all of the sequence in n.
    """
    window = float(options.get("--window-size", "").strip("()[] ").replace(",", " ").partition(" ")[0] or 0.0)
    if window <= 0.0:
        return {}
    text = options.get("--window-attn-skip-freq", "")
    if "[" in text or " " in text:
        kinds = layer_kinds(text if "[" in text else f"[{text.replace(' ', ',')}]")
        local_share = sum(map(bool, kinds)) / max(len(kinds), 1)
    else:
        local_share = 1.0 - 1.0 / float(text) if text else 1.0
    return dict(zip(_WINDOW, (window, local_share), strict=True))


# --- feed-forward and experts -----------------------------------------------------------------------------


def _ffn(leaf: Lookup) -> Pairs:
    """Return the width of a dense feed-forward as an option."""
    return [("--ffn-hidden-size", number(leaf("workload.ffn_hidden") or 0.0))]


def _ffn_width(options: _Options) -> float | None:
    """Return the width of a dense feed-forward, None where options state none.

    4 times the hidden size, or with ``--swiglu`` 8 / 3 times in whole multiples of 64.
    """
    hidden = option_number(options, "--hidden-size")
    if "--ffn-hidden-size" in options or hidden is None or not _has_shape(options):
        return option_number(options, "--ffn-hidden-size")
    return math.floor(8.0 * hidden / 3.0 / 64.0) * 64.0 if is_on(options, "--swiglu") else 4.0 * hidden


def _read_ffn(options: _Options) -> dict[str, float]:
    """Return path → width of a dense feed-forward."""
    width = _ffn_width(options)
    return {} if width is None else {"workload.ffn_hidden": width}


def _expert_ffn(leaf: Lookup) -> Pairs:
    """Return the width of an expert as an option."""
    width = leaf(f"{_EXPERTS}expert_ffn")
    return [] if width is None else [("--moe-ffn-hidden-size", number(width))]


def _read_expert_ffn(options: _Options) -> dict[str, float]:
    """Return path → width of an expert, without a stated one that of a dense feed-forward."""
    if is_dense(options):
        return {}
    width = option_number(options, "--moe-ffn-hidden-size")
    if width is None and is_on(options, "--num-experts"):
        width = _ffn_width(options)
    return {} if width is None else {f"{_EXPERTS}expert_ffn": width}


def _expert_layers(leaf: Lookup) -> Pairs | None:
    """Return the layers with experts as options, empty for all, None for dense ones in front and in turns."""
    n_dense, interval = leaf(f"{_EXPERTS}first_dense"), leaf(f"{_EXPERTS}moe_every") or 1.0
    if n_dense is None or (n_dense == 0.0 and interval == 1.0):
        return []
    if n_dense == 0.0:
        return [("--moe-layer-freq", number(interval))]
    expert_layers = (leaf("workload.n_layers") or 0.0) - n_dense
    return [("--moe-layer-freq", f"([0]*{number(n_dense)}+[1]*{number(expert_layers)})")] if interval == 1.0 else None


def _read_expert_layers(options: _Options) -> dict[str, float]:
    """Return path → leading dense layers and interval of layers with experts.

    ValueError for a list that is neither dense layers in front nor one layer of experts in n.
    """
    text = options.get("--moe-layer-freq", "").strip("'\" ")
    if not text or is_dense(options):
        return {}
    text = f"[{text.replace(' ', ',')}]" if " " in text and "[" not in text else text  # a list of a configuration
    if "[" not in text:
        return {f"{_EXPERTS}first_dense": 0.0, f"{_EXPERTS}moe_every": float(text)}
    kinds = layer_kinds(text)
    n_dense = kinds.index(1) if 1 in kinds else len(kinds)
    if all(kinds[n_dense:]) and n_dense < len(kinds):
        return {f"{_EXPERTS}first_dense": float(n_dense), f"{_EXPERTS}moe_every": 1.0}
    interval = len(kinds) / max(sum(kinds), 1)
    if sum(kinds) and interval == int(interval) and kinds == kinds[: int(interval)] * sum(kinds):
        return {f"{_EXPERTS}first_dense": 0.0, f"{_EXPERTS}moe_every": interval}
    raise ValueError(f"--moe-layer-freq {text[:80]}: neither dense layers in front nor one layer of experts in n")


# --- vocabulary -------------------------------------------------------------------------------------------

_DIVISOR = "--make-vocab-size-divisible-by"


def _vocabulary(leaf: Lookup) -> Pairs:
    """Return the vocabulary as options, with the largest multiple up to 128 that pads it by nothing."""
    vocab, (tp,) = leaf("workload.vocab") or 0.0, degrees(leaf, "tp")
    divisors = [divisor for divisor in (128.0, 64.0, 32.0, 16.0, 8.0, 4.0, 2.0, 1.0) if vocab % (divisor * tp) == 0.0]
    pairs = [("--vocab-size", number(vocab))]
    return [*pairs, (_DIVISOR, number(divisors[0]))] if divisors and divisors[0] < 128.0 else pairs


@functools.cache
def _tokenizers() -> dict[str, float]:
    """Return pattern of a tokenizer's type or model, in small letters → its vocabulary."""
    return {pattern: float(vocab) for pattern, vocab in table("megatron-lm")["tokenizers"].items()}


def _tokenizer_vocab(options: _Options) -> float | None:
    """Return the vocabulary of the tokenizer that options name, None for an unknown one."""
    kind, model = (options.get(name, "").strip("\"'").lower() for name in ("--tokenizer-type", "--tokenizer-model"))
    return next(
        (
            vocab
            for pattern, vocab in _tokenizers().items()
            if any(fnmatch.fnmatchcase(n, pattern) for n in (kind, model))
        ),
        None,
    )


def _read_vocabulary(options: _Options) -> dict[str, float]:
    """Return path → vocabulary, padded where options state to what.

    ``_vocab_size_with_padding`` of megatron/training/tokenizer/tokenizer.py: to a multiple of divisor times tp. The
    empty tokenizer of benchmarks adds one token, the end of a document.
    """
    vocab, by_tokenizer = option_number(options, "--padded-vocab-size"), _tokenizer_vocab(options)
    if vocab is not None:
        return {"workload.vocab": vocab}
    vocab = option_number(options, "--vocab-size")
    if vocab is None and _has_shape(options):
        vocab = by_tokenizer
    if vocab is None:
        return {}
    vocab += float(options.get("--tokenizer-type", "") == "NullTokenizer")
    divisor = option_number(options, _DIVISOR)
    multiple = (divisor or 1.0) * (option_number(options, "--tensor-model-parallel-size") or 1.0)
    return {"workload.vocab": vocab if divisor is None else math.ceil(vocab / multiple) * multiple}


# --- dropout ----------------------------------------------------------------------------------------------

_DROPOUTS = ("--attention-dropout", "--hidden-dropout")


def _dropout(leaf: Lookup) -> Pairs:
    """Return dropout that is off as options, since both are 0.1 by default."""
    return [(name, "0.0") for name in _DROPOUTS] if leaf("workload.dropout") == 0.0 else []


def _read_dropout(options: _Options) -> dict[str, float]:
    """Return path → 1 for any dropout, 0 for none; empty unless options state both."""
    shares = [share for name in _DROPOUTS if (share := option_number(options, name)) is not None]
    return {"workload.dropout": float(any(shares))} if len(shares) == len(_DROPOUTS) or any(shares) else {}


def layer_count(options: _Options) -> float | None:
    """Return the number of layers of the model, None where neither options nor the model are known."""
    return option_number(options, "--num-layers") or option_number(options, N_LAYERS)


#: Name in the tables → rule.
SHAPE_RULES = {
    "head_sizes": CompositeOption(_HEAD_SIZES, _head_sizes, _read_head_sizes),
    "window": CompositeOption(_WINDOW, _window, _read_window),
    "ffn": CompositeOption(("workload.ffn_hidden",), _ffn, _read_ffn),
    "expert_ffn": CompositeOption((f"{_EXPERTS}expert_ffn",), _expert_ffn, _read_expert_ffn),
    "expert_layers": CompositeOption(
        (f"{_EXPERTS}first_dense", f"{_EXPERTS}moe_every"), _expert_layers, _read_expert_layers
    ),
    "vocabulary": CompositeOption(("workload.vocab",), _vocabulary, _read_vocabulary),
    "dropout": CompositeOption(("workload.dropout",), _dropout, _read_dropout),
}
