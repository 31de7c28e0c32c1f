"""Bytes of number formats: matrix operands, activations, optimiser state."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import choose
from dse.types import Precision, Scalar


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


def activation_bytes(precision: Scalar) -> Scalar:
    """Bytes of one activation: 4 in fp32 and tf32 training, 2 in every mixed-precision recipe."""
    full = (precision == float(Precision.fp32)) | (precision == float(Precision.tf32))
    return jnp.where(full, 4.0, 2.0)


def optimizer_bytes(precision: Scalar) -> Scalar:
    """Adam state a parameter: two fp32 moments, and an fp32 master copy unless the weights are fp32."""
    return 16.0 - 2.0 * activation_bytes(precision)
