"""TensorRT-LLM: options, and entries of a file."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from dse.tools.engines import (
    COPIES,
    DRAFTS,
    ENGINE,
    KEPT,
    SERVING,
    attends_apart,
    drafted,
    drafts_itself,
    length_words,
    longest,
    longest_prompt,
    model_length,
    of_checkpoint,
    over_nodes,
    replica,
    whole,
)
from dse.tools.options import (
    ChoiceOption,
    Lookup,
    MemoryShare,
    NumberOption,
    Pairs,
    Tool,
    Written,
    number,
    with_entries,
)
from dse.types import Precision

_APART = "enable_attention_dp"


def _is_apart(leaf: Lookup) -> bool:
    """Whether it is TensorRT-LLM's attention data parallelism: attention per rank, experts over all ranks."""
    return (
        attends_apart(leaf)
        and (leaf("mapping.tp") or 1.0) == 1.0
        and (leaf("mapping.experts.ep") == leaf("mapping.dp"))
    )


def _tp_size(leaf: Lookup) -> Pairs | None:
    """Its tp includes data-parallel attention ranks; None for attention over a part of the ranks."""
    if _is_apart(leaf):
        return [("--tp_size", number(leaf("mapping.dp") or 1.0))]
    tp = leaf("mapping.tp") or 1.0
    if attends_apart(leaf):
        return None
    return [("--tp_size", number(tp))] if tp > 1.0 else []


def _apart(leaf: Lookup) -> Pairs | None:
    if _is_apart(leaf):
        return [(_APART, "true")]
    return None if (leaf("mapping.dp") or 1.0) > 1.0 else []


def _read_tp_size(given: Mapping[str, str]) -> dict[str, float]:
    if "--tp_size" not in given:
        return {}
    size, apart = float(given["--tp_size"]), given.get(_APART, "").lower().split()[:1] == ["true"]
    return {"mapping.tp": 1.0, "mapping.dp": size} if apart else {"mapping.tp": size}


def _replicas(leaf: Lookup) -> str:
    dp = leaf("mapping.dp") or 1.0
    if dp == 1.0 or attends_apart(leaf):
        return ""
    return f"the line is one of {dp:g} replicas: start each on devices of its own, behind a router"


_EXPERTS_CONFIG, _SCHEDULER = "moe_config", "scheduler_config"


def _slots(leaf: Lookup) -> Pairs:
    """Its load balancer counts experts with their copies."""
    held, experts = leaf(COPIES) or 0.0, leaf("workload.experts.n_experts") or 0.0
    return [(_EXPERTS_CONFIG, f"{{load_balancer: {{num_slots: {number(experts + held)}}}}}")] if held else []


def _slots_remark(given: Mapping[str, str]) -> str:
    if "num_slots" not in given.get(_EXPERTS_CONFIG, ""):
        return ""
    return f"num_slots of {_EXPERTS_CONFIG} counts the experts too: set redundant_experts to the rest"


_CACHE, _SPECULATION, _LAYERS = "kv_cache_config", "speculative_config", "num_nextn_predict_layers"
_OF_THE_REST = MemoryShare("--kv_cache_free_gpu_memory_fraction", f"{SERVING}memory_share", of_rest=True)


def _cache(leaf: Lookup) -> Pairs | None:
    """Cache format; its entry replaces the option for memory, and includes it."""
    size = leaf(f"{SERVING}cache_bytes")
    if size in (None, 2.0):
        return []
    share = [f", free_gpu_memory_fraction: {value}" for _, value in _OF_THE_REST.write(leaf) or []]
    return [(_CACHE, f"{{dtype: fp8{''.join(share)}}}")] if size == 1.0 else None


def _read_cache(given: Mapping[str, str]) -> dict[str, float]:
    return {f"{SERVING}cache_bytes": 1.0} if re.search(r"\bdtype:\s*fp8\b", given.get(_CACHE, "")) else {}


def _predicted(leaf: Lookup) -> Pairs | None:
    """Drafts of multi-token prediction; those of another model need further options."""
    tokens = drafted(leaf)
    if not tokens:
        return []
    return [(_SPECULATION, f"{{decoding_type: MTP, {_LAYERS}: {number(tokens)}}}")] if drafts_itself(leaf) else None


def _read_predicted(given: Mapping[str, str]) -> dict[str, float]:
    stated = re.search(rf"\b{_LAYERS}:\s*([^\s,}}]+)", given.get(_SPECULATION, ""))
    return {DRAFTS[0]: whole(stated[1], _LAYERS)} if stated else {}


def _entry_remark(given: Mapping[str, str]) -> str:
    """Remark that the share of memory is read as an option, not as an entry."""
    if "free_gpu_memory_fraction" not in given.get(_CACHE, "") or _OF_THE_REST.name in given:
        return ""
    return f"free_gpu_memory_fraction of {_CACHE} is not read: state {_OF_THE_REST.name}"


def _transceiver(leaf: Lookup) -> Pairs:
    """The connector that sends keys and values between pools; its buffer holds the longest prompt."""
    tokens = number(math.ceil(min(longest_prompt(leaf)[0], longest(leaf)[0])))
    return [
        ("--host", "0.0.0.0"),
        ("cache_transceiver_config", f"{{backend: DEFAULT, max_tokens_in_buffer: {tokens}}}"),
    ]


def _context(leaf: Lookup) -> Pairs:
    return [("disable_overlap_scheduler", "true"), *_transceiver(leaf)]


TENSORRT_LLM = Tool(
    "tensorrt-llm",
    "serving",
    "1.1",
    "https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve.html",
    (
        Written(("mapping.tp",), _tp_size, _read_tp_size),
        Written(("mapping.dp",), _apart),
        NumberOption("--pp_size", "mapping.pp", plain=1.0),
        NumberOption("--ep_size", "mapping.experts.ep", plain=1.0),
        model_length("--max_seq_len"),
        NumberOption("--max_num_tokens", f"{SERVING}chunk"),
        NumberOption("--max_batch_size", f"{ENGINE}most_sequences"),
        _OF_THE_REST,
        Written((f"{SERVING}cache_bytes",), _cache, _read_cache),
        Written(DRAFTS, _predicted, _read_predicted),
        Written((COPIES,), _slots),
        ChoiceOption(KEPT, {1.0: [], 0.0: [(_SCHEDULER, "{capacity_scheduler_policy: MAX_UTILIZATION}")]}),
        # Other formats are those of the checkpoint.
        ChoiceOption("mapping.precision", {float(Precision.bf16): [], float(Precision.fp16): []}),
        of_checkpoint(),
    ),
    with_entries('trtllm-serve "$MODEL"', "--extra_llm_api_options", "extra_llm_api_options.yml"),
    vendors=("NVIDIA",),
    value_comments=(length_words("--max_seq_len"),),
    notes=(
        _replicas,
        over_nodes(
            "start the line by srun or mpirun with one rank per device, behind trtllm-llmapi-launch",
            lambda leaf: replica(leaf) * ((leaf("mapping.dp") or 1.0) if _is_apart(leaf) else 1.0),
        ),
    ),
    entries=(_APART, _CACHE, _EXPERTS_CONFIG, _SCHEDULER, _SPECULATION),
    remarks=(_entry_remark, _slots_remark),
    roles={"prefill": _context, "decode": _transceiver},
)
