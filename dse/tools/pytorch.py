"""torchtitan's command line, and a configuration of DeepSpeed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dse.tools.options import (
    ChoiceOption,
    CompositeOption,
    Lookup,
    NumberOption,
    Pairs,
    SwitchOption,
    Tool,
    flags,
    number,
)
from dse.types import Precision, Recompute, Schedule

_PARALLEL = "--parallelism."


def _replicas(leaf: Lookup) -> Pairs:
    """Return the degrees of replicas that share a state, and of copies, as options; without ZeRO all are copies."""
    dp, copies = leaf("mapping.dp") or 1.0, leaf("mapping.dp_replicate") or 1.0
    shards = dp / copies if leaf("mapping.zero_stage") else 1.0
    return [
        (f"{_PARALLEL}data_parallel_shard_degree", number(shards)),
        (f"{_PARALLEL}data_parallel_replicate_degree", number(dp / shards)),
    ]


_SHARD, _COPIES = f"{_PARALLEL}data_parallel_shard_degree", f"{_PARALLEL}data_parallel_replicate_degree"
_RESHARD, _STAGES = f"{_PARALLEL}fsdp_reshard_after_forward", f"{_PARALLEL}pipeline_parallel_degree"


def _read_replicas(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``dp`` and copies that options state, the latter alone where shards are computed (-1)."""
    shards, copies = float(options.get(_SHARD, -1.0)), float(options.get(_COPIES, 1.0))
    values = {"mapping.dp": shards * copies} if shards >= 1.0 else {}
    return values | ({"mapping.dp_replicate": copies} if _COPIES in options and shards != 1.0 else {})


