"""DeepSpeed: options that follow from several leaves.

Rules of its configuration by dotted paths; :mod:`dse.tools.trainer` reads its options too.
"""

from __future__ import annotations

from collections.abc import Mapping

from dse.tools.options import (
    WORLD_SIZE,
    CompositeOption,
    Lookup,
    Pairs,
    degrees,
    number,
    option_degree,
    option_number,
    option_on,
)
from dse.tools.rows import read_tool
from dse.types import Recompute

_BATCH, _MICRO, _DP = "workload.global_batch", "mapping.micro_batch", "mapping.dp"
_COPIES, _OVERLAP = "mapping.dp_replicate", "mapping.overlap_dp"

_TRAIN, _MICRO_OPTION = "train_batch_size", "train_micro_batch_size_per_gpu"
_STEPS = "gradient_accumulation_steps"

#: Degrees between which replicas are.
_OTHER_DEGREES = ("tensor_parallel.autotp_size", "sequence_parallel_size", "pipeline.stages")

ZERO = "zero_optimization."
STAGE = f"{ZERO}stage"


# --- batches ----------------------------------------------------------------------------------------------


def _accumulation(leaf: Lookup) -> Pairs:
    """Return global batch, micro-batch and number of micro-batches as options."""
    (micro, ranks), batch = degrees(leaf, "micro_batch", "dp"), leaf(_BATCH) or 1.0
    texts = map(number, (batch, micro, batch / (micro * ranks)))
    return list(zip((_TRAIN, _MICRO_OPTION, _STEPS), texts, strict=True))


def batch_triple(
    batch: float | None, micro: float | None, steps: float | None, replicas: float | None
) -> tuple[float | None, float | None, float | None]:
    """Return (global batch, micro-batch, replicas), of which DeepSpeed computes what is None.

    As ``_set_batch_related_parameters`` of deepspeed/runtime/config.py does: batch = micro-batch x steps x replicas,
    with one step where nothing is said of them.

    Args:
        batch: sequences per step, all replicas.
        micro: sequences per micro-batch of a replica.
        steps: micro-batches of a step.
        replicas: data parallel size.

    Raises:
        ValueError: for four numbers that contradict one another, as ``_batch_assertion`` there.

    >>> batch_triple(None, 4.0, None, 8.0), batch_triple(64.0, None, 2.0, 8.0), batch_triple(64.0, 4.0, 2.0, None)
    ((32.0, 4.0, 8.0), (64.0, 4.0, 8.0), (64.0, 4.0, 8.0))
    """
    if replicas is None and batch and micro and steps:
        replicas = batch / micro / steps
    if replicas is None:
        return batch, micro, None
    if batch and micro and steps and batch != micro * steps * replicas:
        product = f"{micro:g} sequences x {steps:g} micro-batches x {replicas:g} replicas"
        raise ValueError(f"a batch of {batch:g}, but {product} = {micro * steps * replicas:g}")
    if batch is None and micro is not None:
        batch = micro * (steps or 1.0) * replicas
    if micro is None and batch is not None:
        micro = batch / replicas / (steps or 1.0)
    return batch, micro, replicas


