"""aiconfigurator's ``cli estimate``: measured kernels of its newest database of an engine, its default modes."""

from __future__ import annotations

import functools
import json
import logging
import re
import tempfile
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

from aiconfigurator.cli.api import cli_estimate
from aiconfigurator.sdk.perf_database import get_latest_database_version
from harness import CHIP, ENGINE, LOAD, MODEL, PRECISION, Row, main, need

_CHIPS = {
    "h100-sxm-80gb": "h100_sxm",
    "h200-sxm-141gb": "h200_sxm",
    "b200-sxm-180gb": "b200_sxm",
    "gb200-nvl72": "gb200",
    "a100-sxm-80gb": "a100_sxm",
    "l40s": "l40s",
    "rtx-pro-6000-server": "rtx_pro_6000_server",
}

#: Words of a row's framework → engine; of TensorRT-LLM the database begins with the backend of PyTorch (1.0).
_ENGINES = {r"vllm": "vllm", r"trtllm|TensorRT-LLM 1": "trtllm", r"sglang": "sglang"}

#: Beginning of a row's model → what the tool ships, and what it ships in NVFP4.
_MODELS = {
    "Llama-3.1-405B": "meta-llama/Meta-Llama-3.1-405B", "Meta-Llama-3.1-405B": "meta-llama/Meta-Llama-3.1-405B",
    "Llama-3-70B": "meta-llama/Meta-Llama-3.1-70B", "Llama-3-8B": "meta-llama/Meta-Llama-3.1-8B",
    "Llama-4-Scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "GPT-OSS-120B": "openai/gpt-oss-120b", "gpt-oss-20b": "openai/gpt-oss-20b",
    "DeepSeek-V3": "deepseek-ai/DeepSeek-V3", "DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
    "MiniMax-M2.5": "MiniMaxAI/MiniMax-M2.5", "Kimi-K2.5": "moonshotai/Kimi-K2.5",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B", "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B", "Qwen3-32B": "Qwen/Qwen3-32B",
    "Mixtral-8x7B": "mistralai/Mixtral-8x7B-v0.1", "Mixtral-8x22B": "mistralai/Mixtral-8x22B-v0.1",
}  # fmt: skip
#: The same in 8 and in 4 bits, where the tool ships the checkpoint, which says how it is quantised.
_FP8 = {
    "Llama-3-70B": "nvidia/Llama-3.1-70B-Instruct-FP8",
    "Qwen3-235B-A22B": "Qwen/Qwen3-235B-A22B-FP8",
    "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B-FP8",
    "Qwen3-32B": "Qwen/Qwen3-32B-FP8",
    "DeepSeek-V3": "deepseek-ai/DeepSeek-V3",
    "DeepSeek-R1": "deepseek-ai/DeepSeek-R1",
    "MiniMax-M2.5": "MiniMaxAI/MiniMax-M2.5",
}
_FP4 = {
    "DeepSeek-V3": "nvidia/DeepSeek-V3.1-NVFP4",
    "DeepSeek-R1": "nvidia/DeepSeek-V3.1-NVFP4",
    "MiniMax-M2.5": "nvidia/MiniMax-M2.5-NVFP4",
    "Kimi-K2.5": "nvidia/Kimi-K2.5-NVFP4",
    "Qwen3-235B-A22B": "nvidia/Qwen3-235B-A22B-NVFP4",
}
#: Dense models of Llama's architecture, given as a local configuration.
_LLAMAS = ("Llama-2", "LLaMA", "CodeLlama", "Mistral-7B")

_FORMATS = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "fp4": "nvfp4"}
#: Models of one format, whatever a source calls it.
_ONE_FORMAT = ("GPT-OSS", "gpt-oss", "Kimi")
#: Chips on which the tool recommends 8-bit activations for GPT-OSS; of vLLM it has those of 16 bits alone.
_MXFP8 = ("b200-sxm-180gb", "gb200-nvl72")

_folder = tempfile.TemporaryDirectory()
logging.disable(logging.CRITICAL)


def _named(names: dict[str, str], model: str) -> str | None:
    return next((name for start, name in names.items() if model.startswith(start)), None)


