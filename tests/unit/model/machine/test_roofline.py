"""Roofline of one operator: limits, shape efficiency, precision."""

import dataclasses

import pytest
from hypothesis import given, strategies as st

from dse.model import matmul_work, operand_bytes
from dse.model.machine import overlap, roofline
from dse.model.machine.rates import matrix_rate, rates_of
from dse.model.work.operators import Element, linear
from dse.types import EfficiencySteps, ExpertKernels, OperatorKind, Precision, Work
from tests.designs import ACCELERATOR, SOFTWARE as DENSE

SOFTWARE = dataclasses.replace(DENSE, experts=ExpertKernels(grouped_efficiency=0.65, expert_kernel_time=2e-4))

ELEMENT = Element(operand=2.0, activation=2.0, gradient=4.0, cache=40e6)
SIZE = st.sampled_from([1.0, 64.0, 100.0, 1024.0, 4096.0, 12288.0])
BF16 = float(Precision.bf16)
MATRIX = OperatorKind.matrix


def time(m, n, k, accelerator=ACCELERATOR, precision=BF16):
    rates = rates_of(accelerator, precision, SOFTWARE)
    return float(roofline.kernel_time(MATRIX, matmul_work(m, n, k, 1.0, ELEMENT), rates))


@given(m=SIZE, n=SIZE, k=SIZE)
def test_a_product_is_no_faster_than_peak_bandwidth_or_floor(m, n, k):
    t = time(m, n, k)
    assert t >= 2 * m * n * k / 312e12
    assert t >= 2 * (m * k + k * n + m * n) / 2.039e12
    assert t >= 0.999 * ACCELERATOR.kernels.kernel_floor


@given(m=SIZE, n=SIZE, k=SIZE)
def test_shape_efficiency_is_a_share(m, n, k):
    work = matmul_work(m, n, k, 1.0, ELEMENT)
    assert 0.0 < work.flops / float(roofline.occupied_flops(work, rates_of(ACCELERATOR, BF16))) <= 1.0


def test_a_large_deep_product_reaches_its_efficiency():
    m = 16384.0
    reached = 2 * m**3 / time(m, m, m) / 312e12 * SOFTWARE.matrix_slowdown
    assert reached == pytest.approx(ACCELERATOR.kernels.matrix_efficiency, rel=0.05)


def test_a_matrix_vector_product_is_bound_by_bandwidth():
    work = matmul_work(1.0, 8192.0, 8192.0, 1.0, ELEMENT)
    compute, memory = roofline.roofline_terms(MATRIX, work, rates_of(ACCELERATOR, BF16))
    assert float(memory) > float(compute)


@given(compute=st.floats(0, 1), memory=st.floats(0, 1))
def test_the_blend_spans_from_perfect_overlap_to_none(compute, memory):
    assert float(overlap.combine(compute, memory, 0.0)) == pytest.approx(max(compute, memory))
    assert float(overlap.combine(compute, memory, 1.0)) == pytest.approx(compute + memory, abs=1e-6)


def test_the_cache_bounds_re_reads():
    """With little on-chip memory traffic grows to 2 m n k / sqrt(S) elements (Hong & Kung 1981)."""
    small = ELEMENT._replace(cache=2048.0)
    m = 4096.0
    assert float(matmul_work(m, m, m, 1.0, small).bytes) == pytest.approx(2 * m**3 / 1024**0.5 * 2.0)
    assert float(matmul_work(m, m, m, 1.0, ELEMENT).bytes) == pytest.approx(3 * m * m * 2.0)


@pytest.mark.parametrize(
    ("precision", "size"),
    [("fp32", 4.0), ("bf16", 2.0), ("fp8", 1.0), ("fp8_block", 1.03125), ("fp4", 0.5625), ("int4", 0.5),
     ("fp8_row", 1.0), ("mxfp8", 1.03125), ("nvfp4", 0.5625), ("mxfp4", 0.53125)],
)  # fmt: skip
def test_block_formats_carry_their_scales(precision, size):
    assert float(operand_bytes(float(Precision[precision]))) == pytest.approx(size)


def test_precision_sets_the_rate():
    assert float(matrix_rate(ACCELERATOR, float(Precision.fp8))) == pytest.approx(624e12)
    assert float(matrix_rate(ACCELERATOR, float(Precision.fp4))) == 0.0
    assert time(8192.0, 8192.0, 8192.0, precision=float(Precision.fp8)) < time(8192.0, 8192.0, 8192.0)


def test_scales_by_row_slow_the_products_of_training_alone():
    """0.57 of the rate with a scale a tensor; engines multiply with either scale by the same kernels of CUTLASS."""

    def seconds(precision, trains):
        found = rates_of(ACCELERATOR, float(Precision[precision]), SOFTWARE, trains=trains)
        return float(found.units[OperatorKind.matrix].flop_time)

    assert seconds("fp8_row", trains=True) == pytest.approx(seconds("fp8", trains=True) / 0.57)
    assert seconds("fp8_row", trains=False) == seconds("fp8", trains=False) == seconds("fp8", trains=True)


