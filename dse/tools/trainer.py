"""Rules of the Trainer of Transformers and of Accelerate's launcher, by their names without dashes and tables.

Configurations of DeepSpeed that are read with them state the rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath

from dse.tools import deepspeed
from dse.tools.options import (
    NODES,
    WORLD_SIZE,
    CompositeOption,
    Lookup,
    Pairs,
    degrees,
    hosts,
    number,
    option_degree,
    option_number,
    option_on,
)
from dse.types import ContextExchange, Precision, Recompute

_BATCH, _MICRO, _DP = "workload.global_batch", "mapping.micro_batch", "mapping.dp"
_COPIES, _ZERO, _OVERLAP = "mapping.dp_replicate", "mapping.zero_stage", "mapping.overlap_dp"


# --- batches ----------------------------------------------------------------------------------------------

_DEVICE_BATCH, _STEPS, _TOTAL = "per_device_train_batch_size", "gradient_accumulation_steps", "total_train_batch_size"
_TP, _CP, _SP = (f"parallelism_config_{name}_size" for name in ("tp", "cp", "sp"))
_PP = "megatron_lm_pp_degree"
_DEEPSPEED_MICRO, _DEEPSPEED_SP = "train_micro_batch_size_per_gpu", "sequence_parallel_size"
_DEEPSPEED_BATCH = "train_batch_size"


def _batch(leaf: Lookup) -> Pairs:
    """Return the sequences of a device, and its micro-batches of a step, as options."""
    (micro, ranks), batch = degrees(leaf, "micro_batch", "dp"), leaf(_BATCH) or 1.0
    return [(_DEVICE_BATCH, number(micro)), (_STEPS, number(batch / (micro * ranks)))]


def _read_batch(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → micro-batch, global batch and replicas that options state or imply.

    The batch of a step is that of a device x accumulation x replicas; a configuration of DeepSpeed has the same one.
    """
    micro, steps, total = (option_number(options, name) for name in (_DEVICE_BATCH, _STEPS, _TOTAL))
    by_deepspeed, devices = option_number(options, _DEEPSPEED_MICRO), option_number(options, WORLD_SIZE)
    ranks = option_degree(options, _TP) * option_degree(options, _CP) * option_degree(options, _SP)
    ranks *= option_degree(options, "tensor_parallel.autotp_size") * option_degree(options, _PP)
    shard = option_number(options, _SHARD)
    replicas = shard * option_degree(options, _REPLICATE) if shard and shard >= 1.0 else None
    replicas = devices / ranks if devices and devices % ranks == 0.0 else replicas
    micro = by_deepspeed or micro
    whole = option_number(options, _DEEPSPEED_BATCH)  # of DeepSpeed: it has to agree
    sizes = deepspeed.batch_triple(whole or total, micro, steps if whole or not total else None, replicas)
    if sizes[0] is None and replicas is None:
        return {} if micro is None else {_MICRO: micro}
    values = zip((_BATCH, _MICRO, _DP), sizes, strict=True)
    return {path: value for path, value in values if value is not None}


_STRATEGY_OF_CONTEXT, _EXCHANGE = "parallelism_config_cp_comm_strategy", "mapping.context.cp_comm_type"

#: Names of exchanges in a ring, of Accelerate and of ring-flash-attn; others gather keys and values.
_RINGS = ("alltoall", "batch_ring", "batch_zigzag", "batch_stripe", "ring")


def _context(leaf: Lookup) -> Pairs | None:
    """Return context parallelism and its exchange as options, None for an exchange of heads within groups."""
    (cp,), code = degrees(leaf, "cp"), leaf(_EXCHANGE) or 0.0
    if cp == 1.0:
        return []
    pairs: dict[float, Pairs] = {
        float(ContextExchange.p2p): [(_CP, number(cp)), (_STRATEGY_OF_CONTEXT, "alltoall")],
        float(ContextExchange.all_gather): [(_CP, number(cp))],
        float(ContextExchange.a2a): [(_SP, number(cp))],
    }
    return pairs.get(code)


