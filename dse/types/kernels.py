"""Efficiency of kernels relative to a chip's peaks."""

from __future__ import annotations

from dse.types.fields import Scalar, number, positive, positive_share, record, share

#: (least size, share of the peak) of each step, in ascending order of size; at most eight.
Steps = tuple[tuple[Scalar, Scalar], ...]


@record
class EfficiencySteps:
    """Measured efficiencies in steps of the size of one operator, as tables of the field state them.

    An optional part of :class:`Kernels`; without it a design has neither the leaves nor the equations. Each share
    multiplies the efficiency of the same name in :class:`Kernels`.
    """

    matrix: Steps  # by FLOPs of a matrix operator
    vector: Steps  # by FLOPs of an element-wise operator
    memory: Steps  # by bytes that an operator moves


@record
class FineKernels:
    """Isolated GEMMs, an optional part of :class:`Kernels`.

    The first five take the place of those of :class:`Kernels` (:data:`MEASURED_ALONE`), by which training steps are
    timed. Of all these engines have the first four, as their steps run in graphs; the others are of benchmarks.
    """

    gemm_efficiency: Scalar = positive_share("GEMM efficiency, large and deep")
    gemm_waves: Scalar = share("share of idle cores lost in the last wave of a GEMM")
    gemm_memory: Scalar = positive_share("share of memory bandwidth that GEMMs reach")
    gemm_blend: Scalar = share("overlap of compute and memory in a GEMM: 0 perfect, 1 none")
    gemm_floor: Scalar = number("shortest time of a GEMM", "s")
    split_time: Scalar = positive("what one more split of the inner dimension costs", "s")
    tile_feed: Scalar = positive("rate at which quarter tiles get their operands on a core", "B/s")
    output_overhead: Scalar = number("share of the time to write a product that nothing hides")
    narrow_efficiency: Scalar = positive("share of the 8- and 4-bit rates over that of the 16-bit rate")
    quantize_floor: Scalar = number("shortest time of the kernels that quantise an activation", "s")
    quantize_row: Scalar = number("time that one row of an activation adds to them", "s")
    block_floor: Scalar = number("launch of a block-scaled GEMM, host included", "s")
    block_floor_few: Scalar = number("the same of at most 32 rows", "s")
    block_floor_odd: Scalar = number("the same where a weight is no whole number of blocks", "s")


@record
class AttentionKernels:
    """Isolated attention kernels beyond :class:`Kernels`, for whole sequences and for one new token.

    An optional part of :class:`Kernels`. ``context_…``: a whole causal sequence, ``decode_…``: one token over cached
    keys and values.
    """

    context_efficiency: Scalar = positive("share of the matrix rate of wide heads on long sequences")
    context_pair: Scalar = number("time that the exponential of one pair takes on a core", "s")
    context_tile: Scalar = number("start and end of a query tile", "s")
    context_memory: Scalar = positive("share of memory bandwidth that context attention reaches")
    context_floor: Scalar = number("shortest time, launches included", "s")
    context_fp8: Scalar = positive("time of a pair with an fp8 cache over that with a 16-bit one")
    decode_efficiency: Scalar = positive("share of a core's matrix rate of 16 query rows against a cache")
    decode_tile: Scalar = number("start and end of one sequence", "s")
    decode_split: Scalar = positive("what one more split of a sequence costs", "s")
    decode_memory: Scalar = positive("share of memory bandwidth that decode attention reaches")
    decode_floor: Scalar = number("shortest time, launches included", "s")
    grouped_floor: Scalar = number("what rearranging grouped queries adds to it", "s")
    blend: Scalar = number("how far compute and memory of attention fail to overlap at the ridge")
    latent_key: Scalar = number(
        "what one more cached token of a sequence adds to decode over latent attention", "s", default=0.0
    )


@record
class Kernels:
    """Kernel efficiencies of a chip family: few physical parameters, fitted to kernel rows.

    The ``sustained_…`` are of training steps alone: what the clock under the power limit as sold, and kernels of all
    kinds in turn, leave of the rates of kernels alone. They are the chip's, by format; all stacks share them.
    """

    matrix_efficiency: Scalar = positive_share("GEMM efficiency, large and deep")
    matrix_depth: Scalar = number("inner dimension at half GEMM efficiency", symbol="k0")
    tile_rows: Scalar = positive("rows of a GEMM output tile")
    tile_columns: Scalar = positive("columns of a GEMM output tile")
    wave_quantization: Scalar = share("share of idle cores lost in the last wave")
    vector_efficiency: Scalar = positive_share("element-wise efficiency, share of the vector rate")
    memory_efficiency: Scalar = positive_share("memory efficiency, large transfers")
    roofline_blend: Scalar = share("overlap of compute and memory: 0 perfect, 1 none", symbol="kappa")
    kernel_floor: Scalar = number("minimum kernel time", "s")
    flash_efficiency: Scalar = positive_share("flash-attention efficiency, long sequences")
    flash_sequence: Scalar = number("sequence length at half flash-attention efficiency", symbol="s0")
    flash_backward: Scalar = positive("flash-attention time per FLOP, backward over forward")
    flash_least_head: Scalar = positive(
        "head size below which exponentials limit flash attention", default=1.0, symbol="d0"
    )
    sustained_16: Scalar = positive_share(
        "share of the rate of isolated 16-bit products that training sustains", default=1.0
    )
    sustained_8: Scalar = positive_share(
        "share of the rate of isolated 8-bit products that training sustains", default=1.0
    )
    sustained_4: Scalar = positive_share(
        "share of the rate of isolated 4-bit products that training sustains", default=1.0
    )
    sustained_attention: Scalar = positive_share(
        "share of the rate of flash attention that training sustains", default=1.0
    )
    steps: EfficiencySteps | None = None
    fine: FineKernels | None = None
    attention: AttentionKernels | None = None


#: Leaf of :class:`Kernels` → that of :class:`FineKernels` in its place, of kernels measured alone.
MEASURED_ALONE = {
    "matrix_efficiency": "gemm_efficiency",
    "wave_quantization": "gemm_waves",
    "memory_efficiency": "gemm_memory",
    "roofline_blend": "gemm_blend",
    "kernel_floor": "gemm_floor",
}

#: Leaf of kernels measured alone, within :class:`Kernels` → that of a training step, which a chip states for both.
SHARED_KERNEL_LEAVES = {f"fine.{measured}": name for name, measured in MEASURED_ALONE.items()} | {
    "attention.context_efficiency": "flash_efficiency",
    "attention.context_memory": "memory_efficiency",
    "attention.decode_memory": "memory_efficiency",
}
