"""Tools built on Megatron-LM: Megatron-Bridge, NeMo 1 and 2, NeMo-RL, Primus and Megatron-DeepSpeed.

Their options are Megatron-LM's by the names of their own configurations (:mod:`dse.tools.recipe_names`); here are those
that mean something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dse.tools.megatron import GRAPH, graph_pairs
from dse.tools.megatron_memory import (
    SHARD_OPTIONS,
    SHARD_PATHS,
    read_shards,
    recompute_pairs,
    shard_pairs,
    with_switches,
)
from dse.tools.options import (
    WORLD_SIZE,
    CompositeOption,
    Lookup,
    Pairs,
    degrees,
    is_on,
    number,
    option_number,
    unwritten,
)
from dse.tools.recipe_names import MegatronOptions, as_value, read_by_names, recipe_tool, renamed_rule, rule_of
from dse.tools.rows import table
from dse.types import ContextExchange, Graph, Precision

_Options = Mapping[str, str]


# --- Megatron-Bridge --------------------------------------------------------------------------------------

_RECIPE_FORMATS = {
    Precision.bf16: "bf16_mixed",
    Precision.fp16: "fp16_mixed",
    Precision.fp8: "bf16_with_fp8_current_scaling_mixed",
    Precision.fp8_block: "bf16_with_fp8_subchannel_scaling_mixed",
    Precision.mxfp8: "bf16_with_mxfp8_mixed",
    Precision.nvfp4: "bf16_with_nvfp4_mixed",
}

#: Part of a format's name → format: of launchers (``--compute_dtype``), of recipes and of their fields.
_FORMAT_BY_PART = {
    "nvfp4": Precision.nvfp4,
    "mxfp8": Precision.mxfp8,
    "fp8_mx": Precision.mxfp8,
    "subchannel": Precision.fp8_block,
    "blockwise": Precision.fp8_block,
    "fp8_sc": Precision.fp8_block,
    "fp8": Precision.fp8,
    "bf16": Precision.bf16,
    "bfloat16": Precision.bf16,
    "fp16": Precision.fp16,
    "float16": Precision.fp16,
    "fp32": Precision.fp32,
    "float32": Precision.fp32,
}


def _format(name: str) -> dict[str, float]:
    """Return path → format of products by its name, empty for an unknown one."""
    text = name.lower().replace("-", "_").removeprefix("torch.")
    code = next((code for part, code in _FORMAT_BY_PART.items() if part in text), None)
    return {} if code is None else {"mapping.precision": float(code)}


def _bridge_precision(leaf: Lookup) -> Pairs | None:
    """Return the format of products as an option, None for one without a recipe."""
    code = int(leaf("mapping.precision") or 0.0)
    return [("mixed_precision", _RECIPE_FORMATS[Precision(code)])] if code in _RECIPE_FORMATS else None


def _read_bridge_precision(options: _Options) -> dict[str, float]:
    """Return path → format of products: of a launcher, of the fields of a recipe's format, or of its name."""
    prefix = "mixed_precision."
    launched, launched_scaling = (options.get(name, "") for name in ("--compute_dtype", "--fp8_recipe"))
    recipe, scaling = (options.get(name, "") for name in ("mixed_precision", f"{prefix}fp8_recipe"))
    fields = {name: is_on(options, prefix + name) for name in ("fp4", "fp8", "bf16", "fp16")}
    if launched:
        return _format(launched + {"mx": "_mx", "ss": "_sc"}.get(launched_scaling, ""))
    if fields["fp4"]:
        return {"mapping.precision": float(Precision.nvfp4)}
    if fields["fp8"]:
        return _format(f"fp8 {scaling}")
    return _format(next((name for name, is_set in fields.items() if is_set), recipe))


_SHARD_RULE = CompositeOption(
    SHARD_PATHS,
    lambda leaf: with_switches(shard_pairs(leaf)),
    lambda options: read_shards(options) if any(name in options for name in SHARD_OPTIONS) else {},
)

