"""Time of one operator on one accelerator: roofline, shape efficiency, kernel floor."""

from __future__ import annotations

from collections.abc import Iterable

import jax.numpy as jnp

from dse.model.choice import ceiling, plus, quotient, times
from dse.model.machine import attention_kernels
from dse.model.machine.die_links import crossing_time
from dse.model.machine.overlap import best_splits, combine, overlapped
from dse.model.machine.rates import Rates, Unit, byte_time
from dse.model.work.ledger import Runs, sum_over_kernels
from dse.types import Accelerator, FineKernels, Kernels, Operator, OperatorKind, Scalar, Steps, Work


def occupied_flops(work: Work, rates: Rates) -> Scalar:
    """Return the FLOPs that take the time of a GEMM: of whole tiles, a share of idle cores, and the fill of each tile.

    ``2 tm tn (k + k0) (tiles + w idle)``: ``tiles = ceil(m/tm) ceil(n/tn)`` run in waves over the cores; a share ``w``
    of the ``idle`` cores in the last wave is lost (split-k and smaller tiles use the rest); ``k0`` is the inner
    dimension at which the fill takes half of the time.
    """
    kernels = rates.kernels
    tiles = ceiling(work.rows * rates.row_tiles) * ceiling(work.columns * rates.column_tiles) * work.batch
    # The ceiling of waves has its own slope, 0 between steps, so that the gradient by the cores is exact.
    idle = rates.cores * jnp.ceil(tiles * rates.core_waves) - tiles
    return rates.tile_flops * (work.depth + kernels.matrix_depth) * (tiles + kernels.wave_quantization * idle)


def _fine_matrix_time(work: Work, rates: Rates, flop_time: Scalar, fine: FineKernels) -> Scalar:
    """Return the time of an isolated GEMM, s: the better of whole and quarter tiles.

    A quarter tile of ``r x c`` reuses operands less: each unit of k takes ``(r + c) operand / feed`` longer.
    """
    rows, columns = rates.kernels.tile_rows, rates.kernels.tile_columns
    unit = rates.tile_flops * rates.cores * flop_time
    quarter_unit = 0.25 * unit + 0.5 * (rows + columns) * rates.operand_bytes / fine.tile_feed
    full_tiles = _tiled_time(work, rates, unit, fine.split_time, finer=1.0)
    return jnp.minimum(full_tiles, _tiled_time(work, rates, quarter_unit, fine.split_time, finer=2.0))


def _tiled_time(work: Work, rates: Rates, unit: Scalar, split_time: Scalar, finer: float) -> Scalar:
    """Return the time of an isolated GEMM in tiles with ``1 / finer`` of the usual sides, s.

    ``W unit k / s + c (s - 1)`` for ``W`` waves over the cores, at least one, and ``s`` splits of k that cost
    ``c = split_time`` each.
    """
    tiles = ceiling(work.rows * (finer * rates.row_tiles)) * ceiling(work.columns * (finer * rates.column_tiles))
    load = tiles * work.batch / rates.cores
    waves = jnp.maximum(load + rates.kernels.wave_quantization * (jnp.ceil(load) - load), 1.0)
    depth_time = unit * work.depth
    splits = best_splits(depth_time, split_time, load)
    return waves * depth_time / splits + split_time * (splits - 1.0)


#: Without stepwise efficiencies.
SMOOTH: Steps = ((0.0, 1.0),)


def step_efficiency(size: Scalar, steps: Steps) -> Scalar:
    """Return the share of the peak at ``size``: that of the largest step up to ``size``, without interpolation."""
    _, share = steps[0]
    for min_size, efficiency in steps[1:]:
        share = jnp.where(size >= min_size, efficiency, share)
    return share


def compute_time(kind: OperatorKind, work: Work, rates: Rates, backward: bool = False) -> Scalar:
    """Return the compute time of a kernel over its stepwise efficiency, s, without slow-down and floor."""
    unit = rates.units[kind]
    time = _smooth_time(kind, work, rates, unit, backward)
    return quotient(time, step_efficiency(work.flops, unit.steps or SMOOTH))


def _smooth_time(kind: OperatorKind, work: Work, rates: Rates, unit: Unit, backward: bool) -> Scalar:
    """Return the compute time by the efficiencies that vary smoothly with the shape, s."""
    match kind:
        case OperatorKind.vector:
            return work.flops * unit.flop_time
        case OperatorKind.flash:
            return attention_kernels.flash_time(work, unit.flop_time, rates.kernels, backward)
        case OperatorKind.context:
            return attention_kernels.prompt_time(work, unit.flop_time, rates.cores, rates.kernels)
        case _ if unit.fine is not None:
            return _fine_matrix_time(work, rates, unit.flop_time, unit.fine)
        case _:
            return occupied_flops(work, rates) * unit.flop_time


