"""Time of one operator on one accelerator: roofline, shape efficiency, kernel floor."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from dse.model.choice import choose
from dse.model.formats import operand_bytes
from dse.types import Accelerator, FineKernels, Operator, Precision, Scalar, Software, Steps, Work

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


def sixteen_bit_rate(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Rate of what a recipe leaves in 16 bits: fp16 in fp16 training and where bf16 is missing, else bf16."""
    rate = accelerator.matrix_rate
    half = (precision == float(Precision.fp16)) | (rate.bf16 <= 0.0)
    return jnp.maximum(jnp.where(half, rate.fp16, rate.bf16), TINY)


def occupied_flops(work: Work, accelerator: Accelerator) -> Scalar:
    """FLOPs of a GEMM as the cores run it: whole tiles, whole waves, and filling the pipeline of each tile.

    ``2 tm tn (k + k0) (tiles + w idle)``: ``tiles = ceil(m/tm) ceil(n/tn)`` run in waves over the cores; of the
    ``idle`` cores in the last wave a share ``w`` is lost (the rest is won back by split-k and smaller
    tiles); ``k0`` is the inner dimension at which half of the time goes into the fill.
    """
    kernels = accelerator.kernels
    tiles = pieces(work.rows, kernels.tile_rows) * pieces(work.columns, kernels.tile_columns) * work.batch
    # Waves keep their own slope, flat between steps: that by the cores is a hardware gradient, and exact.
    idle = accelerator.cores * whole_pieces(tiles, accelerator.cores) - tiles
    a_tile = 2.0 * kernels.tile_rows * kernels.tile_columns * (work.depth + kernels.matrix_depth)
    return a_tile * (tiles + kernels.wave_quantization * idle)


def whole_pieces(whole: Scalar, piece: Scalar) -> Scalar:
    """``ceil(whole / piece)`` of whole numbers, without a division for each ``whole``; exact below 2^21.

    The reciprocal is made smaller by four roundings, so that a whole multiple never counts one piece more.
    """
    return jnp.ceil(whole * (reciprocal(piece) * (1.0 - 2.0**-21)))


def pieces(whole: Scalar, piece: Scalar) -> Scalar:
    """The same with the slope of ``whole / piece`` by ``whole``: narrower shards are less work (see ``ceiling``)."""
    slope = jax.lax.stop_gradient(reciprocal(piece))
    return whole_pieces(whole, piece) + slope * (whole - jax.lax.stop_gradient(whole))


def _fine_matrix_time(
    work: Work, accelerator: Accelerator, fine: FineKernels, rate: Scalar, operand: Scalar
) -> Scalar:
    """Seconds of a GEMM alone on cores that reach ``rate`` together: the better of whole and quarter tiles.

    A quarter tile of ``r x c`` reuses its operands less: each unit of k takes ``(r + c) operand / feed`` more.
    """
    kernels = accelerator.kernels
    rows, columns = kernels.tile_rows, kernels.tile_columns
    unit = 2.0 * rows * columns * accelerator.cores / rate
    quarter = 0.25 * unit + 0.5 * (rows + columns) * operand / fine.feed
    whole = _tiled_time(work, accelerator, fine, (rows, columns), unit)
    return jnp.minimum(whole, _tiled_time(work, accelerator, fine, (0.5 * rows, 0.5 * columns), quarter))


def _tiled_time(
    work: Work, accelerator: Accelerator, fine: FineKernels, tile: tuple[Scalar, Scalar], unit: Scalar
) -> Scalar:
    """Seconds of a GEMM in tiles of one size, of which a core takes ``unit`` seconds for a unit of k.

    ``W unit k / s + c (s - 1)`` for ``W`` waves over the cores, at least one. Splitting k over ``s`` cores
    costs ``c`` a split, so that ``s = sqrt(unit k / c)`` is best, as far as cores are idle (Osama et al., PPoPP
    2023, on work-centric decomposition).
    """
    load = pieces(work.rows, tile[0]) * pieces(work.columns, tile[1]) * work.batch / accelerator.cores
    waves = jnp.maximum(load + accelerator.kernels.wave_quantization * (jnp.ceil(load) - load), 1.0)
    whole = unit * work.depth
    splits = jnp.clip(jnp.sqrt(whole / fine.split_time), 1.0, jnp.maximum(1.0 / load, 1.0))
    return waves * whole / splits + fine.split_time * (splits - 1.0)


def shape_efficiency(work: Work, accelerator: Accelerator) -> Scalar:
    """Share of the matrix rate that tile and wave quantisation and a shallow inner dimension leave."""
    return work.flops / occupied_flops(work, accelerator)


