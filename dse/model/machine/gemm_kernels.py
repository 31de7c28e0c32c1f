"""Time of isolated GEMMs as benchmarks measure them, with the quantisation of their activation.

Needs the accelerator's ``kernels.fine``, which engines use too, and training steps do not.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import required
from dse.model.machine.overlap import overlapped
from dse.model.machine.rates import rates_of, with_isolated_kernels
from dse.model.machine.roofline import isolated_time, memory_time
from dse.types import Accelerator, OperatorKind, Precision, Scalar, Work

#: Rows of block-scaled GEMMs with kernels of their own: upper limit, and block.
FEW_ROWS, BLOCK = 32.0, 128.0
#: Split time of 8- and 4-bit GEMMs, s: their libraries do not split k.
NO_SPLIT = 1.0


class Gemm(NamedTuple):
    """One GEMM of one device: work (``rows x depth`` times ``depth x columns``) and number format."""

    work: Work
    precision: Scalar

    @property
    def narrow(self) -> Scalar:
        """1 for the 8- and 4-bit formats, which quantise their activation first."""
        eight = (self.precision == float(Precision.fp8)) | (self.precision == float(Precision.fp8_block))
        return jnp.where(eight | (self.precision == float(Precision.fp4)), 1.0, 0.0)

    @property
    def quantized_bytes(self) -> Scalar:
        """Bytes read and written to quantise a 16-bit activation."""
        return 3.0 * self.work.rows * self.work.depth


def gemm_time(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Return the time of a GEMM in short runs at the clock of the accelerator's rates, s."""
    return with_host_launch(device_time(gemm, accelerator), gemm, accelerator)


def device_time(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Return the device time of a GEMM and of the quantisation of its activation, s."""
    isolated = _adjusted(with_isolated_kernels(accelerator), gemm.narrow)
    rates = rates_of(isolated, gemm.precision, fine=isolated.kernels.fine)
    time = isolated_time(OperatorKind.matrix, gemm.work, rates) + isolated.kernels.kernel_floor
    return time + gemm.narrow * quantize_time(gemm, accelerator)


def with_host_launch(time: Scalar, gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Return the time with the host's launch, which may exceed the device time of a block-scaled GEMM, s."""
    is_block_scaled = gemm.precision == float(Precision.fp8_block)
    return jnp.where(is_block_scaled, overlapped(time, block_launch(gemm.work, accelerator), 0.15), time)


def quantize_time(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Return the time to quantise a 16-bit activation, s.

    A scale per row needs the whole row first, one per block does not.
    """
    fine = required(accelerator.kernels.fine, "kernels.fine")
    row_time = jnp.where(gemm.precision == float(Precision.fp8), fine.quantize_row, 0.0)
    return (
        fine.quantize_floor
        + row_time * gemm.work.rows
        + memory_time(gemm.quantized_bytes, with_isolated_kernels(accelerator))
    )


def block_launch(work: Work, accelerator: Accelerator) -> Scalar:
    """Return the host time to launch a block-scaled GEMM, s, by its rows and odd sizes."""
    fine = required(accelerator.kernels.fine, "kernels.fine")
    is_odd = (jnp.mod(work.depth, BLOCK) > 0.0) | (jnp.mod(work.columns, 0.5 * BLOCK) > 0.0)
    aligned_launch = jnp.where(work.rows <= FEW_ROWS, fine.block_floor_few, fine.block_floor)
    return jnp.where(is_odd, fine.block_floor_odd, aligned_launch)


def _adjusted(accelerator: Accelerator, narrow: Scalar) -> Accelerator:
    """Return the accelerator with the kernels of 8- and 4-bit formats where ``narrow`` is 1."""
    kernels, fine = accelerator.kernels, required(accelerator.kernels.fine, "kernels.fine")
    adjusted = dataclasses.replace(
        kernels,
        matrix_efficiency=kernels.matrix_efficiency * (1.0 + narrow * (fine.narrow_efficiency - 1.0)),
        fine=dataclasses.replace(fine, split_time=fine.split_time + narrow * NO_SPLIT),
    )
    return dataclasses.replace(accelerator, kernels=adjusted)
