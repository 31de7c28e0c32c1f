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
    RESERVED_ANSWER,
    SERVING,
    all_to_all_option,
    draft_model_note,
    draft_tokens,
    has_draft_layers,
    length_comment,
    length_option,
    mean_request_tokens,
    node_note,
    read_expert_copies,
    replica_devices,
    token_count,
    weight_format,
    write_expert_copies,
)
from dse.tools.options import (
    ChoiceOption,
    CompositeOption,
    Lookup,
    NumberOption,
    OffloadedWeights,
    Pairs,
    SwitchOption,
    Tool,
    flags,
    number,
)


def _experts_over_ranks(leaf: Lookup) -> Pairs | None:
    """Return experts over all ranks of tp and dp, or split in width, as options; None for other splits."""
    from dse.model.serving.work import width_split

    ep, tp = leaf("mapping.experts.ep"), leaf("mapping.tp") or 1.0
    if ep is None:
        return []
    ranks, width = tp * (leaf("mapping.dp") or 1.0), float(width_split(tp, ep, leaf("mapping.experts.etp") or 1.0))
    by_rank = {(ranks, 1.0): [("--enable-expert-parallel", "")], (1.0, ranks): []}
    return by_rank.get((ep, width))


def _read_experts(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → expert ranks that options state, all of tp and dp; empty without the option."""
    if "--enable-expert-parallel" not in options:
        return {}
    degrees = ("--tensor-parallel-size", "--data-parallel-size")
    return {"mapping.experts.ep": float(options.get(degrees[0], 1.0)) * float(options.get(degrees[1], 1.0))}


_EPLB = "--eplb-config"
_CONFIG, _CONFIG_TOKENS = "--speculative-config", "num_speculative_tokens"


def _config(leaf: Lookup) -> Pairs:
    """Return the drafts of a step as an option of JSON, empty for none."""
    tokens = draft_tokens(leaf)
    method = {"method": "mtp"} if has_draft_layers(leaf) else {}
    return [(_CONFIG, json.dumps(method | {_CONFIG_TOKENS: int(tokens)}))] if tokens else []


def _read_config(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → drafts from a JSON dictionary of any method, or from dotted keys; empty for none.

    ValueError for a text that is no JSON, and for a count of drafts that is negative or not whole.
    """
    dotted = f"{_CONFIG}.{_CONFIG_TOKENS.replace('_', '-')}"
    tokens: Any = options.get(dotted)
    if _CONFIG in options:
        try:
            config = json.loads(options[_CONFIG])
        except (ValueError, RecursionError):
            raise ValueError(f"{_CONFIG} {options[_CONFIG]} is not JSON") from None
        tokens = config.get(_CONFIG_TOKENS, tokens) if isinstance(config, dict) else tokens
    return {} if tokens is None else {DRAFTS[0]: token_count(str(tokens), _CONFIG)}


def _config_remark(options: Mapping[str, str]) -> str:
    """Return the remark that a configuration states no number of drafts, "" where it does or there is none."""
    if not any(name.startswith(_CONFIG) for name in options) or _read_config(options):
        return ""
    return f"{_CONFIG} has no {_CONFIG_TOKENS}: set drafts"


def _step_token_limit(leaf: Lookup) -> float:
    """Return the most tokens of a step without chunked prefill, infinity with it.

    vLLM needs a step that holds the longest request where chunked prefill is off.
    """
    chunk = leaf(f"{SERVING}chunk")
    return math.inf if leaf(f"{SERVING}mixed") != 0.0 or chunk is None else chunk


def _chunked(leaf: Lookup) -> str:
    """Return the note that vLLM does not start with steps shorter than a prompt and no chunked prefill; else ""."""
    length = mean_request_tokens(leaf)
    if _step_token_limit(leaf) >= length:
        return ""
    return (
        f"without chunked prefill vLLM wants --max-num-batched-tokens of --max-model-len at least: "
        f"set chunk={number(length)} or more"
    )


def _transfers(kv_role: str) -> Callable[[Lookup], Pairs]:
    """Return the function (leaves → options) of the NIXL connector between pools, for a role of the cache."""
    config = json.dumps({"kv_connector": "NixlConnector", "kv_role": kv_role})
    return lambda leaf: [("--kv-transfer-config", config)]


VLLM = Tool(
    "vllm",
    "serving",
    "0.11",
    "https://docs.vllm.ai/en/latest/cli/serve.html",
    (
        NumberOption("--tensor-parallel-size", "mapping.tp", default=1.0),
        NumberOption("--pipeline-parallel-size", "mapping.pp", default=1.0),
        NumberOption("--data-parallel-size", "mapping.dp", default=1.0),
        CompositeOption(("mapping.experts.ep", "mapping.experts.etp"), _experts_over_ranks, _read_experts, True),
        all_to_all_option("--all2all-backend", "deepep_high_throughput"),
        CompositeOption(
            (COPIES,),
            write_expert_copies(_EPLB, f'{{"{COPIES_KEY}": %s}}'),
            read_expert_copies(_EPLB, f"{_EPLB}.{COPIES_KEY.replace('_', '-')}", "--num-redundant-experts"),
        ),
        length_option("--max-model-len", _step_token_limit),
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
        ChoiceOption(RESERVED_ANSWER, {0.0: []}),
        CompositeOption(DRAFTS, _config, _read_config),
        weight_format("--quantization", "compressed-tensors"),
    ),
    flags('vllm serve "$MODEL"'),
    {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size"},
    dashes=True,
    vendors=("NVIDIA", "AMD", "Google", "Intel", "AWS", "Huawei"),
    value_comments=(length_comment("--max-model-len", _step_token_limit),),
    notes=(
        draft_model_note('"method" and "model" of --speculative-config'),
        _chunked,
        node_note(
            "start a Ray cluster on them first (--distributed-executor-backend ray), or the line on each of them with "
            "--nnodes {nodes}, --node-rank and --master-addr",
            replica_devices,
            "ranks of data parallelism are started on each of them, with --data-parallel-size-local, "
            "--data-parallel-address, and behind the first with --headless and --data-parallel-start-rank",
        ),
    ),
    remarks=(_config_remark,),
    roles={role: _transfers(kv_role) for role, kv_role in (("prefill", "kv_producer"), ("decode", "kv_consumer"))},
    long_sequence_note="vLLM refuses a --max-model-len above that of its configuration",
)
