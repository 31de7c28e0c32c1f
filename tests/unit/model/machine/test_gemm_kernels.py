"""Laws of single GEMMs: resources never hurt, no time below a bound, more work takes longer, finite slopes."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse import types
from dse.designs import catalog, replace
from dse.measured.kernels.formulas import gemm_of
from dse.model import matmul_work, operand_bytes
from dse.model.machine import gemm_kernels, roofline
from dse.model.machine.rates import rates_of
from dse.model.work.operators import Element
from dse.types import OperatorKind, Precision

CHIP = catalog.record(types.Accelerator, "h100-sxm-80gb")
BF16 = float(Precision.bf16)
SIZES = st.sampled_from([1.0, 17.0, 128.0, 129.0, 1000.0, 4096.0, 30000.0])
FORMATS = st.sampled_from([BF16, float(Precision.fp8), float(Precision.fp8_block)])

gemm = jax.jit(lambda m, n, k, precision, chip: gemm_kernels.gemm_time(gemm_of((m, n, k, precision), chip), chip))
quick = settings(deadline=None, max_examples=30)


@quick
@given(SIZES, SIZES, SIZES, FORMATS, st.sampled_from(["memory.bandwidth", "matrix_rate.bf16", "matrix_rate.fp8"]))
def test_more_of_a_resource_never_slows_a_gemm(m, n, k, precision, leaf):
    head, name = leaf.split(".")
    more = replace(CHIP, {leaf: 2.0 * getattr(getattr(CHIP, head), name)})
    assert gemm(m, n, k, precision, more) <= gemm(m, n, k, precision, CHIP) * (1.0 + 1e-5)


@quick
@given(SIZES, SIZES, SIZES, FORMATS)
def test_no_gemm_is_faster_than_its_peak_or_its_memory(m, n, k, precision):
    time = float(gemm(m, n, k, precision, CHIP))
    rate = CHIP.matrix_rate.bf16 if precision == BF16 else CHIP.matrix_rate.fp8
    assert time >= 2.0 * m * n * k / rate
    assert time >= (m * k + n * k) * float(operand_bytes(jnp.asarray(precision))) / CHIP.memory.bandwidth
    assert time >= CHIP.kernels.fine.gemm_floor


@quick
@given(SIZES, SIZES, SIZES, FORMATS)
def test_more_rows_columns_or_depth_take_longer(m, n, k, precision):
    base = gemm(m, n, k, precision, CHIP)
    assert gemm(2.0 * m, n, k, precision, CHIP) >= base * 0.999 or m <= gemm_kernels.FEW_ROWS
    assert gemm(m, 2.0 * n, k, BF16, CHIP) >= gemm(m, n, k, BF16, CHIP) * 0.999
    assert gemm(m, n, 2.0 * k, BF16, CHIP) >= gemm(m, n, k, BF16, CHIP) * 0.999


@jax.jit
@jax.grad
def all_slopes(chip, m, n, k):
    return gemm_kernels.gemm_time(gemm_of((m, n, k, jnp.asarray(float(Precision.fp8_block))), chip), chip)


@quick
@given(SIZES, SIZES, SIZES)
def test_slopes_of_every_leaf_are_finite(m, n, k):
    slopes = all_slopes(jax.tree.map(jnp.asarray, CHIP), m, n, k)
    assert all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes))


def test_without_fine_terms_a_gemm_is_that_of_a_step():
    """The same formula: its neutral fine terms give the time of a training step's kernel."""
    plain = catalog.record(types.Accelerator, "h100-sxm-80gb")
    neutral = dataclasses.replace(CHIP.kernels.fine, split_time=1.0, tile_feed=1.0, output_overhead=0.0)
    kernels = dataclasses.replace(plain.kernels, roofline_blend=0.0, wave_quantization=1.0, matrix_depth=0.0)
    steps = dataclasses.replace(plain, kernels=kernels)
    for m, n, k in ((4096.0, 8192.0, 4096.0), (100.0, 512.0, 9000.0), (8192.0, 28672.0, 8192.0)):
        work = matmul_work(m, n, k, 1.0, Element(2.0, 2.0, 2.0, plain.cache))
        expected = roofline.isolated_time(OperatorKind.matrix, work, rates_of(steps, jnp.asarray(BF16)))
        found = roofline.isolated_time(OperatorKind.matrix, work, rates_of(steps, jnp.asarray(BF16), fine=neutral))
        assert float(found) == pytest.approx(float(expected), rel=1e-4)
