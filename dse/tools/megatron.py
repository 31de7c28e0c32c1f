"""Megatron-LM (``pretrain_gpt.py``) and, by the same names in its configuration, NeMo's Megatron-Bridge."""

from __future__ import annotations

import types
from collections.abc import Mapping

from dse.tools.layers import chunk_count, layout
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
    flags,
    number,
)
from dse.types import ContextExchange, Precision, Recompute, SequenceParallel

_BF16 = ("--bf16", "")
_LATENT, _EXPERTS = "workload.latent.", "workload.experts."
_STAGES, _LAYOUT = "--pipeline-model-parallel-size", "--pipeline-model-parallel-layout"
_LAYER_COUNT_SWITCHES = ("--account-for-loss-in-pipeline-split", "--account-for-embedding-in-pipeline-split")


def _key_value_heads(leaf: Lookup) -> Pairs:
    """Return the groups of heads as options, empty where each head has its own key, and for latent attention."""
    heads, groups = leaf("workload.n_heads"), leaf("workload.n_kv_heads")
    if leaf("workload.latent.kv_rank") is not None or heads == groups or groups is None:
        return []
    return [("--group-query-attention", ""), ("--num-query-groups", number(groups))]


def _read_key_value_heads(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → key/value heads that options state, empty for none."""
    heads = options.get("--num-query-groups" if "--group-query-attention" in options else "--num-attention-heads")
    return {} if heads is None else {"workload.n_kv_heads": float(heads)}


def _head_size(leaf: Lookup) -> Pairs:
    """Return the columns of a head as options, with latent attention its rotary and its other columns."""
    size, rotated = leaf("workload.head_dim") or 0.0, leaf("workload.latent.rope_dim")
    if rotated is None:
        return [("--kv-channels", number(size))]
    return [
        ("--multi-latent-attention", ""),
        ("--qk-head-dim", number(size - rotated)),
        ("--qk-pos-emb-head-dim", number(rotated)),
    ]


def _read_head_size(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → columns of a head, with latent attention its rotary ones too, that options state."""
    if "--multi-latent-attention" in options and "--qk-head-dim" in options:
        rotated = float(options.get("--qk-pos-emb-head-dim", 64.0))
        return {"workload.head_dim": float(options["--qk-head-dim"]) + rotated, "workload.latent.rope_dim": rotated}
    if "--kv-channels" in options:
        return {"workload.head_dim": float(options["--kv-channels"])}
    if {"--hidden-size", "--num-attention-heads"} <= options.keys():
        return {"workload.head_dim": float(options["--hidden-size"]) / float(options["--num-attention-heads"])}
    return {}


def _positions(leaf: Lookup) -> Pairs:
    """Return trained length, which Megatron-LM always requires, and kind of positions as options."""
    pairs = [("--max-position-embeddings", number(leaf("workload.seq_len") or 0.0))]
    if leaf("workload.rotary"):
        return [*pairs, ("--position-embedding-type", "rope")]
    return [*pairs, ("--position-embedding-type", "learned_absolute")] if leaf("workload.learned_positions") else pairs


def _read_positions(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → truth of rotary and learned positions that options state, empty for another kind."""
    kind = options.get("--position-embedding-type")
    switches = {"rope": (1.0, 0.0), "learned_absolute": (0.0, 1.0)}.get(kind or "")
    return (
        {} if switches is None else dict(zip(("workload.rotary", "workload.learned_positions"), switches, strict=True))
    )


def _as_llama(leaf: Lookup) -> Pairs:
    """Return norms without a mean and products without biases as options, empty for models unlike Llama.

    They are of models with a gate and rotary positions, and no leaves.
    """
    is_plain = leaf("workload.gated") and leaf("workload.rotary") and leaf("workload.norm_vectors") == 1.0
    return [("--normalization", "RMSNorm"), ("--disable-bias-linear", "")] if is_plain else []


def _virtual_stages(leaf: Lookup) -> Pairs:
    """Return chunks per stage as options, or the layout of a pipeline of unequal ones.

    Where the layers alone are not divisible, loss and embedding count as layers, or a layout is written.
    """
    stages, chunks = leaf("mapping.pp") or 1.0, leaf("mapping.virtual_stages") or 1.0
    layers, predict_layers = int(leaf("workload.n_layers") or 0.0), int(leaf(f"{_EXPERTS}n_predict") or 0.0)
    missing_layers = -layers % int(stages * chunks)
    if stages > 1.0 and missing_layers and (predict_layers or missing_layers > len(_LAYER_COUNT_SWITCHES)):
        return [(_LAYOUT, layout(layers, predict_layers, int(stages * chunks)))]
    pairs = [("--num-virtual-stages-per-pipeline-rank", number(chunks))] if chunks > 1.0 else []
    return pairs + [(name, "") for name in _LAYER_COUNT_SWITCHES[:missing_layers]]


def _read_virtual_stages(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → chunks per stage that options state, empty for none."""
    if "--num-virtual-stages-per-pipeline-rank" in options:
        return {"mapping.virtual_stages": float(options["--num-virtual-stages-per-pipeline-rank"])}
    if {_LAYOUT, _STAGES} <= options.keys():
        return {"mapping.virtual_stages": chunk_count(options[_LAYOUT]) / float(options[_STAGES])}
    names = ("--num-layers-per-virtual-pipeline-stage", "--num-layers", _STAGES)
    if not set(names) <= options.keys():
        return {}
    chunk, layers, stages = (float(options[name]) for name in names)
    return {"mapping.virtual_stages": layers / stages / chunk}


def _split_sequence(leaf: Lookup) -> Pairs | None:
    """Return sequence parallelism as an option, None for a kind that Megatron-LM does not have."""
    split = leaf("mapping.sequence_parallel") or 0.0
    if split > SequenceParallel.keep_gathered:
        return None
    return [("--sequence-parallel", "")] if split and (leaf("mapping.tp") or 1.0) > 1.0 else []


def _read_split_sequence(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → 1 for sequence parallelism, empty without the option."""
    return {"mapping.sequence_parallel": 1.0} if "--sequence-parallel" in options else {}


def _recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for a kind that Megatron-LM does not have."""
    code = leaf("mapping.recompute") or 0.0
    if code == Recompute.full:
        recompute_share, layers = leaf("mapping.recompute_share") or 0.0, leaf("workload.n_layers") or 0.0
        chunks = (leaf("mapping.pp") or 1.0) * (leaf("mapping.virtual_stages") or 1.0)
        method, layers_per_chunk = (
            ("uniform", 1.0) if recompute_share >= 1.0 else ("block", round(recompute_share * layers / chunks))
        )
        return [
            ("--recompute-granularity", "full"),
            ("--recompute-method", method),
            ("--recompute-num-layers", number(layers_per_chunk)),
        ]
    modules = {
        Recompute.selective: "core_attn",
        Recompute.norms: "core_attn layernorm moe_act mla_up_proj",
        Recompute.expert_block: "core_attn layernorm mla_up_proj moe",
    }
    if code in modules:
        return [("--recompute-granularity", "selective"), ("--recompute-modules", modules[Recompute(int(code))])]
    return [] if code == Recompute.none else None


def _read_recompute(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → code of recompute that options state, empty for none."""
    if options.get("--recompute-granularity") == "full":
        return {"mapping.recompute": float(Recompute.full)}
    if options.get("--recompute-granularity") != "selective" and "--recompute-activations" not in options:
        return {}
    modules = options.get("--recompute-modules", "core_attn").split()
    level = (
        Recompute.expert_block if "moe" in modules else Recompute.norms if "moe_act" in modules else Recompute.selective
    )
    return {"mapping.recompute": float(level)}


def _shards(leaf: Lookup) -> Pairs:
    """Return ZeRO stage, its overlap with compute, and copies of the shards as options."""
    stage = leaf("mapping.zero_stage") or 0.0
    pairs = {
        0.0: [], 1.0: [("--use-distributed-optimizer", "")],
        2.0: [("--use-megatron-fsdp", ""), ("--data-parallel-sharding-strategy", "optim_grads")],
        3.0: [("--use-megatron-fsdp", ""), ("--data-parallel-sharding-strategy", "optim_grads_params")],
    }[stage]  # fmt: skip
    copies = leaf("mapping.dp_replicate") or 1.0
    if copies > 1.0:
        pairs = [*pairs, ("--num-distributed-optimizer-instances", number(copies))]
    if not leaf("mapping.overlap_dp"):
        return pairs
    return [*pairs, ("--overlap-grad-reduce", ""), *([("--overlap-param-gather", "")] if stage else [])]


#: Switches that recipes and presets turn on, so that they are written where they are off.
SHARD_SWITCHES = ("--use-distributed-optimizer", "--overlap-grad-reduce")

#: Options that say how the state is split.
SHARD_OPTIONS = frozenset((*SHARD_SWITCHES, "--overlap-param-gather", "--use-megatron-fsdp"))


def with_switches(pairs: Pairs) -> Pairs:
    """Return options with the sharding switches that are off added, but the first with Megatron's FSDP."""
    values_by_option = dict(pairs)
    off_switches = SHARD_SWITCHES if "--use-megatron-fsdp" not in values_by_option else SHARD_SWITCHES[1:]
    return [*pairs, *((name, "false") for name in off_switches if name not in values_by_option)]


def _read_shards(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage, overlap and copies that options state, those of the tool's defaults else."""
    active_switches = {name for name in SHARD_OPTIONS if options.get(name, "false").lower() != "false"}
    strategy = options.get("--data-parallel-sharding-strategy", "")
    split = float(bool(active_switches & {"--use-distributed-optimizer", "--overlap-param-gather"}))
    return {
        "mapping.zero_stage": {"optim_grads": 2.0, "optim_grads_params": 3.0}.get(strategy, split),
        "mapping.overlap_dp": float("--overlap-grad-reduce" in active_switches),
        "mapping.dp_replicate": float(options.get("--num-distributed-optimizer-instances", 1.0)),
    }


def _shards_of_recipe(leaf: Lookup) -> Pairs:
    """Return the options of :func:`_shards` with the switches that are off."""
    return with_switches(_shards(leaf))


def _read_shards_of_recipe(options: Mapping[str, str]) -> dict[str, float]:
    """Return :func:`_read_shards` of a recipe, empty where its file states nothing of it."""
    return _read_shards(options) if SHARD_OPTIONS & options.keys() else {}


def _expert_layers(leaf: Lookup) -> Pairs | None:
    """Return the layers with experts as options, empty for all, None for dense ones in front and in turns."""
    n_dense, interval = leaf("workload.experts.first_dense"), leaf("workload.experts.moe_every") or 1.0
    if n_dense is None or (n_dense == 0.0 and interval == 1.0):
        return []
    if n_dense == 0.0:
        return [("--moe-layer-freq", number(interval))]
    expert_layers = (leaf("workload.n_layers") or 0.0) - n_dense
    return [("--moe-layer-freq", f"([0]*{number(n_dense)}+[1]*{number(expert_layers)})")] if interval == 1.0 else None


def _limited_groups(leaf: Lookup) -> Pairs:
    """Return groups of experts and their limit as options, empty without a limit."""
    groups, limit = leaf("workload.experts.n_groups") or 1.0, leaf("workload.experts.group_limit") or 0.0
    pairs = ("--moe-router-num-groups", number(groups)), ("--moe-router-group-topk", number(limit))
    return list(pairs) if limit else []


#: Copies of tokens per dispatch: NCCL sends one per expert, DeepEP one per node.
_DISPATCH = {
    0.0: [("--moe-token-dispatcher-type", "alltoall")],
    2.0: [("--moe-token-dispatcher-type", "flex"), ("--moe-enable-deepep", "")],
}

_EXCHANGE = {
    float(ContextExchange.p2p): [("--cp-comm-type", "p2p")],
    float(ContextExchange.all_gather): [("--cp-comm-type", "all_gather")],
    float(ContextExchange.a2a): [("--cp-comm-type", "a2a")],
    float(ContextExchange.a2a_p2p): [("--cp-comm-type", "a2a+p2p")],
}

_FP8 = ("--fp8-format", "e4m3")
_FORMATS = {
    float(Precision.fp32): [],
    float(Precision.bf16): [_BF16],
    float(Precision.fp16): [("--fp16", "")],
    float(Precision.fp8): [_BF16, ("--fp8-format", "hybrid"), ("--fp8-recipe", "tensorwise")],
    float(Precision.fp8_block): [_BF16, _FP8, ("--fp8-recipe", "blockwise")],
    float(Precision.mxfp8): [_BF16, _FP8, ("--fp8-recipe", "mxfp8")],
    float(Precision.nvfp4): [_BF16, ("--fp4-format", "e2m1"), ("--fp4-recipe", "nvfp4")],
}

_GATHERED = SwitchOption("--fp8-param-gather", "software.weight_message_bytes", off=2.0)


def _gathered_weights(leaf: Lookup) -> Pairs | None:
    """Return weights gathered after their cast to 8 bits as options, None for 4 bits.

    Only 8-bit formats have them; in 16 and 32 bits the leaf changes nothing.
    """
    formats = _FORMATS.get(leaf("mapping.precision") or 0.0, [])
    names = {name for name, _ in formats}
    if "--fp4-format" in names and leaf(_GATHERED.path) == _GATHERED.on:
        return None
    return _GATHERED.write(leaf) if "--fp8-format" in names else []


_SPLIT = ("mapping.zero_stage", "mapping.overlap_dp", "mapping.dp_replicate")

RULES: tuple[OptionRule, ...] = (
    NumberOption("--num-layers", "workload.n_layers"),
    NumberOption("--hidden-size", "workload.hidden"),
    NumberOption("--ffn-hidden-size", "workload.ffn_hidden"),
    NumberOption("--num-attention-heads", "workload.n_heads"),
    CompositeOption(("workload.n_kv_heads",), _key_value_heads, _read_key_value_heads),
    CompositeOption(("workload.head_dim", f"{_LATENT}rope_dim"), _head_size, _read_head_size),
    NumberOption("--q-lora-rank", f"{_LATENT}q_rank", default=0.0),
    NumberOption("--kv-lora-rank", f"{_LATENT}kv_rank"),
    NumberOption("--v-head-dim", f"{_LATENT}v_dim"),
    SwitchOption("--swiglu", "workload.gated"),
    SwitchOption("--untie-embeddings-and-output-weights", "workload.tied_embeddings", on=0.0, off=1.0),
    NumberOption("--vocab-size", "workload.vocab"),
    NumberOption("--seq-length", "workload.seq_len"),
    CompositeOption(("workload.rotary", "workload.learned_positions"), _positions, _read_positions),
    CompositeOption(("workload.norm_vectors",), _as_llama),
    NumberOption("--num-experts", f"{_EXPERTS}n_experts"),
    NumberOption("--moe-router-topk", f"{_EXPERTS}top_k"),
    NumberOption("--moe-ffn-hidden-size", f"{_EXPERTS}expert_ffn"),
    NumberOption("--moe-shared-expert-intermediate-size", f"{_EXPERTS}shared_ffn", default=0.0),
    NumberOption("--moe-expert-capacity-factor", f"{_EXPERTS}capacity", default=0.0),
    CompositeOption((f"{_EXPERTS}first_dense", f"{_EXPERTS}moe_every"), _expert_layers),
    CompositeOption((f"{_EXPERTS}n_groups", f"{_EXPERTS}group_limit"), _limited_groups),
    NumberOption("--mtp-num-layers", f"{_EXPERTS}n_predict", default=0.0),
    NumberOption("--micro-batch-size", "mapping.micro_batch"),
    NumberOption("--global-batch-size", "workload.global_batch"),
    NumberOption("--tensor-model-parallel-size", "mapping.tp", default=1.0),
    NumberOption(_STAGES, "mapping.pp", default=1.0),
    NumberOption("--context-parallel-size", "mapping.cp", default=1.0),
    ChoiceOption("mapping.context.cp_comm_type", _EXCHANGE),
    NumberOption("--expert-model-parallel-size", "mapping.experts.ep", default=1.0),
    NumberOption("--expert-tensor-parallel-size", "mapping.experts.etp"),
    ChoiceOption("mapping.experts.all_to_all", _DISPATCH),
    ChoiceOption("mapping.experts.overlap_ep", {
        0.0: [], -1.0: [], 1.0: [("--overlap-moe-expert-parallel-comm", ""), ("--delay-wgrad-compute", "")],
    }),
    CompositeOption(("mapping.virtual_stages",), _virtual_stages, _read_virtual_stages),
    ChoiceOption("mapping.schedule", {0.0: []}),
    CompositeOption(("mapping.sequence_parallel",), _split_sequence, _read_split_sequence),
    SwitchOption("--tp-comm-overlap", "mapping.overlap_tp"),
    CompositeOption(_SPLIT, _shards, _read_shards),
    CompositeOption(("mapping.recompute", "mapping.recompute_share"), _recompute, _read_recompute),
    NumberOption("--optimizer-offload-fraction", "mapping.offload_optimizer", default=0.0),
    ChoiceOption("mapping.placement", {0.0: [], 1.0: [("--use-tp-pp-dp-mapping", "")]}),
    ChoiceOption("mapping.precision", _FORMATS),
    ChoiceOption("software.moment_bytes", {4.0: [], 2.0: [
        ("--use-precision-aware-optimizer", ""), ("--exp-avg-dtype", "bf16"), ("--exp-avg-sq-dtype", "bf16"),
    ]}),
    CompositeOption(("software.weight_message_bytes",), _gathered_weights, _GATHERED.read),
)  # fmt: skip

_MEGATRON_LM = "torchrun --nnodes {nodes} --nproc-per-node {each} pretrain_gpt.py"

MEGATRON_LM = Tool(
    "megatron-lm",
    "training",
    "core_v0.14",
    "https://github.com/NVIDIA/Megatron-LM megatron/training/arguments.py",
    RULES,
    flags(_MEGATRON_LM),
    vendors=("NVIDIA", "AMD"),
)

#: Option of Megatron-LM → its path in a recipe of Megatron-Bridge, where it is not ``model.`` with underscores.
_SECTIONS = {
    "--micro-batch-size": "train.micro_batch_size",
    "--global-batch-size": "train.global_batch_size",
    "--use-distributed-optimizer": "ddp.use_distributed_optimizer",
    "--overlap-grad-reduce": "ddp.overlap_grad_reduce",
    "--overlap-param-gather": "ddp.overlap_param_gather",
    "--use-megatron-fsdp": "ddp.use_megatron_fsdp",
    "--data-parallel-sharding-strategy": "ddp.data_parallel_sharding_strategy",
    "--num-distributed-optimizer-instances": "ddp.num_distributed_optimizer_instances",
    "--tp-comm-overlap": "comm_overlap.tp_comm_overlap",
    "--optimizer-offload-fraction": "optimizer.optimizer_offload_fraction",
    "--exp-avg-dtype": "optimizer.exp_avg_dtype",
    "--exp-avg-sq-dtype": "optimizer.exp_avg_sq_dtype",
    "--use-precision-aware-optimizer": "optimizer.use_precision_aware_optimizer",
    "--num-virtual-stages-per-pipeline-rank": "model.virtual_pipeline_model_parallel_size",
    "--seq-length": "model.seq_length",
    "--cp-comm-type": "model.cp_comm_type",
}

_MIXED = {
    float(Precision.bf16): "bf16_mixed",
    float(Precision.fp16): "fp16_mixed",
    float(Precision.fp8): "bf16_with_fp8_current_scaling_mixed",
    float(Precision.fp8_block): "bf16_with_fp8_subchannel_scaling_mixed",
    float(Precision.mxfp8): "bf16_with_mxfp8_mixed",
    float(Precision.nvfp4): "bf16_with_nvfp4_mixed",
}


def recipe_option(rule: OptionRule, sections: Mapping[str, str] = types.MappingProxyType(_SECTIONS)) -> OptionRule:
    """Return a rule of Megatron-LM with the names of a recipe's configuration.

    Args:
        rule: the rule with Megatron-LM's options.
        sections: option → its path in the recipe, where that is not ``model.`` with underscores.
    """
    option_by_section = {section: flag for flag, section in sections.items()}

    def write(leaf: Lookup) -> Pairs | None:
        pairs = rule.write(leaf)
        return None if pairs is None else [(name_of(name), _as_value(value)) for name, value in pairs]

    def read(options: Mapping[str, str]) -> dict[str, float]:
        megatron_options = {flag(name): _as_words(value) for name, value in options.items()}
        return rule.read(
            {
                name: value
                for name, value in megatron_options.items()
                if value.lower() != "false" or name in SHARD_SWITCHES
            }
        )

    def name_of(option: str) -> str:
        return sections.get(option, "model." + option.removeprefix("--").replace("-", "_"))

    def flag(name: str) -> str:
        return option_by_section.get(name, "--" + name.rpartition(".")[2].replace("_", "-"))

    return CompositeOption(rule.paths, write, read)


def _as_value(value: str) -> str:
    """Return the value of an option as a recipe writes it: "true" for a switch, a list in brackets."""
    if not value:
        return "true"
    return "[" + ",".join(value.split()) + "]" if " " in value else value


def _as_words(value: str) -> str:
    """Return a value of a recipe as Megatron-LM's option has it: "" for "true", a list as words."""
    return "" if value.lower() == "true" else value.strip("[]").replace(",", " ")


MEGATRON_BRIDGE = Tool(
    "megatron-bridge",
    "training",
    "0.2",
    "https://github.com/NVIDIA-NeMo/Megatron-Bridge",
    (
        *(
            recipe_option(rule)
            for rule in RULES
            if not all(path.startswith("workload.") for path in rule.paths)
            and rule.paths not in (("mapping.precision",), _SPLIT)
        ),
        recipe_option(CompositeOption(_SPLIT, _shards_of_recipe, _read_shards_of_recipe)),
        recipe_option(NumberOption("--seq-length", "workload.seq_len")),
        recipe_option(NumberOption("--global-batch-size", "workload.global_batch")),
        ChoiceOption("mapping.precision", {code: [("mixed_precision", name)] for code, name in _MIXED.items()}),
    ),
    assignments("torchrun --nnodes {nodes} --nproc-per-node {each} scripts/performance/run_script.py"),
    vendors=("NVIDIA",),
)