def test_a_recipe_that_leaves_layers_in_16_bits_takes_their_mean():
    """NVFP4 beside the format alone, on a chip that has it: 5 % of layers in bf16, the rest at 0.875 of its rate."""
    chip = dataclasses.replace(ACCELERATOR, matrix_rate=dataclasses.replace(ACCELERATOR.matrix_rate, fp4=1248e12))
    each = {
        p: float(rates_of(chip, float(Precision[p])).units[OperatorKind.matrix].flop_time)
        for p in ("bf16", "fp4", "mxfp4", "nvfp4")
    }
    assert each["mxfp4"] == pytest.approx(each["fp4"] / 0.875)
    assert each["nvfp4"] == pytest.approx(0.95 * each["mxfp4"] + 0.05 * each["bf16"])


def test_a_weight_gradient_accumulates_in_its_buffer():
    """The gradient buffer is read and written once instead of a fresh 16-bit matrix being written."""
    layer = linear("qkv", 1024.0, 4096.0, 4096.0, ELEMENT, 0.0)
    fresh = matmul_work(4096.0, 4096.0, 1024.0, 1.0, ELEMENT)
    assert float(layer.weight_gradient.bytes) - float(fresh.bytes) == pytest.approx((8 - 2) * 4096 * 4096)


def test_steps_of_efficiency_multiply_what_a_kernel_reaches():
    """The largest step that the size reaches counts; one step of 1 changes nothing."""
    steps = ((0.0, 0.1), (1e9, 0.5), (16e9, 0.9))
    shares = [float(roofline.step_efficiency(size, steps)) for size in (0.0, 9.9e8, 1e9, 15e9, 1e12)]
    assert shares == pytest.approx([0.1, 0.1, 0.5, 0.5, 0.9])

    def stepped(**tables):
        flat = dict(matrix=((0.0, 1.0),), vector=((0.0, 1.0),), memory=((0.0, 1.0),))
        kernels = dataclasses.replace(ACCELERATOR.kernels, steps=EfficiencySteps(**(flat | tables)))
        return dataclasses.replace(ACCELERATOR, kernels=kernels)

    size = (4096.0, 4096.0, 4096.0)
    assert time(*size, stepped()) == pytest.approx(time(*size))
    work = matmul_work(*size, 1.0, ELEMENT)
    compute, memory = roofline.roofline_terms(MATRIX, work, rates_of(ACCELERATOR, BF16))
    slower = stepped(matrix=((0.0, 1.0), (1e11, 0.5)), memory=((0.0, 0.25), (1e12, 1.0)))
    half, quarter = roofline.roofline_terms(MATRIX, work, rates_of(slower, BF16))
    assert (float(half), float(quarter)) == pytest.approx((2.0 * float(compute), 4.0 * float(memory)))


@pytest.mark.parametrize("kind", OperatorKind)
def test_every_kind_of_operator_follows_its_units_and_has_a_floor(kind):
    """Twice the rate of the units that run it halves its compute time; no kernel is shorter than the floor."""
    work = matmul_work(4096.0, 4096.0, 4096.0, 1.0, ELEMENT)
    faster = dataclasses.replace(
        ACCELERATOR,
        vector_rate=2.0 * ACCELERATOR.vector_rate,
        matrix_rate=dataclasses.replace(ACCELERATOR.matrix_rate, bf16=2.0 * ACCELERATOR.matrix_rate.bf16),
    )
    slow, fast = (rates_of(one, BF16, SOFTWARE) for one in (ACCELERATOR, faster))
    whole, half = (float(roofline.compute_time(kind, work, rates)) for rates in (slow, fast))
    assert half == pytest.approx(0.5 * whole)
    assert float(roofline.kernel_time(kind, Work(0.0, 0.0), slow)) >= 0.999 * ACCELERATOR.kernels.kernel_floor


def test_a_narrow_recipe_leaves_the_attention_core_in_16_bits():
    work = matmul_work(4096.0, 4096.0, 4096.0, 1.0, ELEMENT)
    rates = rates_of(ACCELERATOR, float(Precision.fp8))
    narrow, wide = (
        float(roofline.compute_time(kind, work, rates)) for kind in (OperatorKind.matrix, OperatorKind.matrix_16)
    )
    assert wide == pytest.approx(2.0 * narrow)


def test_a_stack_scales_flash_attention_apart_from_other_matrices():
    stack = dataclasses.replace(SOFTWARE, flash_slowdown=1.5)
    work = matmul_work(4096.0, 4096.0, 4096.0, 1.0, ELEMENT)
    own_rates, plain_rates = (rates_of(ACCELERATOR, BF16, software) for software in (stack, SOFTWARE))
    for kind in OperatorKind:
        own, plain = (float(roofline.kernel_time(kind, work, rates)) for rates in (own_rates, plain_rates))
        assert own == pytest.approx(plain * (1.5 if kind in (OperatorKind.flash, OperatorKind.context) else 1.0))
