"""NeMo: Megatron-LM's settings by the names of its configuration, nested under ``model`` and ``trainer``."""

from __future__ import annotations

from collections.abc import Mapping

from dse.tools.megatron import RULES, recipe_option
from dse.tools.options import (
    ChoiceOption,
    CompositeOption,
    Lookup,
    NumberOption,
    OptionRule,
    Pairs,
    Tool,
    assignments,
    hosts,
)
from dse.types import Precision

#: Option of Megatron-LM → its path in NeMo's configuration, where it is not ``model.`` with underscores.
_SECTIONS = {
    "--seq-length": "model.encoder_seq_length",
    "--num-experts": "model.num_moe_experts",
    "--num-virtual-stages-per-pipeline-rank": "model.virtual_pipeline_model_parallel_size",
    "--recompute-granularity": "model.activations_checkpoint_granularity",
    "--recompute-method": "model.activations_checkpoint_method",
    "--recompute-num-layers": "model.activations_checkpoint_num_layers",
    "--tp-comm-overlap": "model.ub_tp_comm_overlap",
    "--overlap-grad-reduce": "model.optim.overlap_grad_sync",
    "--overlap-param-gather": "model.optim.overlap_param_sync",
    "--moe-expert-capacity-factor": "model.moe_expert_capacity_factor",
}

#: Leaves whose options are Megatron-LM's.
_SHARED = (
    "workload.n_layers", "workload.hidden", "workload.ffn_hidden", "workload.n_heads", "workload.seq_len",
    "workload.experts.n_experts", "workload.experts.top_k", "mapping.micro_batch", "workload.global_batch",
    "mapping.tp", "mapping.pp", "mapping.cp", "mapping.experts.ep", "mapping.sequence_parallel", "mapping.overlap_tp",
)  # fmt: skip


def _kv_heads(leaf: Lookup) -> Pairs:
    """Return the groups of heads as options, empty where each head has its own key."""
    heads, groups = leaf("workload.n_heads"), leaf("workload.n_kv_heads")
    return [] if groups is None or groups == heads else [("model.num_query_groups", f"{groups:.0f}")]


