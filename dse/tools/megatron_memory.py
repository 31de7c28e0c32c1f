"""Rules of Megatron-LM for what memory holds: recompute, split and offloaded state, number formats."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dse.tools.megatron_pipeline import read_virtual_stages
from dse.tools.megatron_shape import layer_count
from dse.tools.options import CompositeOption, Lookup, Pairs, degrees, is_dense, is_on, number, option_number, unwritten
from dse.tools.rows import pairs_of
from dse.types import Precision, Recompute

_Options = Mapping[str, str]
_STAGES = "--pipeline-model-parallel-size"


# --- recompute --------------------------------------------------------------------------------------------

#: Paths of the rule of recompute.
RECOMPUTE_PATHS = ("mapping.recompute", "mapping.recompute_share")
_SELECTIVE = "--recompute-granularity selective --recompute-modules core_attn"
_RECOMPUTED = {
    float(Recompute.none): "",
    float(Recompute.selective): _SELECTIVE,
    float(Recompute.norms): f"{_SELECTIVE} layernorm moe_act mla_up_proj",
    float(Recompute.expert_block): f"{_SELECTIVE} layernorm mla_up_proj moe",
}

#: Module that is recomputed → level of mixtures of experts with it, the highest first.
_LEVEL_BY_MODULE = {
    "moe": Recompute.expert_block,
    "shared_experts": Recompute.expert_inner,
    **dict.fromkeys(("moe_act", "layernorm", "mla_up_proj"), Recompute.norms),
}


def recompute_pairs(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for a kind that Megatron-LM does not have."""
    code = leaf("mapping.recompute") or 0.0
    if code > Recompute.selective_op and leaf("workload.experts.n_experts") is None:
        return None
    if code != Recompute.full:
        return pairs_of(_RECOMPUTED[code]) if code in _RECOMPUTED else None
    recompute_share, layers = leaf("mapping.recompute_share") or 0.0, leaf("workload.n_layers") or 0.0
    stages, chunks = degrees(leaf, "pp", "virtual_stages")
    method = "uniform" if recompute_share >= 1.0 else "block"
    layers_per_chunk = 1.0 if method == "uniform" else round(recompute_share * layers / (stages * chunks))
    text = f"--recompute-granularity full --recompute-method {method} --recompute-num-layers {number(layers_per_chunk)}"
    return pairs_of(text)


def _modules(options: _Options) -> list[str]:
    """Return the modules that are recomputed, by default the attention core."""
    return re.sub(r"[^\w]", " ", options.get("--recompute-modules", "")).split() or ["core_attn"]


def _read_recompute(options: _Options) -> dict[str, float]:
    """Return path → code of recompute, and the share of layers of ``block``, which counts layers of each chunk.

    Primus may list the layers of the model instead (recompute_layer_ids).
    """
    granularity, method = (options.get(f"--recompute-{name}", "").lower() for name in ("granularity", "method"))
    n_layers, chunk_layers = layer_count(options), option_number(options, "--recompute-num-layers")
    modules, is_of_experts = _modules(options), is_on(options, "--moe-layer-recompute")
    is_of_layers = is_on(options, "--checkpoint-activations") or (bool(method) and not granularity)  # of 2021
    if granularity == "full" or is_of_layers:
        values = {"mapping.recompute": float(Recompute.full)}
        if n_layers is not None and (
            listed_layers := set(re.findall(r"\d+", options.get("--recompute-layer-ids", "")))
        ):
            return values | {"mapping.recompute_share": min(len(listed_layers) / n_layers, 1.0)}
        if method != "block" or n_layers is None or chunk_layers is None:
            return values
        chunks = read_virtual_stages(options).get("mapping.virtual_stages", 1.0)
        layers = chunk_layers * (option_number(options, _STAGES) or 1.0) * chunks
        return values | {"mapping.recompute_share": min(layers / n_layers, 1.0)}
    if is_of_experts:
        return {"mapping.recompute": float(Recompute.expert_block)}
    if granularity != "selective" and not is_on(options, "--recompute-activations"):
        return {"mapping.recompute": float(Recompute.none)} if granularity in ("none", "false") else {}
    levels = {} if is_dense(options) else _LEVEL_BY_MODULE
    level = next((level for module, level in levels.items() if module in modules), Recompute.selective)
    return {"mapping.recompute": float(level)}


def recompute_remark(options: _Options) -> str:
    """Return the remark on modules whose recompute counts as another, "" for none."""
    code = _read_recompute(options).get("mapping.recompute", 0.0)
    modules = set(_modules(options)) if code not in (Recompute.none, Recompute.full) else set()
    levels = {Recompute.selective: {"core_attn"}, Recompute.norms: {"core_attn", "layernorm", "moe_act", "mla_up_proj"}}
    differing_modules = modules ^ levels.get(Recompute(int(code)), modules)
    if not differing_modules:
        return ""
    level_name = Recompute(int(code)).name.replace("_", "-")
    return f"--recompute-modules {' '.join(_modules(options))} counts as recompute={level_name}"


