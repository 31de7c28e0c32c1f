"""What a log says of a run's settings that rows of ``formats.toml`` cannot: one function a tool, done in place."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping

from dse.measured.profiles.engines import check_weights, engine_cells
from dse.measured.profiles.run import Figure, MeasuredRun, number_text

_TORCH_DTYPES = {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "uint8": "fp8"}


def option_text(value: str, on: str) -> str:
    """Return the text of an option: ``on`` for a switch, words of a list, formats by their short names."""
    if value in ("True", "true"):
        return on
    value = re.sub(r"torch\.(bfloat16|float32|float16|uint8)", lambda match: _TORCH_DTYPES[match[1]], value)
    return " ".join(re.findall(r"[^\s,'\"\[\]]+", value)) if value.startswith("[") else value


def complete_megatron(run: MeasuredRun, settings: Mapping[str, str]) -> None:
    """Add fp32 where other formats are off, devices, and whether the shape is unusual; drop a dense model's experts."""
    cells = run.cells
    if {settings.get(name) for name in ("bf16", "fp16")} == {"False"}:
        cells.setdefault("precision", "fp32")
    if settings.get("world_size", "").isdigit():
        cells.setdefault("n_gpus", settings["world_size"])
    if cells.get("n_experts") in ("0", "1"):
        cells.pop("n_experts")
    gated, ffn, hidden = (
        settings.get("swiglu", settings.get("gated_linear_unit")),
        cells.get("ffn"),
        cells.get("hidden"),
    )
    # The protocol takes a feed-forward of four hidden sizes for one without a gate.
    if gated is not None and ffn and hidden and (gated == "True") == (float(ffn) == 4.0 * float(hidden)):
        cells["shape"] = "unusual"


#: Size of a dimension of a mesh.
_SIZE = re.compile(r"\d{1,7}", re.ASCII)


def complete_torchtitan(run: MeasuredRun, settings: Mapping[str, str]) -> None:
    """Add the degrees of the device mesh, and the stack, compiled or eager."""
    cells = run.cells
    sizes = {name: text for name, text in settings.items() if _SIZE.fullmatch(text)}
    if not sizes and (names_and_sizes := settings.get("mesh", "").split("], [")) != [""]:
        names, numbers = (re.findall(r"\w+", text) for text in names_and_sizes)
        sizes = {name: text for name, text in zip(names, numbers, strict=False) if _SIZE.fullmatch(text)}
    if sizes:
        ranks = {name: int(sizes.get(name, 1)) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}
        cells |= {name: str(ranks[name]) for name in ("tp", "pp", "cp")} | {"n_gpus": str(math.prod(ranks.values()))}
        cells["zero_stage"] = "3" if ranks["dp_shard"] > 1 else "0"
        if ranks["tp"] > 1:
            cells["seq_parallel"] = "1"  # always part of its tensor parallelism
        cells |= {name: sizes[name] for name in ("ep", "etp") if int(sizes.get(name, 1)) > 1}
        if ranks["pp"] > 1:
            cells.pop("micro_batch", None)  # of a pipeline, all micro-batches of a rank
    if "started" in settings:
        cells.setdefault("recompute", "none")
    is_eager = "started" in settings and "compiled" not in settings
    run.cells = {"software": "torchtitan-eager" if is_eager else "torchtitan"} | cells


def complete_maxtext(run: MeasuredRun, settings: Mapping[str, str]) -> None:
    """Add model, ZeRO stage and micro-batch; drop slices that are nodes of GPUs, and values that are open."""
    cells = run.cells
    if settings.get("model_name", "default") != "default":
        cells["model"] = settings["model_name"]
    if "ici_fsdp_parallelism" in settings:
        is_unsharded = {settings["ici_fsdp_parallelism"], settings.get("dcn_fsdp_parallelism", "1")} == {"1"}
        cells["zero_stage"] = "0" if is_unsharded else "3"
    if settings.get("gradient_accumulation_steps", "1") == "1" and (batch := settings.get("per_device_batch_size")):
        # one pass a step: what a chip has of the batch
        cells["micro_batch"] = number_text(float(batch) if re.fullmatch(r"[\d.]*[1-9][\d.]*", batch) else 1.0)
    is_of_gpus = settings.get("hardware", "tpu") != "tpu"
    for column, text in [*cells.items()]:
        if text.startswith("-") or (column in ("n_experts", "slices") and text in ("0", "1")):
            cells.pop(column)
    if is_of_gpus:
        cells.pop("slices", None)


def complete_mlperf(run: MeasuredRun, settings: Mapping[str, str]) -> None:
    """Add the devices of all nodes, what the accumulation says of ranks where these are open, and rates of blocks."""
    times = sorted((int(time), text) for time, text in settings.items() if time.isdigit())
    for number, ((start, begin), (stop, end)) in enumerate(itertools.pairwise(times) if not run.steps else ()):
        samples = [int(text.rpartition(":")[2]) for text in (begin, end)]
        if (
            begin.startswith("block_start")
            and end.startswith("block_stop")
            and samples[1] > samples[0]
            and stop > start
        ):
            rate = 1e3 * (samples[1] - samples[0]) / (stop - start)
            run.steps[number] = [Figure("sequences_per_s", rate, "seq/s")]
    sizes = [int(settings.get(name, "0")) for name in ("number_of_nodes", "accelerators_per_node")]
    if math.prod(sizes):
        run.cells.setdefault("n_gpus", str(math.prod(sizes)))
    passes, batch = (
        int(settings.get("gradient_accumulation_steps", "0")),
        int(float(run.cells.get("global_batch", "0"))),
    )
    if passes and batch % passes == 0 and "n_gpus" not in run.cells:
        run.note = f"{passes} passes of {batch} sequences: data-parallel ranks times micro-batch are {batch // passes}"


#: vLLM's tokens of a block by default.
_USUAL_BLOCK = 16


def complete_engine(run: MeasuredRun, settings: Mapping[str, str]) -> None:
    """Add the cache by its halves and by its blocks, and the configuration of the engine."""
    peaks = run.peaks
    halves = [half.value for name in ("cache_keys", "cache_values") if (half := peaks.pop(name, None))]
    if halves:
        run.peak(Figure("cache_memory", sum(halves), "GiB"))
    if blocks := peaks.pop("cache_blocks", None):
        block_tokens = float(settings.get("block_size") or _USUAL_BLOCK) or _USUAL_BLOCK
        run.peak(Figure("cache_tokens", blocks.value * block_tokens, "token"), smallest=True)
    run.cells = {"framework": run.tool} | engine_cells(run.tool, settings)
    check_weights(run)
