"""Engines that serve: vLLM, SGLang, TensorRT-LLM."""

from __future__ import annotations

from collections.abc import Mapping

from dse.launch.options import Choice, Lookup, Number, Pairs, Switch, Tool, Written, flags, number
from dse.types import Precision

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


def _drafts(leaf: Lookup) -> Pairs:
    tokens = leaf(f"{_SERVING}drafts")
    return [("--speculative-config", f'{{"num_speculative_tokens": {number(tokens)}}}')] if tokens else []


_EIGHT_BITS = (float(Precision.fp8), float(Precision.fp8_row), float(Precision.fp8_block))


def _formats(name: str, told: Mapping[float, str]) -> Choice:
    return Choice("mapping.precision", {code: [(name, text)] if text else [] for code, text in told.items()})


_BY_VLLM = {
    float(Precision.bf16): "", float(Precision.fp16): "", **dict.fromkeys(_EIGHT_BITS, "fp8"),
    float(Precision.int8): "compressed-tensors", float(Precision.int4): "awq", float(Precision.nvfp4): "modelopt_fp4",
    float(Precision.mxfp4): "mxfp4",
}  # fmt: skip
_BY_SGLANG = _BY_VLLM | {float(Precision.int8): "w8a8_int8"}

VLLM = Tool(
    "vllm", "serving", "0.11", "https://docs.vllm.ai/en/latest/cli/serve.html",
    (
        Number("--tensor-parallel-size", "mapping.tp", plain=1.0),
        Number("--pipeline-parallel-size", "mapping.pp", plain=1.0),
        Number("--data-parallel-size", "mapping.dp", plain=1.0),
        Written(("mapping.experts.ep", "mapping.experts.etp"), _experts_over_ranks, _read_experts, True),
        _model_length("--max-model-len"),
        Number("--max-num-batched-tokens", f"{_SERVING}chunk"),
        Number("--max-num-seqs", f"{_ENGINE}most_sequences"),
        Number("--gpu-memory-utilization", f"{_SERVING}memory_share"),
        Switch("--enable-chunked-prefill", f"{_SERVING}mixed"),
        Choice(f"{_SERVING}cache_bytes", {2.0: [("--kv-cache-dtype", "auto")], 1.0: [("--kv-cache-dtype", "fp8")]}),
        Written((f"{_SERVING}drafts", f"{_SERVING}acceptance"), _drafts),
        _formats("--quantization", _BY_VLLM),
    ),
    flags("vllm serve \"$MODEL\""),
    {"-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size"},
    dashes=True, vendors=("NVIDIA", "AMD", "Google", "Intel", "AWS"),
)  # fmt: skip


def _ranks(leaf: Lookup) -> Pairs:
    """SGLang counts the ranks that attend apart within its tp ranks."""
    tp, dp = leaf("mapping.tp") or 1.0, leaf("mapping.dp") or 1.0
    together = (leaf("mapping.experts.ep") or 1.0) > tp
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


SGLANG = Tool(
    "sglang", "serving", "0.5", "https://docs.sglang.ai/advanced_features/server_arguments.html",
    (
        Written(("mapping.tp", "mapping.dp"), _ranks, _read_ranks),
        Number("--pp-size", "mapping.pp", plain=1.0),
        Number("--ep-size", "mapping.experts.ep", plain=1.0),
        _model_length("--context-length"),
        Number("--chunked-prefill-size", f"{_SERVING}chunk"),
        Switch("--enable-mixed-chunk", f"{_SERVING}mixed"),
        Number("--max-running-requests", f"{_ENGINE}most_sequences"),
        Number("--mem-fraction-static", f"{_SERVING}memory_share"),
        Choice(
            f"{_SERVING}cache_bytes", {2.0: [("--kv-cache-dtype", "auto")], 1.0: [("--kv-cache-dtype", "fp8_e4m3")]}
        ),
        Number("--speculative-num-draft-tokens", f"{_SERVING}drafts", plain=0.0),
        _formats("--quantization", _BY_SGLANG),
    ),
    flags("python3 -m sglang.launch_server --model-path \"$MODEL\""),
    {
        "--tp": "--tp-size", "--tensor-parallel-size": "--tp-size", "--dp": "--dp-size",
        "--data-parallel-size": "--dp-size", "--pp": "--pp-size", "--pipeline-parallel-size": "--pp-size",
        "--ep": "--ep-size", "--expert-parallel-size": "--ep-size",
    },
    dashes=True, vendors=("NVIDIA", "AMD", "Intel"),
)  # fmt: skip


def _one_rank(leaf: Lookup) -> Pairs | None:
    """Ranks that attend apart are an entry of TensorRT-LLM's configuration file, not an option."""
    tp = leaf("mapping.tp") or 1.0
    if (leaf("mapping.dp") or 1.0) > 1.0:
        return None
    return [("--tp_size", number(tp))] if tp > 1.0 else []


def _read_one_rank(given: Mapping[str, str]) -> dict[str, float]:
    return {"mapping.tp": float(given["--tp_size"])} if "--tp_size" in given else {}


TENSORRT_LLM = Tool(
    "tensorrt-llm", "serving", "1.1", "https://nvidia.github.io/TensorRT-LLM/commands/trtllm-serve.html",
    (
        Written(("mapping.tp", "mapping.dp"), _one_rank, _read_one_rank),
        Number("--pp_size", "mapping.pp", plain=1.0),
        Number("--ep_size", "mapping.experts.ep", plain=1.0),
        _model_length("--max_seq_len"),
        Number("--max_num_tokens", f"{_SERVING}chunk"),
        Number("--max_batch_size", f"{_ENGINE}most_sequences"),
        Number("--kv_cache_free_gpu_memory_fraction", f"{_SERVING}memory_share"),
        Choice("mapping.precision", {float(Precision.bf16): [], float(Precision.fp16): []}),  # others: the checkpoint's
    ),
    flags("trtllm-serve \"$MODEL\""),
    vendors=("NVIDIA",),
)  # fmt: skip
