"""Time of one operator on one accelerator: roofline, shape efficiency, kernel floor."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import choose
from dse.model.operators import Operator, Work
from dse.types import Accelerator, Precision, Scalar, Software, Steps

#: A rate or size that is missing is replaced by this, so that nothing divides by zero;
#: the design is then flagged infeasible.
TINY = 1.0


def matrix_rate(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Dense matrix rate at ``precision`` in FLOP/s; 0 where the accelerator has none."""
    rate = accelerator.matrix_rate
    by_code = {
        Precision.fp32: rate.fp32,
        Precision.tf32: rate.tf32,
        Precision.bf16: rate.bf16,
        Precision.fp16: rate.fp16,
        Precision.fp8: rate.fp8,
        Precision.fp8_block: rate.fp8,
        Precision.fp4: rate.fp4,
        Precision.int8: rate.int8,
        Precision.int4: rate.int4,
    }
    return choose(precision, by_code)


def operand_bytes(precision: Scalar) -> Scalar:
    """Bytes of one matrix operand; block formats carry their shared scales (1 fp32 a 128, 1 byte a 16)."""
    by_code = {
        Precision.fp32: 4.0,
        Precision.tf32: 4.0,
        Precision.bf16: 2.0,
        Precision.fp16: 2.0,
        Precision.fp8: 1.0,
        Precision.fp8_block: 1.0 + 4.0 / 128.0,
        Precision.fp4: 0.5 + 1.0 / 16.0,
        Precision.int8: 1.0,
        Precision.int4: 0.5,
    }
    return choose(precision, by_code)


def shape_efficiency(work: Work, accelerator: Accelerator) -> Scalar:
    """Share of the matrix rate left by tile and wave quantisation and by a shallow inner dimension.

    ``tiles = ceil(m/tm) ceil(n/tn)`` output tiles run in waves over the cores; a share
    ``wave_quantization`` of the idle cores in the last wave is lost (the rest is won back by
    split-k and smaller tiles); the pipeline of a tile fills over ``k``: ``k / (k + k0)``.
    """
    kernels = accelerator.kernels
    tiles_down = jnp.ceil(work.rows / kernels.tile_rows)
    tiles_across = jnp.ceil(work.columns / kernels.tile_columns)
    in_tile = work.rows * work.columns / (tiles_down * kernels.tile_rows * tiles_across * kernels.tile_columns)
    tiles = tiles_down * tiles_across * work.batch
    cores_per_tile = jnp.ceil(tiles / accelerator.cores) * accelerator.cores / tiles
    in_wave = 1.0 / (1.0 + kernels.wave_quantization * (cores_per_tile - 1.0))
    in_depth = work.depth / (work.depth + kernels.matrix_depth)
    return in_tile * in_wave * in_depth


def step_efficiency(size: Scalar, steps: Steps) -> Scalar:
    """Share of the peak at ``size``: that of the largest step that ``size`` reaches, no interpolation."""
    share = steps[0][1]
    for least, reached in steps[1:]:
        share = jnp.where(size >= least, reached, share)
    return share


def compute_rate(kind: str, work: Work, accelerator: Accelerator, precision: Scalar) -> Scalar:
    """FLOP/s that a kernel of this kind and shape reaches when compute bounds it."""
    rate = smooth_rate(kind, work, accelerator, precision)
    steps = accelerator.kernels.steps
    if steps is None:
        return rate
    return rate * step_efficiency(work.flops, steps.vector if kind == "vector" else steps.matrix)


def smooth_rate(kind: str, work: Work, accelerator: Accelerator, precision: Scalar) -> Scalar:
    """FLOP/s by the efficiencies that vary smoothly with the shape."""
    kernels = accelerator.kernels
    if kind == "vector":
        return accelerator.vector_rate * kernels.vector_efficiency
    peak = jnp.maximum(matrix_rate(accelerator, precision), TINY)
    if kind == "matrix":
        return peak * kernels.matrix_efficiency * shape_efficiency(work, accelerator)
    sixteen_bit = jnp.maximum(jnp.maximum(accelerator.matrix_rate.bf16, accelerator.matrix_rate.fp16), TINY)
    peak = jnp.minimum(peak, sixteen_bit)
    if kind == "matrix_16":
        return peak * kernels.matrix_efficiency * shape_efficiency(work, accelerator)
    ramp = work.rows / (work.rows + kernels.flash_sequence)
    return peak * kernels.flash_efficiency * ramp


def roofline_terms(kind: str, work: Work, accelerator: Accelerator, precision: Scalar) -> tuple[Scalar, Scalar]:
    """Compute time and memory time of one kernel in seconds, before they are combined."""
    compute = work.flops / compute_rate(kind, work, accelerator, precision)
    return compute, memory_time(work.bytes, accelerator)


def memory_time(size: Scalar, accelerator: Accelerator) -> Scalar:
    """Seconds that one kernel takes to move ``size`` bytes through device memory."""
    bandwidth = accelerator.memory.bandwidth * accelerator.kernels.memory_efficiency
    steps = accelerator.kernels.steps
    if steps is not None:
        bandwidth = bandwidth * step_efficiency(size, steps.memory)
    return size / bandwidth


def combine(compute: Scalar, memory: Scalar, blend: Scalar) -> Scalar:
    """Roofline of two resources: ``max + kappa min``.

    ``kappa = 0`` is the perfect roofline, 1 no overlap; ``kappa = 2^(1/q) - 1`` meets the p-norm of
    order ``q`` at the ridge, at a fortieth of the cost of a power.
    """
    return jnp.maximum(compute, memory) + blend * jnp.minimum(compute, memory)


def kernel_time(
    kind: str, work: Work | None, accelerator: Accelerator, software: Software, precision: Scalar,
    backward: bool = False,
) -> Scalar:  # fmt: skip
    """Time of one kernel in a training step in seconds: roofline, slow-down against isolation, floor."""
    if work is None:
        return 0.0
    compute, memory = roofline_terms(kind, work, accelerator, precision)
    if kind == "flash" and backward:
        compute = compute * accelerator.kernels.flash_backward
    slowdown = software.elementwise_slowdown if kind == "vector" else software.matrix_slowdown
    return slowdown * combine(compute, memory, accelerator.kernels.roofline_blend) + accelerator.kernels.kernel_floor


def operator_times(
    operator: Operator, accelerator: Accelerator, software: Software, precision: Scalar
) -> tuple[Scalar, Scalar, Scalar]:
    """Forward, input-gradient and weight-gradient time of an operator in seconds; 0 where it is absent."""

    def timed(work: Work | None, backward: bool) -> Scalar:
        return operator.present * kernel_time(operator.kind, work, accelerator, software, precision, backward)

    return (
        timed(operator.forward, False),
        timed(operator.input_gradient, True),
        timed(operator.weight_gradient, True),
    )
