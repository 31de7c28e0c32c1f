"""Logs of Megatron-LM, and of NeMo and Megatron-Bridge, whose configurations have the same names.

Arguments are printed as ``name ....... value`` (Megatron-LM) or ``name: value`` (the others); a line of an interval
has its mean time and number (``megatron/training/training.py``, ``training_log``; NeMo's progress printer).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dse.measured.profiles.run import Figure, MeasuredRun, design_cells, matched_numbers, number_text, slower_rank
from dse.tools import values_of

SIGNATURE = re.compile(r"elapsed time per iteration \(m?s\):|train_step_timing in s:|^.{0,40}-{8,} arguments -{8,}")

_ARGUMENT = re.compile(r"(?:^|[\s:\]])([a-z][a-z0-9_]{2,}) (?:\.+ ?| )\s*(\S.*)$")
_SETTING = re.compile(r"(?:^|[\s\]])([a-z][a-z0-9_]{2,}):\s+(\S.*)$")
_STEP = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+")
_FIGURES = {
    "ms": re.compile(r"elapsed time per iteration \(ms\):\s*([\d.eE+]+)"),
    "s": re.compile(r"train_step_timing in s:\s*([\d.eE+]+)"),
    "step": re.compile(r"\bglobal_step:\s*(\d+)"),  # NeMo counts iterations anew in each epoch
    "TFLOP/s": re.compile(r"throughput per GPU \(TFLOP/s/GPU\):\s*([\d.eE+]+)"),
    "batch": re.compile(r"global[ _]batch[ _]size:\s*(\d+)"),
    "MiB": re.compile(r"\| max allocated:\s*([\d.eE+]+)"),  # report_memory divides by 1024 twice
    "B": re.compile(r"peak_memory_usage:\s*([\d.eE+]+)"),
    "vocab": re.compile(r"padded vocab \(size: \d+\).*new size: (\d+)"),
    "world": re.compile(r"using world size: (\d+)"),
}

#: Argument → option, where they differ by more than dashes.
_OPTIONS = {
    "fp8": "--fp8-format",
    "fp4": "--fp4-format",
    "virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
}

#: Argument → cells that it states where it is off.
_OFF_CELLS = {
    "sequence_parallel": {"seq_parallel": "0"}, "recompute_granularity": {"recompute": "none"},
    "tp_comm_overlap": {"overlap_tp": "0"}, "overlap_moe_expert_parallel_comm": {"overlap_ep": "0"},
    "virtual_pipeline_model_parallel_size": {"vp": "1"}, "optimizer_cpu_offload": {"offload_optimizer": "0"},
}  # fmt: skip

#: Columns that a rule always fills → arguments, without all of which they say nothing.
_REQUIRED_ARGUMENTS = {
    "zero_stage": ("use_distributed_optimizer",), "overlap_dp": ("overlap_grad_reduce",),
    "kv_heads": ("num_attention_heads", "group_query_attention"), "head_dim": ("num_attention_heads",),
}  # fmt: skip

_NO = ("False", "None", "false", "null", "none", "~")


def read(lines: Iterable[str]) -> MeasuredRun:
    """Read the run of a log: time and FLOP rate of each step at the last batch size, peak memory and arguments."""
    run, arguments, last_figures = MeasuredRun("megatron-lm", "steps", {}), dict[str, str](), dict[str, float]()
    batches: dict[int, float] = {}
    for line in lines:
        line_figures = matched_numbers(line, _FIGURES)
        last_figures |= line_figures
        step = _STEP.search(line)
        if step and ("ms" in line_figures or "s" in line_figures):
            number = int(line_figures.get("step", 0.0)) or int(step[1])
            batches[number] = line_figures.get("batch", last_figures.get("batch", 0.0))
            _add_step(run, number, line_figures)
            continue
        for unit in ("MiB", "B"):
            if unit in line_figures:
                run.peak(Figure("peak_memory", line_figures[unit], unit))
        if not line_figures and (argument_match := _ARGUMENT.search(line) or _SETTING.search(line)):
            arguments.setdefault(argument_match[1], argument_match[2].strip())
    if "batch" in last_figures:  # of a batch that grows, the steps with the last one
        run.steps = {step: figures for step, figures in run.steps.items() if batches[step] == last_figures["batch"]}
    run.cells = _cells(arguments, last_figures)
    return run


def _add_step(run: MeasuredRun, step: int, line_figures: dict[str, float]) -> None:
    """Add the figures of a line of an interval to a step, that of the slower rank where it has some."""
    if "s" in line_figures:
        run.tool = "nemo"
    figures = [Figure("iteration_time", line_figures[unit], unit) for unit in ("ms", "s") if unit in line_figures][:1]
    if "TFLOP/s" in line_figures:
        figures.append(Figure("model_tflops_per_gpu", line_figures["TFLOP/s"], "TFLOP/s"))
    run.steps[step] = slower_rank(run.steps.get(step, figures), figures)
    if "B" in line_figures:
        run.peak(Figure("peak_memory", line_figures["B"], "B"))


def _cells(arguments: dict[str, str], last_figures: dict[str, float]) -> dict[str, str]:
    """Return column → text of the arguments (name → text) and of the last figures, off where printed as off."""
    options = {
        _OPTIONS.get(name, "--" + name.replace("_", "-")): _option_text(value)
        for name, value in arguments.items()
        if value not in _NO and value != "0"
    }
    cells = design_cells(values_of("megatron-lm", options))
    for column, required in _REQUIRED_ARGUMENTS.items():
        if not set(required) <= arguments.keys():
            cells.pop(column, None)
    for name, off_cells in _OFF_CELLS.items():
        if arguments.get(name) in _NO:
            cells |= {column: value for column, value in off_cells.items() if column not in cells}
    if {arguments.get(name) for name in ("bf16", "fp16")} == {"False"}:
        cells.setdefault("precision", "fp32")
    for column, name in {"global_batch": "batch", "vocab": "vocab", "n_gpus": "world"}.items():
        if name in last_figures:
            cells[column] = number_text(last_figures[name])
    if arguments.get("world_size", "").isdigit():
        cells.setdefault("n_gpus", arguments["world_size"])
    if cells.get("n_experts") in ("0", "1"):
        cells.pop("n_experts")
    gated, widths = arguments.get("swiglu", arguments.get("gated_linear_unit")), (cells.get("ffn"), cells.get("hidden"))
    if gated is not None and all(widths) and (gated == "True") == (float(widths[0]) == 4.0 * float(widths[1])):  # type: ignore[arg-type]
        cells["shape"] = "unusual"  # the protocol takes a feed-forward of four hidden sizes for one without a gate
    return cells


def _option_text(value: str) -> str:
    """Return the text of an option: "" for a switch, words of a list, formats by their short names."""
    if value in ("True", "true"):
        return ""
    value = re.sub(
        r"torch\.(bfloat16|float32|float16|uint8)",
        lambda m: {"bfloat16": "bf16", "float32": "fp32", "float16": "fp16", "uint8": "fp8"}[m[1]],
        value,
    )
    return " ".join(re.findall(r"[^\s,'\"\[\]]+", value)) if value.startswith("[") else value.strip("'\"")