def _read_context(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → context parallelism, of tokens or of heads (``sp``), and its exchange that options state."""
    cp, sp = option_degree(options, _CP), option_degree(options, _SP)
    strategy, by_deepspeed = options.get(_STRATEGY_OF_CONTEXT, "").lower(), option_degree(options, _DEEPSPEED_SP)
    if not any(name in options for name in (_CP, _SP, _DEEPSPEED_SP)):
        return {}
    values, heads = {"mapping.cp": cp * max(sp, by_deepspeed)}, max(sp, by_deepspeed)
    if values["mapping.cp"] == 1.0:
        return values
    kind = ContextExchange.p2p if strategy in _RINGS else ContextExchange.all_gather
    return values | {_EXCHANGE: float(ContextExchange.a2a if heads > 1.0 else kind)}


_LENGTH, _PROMPT, _COMPLETION = "max_length", "max_prompt_length", "max_completion_length"


def _length(leaf: Lookup) -> Pairs:
    """Return the length of a sequence as an option."""
    return [(_LENGTH, number(leaf("workload.seq_len") or 1.0))]


def _read_length(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → longest sequence that options state: of trainers that generate prompt and completion."""
    tokens, prompt, completion = (option_number(options, name) for name in (_LENGTH, _PROMPT, _COMPLETION))
    if completion is not None:
        tokens = completion + (512.0 if prompt is None else prompt)  # of GRPOConfig of TRL
    return {"workload.seq_len": tokens} if tokens and tokens > 0.0 else {}


# --- shards -----------------------------------------------------------------------------------------------

_STAGE, _KIND, _FSDP = "zero_stage", "distributed_type", "fsdp"
_STRATEGY, _RESHARD = "fsdp_sharding_strategy", "fsdp_reshard_after_forward"
_REPLICATE, _SHARD = "parallelism_config_dp_replicate_size", "parallelism_config_dp_shard_size"

#: Options that name a configuration of DeepSpeed or of Accelerate, from which its stage is read where it is not there.
_DEEPSPEED_FILES = ("deepspeed", "deepspeed_config_file")
FILES = (*_DEEPSPEED_FILES, "accelerate_config", "config_file")

#: Strategy of FSDP, or its number (accelerate/utils/constants.py) → ZeRO stage, and whether it is that of a node.
_STRATEGIES = {
    "full_shard": (3.0, False),
    "shard_grad_op": (2.0, False),
    "no_shard": (0.0, False),
    "hybrid_shard": (3.0, True),
    "hybrid_shard_zero2": (2.0, True),
}
_NUMBERED = dict(zip("12345", _STRATEGIES, strict=True))


def names_nothing(text: str) -> bool:
    """True for the text of an option that is off or open."""
    return text.strip().lower() in ("", "false", "no", "none", "null", "auto", "0", "[]")


def named_stage(options: Mapping[str, str]) -> float | None:
    """Return the ZeRO stage that the name of a configuration has, as ``zero3.json`` and ``ds_z2_config.json``."""
    for option in FILES:
        name = PurePath(options.get(option, "")).name.lower()
        if match := re.search(r"(?:zero|stage|(?<![a-z])z)[-_]?([0-3])(?!\d)", name):
            return float(match[1])
    return None


def _deepspeed_stage(options: Mapping[str, str]) -> float | None:
    """Return the ZeRO stage of DeepSpeed, None where it does not run or its configuration is not there.

    Accelerate's plug-in is at stage 2 by default (accelerate/utils/dataclasses.py).
    """
    stated = [option_number(options, name) for name in (deepspeed.STAGE, _STAGE)]
    kind, uses = options.get(_KIND, "").upper(), option_on(options, "use_deepspeed")
    named, has_file = named_stage(options), any(not names_nothing(options.get(name, "")) for name in _DEEPSPEED_FILES)
    stage = next((number for number in (*stated, named) if number is not None), None)
    if stage is not None or has_file:
        return stage
    return 2.0 if kind == "DEEPSPEED" or uses else None


def runs_deepspeed(options: Mapping[str, str]) -> bool:
    """True where options start DeepSpeed."""
    is_named = any(not names_nothing(options.get(name, "")) for name in _DEEPSPEED_FILES)
    return _deepspeed_stage(options) is not None or is_named or options.get(_KIND, "").upper() == "DEEPSPEED"


def _runs_megatron(options: Mapping[str, str]) -> bool:
    """True where Accelerate starts Megatron-LM (``MegatronLMPlugin``)."""
    return options.get(_KIND, "").upper() == "MEGATRON_LM" or option_on(options, "use_megatron_lm")


def _fsdp_strategy(options: Mapping[str, str]) -> str:
    """Return the strategy of FSDP, "" where it does not run."""
    words = options.get(_FSDP, "").lower().replace(",", " ").strip("[]").split()
    strategy, reshard = options.get(_STRATEGY, "").lower(), options.get(_RESHARD, "").lower()
    kind = options.get(_KIND, "").upper()
    names = (kind == "FSDP", option_on(options, "use_fsdp"), "fsdp_version" in options, bool(reshard) and not kind)
    is_named = any("fsdp" in PurePath(options.get(option, "")).name.lower() for option in FILES)
    is_on = any(names) or is_named or bool(strategy) or not names_nothing(" ".join(words))
    if not is_on or runs_deepspeed(options):
        return ""
    stated = [_NUMBERED.get(text, text) for text in (strategy, reshard, *words)]
    stated += {"true": ["full_shard"], "false": ["shard_grad_op"]}.get(reshard, [])
    return next((text for text in stated if text in _STRATEGIES), "full_shard")


def _shards(leaf: Lookup) -> Pairs | None:
    """Return the strategy of FSDP as an option, none for copies; None for what it does not have."""
    stage, (dp, copies), (nodes, _) = leaf(_ZERO) or 0.0, degrees(leaf, "dp", "dp_replicate"), hosts(leaf)
    if stage == 0.0 or dp == 1.0:
        return []
    is_hybrid = copies > 1.0
    names = [name for name, (code, hybrid) in _STRATEGIES.items() if (code, hybrid) == (stage, is_hybrid)]
    return [(_FSDP, f"{names[0]} auto_wrap")] if names and copies in (1.0, float(nodes)) else None


def _read_shards(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage and copies of the shards that options state, else those of plain replicas.

    A hybrid strategy shards within a node.
    """
    stage, strategy, nodes = _deepspeed_stage(options), _fsdp_strategy(options), option_number(options, NODES)
    copies, is_deepspeed = option_number(options, _REPLICATE), runs_deepspeed(options)
    shares = deepspeed.read_shards(options)
    if is_deepspeed:
        return shares if stage is None else shares | {_ZERO: stage}
    if not strategy:
        is_sharded = _runs_megatron(options) and option_on(options, "megatron_lm_use_distributed_optimizer")
        return {_ZERO: 1.0 if is_sharded else 0.0}
    stage, is_hybrid = _STRATEGIES[strategy]
    if copies is not None and copies > 1.0:
        return {_ZERO: stage, _COPIES: copies}
    return {_ZERO: stage} | ({_COPIES: nodes} if is_hybrid and nodes else {})


def _overlap(leaf: Lookup) -> Pairs | None:
    """Return no option for the overlap of messages, which DDP and FSDP have; None without it."""
    return [] if leaf(_OVERLAP) else None


def _read_overlap(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → overlap of messages: DDP and FSDP have it, DeepSpeed by its configuration or stage.

    Accelerate does not turn Megatron-LM's overlap on.
    """
    if _runs_megatron(options):
        return {_OVERLAP: 0.0}
    stage = _deepspeed_stage(options)
    stated = deepspeed.read_overlap(options)
    if stage is None:
        return {} if runs_deepspeed(options) else {_OVERLAP: 1.0}
    return stated or {_OVERLAP: float(stage == 3.0)}


# --- offload and recompute --------------------------------------------------------------------------------

_FSDP_OFFLOAD = "fsdp_offload_params"
_OFFLOADED = (
    "mapping.offload_weights",
    "mapping.offload_optimizer",
    "mapping.tiers.offload_gradients",
    "mapping.tiers.host_update",
)

_TIERS = tuple(
    f"mapping.tiers.{name}"
    for name in ("gradient_depth", "gradient_copy_bytes", "pinned", "storage_optimizer", "storage_weights")
)

#: Leaves of messages and of the update on the host, which a configuration of DeepSpeed alone states.
_MESSAGES = (
    "mapping.sharding.gathered_bytes",
    "mapping.sharding.scattered_bytes",
    "mapping.tiers.pipeline_read",
    "mapping.tiers.pipeline_write",
    "mapping.tiers.sub_group_size",
)


def _read_messages(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → value of leaves that a configuration of DeepSpeed states by itself."""
    rules = [rule for rule in deepspeed.DEEPSPEED.rules if rule.paths[0] in _MESSAGES]
    return {path: value for rule in rules for path, value in rule.read(options).items()}


def _deepspeed_offload(options: Mapping[str, str]) -> dict[str, str]:
    """Return DeepSpeed's options of offload, those of Accelerate and of the names of configurations included."""
    result: dict[str, str] = {}
    files = " ".join(PurePath(options.get(option, "")).name.lower() for option in FILES)
    parts = {"optimizer": "offload" in files and "params" not in files, "param": "offload" in files}
    for part, by_name in parts.items():
        prefix, short = f"{deepspeed.ZERO}offload_{part}.", f"offload_{part}_device"
        texts = {key: options.get(f"{prefix}{key}", "") for key in ("device", "pin_memory", "ratio")}
        texts["device"] = texts["device"] or options.get(short, "") or ("cpu" if by_name else "")
        texts["pin_memory"] = texts["pin_memory"] or ("true" if by_name else "")  # as the tools' files have it
        result |= {f"{prefix}{key}": text for key, text in texts.items() if text}
    stage = _deepspeed_stage(options)
    if stage is not None and stage < 3.0:
        result.pop(f"{deepspeed.ZERO}offload_param.device", None)
    return result


def _read_offload(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → shares of weights, optimiser and gradients on the host that options state."""
    strategy, is_on = _fsdp_strategy(options), option_on(options, _FSDP_OFFLOAD)
    offload = _deepspeed_offload(options)
    is_word = "offload" in options.get(_FSDP, "").lower().split()
    if runs_deepspeed(options):
        return deepspeed.read_offload(offload) | deepspeed.read_update(offload) | _read_messages(options)
    if strategy and (is_on or is_word):
        return dict.fromkeys(_OFFLOADED, 1.0)
    return dict.fromkeys(_OFFLOADED[:2], 0.0)


def _offload(leaf: Lookup) -> Pairs | None:
    """Return the offload of the whole state of FSDP as an option; None for parts of it."""
    shares = [leaf(path) or 0.0 for path in _OFFLOADED]
    gathered, *others = (leaf(path) or 0.0 for path in _MESSAGES[:-1])
    if gathered not in (0.0, 2.0) or any(others):
        return None
    if shares[:2] == [0.0, 0.0]:
        return []
    return [(_FSDP_OFFLOAD, "true")] if shares == [1.0] * len(shares) and (leaf(_ZERO) or 0.0) >= 2.0 else None


_CHECKPOINTS, _FSDP_CHECKPOINTS = "gradient_checkpointing", "fsdp_activation_checkpointing"
_ACTIVATIONS, _ON_STORAGE = "mapping.offload_activations", "mapping.tiers.storage_activations"


def _recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute of whole layers, and where their inputs are, as options; None for another recompute."""
    code, share, on_host = leaf("mapping.recompute") or 0.0, leaf("mapping.recompute_share"), leaf(_ACTIVATIONS)
    if code == Recompute.none and not on_host:
        return [(_CHECKPOINTS, "false")]
    if code != Recompute.full or share not in (None, 1.0) or on_host not in (None, 0.0, 1.0):
        return None
    return [(_CHECKPOINTS, "true"), *([("activation_offloading", "true")] if on_host else [])]


def _read_recompute(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → recompute of whole layers, and where their inputs are, that options state."""
    text = options.get(_CHECKPOINTS, "none").strip().lower()
    by_fsdp, offloads = option_on(options, _FSDP_CHECKPOINTS), option_on(options, "activation_offloading")
    is_selective = option_on(options, "megatron_lm_recompute_activations")
    if _runs_megatron(options):  # of attention's core
        return {"mapping.recompute": float(Recompute.selective if is_selective else Recompute.none)}
    is_stated = _CHECKPOINTS in options or by_fsdp  # FSDP's, if it is off, says nothing of the program's
    is_on = by_fsdp or text in ("", "true", "1", "offload", "offload_disk", "unsloth")
    values = {"mapping.recompute": float(Recompute.full if is_on else Recompute.none)} if is_stated else {}
    if offloads or text in ("offload", "offload_disk", "unsloth"):
        values[_ACTIVATIONS] = 1.0
    return values | ({_ON_STORAGE: 1.0} if text == "offload_disk" else {})


# --- formats ----------------------------------------------------------------------------------------------

_DTYPE, OPTIMISER = "dtype", "optim"
_PRECISION = "mapping.precision"
_STATE = ("software.parameter_bytes", "software.moment_bytes", "software.gradient_bytes")

#: Format → options that turn it on, in the order in which they count.
_SWITCHES = {
    Precision.fp8: ("fp8", "enable_fp8_training"),
    Precision.fp16: ("fp16", "fp16.enabled", "float16"),
    Precision.bf16: ("bf16", "bf16.enabled", "bfloat16", "pure_bf16"),
}
_DTYPES = {"bfloat16": Precision.bf16, "bf16": Precision.bf16, "float16": Precision.fp16, "fp16": Precision.fp16}


def mixed_precision(options: Mapping[str, str]) -> Precision | None:
    """Return the format that products are cast to, None without one."""
    text = options.get("mixed_precision", "no").lower()
    switches = {code: [option_on(options, name) for name in names] for code, names in _SWITCHES.items()}
    return next((code for code, on in switches.items() if any(on) or text == code.name), None)


def weight_format(options: Mapping[str, str]) -> Precision | None:
    """Return the 16-bit format in which weights are loaded, None for 32 bits or an open one.

    Of a tool that loads them in the format of its products, ``mixed``, that one.
    """
    text, pure = options.get(_DTYPE, "").lower().rpartition(".")[2], option_on(options, "pure_bf16")
    is_cast, mixed = option_on(options, "bfloat16"), mixed_precision(options)
    if text == "mixed":
        return mixed if mixed in (Precision.bf16, Precision.fp16) else None
    return Precision.bf16 if pure or is_cast else _DTYPES.get(text)


def _read_precision(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → format of products that options state, else 32 bits."""
    mixed, weights, tf32 = mixed_precision(options), weight_format(options), option_on(options, "tf32")
    code = mixed if mixed is not None else weights if weights is not None else None
    return {_PRECISION: float(code if code is not None else Precision.tf32 if tf32 else Precision.fp32)}


def _precision(leaf: Lookup) -> Pairs | None:
    """Return the format of products as options, None for one that it does not have."""
    code = leaf(_PRECISION)
    if code not in (Precision.bf16, Precision.fp16, Precision.fp32):
        return None
    return [("bf16", str(code == Precision.bf16).lower()), ("fp16", str(code == Precision.fp16).lower())]


def _read_state(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → bytes per weight, moment and gradient that options imply.

    DeepSpeed has weights of 16 bits with a copy in 32; FSDP and automatic casts have weights in 32 bits alone; weights
    that are loaded in 16 bits and not cast up are all in 16.
    """
    weights, mixed, optimiser = weight_format(options), mixed_precision(options), options.get(OPTIMISER, "").lower()
    is_deepspeed, strategy = runs_deepspeed(options), _fsdp_strategy(options)
    casts_up = bool(strategy) and mixed is not None and not option_on(options, "enable_fp8_training")
    is_16_bits = weights is not None and not is_deepspeed and not casts_up
    if is_16_bits:
        values = dict.fromkeys(_STATE, 2.0)
    elif (is_deepspeed or _runs_megatron(options)) and (mixed is not None or weights is not None):
        values = {_STATE[0]: 0.0}
    else:
        values = {_STATE[0]: 4.0} | ({} if is_deepspeed else {_STATE[2]: 4.0})
    bits = re.search(r"(8|4)[-_]?bit", optimiser)
    return values | ({_STATE[1]: float(bits[1]) / 8.0} if bits else {})


def _state(leaf: Lookup) -> Pairs | None:
    """Return the format of weights and of the optimiser's state as options, None for one that it does not have."""
    weights, moments, gradients = (leaf(path) for path in _STATE)
    if weights == 2.0 and moments in (1.0, 2.0) and gradients == 2.0 and not leaf(_ZERO):
        return [(_DTYPE, "bfloat16"), *([(OPTIMISER, "adamw_8bit")] if moments == 1.0 else [])]
    if weights == 4.0 and moments in (None, 1.0, 4.0):
        return [(OPTIMISER, "adamw_8bit")] if moments == 1.0 else []
    return None


# --- rules -----------------------------------------------------------------------------------------------

#: Name in the table → rule.
RULES = {
    "batch": CompositeOption((_MICRO, _BATCH, _DP), _batch, _read_batch),
    "context": CompositeOption(("mapping.cp", _EXCHANGE), _context, _read_context),
    "length": CompositeOption(("workload.seq_len",), _length, _read_length),
    "shards": CompositeOption((_ZERO, _COPIES), _shards, _read_shards),
    "overlap": CompositeOption((_OVERLAP,), _overlap, _read_overlap, writes_default=True),
    "offload": CompositeOption((*_OFFLOADED, *_TIERS, *_MESSAGES), _offload, _read_offload),
    "recompute": CompositeOption(
        ("mapping.recompute", "mapping.recompute_share", _ACTIVATIONS, _ON_STORAGE), _recompute, _read_recompute
    ),
    "precision": CompositeOption((_PRECISION,), _precision, _read_precision),
    "state": CompositeOption(_STATE, _state, _read_state, writes_default=True),
}
