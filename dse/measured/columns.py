"""Columns of tables of training steps and of serving, read and written by ``dse predict`` and ``dse validate``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from dse.errors import ELSEWHERE, nearest, plain
from dse.measured.table import DEVICE_COLUMNS, WIDE_COLUMNS


class Header(NamedTuple):
    """Names and meaning of a column, and the value of a row where it is empty."""

    names: tuple[str, ...]  # the first one that is not empty counts
    meaning: str
    default_text: str


#: Similarity of names that differ by a misspelling.
_SIMILARITY = 0.85

#: A row that leaves one of these open is skipped.
REQUIRED = "needed"

_FROM_CATALOG, _SEARCHED = "from the model in the catalogue", "chosen: the fastest that fits in memory"
_STACK = "the default of the stack"

STEP_COLUMNS = (
    Header(("model", "workload"), "model, a name or alias of the catalogue; any name with a shape", "needs a shape"),
    Header(
        DEVICE_COLUMNS,
        "device, a name or alias of the catalogue, or a slice of TPUs (v5p-128)",
        f"{REQUIRED}, unless system is given",
    ),
    Header(("system",), "system of the catalogue", "that of the source, else the device with its own node and network"),
    Header(("software",), "stack of the catalogue", "that of the source, else of the system"),
    Header(("source",), "who measured it", "the name of the file"),
    Header(("n_gpus", "n_devices"), "number of devices", REQUIRED),
    Header(("global_batch",), "sequences of a step, over all devices", REQUIRED),
    Header(("seq_len",), "tokens of a sequence", REQUIRED),
    Header(("tp",), "tensor-parallel size", _SEARCHED),
    Header(("pp",), "pipeline stages", _SEARCHED),
    Header(("cp",), "context-parallel size", "1"),
    Header(("ep",), "expert-parallel size of a mixture of experts, which needs one", "skipped, or dense"),
    Header(("etp",), "tensor-parallel size of one expert", "1"),
    Header(("dispatcher",), "exchange of a mixture's tokens: pairwise, by-rank or by-node", _STACK),
    Header(("overlap_ep",), "whether the schedule hides the exchange of tokens: yes or no", _STACK),
    Header(("imbalance",), "load of the busiest rank of experts over the mean", "1"),
    Header(
        ("slices",),
        "slices of a pod of TPUs, each with a copy of the state",
        "as remarks say (4 slices), else as few as hold the chips",
    ),
    Header(
        ("micro_batch",),
        "sequences of a micro-batch; of MaxText sequences a chip, where these fill the batch",
        f"{_SEARCHED}; on TPUs one a step",
    ),
    Header(("vp", "virtual_stages"), "interleaved chunks of a pipeline stage", _SEARCHED),
    Header(
        ("recompute",),
        "none, selective, selective_op or full; minimal of MaxText is empty, on TPUs selective_op",
        "chosen: the lightest that fits in memory; on TPUs full",
    ),
    Header(("recompute_share",), "share of the layers that recompute", "all; on some stacks as memory needs"),
    Header(("zero_stage",), "0, 1, 2 or 3, or fsdp", _STACK),
    Header(("seq_parallel", "sequence_parallel"), "yes or no, or the number of a variant", _STACK),
    Header(("overlap_dp",), "data-parallel messages overlapped: yes or no", _STACK),
    Header(("overlap_tp",), "tensor-parallel messages overlapped: yes or no", _STACK),
    Header(("offload_weights",), "weights kept on the host: yes or no", "no"),
    Header(
        ("offload_activations",),
        "activations kept on the host: yes or no",
        "no, or chosen with an open recompute: as few as fit, on stacks that spill",
    ),
    Header(("offload_optimizer",), "optimizer state kept on the host: yes or no", "no"),
    Header(("host_update",), "offloaded optimizer state updated by the host, as by DeepSpeed: yes or no", "no"),
    Header(("precision",), "recipe of the matrix products: bf16, fp16, fp8, mxfp8, nvfp4, …", "bf16"),
    Header(("layers_used", "layers", "n_layers"), "layers", _FROM_CATALOG),
    Header(("hidden",), "hidden size", _FROM_CATALOG),
    Header(("heads", "n_heads"), "attention heads", _FROM_CATALOG),
    Header(("kv_heads", "n_kv_heads"), "key and value heads", f"{_FROM_CATALOG}, else as many as attention heads"),
    Header(("head_dim",), "size of a head", f"{_FROM_CATALOG}, else hidden / heads"),
    Header(("ffn", "ffn_hidden"), "hidden size of the feed-forward block", f"{_FROM_CATALOG}, else 4 × hidden"),
    Header(("vocab",), "vocabulary", f"{_FROM_CATALOG}, else 51200"),
    Header(("first_dense",), "layers in front without experts, of a mixture", _FROM_CATALOG),
    Header(
        ("n_predict", "mtp_num_layers"),
        "tokens predicted beyond the next (multi-token prediction), of a mixture",
        f"as remarks say (w/ MTP, w/o MTP), else {_FROM_CATALOG}; 0 with fewer layers than it has",
    ),
    Header(("params_B",), "parameters in billions, to identify mixtures of experts outside the catalogue", "dense"),
    Header(("active_params_B",), "parameters per token in billions, for the same", "dense"),
    Header(("n_experts",), "experts; rows above 1 are skipped where the catalogue lacks the model", "dense"),
    Header(
        ("schedule",),
        "pipeline schedule: 1f1b, gpipe, zb-h1, zb-v, dualpipe, dualpipev",
        "1f1b, interleaved with virtual stages",
    ),
    Header(
        ("lora_rank",),
        "rank of adapters of queries, keys and values, the only weights that are trained",
        "none, or as remarks say (LoRA)",
    ),
    Header(
        ("frozen_bytes",), "bytes per frozen weight under adapters (QLoRA: 0.5)", "2; 1 in fp8 submissions to MLPerf"
    ),
    Header(
        ("document_tokens",),
        "tokens of the documents packed into a sequence, mean square over mean",
        "a sequence is one; short ones in fine-tuning recipes of NeMo and Megatron-Bridge",
    ),
    Header(("note",), "remarks; fine-tuning and asynchronous tensor parallelism are read from it", ""),
    Header(("config_id",), "rows with the same id are measurements of one configuration", "each row stands alone"),
    Header(("attention_flops",), "attention in FLOP rates of the row: full, or causal (half)", "full"),
    Header(("metric",), "what was measured, with its value and unit", "dse predict needs none"),
    Header(("value",), "the measured value", ""),
    Header(("unit",), "its unit", "the usual one of the metric"),
    *(
        Header((name,), f"measured {metric.replace('_', ' ')} in {unit}", "dse predict needs none")
        for name, (metric, unit) in WIDE_COLUMNS.items()
        if name.endswith("_measured")
    ),
)

#: Columns of tables of serving, identified by a column ``isl``; device and model are named as above.
SERVING_COLUMNS = (
    Header(("isl",), "tokens of a prompt", f"{REQUIRED}; the column identifies tables of serving"),
    Header(("osl",), "tokens of an answer", REQUIRED),
    Header(("batch", "concurrency"), "sequences of a static batch, or requests in flight over all devices",
           f"{REQUIRED}, unless offline"),
    Header(("batch_kind",), "concurrency, static batch, waves, or max in-flight (offline)", "concurrency"),
    Header(("framework",), "engine that served, with its release: a stack of the catalogue", "that of the source"),
    Header(("software",), "stack of the catalogue that has an [engine]", "that of the framework, else vllm"),
    Header(("n_gpus",), "number of devices", "tp pp dp"),
    Header(("tp", "pp", "dp"), "tensor-parallel size, pipeline stages, ranks that decode apart", "the rest of n_gpus"),
    Header(("ep", "etp"), "ranks that experts lie over, tensor-parallel size of one", "1; what is left of tp dp"),
    Header(("precision",), "bf16, fp8, fp4, mxfp4, w4a16, …; of mixtures 4 bits are those of the experts", "bf16"),
    Header(("memory_share", "static_share"), "share of memory that the engine takes (gpu_memory_utilization), or of "
           "weights and cache without its runtime (mem_fraction_static)", "that of the stack"),
    Header(("cache_bytes",), "bytes of a cached value", "2; 1 of formats whose engines have it"),
    Header(("sampled",), "whether tokens are drawn from the likeliest ones (top-p), 1 or 0", "0"),
    Header(("longest",), "tokens of the longest sequence, in which engines count the room of a cache", "isl + osl"),
    Header(("metric",), "tpot, ttft, itl_median, output_throughput_total, latency_total, weight_memory, cache_memory, "
           "cache_tokens, …, with value and unit",
           "dse predict needs none"),
)  # fmt: skip

#: Written column → meaning.
OUTPUT_COLUMNS = {
    "pred_<metric>": "prediction in SI units: step_time (s), tokens_per_second, tokens_per_second_per_device, "
    "peak_memory (B) and two parts of it, mfu, mfu_causal, hfu",
    "pred_<metric>_low, pred_<metric>_high": "ends of the 80 % interval (--uncertainty)",
    "completed": "what the row left open, with the value taken",
    "pred_note": "what to know of the prediction: over capacity, uneven stages, …",
    "outside": "in what the design lies outside of the rows that its stack was fitted to",
    "skipped": "why there is no prediction, or why it is not counted; empty where there is one that is",
}


def misspelt(columns: Iterable[str]) -> dict[str, str]:
    """Return column of a table of steps that is not read → the missing column probably meant; others are left out.

    That is its name in another tool (``mbs``) or a similar name.

    Args:
        columns: of the table's header.

    Returns:
        Written name → name of a column.
    """
    column_set = set(columns)
    open_names = {name for column in STEP_COLUMNS if not column_set & set(column.names) for name in column.names}
    read_names = {name for column in STEP_COLUMNS for name in column.names}
    suggestions = {name: _suggested_column(name, open_names) for name in sorted(column_set - read_names)}
    return {name: suggestion for name, suggestion in suggestions.items() if suggestion}


def _suggested_column(name: str, open_names: set[str]) -> str:
    """Return which of ``open_names`` a name probably means, "" for none."""
    names_elsewhere = [candidate for candidate in ELSEWHERE.get(plain(name), ()) if candidate in open_names]
    similar_names = (
        nearest(name, [candidate for candidate in open_names if len(candidate) > 3], 1, _SIMILARITY)
        if len(name) > 3
        else []
    )
    return next(iter([*names_elsewhere, *similar_names]), "")


#: Part of a step as traces have it, in columns of ms → parts of the predicted step time.
#: Offloaded tensors are copied by kernels of copies; a device that waits for another stage waits in a kernel of NCCL.
TRACE_PARTS = {
    "compute": ("compute", ("forward", "backward", "recompute", "embedding_and_head", "optimizer", "offload")),
    "exposed communication": (
        "exposed_nccl",
        ("tensor_parallel", "expert_parallel", "context_parallel", "data_parallel", "pipeline_parallel", "bubble"),
    ),
    "gaps": ("gap", ("host",)),
}  # fmt: skip
