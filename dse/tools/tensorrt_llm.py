"""TensorRT-LLM: options, and entries of a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from dse.tools.engines import (
    COPIES,
    DRAFTS,
    SERVING,
    checkpoint_format,
    draft_tokens,
    engine,
    has_attention_dp,
    has_draft_layers,
    longest_prompt,
    longest_request,
    replica_devices,
    token_count,
)
from dse.tools.options import CompositeOption, Lookup, Pairs, degrees, memory_share, number

_ATTENTION_DP = "enable_attention_dp"


def _uses_attention_dp(leaf: Lookup) -> bool:
    """True for TensorRT-LLM's attention data parallelism: attention per rank, experts over all ranks."""
    ep, dp = leaf("mapping.experts.ep"), leaf("mapping.dp")
    return has_attention_dp(leaf) and degrees(leaf, "tp") == [1.0] and ep == dp


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


def _read_tp_size(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``tp``, and ``dp`` of attention data parallelism, that options state."""
    if "--tp_size" not in options:
        return {}
    size, is_attention_dp = float(options["--tp_size"]), options.get(_ATTENTION_DP, "").lower().split()[:1] == ["true"]
    return {"mapping.tp": 1.0, "mapping.dp": size} if is_attention_dp else {"mapping.tp": size}


def _replicas(leaf: Lookup) -> str:
    """Return the note that the line is one of several replicas, "" for one."""
    (dp,) = degrees(leaf, "dp")
    if dp == 1.0 or has_attention_dp(leaf):
        return ""
    return f"the line is one of {dp:g} replicas: start each on devices of its own, behind a router"


_EXPERTS_CONFIG = "moe_config"


def _slots(leaf: Lookup) -> Pairs:
    """Return the experts with their copies, which the load balancer counts together, as an entry.

    Empty without copies.
    """
    n_copies, experts = leaf(COPIES) or 0.0, leaf("workload.experts.n_experts") or 0.0
    return [(_EXPERTS_CONFIG, f"{{load_balancer: {{num_slots: {number(experts + n_copies)}}}}}")] if n_copies else []


def _slots_remark(options: Mapping[str, str]) -> str:
    """Return the remark that slots of a load balancer are not read, "" without them."""
    if "num_slots" not in options.get(_EXPERTS_CONFIG, ""):
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


def _read_cache(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → 1 byte for a cache in fp8, empty for others."""
    return {f"{SERVING}cache_bytes": 1.0} if re.search(r"\bdtype:\s*fp8\b", options.get(_CACHE, "")) else {}


def _predicted(leaf: Lookup) -> Pairs | None:
    """Return drafts of multi-token prediction as an entry, empty for none, None for those of another model."""
    tokens = draft_tokens(leaf)
    if not tokens:
        return []
    return [(_SPECULATION, f"{{decoding_type: MTP, {_LAYERS}: {number(tokens)}}}")] if has_draft_layers(leaf) else None


def _read_predicted(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → drafts that options state, empty for none."""
    match = re.search(rf"\b{_LAYERS}:\s*([^\s,}}]+)", options.get(_SPECULATION, ""))
    return {DRAFTS[0]: token_count(match[1], _LAYERS)} if match else {}


def _entry_remark(options: Mapping[str, str]) -> str:
    """Return the remark that the share of memory is read as an option, not as an entry; else ""."""
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
        "memory": _FREE_MEMORY_SHARE,
        "cache": CompositeOption((f"{SERVING}cache_bytes",), _cache, _read_cache),
        "drafts": CompositeOption(DRAFTS, _predicted, _read_predicted),
        "copies": CompositeOption((COPIES,), _slots),
        "checkpoint": checkpoint_format(),
    },
    lambda leaf: replica_devices(leaf) * (degrees(leaf, "dp")[0] if _uses_attention_dp(leaf) else 1.0),
    notes=(_replicas,),
    remarks=(_entry_remark, _slots_remark),
    roles={"prefill": _context, "decode": _transceiver},
)
