"""A fixed panel of designs of every kind that the model knows; laws of the whole model are held on each of them."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import dse
from dse.doors import STUDIES, Study
from dse.types import Design


class Case(NamedTuple):
    """A design by the names of its parts."""

    kind: str
    workload: str
    system: str
    software: str | None
    settings: dict[str, Any]

    @property
    def study(self) -> Study:
        return STUDIES[self.kind]

    def design(self) -> Design:
        return dse.design(self.workload, self.system, self.software, any_option=True, kind=self.kind, **self.settings)


def _trains(workload: str, system: str, software: str | None = None, **settings: Any) -> Case:
    return Case("training", workload, system, software, settings)


def _serves(workload: str, system: str, software: str | None = None, **settings: Any) -> Case:
    return Case("serving", workload, system, software, settings)


PANEL: dict[str, Case] = {
    "dense, eager attention": _trains(
        "gpt-3-175b", "selene", "megatron-2021", n_devices=1024, tp=8, pp=8, virtual_stages=2, micro_batch=2,
        recompute="selective",
    ),
    "dense, fully sharded, rings": _trains(
        "llama-3-70b", "eos", "fsdp", n_devices=256, dp=64, cp=4, micro_batch=1, zero_stage=3, recompute="full",
        overlap_dp=True,
    ),
    "dense, rings that hide, under a power limit": _trains(
        "llama-3-1-405b", "eos", n_devices=8192, tp=8, pp=16, cp=16, zero_stage=1, seq_len=131072, global_batch=128,
        **{"power.limit": "600 W"},
    ),
    "experts, latent attention, a pipeline that folds": _trains(
        "deepseek-v3", "h800-cluster", "deepseek-dualpipe", n_devices=2048, pp=16, ep=64, zero_stage=1,
        schedule="dualpipe", recompute="selective", biased=1, all_to_all="by-node",
    ),
    "experts, sharded, narrow formats": _trains(
        "qwen3-235b-a22b", "dgx-gb200", n_devices=256, ep=8, pp=4, tp=2, precision="mxfp8", recompute="selective",
        sequence_parallel=True,
    ),
    "adapters": _trains("llama-2-70b", "eos", n_devices=64, tp=8, **{"adapters.rank": 16, "packing.document": 300}),
    "offloading": _trains(
        "gpt-3-175b", "selene", n_devices=64, tp=8, pp=8, recompute="full", offload_weights=True,
        offload_activations=True, offload_optimizer=True,
    ),
    "a chip that does not exist yet": _trains("llama-3-70b", "gpu", n_devices=512, tp=8, pp=4, recompute="full"),
    "a superconducting chip": _trains("llama-3-70b", "scd-board", n_devices=64, tp=8, pp=8, recompute="full"),
    "small, launched kernel by kernel": _trains(
        "gpt-3-13b", "selene", "megatron-2021", n_devices=8, tp=8, global_batch=8, micro_batch=1, seq_len=256
    ),
    "small, launched by graphs of layers": _trains(
        "gpt-3-13b", "eos", "megatron-core-te", n_devices=8, tp=8, global_batch=8, micro_batch=1, seq_len=128,
        graph="layer",
    ),
    "heads of eighty columns": _trains("gpt-3-2-7b", "eos", n_devices=8, tp=4, micro_batch=2),
    "dies on a large substrate": _trains(
        "llama-3-8b", "h100", n_devices=8, tp=8,
        **{"made.packaging": "organic", "made.chiplets": 2, "made.logic_area": "160 mm2"},
    ),
    "dies on a small substrate": _trains(
        "llama-3-8b", "h100", n_devices=8, tp=8,
        **{"made.packaging": "organic", "made.chiplets": 2, "made.logic_area": "50 mm2"},
    ),
    "weights of four bits": _trains(
        "llama-3-70b", "dgx-gb200", n_devices=64, tp=4, pp=4, precision="nvfp4", recompute="selective"
    ),
    "a torus": _trains("llama-2-70b", "tpu-v5p-pod", n_devices=512, tp=8, recompute="full", **{"links.x": 8}),
    "a torus, experts": _trains(
        "qwen3-235b-a22b", "tpu-v5p-pod", n_devices=512, ep=64, tp=2, micro_batch=1, recompute="full", zero_stage=1,
        **{"links.x": 8},
    ),
    "dies that wait for their links": _trains(
        "llama-3-8b", "gpu", n_devices=8, tp=2, dp=4, micro_batch=1, global_batch=64,
        **{"made.chiplets": 4, "chip.die_link_density": "5 GB/s/mm"},
    ),
    "failures": _trains(
        "llama-3-1-405b", "eos", n_devices=16384, tp=8, pp=16, zero_stage=1, global_batch=2048,
        checkpoint="synchronous", spares=20, critical_batch=12e6,
    ),
    "served, dense": _serves("llama-3-70b", "h100", "vllm", tp=8, concurrency=64, prompt_tokens=2048),
    "served, a pipeline": _serves(
        "llama-3-1-405b", "h100", "sglang", tp=8, pp=4, concurrency=64, prompt_tokens=2048, precision="fp8"
    ),
    "served, experts and latent attention": _serves(
        "deepseek-v3", "h200", "sglang", n_devices=8, dp=8, ep=8, precision="fp8", concurrency=32, drafts=1, biased=1
    ),
    "served, experts on many ranks": _serves(
        "deepseek-v3", "h200", "sglang", n_devices=16, dp=16, ep=16, precision="fp8", concurrency=384,
        prompt_tokens=2048,
    ),
    "served, sums over two nodes": _serves(
        "deepseek-v3", "h100", "sglang", n_devices=16, tp=16, precision="fp8", concurrency=4, prompt_tokens=2048
    ),
    "served, states": _serves("mamba-2-2-7b", "h200", "vllm", tp=8, concurrency=64, prompt_tokens=8192),
    "served, a hybrid": _serves("nemotron-nano-9b-v2", "h200", "vllm", tp=2, pp=2, concurrency=64),
    "served, nano-batches": _serves(
        "deepseek-v3", "h200", "sglang", tp=8, ep=8, precision="fp8", concurrency=2048, prompt_tokens=2048,
        load="static", nano_batches=2,
    ),
    "served, a superconducting chip": _serves("llama-3-70b", "scd-board", tp=8, concurrency=64),
    "served, an engine of 2022": _serves(
        "mt-nlg-530b", "selene", "fastertransformer", tp=8, pp=3, concurrency=16, prompt_tokens=128, output_tokens=8,
        load="static",
    ),
    "served, launched one by one": _serves(
        "llama-3-8b", "h100", "vllm", concurrency=128, prompt_tokens=256, output_tokens=256, launch_ratio=40,
        graph_tokens=640,
    ),
    "served, far memory": _serves(
        "llama-3-70b", "h100", "vllm", tp=8, concurrency=64, far_weights=0.3, far_cache=0.3
    ),
    "served, at a rate": _serves(
        "llama-3-70b", "h100", "vllm", tp=4, dp=2, n_devices=8, request_rate=7, arrival_variation=2,
        prompt_tokens=2048, output_tokens=512, length_spread=0.4, answer_spread=0.6, sampled=0.5,
    ),
    "served, sums in one shot": _serves(
        "llama-3-70b", "a100-sxm-80gb", "tensorrt-llm-2025", tp=4, concurrency=48, prompt_tokens=2048, graph_step=128
    ),
    "served, prefixes and sessions": _serves(
        "llama-3-8b", "h100", "vllm", request_rate=5, prompt_tokens=4096, output_tokens=192, prefix_share=0.2,
        prefix_groups=200, prefix_skew=0.8, turns=4, think_time=30, host_cache=2e10, disk_cache=1e11,
    ),
}  # fmt: skip


@functools.cache
def design(name: str) -> Design:
    """The design of this name of the panel."""
    return PANEL[name].design()