def _read_resharding(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage from what is resharded, 0 without shards; empty where neither is stated."""
    stage = {"always": 3.0, "never": 2.0}.get(options.get(_RESHARD, ""))
    if stage is None and float(options.get(_SHARD, -1.0)) == 1.0:
        stage = 0.0
    return {} if stage is None else {"mapping.zero_stage": stage}


def _resharding(leaf: Lookup) -> Pairs | None:
    """Return the resharding of a ZeRO stage as options, empty for 0, None for 1, which FSDP does not have.

    ZeRO 3 gathers weights again for the backward pass, ZeRO 2 stores them.
    """
    stage = leaf("mapping.zero_stage")
    if stage == 1.0:
        return None
    reshard = {3.0: "always", 2.0: "never"}.get(stage or 0.0)
    return [(f"{_PARALLEL}fsdp_reshard_after_forward", reshard)] if reshard else []


def _schedule(leaf: Lookup) -> Pairs | None:
    """Return the schedule of a pipeline as an option, empty without one, None for one that torchtitan lacks."""
    names = {
        float(Schedule._1f1b): "1F1B",
        float(Schedule.gpipe): "GPipe",
        float(Schedule.zb_v): "ZBVZeroBubble",
        float(Schedule.dualpipev): "DualPipeV",
    }
    code, chunks = leaf("mapping.schedule"), leaf("mapping.virtual_stages") or 1.0
    if (leaf("mapping.pp") or 1.0) == 1.0:
        return []
    if (code is None or code == float(Schedule._1f1b)) and chunks > 1.0:
        return [(f"{_PARALLEL}pipeline_parallel_schedule", "Interleaved1F1B")]
    name = "1F1B" if code is None else names.get(code)
    return None if name is None else [(f"{_PARALLEL}pipeline_parallel_schedule", name)]


def _read_schedule(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → code of the schedule that options state, empty for others; interleaved chunks are not read."""
    code = {
        "1F1B": Schedule._1f1b,
        "GPipe": Schedule.gpipe,
        "ZBVZeroBubble": Schedule.zb_v,
        "DualPipeV": Schedule.dualpipev,
    }.get(options.get(f"{_PARALLEL}pipeline_parallel_schedule", ""))
    return {} if code is None else {"mapping.schedule": float(code)}


def _batch(leaf: Lookup) -> Pairs:
    """Return the sequences per rank and pass, of the whole batch, and their length as options.

    A pass is of all micro-batches of a pipeline, else of one.
    """
    micro, ranks = leaf("mapping.micro_batch") or 1.0, leaf("mapping.dp") or 1.0
    batch, tokens = leaf("workload.global_batch") or 1.0, leaf("workload.seq_len") or 1.0
    global_pairs = [("--training.global_batch_size", number(batch)), ("--training.seq_len", number(tokens))]
    if (leaf("mapping.pp") or 1.0) == 1.0:
        return [("--training.local_batch_size", number(micro)), *global_pairs]
    micro_pair = (f"{_PARALLEL}pipeline_parallel_microbatch_size", number(micro))
    return [("--training.local_batch_size", number(batch / ranks)), micro_pair, *global_pairs]


def _read_batch(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → micro-batch, global batch and length that options state, without computed ones (-1)."""
    pipelined = float(options.get(_STAGES, 1.0)) > 1.0
    micro = f"{_PARALLEL}pipeline_parallel_microbatch_size" if pipelined else "--training.local_batch_size"
    names = {
        micro: "mapping.micro_batch",
        "--training.global_batch_size": "workload.global_batch",
        "--training.seq_len": "workload.seq_len",
    }
    values = {path: float(options[name]) for name, path in names.items() if name in options}
    return {path: value for path, value in values.items() if value > 0.0}


_CHECKPOINT = "--activation_checkpoint."
_RECOMPUTED = ChoiceOption("mapping.recompute", {
    float(Recompute.none): [(f"{_CHECKPOINT}mode", "none")],
    float(Recompute.full): [(f"{_CHECKPOINT}mode", "full")],
    float(Recompute.selective_op): [(f"{_CHECKPOINT}mode", "selective"), (f"{_CHECKPOINT}selective_ac_option", "op")],
})  # fmt: skip


def _recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for stored outputs of all products, which torchtitan does not have."""
    code = leaf("mapping.recompute") or 0.0
    if code == float(Recompute.selective_op) and leaf("software.keeps_products"):
        return None
    return _RECOMPUTED.write(leaf)


TORCHTITAN = Tool(
    "torchtitan", "training", "0.2", "https://github.com/pytorch/torchtitan torchtitan/config/job_config.py",
    (
        NumberOption(f"{_PARALLEL}tensor_parallel_degree", "mapping.tp", default=1.0),
        NumberOption(f"{_PARALLEL}pipeline_parallel_degree", "mapping.pp", default=1.0),
        NumberOption(f"{_PARALLEL}context_parallel_degree", "mapping.cp", default=1.0),
        NumberOption(f"{_PARALLEL}expert_parallel_degree", "mapping.experts.ep", default=1.0),
        NumberOption(f"{_PARALLEL}expert_tensor_parallel_degree", "mapping.experts.etp", default=1.0),
        CompositeOption(("mapping.dp", "mapping.dp_replicate"), _replicas, _read_replicas),
        CompositeOption(("mapping.zero_stage",), _resharding, _read_resharding),
        CompositeOption(("mapping.schedule", "mapping.virtual_stages"), _schedule, _read_schedule),
        CompositeOption(("mapping.micro_batch", "workload.global_batch", "workload.seq_len"), _batch, _read_batch),
        SwitchOption(f"{_PARALLEL}enable_async_tensor_parallel", "mapping.overlap_tp"),
        ChoiceOption("mapping.context.cp_comm_type", {0.0: [(f"{_PARALLEL}context_parallel_rotate_method", "alltoall")],
                                                1.0: [(f"{_PARALLEL}context_parallel_rotate_method", "allgather")]}),
        ChoiceOption("mapping.sequence_parallel", {1.0: [], 2.0: []}),  # always part of its tensor parallelism
        ChoiceOption("mapping.overlap_dp", {1.0: []}),
        CompositeOption(("mapping.recompute", "software.keeps_products"), _recompute, _RECOMPUTED.read),
        ChoiceOption("software.parameter_bytes", {4.0: []}),  # fixed
        ChoiceOption("mapping.precision", {
            float(Precision.bf16): [("--training.mixed_precision_param", "bfloat16")],
            float(Precision.fp32): [("--training.mixed_precision_param", "float32")],
        }),
    ),
    flags("torchrun --nnodes {nodes} --nproc-per-node {each} -m torchtitan.train --job.config_file \"$CONFIG\""),
    vendors=("NVIDIA", "AMD"),
)  # fmt: skip


# --- DeepSpeed: the names of nested tables, joined by points -----------------------------------------------

_ZERO = "zero_optimization."


def _accumulation(leaf: Lookup) -> Pairs:
    """Return global batch, micro-batch and number of micro-batches as options."""
    micro, ranks = leaf("mapping.micro_batch") or 1.0, leaf("mapping.dp") or 1.0
    batch = leaf("workload.global_batch") or 1.0
    return [
        ("train_batch_size", number(batch)),
        ("train_micro_batch_size_per_gpu", number(micro)),
        ("gradient_accumulation_steps", number(batch / (micro * ranks))),
    ]


def _read_accumulation(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → global batch and micro-batch that options state, and ``dp`` where it follows."""
    names = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    batch, micro, steps = (float(options[name]) if name in options else None for name in names)
    values = {"workload.global_batch": batch, "mapping.micro_batch": micro}
    if batch and micro and steps:
        values["mapping.dp"] = batch / micro / steps
    return {path: value for path, value in values.items() if value is not None}


_STAGE, _OVERLAP = f"{_ZERO}stage", f"{_ZERO}overlap_comm"
_OVERLAPPED = ChoiceOption("mapping.overlap_dp", {0.0: [(_OVERLAP, "false")], 1.0: [(_OVERLAP, "true")]})


def _stage(leaf: Lookup) -> Pairs | None:
    """Return ZeRO stage and overlap as options, None for an overlap that DeepSpeed does not have."""
    stage, overlap = leaf("mapping.zero_stage"), _OVERLAPPED.write(leaf)
    return None if overlap is None else [*([] if stage is None else [(_STAGE, number(stage))]), *overlap]


def _read_stage(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage and overlap that options state.

    Messages overlap at stage 3 by default (``overlap_comm_valid`` of deepspeed/runtime/zero/config.py).
    """
    if _STAGE not in options:
        return _OVERLAPPED.read(options)
    stage = float(options[_STAGE])
    return {"mapping.zero_stage": stage, "mapping.overlap_dp": float(stage == 3.0)} | _OVERLAPPED.read(options)


_PINNED = "mapping.tiers.pinned"


def _read_offloaded(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → shares of offloaded optimiser state and weights, of those in storage, and page-locked memory.

    Memory of the host is pageable by default (``pin_memory`` of deepspeed/runtime/zero/offload_config.py), buffers of
    storage are page-locked.
    """
    values: dict[str, float] = {}
    for part, name in (("optimizer", "offload_optimizer"), ("weights", "offload_param")):
        device = options.get(f"{_ZERO}{name}.device", "none")
        if device != "none":
            values[f"mapping.offload_{part}"] = float(options.get(f"{_ZERO}{name}.ratio", 1.0))
            values |= {f"mapping.tiers.storage_{part}": 1.0} if device == "nvme" else {}
            is_pinned = float(device == "nvme" or options.get(f"{_ZERO}{name}.pin_memory") == "true")
            values[_PINNED] = min(is_pinned, values.get(_PINNED, 1.0))
    return values


def _offloaded(leaf: Lookup) -> Pairs | None:
    """Return the offload of optimiser state and weights to host or storage as options, None for others.

    Memory of the host is page-locked unless a mapping says otherwise.

    The optimiser may be offloaded in part, weights only all or none.
    """
    pairs: Pairs = []
    for part, name in (("optimizer", "offload_optimizer"), ("weights", "offload_param")):
        offloaded_share, stored = leaf(f"mapping.offload_{part}") or 0.0, leaf(f"mapping.tiers.storage_{part}") or 0.0
        if stored not in (0.0, 1.0) or (part == "weights" and offloaded_share not in (0.0, 1.0)):
            return None
        if offloaded_share:
            pairs.append((f"{_ZERO}{name}.device", "nvme" if stored else "cpu"))
            pairs += [] if stored or leaf(_PINNED) == 0.0 else [(f"{_ZERO}{name}.pin_memory", "true")]
        if 0.0 < offloaded_share < 1.0:
            pairs.append((f"{_ZERO}{name}.ratio", number(offloaded_share)))
    return pairs


def _secondary(leaf: Lookup) -> Pairs:
    """Return the ranks of a secondary copy of the weights as an option, empty without one."""
    if not leaf("mapping.sharding.secondary"):
        return []
    return [(f"{_ZERO}zero_hpz_partition_size", number(leaf("mapping.sharding.weights_over") or 1.0))]


def _nested_json(leaf: Lookup, pairs: Pairs) -> str:
    """Return options, whose names are dotted paths, as nested JSON."""
    document: dict[str, Any] = {}
    for name, text in pairs:
        *tables, key = name.split(".")
        table = document
        for table_name in tables:
            table = table.setdefault(table_name, {})
        table[key] = json.loads(text) if text[:1].isdigit() or text in ("true", "false") else text
    return json.dumps(document, indent=2)


DEEPSPEED = Tool(
    "deepspeed", "training", "0.17", "https://www.deepspeed.ai/docs/config-json/",
    (
        CompositeOption(
            ("mapping.micro_batch", "workload.global_batch", "mapping.dp"), _accumulation, _read_accumulation
        ),
        CompositeOption(("mapping.zero_stage", "mapping.overlap_dp"), _stage, _read_stage),
        CompositeOption(
            ("mapping.offload_optimizer", "mapping.offload_weights", "mapping.tiers.storage_optimizer",
             "mapping.tiers.storage_weights", _PINNED), _offloaded, _read_offloaded,
        ),
        NumberOption(f"{_ZERO}sub_group_size", "mapping.tiers.sub_group_size", default=1e9),
        ChoiceOption("mapping.tiers.pipeline_read", {
            0.0: [], 1.0: [(f"{_ZERO}offload_optimizer.pipeline_read", "true")],
        }),
        ChoiceOption("mapping.tiers.pipeline_write", {
            0.0: [], 1.0: [(f"{_ZERO}offload_optimizer.pipeline_write", "true")],
        }),
        CompositeOption(("mapping.sharding.secondary", "mapping.sharding.weights_over"), _secondary),
        ChoiceOption("mapping.sharding.gathered_bytes", {2.0: [], 1.0: [(f"{_ZERO}zero_quantized_weights", "true")]}),
        ChoiceOption("mapping.sharding.scattered_bytes", {
            0.0: [], 0.5: [(f"{_ZERO}zero_quantized_gradients", "true")],
        }),
        NumberOption("tensor_parallel.autotp_size", "mapping.tp", default=1.0),
        ChoiceOption("mapping.precision", {
            float(Precision.bf16): [("bf16.enabled", "true")], float(Precision.fp16): [("fp16.enabled", "true")],
            float(Precision.fp32): [],
        }),
    ),
    _nested_json,
    vendors=("NVIDIA", "AMD", "Intel"),
)  # fmt: skip
