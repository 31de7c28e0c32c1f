"""The kernels of the catalogue against the tables that they were fitted to, where these lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dse.measured.kernels import POWER, TIME, kind_of, predict, read
from dse.measured.table import Skip, read_table

TABLES = Path(__file__).parents[3] / "shared" / "reference" / "kernels"
CHIPS = ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb"]

pytestmark = pytest.mark.skipif(not TABLES.is_dir(), reason="the tables of kernels are not beside this checkout")


def errors(table: str) -> tuple[list, np.ndarray]:
    """Timed kernels of a table and their relative errors; every fourth row, for speed."""
    return _errors(table, TIME)


def _errors(table: str, metric: str) -> tuple[list, np.ndarray]:
    columns, rows = read_table(TABLES / f"{table}.csv.gz")
    kernels = []
    for row in rows[::4]:
        try:
            kernels += [kernel for kernel in read(row, kind_of(columns)) if kernel.metric == metric]
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


@pytest.fixture(scope="module")
def power():
    return _errors("aic_gemm", POWER)


@pytest.mark.parametrize(
    ("chip", "label", "median"), [(CHIPS[2], "bfloat16", 0.12), (CHIPS[2], "fp8_block", 0.14),
                                  (CHIPS[3], "bfloat16", 0.17), (CHIPS[3], "nvfp4", 0.22)],
)  # fmt: skip
def test_board_power_of_gemms(power, chip, label, median):
    """A quarter to a third of the readings are of a board that was partly idle: see docs/kernels.md."""
    kernels, error = power
    own = error[[k.device == chip and k.label == label for k in kernels]]
    assert len(own) > 300
    assert np.median(own) < median


@pytest.mark.parametrize(("chip", "median"), [(CHIPS[2], 0.04), (CHIPS[3], 0.05)])
def test_board_power_of_gemms_that_a_sensor_can_tell(power, gemm, chip, median):
    """GEMMs of 50 us or more, of which a reading over 100 ms holds few gaps; block-scaled ones wait for their host."""
    seconds = {(k.device, k.values[:4]): k.measured for k in gemm[0]}
    kernels, error = power
    told = [k.device == chip and k.label != "fp8_block" and seconds[k.device, k.values[:4]] >= 50e-6 for k in kernels]
    assert np.count_nonzero(told) > 300
    assert np.median(error[told]) < median


def test_gemms_at_the_power_limit_are_slowed_down_as_measured():
    columns, rows = read_table(TABLES / "aic_gemm_sustained_vs_burst.csv.gz")
    limited = [row for row in rows if float(row.get("power_w")) >= 0.97 * float(row.get("power_limit_w"))]
    pairs = list(zip(*(read(row, kind_of(columns)) for row in limited), strict=True))
    ours = np.array(predict(pairs[0])) / np.array(predict(pairs[1]))
    measured = np.array([s.measured / b.measured for s, b in zip(*pairs, strict=True)])
    assert abs(np.median(ours) - np.median(measured)) < 0.05


@pytest.mark.parametrize("table", ["aic_context_attention", "aic_generation_attention"])
def test_attention(table):
    kernels, error = errors(table)
    assert np.median(error) < 0.10
    for chip in CHIPS:
        assert np.median(error[[k.device == chip for k in kernels]]) < 0.125


@pytest.mark.parametrize(
    ("table", "median"), [("aic_nccl", 0.07), ("aic_custom_allreduce", 0.10), ("vidur_network", 0.18),
                          ("vidur_linear_ops", 0.12), ("aic_deepep_alltoall", 0.08)],
)  # fmt: skip
def test_collectives_and_layers(table, median):
    kernels, error = errors(table)
    assert np.median(error) < median
    between = error[["between nodes" in kernel.label for kernel in kernels]]
    assert between.size == 0 or (between.size > 50 and np.median(between) < 0.08)
