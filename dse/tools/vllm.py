"""vLLM: experts over all ranks of tensor and data parallelism, options in JSON or with dotted keys."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from dse.tools.engines import (
    DRAFTS,
    ENGINE,
    GRAPHS,
    HOST_CACHE,
    SERVING,
    draft_tokens,
    engine,
    has_draft_layers,
    mean_request_tokens,
    replica_devices,
    token_count,
    weight_format,
    wide_experts,
)
from dse.tools.options import (
    MODEL_CONTEXT,
    N_EXPERTS,
    CompositeOption,
    Lookup,
    Pairs,
    degrees,
    is_on,
    number,
    number_of,
    offloaded_weights,
)
from dse.types.choices import AllToAll

_EXPERT_SWITCH = "--enable-expert-parallel"


def _experts_over_ranks(leaf: Lookup) -> Pairs | None:
    """Return experts over all ranks of tp and dp, or split in width, as options; None for other splits."""
    from dse.model.serving.work import width_split

    ep, (tp, dp, etp) = leaf("mapping.experts.ep"), degrees(leaf, "tp", "dp", "experts.etp")
    if ep is None:
        return []
    ranks, width = tp * dp, float(width_split(tp, ep, etp))
    by_rank = {(ranks, 1.0): [(_EXPERT_SWITCH, "")], (1.0, ranks): []}
    return by_rank.get((ep, width))


def _rank_count(options: Mapping[str, str]) -> float:
    """Return the number of ranks of a stage that hold a mixture's experts once: those of tp and dp."""
    names = ("--tensor-parallel-size", "--data-parallel-size")
    return math.prod(number_of(options.get(name, "1")) for name in names)


