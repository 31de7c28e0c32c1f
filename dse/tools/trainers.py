"""DeepSpeed and MaxText: options that follow from several leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dse.tools.options import CompositeOption, Lookup, Pairs, degrees, number
from dse.tools.rows import pairs_of, read_tool

_BATCH, _MICRO, _TOKENS = "workload.global_batch", "mapping.micro_batch", "workload.seq_len"
_DP, _COPIES, _ZERO = "mapping.dp", "mapping.dp_replicate", "mapping.zero_stage"


def _stated_numbers(options: Mapping[str, str], names: Mapping[str, str]) -> dict[str, float]:
    """Return path → number of the options that are stated, by option → path; ValueError for a text that is none."""
    return {path: float(options[name]) for name, path in names.items() if name in options}


# --- DeepSpeed --------------------------------------------------------------------------------------------

_ACCUMULATION = {"train_batch_size": _BATCH, "train_micro_batch_size_per_gpu": _MICRO}
_STEPS, _PINNED = "gradient_accumulation_steps", "mapping.tiers.pinned"

#: Part of the state → table of its offload.
_OFFLOADED = {
    "optimizer": "zero_optimization.offload_optimizer.",
    "weights": "zero_optimization.offload_param.",
}


def _accumulation(leaf: Lookup) -> Pairs:
    """Return global batch, micro-batch and number of micro-batches as options."""
    (micro, ranks), batch = degrees(leaf, "micro_batch", "dp"), leaf(_BATCH) or 1.0
    return list(zip((*_ACCUMULATION, _STEPS), map(number, (batch, micro, batch / (micro * ranks))), strict=True))


def _read_accumulation(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → global batch and micro-batch that options state, and ``dp`` where it follows."""
    values, steps = _stated_numbers(options, _ACCUMULATION), float(options.get(_STEPS, 0.0))
    batch, micro = values.get(_BATCH), values.get(_MICRO)
    return values | ({_DP: batch / micro / steps} if batch and micro and steps else {})


