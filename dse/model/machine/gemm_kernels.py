"""Time of single GEMMs as benchmarks measure them, with the quantisation of their activation.

They need the accelerator's ``kernels.fine``; training steps do without.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import required
from dse.model.machine.overlap import overlapped
from dse.model.machine.rates import rates_of
from dse.model.machine.roofline import isolated_time, memory_time
from dse.types import Accelerator, OperatorKind, Precision, Scalar, Work

#: Rows up to which, and blocks in which, block-scaled GEMMs have kernels of their own.
FEW_ROWS, BLOCK = 32.0, 128.0
#: Seconds that a split of k costs in 8- and 4-bit GEMMs, whose libraries do not split it: none pays.
NO_SPLIT = 1.0


class Gemm(NamedTuple):
    """One GEMM of one device: its work (``rows x depth`` times ``depth x columns``) and number format."""

    work: Work
    precision: Scalar

    @property
    def narrow(self) -> Scalar:
        """1 for the 8- and 4-bit formats, to which an activation is quantised first."""
        eight = (self.precision == float(Precision.fp8)) | (self.precision == float(Precision.fp8_block))
        return jnp.where(eight | (self.precision == float(Precision.fp4)), 1.0, 0.0)

    @property
    def quantized_bytes(self) -> Scalar:
        """Bytes that turning a 16-bit activation into a narrower one moves: it is read and written."""
        return 3.0 * self.work.rows * self.work.depth


def gemm_time(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Seconds of a GEMM in short runs, at the clock of the accelerator's rates."""
    return launched(device_time(gemm, accelerator), gemm, accelerator)


def device_time(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Seconds of a GEMM and of quantising its activation, as far as the device works on them."""
    rates = rates_of(_adjusted(accelerator, gemm.narrow), gemm.precision)
    time = isolated_time(OperatorKind.matrix, gemm.work, rates) + accelerator.kernels.kernel_floor
    return time + gemm.narrow * quantize_time(gemm, accelerator)


def launched(time: Scalar, gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """The same with the host's launch, which a block-scaled GEMM may have to wait for."""
    blocks = gemm.precision == float(Precision.fp8_block)
    return jnp.where(blocks, overlapped(time, block_launch(gemm.work, accelerator), 0.15), time)


def quantize_time(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Seconds to turn a 16-bit activation into a narrower one.

    A scale for a whole row needs all of the row first; one for a block of it does not.
    """
    fine = required(accelerator.kernels.fine, "kernels.fine")
    a_row = jnp.where(gemm.precision == float(Precision.fp8), fine.quantize_row, 0.0)
    return fine.quantize_floor + a_row * gemm.work.rows + memory_time(gemm.quantized_bytes, accelerator)


def block_launch(work: Work, accelerator: Accelerator) -> Scalar:
    """Seconds that the host needs to launch a block-scaled GEMM; the device waits for what is longer."""
    fine = required(accelerator.kernels.fine, "kernels.fine")
    odd = (jnp.mod(work.depth, BLOCK) > 0.0) | (jnp.mod(work.columns, 0.5 * BLOCK) > 0.0)
    whole = jnp.where(work.rows <= FEW_ROWS, fine.block_floor_few, fine.block_floor)
    return jnp.where(odd, fine.block_floor_odd, whole)


def _adjusted(accelerator: Accelerator, narrow: Scalar) -> Accelerator:
    """The accelerator with kernels of 8- and 4-bit formats where ``narrow`` is 1."""
    kernels, fine = accelerator.kernels, required(accelerator.kernels.fine, "kernels.fine")
    own = dataclasses.replace(
        kernels,
        matrix_efficiency=kernels.matrix_efficiency * (1.0 + narrow * (fine.narrow_efficiency - 1.0)),
        fine=dataclasses.replace(fine, split_time=fine.split_time + narrow * NO_SPLIT),
    )
    return dataclasses.replace(accelerator, kernels=own)

