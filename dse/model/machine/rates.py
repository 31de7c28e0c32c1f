"""What all operators of a design share on a device, computed once: rates, slow-downs, tiles."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose, just_below_reciprocal, min_prefer_first
from dse.model.formats import RECIPES, Block, operand_bytes, trait
from dse.types import Accelerator, Design, FineKernels, Kernels, OperatorKind, Precision, Scalar, Software, Steps

#: A rate or size that is missing is replaced by this, so that nothing divides by zero;
#: the design is then flagged infeasible.
TINY = 1.0


#: FLOP/s that utilisation is a share of where there is no such rate: a step at ``TINY`` FLOP/s uses nothing of it.
ANY_PEAK = 1e15


def reciprocal(rate: Scalar) -> Scalar:
    """One over what many kernels or messages share: divided once a design, where each one's own division is not."""
    return 1.0 / rate


def matrix_rate(accelerator: Accelerator, precision: Scalar, missing: Scalar = 0.0) -> Scalar:
    """Dense matrix rate at ``precision`` in FLOP/s; ``missing`` where it is :func:`unsupported`."""
    return jnp.where(unsupported(accelerator, precision), missing, _listed_rate(accelerator, precision))


def _listed_rate(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Dense matrix rate of a recipe's operands in FLOP/s, whether or not their blocks can be scaled; 0 for none."""
    rates = accelerator.matrix_rate
    by_code: dict[Precision, Scalar] = {code: getattr(rates, recipe.rate) for code, recipe in RECIPES.items()}
    return choose(precision, by_code)


def unsupported(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Whether matrix units do not multiply operands of ``precision``, or do not scale the blocks that it has.

    A recipe with narrower operands leaves attention and head in 16 bits, which must run too. Scales of blocks of OCP
    MX are applied by units that also multiply 4-bit elements (Blackwell, CDNA4), those of NVFP4 by some of them; blocks
    of DeepSeek's fp8 are scaled by kernels on any chip of fp8.
    """
    lacks = {Block.mx: accelerator.matrix_rate.fp4 <= 0.0, Block.nvfp4: accelerator.nvfp4 <= 0.0}
    unscaled = [(precision == float(code)) & lacks[r.block] for code, r in RECIPES.items() if r.block is not None]
    is_narrow = operand_bytes(precision) < RECIPES[Precision.bf16].operand
    without = is_narrow & (_rate_of_16_bits(accelerator, precision) <= 0.0)
    missing = (_listed_rate(accelerator, precision) <= 0.0) | without
    return functools.reduce(operator.or_, unscaled, missing)


def sixteen_bit_rate(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Rate of what a recipe leaves in 16 bits: fp16 in fp16 training and where bf16 is missing, else bf16.

    Where neither is there, what is left is multiplied as the rest of the recipe is.
    """
    found = _rate_of_16_bits(accelerator, precision)
    return jnp.where(found > 0.0, found, matrix_rate(accelerator, precision, TINY))


def _rate_of_16_bits(accelerator: Accelerator, precision: Scalar) -> Scalar:
    rate = accelerator.matrix_rate
    half = (precision == float(Precision.fp16)) | (rate.bf16 <= 0.0)
    return jnp.where(half, rate.fp16, rate.bf16)


class Unit(NamedTuple):
    """How a device runs operators of one kind.

    Attributes:
        flop_time: seconds of one FLOP of a large operator.
        slowdown: time in a training step over that of the kernel alone.
        floor: shortest time in a training step.
        steps: efficiencies in steps of an operator's FLOPs, where the device has them.
        fine: what single GEMMs show beyond a smooth efficiency, where the device has it and the kind is theirs.
    """

    flop_time: Scalar
    slowdown: Scalar
    floor: Scalar
    steps: Steps | None
    fine: FineKernels | None = None


class Rates(NamedTuple):
    """What the operators of a design share on its device.

    Attributes:
        units: how it runs each kind of operator.
        byte_time: seconds of one byte of device memory.
        operand_bytes: bytes of one operand of the recipe's matrices.
        kernels, cores: the device's own.
        tile_flops: FLOPs of an output tile for one element of the inner dimension.
        row_tiles, column_tiles, core_waves: tiles of one row and column of a product, waves of one tile over the
            cores: just below the reciprocals, so that ``ceil`` of a multiple counts whole ones.
    """

    units: dict[OperatorKind, Unit]
    byte_time: Scalar
    operand_bytes: Scalar
    kernels: Kernels
    cores: Scalar
    tile_flops: Scalar
    row_tiles: Scalar
    column_tiles: Scalar
    core_waves: Scalar


def rates_of(
    accelerator: Accelerator, precision: Scalar, software: Software | None = None, attention: Scalar = 1.0
) -> Rates:
    """Rates of a device under a recipe; without a stack, of kernels alone.

    ``attention``: time of the flash kernel that runs over that of the stack's usual one.
    """
    kernels = accelerator.kernels
    return Rates(
        units=_units(accelerator, precision, software, attention),
        byte_time=byte_time(accelerator),
        operand_bytes=operand_bytes(precision),
        kernels=kernels,
        cores=accelerator.cores,
        tile_flops=2.0 * kernels.tile_rows * kernels.tile_columns,
        row_tiles=just_below_reciprocal(kernels.tile_rows),
        column_tiles=just_below_reciprocal(kernels.tile_columns),
        core_waves=just_below_reciprocal(accelerator.cores),
    )


def step_rates(design: Design) -> Rates:
    """Rates of the operators of a step of ``design``, whose context parallelism may have a flash kernel of its own."""
    m, software = design.mapping, design.software
    attention = jnp.where(m.cp > 1.0, software.cp_flash_slowdown, 1.0)
    return rates_of(design.system.accelerator, m.precision, software, attention)


def byte_time(accelerator: Accelerator) -> Scalar:
    """Seconds of one byte of device memory in a large transfer."""
    return reciprocal(accelerator.memory.bandwidth * accelerator.kernels.memory_efficiency)


def _units(
    accelerator: Accelerator, precision: Scalar, software: Software | None, attention_slowdown: Scalar
) -> dict[OperatorKind, Unit]:
    """How each kind of operator runs.

    Products of a recipe that leaves some layers in 16 bits take the mean over its layers.
    Stacks differ in the flash-attention kernel they call, so its time is scaled apart from other matrices', with
    its floor.
    """
    kernels, floor = accelerator.kernels, accelerator.kernels.kernel_floor
    on_matrix, on_vector = (kernels.steps.matrix, kernels.steps.vector) if kernels.steps else (None, None)
    peak = matrix_rate(accelerator, precision, TINY)
    sixteen = min_prefer_first(sixteen_bit_rate(accelerator, precision), peak)
    matrix, vector, flash = (1.0, 1.0, 1.0) if software is None else (
        software.matrix_slowdown, software.elementwise_slowdown, software.flash_slowdown * attention_slowdown
    )  # fmt: skip
    product, product_16, attention, elements = map(reciprocal, (
        peak * kernels.matrix_efficiency, sixteen * kernels.matrix_efficiency, sixteen * kernels.flash_efficiency,
        accelerator.vector_rate * kernels.vector_efficiency,
    ))  # fmt: skip
    left = trait(precision, lambda recipe: recipe.sixteen_bit)
    product = (1.0 - left) * product / trait(precision, lambda recipe: recipe.efficiency) + left * product_16
    units = {
        OperatorKind.matrix: Unit(product, matrix, floor, on_matrix, kernels.fine),
        OperatorKind.matrix_16: Unit(product_16, matrix, floor, on_matrix, kernels.fine),
        OperatorKind.flash: Unit(attention, flash * matrix, flash * floor, on_matrix),
        OperatorKind.vector: Unit(elements, vector, floor, on_vector),
    }
    if software is not None and software.experts is not None:
        grouped = product / software.experts.grouped_efficiency
        units[OperatorKind.grouped] = Unit(grouped, matrix, floor, on_matrix, kernels.fine)
    return units