_RECIPE_BATCH, _RECIPE_DEVICES = "recipe.global_batch_size", "recipe.num_gpus"


def _read_bridge_batch(options: _Options) -> dict[str, float]:
    """Return path → sequences of a step; those of a recipe in proportion to its devices, as launchers scale them."""
    values = read_by_names("megatron-bridge", "workload.global_batch")(options)
    if option_number(MegatronOptions("megatron-bridge", options), "--global-batch-size") is not None:
        return dict(values)
    batch, recipe_devices = option_number(options, _RECIPE_BATCH), option_number(options, _RECIPE_DEVICES)
    if batch is None or recipe_devices is None:
        return dict(values)
    devices = option_number(options, WORLD_SIZE) or recipe_devices
    return {"workload.global_batch": float(int(batch / recipe_devices * devices))}


#: Checks of a step that no graph of it can hold.
_NO_CHECKS = (("rerun_state_machine.check_for_nan_in_loss", "false"), ("ddp.check_for_nan_in_grad", "false"))


def _bridge_graphs(leaf: Lookup) -> Pairs | None:
    """Return CUDA graphs as options, also those that are off, which recipes turn on."""
    pairs = graph_pairs(leaf)
    if pairs is None:
        return None
    fields = [("model." + name[2:].replace("-", "_"), as_value(value)) for name, value in pairs if value]
    checks = _NO_CHECKS if leaf(GRAPH) == Graph.iteration else ()
    return [*(fields or [("model.cuda_graph_impl", "none")]), *checks]


MEGATRON_BRIDGE = recipe_tool(
    "megatron-bridge",
    {
        "graphs": CompositeOption((GRAPH,), _bridge_graphs, read_by_names("megatron-bridge", GRAPH)),
        "batch": CompositeOption(
            ("workload.global_batch",),
            renamed_rule("megatron-bridge", rule_of("workload.global_batch")).write,
            _read_bridge_batch,
        ),
        # empty where its file states nothing of it
        "shards": renamed_rule("megatron-bridge", _SHARD_RULE),
        "precision": CompositeOption(("mapping.precision",), _bridge_precision, _read_bridge_precision),
    },
)


# --- NeMo 1 -----------------------------------------------------------------------------------------------

_OPTIMISER, _SHARDED_OPTIMISERS = "model.optim.name", ("distributed_fused_adam", "mcore_distributed_optim")


def _nemo_shards(leaf: Lookup) -> Pairs | None:
    """Return ZeRO 0 or 1, by the optimiser, as options; None for what NeMo's GPT models do not have."""
    stage, overlapped = leaf("mapping.zero_stage") or 0.0, bool(leaf("mapping.overlap_dp"))
    if stage > 1.0 or (not stage and overlapped) or degrees(leaf, "dp_replicate") > [1.0]:
        return None
    if not stage:
        return [(_OPTIMISER, "fused_adam")]
    overlaps = ("model.optim.overlap_grad_sync", "model.optim.overlap_param_sync")
    return [(_OPTIMISER, _SHARDED_OPTIMISERS[0]), *((name, str(overlapped).lower()) for name in overlaps)]


def _read_nemo_shards(options: _Options) -> dict[str, float]:
    """Return path → ZeRO stage, copies and overlap that options state, empty without the optimiser."""
    if _OPTIMISER not in options:
        return {}
    stage = float(options[_OPTIMISER] in _SHARDED_OPTIMISERS)
    overlap_text = options.get("model.optim.overlap_grad_sync", None if stage else "false")
    overlap = {} if overlap_text is None else {"mapping.overlap_dp": float(overlap_text.lower() == "true")}
    return {"mapping.zero_stage": stage, "mapping.dp_replicate": 1.0} | overlap


