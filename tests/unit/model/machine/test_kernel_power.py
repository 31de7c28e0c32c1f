"""Laws of the board power of single kernels, and the published readings that it was fitted to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse import types
from dse.designs import catalog
from dse.measured.kernels.formulas import attention_of, gemm_of
from dse.model.machine import gemm_kernels, kernel_power
from dse.types import Precision
from tests.programs import by_numpy, slopes_by_numpy

CHIPS = {
    name: catalog.record(types.Accelerator, name) for name in ("h200-sxm-141gb", "b200-sxm-180gb", "a100-sxm-80gb")
}
CHIP = CHIPS["h200-sxm-141gb"]
BF16 = float(Precision.bf16)
SIZES = st.sampled_from([1.0, 17.0, 129.0, 1000.0, 4096.0, 30000.0])
FORMATS = st.sampled_from([BF16, float(Precision.fp8), float(Precision.fp8_block)])
quick = settings(deadline=None, max_examples=30)

attention = by_numpy(lambda call, chip: kernel_power.attention_power(attention_of(call), chip))


def of_shape(function):
    """A function of a GEMM's sizes, format and device."""
    return lambda m, n, k, precision, chip: function(gemm_of((m, n, k, precision), chip), chip)


power = by_numpy(of_shape(kernel_power.gemm_power))
sustained = by_numpy(of_shape(kernel_power.sustained_gemm_time))
burst = by_numpy(of_shape(gemm_kernels.gemm_time))
gemm_demand = of_shape(kernel_power.gemm_demand)


@slopes_by_numpy
def sustained_under(watts, shape, chip):
    return kernel_power.sustained_gemm_time(gemm_of((*shape, BF16), chip), limited(chip, watts))


def limited(chip, watts):
    return dataclasses.replace(chip, power=dataclasses.replace(chip.power, limit=watts))


def scaled(chip, **factors):
    changed = {name: factor * getattr(chip.power, name) for name, factor in factors.items()}
    return dataclasses.replace(chip, power=dataclasses.replace(chip.power, **changed))


@quick
@given(SIZES, SIZES, SIZES, FORMATS)
def test_a_kernel_draws_between_rest_and_limit(m, n, k, precision):
    drawn = float(power(m, n, k, precision, CHIP))
    rest = CHIP.power.uncore + CHIP.power.leakage
    assert rest * (1.0 - 1e-5) <= drawn <= CHIP.power.tdp * (1.0 + 1e-3)


@quick
@given(SIZES, SIZES, SIZES, FORMATS, st.floats(350.0, 1000.0), st.floats(350.0, 1000.0))
def test_a_lower_limit_never_draws_more_nor_is_faster(m, n, k, precision, a, b):
    low, high = (limited(CHIP, watts) for watts in sorted((a, b)))
    assert power(m, n, k, precision, low) <= power(m, n, k, precision, high) * (1.0 + 1e-3)
    assert sustained(m, n, k, precision, low) >= sustained(m, n, k, precision, high) * (1.0 - 1e-3)
    assert sustained(m, n, k, precision, high) >= burst(m, n, k, precision, high) * (1.0 - 1e-5)


@quick
@given(SIZES, SIZES, SIZES, FORMATS, st.sampled_from(["matrix_energy", "cache_energy", "memory_energy", "control"]))
def test_more_energy_never_draws_less(m, n, k, precision, name):
    free = limited(CHIP, 1e6)
    base = power(m, n, k, precision, free)
    assert base <= power(m, n, k, precision, scaled(free, **{name: 1.5})) * (1.0 + 1e-5)


def test_the_energy_of_a_kernel_is_that_of_its_parts():
    whole = gemm_demand(4096.0, 4096.0, 4096.0, BF16, CHIP)
    joules = float(whole.core_energy + whole.other_energy)
    names = ("matrix_energy", "cache_energy", "memory_energy")
    parts = 0.0
    for name in names:
        alone = scaled(CHIP, **dict.fromkeys(set(names) - {name}, 0.0))
        work = gemm_demand(4096.0, 4096.0, 4096.0, BF16, alone)
        parts += float(work.core_energy + work.other_energy)
    assert parts == pytest.approx(joules, rel=1e-5)
    assert float(whole.core_energy) == pytest.approx(2.0 * 4096.0**3 * CHIP.power.matrix_energy)


def test_what_fits_the_cache_takes_nothing_from_memory():
    memory_alone = scaled(CHIP, cache_energy=0.0)
    assert gemm_demand(16.0, 1024.0, 1024.0, BF16, memory_alone).other_energy == 0.0
    assert gemm_demand(16.0, 16384.0, 16384.0, BF16, memory_alone).other_energy > 0.0


def test_compute_bound_kernels_follow_the_clock_and_streams_do_not():
    compute = gemm_demand(8192.0, 8192.0, 8192.0, BF16, CHIP)
    stream = gemm_demand(1.0, 16384.0, 16384.0, BF16, CHIP)
    assert compute.core_time / (compute.core_time + compute.other_time) > 0.85
    assert stream.core_time / (stream.core_time + stream.other_time) < 0.2


@pytest.mark.parametrize("chip", CHIPS.values(), ids=CHIPS)
@pytest.mark.parametrize("shape", [(1.0, 1.0, 1.0), (32768.0, 65536.0, 65536.0), (1.0, 65536.0, 65536.0)])
def test_extremes_are_numbers(chip, shape):
    values = [power(*shape, BF16, chip), sustained(*shape, BF16, chip)]
    assert np.isfinite([*values, *sustained_under(300.0, shape, chip)]).all()
    for context in (0.0, 1.0):
        assert np.isfinite(attention((shape[0], 128.0, 8.0, 2.0, 128.0, 0.0, 2.0, context), chip))


@pytest.mark.parametrize(
    ("chip", "shape", "precision", "watts"),
    # aic_gemm of ai-dynamo/aiconfigurator, 16-bit rows that no other reading contradicts
    [
        ("h200-sxm-141gb", (2305.0, 4096.0, 4096.0), "bf16", 692.0),
        ("h200-sxm-141gb", (65.0, 8192.0, 8192.0), "bf16", 634.0),
    ],
)
def test_published_readings(chip, shape, precision, watts):
    assert float(power(*shape, float(Precision[precision]), CHIPS[chip])) == pytest.approx(watts, rel=0.12)


def test_sixteen_bit_gemms_at_the_limit_run_a_tenth_slower():
    shape = (8192.0, 8192.0, 8192.0)
    for name in ("h200-sxm-141gb", "b200-sxm-180gb"):
        assert 1.05 < float(sustained(*shape, BF16, CHIPS[name]) / burst(*shape, BF16, CHIPS[name])) < 1.25
