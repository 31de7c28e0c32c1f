"""Common options of serving engines: lengths, drafts, experts, weight formats, processes on several nodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import NormalDist
from typing import Any

from dse.designs import catalog
from dse.errors import InputError
from dse.tools.checkpoints import FP8_FORMATS, format_leaves, model_format, option_format
from dse.tools.options import (
    CACHE_TOKENS,
    CHECKPOINT,
    CHIP,
    CONTEXT,
    DRAFT_LAYERS,
    CompositeOption,
    Lookup,
    OptionRule,
    Pairs,
    Tool,
    degrees,
    hosts,
    is_on,
    number,
)
from dse.tools.rows import read_tool, table
from dse.types import Precision, WideOption
from dse.types.choices import EIGHT_BITS, INT4_BYTES, WEIGHTS_ALONE

HOST_CACHE = "mapping.cache_tiers.host_cache"

SERVING, ENGINE, REQUESTS = "mapping.serving.", "software.engine.", "workload.requests."


#: Share of the requests that may be longer than the longest that an engine takes, of each length.
_TAIL_PROBABILITY = 1e-3

#: Length of the longest over the mean, where no spread is stated.
_DEFAULT_TAIL_RATIO = 4.0

#: Tokens of a block of a cache, of which that of any engine is a part.
_BLOCK_TOKENS = 64.0


def mean_request_tokens(leaf: Lookup) -> float:
    """Return the number of tokens of a mean prompt and a mean answer together."""
    return (leaf(f"{REQUESTS}prompt_tokens") or 0.0) + (leaf(f"{REQUESTS}output_tokens") or 0.0)


def longest_prompt(leaf: Lookup) -> tuple[float, str]:
    """Return the number of tokens of the longest prompt, and the reason as text."""
    return _tail_length(leaf(f"{REQUESTS}prompt_tokens") or 0.0, leaf(f"{REQUESTS}length_spread"), "prompt")


def _longest_answer(leaf: Lookup) -> tuple[float, str]:
    """Return the number of tokens of the longest answer, and the reason as text."""
    mean, limit = leaf(f"{REQUESTS}output_tokens") or 0.0, leaf(f"{REQUESTS}longest_answer") or 0.0
    if limit > mean:
        return limit, "the longest answer"
    return _tail_length(mean, leaf(f"{REQUESTS}answer_spread"), "answer")


def _tail_length(mean: float, spread: float | None, what: str) -> tuple[float, str]:
    """Return the tokens that one prompt or answer of a thousand exceeds, and the reason as text.

    Without a ``spread`` it is a multiple of the mean.
    Lengths have a lognormal distribution with ``spread`` as relative standard deviation. With ``v = ln(1 + spread^2)``
    the length is ``mean exp(z sqrt(v) - v / 2)``, ``z`` the quantile of the normal distribution.
    """
    if not spread:
        return _DEFAULT_TAIL_RATIO * mean, f"{_DEFAULT_TAIL_RATIO:g} x the mean {what}"
    variance = math.log1p(spread * spread)
    length = mean * math.exp(NormalDist().inv_cdf(1.0 - _TAIL_PROBABILITY) * math.sqrt(variance) - 0.5 * variance)
    return max(length, mean), f"the 99.9th percentile of {what}s"


def longest_request(leaf: Lookup, max_tokens: float = math.inf) -> tuple[float, str]:
    """Return the tokens of the longest prompt and answer that an engine is started for, and the reason as text.

    The tokens are whole blocks, up to the context of the model, to the room in the cache of a rank, and to
    ``max_tokens``. They are no fewer than those of a mean request: a limit below it shows when the engine starts.

    Args:
        leaf: look-up of the leaves of the design.
        max_tokens: maximum number of tokens, the limit of a step.
    """
    (prompt, prompt_reason), (answer, answer_reason) = longest_prompt(leaf), _longest_answer(leaf)
    context, room = leaf(CONTEXT), leaf(CACHE_TOKENS)
    limits = (
        (math.inf if context is None else context, "the context of the model"),
        (math.inf if room is None else room, "what the cache of a rank has room for"),
        (max_tokens, "the limit of a step"),
    )
    block_tokens, mean = (
        _BLOCK_TOKENS * math.ceil((prompt + answer) / _BLOCK_TOKENS),
        float(math.ceil(mean_request_tokens(leaf))),
    )
    limit, limit_text = min(limits)
    if limit < mean:
        return mean, f"the mean prompt and answer, which exceed {limit_text} ({limit:.0f} tokens)"
    reason = f"{prompt_reason} and {answer_reason}"
    if not (leaf(f"{REQUESTS}length_spread") and leaf(f"{REQUESTS}answer_spread")):
        reason += " (state length_spread and answer_spread for 99.9th percentiles)"
    tokens = max(float(math.floor(min(block_tokens, limit))), mean)
    return tokens, f"{reason}, up to {limit_text}" if block_tokens > tokens else reason


def engine(
    name: str,
    length_name: str,
    code: Mapping[str, OptionRule | tuple[OptionRule, ...]],
    ranks: Callable[[Lookup], float],
    max_tokens: Callable[[Lookup], float] = lambda leaf: math.inf,
    notes: tuple[Callable[[Lookup], str], ...] = (),
    **fields: Any,
) -> Tool:
    """Return the tool of an engine, with the option for the longest sequence, and notes on drafts and nodes.

    Args:
        name: of the tool, and of its table, whose ``texts`` its notes say.
        length_name: option for the maximum sequence length in tokens.
        code: name in the table → rule in Python.
        ranks: gives the devices of a replica from a look-up of leaves.
        max_tokens: gives the limit of a step in tokens.
        notes: further notes.
        **fields: as of :func:`dse.tools.options.read_tool`.
    """
    texts = table(name)["texts"]

    def write_length(leaf: Lookup) -> Pairs:
        return [(length_name, number(longest_request(leaf, max_tokens(leaf))[0]))]

    def length_comment(leaf: Lookup) -> str:
        return f"{length_name}: {longest_request(leaf, max_tokens(leaf))[1]}"

    def draft_note(leaf: Lookup) -> str:
        if "draft_model" not in texts or not draft_tokens(leaf) or has_draft_layers(leaf):
            return ""
        return f"the model has no layers that predict further tokens: name what drafts, {texts['draft_model']}"

    def node_note(leaf: Lookup) -> str:
        nodes, devices_per_host = hosts(leaf)
        replica_nodes = -(-int(ranks(leaf)) // devices_per_host)
        if ranks(leaf) > devices_per_host:
            start = texts["nodes"].format(nodes=replica_nodes)
            return f"{ranks(leaf):g} devices of one replica are on {replica_nodes} nodes of {devices_per_host}: {start}"
        return f"{nodes} nodes of {devices_per_host}: {texts['replicas']}" if nodes > 1 and "replicas" in texts else ""

    length = CompositeOption((f"{REQUESTS}prompt_tokens", f"{REQUESTS}output_tokens"), write_length)
    return read_tool(
        name,
        {"length": length, **code},
        value_comments=(length_comment,),
        notes=(draft_note, *notes, node_note),
        **fields,
    )


DRAFTS = (f"{SERVING}drafts", f"{SERVING}acceptance")  # engines have no option for the acceptance


def draft_tokens(leaf: Lookup) -> float:
    """Return the number of drafted tokens; InputError for a design with a fractional mean."""
    tokens = leaf(DRAFTS[0]) or 0.0
    if tokens != round(tokens):
        raise InputError(
            "drafts",
            f"{tokens:g}",
            "a whole number of tokens for an engine",
            f"set drafts={int(tokens)} or drafts={int(tokens) + 1}",
        )
    return tokens


def has_draft_layers(leaf: Lookup) -> bool:
    """True for a design whose model has layers of multi-token prediction."""
    return bool(leaf("workload.experts.n_predict") or leaf(DRAFT_LAYERS))


def token_count(text: str, name: str) -> float:
    """Return the number of tokens that the text of an option states; ValueError for another text."""
    value = float(text)
    if value != int(value) or value < 0.0:
        raise ValueError(f"{name} {text} is not a number of tokens")
    return value


def replica_devices(leaf: Lookup) -> float:
    """Return the number of devices of one data-parallel rank."""
    return math.prod(degrees(leaf, "tp", "pp"))


def has_attention_dp(leaf: Lookup) -> bool:
    """True where data-parallel ranks of attention share experts, whole or in width, or dense layers; no replicas."""
    dp, ep, etp, tp, dense_tp = degrees(leaf, "dp", "experts.ep", "experts.etp", "tp", "slices.dense_tp")
    return dp > 1.0 and max(ep * etp, dense_tp) > tp


COPIES, BALANCE, OVERLAP = (f"{SERVING}{name}" for name in ("redundant_experts", "expert_balance", "step_overlap"))
GRAPHS, ORDER, TIMEOUT, BATCHING = (
    f"{SERVING}{name}" for name in ("graphs", "prompt_balance", "prompt_timeout", "prompt_batching")
)
_EP, _EXPERT_COUNT = "mapping.experts.ep", "workload.experts.n_experts"

#: Options → ranks with tokens of their own that share experts, 1 for none.
Ranks = Callable[[Mapping[str, str]], float]


def wide_experts(
    overlap: str,
    write: Callable[[bool, float, float], Pairs | None],
    read: Callable[[Mapping[str, str]], tuple[bool | None, float | None]],
    ranks: Ranks,
) -> CompositeOption:
    """Return the rule of balanced experts, their copies, and two-batch overlap.

    On many ranks a line that says nothing has none of them. Overlap is read where ranks exchange tokens.

    Args:
        overlap: switch for steps in two halves, "" for an engine without one.
        write: (whether experts are balanced, redundant experts, experts) → options, None for values without any.
        read: options → (whether they say that experts are balanced, redundant experts that they state), None for
            what they leave open.
        ranks: of experts.
    """

    def write_policy(leaf: Lookup) -> Pairs | None:
        from dse.model.serving.policy import expert_copies, is_balanced

        ep, n_experts = leaf(_EP), leaf(_EXPERT_COUNT)
        balance, copies = leaf(BALANCE), leaf(COPIES)
        if not ep or not n_experts or balance is None or copies is None:
            return []
        is_placed = bool(is_balanced(balance, copies, ep))
        pairs = write(is_placed, float(expert_copies(balance, copies, ep, n_experts)), n_experts)
        halves = _halves(leaf, ep)
        if pairs is None or (halves and not (overlap and has_attention_dp(leaf))):
            return None
        return [*pairs, *([(overlap, "")] if halves else [])]

    def read_policy(options: Mapping[str, str]) -> dict[str, float]:
        meeting, (balanced, copies) = ranks(options), read(options)
        halves = is_on(options, overlap) if overlap in options and meeting > 1.0 else None
        if _is_wide(meeting):
            copies = 0.0 if copies is None and not balanced else copies
            balanced, halves = bool(balanced), bool(halves)
        stated = {BALANCE: balanced, COPIES: copies, OVERLAP: halves}
        return {path: float(value) for path, value in stated.items() if value is not None}

    return CompositeOption((COPIES, BALANCE, OVERLAP), write_policy, read_policy)


def _halves(leaf: Lookup, ep: float) -> bool:
    """True for a design whose steps are in two halves: as stated, or on many ranks with attention of their own."""
    from dse.model.serving.policy import is_on as is_on_for

    option = leaf(OVERLAP) or 0.0
    return bool(is_on_for(option, ep)) and (option == float(WideOption.on) or has_attention_dp(leaf))


def _is_wide(ranks: float) -> bool:
    """True for ranks of experts that count as many."""
    from dse.model.serving.policy import WIDE_RANKS

    return ranks >= WIDE_RANKS


_PRECISION, _WEIGHT, _EXPERT = "mapping.precision", f"{SERVING}weight_bytes", f"{SERVING}expert_bytes"
_EIGHT_BITS = tuple(map(float, EIGHT_BITS))
_SIXTEEN_BITS = (float(Precision.bf16), float(Precision.fp16))

#: Bounds of the bytes per 4-bit weight with scales: a byte per 32 for MXFP4, two and a zero point per 128 for AWQ.
_FOUR_BITS_FROM, _FOUR_BITS_TO = 0.5, 0.56


def _is_four_bits(bytes_per_weight: float) -> bool:
    """True for bytes per weight of a 4-bit format with its scales."""
    return _FOUR_BITS_FROM < bytes_per_weight < _FOUR_BITS_TO


def _is_published(checkpoint: float | None, precision: float | None, weight: float, expert: float) -> bool:
    """True where a design serves a model in the format of its checkpoint (codes; bytes of weights, 0 for none)."""
    if checkpoint == float(Precision.mxfp4):
        return precision in _SIXTEEN_BITS and not weight and _is_four_bits(expert)
    if checkpoint == float(Precision.int4):  # of a mixture its experts, of a dense model all weights
        all_in_int4 = weight == INT4_BYTES and expert in (0.0, weight)
        return precision in _SIXTEEN_BITS and (all_in_int4 or (not weight and expert == INT4_BYTES))
    widened = precision in _SIXTEEN_BITS and weight == WEIGHTS_ALONE["w8a16"]
    is_eight_bits = widened or (precision in _EIGHT_BITS and not weight)
    return checkpoint in _EIGHT_BITS and is_eight_bits and expert in (0.0, weight)


#: Options that name the model of an engine.
MODEL_OPTIONS = ("--model", "--model-path")


def stated_format(options: Mapping[str, str], *names: str) -> dict[str, float]:
    """Return path → value of the format that options, else the name of the checkpoint, state; empty for none.

    Args:
        options: option → text.
        names: options of a quantisation.
    """
    forms = [option_format(options.get(name, "")) for name in names]
    published = next(filter(None, [model_format(options.get(name, "")) for name in MODEL_OPTIONS]), "")
    fallback = next(filter(None, [option_format(options.get(name, ""), "fallbacks") for name in names]), "")
    form, chip = next(filter(None, forms), ""), options.get(CHIP, "")
    if not form:
        form = fallback if fallback and (not published or published in FP8_FORMATS) else published
    elif form == FP8_FORMATS[0] and published in FP8_FORMATS:  # an option leaves the scales to the file
        form = published
    return format_leaves(form, chip, _is_half(options, chip))


#: Options of the type of activations, and their words for fp16.
_TYPE_OPTIONS, _HALF = ("--dtype", "dtype"), ("half", "float16", "fp16")


def _is_half(options: Mapping[str, str], chip: str) -> bool:
    """True where 16-bit products are in fp16: as options say, else on a chip without bf16 (as vLLM does unasked)."""
    text = next((options[name].lower() for name in _TYPE_OPTIONS if name in options), "auto")
    has_bf16 = not chip or bool(catalog.entry("accelerator", chip).value("matrix_rate.bf16"))
    return text in _HALF or (text == "auto" and not has_bf16)


def checkpoint_format(*names: str) -> CompositeOption:
    """Return the rule of a format that an engine reads from the checkpoint, which has no option that it writes.

    It has no options, neither for that format nor for others.

    Args:
        names: options that are read.
    """
    paths = (_PRECISION, _WEIGHT, _EXPERT)

    def write(leaf: Lookup) -> Pairs | None:
        precision, *element_bytes = (leaf(path) or 0.0 for path in paths)
        return [] if _is_published(leaf(CHECKPOINT), precision, *element_bytes) else None

    return CompositeOption(paths, write, lambda options: stated_format(options, *names))


def weight_format(name: str, int8: str) -> CompositeOption:
    """Return the rule of the option for the weight format of a checkpoint, absent for a model published in it.

    Args:
        name: of the option.
        int8: the engine's name of 8-bit weights and activations; other names are common to all engines.
    """
    names = dict.fromkeys(_EIGHT_BITS, "fp8") | {float(Precision.int8): int8, float(Precision.nvfp4): "modelopt_fp4"}

    def write(leaf: Lookup) -> Pairs | None:
        weight, expert = (leaf(path) or 0.0 for path in (_WEIGHT, _EXPERT))
        if _is_published(leaf(CHECKPOINT), leaf(_PRECISION), weight, expert):
            return []
        precision = leaf(_PRECISION)
        if not weight and not expert:
            is_plain = precision is None or precision in _SIXTEEN_BITS
            return [(name, names[precision])] if precision in names else [] if is_plain else None
        if precision not in _SIXTEEN_BITS:
            return None
        if not weight and _is_four_bits(expert):
            return [(name, "mxfp4")]
        return [(name, "awq")] if _is_four_bits(weight) and expert in (0.0, weight) else None

    return CompositeOption((_PRECISION, _WEIGHT, _EXPERT), write, lambda options: stated_format(options, name))