# --- sharding and offload ---------------------------------------------------------------------------------

_SHARDED = {
    0.0: "",
    1.0: "--use-distributed-optimizer",
    2.0: "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
    3.0: "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
}

#: Paths of the rule of sharding.
SHARD_PATHS = ("mapping.zero_stage", "mapping.overlap_dp", "mapping.dp_replicate")


def shard_pairs(leaf: Lookup) -> Pairs:
    """Return ZeRO stage, its overlap with compute, and copies of the shards as options."""
    stage, (copies,) = leaf("mapping.zero_stage") or 0.0, degrees(leaf, "dp_replicate")
    pairs = pairs_of(_SHARDED[stage])
    pairs += [("--num-distributed-optimizer-instances", number(copies))] if copies > 1.0 else []
    overlaps = ["--overlap-grad-reduce", *(["--overlap-param-gather"] if stage else [])]
    return pairs + [(name, "") for name in overlaps if leaf("mapping.overlap_dp")]


#: Switches that recipes and presets turn on, so that they are written where they are off.
SHARD_SWITCHES = ("--use-distributed-optimizer", "--overlap-grad-reduce")

_FSDP = ("--use-megatron-fsdp", "--use-custom-fsdp")

#: Options that say how the state is split.
SHARD_OPTIONS = frozenset((*SHARD_SWITCHES, *_FSDP, "--overlap-param-gather", "--use-torch-fsdp2"))


def with_switches(pairs: Pairs) -> Pairs:
    """Return options with the sharding switches that are off added, but the first with Megatron's FSDP."""
    values_by_option = dict(pairs)
    off_switches = SHARD_SWITCHES if "--use-megatron-fsdp" not in values_by_option else SHARD_SWITCHES[1:]
    return [*pairs, *((name, "false") for name in off_switches if name not in values_by_option)]


def read_shards(options: _Options) -> dict[str, float]:
    """Return path → ZeRO stage, overlap and copies that options state, those of the tool's defaults else.

    PyTorch's FSDP 2 overlaps its messages by itself, and has ZeRO 2 where weights are not sharded again.
    """
    stages = {"optim": 1.0, "optim_grads": 2.0, "optim_grads_params": 3.0}
    stage = float(is_on(options, "--use-distributed-optimizer"))
    if is_on(options, *_FSDP):
        stage = stages.get(options.get("--data-parallel-sharding-strategy", ""), stage)
    overlap = is_on(options, "--overlap-grad-reduce")
    if is_on(options, "--use-torch-fsdp2"):
        stage, overlap = 3.0 - is_on(options, "--torch-fsdp2-no-reshard-after-forward"), True
    copies = option_number(options, "--num-distributed-optimizer-instances") or 1.0
    return {"mapping.zero_stage": stage, "mapping.overlap_dp": float(overlap), "mapping.dp_replicate": copies}


_OFFLOAD = ("mapping.offload_optimizer", "mapping.tiers.host_update")
_OFFLOAD_SHARE = "--optimizer-offload-fraction"


def _offload(leaf: Lookup) -> Pairs | None:
    """Return offload of the optimiser as options, None for an update of its state on the device."""
    offload_share, host_share = map(leaf, _OFFLOAD)
    if not offload_share:
        return []
    if host_share == 0.0:
        return None
    return [
        ("--use-precision-aware-optimizer", ""),
        ("--optimizer-cpu-offload", ""),
        (_OFFLOAD_SHARE, number(offload_share)),
    ]


def _read_offload(options: _Options) -> dict[str, float]:
    """Return path → share of the optimiser's state that processors of the host update, all of it by default."""
    if "--optimizer-cpu-offload" not in options:
        return {}
    if not is_on(options, "--optimizer-cpu-offload"):
        return {_OFFLOAD[0]: 0.0}
    share_text = options.get(_OFFLOAD_SHARE, "1.0")
    return {_OFFLOAD[0]: float(share_text), _OFFLOAD[1]: 1.0}


def _offloaded_layers(leaf: Lookup) -> Pairs | None:
    """Return activations on the host as an option, None for stages, which exclude it."""
    offload_share, (stages,) = leaf("mapping.offload_activations"), degrees(leaf, "pp")
    if not offload_share:
        return []
    layers = round(offload_share * (leaf("workload.n_layers") or 0.0))
    return None if stages > 1.0 else [("--cpu-offloading-num-layers", number(layers))]


def _read_offloaded_layers(options: _Options) -> dict[str, float]:
    """Return path → share of activations on the host, which Megatron-LM counts in layers and has without stages."""
    layers, n_layers = option_number(options, "--cpu-offloading-num-layers"), layer_count(options)
    if not layers or not n_layers:
        return {}
    return {"mapping.offload_activations": min(layers / n_layers, 1.0)}


