"""TensorRT-LLM: options, and entries of a file."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

from dse.tools.engines import (
    BATCHING,
    DRAFTS,
    HOST_CACHE,
    ORDER,
    SERVING,
    TIMEOUT,
    checkpoint_format,
    draft_tokens,
    engine,
    has_attention_dp,
    has_draft_layers,
    longest_prompt,
    longest_request,
    replica_devices,
    stated_format,
    token_count,
    wide_experts,
)
from dse.tools.options import N_EXPERTS, CompositeOption, Lookup, Pairs, degrees, is_on, memory_share, number, number_of
from dse.types.choices import PromptOrder

_ATTENTION_DP = "enable_attention_dp"


def _uses_attention_dp(leaf: Lookup) -> bool:
    """True for TensorRT-LLM's attention data parallelism: attention per rank, experts once over all ranks."""
    tp, ep, etp, dp = degrees(leaf, "tp", "experts.ep", "experts.etp", "dp")
    return has_attention_dp(leaf) and tp == 1.0 and ep * etp == dp


def _tp_size(leaf: Lookup) -> Pairs | None:
    """Return tp, or the data-parallel ranks of attention, as an option; None for attention over a part of the ranks."""
    tp, dp = degrees(leaf, "tp", "dp")
    if _uses_attention_dp(leaf):
        return [("--tp_size", number(dp))]
    if has_attention_dp(leaf):
        return None
    return [("--tp_size", number(tp))] if tp > 1.0 else []


def _attention_dp_entry(leaf: Lookup) -> Pairs | None:
    """Return attention data parallelism as an entry, empty for one rank, None for other replicas."""
    if _uses_attention_dp(leaf):
        return [(_ATTENTION_DP, "true")]
    return None if degrees(leaf, "dp") > [1.0] else []


def _entry(options: Mapping[str, str], table: str, *keys: str) -> str:
    """Return the text of the first of some keys of a table among the entries, dotted or in braces; "" for none."""
    for key in keys:
        if options.get(f"{table}.{key}"):
            return options[f"{table}.{key}"]
        if match := re.search(rf"\b{key}:\s*([^\s,}}]+)", options.get(table, "")):
            return match[1].strip("\"'")
    return ""


def _is_attention_dp(options: Mapping[str, str]) -> bool:
    """True where options state data parallelism of attention."""
    return is_on({_ATTENTION_DP: (options.get(_ATTENTION_DP, "false").split() or ["true"])[0]}, _ATTENTION_DP)