def _model(row: Row) -> tuple[str, dict[str, str]]:
    """Path of a model, and its formats where the checkpoint does not tell."""
    model, stated = row["model"], row["stated_precision"]
    if own := _named({"fp8": _FP8, "fp4": _FP4}.get(stated, {}), model):
        return own, {}
    if model.startswith(_ONE_FORMAT):
        on_blackwell = row["chip"] in _MXFP8 and "vllm" not in row["framework"].lower()
        formats = {"moe_quant_mode": "w4a8_mxfp4_mxfp8"} if on_blackwell and not model.startswith("Kimi") else {}
        return _named(_MODELS, model) or "", formats
    need(stated in _FORMATS, PRECISION)
    name = _FORMATS[stated]
    formats = {"gemm_quant_mode": name, **({"moe_quant_mode": name} if row["n_experts"] else {})}
    if path := _named(_MODELS, model):
        return _shipped(path) if path.startswith("mistralai") else path, formats
    need(model.startswith(_LLAMAS), MODEL)
    return _local(row), formats


def _shipped(path: str) -> str:
    """A configuration that the tool ships but would ask its hub for, as a local one."""
    folder = Path(_folder.name) / path
    folder.mkdir(parents=True, exist_ok=True)
    own = files("aiconfigurator_core") / "model_configs" / f"{path.replace('/', '--')}_config.json"
    (folder / "config.json").write_text(own.read_text(encoding="utf-8"), encoding="utf-8")
    return str(folder)


def _local(row: Row) -> str:
    folder = Path(_folder.name) / re.sub(r"\W", "_", row["model"])
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_act": "silu",
                "torch_dtype": "bfloat16",
                "max_position_embeddings": 131072,
                "rms_norm_eps": 1e-5,
                "tie_word_embeddings": False,
                "num_hidden_layers": int(row["n_layers"]),
                "hidden_size": int(row["hidden"]),
                "num_attention_heads": int(row["n_heads"]),
                "num_key_value_heads": int(row["n_kv_heads"]),
                "head_dim": int(row["head_dim"]),
                "intermediate_size": int(row["ffn_hidden"]),
                "vocab_size": int(row["vocab"]),
            }
        )
    )
    return str(folder)


#: The default release of an engine's database, looked up once: that takes longer than an estimate.
_release = functools.cache(get_latest_database_version)


@functools.cache
def _estimate(**options: Any) -> Any:
    return cli_estimate(**options, backend_version=_release(options["system_name"], options["backend_name"]))


def predict(row: Row) -> float:
    """A figure of a row, in SI."""
    need(row["chip"] in _CHIPS, CHIP)
    engine = next((name for words, name in _ENGINES.items() if re.match(words, row["framework"], re.IGNORECASE)), None)
    need(engine and row["framework"] != "vLLM 0.10.0, ROCm 6.4.1", ENGINE)
    need(row["load"] in ("static", "concurrency"), LOAD)
    path, formats = _model(row)
    tp, dp, experts = int(row["tp"]), int(row["dp"]), row["n_experts"] > 0
    if experts:
        spread = {"attention_dp_size": dp, "moe_ep_size": int(row["ep"]), "moe_tp_size": tp * dp // int(row["ep"])}
    else:
        spread = {"attention_dp_size": 1}
    found = _estimate(
        model_path=path,
        system_name=_CHIPS[row["chip"]],
        backend_name=engine,
        mode="static" if row["load"] == "static" else "agg",
        isl=round(row["isl"]),
        osl=max(2, round(row["osl"])),
        batch_size=max(1, round(row["concurrency"] / dp)),
        tp_size=tp,
        pp_size=int(row["pp"]),
        kvcache_quant_mode="fp8" if row["cache_bytes"] < 1.5 else "bfloat16",
        **formats,
        **spread,
    )
    tokens = found.raw["tokens/s"] * (1 if experts else dp)
    return {
        "time_to_first_token": found.ttft / 1e3,
        "time_per_output_token": found.tpot / 1e3,
        "inter_token_latency": found.tpot / 1e3,
        "request_latency": found.raw["request_latency"] / 1e3,
        "output_tokens_per_second": tokens,
        "output_tokens_per_second_per_device": tokens / row["devices"],
    }[row["metric"]]


if __name__ == "__main__":
    main(metadata.version("aiconfigurator"), {"aiconfigurator": ("serving", predict)})