def _read_accumulation(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → global batch, micro-batch and replicas that options state or imply."""
    batch, micro, steps = (option_number(options, name) for name in (_TRAIN, _MICRO_OPTION, _STEPS))
    devices, ranks = option_number(options, WORLD_SIZE), 1.0
    for name in _OTHER_DEGREES:
        ranks *= option_degree(options, name)
    replicas = devices / ranks if devices and devices % ranks == 0.0 else None
    sizes = dict(zip((_BATCH, _MICRO, _DP), batch_triple(batch, micro, steps, replicas), strict=True))
    return {path: value for path, value in sizes.items() if value is not None}


def _read_stages(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → pipeline stages that options state; they are written by the program alone."""
    return {"mapping.pp": option_degree(options, "pipeline.stages")} if "pipeline.stages" in options else {}


# --- arguments of its programs ----------------------------------------------------------------------------

_CHECKPOINTS = ("--gradient_checkpointing", "--gradient-checkpointing")
_LENGTHS = ("--max_seq_len", "--max_seq_length", "--model_max_length", "--block_size", "--seq_len", "--seq_length")


def _arguments(leaf: Lookup) -> Pairs | None:
    """Return no option without recompute, None with it: a program turns it on, not a configuration."""
    return None if leaf("mapping.recompute") else []


def _read_arguments(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → recompute of whole layers and length that arguments of a program state by their usual names."""
    switches = [option_on(options, name) for name in _CHECKPOINTS if name in options]
    lengths = [option_number(options, name) for name in _LENGTHS]
    values = {"mapping.recompute": float(Recompute.full if any(switches) else Recompute.none)} if switches else {}
    length = next(filter(None, lengths), None)
    return values | ({} if length is None else {"workload.seq_len": length})


# --- ZeRO -------------------------------------------------------------------------------------------------

_OVERLAP_OPTION = f"{ZERO}overlap_comm"


def _overlap(leaf: Lookup) -> Pairs:
    """Return the overlap of messages with compute as an option."""
    return [(_OVERLAP_OPTION, str(bool(leaf(_OVERLAP))).lower())]


def read_overlap(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → overlap of messages that options state, by default that of their stage.

    At stage 3 messages overlap (``overlap_comm_valid`` of deepspeed/runtime/zero/config.py).
    """
    text, stage = options.get(_OVERLAP_OPTION, "auto").lower(), option_number(options, STAGE)
    if text not in ("auto", "null", "none"):
        return {_OVERLAP: float(option_on(options, _OVERLAP_OPTION))}
    return {} if stage is None else {_OVERLAP: float(stage == 3.0)}


_HPZ, _MICS = f"{ZERO}zero_hpz_partition_size", f"{ZERO}mics_shard_size"
_OVER, _SECONDARY = "mapping.sharding.weights_over", "mapping.sharding.secondary"


def _shards(leaf: Lookup) -> Pairs | None:
    """Return the second copy of weights within a group, or the group that shares a state, as options.

    None for weights that are split otherwise over less than all replicas.
    """
    (dp, copies), over = degrees(leaf, "dp", "dp_replicate"), leaf(_OVER)
    if leaf(_SECONDARY):
        return [(_HPZ, number(over or 1.0))] if copies == 1.0 else None
    if over is not None and over < dp / copies:
        return None
    if copies == 1.0:
        return []
    return [(_MICS, number(dp / copies))] if leaf("mapping.zero_stage") == 3.0 else None


def read_shards(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → groups of ZeRO++ and MiCS that options state, empty where all replicas share a state."""
    secondary, mics = option_number(options, _HPZ), option_number(options, _MICS)
    replicas = _read_accumulation(options).get(_DP)
    values = {_OVER: secondary, _SECONDARY: 1.0} if secondary and secondary > 1.0 else {}
    return values | ({_COPIES: replicas / mics} if mics and mics > 0.0 and replicas else {})


# --- offload ----------------------------------------------------------------------------------------------

_PINNED = "mapping.tiers.pinned"

#: Part of the state → table of its offload, and the switch of older releases.
_OFFLOADED = {
    "optimizer": (f"{ZERO}offload_optimizer.", f"{ZERO}cpu_offload"),
    "weights": (f"{ZERO}offload_param.", f"{ZERO}cpu_offload_param"),
}

#: What offloading the optimiser means: the host updates, and gradients leave in 32 bits, copied at once
#: (deepspeed/runtime/zero/stage3.py).
HOST_UPDATE = {
    "mapping.tiers.host_update": 1.0,
    "mapping.tiers.offload_gradients": 1.0,
    "mapping.tiers.gradient_depth": 0.0,
    "mapping.tiers.gradient_copy_bytes": 4.0,
}


def read_offload(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → shares of offloaded optimiser state and weights, of those in storage, and page-locked memory.

    Memory of the host is pageable by default (``pin_memory`` of deepspeed/runtime/zero/offload_config.py), buffers of
    storage are page-locked.
    """
    values: dict[str, float] = {}
    for part, (prefix, switch) in _OFFLOADED.items():
        text, is_old = options.get(f"{prefix}device", "none").lower(), option_on(options, switch)
        share, is_pinned = option_number(options, f"{prefix}ratio"), option_on(options, f"{prefix}pin_memory")
        device = "cpu" if is_old and text == "none" else text
        if device in ("cpu", "nvme"):
            values[f"mapping.offload_{part}"] = 1.0 if share is None else share
            values |= {f"mapping.tiers.storage_{part}": 1.0} if device == "nvme" else {}
            values[_PINNED] = min(float(device == "nvme" or is_pinned), values.get(_PINNED, 1.0))
        elif f"{prefix}device" in options:
            values[f"mapping.offload_{part}"] = 0.0
    return values


def read_update(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → update on the host and gradients there, where options offload the optimiser."""
    return dict(HOST_UPDATE) if read_offload(options).get("mapping.offload_optimizer") else {}


def _update(leaf: Lookup) -> Pairs | None:
    """Return no option where the host updates an offloaded optimiser, or none is offloaded; None for other updates."""
    updates_on_host = all(leaf(path) == value for path, value in HOST_UPDATE.items())
    return [] if updates_on_host or not leaf("mapping.offload_optimizer") else None


def _offload(leaf: Lookup) -> Pairs | None:
    """Return the offload of optimiser state and weights to host or storage as options, None for others.

    Memory of the host is page-locked unless a mapping says otherwise. The optimiser may be offloaded in part, weights
    only all or none.
    """
    pairs: Pairs = []
    for part, (prefix, _) in _OFFLOADED.items():
        offloaded_share, storage = leaf(f"mapping.offload_{part}") or 0.0, leaf(f"mapping.tiers.storage_{part}") or 0.0
        if storage not in (0.0, 1.0) or (part == "weights" and offloaded_share not in (0.0, 1.0)):
            return None
        if offloaded_share:
            pairs.append((f"{prefix}device", "nvme" if storage else "cpu"))
            pairs += [] if storage or leaf(_PINNED) == 0.0 else [(f"{prefix}pin_memory", "true")]
        if 0.0 < offloaded_share < 1.0:
            pairs.append((f"{prefix}ratio", number(offloaded_share)))
    return pairs


# --- remarks ----------------------------------------------------------------------------------------------


def _program_remark(options: Mapping[str, str]) -> str:
    """Return the remark that recompute is the program's, "" where options say nothing of it."""
    if not any(name.startswith("activation_checkpointing.") for name in options):
        return ""
    return "activation_checkpointing applies where the program calls it: set recompute"


def _optimiser_remark(options: Mapping[str, str]) -> str:
    """Return the remark that an optimiser is not modelled, "" for Adam."""
    name = options.get("optimizer.type", "AdamW")
    return "" if "adam" in name.lower() else f"optimizer.type {name} is not modelled: Adam counts"


DEEPSPEED = read_tool(
    "deepspeed",
    {
        "accumulation": CompositeOption((_MICRO, _BATCH, _DP), _accumulation, _read_accumulation),
        "stages": CompositeOption(("mapping.pp",), lambda leaf: None, _read_stages),
        "arguments": CompositeOption(("mapping.recompute", "workload.seq_len"), _arguments, _read_arguments),
        "overlap": CompositeOption((_OVERLAP,), _overlap, read_overlap),
        "shards": CompositeOption((_OVER, _SECONDARY, _COPIES), _shards, read_shards),
        "offload": CompositeOption(
            (
                *(f"mapping.offload_{part}" for part in _OFFLOADED),
                *(f"mapping.tiers.storage_{part}" for part in _OFFLOADED),
                _PINNED,
            ),
            _offload,
            read_offload,
        ),
        "update": CompositeOption(tuple(HOST_UPDATE), _update, read_update, writes_default=True),
    },
    remarks=(_program_remark, _optimiser_remark),
)