def roofline_terms(kind: OperatorKind, work: Work, rates: Rates, backward: bool = False) -> tuple[Scalar, Scalar]:
    """Return the compute time of a kernel, and the longer of its times in memory and on links between dies, s.

    Args:
        kind: of the operator.
        work: of the kernel.
        rates: of the device.
        backward: whether of the backward.
    """
    compute, links = compute_time(kind, work, rates, backward), rates.die_links
    memory = moving_time(times(rates.units[kind].stretch, work.bytes), rates)
    if links is None:
        return compute, memory
    crossing = jnp.maximum(memory, crossing_time(kind, work, links))
    return compute, jnp.where(links.dies > 1.0, crossing, memory)  # chosen so that one die leaves no equation


def moving_time(size: Scalar, rates: Rates) -> Scalar:
    """Return the time in which one kernel moves ``size`` bytes through device memory, s.

    ``latency + bytes / (efficiency bandwidth)``, over the stepwise share of the size.
    """
    return plus(_moving_time(size, rates.byte_time, rates.kernels), rates.latency)


def memory_time(size: Scalar, accelerator: Accelerator) -> Scalar:
    """Return the time in which one kernel moves ``size`` bytes through the memory of ``accelerator``, s."""
    return _moving_time(size, byte_time(accelerator), accelerator.kernels)


def _moving_time(size: Scalar, byte_time: Scalar, kernels: Kernels) -> Scalar:
    """Return the seconds of ``size`` bytes at ``byte_time`` seconds each, over the stepwise efficiency."""
    time = size * byte_time
    return quotient(time, step_efficiency(size, kernels.steps.memory if kernels.steps else SMOOTH))


def isolated_time(kind: OperatorKind, work: Work, rates: Rates, backward: bool = False) -> Scalar:
    """Return the time of an isolated kernel without its floor, s.

    It is as measured where the accelerator has fine kernels.

    Args:
        kind: of the operator.
        work: of the kernel.
        rates: of the device.
        backward: whether of the backward.
    """
    compute, memory = roofline_terms(kind, work, rates, backward)
    unit, blend = rates.units[kind], rates.kernels.roofline_blend
    fine = unit.fine
    if unit.blend is not None:
        return overlapped(compute, memory, unit.blend)
    if fine is None:
        return combine(compute, memory, blend)
    output_time = moving_time(2.0 * work.rows * work.columns * work.batch, rates)
    return overlapped(compute, memory, blend) + fine.output_overhead * output_time


def kernels_time(runs: Iterable[Runs], rates: Rates) -> Scalar:
    """Return the time of all kernels of a ledger one after the other, isolated and without floors, s."""
    return sum_over_kernels(runs, lambda kind, work: isolated_time(kind, work, rates))


def kernel_time(kind: OperatorKind, work: Work | None, rates: Rates, backward: bool = False) -> Scalar:
    """Return the time of one kernel in a training step, s: roofline, slow-down over the isolated kernel, floor.

    ``slowdown T_isolated + floor``; 0 for None.
    """
    if work is None:
        return 0.0
    unit = rates.units[kind]
    return unit.slowdown * isolated_time(kind, work, rates, backward) + unit.floor


def operator_times(operator: Operator, rates: Rates) -> tuple[Scalar, Scalar, Scalar]:
    """Return forward, input-gradient and weight-gradient time of an operator, s, with 0 for an absent pass.

    Args:
        operator: with up to three passes.
        rates: of the device.
    """

    def timed(work: Work | None, backward: bool) -> Scalar:
        return times(operator.present, kernel_time(operator.kind, work, rates, backward))

    return (
        timed(operator.forward, False),
        timed(operator.input_gradient, True),
        timed(operator.weight_gradient, True),
    )


def elementwise_time(size: Scalar, core_rate: Scalar, floor: Scalar, accelerator: Accelerator) -> Scalar:
    """Return the time of a kernel that only moves ``size`` bytes, s: memory, then cores, then floor, without overlap.

    Args:
        size: bytes.
        core_rate: B/s per core.
        floor: minimum time in s.
        accelerator: with its memory and cores.
    """
    return memory_time(size, accelerator) + size / (core_rate * accelerator.cores) + floor
