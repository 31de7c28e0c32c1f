"""MaxText: axes of its meshes, within a slice (``ici_``) and between slices (``dcn_``), and what follows from them.

One axis of each mesh may be -1, for all devices of a slice, or all slices, that the others leave. A GPU's slice is a
node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from dse.tools.options import (
    CHIP,
    N_EXPERTS,
    N_LAYERS,
    NODES,
    WORLD_SIZE,
    CompositeOption,
    Lookup,
    Pairs,
    degrees,
    number,
    option_number,
    option_on,
)
from dse.tools.rows import pairs_of, read_tool, table
from dse.types import Recompute, Schedule

_BATCH, _MICRO, _DP = "workload.global_batch", "mapping.micro_batch", "mapping.dp"
_COPIES, _ZERO = "mapping.dp_replicate", "mapping.zero_stage"
_DEVICE_BATCH = "per_device_batch_size"


# --- meshes -----------------------------------------------------------------------------------------------

_MESHES = ("dcn", "ici")

#: Leaf → axes whose product it is.
_AXES = {
    "mapping.tp": ("tensor", "tensor_sequence"),
    "mapping.cp": ("context", "sequence"),
    "mapping.experts.ep": ("expert",),
    "mapping.pp": ("pipeline",),
}
_SHARD_AXES, _COPY_AXIS = ("fsdp", "fsdp_transpose"), "data"
_OTHER_AXES = ("tensor_transpose", "autoregressive", "context_autoregressive")

#: Axes that a file states before anything follows from the others.
_NEEDED_OPTIONS = tuple(f"{mesh}_{axis}_parallelism" for mesh in _MESHES for axis in ("data", "fsdp"))

#: Numbers of slices by options, in order.
_SLICES = ("num_slices", "compile_topology_num_slices")

#: Pattern of an accelerator whose chip is several devices of JAX, by its TensorCores.
_TWO_CORES = ("tpu-v2", "tpu-v3", "tpu-v7")


def _option(mesh: str, axis: str) -> str:
    """Return the option of an axis of a mesh."""
    return f"{mesh}_{axis}_parallelism"


def _device_cores(options: Mapping[str, str]) -> float:
    """Return the devices of JAX that a chip is."""
    return 2.0 if options.get(CHIP, "").startswith(_TWO_CORES) else 1.0


def _mesh(options: Mapping[str, str], mesh: str, total: float | None) -> dict[str, float] | None:
    """Return axis → degree of a mesh of ``total`` members, None where one of them is open.

    Raises:
        ValueError: for several open axes of a mesh.
    """
    axes = (_COPY_AXIS, *_SHARD_AXES, *(axis for names in _AXES.values() for axis in names), *_OTHER_AXES)
    stated = {axis: option_number(options, _option(mesh, axis)) for axis in axes}
    sizes = {axis: 1.0 if size is None else size for axis, size in stated.items()}
    open_axes = [axis for axis, size in sizes.items() if size < 1.0]
    if not open_axes:
        return sizes
    if len(open_axes) > 1:
        raise ValueError(f"{mesh}: {' and '.join(open_axes)} are both -1")
    stated_product = math.prod(size for size in sizes.values() if size >= 1.0)
    if total is None or total % stated_product:
        return None
    return sizes | {open_axes[0]: total / stated_product}


def _degrees(options: Mapping[str, str]) -> dict[str, float] | None:
    """Return axis → degree of both meshes together, None where an axis is open."""
    devices, nodes = option_number(options, WORLD_SIZE), option_number(options, NODES)
    counts = [option_number(options, name) for name in _SLICES]
    slices = next((count for count in counts if count and count > 0.0), nodes)
    if slices is None and options.get(CHIP, "").startswith("tpu"):
        slices = 1.0
    outer = _mesh(options, "dcn", slices)
    if outer is not None:
        slices = math.prod(outer.values())
    inner = _mesh(options, "ici", devices * _device_cores(options) / slices if devices and slices else None)
    if outer is None or inner is None or not all(name in options for name in _NEEDED_OPTIONS):
        return None
    return {axis: size * inner[axis] for axis, size in outer.items()}


def _read_axes(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → degrees of tensor, context, expert and pipeline parallelism that options state."""
    values: dict[str, float] = {}
    for path, axes in _AXES.items():
        names = [_option(mesh, axis) for mesh in _MESHES for axis in axes]
        sizes = [option_number(options, name) for name in names if name in options]
        if sizes and all(size is not None and size >= 1.0 for size in sizes):
            values[path] = math.prod(size for size in sizes if size is not None)
    degrees_of_axes = _degrees(options)
    if degrees_of_axes is not None:
        products = {path: math.prod(degrees_of_axes[axis] for axis in axes) for path, axes in _AXES.items()}
        values |= {path: product for path, product in products.items() if product > 1.0}
    return values


