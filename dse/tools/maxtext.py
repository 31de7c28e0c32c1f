"""MaxText: parallel degrees of a slice (``ici_``) and between slices (``dcn_``)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dse.tools.options import (
    ChoiceOption,
    CompositeOption,
    Lookup,
    NumberOption,
    OptionRule,
    Pairs,
    SwitchOption,
    Tool,
    assignments,
    number,
)
from dse.types import Precision, Recompute


def _batch(leaf: Lookup) -> Pairs:
    """Return sequences per device over all micro-batches of a step, and the number of these, as options."""
    devices = math.prod(leaf(f"mapping.{degree}") or 1.0 for degree in ("dp", "tp", "cp", "pp"))
    replicas, micro = leaf("mapping.dp") or 1.0, leaf("mapping.micro_batch") or 1.0
    batch = leaf("workload.global_batch") or 1.0
    n_micro_batches = batch / (replicas * micro)
    if (leaf("mapping.pp") or 1.0) > 1.0:
        return [
            ("per_device_batch_size", number(batch / devices)),
            ("num_pipeline_microbatches", number(n_micro_batches)),
        ]
    pairs = [("per_device_batch_size", number(batch / devices / n_micro_batches))]
    return [*pairs, ("gradient_accumulation_steps", number(n_micro_batches))] if n_micro_batches > 1.0 else pairs


def _replicas(leaf: Lookup) -> Pairs:
    """Return the replicas within and across slices as options: fsdp for those that share state, data for copies.

    The ranks that experts are spread over are an axis of their own, over which weights and batch are split too.
    """
    dp, ep = leaf("mapping.dp") or 1.0, leaf("mapping.experts.ep") or 1.0
    replicas = max(dp / ep, 1.0)
    shared = (leaf("mapping.zero_stage") or 0.0) >= 3.0
    copies = min(leaf("mapping.dp_replicate") or 1.0, replicas) if shared else replicas
    slices = max((leaf("system.n_devices") or 1.0) / (leaf("system.scale_up.domain") or 1.0), 1.0)
    slice_replicas = min(slices, replicas)
    slice_copies = min(copies, slice_replicas)
    return [
        ("dcn_data_parallelism", number(slice_copies)),
        ("dcn_fsdp_parallelism", number(slice_replicas / slice_copies)),
        ("ici_fsdp_parallelism", number(replicas / copies / (slice_replicas / slice_copies))),
        ("ici_data_parallelism", number(copies / slice_copies)),
    ]


_COPIES, _SHARDS = ("dcn_data_parallelism", "ici_data_parallelism"), ("dcn_fsdp_parallelism", "ici_fsdp_parallelism")


def _degree_product(options: Mapping[str, str], *names: str) -> float:
    """Return the product of degrees, 1 for absent ones and 0 where the tool computes one of them (-1)."""
    return max(math.prod(max(float(options.get(name, 1.0)), 0.0) for name in names), 0.0)


def _read_replicas(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``dp``, copies and ZeRO stage that options state; empty unless all degrees are stated."""
    if not {*_COPIES, *_SHARDS} <= options.keys():
        return {}
    copies, shards, ep = (
        _degree_product(options, *_COPIES),
        _degree_product(options, *_SHARDS),
        _degree_product(options, _EXPERTS),
    )
    if not copies * shards * ep:
        return {}
    values = {"mapping.dp": copies * shards * ep}
    if shards > 1.0:
        return values | {"mapping.dp_replicate": copies, "mapping.zero_stage": 3.0}
    return values if ep > 1.0 else values | {"mapping.zero_stage": 0.0}


_EXPERTS = "ici_expert_parallelism"
_MODEL = ("ici_tensor_parallelism", "ici_context_parallelism", "dcn_pipeline_parallelism")