def _read_experts(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ranks of experts: all of tp and dp, by whole experts with the option, else by their width.

    The width is read of a mixture alone (``FusedMoEParallelConfig.make``); replicas of a dense model share nothing.
    """
    if is_on(options, _EXPERT_SWITCH):
        return {"mapping.experts.ep": _rank_count(options)}
    replicas, ranks = number_of(options.get("--data-parallel-size", "1")), _rank_count(options)
    is_split = replicas > 1.0 and number_of(options.get(N_EXPERTS, "0")) > 0.0
    return {"mapping.experts.ep": 1.0, "mapping.experts.etp": ranks} if is_split else {}


_DISPATCH = "--all2all-backend"

#: Backend of the exchange of experts → copies of a token: one per expert, per host and device there, or to all ranks.
_BACKENDS = {
    "deepep_low_latency": AllToAll.pairwise,
    "mori_low_latency": AllToAll.pairwise,
    "mori": AllToAll.pairwise,
    "pplx": AllToAll.pairwise,
    "nixl_ep": AllToAll.pairwise,
    "flashinfer_all2allv": AllToAll.by_rank,
    "flashinfer_nvlink_two_sided": AllToAll.by_rank,
    "flashinfer_nvlink_one_sided": AllToAll.by_rank,
    "deepep_high_throughput": AllToAll.by_node,
    "mori_high_throughput": AllToAll.by_node,
    "allgather_reducescatter": AllToAll.gather,
    "naive": AllToAll.gather,
}


def _dispatch(leaf: Lookup) -> Pairs | None:
    """Return the exchange of experts as an option, empty for one copy per expert, None for one that has none."""
    flavour = leaf("mapping.experts.all_to_all") or 0.0
    names = {float(AllToAll.by_node): "deepep_high_throughput", float(AllToAll.gather): "allgather_reducescatter"}
    if flavour == float(AllToAll.pairwise):
        return []
    return [(_DISPATCH, names[flavour])] if flavour in names else None


def _read_dispatch(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → exchange of experts, where whole experts are on ranks with tokens of their own; else empty."""
    has_exchange = _meeting_ranks(options) > 1.0
    backend = _BACKENDS.get(options.get(_DISPATCH, "").replace("-", "_").lower())
    return {} if backend is None or not has_exchange else {"mapping.experts.all_to_all": float(backend)}


def _meeting_ranks(options: Mapping[str, str]) -> float:
    """Return the ranks of whole experts with tokens of their own, 1 for none."""
    has_exchange = is_on(options, _EXPERT_SWITCH) and number_of(options.get("--data-parallel-size", "1")) > 1.0
    return _rank_count(options) if has_exchange else 1.0


_BALANCE, _BALANCER, _COPIES = "--enable-eplb", "--eplb-config", "num_redundant_experts"


def _balanced(is_balanced: bool, copies: float, experts: float) -> Pairs | None:
    """Return the load balancer and its copies as options, empty for neither, None for copies without it."""
    if not is_balanced:
        return None if copies else []
    return [(_BALANCE, ""), *([(_BALANCER, json.dumps({_COPIES: int(copies)}))] if copies else [])]


def _read_balance(options: Mapping[str, str]) -> tuple[bool | None, float | None]:
    """Return whether the load balancer is on, None where options say nothing of it, and the copies that they state."""
    copies = json_entry(options, _BALANCER, _COPIES)
    copies = options.get("--num-redundant-experts") if copies is None else copies
    is_balanced = is_on(options, _BALANCE) if _BALANCE in options else None
    return is_balanced, number_of(str(copies)) if copies is not None else 0.0 if is_balanced else None


def json_entry(options: Mapping[str, str], name: str, *keys: str) -> Any:
    """Return the value of the first of some keys of an option that is JSON, or of dotted keys; None where none is.

    Args:
        options: option → text.
        name: of the option.
        keys: names of one value, of several generations.

    Raises:
        ValueError: for a text that is no JSON.
    """
    for key in keys:
        for dotted in (f"{name}.{key}", f"{name}.{key.replace('_', '-')}"):
            if dotted in options:
                return options[dotted]
    if not options.get(name):
        return None
    try:
        document = json.loads(options[name])
    except (ValueError, RecursionError):
        raise ValueError(f"{name} {options[name]} is not JSON") from None
    return next((document[key] for key in keys if key in document), None) if isinstance(document, dict) else None


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
    if _CONFIG in options and not options[_CONFIG]:
        raise ValueError(f"{_CONFIG} is not JSON")
    tokens = json_entry(options, _CONFIG, _CONFIG_TOKENS)
    tokens = options.get("--num-speculative-tokens", options.get("--spec-tokens")) if tokens is None else tokens
    return {} if tokens is None else {DRAFTS[0]: token_count(str(tokens), _CONFIG)}


def _config_remark(options: Mapping[str, str]) -> str:
    """Return the remark that a configuration states no number of drafts, "" where it does or there is none."""
    if not any(name.startswith(_CONFIG) for name in options) or _read_config(options):
        return ""
    return f"{_CONFIG} has no {_CONFIG_TOKENS}: set drafts"


_COMPILATION, _GRAPH_SIZE, _EAGER = "--compilation-config", "--max-cudagraph-capture-size", "--enforce-eager"

_GRAPH_TOKENS = f"{ENGINE}graph_tokens"


def _eager(leaf: Lookup) -> Pairs:
    """Return eager mode as an option, empty with graphs."""
    return [(_EAGER, "")] if leaf(GRAPHS) == 0.0 else []


#: Text of a largest graph that follows from the number of sequences, and its limit (``_set_cudagraph_sizes``).
_BY_SEQUENCES, _MAX_GRAPH_TOKENS = "by-sequences", 512.0


def _is_eager(options: Mapping[str, str]) -> bool:
    """True where options turn all graphs off."""
    mode = str(json_entry(options, _COMPILATION, "cudagraph_mode") or "").upper()
    level = json_entry(options, _COMPILATION, "mode", "level")
    optimization = options.get("--optimization-level", options.get(_COMPILATION, ""))
    is_uncompiled = level is not None and str(level).upper() in ("0", "NONE")
    is_unoptimized = "-O0" in options or optimization == "0"
    return is_on(options, _EAGER) or mode in ("NONE", "0") or is_uncompiled or is_unoptimized


def _read_graphs(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → most tokens of a step with prompts that has a graph, 0 where decode alone has; or that none has.

    By default twice the most sequences, with drafts, up to 512. In eager mode no step has one.
    """
    if _is_eager(options):
        return {GRAPHS: 0.0}
    if str(json_entry(options, _COMPILATION, "cudagraph_mode") or "").upper() == "FULL_DECODE_ONLY":
        return {_GRAPH_TOKENS: 0.0}
    sizes = json_entry(options, _COMPILATION, "max_cudagraph_capture_size", "cudagraph_capture_sizes")
    text = str(
        options.get("--cudagraph-capture-sizes", options.get("--cuda-graph-sizes", "")) if sizes is None else sizes
    )
    counts = [float(count) for count in re.findall(r"\d+", text)]
    if counts:
        return {_GRAPH_TOKENS: max(counts)}
    size = options.get(_GRAPH_SIZE, "")
    if size != _BY_SEQUENCES:
        return {_GRAPH_TOKENS: number_of(size)} if size else {}
    step_tokens = 1.0 + _read_config(options).get(DRAFTS[0], 0.0)
    sequences = number_of(options["--max-num-seqs"]) if options.get("--max-num-seqs") else _MAX_GRAPH_TOKENS
    return {_GRAPH_TOKENS: min(2.0 * sequences * step_tokens, _MAX_GRAPH_TOKENS)}


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


_CHUNK, _BY_LENGTH, _LEAST_CHUNK = "--max-num-batched-tokens", "by-length", 2048.0


def _read_chunk(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → tokens of a step of the first engine without chunks: the longest request, and 2048 at least."""
    length = options.get("--max-model-len") or options.get(MODEL_CONTEXT)
    is_by_length = options.get(_CHUNK) == _BY_LENGTH and length
    return {f"{SERVING}chunk": max(number_of(length), _LEAST_CHUNK)} if is_by_length and length else {}


_OFFLOADED, _GIB = "--kv-offloading-size", 2.0**30

#: Cache in the memory of the host that LMCache has for each rank, in GiB.
_LMCACHE = "LMCACHE_MAX_LOCAL_CPU_SIZE"


def _host_cache(leaf: Lookup) -> Pairs:
    """Return the host's cache of all ranks as an option, empty for none."""
    size = leaf(HOST_CACHE) or 0.0
    return [(_OFFLOADED, number(size * replica_devices(leaf) / _GIB))] if size else []


def _read_host_cache(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → bytes of the host's cache of a device: a share of the engine's, or LMCache's of a rank.

    The size of vLLM's option is that of all ranks of tp and pp (``VllmConfig._post_init_kv_transfer_config``).
    """
    if options.get(_OFFLOADED):
        names = ("--tensor-parallel-size", "--pipeline-parallel-size")
        ranks = math.prod(number_of(options.get(name) or "1") for name in names)
        return {HOST_CACHE: number_of(options[_OFFLOADED]) * _GIB / ranks}
    return {HOST_CACHE: number_of(options[_LMCACHE]) * _GIB} if options.get(_LMCACHE) else {}


VLLM = engine(
    "vllm",
    "--max-model-len",
    {
        "experts": CompositeOption(
            ("mapping.experts.ep", "mapping.experts.etp"), _experts_over_ranks, _read_experts, writes_default=True
        ),
        "wide_experts": wide_experts("--enable-dbo", _balanced, _read_balance, _meeting_ranks),
        "dispatch": CompositeOption(("mapping.experts.all_to_all",), _dispatch, _read_dispatch),
        "offload": offloaded_weights("--cpu-offload-gb", "mapping.spill.far_weights"),
        "first_chunk": CompositeOption((f"{SERVING}chunk",), lambda leaf: [], _read_chunk),
        "host_cache": CompositeOption((HOST_CACHE,), _host_cache, _read_host_cache),
        "drafts": CompositeOption(DRAFTS, _config, _read_config),
        "weights": weight_format("--quantization", "compressed-tensors"),
        "graphs": CompositeOption((GRAPHS, _GRAPH_TOKENS), _eager, _read_graphs),
    },
    replica_devices,
    _step_token_limit,
    notes=(_chunked,),
    remarks=(_config_remark,),
)