# --- number formats ---------------------------------------------------------------------------------------

_FORMATS = {
    Precision.fp32: "",
    Precision.bf16: "--bf16",
    Precision.fp16: "--fp16",
    Precision.fp8: "--bf16 --fp8-format hybrid --fp8-recipe tensorwise",
    Precision.fp8_block: "--bf16 --fp8-format e4m3 --fp8-recipe blockwise",
    Precision.mxfp8: "--bf16 --fp8-format e4m3 --fp8-recipe mxfp8",
    Precision.nvfp4: "--bf16 --fp4-format e2m1 --fp4-recipe nvfp4",
}


def _precision(leaf: Lookup) -> Pairs | None:
    """Return the format of products as options, None for one that Megatron-LM does not have."""
    code = int(leaf("mapping.precision") or 0.0)
    return pairs_of(_FORMATS[Precision(code)]) if code in _FORMATS else None


#: Recipe of 8-bit products → their format; others have one scale per tensor.
_RECIPES = {"blockwise": Precision.fp8_block, "mxfp8": Precision.mxfp8}


def _read_precision(options: _Options) -> dict[str, float]:
    """Return path → format of products; of 8 bits by the recipe, of 32 where 16 bits are switched off."""
    recipe = options.get("--fp8-recipe", "")
    if is_on(options, "--fp4-format"):
        code = Precision.nvfp4
    elif is_on(options, "--fp8-format", "--fp8-hybrid", "--fp8-e4m3"):
        code = _RECIPES.get(recipe, Precision.fp8)
    elif is_on(options, "--bf16"):
        code = Precision.bf16
    elif is_on(options, "--fp16"):
        code = Precision.fp16
    elif "--bf16" in options and "--fp16" in options:
        code = Precision.fp32
    else:
        return {}
    return {"mapping.precision": float(code)}


_MOMENTS = ("--exp-avg-dtype", "--exp-avg-sq-dtype")
_TYPE_BYTES = {"fp32": 4.0, "float32": 4.0, "fp16": 2.0, "bf16": 2.0, "bfloat16": 2.0, "fp8": 1.0, "uint8": 1.0}


def _moments(leaf: Lookup) -> Pairs | None:
    """Return the format of the optimiser's moments as options, None for one that Megatron-LM does not have."""
    name = {4.0: "", 2.0: "bf16", 1.0: "fp8"}.get(leaf("software.moment_bytes") or 4.0)
    if not name:
        return None if name is None else []
    return [("--use-precision-aware-optimizer", ""), *((option, name) for option in _MOMENTS)]


def _read_moments(options: _Options) -> dict[str, float]:
    """Return path → mean bytes of a moment, which the optimiser that knows of formats alone has below 4."""
    sizes = [_TYPE_BYTES.get(options[name].rpartition(".")[2]) for name in _MOMENTS if name in options]
    if not is_on(options, "--use-precision-aware-optimizer") or None in sizes or not sizes:
        return {}
    total = sum(size for size in sizes if size) + 4.0 * (len(_MOMENTS) - len(sizes))
    return {"software.moment_bytes": total / len(_MOMENTS)}


_GRADIENTS = ("software.gradient_bytes", "software.gradient_message_bytes")


def _read_gradients(options: _Options) -> dict[str, float]:
    """Return path → bytes of accumulated and of sent gradients, which the buffer of both shares.

    Sums are in 32 bits unless options say otherwise, with ``--fp16`` in 16 bits.
    """
    is_short = is_on(options, "--grad-reduce-in-bf16") or options.get("--main-grads-dtype", "").endswith("bf16")
    is_off = "--grad-reduce-in-bf16" in options and not is_on(options, "--grad-reduce-in-bf16")
    is_wide = is_off or is_on(options, "--accumulate-allreduce-grads-in-fp32")
    if not is_short and not is_wide:
        return {}
    return dict.fromkeys(_GRADIENTS, 2.0 if is_short else 4.0)


#: Name in the tables → rule.
MEMORY_RULES = {
    "shards": CompositeOption(SHARD_PATHS, shard_pairs, read_shards),
    "recompute": CompositeOption(RECOMPUTE_PATHS, recompute_pairs, _read_recompute),
    "offload": CompositeOption(_OFFLOAD, _offload, _read_offload),
    "offloaded_layers": CompositeOption(("mapping.offload_activations",), _offloaded_layers, _read_offloaded_layers),
    "precision": CompositeOption(("mapping.precision",), _precision, _read_precision),
    "moments": CompositeOption(("software.moment_bytes",), _moments, _read_moments),
    "gradients": CompositeOption(_GRADIENTS, unwritten, _read_gradients),
}
