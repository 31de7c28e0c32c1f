"""Logs of torchtitan (``torchtitan/components/metrics.py``): ``tps`` is of tokens per second and device.

Its ``memory`` is the largest that the allocator reserved since the line before.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from dse.measured.profiles.run import Figure, MeasuredRun, device_slug, matched_numbers, number_text, slower_rank

SIGNATURE = re.compile(r"\bstep:\s*\d+\s+loss:.*\b(?:tps|wps):|Trainer is initialized with local batch size")

_STEP = re.compile(r"\bstep:\s*(\d+)\s+loss:")
_FIGURES = {
    "tps": re.compile(r"\b(?:tps|wps):\s*([\d,.]+)"), "mfu": re.compile(r"\bmfu:\s*([\d.]+)%"),
    "memory": re.compile(r"\bmemory:\s*([\d.]+)GiB"),
    "micro_batch": re.compile(r"initialized with local batch size (\d+)"),
    "global_batch": re.compile(r"global batch size (\d+)"), "seq_len": re.compile(r"sequence length (\d+)"),
}  # fmt: skip
_DEVICE = re.compile(r"(?:CUDA|HIP|GPU) capacity: (.+?) (?:\(\d+\) )?with [\d.]+GiB")
_MODEL = re.compile(r"\b(?:Model|Building) (\S+ \S+) (?:size:|with )")
_DEGREES = re.compile(r"\b(dp_replicate|dp_shard|pp|cp|tp|ep|etp)=(\d+)")
_MESH = re.compile(r"device mesh with \[(.+?)\], \[([\d, ]+)\]")
_RECOMPUTE = re.compile(r"Applied (full|selective)\w* activation checkpointing", re.IGNORECASE)


def read(lines: Iterable[str]) -> MeasuredRun:
    """Read the run of a log: token rate and MFU of each step, peak memory and configuration."""
    run, degrees = MeasuredRun("torchtitan", "steps", {"software": "torchtitan"}), dict[str, int]()
    is_started = is_compiled = False
    for line in lines:
        line_figures = matched_numbers(line, _FIGURES)
        if "memory" in line_figures and "tps" in line_figures:
            run.peak(Figure("peak_memory", line_figures["memory"], "GiB"))
        if (step := _STEP.search(line)) and "tps" in line_figures:
            figures = [Figure("tokens_per_s_per_gpu", line_figures["tps"], "token/s")]
            figures += [Figure("mfu", line_figures["mfu"], "%")] if "mfu" in line_figures else []
            number = int(step[1])
            run.steps[number] = slower_rank(run.steps.get(number, figures), figures)
            continue
        is_started |= "Training starts at step" in line
        is_compiled |= "with torch.compile" in line
        for column in ("micro_batch", "global_batch", "seq_len"):
            if column in line_figures and "initialized with" in line:
                run.cells[column] = number_text(line_figures[column])
        if "device mesh" in line:
            degrees |= {name: int(size) for name, size in _DEGREES.findall(line)} or _mesh_degrees(line)
        _add_line_cells(run.cells, line)
    if degrees:
        run.cells |= _cells(degrees)
        if degrees.get("pp", 1) > 1:
            run.cells.pop("micro_batch", None)  # of a pipeline, all micro-batches of a rank
    if is_started:
        run.cells["software"] = "torchtitan" if is_compiled else "torchtitan-eager"
        run.cells.setdefault("recompute", "none")
    return run


def _add_line_cells(cells: dict[str, str], line: str) -> None:
    """Add to ``cells`` what a line states of the model, the device, recompute and number formats."""
    if (device := _DEVICE.search(line)) and (slug := device_slug(device[1])):
        cells["gpu"] = slug
    if "device mesh" not in line and (model := _MODEL.search(line)):
        cells["model"] = model[1]
    if kind := _RECOMPUTE.search(line):
        cells["recompute"] = kind[1].lower()
    if "FullAC activation checkpointing" in line:
        cells["recompute"] = "full"
    if "Float8" in line and ("active" in line or "Swapped" in line):
        cells["precision"] = "fp8"


def _mesh_degrees(line: str) -> dict[str, int]:
    """Return name → degree of ``Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]``, {} for other lines."""
    if not (mesh_match := _MESH.search(line)):
        return {}
    return dict(zip(re.findall(r"\w+", mesh_match[1]), map(int, re.findall(r"\d+", mesh_match[2])), strict=False))


def _cells(degrees: dict[str, int]) -> dict[str, str]:
    """Return column → text of the degrees (name → ranks)."""
    sizes = {name: degrees.get(name, 1) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp")}
    cells = {name: str(sizes[name]) for name in ("tp", "pp", "cp")} | {"n_gpus": str(math.prod(sizes.values()))}
    cells["zero_stage"] = "3" if sizes["dp_shard"] > 1 else "0"
    if sizes["tp"] > 1:
        cells["seq_parallel"] = "1"  # always part of its tensor parallelism
    return cells | {name: str(degrees[name]) for name in ("ep", "etp") if degrees.get(name, 1) > 1}
