"""torchtitan: options that follow from several leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dse.tools.options import (
    N_LAYERS,
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
from dse.tools.rows import pairs_of, read_tool, table
from dse.types import Precision, Recompute, Schedule

_BATCH, _MICRO, _TOKENS = "workload.global_batch", "mapping.micro_batch", "workload.seq_len"
_DP, _COPIES, _ZERO = "mapping.dp", "mapping.dp_replicate", "mapping.zero_stage"

_PARALLEL = "--parallelism."
_SHARD_DEGREE, _COPY_DEGREE = f"{_PARALLEL}data_parallel_shard_degree", f"{_PARALLEL}data_parallel_replicate_degree"
_STAGES, _CONTEXT = f"{_PARALLEL}pipeline_parallel_degree", f"{_PARALLEL}context_parallel_degree"
_TENSOR = f"{_PARALLEL}tensor_parallel_degree"
_LOCAL_BATCH, _GLOBAL_BATCH = "--training.local_batch_size", "--training.global_batch_size"
_PASS_TOKENS = "--training.seq_len"


# --- replicas ---------------------------------------------------------------------------------------------


def _replicas(leaf: Lookup) -> Pairs:
    """Return the degrees of replicas that share a state, and of copies, as options; without ZeRO all are copies."""
    dp, copies = degrees(leaf, "dp", "dp_replicate")
    shards = dp / copies if leaf(_ZERO) else 1.0
    return [(_SHARD_DEGREE, number(shards)), (_COPY_DEGREE, number(dp / shards))]


def _shard_degree(options: Mapping[str, str]) -> float | None:
    """Return the replicas that share a state: stated, or all devices that other degrees leave; None if unknown."""
    shards = option_number(options, _SHARD_DEGREE)
    if shards is not None and shards >= 1.0:
        return shards
    devices = option_number(options, WORLD_SIZE)
    other = math.prod(option_degree(options, name) for name in (_COPY_DEGREE, _STAGES, _CONTEXT, _TENSOR))
    return devices / other if devices and devices % other == 0.0 else None


def _read_replicas(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ``dp`` and copies that options state; copies apply where there are shards."""
    shards, copies = _shard_degree(options), option_degree(options, _COPY_DEGREE)
    values = {} if shards is None else {_DP: shards * copies}
    return values | ({_COPIES: copies} if _COPY_DEGREE in options and shards != 1.0 else {})


_RESHARD = f"{_PARALLEL}fsdp_reshard_after_forward"


def _shards(leaf: Lookup) -> Pairs | None:
    """Return ZeRO as options: FSDP gathers weights again for the backward pass at stage 3 and stores them at 2.

    None for stage 1, which FSDP lacks, and for no stage with context parallelism, whose ranks share the state.
    """
    (cp,) = degrees(leaf, "cp")
    texts = {2.0: f"{_RESHARD} never", 3.0: f"{_RESHARD} always"} | ({0.0: ""} if cp == 1.0 else {})
    text = texts.get(leaf(_ZERO) or 0.0)
    return None if text is None else pairs_of(text)