def _read_kv_heads(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → key/value heads that options state, empty for none."""
    n_kv_heads = options.get("model.num_query_groups", options.get("model.num_attention_heads"))
    return {} if n_kv_heads is None else {"workload.n_kv_heads": float(n_kv_heads)}


_OPTIMISER, _INTERLEAVED = "model.optim.name", "model.virtual_pipeline_model_parallel_size"
_SHARDED = ("distributed_fused_adam", "mcore_distributed_optim")


def _shards(leaf: Lookup) -> Pairs | None:
    """Return ZeRO 0 or 1, by the optimiser, as options; None for what NeMo's GPT models do not have."""
    stage, overlapped = leaf("mapping.zero_stage") or 0.0, bool(leaf("mapping.overlap_dp"))
    if stage > 1.0 or (not stage and overlapped) or (leaf("mapping.dp_replicate") or 1.0) > 1.0:
        return None
    if not stage:
        return [(_OPTIMISER, "fused_adam")]
    overlap_text = "true" if overlapped else "false"
    return [
        (_OPTIMISER, _SHARDED[0]),
        ("model.optim.overlap_grad_sync", overlap_text),
        ("model.optim.overlap_param_sync", overlap_text),
    ]


def _read_shards(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → ZeRO stage, copies and overlap that options state, empty without the optimiser."""
    if _OPTIMISER not in options:
        return {}
    stage = float(options[_OPTIMISER] in _SHARDED)
    overlap_text = options.get("model.optim.overlap_grad_sync")
    overlap = (
        {} if overlap_text is None and stage else {"mapping.overlap_dp": float((overlap_text or "").lower() == "true")}
    )
    return {"mapping.zero_stage": stage, "mapping.dp_replicate": 1.0} | overlap


def _chunks(leaf: Lookup) -> Pairs:
    """Return chunks per stage as an option, empty for one."""
    chunks = leaf("mapping.virtual_stages") or 1.0
    return [(_INTERLEAVED, f"{chunks:.0f}")] if chunks > 1.0 else []


def _read_chunks(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → chunks per stage that options state, empty for none."""
    return {"mapping.virtual_stages": float(options[_INTERLEAVED])} if _INTERLEAVED in options else {}


def _recompute(leaf: Lookup) -> Pairs | None:
    """Return recompute as options, None for selective recompute of more than attention, and other kinds."""
    rule = next(rule for rule in RULES if "mapping.recompute" in rule.paths)
    pairs = rule.write(leaf)
    if pairs is None or any(name == "--recompute-modules" and value != "core_attn" for name, value in pairs):
        return None
    return [(_SECTIONS[name], value) for name, value in pairs if name in _SECTIONS]


def _read_recompute(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → code of recompute that options state, empty for none."""
    code = {"selective": 1.0, "full": 2.0}.get(options.get("model.activations_checkpoint_granularity", ""))
    return {} if code is None else {"mapping.recompute": code}


def _shape(leaf: Lookup) -> Pairs:
    """Return gate, positions and tied embeddings as options, with norms and biases of models like Llama."""
    gated, rotary = leaf("workload.gated"), leaf("workload.rotary")
    shared = "true" if leaf("workload.tied_embeddings") else "false"
    pairs = [("model.share_embeddings_and_output_weights", shared)]
    pairs += [("model.activation", "fast-swiglu")] if gated else []
    pairs += [("model.position_embedding_type", "rope")] if rotary else []
    is_plain = gated and rotary and leaf("workload.norm_vectors") == 1.0
    return [*pairs, ("model.normalization", "rmsnorm"), ("model.bias", "false")] if is_plain else pairs


def _read_shape(options: Mapping[str, str]) -> dict[str, float]:
    """Return path → truth of tied embeddings, gate and rotary positions that options state."""
    values = {}
    if "model.share_embeddings_and_output_weights" in options:
        values["workload.tied_embeddings"] = float(
            options["model.share_embeddings_and_output_weights"].lower() == "true"
        )
    if "model.activation" in options:
        values["workload.gated"] = float(options["model.activation"].endswith(("swiglu", "geglu", "reglu")))
    if "model.position_embedding_type" in options:
        values["workload.rotary"] = float(options["model.position_embedding_type"] == "rope")
    return values


def _missing_parts_note(leaf: Lookup) -> str:
    """Return the note on parts of a model that the GPT configuration lacks, "" without any."""
    if leaf("workload.latent.kv_rank") is None and not leaf("workload.experts.shared_ffn"):
        return ""
    return "latent attention and shared experts have no option of this configuration: use a recipe of the model"


def _trainer(leaf: Lookup) -> Pairs:
    """Return the number of nodes, and of devices of each, as options."""
    nodes, devices_per_host = hosts(leaf)
    return [("trainer.num_nodes", str(nodes)), ("trainer.devices", str(devices_per_host))]


_RULES: tuple[OptionRule, ...] = (
    CompositeOption(("system.n_devices",), _trainer),
    *(recipe_option(rule, _SECTIONS) for rule in RULES if len(rule.paths) == 1 and rule.paths[0] in _SHARED),
    CompositeOption(("workload.n_kv_heads",), _kv_heads, _read_kv_heads),
    NumberOption("model.kv_channels", "workload.head_dim"),
    CompositeOption(("workload.tied_embeddings", "workload.gated", "workload.rotary"), _shape, _read_shape),
    CompositeOption(("mapping.virtual_stages",), _chunks, _read_chunks),
    ChoiceOption("mapping.schedule", {0.0: []}),
    CompositeOption(("mapping.zero_stage", "mapping.overlap_dp", "mapping.dp_replicate"), _shards, _read_shards),
    CompositeOption(("mapping.recompute", "mapping.recompute_share"), _recompute, _read_recompute),
    ChoiceOption(
        "mapping.precision",
        {
            float(Precision.bf16): [("trainer.precision", "bf16")],
            float(Precision.fp16): [("trainer.precision", "16")],
            float(Precision.fp32): [("trainer.precision", "32")],
            float(Precision.fp8): [("trainer.precision", "bf16"), ("model.fp8", "true"), ("model.fp8_hybrid", "true")],
        },
    ),
    ChoiceOption("software.moment_bytes", {4.0: []}),
)

#: Paths of NeMo 2's recipes → those of NeMo 1's configuration.
_OF_RECIPES = {
    f"trainer.strategy.{name}": f"model.{name}"
    for name in (
        "tensor_model_parallel_size",
        "pipeline_model_parallel_size",
        "context_parallel_size",
        "expert_model_parallel_size",
        "virtual_pipeline_model_parallel_size",
        "sequence_parallel",
    )
} | {
    "data.micro_batch_size": "model.micro_batch_size",
    "data.global_batch_size": "model.global_batch_size",
    "data.seq_length": "model.encoder_seq_length",
    "model.config.seq_length": "model.encoder_seq_length",
    "model.seq_length": "model.encoder_seq_length",
}

NEMO = Tool(
    "nemo",
    "training",
    "2.0",
    "https://github.com/NVIDIA/NeMo examples/nlp/language_modeling/conf/megatron_gpt_config.yaml",
    _RULES,
    assignments(
        "torchrun --nnodes {nodes} --nproc-per-node {each} examples/nlp/language_modeling/megatron_gpt_pretraining.py"
    ),
    _OF_RECIPES,
    vendors=("NVIDIA",),
    notes=(_missing_parts_note,),
)
