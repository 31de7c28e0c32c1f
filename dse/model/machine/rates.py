"""Common parameters of the operators of a design on its device, computed once: rates, slow-downs, tiles."""

from __future__ import annotations

import dataclasses
import functools
import operator
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose, just_below_reciprocal, min_prefer_first, quotient, times
from dse.model.formats import operand_bytes, trait
from dse.model.machine.die_links import DieLinks, die_links
from dse.model.recipes import RECIPES, Block
from dse.types import (
    MEASURED_ALONE,
    Accelerator,
    Design,
    FineKernels,
    Kernels,
    OperatorKind,
    Precision,
    Scalar,
    Software,
    Steps,
    System,
)

#: Replaces a missing rate or size of a design, which is flagged infeasible, so that nothing divides by zero.
TINY = 1.0


#: FLOP/s for the utilisation of a design without a matrix rate: a step at ``TINY`` FLOP/s has about 0.
ANY_PEAK = 1e15


def reciprocal(rate: Scalar) -> Scalar:
    """Return ``1 / rate`` of a value shared by many kernels or messages, divided once per design."""
    return 1.0 / rate


def matrix_rate(accelerator: Accelerator, precision: Scalar, missing: Scalar = 0.0) -> Scalar:
    """Return the dense matrix rate at ``precision`` in FLOP/s, or ``missing`` where it is :func:`unsupported`.

    Args:
        accelerator: with its rates.
        precision: code of the recipe.
        missing: value where the device has no such rate.
    """
    return jnp.where(unsupported(accelerator, precision), missing, _listed_rate(accelerator, precision))