def _read_shards(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage that options state.

    The default gathers weights again, with a pipeline once a step, which is a value of the stack.
    """
    is_stated = _SHARD_DEGREE in options or _RESHARD in options
    shards, context = option_number(options, _SHARD_DEGREE), option_degree(options, _CONTEXT)
    stage = 2.0 if options.get(_RESHARD, "").lower() == "never" else 3.0
    return {_ZERO: 0.0 if shards == context == 1.0 else stage} if is_stated else {}


# --- pipelines --------------------------------------------------------------------------------------------

_SCHEDULE, _CHUNK_LAYERS = f"{_PARALLEL}pipeline_parallel_schedule", f"{_PARALLEL}pipeline_parallel_layers_per_stage"
_SPLIT_POINTS = f"{_PARALLEL}pipeline_parallel_split_points"
_END_LAYERS = tuple(f"{_PARALLEL}pipeline_parallel_{end}_stage_less_layers" for end in ("first", "last"))
_CODE, _CHUNKS = "mapping.schedule", "mapping.virtual_stages"

#: Name of a schedule, in small letters → its code, and the chunks of a rank if nothing else is said (pipeline_llm of
#: torchtitan/distributed/pipeline.py).
_SCHEDULES = {
    "1f1b": (Schedule._1f1b, 1.0),
    "gpipe": (Schedule.gpipe, 1.0),
    "interleaved1f1b": (Schedule._1f1b, 2.0),
    "flexibleinterleaved1f1b": (Schedule._1f1b, 2.0),
    "zbvzerobubble": (Schedule.zb_v, 2.0),
    "dualpipev": (Schedule.dualpipev, 2.0),
}
_SCHEDULE_NAMES = {
    (float(Schedule._1f1b), 1.0): "1F1B",
    (float(Schedule.gpipe), 1.0): "GPipe",
    (float(Schedule.zb_v), 2.0): "ZBVZeroBubble",
    (float(Schedule.dualpipev), 2.0): "DualPipeV",
}


def _schedule(leaf: Lookup) -> Pairs | None:
    """Return the schedule of a pipeline and, of more than two chunks, their layers as options; None for others."""
    (stages, chunks), code = degrees(leaf, "pp", "virtual_stages"), leaf(_CODE) or 0.0
    if stages == 1.0:
        return []
    if code or chunks == 1.0:
        name = _SCHEDULE_NAMES.get((code, chunks), "")
        return [(_SCHEDULE, name)] if name else None
    if chunks == 2.0:
        return [(_SCHEDULE, "Interleaved1F1B")]
    layers = (leaf("workload.n_layers") or 0.0) + 2.0  # with one each for embedding and head
    chunk_layers = math.ceil(layers / (stages * chunks))
    if math.ceil(layers / chunk_layers) != stages * chunks:
        return None
    return [(_SCHEDULE, "Interleaved1F1B"), (_CHUNK_LAYERS, number(float(chunk_layers)))]


def _read_schedule(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → schedule and chunks of a stage that options state, empty without a pipeline."""
    name, count = options.get(_SCHEDULE, "").lower().replace("_", ""), _chunk_count(options)
    if name not in _SCHEDULES or (_STAGES in options and option_degree(options, _STAGES) == 1.0):
        return {}
    code, chunks = _SCHEDULES[name]
    if chunks == 1.0:
        return {_CODE: float(code)}
    return {_CODE: float(code)} | ({} if count is None else {_CHUNKS: count})


def _chunk_count(options: Mapping[str, str]) -> float | None:
    """Return the chunks of a stage of a schedule with several, None if unknown."""
    stages, chunk_layers = option_degree(options, _STAGES), option_number(options, _CHUNK_LAYERS)
    points = options.get(_SPLIT_POINTS, "").strip("[]").replace(",", " ").split()
    layers = option_number(options, N_LAYERS)
    ends = sum(option_number(options, name) or 0.0 for name in _END_LAYERS)
    if points:
        return (len(points) + 1.0) / stages
    if chunk_layers is None:
        return 2.0
    return None if not layers or chunk_layers < 1.0 else math.ceil((layers + ends) / chunk_layers) / stages


# --- batches ----------------------------------------------------------------------------------------------

_MICRO_BATCH = f"{_PARALLEL}pipeline_parallel_microbatch_size"

#: Sequences per rank and pass of the releases before v0.1, in which a pipeline had as many micro-batches as stages
#: (``pipeline_parallel_microbatches or parallel_dims.pp`` of torchtitan/parallelisms/pipeline_llama.py).
_OLDER_BATCH = "--training.batch_size"

#: Numbers of micro-batches of a pass, of the release before and after that with their size.
_MICRO_COUNTS = (f"{_PARALLEL}num_pp_microbatches", f"{_PARALLEL}pipeline_parallel_microbatches")


def _batch(leaf: Lookup) -> Pairs:
    """Return the sequences per rank and pass, of the whole batch, and their length as options.

    A pass is of all micro-batches of a pipeline, else of one.
    """
    (micro, ranks, stages), batch, tokens = degrees(leaf, "micro_batch", "dp", "pp"), leaf(_BATCH), leaf(_TOKENS)
    global_pairs = [(_GLOBAL_BATCH, number(batch or 1.0)), (_PASS_TOKENS, number(tokens or 1.0))]
    if stages == 1.0:
        return [(_LOCAL_BATCH, number(micro)), *global_pairs]
    return [(_LOCAL_BATCH, number((batch or 1.0) / ranks)), (_MICRO_BATCH, number(micro)), *global_pairs]


def _read_batch(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → micro-batch, global batch and length that options state.

    A global batch of -1 is one pass of all replicas (Trainer of torchtitan/train.py).
    """
    older, micro = option_number(options, _OLDER_BATCH), option_number(options, _MICRO_BATCH)
    local = older or option_number(options, _LOCAL_BATCH)
    batch, tokens = option_number(options, _GLOBAL_BATCH), option_number(options, _PASS_TOKENS)
    count = next((option_number(options, name) for name in _MICRO_COUNTS if name in options), None)
    if option_degree(options, _STAGES) == 1.0:
        micro = local
    elif older and not count:
        count = option_degree(options, _STAGES)
    if count and local and option_degree(options, _STAGES) > 1.0:
        micro = local / count
    shards = _shard_degree(options)
    if (batch is None or batch < 0.0) and local and shards:
        batch = local * shards * option_degree(options, _COPY_DEGREE)
    values = {_MICRO: micro, _BATCH: batch, _TOKENS: tokens}
    return {path: value for path, value in values.items() if value is not None and value > 0.0}


# --- recompute, offload and kernels -----------------------------------------------------------------------

_MODE, _SELECTIVE = "--activation_checkpoint.mode", "--activation_checkpoint.selective_ac_option"
_RECOMPUTE, _SHARE = "mapping.recompute", "mapping.recompute_share"


def _recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options: of each layer, of every n-th one, or by operator; None for others.

    It never stores the outputs of all products.
    """
    code, share = leaf(_RECOMPUTE) or 0.0, leaf(_SHARE) or 1.0
    if code == Recompute.full:
        interval = 1.0 / share
        selected = pairs_of(f"{_MODE} selective {_SELECTIVE} {interval:.0f}")
        texts = {True: pairs_of(f"{_MODE} full"), False: selected if math.isclose(interval, round(interval)) else None}
        return texts[share == 1.0]
    if code == Recompute.selective_op and not leaf("software.keeps_products"):
        return pairs_of(f"{_MODE} selective {_SELECTIVE} op")
    return pairs_of(f"{_MODE} none") if code == Recompute.none else None


def _read_recompute(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → recompute, and its share of layers, that options state."""
    mode, option = options.get(_MODE, "").lower(), options.get(_SELECTIVE, "").strip("'\"").lower()
    codes = {"none": Recompute.none, "full": Recompute.full}
    if mode in codes:
        return {_RECOMPUTE: float(codes[mode])}
    if mode != "selective" or not option:
        return {}
    if option == "op":
        return {_RECOMPUTE: float(Recompute.selective_op)}
    return {_RECOMPUTE: float(Recompute.full), _SHARE: 1.0 / option_degree(options, _SELECTIVE)}


_OFFLOAD = "--training.enable_cpu_offload"
_OFFLOADED = (
    "mapping.offload_weights",
    "mapping.offload_optimizer",
    "mapping.tiers.offload_gradients",
    "mapping.tiers.host_update",
)


def _offload(leaf: Lookup) -> Pairs | None:
    """Return the offload of the whole state, which the host updates, as an option; None for parts of it."""
    shares = [leaf(path) or 0.0 for path in _OFFLOADED]
    if shares[:2] == [0.0, 0.0]:
        return []
    return [(_OFFLOAD, "true")] if shares == [1.0] * len(shares) else None


def _read_offload(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → shares of weights, optimiser and gradients on the host that options state."""
    if _OFFLOAD not in options:
        return {}
    return dict.fromkeys(_OFFLOADED, 1.0) if option_on(options, _OFFLOAD) else dict.fromkeys(_OFFLOADED[:2], 0.0)


_ASYNC, _COMPILE = f"{_PARALLEL}enable_async_tensor_parallel", "--compile.enable"
_COMPONENTS = "--compile.components"
_OVERLAP, _FUSED = "mapping.overlap_tp", "software.fused_elementwise"


def _compiled(leaf: Lookup) -> Pairs:
    """Return torch.compile and the asynchronous tensor parallelism that needs it as options."""
    pairs = [(_COMPILE, "true")] if leaf(_FUSED) else []
    return pairs + ([(_ASYNC, "true")] if leaf(_OVERLAP) else [])


def _read_compiled(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → fused element-wise chains and overlap of tensor parallelism that options state.

    Without torch.compile of the model asynchronous tensor parallelism has no effect.
    """
    components = options.get(_COMPONENTS, "model")
    compiled = option_on(options, _COMPILE) and "model" in components
    values = {_FUSED: float(compiled)} if _COMPILE in options else {}
    if _ASYNC not in options:
        return values
    return values | {_OVERLAP: float(option_on(options, _ASYNC) and (compiled or _COMPILE not in options))}


# --- formats ----------------------------------------------------------------------------------------------

_FORMAT, _CONVERTERS = "--training.mixed_precision_param", "--model.converters"
_LINEAR, _GATHER = "--float8.enable_float8_linear", "--float8.enable_fsdp_float8_all_gather"
_RECIPE, _PRECISION, _MESSAGE = "--float8.recipe_name", "mapping.precision", "software.weight_message_bytes"

_FORMATS = {
    float(Precision.bf16): f"{_FORMAT} bfloat16",
    float(Precision.fp32): f"{_FORMAT} float32",
    float(Precision.fp8): f"{_FORMAT} bfloat16 {_CONVERTERS} float8",
    float(Precision.fp8_row): f"{_FORMAT} bfloat16 {_CONVERTERS} float8 {_RECIPE} rowwise",
    float(Precision.mxfp8): f"{_FORMAT} bfloat16 {_CONVERTERS} mx",
}


def _formats(leaf: Lookup) -> Pairs | None:
    """Return the format of products and of gathered weights as options, None for another one."""
    code, message_bytes = leaf(_PRECISION) or 0.0, leaf(_MESSAGE)
    if code not in _FORMATS:
        return None
    gathers_bytes = message_bytes == 1.0 and code == Precision.fp8
    return pairs_of(_FORMATS[code]) + ([(_GATHER, "true")] if gathers_bytes else [])


def _read_formats(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → format of products, and bytes of gathered weights, that options state."""
    converters = options.get(_CONVERTERS, "").strip("[]").replace(",", " ").replace('"', "").split()
    kinds = {name.rpartition(".")[2] for name in converters} | ({"float8"} if option_on(options, _LINEAR) else set())
    is_rowwise, gathers_bytes = options.get(_RECIPE, "").startswith("rowwise"), option_on(options, _GATHER)
    codes, text = {"bfloat16": Precision.bf16, "float32": Precision.fp32}, options.get(_FORMAT, "").lower()
    if "float8" in kinds:
        values = {_PRECISION: float(Precision.fp8_row if is_rowwise else Precision.fp8)}
        return values | ({_MESSAGE: 1.0} if gathers_bytes and not is_rowwise else {})
    if kinds & {"mx", "mxfp8"}:
        return {_PRECISION: float(Precision.mxfp8)}
    return {_PRECISION: float(codes[text])} if text in codes else {}


# --- remarks ----------------------------------------------------------------------------------------------


def _schedule_remark(options: Mapping[str, str]) -> str:
    """Return the remark that a schedule is not modelled, "" for one that is, or without a pipeline."""
    name = options.get(_SCHEDULE, "1F1B")
    if name.lower().replace("_", "") in _SCHEDULES or option_degree(options, _STAGES) == 1.0:
        return ""
    return f"{_SCHEDULE} {name} has no equal here: 1F1B counts"


def _budget_remark(options: Mapping[str, str]) -> str:
    """Return the remark that recompute by a budget of memory is not modelled, "" for other modes."""
    if options.get(_MODE) != "memory_budget":
        return ""
    return f"{_MODE} memory_budget lets the compiler choose what is recomputed: set recompute"


def _compile_remark(options: Mapping[str, str]) -> str:
    """Return the remark that asynchronous tensor parallelism has no effect uncompiled, "" where it has or is off."""
    if not option_on(options, _ASYNC) or _read_compiled(options).get(_OVERLAP):
        return ""
    return f"{_ASYNC} has no effect without {_COMPILE}"


def _experts_remark(options: Mapping[str, str]) -> str:
    """Return the remark that experts stay in 16 bits under a format of dense products, "" for other formats."""
    code = _read_formats(options).get(_PRECISION)
    names = ("--float8.moe_fqns_prototype", "--mx.moe_fqns_prototype", "--quantize.moe.float8.fqns")
    is_mixture = (option_number(options, "@n_experts") or 0.0) > 0.0
    if not is_mixture or code not in (Precision.fp8, Precision.fp8_row, Precision.mxfp8) or {*names} & options.keys():
        return ""
    return f"{_CONVERTERS} converts dense products: products of experts stay in 16 bits, and count in 8 here"


def _optimiser_remark(options: Mapping[str, str]) -> str:
    """Return the remark that an optimiser is not modelled, "" for Adam."""
    name = options.get("--optimizer.name", "AdamW")
    return "" if name.lower() in ("adam", "adamw") else f"--optimizer.name {name} is not modelled: Adam counts"


def _configuration_remark(options: Mapping[str, str]) -> str:
    """Return that what a configuration in Python of the repository states is unknown, "" without one."""
    name = options.get("--config", "")
    return f"what --config {name} sets besides is unknown: defaults of {TORCHTITAN.name} count" if name else ""


#: Names with dashes, which its command line takes too → those with underscores.
_DASHED_NAMES = {
    f"--{name[2:].replace('_', '-')}": name
    for key in ("defaults", "effects")
    for name in table("torchtitan")[key]
    if "*" not in name and "_" in name
}

#: What options move, by their names in files too.
_EFFECTS = {spelling: moves for name, moves in table("torchtitan")["effects"].items() for spelling in (name, name[2:])}

TORCHTITAN = read_tool(
    "torchtitan",
    {
        "replicas": CompositeOption((_DP, _COPIES), _replicas, _read_replicas),
        "shards": CompositeOption((_ZERO,), _shards, _read_shards, writes_default=True),
        "schedule": CompositeOption((_CODE, _CHUNKS), _schedule, _read_schedule),
        "batch": CompositeOption((_MICRO, _BATCH, _TOKENS), _batch, _read_batch),
        "compile": CompositeOption((_OVERLAP, _FUSED), _compiled, _read_compiled),
        "recompute": CompositeOption((_RECOMPUTE, _SHARE, "software.keeps_products"), _recompute, _read_recompute),
        "offload": CompositeOption(_OFFLOADED, _offload, _read_offload),
        "formats": CompositeOption((_PRECISION, _MESSAGE), _formats, _read_formats),
    },
    aliases={**_DASHED_NAMES, **table("torchtitan")["aliases"]},
    effects=_EFFECTS,
    remarks=(
        _schedule_remark,
        _budget_remark,
        _compile_remark,
        _experts_remark,
        _optimiser_remark,
        _configuration_remark,
    ),
)
