"""Efficiency of kernels relative to a chip's peaks."""

from __future__ import annotations

from dse.types.fields import POSITIVE, POSITIVE_SHARE, SHARE, Scalar, metadata, record

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

    gemm_efficiency: Scalar = metadata("", "1", "GEMM efficiency, large and deep", bounds=POSITIVE_SHARE)
    gemm_waves: Scalar = metadata("", "1", "share of idle cores lost in the last wave of a GEMM", bounds=SHARE)
    gemm_memory: Scalar = metadata("", "1", "share of memory bandwidth that GEMMs reach", bounds=POSITIVE_SHARE)
    gemm_blend: Scalar = metadata("", "1", "overlap of compute and memory in a GEMM: 0 perfect, 1 none", bounds=SHARE)
    gemm_floor: Scalar = metadata("", "s", "shortest time of a GEMM")
    split_time: Scalar = metadata("", "s", "what one more split of the inner dimension costs", bounds=POSITIVE)
    tile_feed: Scalar = metadata("", "B/s", "rate at which quarter tiles get their operands on a core", bounds=POSITIVE)
    output_overhead: Scalar = metadata("", "1", "share of the time to write a product that nothing hides")
    narrow_efficiency: Scalar = metadata(
        "", "1", "share of the 8- and 4-bit rates over that of the 16-bit rate", bounds=POSITIVE
    )
    quantize_floor: Scalar = metadata("", "s", "shortest time of the kernels that quantise an activation")
    quantize_row: Scalar = metadata("", "s", "time that one row of an activation adds to them")
    block_floor: Scalar = metadata("", "s", "launch of a block-scaled GEMM, host included")
    block_floor_few: Scalar = metadata("", "s", "the same of at most 32 rows")
    block_floor_odd: Scalar = metadata("", "s", "the same where a weight is no whole number of blocks")


@record
class AttentionKernels:
    """Isolated attention kernels beyond :class:`Kernels`, for whole sequences and for one new token.

    An optional part of :class:`Kernels`. ``context_…``: a whole causal sequence, ``decode_…``: one token over cached
    keys and values.
    """

    context_efficiency: Scalar = metadata(
        "", "1", "share of the matrix rate of wide heads on long sequences", bounds=POSITIVE
    )
    context_pair: Scalar = metadata("", "s", "time that the exponential of one pair takes on a core")
    context_tile: Scalar = metadata("", "s", "start and end of a query tile")
    context_memory: Scalar = metadata(
        "", "1", "share of memory bandwidth that context attention reaches", bounds=POSITIVE
    )
    context_floor: Scalar = metadata("", "s", "shortest time, launches included")
    context_fp8: Scalar = metadata(
        "", "1", "time of a pair with an fp8 cache over that with a 16-bit one", bounds=POSITIVE
    )
    decode_efficiency: Scalar = metadata(
        "", "1", "share of a core's matrix rate of 16 query rows against a cache", bounds=POSITIVE
    )
    decode_tile: Scalar = metadata("", "s", "start and end of one sequence")
    decode_split: Scalar = metadata("", "s", "what one more split of a sequence costs", bounds=POSITIVE)
    decode_memory: Scalar = metadata(
        "", "1", "share of memory bandwidth that decode attention reaches", bounds=POSITIVE
    )
    decode_floor: Scalar = metadata("", "s", "shortest time, launches included")
    grouped_floor: Scalar = metadata("", "s", "what rearranging grouped queries adds to it")
    blend: Scalar = metadata("", "1", "how far compute and memory of attention fail to overlap at the ridge")


@record
class Kernels:
    """Kernel efficiencies of a chip family: few physical parameters, fitted to kernel rows."""

    matrix_efficiency: Scalar = metadata("", "1", "GEMM efficiency, large and deep", bounds=POSITIVE_SHARE)
    matrix_depth: Scalar = metadata("k0", "1", "inner dimension at half GEMM efficiency")
    tile_rows: Scalar = metadata("", "1", "rows of a GEMM output tile", bounds=POSITIVE)
    tile_columns: Scalar = metadata("", "1", "columns of a GEMM output tile", bounds=POSITIVE)
    wave_quantization: Scalar = metadata("", "1", "share of idle cores lost in the last wave", bounds=SHARE)
    vector_efficiency: Scalar = metadata(
        "", "1", "element-wise efficiency, share of the vector rate", bounds=POSITIVE_SHARE
    )
    memory_efficiency: Scalar = metadata("", "1", "memory efficiency, large transfers", bounds=POSITIVE_SHARE)
    roofline_blend: Scalar = metadata("kappa", "1", "overlap of compute and memory: 0 perfect, 1 none", bounds=SHARE)
    kernel_floor: Scalar = metadata("", "s", "minimum kernel time")
    flash_efficiency: Scalar = metadata("", "1", "flash-attention efficiency, long sequences", bounds=POSITIVE_SHARE)
    flash_sequence: Scalar = metadata("s0", "1", "sequence length at half flash-attention efficiency")
    flash_backward: Scalar = metadata("", "1", "flash-attention time per FLOP, backward over forward", bounds=POSITIVE)
    flash_least_head: Scalar = metadata(
        "d0", "1", "head size below which exponentials limit flash attention", default=1.0, bounds=POSITIVE
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
