"""Engines that serve: vLLM, SGLang, TensorRT-LLM."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from dse.errors import InputError
from dse.launch.options import (
    DRAFT_LAYERS,
    Choice,
    Lookup,
    MemoryShare,
    Number,
    OffloadedWeights,
    Pairs,
    Switch,
    Tool,
    Written,
    flags,
    hosts,
    number,
    with_entries,
)
from dse.types import AllToAll, Precision
from dse.types.choices import WEIGHTS_ALONE

_SERVING, _ENGINE, _REQUESTS = "mapping.serving.", "software.engine.", "workload.requests."


def _longest(leaf: Lookup) -> float:
    return (leaf(f"{_REQUESTS}prompt_tokens") or 0.0) + (leaf(f"{_REQUESTS}output_tokens") or 0.0)


def _model_length(name: str) -> Written:
    """The option for the longest sequence: a prompt with its answer."""

    def write(leaf: Lookup) -> Pairs:
        return [(name, number(_longest(leaf)))]

    return Written((f"{_REQUESTS}prompt_tokens", f"{_REQUESTS}output_tokens"), write)


def _experts_over_ranks(leaf: Lookup) -> Pairs | None:
    """As vLLM does, experts over all ranks of tp and dp, or the width of each."""
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


def _messages(name: str, forwarded: str) -> Choice:
    """The option for a library that sends a token once to a node and forwards it there (DeepEP)."""
    return Choice(
        "mapping.experts.all_to_all",
        {float(AllToAll.pairwise): [], float(AllToAll.by_node): [(name, forwarded)]},
    )


_DRAFTS = (f"{_SERVING}drafts", f"{_SERVING}acceptance")  # how often drafts are right no engine is told


def _drafted(leaf: Lookup) -> float:
    """Tokens that are drafted; an engine drafts whole ones, a design may have their mean."""
    tokens = leaf(_DRAFTS[0]) or 0.0
    if tokens != round(tokens):
        raise InputError(
            "drafts", f"{tokens:g}", "a whole number of tokens for an engine",
            f"set drafts={int(tokens)} or drafts={int(tokens) + 1}",
        )  # fmt: skip
    return tokens


def _drafts_itself(leaf: Lookup) -> bool:
    """Whether the model has layers that predict further tokens."""
    return bool(leaf("workload.experts.n_predict") or leaf(DRAFT_LAYERS))


def _names_no_draft(options: str) -> Callable[[Lookup], str]:
    """That a model without such layers drafts with another one, which has to be named."""

    def note(leaf: Lookup) -> str:
        if not _drafted(leaf) or _drafts_itself(leaf):
            return ""
        return f"the model has no layers that predict further tokens: name what drafts, {options}"

    return note


def _whole(text: str, name: str) -> float:
    value = float(text)
    if value != int(value) or value < 0.0:
        raise ValueError(f"{name} {text}, which is no number of tokens")
    return value


_KEPT = f"{_SERVING}reserved_answer"

#: What SGLang keeps free of an answer in the mean at its conservativeness of 1, which multiplies it.
_KEPT_BY_SGLANG, _CONSERVATIVE = 0.3, "--schedule-conservativeness"


def _conservative(leaf: Lookup) -> Pairs:
    kept = leaf(_KEPT)
    if kept is None or abs(kept - _KEPT_BY_SGLANG) < 1e-6:
        return []
    return [(_CONSERVATIVE, number(kept / _KEPT_BY_SGLANG))]


def _read_conservative(given: Mapping[str, str]) -> dict[str, float]:
    return {_KEPT: min(_KEPT_BY_SGLANG * float(given[_CONSERVATIVE]), 1.0)} if _CONSERVATIVE in given else {}


_COPIES, _BALANCED = f"{_SERVING}redundant_experts", "--enable-eplb"
_EPLB, _EPLB_COPIES = "--eplb-config", "num_redundant_experts"


def _copies(name: str, text: str) -> Callable[[Lookup], Pairs]:
    """The load balancer of experts, and how many copies it has: an option behind it with a ``text``."""

    def write(leaf: Lookup) -> Pairs:
        copies = leaf(_COPIES) or 0.0
        return [(_BALANCED, ""), (name, text % number(copies))] if copies else []

    return write


def _read_copies(*names: str) -> Callable[[Mapping[str, str]], dict[str, float]]:
    """Copies of experts by the first of some options that is given, as a number or within a dictionary in JSON."""

    def read(given: Mapping[str, str]) -> dict[str, float]:
        text = next((given[name] for name in names if name in given), "")
        stated = re.search(rf'"{_EPLB_COPIES}":\s*([^\s,}}]+)', text) if "{" in text else re.match("(.+)", text)
        return {_COPIES: float(stated[1])} if stated else {}

    return read


_CONFIG, _CONFIG_TOKENS = "--speculative-config", "num_speculative_tokens"


def _config(leaf: Lookup) -> Pairs:
    tokens = _drafted(leaf)
    method = {"method": "mtp"} if _drafts_itself(leaf) else {}
    return [(_CONFIG, json.dumps(method | {_CONFIG_TOKENS: int(tokens)}))] if tokens else []


def _read_config(given: Mapping[str, str]) -> dict[str, float]:
    """A dictionary in JSON, whatever its method, or its keys behind dots."""
    dotted = f"{_CONFIG}.{_CONFIG_TOKENS.replace('_', '-')}"
    tokens: Any = given.get(dotted)
    if _CONFIG in given:
        try:
            stated = json.loads(given[_CONFIG])
        except (ValueError, RecursionError):
            raise ValueError(f"{_CONFIG} {given[_CONFIG]}, which is no JSON") from None
        tokens = stated.get(_CONFIG_TOKENS, tokens) if isinstance(stated, dict) else tokens
    return {} if tokens is None else {_DRAFTS[0]: _whole(str(tokens), _CONFIG)}


def _config_remark(given: Mapping[str, str]) -> str:
    if not any(name.startswith(_CONFIG) for name in given) or _read_config(given):
        return ""
    return f"{_CONFIG} says no {_CONFIG_TOKENS}: set drafts"


def _chunked(leaf: Lookup) -> str:
    """That vLLM does not start where a step has no room for a whole prompt, and pieces of one are not allowed."""
    chunk, mixed = leaf(f"{_SERVING}chunk"), leaf(f"{_SERVING}mixed")
    if mixed != 0.0 or chunk is None or chunk >= _longest(leaf):
        return ""
    return (
        f"without chunked prefill vLLM wants --max-num-batched-tokens of --max-model-len at least: "
        f"set chunk={number(_longest(leaf))} or more"
    )


def _over_nodes(how: str, ranks: Callable[[Lookup], float], more: str = "") -> Callable[[Lookup], str]:
    """That one process, whose ``ranks`` are on several nodes, is started on each of them: ``how``.

    ``more`` says it of replicas that are on other nodes, each on one of its own.
    """

    def note(leaf: Lookup) -> str:
        nodes, each = hosts(leaf)
        if ranks(leaf) > each:
            own = -(-int(ranks(leaf)) // each)
            return f"{ranks(leaf):g} devices of one replica are on {own} nodes of {each}: {how.format(nodes=own)}"
        return f"{nodes} nodes of {each}: {more}" if more and nodes > 1 else ""

    return note


def _replica(leaf: Lookup) -> float:
    """Devices of a model with one rank of data parallelism."""
    return (leaf("mapping.tp") or 1.0) * (leaf("mapping.pp") or 1.0)



_PRECISION, _WEIGHT, _EXPERT = "mapping.precision", f"{_SERVING}weight_bytes", f"{_SERVING}expert_bytes"
_EIGHT_BITS = (float(Precision.fp8), float(Precision.fp8_row), float(Precision.fp8_block))
_SIXTEEN_BITS = (float(Precision.bf16), float(Precision.fp16))

#: Bytes of a weight of 4 bits with its scales: a byte for 32 of MXFP4, two with a zero for 128 of AWQ and GPTQ.
_FOUR_BITS, _FOUR_BITS_FROM, _FOUR_BITS_TO = WEIGHTS_ALONE["w4a16"], 0.5, 0.56

#: Checkpoints whose weights are widened to 16 bits: those of experts alone (gpt-oss), or all.
_OF_EXPERTS, _OF_WEIGHTS = ("mxfp4",), ("awq", "awq_marlin", "gptq", "gptq_marlin")


def _is_four_bits(held: float) -> bool:
    return _FOUR_BITS_FROM < held < _FOUR_BITS_TO


def _formats(name: str, told: Mapping[float, str]) -> Written:
    """The option for what a checkpoint's weights are: multiplied as they are, or kept narrower than that."""
    multiplied = Choice(_PRECISION, {code: [(name, text)] if text else [] for code, text in told.items()})

    def write(leaf: Lookup) -> Pairs | None:
        weight, expert = (leaf(path) or 0.0 for path in (_WEIGHT, _EXPERT))
        if not weight and not expert:
            return multiplied.write(leaf)
        if leaf(_PRECISION) not in _SIXTEEN_BITS:
            return None
        if not weight and _is_four_bits(expert):
            return [(name, _OF_EXPERTS[0])]
        return [(name, _OF_WEIGHTS[0])] if _is_four_bits(weight) and expert in (0.0, weight) else None

    def read(given: Mapping[str, str]) -> dict[str, float]:
        text = given.get(name, "")
        if text not in (*_OF_EXPERTS, *_OF_WEIGHTS):
            return multiplied.read(given)
        held = _EXPERT if text in _OF_EXPERTS else _WEIGHT
        return {_PRECISION: float(Precision.bf16), held: _FOUR_BITS}

    return Written((_PRECISION, _WEIGHT, _EXPERT), write, read)