def _listed_rate(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Return the dense matrix rate of a recipe's operands in FLOP/s without regard to block scales, 0 for none."""
    rates = accelerator.matrix_rate
    by_code: dict[Precision, Scalar] = {code: getattr(rates, recipe.rate) for code, recipe in RECIPES.items()}
    return choose(precision, by_code)


def unsupported(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Return true where matrix units lack ``precision``, its block scales, or 16-bit products for attention and head.

    Block scales of OCP MX need units with 4-bit products (Blackwell, CDNA4), those of NVFP4 some of these; the scales
    of DeepSeek's fp8 blocks are applied by kernels on any chip with fp8.
    """
    lacks_scales = {Block.mx: accelerator.matrix_rate.fp4 <= 0.0, Block.nvfp4: accelerator.nvfp4 <= 0.0}
    unscaled = [
        (precision == float(code)) & lacks_scales[r.block] for code, r in RECIPES.items() if r.block is not None
    ]
    is_narrow = operand_bytes(precision) < RECIPES[Precision.bf16].operand
    lacks_16_bits = is_narrow & (_rate_of_16_bits(accelerator, precision) <= 0.0)
    missing = (_listed_rate(accelerator, precision) <= 0.0) | lacks_16_bits
    return functools.reduce(operator.or_, unscaled, missing)


def sixteen_bit_rate(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Return the FLOP/s of a recipe's 16-bit operators: of fp16 in fp16 training or without bf16, else of bf16.

    Without either, the rate of the recipe's operands.
    """
    rate = _rate_of_16_bits(accelerator, precision)
    return jnp.where(rate > 0.0, rate, matrix_rate(accelerator, precision, TINY))


def _rate_of_16_bits(accelerator: Accelerator, precision: Scalar) -> Scalar:
    """Return the listed rate of 16-bit products in FLOP/s, 0 for none."""
    rate = accelerator.matrix_rate
    half = (precision == float(Precision.fp16)) | (rate.bf16 <= 0.0)
    return jnp.where(half, rate.fp16, rate.bf16)


class Unit(NamedTuple):
    """Parameters of the operators of one kind on a device.

    Attributes:
        flop_time: seconds per FLOP of a large operator.
        slowdown: time in a training step over that of the isolated kernel.
        floor: minimum time in a training step, s.
        steps: stepwise efficiencies by FLOPs, where the device has them.
        fine: parameters of isolated GEMMs beyond a smooth efficiency, where the device has them and for matrices.
        stretch: time of its bytes over that of a large transfer.
        blend: overlap of compute and memory, of kernels that differ from all others.
    """

    flop_time: Scalar
    slowdown: Scalar
    floor: Scalar
    steps: Steps | None
    fine: FineKernels | None = None
    stretch: Scalar = 1.0
    blend: Scalar | None = None


class Rates(NamedTuple):
    """Common parameters of the operators of a design on its device.

    Attributes:
        units: by kind of operator.
        byte_time: seconds per byte of device memory.
        latency: seconds of an access to device memory beyond the kernel floor, of a generated accelerator.
        die_links: links between the dies of a generated accelerator.
        operand_bytes: bytes per operand of the recipe's matrices.
        kernels, cores: those of the device.
        tile_flops: FLOPs of an output tile per unit of the inner dimension.
        row_tiles, column_tiles, core_waves: tiles per row and per column of a product, waves per tile over the cores:
            just below the reciprocals, so that ``ceil`` of an exact multiple does not round up.
    """

    units: dict[OperatorKind, Unit]
    byte_time: Scalar
    latency: Scalar
    die_links: DieLinks | None
    operand_bytes: Scalar
    kernels: Kernels
    cores: Scalar
    tile_flops: Scalar
    row_tiles: Scalar
    column_tiles: Scalar
    core_waves: Scalar


def with_isolated_kernels(accelerator: Accelerator) -> Accelerator:
    """Return the accelerator with kernels as measured alone (``kernels.fine``) in place of those of a training step.

    Unchanged without ``kernels.fine``. A product starts immediately there: what a training step has as ``matrix_depth``
    is in the floor of its launch.
    """
    kernels, fine = accelerator.kernels, accelerator.kernels.fine
    if fine is None:
        return accelerator
    isolated_values = {name: getattr(fine, field) for name, field in MEASURED_ALONE.items()}
    return dataclasses.replace(accelerator, kernels=dataclasses.replace(kernels, matrix_depth=0.0, **isolated_values))


def rates_of(
    accelerator: Accelerator,
    precision: Scalar,
    software: Software | None = None,
    attention: Scalar = 1.0,
    fine: FineKernels | None = None,
    trains: bool = False,
) -> Rates:
    """Return the rates, latencies and kernel parameters of a device under a recipe.

    Without a stack they are those of kernels without its slow-downs.

    Args:
        accelerator: as it is in a training step, or :func:`with_isolated_kernels`.
        precision: recipe.
        software: stack.
        attention: time of the flash kernel over that of the stack's default one.
        fine: terms of GEMMs measured alone.
        trains: whether the products are those of a training step.
    """
    kernels, links = accelerator.kernels, die_links(accelerator)
    return Rates(
        units=_units(accelerator, precision, software, attention, fine, trains),
        byte_time=byte_time(accelerator),
        latency=0.0 if links is None else links.latency,
        die_links=links,
        operand_bytes=operand_bytes(precision),
        kernels=kernels,
        cores=accelerator.cores,
        tile_flops=2.0 * kernels.tile_rows * kernels.tile_columns,
        row_tiles=just_below_reciprocal(kernels.tile_rows),
        column_tiles=just_below_reciprocal(kernels.tile_columns),
        core_waves=just_below_reciprocal(accelerator.cores),
    )


def sustained_shares(kernels: Kernels, precision: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Return the shares of the rates of isolated kernels that training sustains: of products, 16-bit ones, attention.

    Args:
        kernels: of the device.
        precision: recipe.
    """
    width, sixteen = operand_bytes(precision), kernels.sustained_16
    narrow = jnp.where(width < 0.75, kernels.sustained_4, kernels.sustained_8)
    return jnp.where(width < 1.5, narrow, sixteen), sixteen, kernels.sustained_attention


def step_rates(design: Design) -> Rates:
    """Return the rates of a device for the operators of a training step of ``design``.

    Context parallelism may use another flash kernel.
    """
    m, software = design.mapping, design.software
    attention = jnp.where(m.cp > 1.0, software.cp_flash_slowdown, 1.0)
    return rates_of(design.system.accelerator, m.precision, software, attention, trains=True)


def byte_time(accelerator: Accelerator) -> Scalar:
    """Return the seconds per byte of device memory in a large transfer."""
    return reciprocal(accelerator.memory.bandwidth * accelerator.kernels.memory_efficiency)


def host_link_rate(system: System) -> Scalar:
    """Return the B/s of a device on the link to its host: ``bandwidth / link_sharing`` of a shared one."""
    tiers = system.host_tiers
    return system.host.bandwidth if tiers is None else quotient(system.host.bandwidth, tiers.link_sharing)


def _units(
    accelerator: Accelerator,
    precision: Scalar,
    software: Software | None,
    attention_slowdown: Scalar,
    fine: FineKernels | None,
    trains: bool,
) -> dict[OperatorKind, Unit]:
    """Return kind of operator → its parameters; grouped products only in a stack with experts.

    Where a recipe leaves some layers in 16 bits, products take the mean over its layers. The flash kernel differs
    between stacks, so its time and floor are scaled separately.
    """
    kernels, floor = accelerator.kernels, accelerator.kernels.kernel_floor
    on_matrix, on_vector = (kernels.steps.matrix, kernels.steps.vector) if kernels.steps else (None, None)
    peak = matrix_rate(accelerator, precision, TINY)
    sixteen = min_prefer_first(sixteen_bit_rate(accelerator, precision), peak)
    matrix, vector, flash = (
        (1.0, 1.0, 1.0)
        if software is None
        else (software.matrix_slowdown, software.elementwise_slowdown, software.flash_slowdown * attention_slowdown)
    )
    sustained, sustained_16, sustained_attention = sustained_shares(kernels, precision) if trains else (1.0, 1.0, 1.0)
    product, product_16, attention, elements = map(
        reciprocal,
        (
            times(sustained, peak * kernels.matrix_efficiency),
            times(sustained_16, sixteen * kernels.matrix_efficiency),
            times(sustained_attention, sixteen * kernels.flash_efficiency),
            accelerator.vector_rate * kernels.vector_efficiency,
        ),
    )
    training, attention_kernels = Unit(attention, flash, flash * floor, on_matrix), kernels.attention
    prompts = (
        training
        if attention_kernels is None
        else training._replace(
            flop_time=reciprocal(sixteen * attention_kernels.context_efficiency),
            stretch=kernels.memory_efficiency / attention_kernels.context_memory,
            blend=attention_kernels.blend,
        )
    )
    sixteen_bit_share = trait(precision, lambda recipe: recipe.sixteen_bit)
    efficiency = trait(precision, lambda recipe: recipe.efficiency * (recipe.training_efficiency if trains else 1.0))
    product = (1.0 - sixteen_bit_share) * product / efficiency + sixteen_bit_share * product_16
    units = {
        OperatorKind.matrix: Unit(product, matrix, floor, on_matrix, fine),
        OperatorKind.matrix_16: Unit(product_16, matrix, floor, on_matrix, fine),
        OperatorKind.flash: training,
        OperatorKind.context: prompts,
        OperatorKind.vector: Unit(elements, vector, floor, on_vector),
    }
    if software is not None and software.experts is not None:
        grouped = product / software.experts.grouped_efficiency
        units[OperatorKind.grouped] = Unit(grouped, matrix, floor, on_matrix, fine)
    return units