def _nemo_recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for selective recompute of more than attention, and other kinds."""
    pairs = recompute_pairs(leaf)
    if pairs is None or dict(pairs).get("--recompute-modules", "core_attn") != "core_attn":
        return None
    sections = table("nemo")["sections"]
    return [(sections[name], value) for name, value in pairs if name in sections]


def _missing_parts_note(leaf: Lookup) -> str:
    """Return the note on parts of a model that the GPT configuration lacks, "" without any."""
    if leaf("workload.latent.kv_rank") is None and not leaf("workload.experts.shared_ffn"):
        return ""
    return "latent attention and shared experts have no option of this configuration: use a recipe of the model"


NEMO = recipe_tool(
    "nemo",
    {
        "shards": CompositeOption(SHARD_PATHS, _nemo_shards, _read_nemo_shards),
        "recompute": CompositeOption(
            rule_of("mapping.recompute").paths, _nemo_recompute, read_by_names("nemo", "mapping.recompute")
        ),
    },
    notes=(_missing_parts_note,),
)


# --- NeMo 2, NeMo-RL and Primus ---------------------------------------------------------------------------


def _read_format(name: str) -> Any:
    """Return the function (options → format of products) of an option of names such as ``bfloat16``."""
    return lambda options: _format(options.get(name, ""))


def _run_precision(leaf: Lookup) -> Pairs | None:
    """Return the format of products as fields of the precision plug-in of NeMo 2; None for one that it lacks."""
    pairs = rule_of("mapping.precision").write(leaf)
    fields = table("nemo-run")["sections"]
    return None if pairs is None else [(fields[name], as_value(value)) for name, value in pairs]


def _rl_precision(leaf: Lookup) -> Pairs | None:
    """Return the format of products as an option of a policy, None for those of 8 and 4 bits."""
    names = {Precision.bf16: "bfloat16", Precision.fp16: "float16", Precision.fp32: "float32"}
    code = int(leaf("mapping.precision") or 0.0)
    return [("policy.precision", names[Precision(code)])] if code in names else None


def _read_rl_precision(options: _Options) -> dict[str, float]:
    """Return path → format of products of a policy, 8 bits where its configuration of them is on."""
    prefix = "policy.megatron_cfg.fp8_cfg."
    recipe, name = options.get(f"{prefix}fp8_recipe", ""), options.get("policy.precision", "")
    return _format(f"fp8 {recipe}" if is_on(options, f"{prefix}enabled") else name)


def _run_graphs(leaf: Lookup) -> Pairs | None:
    """Return CUDA graphs as options of NeMo 2, of whose mixtures graphs hold the attention."""
    pairs = graph_pairs(leaf)
    if not pairs:
        return pairs
    is_mixture, scope = leaf("workload.experts.n_experts") is not None, []
    if leaf(GRAPH) == Graph.iteration or is_mixture:
        scope = [("model.config.cuda_graph_scope", "full_iteration" if leaf(GRAPH) == Graph.iteration else "attn")]
    switch = "external" if is_mixture and leaf(GRAPH) == Graph.layer else "enable"
    tracker = ("trainer.strategy.use_te_rng_tracker", "true")
    return [(f"model.config.{switch}_cuda_graph", "true"), *scope, tracker]


NEMO_RUN = recipe_tool(
    "nemo-run",
    {
        "graphs": CompositeOption((GRAPH,), _run_graphs, read_by_names("nemo-run", GRAPH)),
        "shards": renamed_rule("nemo-run", _SHARD_RULE),
        "precision": CompositeOption(
            ("mapping.precision",), _run_precision, read_by_names("nemo-run", "mapping.precision")
        ),
    },
)


def _read_backend(options: _Options) -> dict[str, float]:
    """Return nothing; ValueError for a policy that another backend trains, whose options are not read."""
    if "policy.megatron_cfg.enabled" in options and not is_on(options, "policy.megatron_cfg.enabled"):
        raise ValueError("policy.megatron_cfg is not enabled: DTensor trains the policy, whose options are not read")
    return {}


NEMO_RL = recipe_tool(
    "nemo-rl",
    {
        "backend": CompositeOption(("mapping.tp",), unwritten, _read_backend),
        "shards": renamed_rule("nemo-rl", _SHARD_RULE),
        "precision": CompositeOption(("mapping.precision",), _rl_precision, _read_rl_precision),
    },
)

PRIMUS = recipe_tool("primus", {"shards": renamed_rule("primus", _SHARD_RULE)})


# --- Megatron-DeepSpeed -----------------------------------------------------------------------------------

_ZERO, _SEQUENCE = "--zero-stage", "--ds-sequence-parallel-size"


def _deepspeed_stage(leaf: Lookup) -> Pairs:
    """Return the ZeRO stage as options."""
    return [("--deepspeed", ""), (_ZERO, number(leaf("mapping.zero_stage") or 0.0))]


def _read_deepspeed_stage(options: _Options) -> dict[str, float]:
    """Return path → ZeRO stage of the configuration beside, or of the option, or of Megatron-LM's own optimiser."""
    stage = option_number(options, "zero_optimization.stage")
    if stage is None and is_on(options, "--deepspeed"):
        stage = option_number(options, _ZERO)
    if stage is not None:
        return {"mapping.zero_stage": stage}
    return {"mapping.zero_stage": 1.0} if is_on(options, "--use-distributed-optimizer") else {}


