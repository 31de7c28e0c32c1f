"""Recipes of number formats: operand bytes, matrix rate and casts of each precision, as plain data."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from dse.types import Precision


class Block(Enum):
    """Blocks with scales applied by matrix units: OCP MX (32 elements), NVFP4 (16)."""

    mx = "OCP MX"
    nvfp4 = "NVFP4"


class Recipe(NamedTuple):
    """Number formats of a precision by class of tensor.

    Attention, head, router, norms and messages stay at 16 bits under every recipe with narrower operands, and the
    optimiser keeps two moments, in fp32 unless ``software.moment_bytes`` states otherwise, and an fp32 master copy
    unless it updates weights of ``software.parameter_bytes`` in place (Micikevicius et al. 2018, 2022).

    Attributes:
        rate: field of ``MatrixRate`` with the rate and the energy per FLOP of products.
        operand: bytes per element of a matrix operand.
        scales: bytes of its share of the scales.
        efficiency: share of the peak that products reach, over that of 8-bit and wider ones of the same shape.
        sixteen_bit: share of the layers with products in 16 bits.
        reads: reads of the 16-bit tensor per cast: 2 where one scale covers the whole tensor.
        block: blocks scaled by matrix units; None where kernels scale.
        transposed_casts: 1 where a training step casts transposed operands apart and scales gradients after
            their products.
        training_efficiency: share of the rate of products that a training step reaches, over that of an engine's; the
            chips' shares by format (``kernels.sustained_4``) hold what training loses in 4 bits.
    """

    rate: str
    operand: float
    scales: float = 0.0
    efficiency: float = 1.0
    sixteen_bit: float = 0.0
    reads: float = 1.0
    block: Block | None = None
    transposed_casts: float = 0.0
    training_efficiency: float = 1.0


#: 4-bit products of large GEMMs on B200 reach 0.38 of their peak, block-scaled 8-bit ones 0.43 (GEMM tables of
#: ai-dynamo/aiconfigurator, all sizes above 2,048).
_FOUR_BIT = 0.875

#: Rate of products with a scale a row over that of products with a scale a tensor, in a training step: CUTLASS kernels
#: of PyTorch beside those of cuBLAS. No table has them alone. The number is fitted to two throughputs over bf16, 0.85
#: of Llama-3-8B on 64 and 1.00 of Llama-3-70B on 256 H100 with tp 8 (pytorch/torchtitan,
#: benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md), for which the casts alone leave 1.01 and 1.23.
_BY_ROW = 0.57

#: Rate of products of MX blocks over that of products with a scale a tensor, in a training step: Llama-3-8B on B200,
#: GB200 and GB300 in both (Megatron-Bridge 25.09 and 25.11), whose steps are 2 to 6 % apart; casts are modelled.
_BY_MX_BLOCK = 0.95

#: Precision → recipe. Blocks: 128 elements share an fp32 (DeepSeek-AI 2024), 32 a byte (OCP MX 1.0), 16 a byte and all
#: an fp32 (NVFP4, whose last four layers of eighty stay in 16 bits: NVIDIA 2025, arXiv 2509.25149; Megatron-Bridge).
RECIPES = {
    Precision.fp32: Recipe("fp32", 4.0),
    Precision.tf32: Recipe("tf32", 4.0),
    Precision.bf16: Recipe("bf16", 2.0),
    Precision.fp16: Recipe("fp16", 2.0),
    Precision.fp8: Recipe("fp8", 1.0),
    Precision.fp8_block: Recipe("fp8", 1.0, 4.0 / 128.0),
    Precision.fp4: Recipe("fp4", 0.5, 1.0 / 16.0),
    Precision.int8: Recipe("int8", 1.0),
    Precision.int4: Recipe("int4", 0.5),
    Precision.fp8_row: Recipe("fp8", 1.0, transposed_casts=1.0, training_efficiency=_BY_ROW),
    Precision.mxfp8: Recipe("fp8", 1.0, 1.0 / 32.0, block=Block.mx, training_efficiency=_BY_MX_BLOCK),
    Precision.nvfp4: Recipe(
        "fp4", 0.5, 1.0 / 16.0, _FOUR_BIT, 0.05, reads=2.0, block=Block.nvfp4, training_efficiency=1.0 / _FOUR_BIT
    ),
    Precision.mxfp4: Recipe("fp4", 0.5, 1.0 / 32.0, _FOUR_BIT, block=Block.mx),
}