_BY_VLLM = {
    float(Precision.bf16): "", float(Precision.fp16): "", **dict.fromkeys(_EIGHT_BITS, "fp8"),
    float(Precision.int8): "compressed-tensors", float(Precision.nvfp4): "modelopt_fp4",
}  # fmt: skip
_BY_SGLANG = _BY_VLLM | {float(Precision.int8): "w8a8_int8"}

VLLM = Tool(
    "vllm", "serving", "0.11", "https://docs.vllm.ai/en/latest/cli/serve.html",
    (
        Number("--tensor-parallel-size", "mapping.tp", plain=1.0),
        Number("--pipeline-parallel-size", "mapping.pp", plain=1.0),
        Number("--data-parallel-size", "mapping.dp", plain=1.0),
        Written(("mapping.experts.ep", "mapping.experts.etp"), _experts_over_ranks, _read_experts, True),
        _messages("--all2all-backend", "deepep_high_throughput"),
        Written(
            (_COPIES,), _copies(_EPLB, f'{{"{_EPLB_COPIES}": %s}}'),
            _read_copies(_EPLB, f"{_EPLB}.{_EPLB_COPIES.replace('_', '-')}", "--num-redundant-experts"),
        ),
        _model_length("--max-model-len"),
        Number("--max-num-batched-tokens", f"{_SERVING}chunk"),
        Number("--max-num-seqs", f"{_ENGINE}most_sequences"),
        Number("--gpu-memory-utilization", f"{_SERVING}memory_share"),
        OffloadedWeights("--cpu-offload-gb", "mapping.spill.far_weights"),
        Switch("--enable-chunked-prefill", f"{_SERVING}mixed", opposite="--no-enable-chunked-prefill"),
        Choice(f"{_SERVING}cache_bytes", {2.0: [("--kv-cache-dtype", "auto")], 1.0: [("--kv-cache-dtype", "fp8")]}),
        Choice(_KEPT, {0.0: []}),
        Written(_DRAFTS, _config, _read_config),
        _formats("--quantization", _BY_VLLM),
    ),
    flags("vllm serve \"$MODEL\""),
    {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size"},
    dashes=True, vendors=("NVIDIA", "AMD", "Google", "Intel", "AWS"),
    notes=(
        _names_no_draft('"method" and "model" of --speculative-config'),
        _chunked,
        _over_nodes(
            "start a Ray cluster on them first (--distributed-executor-backend ray), or the line on each of them with "
            "--nnodes {nodes}, --node-rank and --master-addr", _replica,
            "ranks of data parallelism are started on each of them, with --data-parallel-size-local, "
            "--data-parallel-address, and behind the first with --headless and --data-parallel-start-rank",
        ),
    ),
    remarks=(_config_remark,),
    beyond="vLLM refuses a --max-model-len above that of its configuration",
)  # fmt: skip


def _attends_apart(leaf: Lookup) -> bool:
    """Whether ranks of data parallelism meet in the experts, rather than being replicas."""
    return (leaf("mapping.dp") or 1.0) > 1.0 and (leaf("mapping.experts.ep") or 1.0) > (leaf("mapping.tp") or 1.0)


def _ranks(leaf: Lookup) -> Pairs:
    """SGLang counts the ranks that attend apart within its tp ranks."""
    tp, dp, together = leaf("mapping.tp") or 1.0, leaf("mapping.dp") or 1.0, _attends_apart(leaf)
    found = [("--tp-size", number(tp * dp if together else tp))]
    if dp > 1.0:
        found += [("--dp-size", number(dp)), *([("--enable-dp-attention", "")] if together else [])]
    return found


def _read_ranks(given: Mapping[str, str]) -> dict[str, float]:
    found = {"mapping.dp": float(given["--dp-size"])} if "--dp-size" in given else {}
    if "--tp-size" in given:
        apart = found.get("mapping.dp", 1.0) if "--enable-dp-attention" in given else 1.0
        found["mapping.tp"] = float(given["--tp-size"]) / apart
    return found


def _of_all_ranks(name: str, path: str) -> Written:
    """A number of a rank, which SGLang is told of all ranks that attend apart: it divides by them, rounding down."""

    def write(leaf: Lookup) -> Pairs:
        value = leaf(path)
        ranks = (leaf("mapping.dp") or 1.0) if _attends_apart(leaf) else 1.0
        return [] if value is None else [(name, number(value * ranks))]

    def read(given: Mapping[str, str]) -> dict[str, float]:
        ranks = float(given.get("--dp-size", 1.0)) if "--enable-dp-attention" in given else 1.0
        return {path: float(given[name]) // ranks if ranks > 1.0 else float(given[name])} if name in given else {}

    return Written((path,), write, read)


_ALGORITHM, _STEPS, _WIDTH, _TOKENS = (
    f"--speculative-{name}" for name in ("algorithm", "num-steps", "eagle-topk", "num-draft-tokens")
)


def _chain(leaf: Lookup) -> Pairs:
    """A chain of drafts behind the token that is known, which SGLang counts with them."""
    tokens = _drafted(leaf)
    algorithm = "NEXTN" if _drafts_itself(leaf) else "EAGLE"
    numbers = [(_STEPS, number(tokens)), (_WIDTH, "1"), (_TOKENS, number(tokens + 1.0))]
    return [(_ALGORITHM, algorithm), *numbers] if tokens else []


def _read_chain(given: Mapping[str, str]) -> dict[str, float]:
    """The longest chain: of a tree its depth."""
    if _STEPS in given:
        return {_DRAFTS[0]: _whole(given[_STEPS], _STEPS)}
    return {_DRAFTS[0]: _whole(str(float(given[_TOKENS]) - 1.0), _TOKENS)} if _TOKENS in given else {}


def _chain_remark(given: Mapping[str, str]) -> str:
    """That a tree, or what SGLang chooses itself, is not read as it is."""
    if _STEPS in given and given.get(_WIDTH, "1") != "1":
        return f"{_WIDTH} {given[_WIDTH]}: a tree of drafts is counted as a chain as long as it is deep"
    if _ALGORITHM in given and not {_STEPS, _TOKENS} & given.keys():
        return f"{_ALGORITHM} says not how many tokens are drafted: set drafts"
    return ""


SGLANG = Tool(
    "sglang", "serving", "0.5", "https://docs.sglang.ai/advanced_features/server_arguments.html",
    (
        Written(("mapping.tp", "mapping.dp"), _ranks, _read_ranks),
        Number("--pp-size", "mapping.pp", plain=1.0),
        Number("--ep-size", "mapping.experts.ep", plain=1.0),
        _messages("--moe-a2a-backend", "deepep"),
        Written(
            (_COPIES,), _copies("--ep-num-redundant-experts", "%s"), _read_copies("--ep-num-redundant-experts")
        ),
        _model_length("--context-length"),
        _of_all_ranks("--chunked-prefill-size", f"{_SERVING}chunk"),
        Switch("--enable-mixed-chunk", f"{_SERVING}mixed"),
        _of_all_ranks("--max-running-requests", f"{_ENGINE}most_sequences"),
        MemoryShare("--mem-fraction-static", f"{_SERVING}memory_share", of_rest=False),
        Choice(
            f"{_SERVING}cache_bytes", {2.0: [("--kv-cache-dtype", "auto")], 1.0: [("--kv-cache-dtype", "fp8_e4m3")]}
        ),
        Written((_KEPT,), _conservative, _read_conservative),
        Written(_DRAFTS, _chain, _read_chain),
        _formats("--quantization", _BY_SGLANG),
    ),
    flags("python3 -m sglang.launch_server --model-path \"$MODEL\""),
    {
        "--tp": "--tp-size", "--tensor-parallel-size": "--tp-size", "--dp": "--dp-size",
        "--data-parallel-size": "--dp-size", "--pp": "--pp-size", "--pipeline-parallel-size": "--pp-size",
        "--ep": "--ep-size", "--expert-parallel-size": "--ep-size",
    },
    dashes=True, vendors=("NVIDIA", "AMD", "Intel"),
    notes=(
        _names_no_draft("--speculative-draft-model-path"),
        _over_nodes(
            "start the line on each of them with --nnodes {nodes}, --node-rank and --dist-init-addr",
            lambda leaf: _replica(leaf) * ((leaf("mapping.dp") or 1.0) if _attends_apart(leaf) else 1.0),
        ),
    ),
    remarks=(_chain_remark,),
    beyond="SGLang refuses a --context-length above that of its configuration",
)  # fmt: skip


_APART = "enable_attention_dp"


def _is_apart(leaf: Lookup) -> bool:
    """Whether TensorRT-LLM's attention data parallelism is meant: every rank attends alone, experts lie over all."""
    return _attends_apart(leaf) and (leaf("mapping.tp") or 1.0) == 1.0 and (
        leaf("mapping.experts.ep") == leaf("mapping.dp")
    )


def _tp_size(leaf: Lookup) -> Pairs | None:
    """Its tp counts the ranks that attend apart; ranks that attend apart by several at a time it has none."""
    if _is_apart(leaf):
        return [("--tp_size", number(leaf("mapping.dp") or 1.0))]
    tp = leaf("mapping.tp") or 1.0
    if _attends_apart(leaf):
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
    if dp == 1.0 or _attends_apart(leaf):
        return ""
    return f"the line is one of {dp:g} replicas: start each on devices of its own, behind a router"


_EXPERTS_CONFIG, _SCHEDULER = "moe_config", "scheduler_config"


def _slots(leaf: Lookup) -> Pairs:
    """Its load balancer counts experts with their copies."""
    copies, experts = leaf(_COPIES) or 0.0, leaf("workload.experts.n_experts") or 0.0
    return [(_EXPERTS_CONFIG, f"{{load_balancer: {{num_slots: {number(experts + copies)}}}}}")] if copies else []


def _slots_remark(given: Mapping[str, str]) -> str:
    if "num_slots" not in given.get(_EXPERTS_CONFIG, ""):
        return ""
    return f"num_slots of {_EXPERTS_CONFIG} counts the experts too: set redundant_experts to what there is beside them"


_CACHE, _SPECULATION, _LAYERS = "kv_cache_config", "speculative_config", "num_nextn_predict_layers"
_OF_THE_REST = MemoryShare("--kv_cache_free_gpu_memory_fraction", f"{_SERVING}memory_share", of_rest=True)


def _cache(leaf: Lookup) -> Pairs | None:
    """The format of the cache; its entry takes the place of the option for memory, and has that too."""
    size = leaf(f"{_SERVING}cache_bytes")
    if size in (None, 2.0):
        return []
    share = [f", free_gpu_memory_fraction: {value}" for _, value in _OF_THE_REST.write(leaf) or []]
    return [(_CACHE, f"{{dtype: fp8{''.join(share)}}}")] if size == 1.0 else None


def _read_cache(given: Mapping[str, str]) -> dict[str, float]:
    return {f"{_SERVING}cache_bytes": 1.0} if re.search(r"\bdtype:\s*fp8\b", given.get(_CACHE, "")) else {}


def _predicted(leaf: Lookup) -> Pairs | None:
    """Drafts of the model's own layers; of another model TensorRT-LLM has to be told more."""
    tokens = _drafted(leaf)
    if not tokens:
        return []
    return [(_SPECULATION, f"{{decoding_type: MTP, {_LAYERS}: {number(tokens)}}}")] if _drafts_itself(leaf) else None


def _read_predicted(given: Mapping[str, str]) -> dict[str, float]:
    stated = re.search(rf"\b{_LAYERS}:\s*([^\s,}}]+)", given.get(_SPECULATION, ""))
    return {_DRAFTS[0]: _whole(stated[1], _LAYERS)} if stated else {}


def _entry_remark(given: Mapping[str, str]) -> str:
    """That the share of memory is read as an option, not as an entry."""
    if "free_gpu_memory_fraction" not in given.get(_CACHE, "") or _OF_THE_REST.name in given:
        return ""
    return f"free_gpu_memory_fraction of {_CACHE} is not read: state {_OF_THE_REST.name}"


TENSORRT_LLM = Tool(
    "tensorrt-llm", "serving", "1.1", "https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve.html",
    (
        Written(("mapping.tp",), _tp_size, _read_tp_size),
        Written(("mapping.dp",), _apart),
        Number("--pp_size", "mapping.pp", plain=1.0),
        Number("--ep_size", "mapping.experts.ep", plain=1.0),
        _model_length("--max_seq_len"),
        Number("--max_num_tokens", f"{_SERVING}chunk"),
        Number("--max_batch_size", f"{_ENGINE}most_sequences"),
        _OF_THE_REST,
        Written((f"{_SERVING}cache_bytes",), _cache, _read_cache),
        Written(_DRAFTS, _predicted, _read_predicted),
        Written((_COPIES,), _slots),
        Choice(_KEPT, {1.0: [], 0.0: [(_SCHEDULER, "{capacity_scheduler_policy: MAX_UTILIZATION}")]}),
        Choice("mapping.precision", {float(Precision.bf16): [], float(Precision.fp16): []}),  # others: the checkpoint's
    ),
    with_entries("trtllm-serve \"$MODEL\"", "--extra_llm_api_options", "extra_llm_api_options.yml"),
    vendors=("NVIDIA",),
    notes=(
        _replicas,
        _over_nodes(
            "start the line by srun or mpirun with one rank a device, behind trtllm-llmapi-launch",
            lambda leaf: _replica(leaf) * ((leaf("mapping.dp") or 1.0) if _is_apart(leaf) else 1.0),
        ),
    ),
    entries=(_APART, _CACHE, _EXPERTS_CONFIG, _SCHEDULER, _SPECULATION),
    remarks=(_entry_remark, _slots_remark),
)  # fmt: skip