def _read_tp_size(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``tp``, and ``dp`` of attention data parallelism, that options state."""
    if not options.get("--tp_size"):
        return {}
    size = number_of(options["--tp_size"])
    return {"mapping.tp": 1.0, "mapping.dp": size} if _is_attention_dp(options) else {"mapping.tp": size}


_MOE_TP = "moe_tensor_parallel_size"


def _expert_ranks(leaf: Lookup) -> Pairs:
    """Return the ranks of whole experts as an option, empty for one."""
    ep = leaf("mapping.experts.ep")
    return [("--ep_size", number(ep))] if ep is not None and ep > 1.0 else []


def _read_expert_ranks(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ranks of whole experts, and of the width of one under data-parallel attention.

    Both multiply to all ranks of tp (``Mapping.__init__`` of ``tensorrt_llm/mapping.py``); one follows from the other.
    """
    ranks = number_of(options.get("--tp_size") or "1")
    width = number_of(options[_MOE_TP]) if options.get(_MOE_TP) else None
    ep = number_of(options["--ep_size"]) if options.get("--ep_size") else None
    if ep is None and width:
        ep = ranks / width
    is_mixture = number_of(options.get(N_EXPERTS, "1")) > 0.0
    if is_mixture and ranks > 1.0 and (ep is not None or _is_attention_dp(options)):
        width = ranks / (ep or 1.0)
        return {"mapping.experts.ep": ep or 1.0} | ({"mapping.experts.etp": width} if width > 1.0 else {})
    return {} if ep is None else {"mapping.experts.ep": ep}


def _uneven_ranks(options: Mapping[str, str]) -> str:
    """Return that ranks of experts do not divide those of tp (``Mapping`` raises), "" where they do."""
    ranks, ep = (number_of(options.get(name) or "1") for name in ("--tp_size", "--ep_size"))
    return f"--ep_size {ep:g}, which does not divide the {ranks:g} ranks of --tp_size" if ranks % ep else ""


def _replicas(leaf: Lookup) -> str:
    """Return the note that the line is one of several replicas, "" for one."""
    (dp,) = degrees(leaf, "dp")
    if dp == 1.0 or has_attention_dp(leaf):
        return ""
    return f"the line is one of {dp:g} replicas: start each on devices of its own, behind a router"


_EXPERTS_CONFIG = "moe_config"


def _balanced(is_balanced: bool, copies: float, experts: float) -> Pairs | None:
    """Return the slots of the load balancer, experts with their copies, as an entry; None for copies without it."""
    if not is_balanced:
        return None if copies else []
    return [(_EXPERTS_CONFIG, f"{{load_balancer: {{num_slots: {number(experts + copies)}}}}}")]


def _slot_count(options: Mapping[str, str]) -> str:
    """Return the text of the number of slots of the load balancer, "" where options state none."""
    return _entry(options, _EXPERTS_CONFIG, "load_balancer.num_slots", "num_slots")


def _read_balance(options: Mapping[str, str]) -> tuple[bool | None, float | None]:
    """Return whether a load balancer is there, and copies: its slots less the experts of the model, where known."""
    n_experts, slots = number_of(options.get(N_EXPERTS) or "0"), _slot_count(options)
    if not slots:
        return None, None
    return True, max(number_of(slots) - n_experts, 0.0) if n_experts else None


def _meeting_ranks(options: Mapping[str, str]) -> float:
    """Return the ranks of whole experts with tokens of their own, 1 for none."""
    return _read_expert_ranks(options).get("mapping.experts.ep", 1.0) if _is_attention_dp(options) else 1.0


_DP_CONFIG = "attention_dp_config"

#: Steps of the time-out, and further ones, where nothing is said (``AttentionDpConfig``).
_TIMEOUT_STEPS, _BATCHING_STEPS = 50.0, 10.0


def _prompts(leaf: Lookup) -> Pairs:
    """Return the balance of prompts as an entry, empty for none and for one rank of attention."""
    if leaf(ORDER) != float(PromptOrder.together) or not _uses_attention_dp(leaf):
        return []
    timeout, batching = number(leaf(TIMEOUT) or _TIMEOUT_STEPS), number(leaf(BATCHING) or 0.0)
    entry = f"{{enable_balance: true, timeout_iters: {timeout}, batching_wait_iters: {batching}}}"
    return [(_DP_CONFIG, entry)]


def _read_prompts(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → order of prompts of ranks of attention, with the steps of their time-out and further ones."""
    if _entry(options, _DP_CONFIG, "enable_balance").lower() != "true":
        return {ORDER: float(PromptOrder.independent)} if _is_attention_dp(options) else {}
    timeout, batching = (_entry(options, _DP_CONFIG, name) for name in ("timeout_iters", "batching_wait_iters"))
    return {
        ORDER: float(PromptOrder.together),
        TIMEOUT: number_of(timeout or number(_TIMEOUT_STEPS)),
        BATCHING: number_of(batching or number(_BATCHING_STEPS)),
    }


def _slots_remark(options: Mapping[str, str]) -> str:
    """Return the remark that slots of a load balancer are not read without a model, "" where they are."""
    if not _slot_count(options) or number_of(options.get(N_EXPERTS) or "0"):
        return ""
    return f"num_slots of {_EXPERTS_CONFIG} counts the experts too: set redundant_experts to the rest"


_CACHE, _SPECULATION, _LAYERS = "kv_cache_config", "speculative_config", "num_nextn_predict_layers"
_FREE_MEMORY_SHARE = memory_share(
    "--kv_cache_free_gpu_memory_fraction", f"{SERVING}memory_share", is_of_free_memory=True
)


def _cache(leaf: Lookup) -> Pairs | None:
    """Return the cache format as an entry, with the share of memory that its option would state.

    Empty for 16 bits, None for a format that TensorRT-LLM does not have.
    """
    cache_bytes = leaf(f"{SERVING}cache_bytes")
    if cache_bytes in (None, 2.0):
        return []
    share_texts = [f", free_gpu_memory_fraction: {value}" for _, value in _FREE_MEMORY_SHARE.write(leaf) or []]
    return [(_CACHE, f"{{dtype: fp8{''.join(share_texts)}}}")] if cache_bytes == 1.0 else None


#: Format of the cache → bytes per value.
_CACHE_BYTES = {"fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625, "auto": 2.0, "bfloat16": 2.0, "float16": 2.0}


#: Switches of the conversion of a checkpoint → format of the cache.
_BUILT_CACHES = {"--int8_kv_cache": "int8", "--fp8_kv_cache": "fp8"}


def _read_host_cache(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → bytes of the host's cache of a rank (``KvCacheConfig.host_cache_size``), empty for none."""
    size = _entry(options, _CACHE, "host_cache_size")
    return {HOST_CACHE: number_of(size)} if size else {}


def _read_format(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → value of the format of a checkpoint: by how it is converted, else by its quantisation or name."""
    if is_on(options, "--use_weight_only"):
        bits = options.get("--weight_only_precision", "int8")
        form = {"int4": "w4a16", "int4_awq": "w4a16", "int4_gptq": "w4a16"}.get(bits, "w8a16")
        return stated_format({**options, "--qformat": form}, "--qformat")
    switches = {"--use_fp8_rowwise": "fp8_per_channel_per_token", "--use_fp8": "fp8", "--smoothquant": "int8"}
    converted = next((form for name, form in switches.items() if name in options), "")
    options = {**options, "--qformat": converted} if converted else options
    return stated_format(options, "quant_config.quant_algo", "--quant_algo", "--qformat")


def _read_cache(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → bytes per value of the cache, of its format or of that of a quantisation; empty for others."""
    text = _entry(options, _CACHE, "dtype") or options.get("quant_config.kv_cache_quant_algo", "")
    built = next((form for name, form in _BUILT_CACHES.items() if is_on(options, name)), "")
    value = _CACHE_BYTES.get((built or text).lower())
    return {} if value is None else {f"{SERVING}cache_bytes": value}


def _predicted(leaf: Lookup) -> Pairs | None:
    """Return drafts of multi-token prediction as an entry, empty for none, None for those of another model."""
    tokens = draft_tokens(leaf)
    if not tokens:
        return []
    return [(_SPECULATION, f"{{decoding_type: MTP, {_LAYERS}: {number(tokens)}}}")] if has_draft_layers(leaf) else None


def _read_predicted(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → drafts that options state, of further-token layers or of a draft model; empty for none."""
    text = _entry(options, _SPECULATION, _LAYERS, "max_draft_len")
    return {DRAFTS[0]: token_count(text, _LAYERS)} if text else {}


def _entry_remark(options: Mapping[str, str]) -> str:
    """Return the remark that the share of memory in braces is read as an option, not as an entry; else ""."""
    if "free_gpu_memory_fraction" not in options.get(_CACHE, "") or _FREE_MEMORY_SHARE.name in options:
        return ""
    return f"free_gpu_memory_fraction of {_CACHE} is not read: state {_FREE_MEMORY_SHARE.name}"


def _transceiver(leaf: Lookup) -> Pairs:
    """Return the connector that sends keys and values between pools as options; its buffer is in tokens.

    It holds the longest prompt.
    """
    tokens = number(math.ceil(min(longest_prompt(leaf)[0], longest_request(leaf)[0])))
    return [
        ("--host", "0.0.0.0"),
        ("cache_transceiver_config", f"{{backend: DEFAULT, max_tokens_in_buffer: {tokens}}}"),
    ]


def _context(leaf: Lookup) -> Pairs:
    """Return the options of a pool for prompts."""
    return [("disable_overlap_scheduler", "true"), *_transceiver(leaf)]


TENSORRT_LLM = engine(
    "tensorrt-llm",
    "--max_seq_len",
    {
        "tp": CompositeOption(("mapping.tp",), _tp_size, _read_tp_size),
        "attention_dp": CompositeOption(("mapping.dp",), _attention_dp_entry),
        "experts": CompositeOption(("mapping.experts.ep", "mapping.experts.etp"), _expert_ranks, _read_expert_ranks),
        "memory": _FREE_MEMORY_SHARE,
        "cache": CompositeOption((f"{SERVING}cache_bytes",), _cache, _read_cache),
        "drafts": CompositeOption(DRAFTS, _predicted, _read_predicted),
        "prompts": CompositeOption((ORDER, TIMEOUT, BATCHING), _prompts, _read_prompts),
        "wide_experts": wide_experts("", _balanced, _read_balance, _meeting_ranks),
        "host_cache": CompositeOption((HOST_CACHE,), lambda leaf: [], _read_host_cache),
        "checkpoint": dataclasses.replace(checkpoint_format(), read=_read_format),
    },
    lambda leaf: replica_devices(leaf) * (degrees(leaf, "dp")[0] if _uses_attention_dp(leaf) else 1.0),
    notes=(_replicas,),
    remarks=(_entry_remark, _slots_remark),
    contradictions=(_uneven_ranks,),
    roles={"prefill": _context, "decode": _transceiver},
)