def _deepspeed_overlap(leaf: Lookup) -> Pairs | None:
    """Return no options for the overlap that DeepSpeed has by default, None for the other."""
    return [] if bool(leaf("mapping.overlap_dp")) == ((leaf("mapping.zero_stage") or 0.0) >= 3.0) else None


def _read_deepspeed_overlap(options: _Options) -> dict[str, float]:
    """Return path → overlap of messages, which DeepSpeed has at stage 3 unless its configuration says otherwise."""
    stage = _read_deepspeed_stage(options).get("mapping.zero_stage")
    if "zero_optimization.overlap_comm" in options:
        return {"mapping.overlap_dp": float(is_on(options, "zero_optimization.overlap_comm"))}
    return {} if stage is None else {"mapping.overlap_dp": float(stage >= 3.0)}


def _deepspeed_recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for kinds of later versions."""
    pairs = recompute_pairs(leaf)
    if pairs is None or len(dict(pairs).get("--recompute-modules", "").split()) > 1:
        return None
    return [pair for pair in pairs if pair[0] != "--recompute-modules"]


def _deepspeed_context(leaf: Lookup) -> Pairs | None:
    """Return the ranks that a sequence is split over as an option, None for other messages than all-to-all."""
    (cp,) = degrees(leaf, "cp")
    is_a2a = leaf("mapping.context.cp_comm_type") == ContextExchange.a2a
    return ([(_SEQUENCE, number(cp))] if is_a2a else None) if cp > 1.0 else []


def _read_deepspeed_context(options: _Options) -> dict[str, float]:
    """Return path → ranks that a sequence is split over, by all-to-all (DeepSpeed-Ulysses)."""
    ranks = float(options.get(_SEQUENCE) or options.get("--context-parallel-size") or 1.0)
    if _SEQUENCE not in options and "--context-parallel-size" not in options:
        return {}
    return {"mapping.cp": ranks} | ({"mapping.context.cp_comm_type": float(ContextExchange.a2a)} if ranks > 1.0 else {})


MEGATRON_DEEPSPEED = recipe_tool(
    "megatron-deepspeed",
    {
        "stage": CompositeOption(("mapping.zero_stage",), _deepspeed_stage, _read_deepspeed_stage),
        "overlap": CompositeOption(
            ("mapping.overlap_dp",), _deepspeed_overlap, _read_deepspeed_overlap, writes_default=True
        ),
        "recompute": CompositeOption(
            rule_of("mapping.recompute").paths, _deepspeed_recompute, rule_of("mapping.recompute").read
        ),
        "context": CompositeOption(
            ("mapping.cp", "mapping.context.cp_comm_type"), _deepspeed_context, _read_deepspeed_context
        ),
    },
)