def step_efficiency(size: Scalar, steps: Steps) -> Scalar:
    """Share of the peak at ``size``: that of the largest step that ``size`` reaches, no interpolation."""
    share = steps[0][1]
    for least, reached in steps[1:]:
        share = jnp.where(size >= least, reached, share)
    return share


def compute_time(kind: str, work: Work, accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Seconds of a kernel of this kind and shape when compute bounds it."""
    time = smooth_time(kind, work, accelerator, precision)
    steps = accelerator.kernels.steps
    if steps is None:
        return time
    return time / step_efficiency(work.flops, steps.vector if kind == "vector" else steps.matrix)


def smooth_time(kind: str, work: Work, accelerator: Accelerator, precision: Scalar) -> Scalar:
    """The same by the efficiencies that vary smoothly with the shape."""
    kernels = accelerator.kernels
    if kind == "vector":
        return work.flops * reciprocal(accelerator.vector_rate * kernels.vector_efficiency)
    peak = jnp.maximum(matrix_rate(accelerator, precision), TINY)
    if kind != "matrix":  # what a narrower recipe leaves in 16 bits
        peak = jnp.minimum(peak, sixteen_bit_rate(accelerator, precision))
    if kind == "flash":
        ramp = 1.0 + kernels.flash_sequence / work.rows
        return work.flops * ramp * reciprocal(peak * kernels.flash_efficiency)
    if kernels.fine is not None:
        rate = peak * kernels.matrix_efficiency
        return _fine_matrix_time(work, accelerator, kernels.fine, rate, operand_bytes(precision))
    return occupied_flops(work, accelerator) * reciprocal(peak * kernels.matrix_efficiency)


def reciprocal(rate: Scalar) -> Scalar:
    """One over what many kernels or messages share: divided once a design, where each one's own division is not."""
    return 1.0 / rate


def roofline_terms(kind: str, work: Work, accelerator: Accelerator, precision: Scalar) -> tuple[Scalar, Scalar]:
    """Compute time and memory time of one kernel in seconds, before they are combined."""
    return compute_time(kind, work, accelerator, precision), memory_time(work.bytes, accelerator)


def memory_time(size: Scalar, accelerator: Accelerator) -> Scalar:
    """Seconds that one kernel takes to move ``size`` bytes through device memory."""
    time = size * reciprocal(accelerator.memory.bandwidth * accelerator.kernels.memory_efficiency)
    steps = accelerator.kernels.steps
    return time if steps is None else time / step_efficiency(size, steps.memory)


def combine(compute: Scalar, memory: Scalar, blend: Scalar) -> Scalar:
    """Roofline of two resources: ``max + kappa min``.

    ``kappa = 0`` is the perfect roofline, 1 no overlap; ``kappa = 2^(1/q) - 1`` meets the p-norm of
    order ``q`` at the ridge, at a fortieth of the cost of a power.
    """
    return jnp.maximum(compute, memory) + blend * jnp.minimum(compute, memory)


def overlapped(longer: Scalar, shorter: Scalar, blend: Scalar) -> Scalar:
    """Two resources that overlap but near the ridge: ``max + kappa min^2 / max``, whichever is longer."""
    most, least = jnp.maximum(longer, shorter), jnp.minimum(longer, shorter)
    return most + blend * least * least / jnp.maximum(most, 1e-12)


def isolated_time(
    kind: str, work: Work, accelerator: Accelerator, precision: Scalar, backward: bool = False
) -> Scalar:
    """Seconds of one kernel alone, without its floor; as measured where the accelerator has fine kernels."""
    kernels = accelerator.kernels
    compute, memory = roofline_terms(kind, work, accelerator, precision)
    if kind == "flash" and backward:
        compute = compute * kernels.flash_backward
    if kernels.fine is None or kind != "matrix":
        return combine(compute, memory, kernels.roofline_blend)
    written = memory_time(2.0 * work.rows * work.columns * work.batch, accelerator)
    return overlapped(compute, memory, kernels.roofline_blend) + kernels.fine.output_overhead * written


def kernel_time(
    kind: str, work: Work | None, accelerator: Accelerator, software: Software, precision: Scalar,
    backward: bool = False,
) -> Scalar:  # fmt: skip
    """Time of one kernel in a training step in seconds: roofline, slow-down against isolation, floor."""
    if work is None:
        return 0.0
    slowdown = software.elementwise_slowdown if kind == "vector" else software.matrix_slowdown
    return slowdown * isolated_time(kind, work, accelerator, precision, backward) + accelerator.kernels.kernel_floor


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