def _read_offloaded(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → shares of offloaded optimiser state and weights, of those in storage, and page-locked memory.

    Memory of the host is pageable by default (``pin_memory`` of deepspeed/runtime/zero/offload_config.py), buffers of
    storage are page-locked.
    """
    values: dict[str, float] = {}
    for part, prefix in _OFFLOADED.items():
        device = options.get(f"{prefix}device", "none")
        if device != "none":
            values[f"mapping.offload_{part}"] = float(options.get(f"{prefix}ratio", 1.0))
            values |= {f"mapping.tiers.storage_{part}": 1.0} if device == "nvme" else {}
            is_pinned = float(device == "nvme" or options.get(f"{prefix}pin_memory") == "true")
            values[_PINNED] = min(is_pinned, values.get(_PINNED, 1.0))
    return values


def _offloaded(leaf: Lookup) -> Pairs | None:
    """Return the offload of optimiser state and weights to host or storage as options, None for others.

    Memory of the host is page-locked unless a mapping says otherwise.

    The optimiser may be offloaded in part, weights only all or none.
    """
    pairs: Pairs = []
    for part, prefix in _OFFLOADED.items():
        offloaded_share, stored = leaf(f"mapping.offload_{part}") or 0.0, leaf(f"mapping.tiers.storage_{part}") or 0.0
        if stored not in (0.0, 1.0) or (part == "weights" and offloaded_share not in (0.0, 1.0)):
            return None
        if offloaded_share:
            pairs.append((f"{prefix}device", "nvme" if stored else "cpu"))
            pairs += [] if stored or leaf(_PINNED) == 0.0 else [(f"{prefix}pin_memory", "true")]
        if 0.0 < offloaded_share < 1.0:
            pairs.append((f"{prefix}ratio", number(offloaded_share)))
    return pairs


DEEPSPEED = read_tool(
    "deepspeed",
    {
        "accumulation": CompositeOption((_MICRO, _BATCH, _DP), _accumulation, _read_accumulation),
        "offload": CompositeOption(
            (
                *(f"mapping.offload_{part}" for part in _OFFLOADED),
                *(f"mapping.tiers.storage_{part}" for part in _OFFLOADED),
                _PINNED,
            ),
            _offloaded,
            _read_offloaded,
        ),
    },
)


# --- MaxText ----------------------------------------------------------------------------------------------

_COPY_AXES = ("dcn_data_parallelism", "ici_data_parallelism")
_SHARD_AXES = ("dcn_fsdp_parallelism", "ici_fsdp_parallelism")
_STAGE_AXIS, _EXPERT_AXIS = "dcn_pipeline_parallelism", "ici_expert_parallelism"
_DEVICE_BATCH = "per_device_batch_size"


def _device_batch(leaf: Lookup) -> Pairs:
    """Return sequences per device over all micro-batches of a step, and the number of these, as options."""
    replicas, tp, cp, stages, micro = degrees(leaf, "dp", "tp", "cp", "pp", "micro_batch")
    batch = leaf(_BATCH) or 1.0
    device_batch, n_micro_batches = batch / (replicas * tp * cp * stages), batch / (replicas * micro)
    if stages > 1.0:
        return [(_DEVICE_BATCH, number(device_batch)), ("num_pipeline_microbatches", number(n_micro_batches))]
    pairs = [(_DEVICE_BATCH, number(device_batch / n_micro_batches))]
    return [*pairs, ("gradient_accumulation_steps", number(n_micro_batches))] if n_micro_batches > 1.0 else pairs


def _slices(leaf: Lookup) -> Pairs:
    """Return the replicas within and across slices as options: fsdp for those that share state, data for copies.

    The ranks that experts are spread over are an axis of their own, over which weights and batch are split too.
    """
    dp, ep, dp_replicate = degrees(leaf, "dp", "experts.ep", "dp_replicate")
    replicas = max(dp / ep, 1.0)
    copies = min(dp_replicate, replicas) if (leaf(_ZERO) or 0.0) >= 3.0 else replicas
    slices = max((leaf("system.n_devices") or 1.0) / (leaf("system.scale_up.domain") or 1.0), 1.0)
    slice_replicas = min(slices, replicas)
    slice_copies = min(copies, slice_replicas)
    slice_shards = slice_replicas / slice_copies
    return pairs_of(
        f"dcn_data_parallelism={number(slice_copies)} dcn_fsdp_parallelism={number(slice_shards)} "
        f"ici_fsdp_parallelism={number(replicas / copies / slice_shards)} "
        f"ici_data_parallelism={number(copies / slice_copies)}"
    )


def _degree_product(options: Mapping[str, str], *names: str) -> float:
    """Return the product of degrees, 1 for absent ones and 0 where the tool computes one of them (-1)."""
    return max(math.prod(max(float(options.get(name, 1.0)), 0.0) for name in names), 0.0)


def _read_slices(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``dp``, copies and ZeRO stage that options state; empty unless all degrees are stated."""
    if not {*_COPY_AXES, *_SHARD_AXES} <= options.keys():
        return {}
    copies, shards, ep = (_degree_product(options, *axes) for axes in (_COPY_AXES, _SHARD_AXES, (_EXPERT_AXIS,)))
    if not copies * shards * ep:
        return {}
    values = {_DP: copies * shards * ep}
    if shards > 1.0:
        return values | {_COPIES: copies, _ZERO: 3.0}
    return values if ep > 1.0 else values | {_ZERO: 0.0}


def _read_device_batch(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → global batch and micro-batch from the batch per device; empty unless all degrees are stated."""
    device_batch, replicas = options.get(_DEVICE_BATCH), _read_slices(options).get(_DP)
    devices = _degree_product(options, "ici_tensor_parallelism", "ici_context_parallelism", _STAGE_AXIS)
    if device_batch is None or replicas is None or not replicas * devices:
        return {}
    pipelined = float(options.get(_STAGE_AXIS, 1.0)) > 1.0
    count_option = "num_pipeline_microbatches" if pipelined else "gradient_accumulation_steps"
    n_micro_batches = float(options.get(count_option, 1.0))
    batch = float(device_batch) * replicas * devices * (1.0 if pipelined else n_micro_batches)
    return {_BATCH: batch, _MICRO: batch / replicas / n_micro_batches}


MAXTEXT = read_tool(
    "maxtext",
    {
        "batch": CompositeOption((_MICRO, _BATCH), _device_batch, _read_device_batch),
        "replicas": CompositeOption((_DP, _COPIES), _slices, _read_slices),
    },
)