def _axes(leaf: Lookup) -> Pairs:
    """Return the degrees of tensor, context, expert and pipeline parallelism as options."""
    tp, cp, ep, stages = degrees(leaf, "tp", "cp", "experts.ep", "pp")
    pairs = [("ici_tensor_parallelism", tp)]
    pairs += [("ici_context_parallelism", cp)] if cp > 1.0 else []
    pairs += [("ici_expert_parallelism", ep)] if ep > 1.0 else []
    pairs += [("dcn_pipeline_parallelism", stages)] if stages > 1.0 else []
    return [(name, number(degree)) for name, degree in pairs]


# --- replicas and batches ---------------------------------------------------------------------------------

_OPTIMISER_SHARDS = "shard_optimizer_over_data"


def _replicas(leaf: Lookup) -> Pairs:
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


def _read_replicas(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``dp`` and copies that options state or imply; empty where an axis is open."""
    sizes = _degrees(options)
    if sizes is None:
        return {}
    copies, shards = sizes[_COPY_AXIS], math.prod(sizes[axis] for axis in _SHARD_AXES)
    values = {_DP: copies * shards * sizes["expert"] / _device_cores(options)}
    return values | ({_COPIES: copies} if shards > 1.0 else {})


def _shards(leaf: Lookup) -> Pairs | None:
    """Return ZeRO as options: 0 and 3 follow from the degrees; None for another stage."""
    (ep,), stage = degrees(leaf, "experts.ep"), leaf(_ZERO) or 0.0
    pairs: dict[float, Pairs] = {0.0: [], 1.0: [(_OPTIMISER_SHARDS, "true")], 3.0: []}
    return None if stage == 1.0 and ep > 1.0 else pairs.get(stage)


def _read_shards(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage that options imply; empty where an axis is open, and for an axis of experts alone."""
    sizes, splits_optimiser = _degrees(options), option_on(options, _OPTIMISER_SHARDS)
    if sizes is None:
        return {}
    if math.prod(sizes[axis] for axis in _SHARD_AXES) > 1.0:
        return {_ZERO: 3.0}
    return {} if sizes["expert"] > 1.0 else {_ZERO: float(splits_optimiser)}


_PIPELINE_COUNT, _STEP_COUNT = "num_pipeline_microbatches", "gradient_accumulation_steps"
_DELAY = "pipeline_delay_activation_forwarding"


def _device_batch(leaf: Lookup) -> Pairs:
    """Return sequences per device over all micro-batches of a step, and the number of these, as options."""
    replicas, tp, cp, stages, micro = degrees(leaf, "dp", "tp", "cp", "pp", "micro_batch")
    batch = leaf(_BATCH) or 1.0
    device_batch, n_micro_batches = batch / (replicas * tp * cp * stages), batch / (replicas * micro)
    if stages > 1.0:
        return [(_DEVICE_BATCH, number(device_batch)), (_PIPELINE_COUNT, number(n_micro_batches))]
    pairs = [(_DEVICE_BATCH, number(device_batch / n_micro_batches))]
    return [*pairs, (_STEP_COUNT, number(n_micro_batches))] if n_micro_batches > 1.0 else pairs


def _read_device_batch(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → global batch and micro-batch from the batch of each device, whatever axis it is on.

    A pipeline has as many micro-batches as stages if nothing is said, twice as many with delayed forwarding.
    """
    device_batch, sizes = option_number(options, _DEVICE_BATCH), _degrees(options)
    count, steps = option_number(options, _PIPELINE_COUNT), option_number(options, _STEP_COUNT) or 1.0
    delays, replicas = option_on(options, _DELAY), _read_replicas(options).get(_DP)
    if device_batch is None or sizes is None or not replicas:
        return {}
    batch, stages = device_batch * math.prod(sizes.values()) * steps, sizes["pipeline"]
    if stages > 1.0:
        steps *= count if count and count > 0.0 else stages * (2.0 if delays else 1.0)
    return {_BATCH: batch, _MICRO: batch / replicas / steps}


# --- pipelines --------------------------------------------------------------------------------------------

_REPEATS, _LAYERS_OPTION = "num_pipeline_repeats", "num_layers_per_pipeline_stage"
_STAGES = tuple(_option(mesh, "pipeline") for mesh in _MESHES)
_CODE, _CHUNKS = "mapping.schedule", "mapping.virtual_stages"


def _pipeline(leaf: Lookup) -> Pairs | None:
    """Return the repeats of a circular pipeline, and layers of a stage, as options; None for another schedule."""
    (stages, chunks), layers = degrees(leaf, "pp", "virtual_stages"), leaf("workload.n_layers") or 0.0
    if stages == 1.0:
        return []
    is_circular = (leaf(_CODE) or 0.0) == (Schedule.gpipe if chunks == 1.0 else Schedule._1f1b)
    if not is_circular or layers % (stages * chunks):
        return None
    return [(_REPEATS, number(chunks)), (_LAYERS_OPTION, number(layers / stages / chunks))]


def _read_pipeline(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → schedule and chunks of a stage that options state or imply, empty without a pipeline.

    The loop over stages runs all forward passes before the backward ones; with repeats it counts as interleaved.
    """
    stages = math.prod(max(option_number(options, name) or 1.0, 1.0) for name in _STAGES)
    repeats, layers = option_number(options, _REPEATS), option_number(options, N_LAYERS)
    stage_layers = option_number(options, _LAYERS_OPTION) or 1.0
    if stages == 1.0:
        return {}
    if repeats is None or repeats < 1.0:
        repeats = layers / stages / stage_layers if layers else None
    if repeats is None or repeats < 1.0:
        return {}
    return {_CODE: float(Schedule.gpipe)} if repeats == 1.0 else {_CODE: 0.0, _CHUNKS: repeats}


# --- recompute --------------------------------------------------------------------------------------------

_POLICY, _INPUT = "remat_policy", "decoder_layer_input"
_RECOMPUTE, _KEEPS, _OFFLOADED = "mapping.recompute", "software.keeps_products", "mapping.offload_activations"

#: Policy → recompute and whether the outputs of all products stay; those that store less than these or other tensors
#: count as the nearest.
_POLICIES = {
    "none": (Recompute.none, None),
    "minimal_with_context": (Recompute.none, None),
    "minimal_flash": (Recompute.none, None),
    "minimal_with_context_and_quantization": (Recompute.none, None),
    "minimal": (Recompute.selective_op, 1.0),
    "minimal_with_quantization": (Recompute.selective_op, 1.0),
    "minimal_offloaded": (Recompute.selective_op, 1.0),
    "full": (Recompute.full, None),
}

#: Policies without an equal, which store some products of a layer more than ``full`` does.
_NEAR_FULL = (
    "custom", "save_dot_with_context_except_mlp", "save_dot_except_mlpwi", "save_dot_except_mlp", "save_qkv_proj",
    "save_out_proj", "qkv_proj_offloaded",
)  # fmt: skip

#: Tensors of a custom policy.
_TENSORS = (
    "context", "mlpwi", "mlpwi_0", "mlpwi_1", "mlpwo", "query_proj", "key_proj", "value_proj", "qkv_proj", "out_proj",
    "mla_q", "mla_kv", "moe_mlpwi_0", "moe_mlpwi_1", "moe_mlpwo",
)  # fmt: skip


def _recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute, and whether what stays is on the host, as options; None for a policy that it lacks."""
    code, keeps, share = leaf(_RECOMPUTE) or 0.0, leaf(_KEEPS), leaf(_OFFLOADED) or 0.0
    texts = {
        (float(Recompute.none), 0.0): "remat_policy=minimal_with_context",
        (float(Recompute.full), 0.0): "remat_policy=full",
        (float(Recompute.full), 1.0): "remat_policy=custom decoder_layer_input=offload",
    }
    if keeps == 1.0:
        selective = float(Recompute.selective_op)
        texts |= {(selective, 0.0): "remat_policy=minimal", (selective, 1.0): "remat_policy=minimal_offloaded"}
    text = texts.get((code, share))
    return None if text is None else pairs_of(text)


def _read_recompute(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → recompute, what it stores and what of that is on the host, that options state."""
    policy, offloads_input = options.get(_POLICY, "").lower(), options.get(_INPUT, "") == "offload"
    if policy in _NEAR_FULL:
        offloaded = {_OFFLOADED: 1.0} if policy == "custom" and offloads_input else {}
        return {_RECOMPUTE: float(Recompute.full)} | offloaded
    if policy not in _POLICIES:
        return {}
    code, keeps = _POLICIES[policy]
    values = {_RECOMPUTE: float(code)} | ({} if keeps is None else {_KEEPS: keeps})
    return values | ({_OFFLOADED: 1.0} if policy == "minimal_offloaded" else {})


def _policy_remark(options: Mapping[str, str]) -> str:
    """Return the remark that a policy stores more than full recompute, "" for one that is modelled."""
    policy = options.get(_POLICY, "").lower()
    if policy not in _NEAR_FULL:
        return ""
    tensors = [name for name in _TENSORS if options.get(name, "remat") in ("device", "offload")]
    if policy == "custom" and not tensors:
        return ""
    what = f"{', '.join(tensors)} of a layer" if tensors else "some products of a layer"
    return f"{_POLICY} {policy} stores {what} more than full recompute, which counts: less time, more memory"


# --- experts ----------------------------------------------------------------------------------------------

_CAPACITY, _FACTOR, _SPARSE = "workload.experts.capacity", "capacity_factor", "sparse_matmul"
_GROUPED = "software.experts.grouped_efficiency"


def _capacity(leaf: Lookup) -> Pairs:
    """Return the capacity of experts as options: dense products drop tokens above it."""
    factor = leaf(_CAPACITY) or 0.0
    return pairs_of(f"{_SPARSE}=false megablox=false {_FACTOR}={number(factor)}") if factor else []


def _read_capacity(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → capacity of experts that options state; sparse products drop no token (layers/moe.py).

    Experts with a capacity have equal rows, in one batched product at the rate of any other one.
    """
    factor = option_number(options, _FACTOR)
    is_dense = _SPARSE in options and not option_on(options, _SPARSE)
    return {_CAPACITY: factor, _GROUPED: 1.0} if is_dense and factor and factor > 0.0 else {}


def _dense_remark(options: Mapping[str, str]) -> str:
    """Return the remark that all experts compute all tokens, "" where each computes its own."""
    factor, experts = option_number(options, _FACTOR) or -1.0, option_number(options, N_EXPERTS) or 0.0
    if not experts or _SPARSE not in options or option_on(options, _SPARSE) or factor > 0.0:
        return ""
    return f"{_SPARSE} is off and {_FACTOR} is not stated: all experts compute all tokens, not modelled: more time"


# --- shape ------------------------------------------------------------------------------------------------

#: Leaf of a shape → its option; those that base.yml has where a file states a shape instead of a model's name.
_SHAPE = {
    "workload.n_layers": "base_num_decoder_layers",
    "workload.hidden": "base_emb_dim",
    "workload.ffn_hidden": "base_mlp_dim",
    "workload.n_heads": "base_num_query_heads",
    "workload.n_kv_heads": "base_num_kv_heads",
    "workload.head_dim": "head_dim",
    "workload.vocab": "vocab_size",
}


def _read_shape(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → default of the leaves of a shape, empty for files that name a model or state no size.

    Rows below have what files state.
    """
    sizes = {path: option_number(options, name) for path, name in _SHAPE.items()}
    is_named = options.get("model_name", "default").lower() != "default"
    bases = table("maxtext")["shape"]
    if is_named or not any(sizes[path] for path in ("workload.n_layers", "workload.hidden")):
        return {}
    return {path: float(bases[name]) for path, name in _SHAPE.items()}


def _configuration_limit(options: Mapping[str, str]) -> str:
    """Return that a configuration is one of the tool's repository and not of the files, "" where they state it."""
    name = options.get("--model_name", "")
    if not name or "model_name" in options:
        return ""
    return (
        f"give the options of {name}: degrees and batch are in the repository of MaxText (benchmarks), not in the files"
    )


MAXTEXT = read_tool(
    "maxtext",
    {
        "shape": CompositeOption(tuple(_SHAPE), lambda leaf: [], _read_shape),
        "axes": CompositeOption(tuple(_AXES), _axes, _read_axes),
        "replicas": CompositeOption((_DP, _COPIES), _replicas, _read_replicas),
        "shards": CompositeOption((_ZERO,), _shards, _read_shards),
        "batch": CompositeOption((_MICRO, _BATCH), _device_batch, _read_device_batch),
        "pipeline": CompositeOption((_CODE, _CHUNKS), _pipeline, _read_pipeline),
        "capacity": CompositeOption((_CAPACITY, _GROUPED), _capacity, _read_capacity),
        "recompute": CompositeOption((_RECOMPUTE, _KEEPS, _OFFLOADED), _recompute, _read_recompute),
    },
    remarks=(_policy_remark, _dense_remark),
    limits=(_configuration_limit,),
)
