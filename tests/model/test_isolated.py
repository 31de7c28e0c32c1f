"""Laws of single kernels: resources never hurt, no time below a bound, more work takes longer, finite slopes."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse import catalog
from dse.design import replace
from dse.model.machine import isolated, roofline
from dse.model.machine.collectives import all_to_all, direct_all_reduce, wire_time
from dse.model.work.operators import Element, matmul_work
from dse.types import Group, Precision

CHIP = catalog.accelerator("h100-sxm-80gb", fine=True)
SYSTEM = catalog.system("h100-sxm-80gb", fine=True)
BF16 = float(Precision.bf16)
SIZES = st.sampled_from([1.0, 17.0, 128.0, 129.0, 1000.0, 4096.0, 30000.0])
FORMATS = st.sampled_from([BF16, float(Precision.fp8), float(Precision.fp8_block)])
CONTEXTS = st.booleans().map(float)

gemm = jax.jit(isolated.gemm_time)
attend = jax.jit(isolated.attention_time)
collective = jax.jit(isolated.collective_time)
direct = jax.jit(isolated.direct_time)
quick = settings(deadline=None, max_examples=30)


def call(batch=4.0, tokens=1000.0, heads=32.0, kv_heads=8.0, window=0.0, cache=2.0) -> isolated.Attention:
    return isolated.Attention(batch, tokens, heads, kv_heads, 128.0, window, cache)


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
    assert time >= (m * k + n * k) * float(roofline.operand_bytes(jnp.asarray(precision))) / CHIP.memory.bandwidth
    assert time >= CHIP.kernels.kernel_floor


@quick
@given(SIZES, SIZES, SIZES, FORMATS)
def test_more_rows_columns_or_depth_take_longer(m, n, k, precision):
    base = gemm(m, n, k, precision, CHIP)
    assert gemm(2.0 * m, n, k, precision, CHIP) >= base * 0.999 or m <= isolated.FEW_ROWS
    assert gemm(m, 2.0 * n, k, BF16, CHIP) >= gemm(m, n, k, BF16, CHIP) * 0.999
    assert gemm(m, n, 2.0 * k, BF16, CHIP) >= gemm(m, n, k, BF16, CHIP) * 0.999


@jax.jit
@jax.grad
def all_slopes(chip, m, n, k):
    shape = call(batch=2.0, tokens=m)
    attention = isolated.attention_time(shape, 1.0, chip) + isolated.attention_time(shape, 0.0, chip)
    return isolated.gemm_time(m, n, k, jnp.asarray(float(Precision.fp8_block)), chip) + attention


@quick
@given(SIZES, SIZES, SIZES)
def test_slopes_of_every_leaf_are_finite(m, n, k):
    slopes = all_slopes(jax.tree.map(jnp.asarray, CHIP), m, n, k)
    assert all(np.isfinite(slope).all() for slope in jax.tree.leaves(slopes))


def test_without_fine_terms_a_gemm_is_that_of_a_step():
    """The same formula: its neutral fine terms give the time of a training step's kernel."""
    plain = catalog.accelerator("h100-sxm-80gb")
    neutral = dataclasses.replace(CHIP.kernels.fine, split_time=1.0, feed=1.0, output_overhead=0.0)
    kernels = dataclasses.replace(plain.kernels, roofline_blend=0.0, wave_quantization=1.0, matrix_depth=0.0)
    steps = dataclasses.replace(plain, kernels=kernels)
    alone = dataclasses.replace(plain, kernels=dataclasses.replace(kernels, fine=neutral))
    for m, n, k in ((4096.0, 8192.0, 4096.0), (100.0, 512.0, 9000.0), (8192.0, 28672.0, 8192.0)):
        work = matmul_work(m, n, k, 1.0, Element(2.0, 2.0, 2.0, plain.cache))
        expected = roofline.isolated_time("matrix", work, steps, jnp.asarray(BF16))
        found = roofline.isolated_time("matrix", work, alone, jnp.asarray(BF16))
        assert float(found) == pytest.approx(float(expected), rel=1e-4)


@quick
@given(CONTEXTS, st.sampled_from(["memory.bandwidth", "matrix_rate.bf16"]), SIZES)
def test_more_of_a_resource_never_slows_attention(context, leaf, tokens):
    head, name = leaf.split(".")
    more = replace(CHIP, {leaf: 2.0 * getattr(getattr(CHIP, head), name)})
    assert attend(call(tokens=tokens), context, more) <= attend(call(tokens=tokens), context, CHIP) * (1.0 + 1e-5)


@quick
@given(CONTEXTS, SIZES)
def test_longer_wider_attention_takes_longer(context, tokens):
    base = attend(call(tokens=tokens), context, CHIP)
    assert attend(call(tokens=2.0 * tokens), context, CHIP) >= 0.999 * base or tokens <= 1.0
    assert attend(call(tokens=tokens, batch=8.0), context, CHIP) >= 0.999 * base
    assert attend(call(tokens=tokens, window=64.0), context, CHIP) <= 1.001 * base


@pytest.mark.parametrize("context", [0.0, 1.0])
def test_attention_respects_its_bounds(context):
    shape = call(batch=64.0, tokens=8192.0)
    time = float(attend(shape, context, CHIP))
    keys = 2.0 * shape.cache_bytes * shape.batch * shape.kv_heads * shape.head_dim * shape.tokens
    pairs = shape.batch * shape.heads * shape.tokens * shape.tokens / 2.0 * context
    assert time > 0.9 * keys / CHIP.memory.bandwidth
    assert time > 4.0 * shape.head_dim * pairs / CHIP.matrix_rate.bf16


@quick
@given(st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0]), st.sampled_from([2.0, 4.0, 8.0]), st.floats(1e3, 1e9))
def test_collectives_grow_with_bytes_and_shrink_with_bandwidth(operation, members, size):
    group = Group(members, members)
    base = collective(operation, size, group, 0.0, SYSTEM)
    faster = replace(SYSTEM, {"scale_up.bandwidth": 2.0 * SYSTEM.scale_up.bandwidth})
    assert collective(operation, 2.0 * size, group, 0.0, SYSTEM) >= base
    assert collective(operation, size, group, 0.0, faster) <= base
    assert base >= SYSTEM.scale_up.alone.launch


@quick
@given(st.sampled_from([2.0, 4.0, 8.0]), st.floats(1e2, 1e9), st.booleans())
def test_a_direct_all_reduce_is_never_slower_than_one_shot(members, size, eager):
    one_shot = SYSTEM.scale_up.latency + wire_time(size * (members - 1.0), SYSTEM.scale_up)
    assert direct_all_reduce(size, members, SYSTEM.scale_up) <= one_shot * (1.0 + 1e-6)
    assert direct(2.0 * size, members, float(eager), 0.0, SYSTEM) >= direct(size, members, float(eager), 0.0, SYSTEM)
    assert direct(size, members, 1.0, 0.0, SYSTEM) >= 0.9 * SYSTEM.scale_up.alone.eager_launch


def test_an_exchange_of_one_costs_nothing():
    assert float(all_to_all(1e6, Group(1.0, 1.0), SYSTEM)) == 0.0
    assert float(direct_all_reduce(1e6, 1.0, SYSTEM.scale_up)) == 0.0
