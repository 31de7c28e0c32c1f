"""The kernels of the catalogue against the tables that they were fitted to, where these lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dse.cases.kernels import kind_of, predict, read
from dse.cases.table import Skip, read_table

TABLES = Path(__file__).parents[3] / "shared" / "reference" / "kernels"
CHIPS = ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb"]

pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason="the tables of kernels are not beside this checkout")


def errors(table: str) -> tuple[list, np.ndarray]:
    """Kernels of a table and their relative errors; every fourth row, for speed."""
    columns, rows = read_table(TABLES / f"{table}.csv.gz")
    kernels = []
    for row in rows[::4]:
        try:
            kernels += read(row, kind_of(columns))
        except Skip:
            continue
    found = [(k, s) for k, s in zip(kernels, predict(kernels), strict=True) if isinstance(s, float)]
    return [k for k, _ in found], np.array([abs(s / k.measured - 1.0) for k, s in found])


@pytest.fixture(scope="module")
def gemm():
    return errors("aic_gemm")


@pytest.mark.parametrize(
    ("chip", "median", "tenth"), [(CHIPS[0], 0.065, 0.22), (CHIPS[1], 0.055, 0.15), (CHIPS[2], 0.05, 0.15),
                                  (CHIPS[3], 0.07, 0.19)],
)  # fmt: skip
def test_16_bit_gemm_of_20_us_or_more(gemm, chip, median, tenth):
    kernels, error = gemm
    own = error[[k.device == chip and k.label == "bfloat16" and k.measured >= 20e-6 for k in kernels]]
    assert len(own) > 100
    assert np.median(own) < median
    assert np.quantile(own, 0.9) < tenth


@pytest.mark.parametrize("chip", CHIPS)
def test_gemm_of_every_size(gemm, chip):
    kernels, error = gemm
    assert np.median(error[[k.device == chip and k.label == "bfloat16" for k in kernels]]) < 0.08


@pytest.mark.parametrize("label", ["fp8", "fp8_block", "nvfp4"])
def test_narrow_gemm(gemm, label):
    kernels, error = gemm
    assert np.median(error[[k.label == label for k in kernels]]) < 0.10


@pytest.mark.parametrize("table", ["aic_context_attention", "aic_generation_attention"])
def test_attention(table):
    kernels, error = errors(table)
    assert np.median(error) < 0.10
    for chip in CHIPS:
        assert np.median(error[[k.device == chip for k in kernels]]) < 0.125


@pytest.mark.parametrize(
    ("table", "median"), [("aic_nccl", 0.10), ("aic_custom_allreduce", 0.10), ("vidur_network", 0.18),
                          ("vidur_linear_ops", 0.12)],
)  # fmt: skip
def test_collectives_and_layers(table, median):
    assert np.median(errors(table)[1]) < median
