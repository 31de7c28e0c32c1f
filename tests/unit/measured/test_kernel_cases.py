"""Tables of measured kernels through ``dse validate`` and ``dse predict``: every row predicted or skipped by name."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from dse import predict, validate

GEMM = {"system": "h100_sxm", "dtype": "bfloat16", "m": "4096", "n": "4096", "k": "4096", "latency_ms": "0.2"}
ATTENTION = {
    "system": "b200_sxm", "kernel_source": "vllm_flashinfer", "attn_dtype": "bfloat16", "kv_cache_dtype": "fp8",
    "batch_size": "4", "isl": "1024", "step": "0", "num_heads": "32", "num_key_value_heads": "8", "head_dim": "128",
    "window_size": "", "beam_width": "1", "latency_ms": "0.1",
}  # fmt: skip
NCCL = {
    "system": "h200_sxm",
    "dtype": "half",
    "collective": "all_reduce",
    "num_gpus": "8",
    "bytes": "1048576",
    "latency_ms": "0.04",
}
DIRECT = {
    "system": "a100_sxm",
    "kernel_source": "vLLM_custom_graph",
    "dtype": "bfloat16",
    "num_gpus": "4",
    "bytes": "65536",
    "latency_ms": "0.01",
}
LAYER = {
    "gpu": "a40", "model": "any", "op": "mlp_up_proj", "num_tokens": "512", "tp": "2", "n_head": "32",
    "n_kv_head": "8", "n_embd": "4096", "n_expanded_embd": "14336", "vocab_size": "128256", "gated": "1",
    "median_ms": "0.5",
}  # fmt: skip
LONE = {"device": "A100", "op": "softmax", "m": "4096", "n_or_k1": "2048", "n2": "", "latency_ms": "0.05"}
PLATFORM = {
    "platform": "h100_dgx",
    "collective": "all_reduce",
    "num_workers": "4",
    "devices_per_node": "4",
    "bytes": "1000000",
    "median_ms": "0.05",
}
EXCHANGE = {
    "system": "h200_sxm", "mode": "normal", "node_num": "4", "hidden_size": "7168", "num_token": "8192",
    "num_topk": "8", "num_experts": "256", "dispatch_avg_t_us": "", "dispatch_sms": "20",
    "dispatch_transmit_us": "3518", "combine_sms": "20", "combine_transmit_us": "6912",
}  # fmt: skip
MOE = {"system": "h100_sxm", "dtype": "fp8", "num_tokens": "8", "moe_tp_size": "1", "latency_ms": "0.05"}


@pytest.fixture
def table(tmp_path: Path):
    def write(*rows: dict[str, str]) -> Path:
        path = tmp_path / "rows.csv.gz"
        with gzip.open(path, "wt", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


@pytest.mark.parametrize("row", [GEMM, ATTENTION, NCCL, DIRECT, LAYER, LONE, PLATFORM])
def test_a_row_is_predicted_within_a_factor_of_two(table, row):
    report = validate(table(row, row))
    (line,) = report["rows"]
    assert (line["metric"], line["n"], line["predicted"]) == ("kernel_time", 2, 2)
    assert line["mape"] < 1.0


@pytest.mark.parametrize(
    ("row", "change", "reason"),
    [
        (GEMM, {"system": "abacus"}, "unknown accelerator"),
        (GEMM, {"dtype": "posit8"}, "unknown number format"),
        (GEMM, {"dtype": "nvfp4"}, "the chip has no such number format"),
        (GEMM, {"m": "many"}, "no usable number"),
        (GEMM, {"latency_ms": "0"}, "no usable measured value"),
        (ATTENTION, {"beam_width": "4"}, "beam search is not modelled"),
        (ATTENTION, {"step": "100"}, "a cached prefix is not modelled"),
        (ATTENTION, {"kv_cache_dtype": "int2"}, "unknown number format"),
        (NCCL, {"collective": "gossip"}, "unknown collective"),
        (PLATFORM, {"platform": "attic"}, "unknown platform"),
        (LAYER, {"op": "dance"}, "unknown operator"),
        (LONE, {"op": "gpt3_layer_prefill:qkv", "m": ""}, "parts of a layer without their shape"),
        (EXCHANGE, {"system": "b200_sxm"}, "no such kernels measured on this chip"),
        (MOE, {}, "kernels of mixtures of experts are not modelled yet"),
    ],
)
def test_what_cannot_be_predicted_is_skipped_by_name(table, row, change, reason):
    good_and_bad = table(row, row | change)
    (line,) = validate(good_and_bad)["rows"]
    assert line["skipped"].get(reason) == (2 if row in (MOE, EXCHANGE) else 1)


def test_a_row_of_two_regimes_counts_twice(table):
    row = {k: v for k, v in GEMM.items() if k != "latency_ms"}
    row |= {"system": "h200_sxm", "latency_sustained_ms": "0.21", "latency_burst_ms": "0.19"}
    (line,) = validate(table(row))["rows"]
    assert (line["n"], line["predicted"]) == (2, 2)


def test_tokens_of_a_row_are_dispatched_and_combined(table):
    """Both are figures of a row; DeepEP on 32 H200 sends 8,192 tokens to experts in 3.5 ms, and back in 6.9 ms."""
    (line,) = validate(table(EXCHANGE))["rows"]
    assert (line["n"], line["predicted"]) == (2, 2)
    assert line["mape"] < 0.06


def test_a_row_with_power_is_compared_in_both(table, tmp_path):
    row = GEMM | {"system": "h200_sxm", "power_w": "690", "power_limit_w": "700"}
    lines = validate(table(row))["rows"]
    assert [(line["metric"], line["n"], line["predicted"]) for line in lines] == [
        ("kernel_power", 1, 1),
        ("kernel_time", 1, 1),
    ]
    assert lines[0]["mape"] < 0.1
    output = tmp_path / "out.csv"
    assert predict(table(row), output)["all"]["predicted"] == 1
    (line,) = csv.DictReader(output.read_text().splitlines())
    assert 500.0 < float(line["pred_kernel_power"]) < 720.0
    assert float(line["pred_kernel_time"]) > 0.0


def test_predict_adds_the_time(table, tmp_path):
    output = tmp_path / "out.csv"
    counts = predict(table(GEMM, GEMM | {"system": "abacus"}), output)["all"]
    assert counts == {"n": 2, "predicted": 1, "skipped": {"unknown accelerator: abacus": 1}, "misspelt": {}}
    first, second = csv.DictReader(output.read_text().splitlines())
    assert 1e-4 < float(first["pred_kernel_time"]) < 4e-4
    assert second["skipped"] == "unknown accelerator: abacus"