def _read_batch(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → global batch and micro-batch from the batch per device; empty unless all degrees are stated."""
    device_batch, replicas = options.get("per_device_batch_size"), _read_replicas(options).get("mapping.dp")
    devices = (replicas or 0.0) * _degree_product(options, *_MODEL)
    if device_batch is None or not devices or replicas is None:
        return {}
    pipelined = float(options.get("dcn_pipeline_parallelism", 1.0)) > 1.0
    batch = float(device_batch) * devices
    n_micro_batches = float(
        options.get("num_pipeline_microbatches" if pipelined else "gradient_accumulation_steps", 1.0)
    )
    batch *= 1.0 if pipelined else n_micro_batches
    return {"workload.global_batch": batch, "mapping.micro_batch": batch / replicas / n_micro_batches}


#: Remat policies by recompute; for selective_op that of a stack with ``keeps_products``. The first of each is written,
#: others are read.
_POLICIES = {
    Recompute.none: ("minimal_with_context", "minimal_flash"), Recompute.selective_op: ("minimal",),
    Recompute.full: ("full",),
}  # fmt: skip


def _remat(leaf: Lookup) -> Pairs | None:
    """Return the policy of recompute as an option, None for one that MaxText does not have."""
    code = Recompute(int(leaf("mapping.recompute") or 0.0))
    if code not in _POLICIES or (code is Recompute.selective_op and not leaf("software.keeps_products")):
        return None
    return [("remat_policy", _POLICIES[code][0])]


def _read_remat(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → recompute (and what stacks keep) that options state, empty for an unknown policy."""
    policy = options.get("remat_policy")
    code = next((code for code, names in _POLICIES.items() if policy in names), None)
    if code is None:
        return {}
    keeps = {"software.keeps_products": 1.0} if code is Recompute.selective_op else {}
    return {"mapping.recompute": float(code)} | keeps


_RULES: tuple[OptionRule, ...] = (
    NumberOption("base_num_decoder_layers", "workload.n_layers"),
    NumberOption("base_emb_dim", "workload.hidden"),
    NumberOption("base_mlp_dim", "workload.ffn_hidden"),
    NumberOption("base_num_query_heads", "workload.n_heads"),
    NumberOption("base_num_kv_heads", "workload.n_kv_heads"),
    NumberOption("head_dim", "workload.head_dim"),
    NumberOption("vocab_size", "workload.vocab"),
    NumberOption("num_experts", "workload.experts.n_experts"),
    NumberOption("num_experts_per_tok", "workload.experts.top_k"),
    NumberOption("base_moe_mlp_dim", "workload.experts.expert_ffn"),
    SwitchOption("logits_via_embedding", "workload.tied_embeddings", value="true"),
    ChoiceOption("workload.parallel_block", {0.0: [], 1.0: [("decoder_block", "default")]}),
    NumberOption("max_target_length", "workload.seq_len"),
    CompositeOption(("mapping.micro_batch", "workload.global_batch"), _batch, _read_batch),
    NumberOption("ici_tensor_parallelism", "mapping.tp"),
    NumberOption("ici_context_parallelism", "mapping.cp", default=1.0),
    NumberOption(_EXPERTS, "mapping.experts.ep", default=1.0),
    NumberOption("dcn_pipeline_parallelism", "mapping.pp", default=1.0),
    CompositeOption(("mapping.dp", "mapping.dp_replicate"), _replicas, _read_replicas),
    ChoiceOption("mapping.zero_stage", {0.0: [], 3.0: []}),  # follows from the degrees
    ChoiceOption("mapping.sequence_parallel", {0.0: [], 1.0: [], 2.0: []}),  # chosen by the compiler
    ChoiceOption("mapping.overlap_dp", {0.0: [], 1.0: []}),
    ChoiceOption("mapping.overlap_tp", {0.0: [], 1.0: []}),
    CompositeOption(("mapping.recompute", "software.keeps_products"), _remat, _read_remat),
    ChoiceOption("software.parameter_bytes", {4.0: [("weight_dtype", "float32")], 2.0: [("weight_dtype", "bfloat16")]}),
    ChoiceOption("mapping.precision", {
        float(Precision.bf16): [("dtype", "bfloat16")], float(Precision.fp32): [("dtype", "float32")],
        float(Precision.fp8): [("dtype", "bfloat16"), ("quantization", "fp8")],
        float(Precision.int8): [("dtype", "bfloat16"), ("quantization", "int8")],
    }),
)  # fmt: skip

MAXTEXT = Tool(
    "maxtext",
    "training",
    "2025",
    "https://github.com/AI-Hypercomputer/maxtext src/MaxText/configs/base.yml",
    _RULES,
    assignments('python3 -m MaxText.train "$CONFIG"'),
    vendors=("Google", "NVIDIA", "AMD"),
)
