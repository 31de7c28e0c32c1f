"""vLLM: experts over all ranks of tensor and data parallelism, drafts in JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from dse.tools.engines import (
    DRAFTS,
    SERVING,
    draft_tokens,
    engine,
    has_draft_layers,
    mean_request_tokens,
    replica_devices,
    token_count,
    weight_format,
)
from dse.tools.options import CompositeOption, Lookup, Pairs, degrees, number, offloaded_weights


def _experts_over_ranks(leaf: Lookup) -> Pairs | None:
    """Return experts over all ranks of tp and dp, or split in width, as options; None for other splits."""
    from dse.model.serving.work import width_split

    ep, (tp, dp, etp) = leaf("mapping.experts.ep"), degrees(leaf, "tp", "dp", "experts.etp")
    if ep is None:
        return []
    ranks, width = tp * dp, float(width_split(tp, ep, etp))
    by_rank = {(ranks, 1.0): [("--enable-expert-parallel", "")], (1.0, ranks): []}
    return by_rank.get((ep, width))


def _read_experts(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → expert ranks that options state, all of tp and dp; empty without the option."""
    if "--enable-expert-parallel" not in options:
        return {}
    names = ("--tensor-parallel-size", "--data-parallel-size")
    return {"mapping.experts.ep": math.prod(float(options.get(name, 1.0)) for name in names)}


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


VLLM = engine(
    "vllm",
    "--max-model-len",
    {
        "experts": CompositeOption(
            ("mapping.experts.ep", "mapping.experts.etp"), _experts_over_ranks, _read_experts, writes_default=True
        ),
        "offload": offloaded_weights("--cpu-offload-gb", "mapping.spill.far_weights"),
        "drafts": CompositeOption(DRAFTS, _config, _read_config),
        "weights": weight_format("--quantization", "compressed-tensors"),
    },
    replica_devices,
    _step_token_limit,
    notes=(_chunked,),
    remarks=(_config_remark,),
)
