"""Logs of MaxText: its configuration as ``Config param name: value``, and a line a step (``metric_logger.py``)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dse.measured.profiles.run import Figure, MeasuredRun, cells_of, numbers, slower, text
from dse.tools import values_of

SIGN = re.compile(r"completed step: \d+, seconds: |Config param \w+: ")

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
    """The run of a log."""
    run, given = MeasuredRun("maxtext", "steps", {}), dict[str, str]()
    for line in lines:
        found = numbers(line, _FIGURES)
        if stated := _PARAMETER.search(line):
            given[stated[1]] = stated[2].strip()
        elif (step := _STEP.search(line)) and "seconds" in found:
            figures = [Figure("iteration_time", found["seconds"], "s")]
            if "TFLOP/s" in found:
                figures.append(Figure("model_tflops_per_gpu", found["TFLOP/s"], "TFLOP/s"))
            run.steps[int(step[1])] = slower(run.steps.get(int(step[1]), figures), figures)
        elif "GB" in found:
            run.peak(Figure("peak_memory", found["GB"] * 2**30, "B"))  # max_utils divides by 1024 three times
        if "devices" in found:
            run.cells["n_gpus"] = text(found["devices"])
    run.cells |= _cells(given)
    return run


def _cells(given: dict[str, str]) -> dict[str, str]:
    words = {name: {"True": "true"}.get(value, value) for name, value in given.items() if value not in ("False", "")}
    cells = cells_of(values_of("maxtext", words))
    for name, column in _DERIVED.items():
        if given.get(name, "").isdigit() and given[name] != "0":
            cells[column] = given[name]
    if given.get("model_name", "default") != "default":
        cells["model"] = given["model_name"]
    if "ici_fsdp_parallelism" in given:
        alone = {given["ici_fsdp_parallelism"], given.get("dcn_fsdp_parallelism", "1")} == {"1"}
        cells["zero_stage"] = "0" if alone else "3"
    if given.get("hardware", "tpu") != "tpu":
        cells.pop("slices", None)  # of GPUs, nodes
    if given.get("gradient_accumulation_steps", "1") == "1" and given.get("per_device_batch_size"):
        # one pass a step: what a chip has of the batch
        cells["micro_batch"] = text(_number(given["per_device_batch_size"]) or 1.0)
    for column in ("n_experts", "slices"):
        if cells.get(column) in ("0", "1"):
            cells.pop(column)
    return {column: value for column, value in cells.items() if not value.startswith("-")}


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
