"""vLLM: experts over all ranks of tensor and data parallelism, drafts in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from dse.tools.engines import (
    COPIES,
    COPIES_KEY,
    DRAFTS,
    ENGINE,
    KEPT,
    SERVING,
    copies,
    drafted,
    drafts_itself,
    formats,
    length_words,
    mean_length,
    messages,
    model_length,
    names_no_draft,
    over_nodes,
    read_copies,
    replica,
    whole,
)
from dse.tools.options import (
    ChoiceOption,
    Lookup,
    NumberOption,
    OffloadedWeights,
    Pairs,
    SwitchOption,
    Tool,
    Written,
    flags,
    number,
)


def _experts_over_ranks(leaf: Lookup) -> Pairs | None:
    """Experts over all ranks of tp and dp, or their width, as in vLLM."""
    from dse.model.serving.work import width_split

    ep, tp = leaf("mapping.experts.ep"), leaf("mapping.tp") or 1.0
    if ep is None:
        return []
    ranks, width = tp * (leaf("mapping.dp") or 1.0), float(width_split(tp, ep, leaf("mapping.experts.etp") or 1.0))
    by_rank = {(ranks, 1.0): [("--enable-expert-parallel", "")], (1.0, ranks): []}
    return by_rank.get((ep, width))


def _read_experts(given: Mapping[str, str]) -> dict[str, float]:
    if "--enable-expert-parallel" not in given:
        return {}
    degrees = ("--tensor-parallel-size", "--data-parallel-size")
    return {"mapping.experts.ep": float(given.get(degrees[0], 1.0)) * float(given.get(degrees[1], 1.0))}


_EPLB = "--eplb-config"
_CONFIG, _CONFIG_TOKENS = "--speculative-config", "num_speculative_tokens"


def _config(leaf: Lookup) -> Pairs:
    tokens = drafted(leaf)
    method = {"method": "mtp"} if drafts_itself(leaf) else {}
    return [(_CONFIG, json.dumps(method | {_CONFIG_TOKENS: int(tokens)}))] if tokens else []


def _read_config(given: Mapping[str, str]) -> dict[str, float]:
    """Drafts of a JSON dictionary of any method, or of dotted keys."""
    dotted = f"{_CONFIG}.{_CONFIG_TOKENS.replace('_', '-')}"
    tokens: Any = given.get(dotted)
    if _CONFIG in given:
        try:
            stated = json.loads(given[_CONFIG])
        except (ValueError, RecursionError):
            raise ValueError(f"{_CONFIG} {given[_CONFIG]} is not JSON") from None
        tokens = stated.get(_CONFIG_TOKENS, tokens) if isinstance(stated, dict) else tokens
    return {} if tokens is None else {DRAFTS[0]: whole(str(tokens), _CONFIG)}


def _config_remark(given: Mapping[str, str]) -> str:
    if not any(name.startswith(_CONFIG) for name in given) or _read_config(given):
        return ""
    return f"{_CONFIG} has no {_CONFIG_TOKENS}: set drafts"


def _tokens_of_a_step(leaf: Lookup) -> float:
    """Tokens of a step, which vLLM wants to hold the longest request where chunked prefill is off; else no limit."""
    chunk = leaf(f"{SERVING}chunk")
    return math.inf if leaf(f"{SERVING}mixed") != 0.0 or chunk is None else chunk


def _chunked(leaf: Lookup) -> str:
    """Note that vLLM does not start where a step is shorter than a prompt and chunked prefill is off."""
    length = mean_length(leaf)
    if _tokens_of_a_step(leaf) >= length:
        return ""
    return (
        f"without chunked prefill vLLM wants --max-num-batched-tokens of --max-model-len at least: "
        f"set chunk={number(length)} or more"
    )


def _transfers(kv_role: str) -> Callable[[Lookup], Pairs]:
    """The connector that sends keys and values between pools, by NIXL."""
    config = json.dumps({"kv_connector": "NixlConnector", "kv_role": kv_role})
    return lambda leaf: [("--kv-transfer-config", config)]


VLLM = Tool(
    "vllm",
    "serving",
    "0.11",
    "https://docs.vllm.ai/en/latest/cli/serve.html",
    (
        NumberOption("--tensor-parallel-size", "mapping.tp", plain=1.0),
        NumberOption("--pipeline-parallel-size", "mapping.pp", plain=1.0),
        NumberOption("--data-parallel-size", "mapping.dp", plain=1.0),
        Written(("mapping.experts.ep", "mapping.experts.etp"), _experts_over_ranks, _read_experts, True),
        messages("--all2all-backend", "deepep_high_throughput"),
        Written(
            (COPIES,),
            copies(_EPLB, f'{{"{COPIES_KEY}": %s}}'),
            read_copies(_EPLB, f"{_EPLB}.{COPIES_KEY.replace('_', '-')}", "--num-redundant-experts"),
        ),
        model_length("--max-model-len", _tokens_of_a_step),
        NumberOption("--max-num-batched-tokens", f"{SERVING}chunk"),
        NumberOption("--max-num-seqs", f"{ENGINE}most_sequences"),
        NumberOption("--gpu-memory-utilization", f"{SERVING}memory_share"),
        OffloadedWeights("--cpu-offload-gb", "mapping.spill.far_weights"),
        SwitchOption("--enable-chunked-prefill", f"{SERVING}mixed", opposite="--no-enable-chunked-prefill"),
        ChoiceOption(
            f"{SERVING}cache_bytes",
            {
                2.0: [("--kv-cache-dtype", "auto")],
                1.0: [("--kv-cache-dtype", "fp8")],
            },
        ),
        ChoiceOption(KEPT, {0.0: []}),
        Written(DRAFTS, _config, _read_config),
        formats("--quantization", "compressed-tensors"),
    ),
    flags('vllm serve "$MODEL"'),
    {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size"},
    dashes=True,
    vendors=("NVIDIA", "AMD", "Google", "Intel", "AWS", "Huawei"),
    value_comments=(length_words("--max-model-len", _tokens_of_a_step),),
    notes=(
        names_no_draft('"method" and "model" of --speculative-config'),
        _chunked,
        over_nodes(
            "start a Ray cluster on them first (--distributed-executor-backend ray), or the line on each of them with "
            "--nnodes {nodes}, --node-rank and --master-addr",
            replica,
            "ranks of data parallelism are started on each of them, with --data-parallel-size-local, "
            "--data-parallel-address, and behind the first with --headless and --data-parallel-start-rank",
        ),
    ),
    remarks=(_config_remark,),
    roles={role: _transfers(kv_role) for role, kv_role in (("prefill", "kv_producer"), ("decode", "kv_consumer"))},
    beyond="vLLM refuses a --max-model-len above that of its configuration",
)
