"""Logs of MaxText: its configuration as ``Config param name: value``, and a line a step (``metric_logger.py``)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dse.measured.profiles.run import Figure, MeasuredRun, design_cells, matched_numbers, number_text, slower_rank
from dse.tools import values_of

SIGNATURE = re.compile(r"completed step: \d+, seconds: |Config param \w+: ")

_PARAMETER = re.compile(r"Config param (\w+):(.*)$")
_STEP = re.compile(r"completed step: (\d+)")
_FIGURES = {
    "seconds": re.compile(r"seconds: ([\d.]+)"), "TFLOP/s": re.compile(r"TFLOP/s/device: ([\d.]+)"),
    "GB": re.compile(r"Total memory size: ([\d.]+) GB"), "devices": re.compile(r"Num_devices: (\d+)"),
}  # fmt: skip

#: Parameters after the model's own file was read → column.
_DERIVED = {
    "num_decoder_layers": "layers_used",
    "emb_dim": "hidden",
    "mlp_dim": "ffn",
    "num_query_heads": "heads",
    "num_kv_heads": "kv_heads",
    "global_batch_size_to_train_on": "global_batch",
    "num_slices": "slices",
}


def read(lines: Iterable[str]) -> MeasuredRun:
    """Read the run of a log: time and FLOP rate of each step, peak memory and configuration."""
    run, parameters = MeasuredRun("maxtext", "steps", {}), dict[str, str]()
    for line in lines:
        line_figures = matched_numbers(line, _FIGURES)
        if parameter_match := _PARAMETER.search(line):
            parameters[parameter_match[1]] = parameter_match[2].strip()
        elif (step := _STEP.search(line)) and "seconds" in line_figures:
            figures = [Figure("iteration_time", line_figures["seconds"], "s")]
            if "TFLOP/s" in line_figures:
                figures.append(Figure("model_tflops_per_gpu", line_figures["TFLOP/s"], "TFLOP/s"))
            run.steps[int(step[1])] = slower_rank(run.steps.get(int(step[1]), figures), figures)
        elif "GB" in line_figures:
            run.peak(Figure("peak_memory", line_figures["GB"] * 2**30, "B"))  # max_utils divides by 1024 three times
        if "devices" in line_figures:
            run.cells["n_gpus"] = number_text(line_figures["devices"])
    run.cells |= _cells(parameters)
    return run


def _cells(parameters: dict[str, str]) -> dict[str, str]:
    """Return column → text of the configuration's parameters (name → text)."""
    options = {
        name: {"True": "true"}.get(value, value) for name, value in parameters.items() if value not in ("False", "")
    }
    cells = design_cells(values_of("maxtext", options))
    for name, column in _DERIVED.items():
        if parameters.get(name, "").isdigit() and parameters[name] != "0":
            cells[column] = parameters[name]
    if parameters.get("model_name", "default") != "default":
        cells["model"] = parameters["model_name"]
    if "ici_fsdp_parallelism" in parameters:
        is_unsharded = {parameters["ici_fsdp_parallelism"], parameters.get("dcn_fsdp_parallelism", "1")} == {"1"}
        cells["zero_stage"] = "0" if is_unsharded else "3"
    if parameters.get("hardware", "tpu") != "tpu":
        cells.pop("slices", None)  # of GPUs, nodes
    if parameters.get("gradient_accumulation_steps", "1") == "1" and parameters.get("per_device_batch_size"):
        # one pass a step: what a chip has of the batch
        cells["micro_batch"] = number_text(_number(parameters["per_device_batch_size"]) or 1.0)
    for column in ("n_experts", "slices"):
        if cells.get(column) in ("0", "1"):
            cells.pop(column)
    return {column: value for column, value in cells.items() if not value.startswith("-")}


def _number(value: str) -> float:
    """Return a text as a number, 0 where it is none."""
    try:
        return float(value)
    except ValueError:
        return 0.0
