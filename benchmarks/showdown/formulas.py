"""Published formulas of a few lines, at the rates of data sheets.

- *6ND*: 6 FLOPs a parameter and token at an MFU of 0.4 (Kaplan et al. 2020; Chowdhery et al. 2022 define MFU).
- *Megatron's FLOPs*: those of Narayanan et al. 2021 (section 5.1), of GPTs, with recompute as it runs, at half of the
  peak: its table 1 has 43 to 52 %.
- *LLM-Viewer's roofline* (Yuan et al. 2024): FLOPs and bytes of every operator; a device of ``tp`` has an equal part.
- *SimuMax*: what its authors publish next to measured rows, computed with efficiencies measured shape by shape.
"""

from __future__ import annotations

from benchmarks.serving.peers import Device, Shape, llm_viewer
from benchmarks.showdown.harness import (
    MAPPING,
    MODEL,
    PRECISION,
    UNPUBLISHED,
    Row,
    batch_of,
    main,
    need,
    plain,
    static_figure,
)


def six_nd(row: Row) -> float:
    """Step time, s; of mixtures the parameters that a token uses."""
    need("adapters" not in row["kinds"], MODEL)
    idle = row["n_layers"] - row["first_dense"] if row["n_experts"] else 0.0
    idle *= (row["n_experts"] - row["top_k"]) * row["expert_ffn"] * row["hidden"] * (3.0 if row["gated"] else 2.0)
    flops = 6.0 * (row["parameters"] - idle) * row["global_batch"] * row["seq_len"]
    return flops / (row["devices"] * row["peak"] * 0.4)


def megatron(row: Row) -> float:
    """Step time, s."""
    plain(row)
    need(not row["gated"] and row["n_kv_heads"] == row["n_heads"], MODEL)
    s, h, layers, tokens = row["seq_len"], row["hidden"], row["n_layers"], row["global_batch"] * row["seq_len"]
    layer, scores, passes = 24.0 * h * h, 4.0 * s * h, {"full": 4.0}.get(row["recompute"], 3.0)
    again = scores if row["recompute"].startswith("selective") else 0.0
    flops = tokens * (layers * (passes * (layer + scores) + again) + 3.0 * 2.0 * h * row["vocab"])
    return flops / (row["devices"] * row["peak"] * 0.5)


def simumax(row: Row) -> float:
    """Step time, s, as published."""
    need(row["simumax"], UNPUBLISHED)
    return row["simumax"]


def roofline(row: Row) -> float:
    """A figure of a row, in SI."""
    plain(row)
    need(row["pp"] == 1.0, MAPPING)
    size = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp4": 0.5}.get(row["stated_precision"])
    need(size, PRECISION)
    # Three matrices of a gated feed-forward; of one without a gate, three of the same size in all.
    width = row["ffn_hidden"] * (1.0 if row["gated"] else 2.0 / 3.0)
    names = ("n_layers", "hidden", "n_heads", "n_kv_heads", "head_dim")
    shape = Shape(*(row[name] for name in names), width, row["vocab"])
    # The formulas count two bytes a number.
    device = Device(row["tp"] * row["peak"], row["tp"] * row["bandwidth"] * 2.0 / size, 50e6)
    batch, isl, osl = batch_of(row), row["isl"], row["osl"]
    return static_figure(
        row, llm_viewer(shape, device, batch, isl, isl), llm_viewer(shape, device, batch, 1.0, isl + osl / 2.0)
    )


if __name__ == "__main__":
    main(
        "",
        {
            "6ND": ("training", six_nd),
            "Megatron's FLOPs": ("training", megatron),
            "SimuMax": ("training", simumax),
            "LLM-Viewer's roofline": ("serving", roofline),
        },
    )
