"""Board power of single kernels in back-to-back repetition, and their time at the clock of the power limit.

Power follows :mod:`dse.model.machine.power`: energy of FLOPs and bytes over time, plus idle power. Core time shrinks
with a faster clock; the rest is device memory and launch wait. Waits for the host are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.model.choice import ceiling, just_below_reciprocal, required
from dse.model.machine.attention_kernels import AttentionKernel, attention_time, context_bytes, decode_bytes
from dse.model.machine.gemm_kernels import Gemm, device_time, with_host_launch
from dse.model.machine.power import (
    Demand,
    at_clock,
    busy_power,
    clock_ratio,
    clock_under_limit,
    flop_energy,
    power_limit,
)
from dse.types import Accelerator, Scalar

#: Share of the last cache's capacity that keeps its contents between repetitions of a kernel: the halves of a
#: partitioned cache hold copies of data that cores of the other half read.
RETAINED_SHARE = 0.5


def moved_energy(size: Scalar, distinct_bytes: Scalar, accelerator: Accelerator) -> tuple[Scalar, Scalar]:
    """Return the energy of ``size`` bytes in the last cache, J, and in device memory for those that it misses.

    ``distinct_bytes``: distinct bytes among them, of which the cache retains a share of its capacity.
    """
    power = accelerator.power
    missed_bytes = size - jnp.minimum(distinct_bytes, RETAINED_SHARE * accelerator.cache)
    return power.cache_energy * size, power.memory_energy * jnp.maximum(missed_bytes, 0.0)


class KernelEnergy(NamedTuple):
    """Energy and shape of a kernel."""

    core_energy: Scalar  # J, at the nominal voltage
    other_energy: Scalar  # J, independent of the cores' voltage
    tiles: Scalar  # pieces of work that the cores share
    idle: Scalar  # seconds until the cores have their first operands


def demand_of(time: Callable[[Accelerator], Scalar], energy: KernelEnergy, accelerator: Accelerator) -> Demand:
    """Return the demand (s, J) of a kernel of ``time`` s, whose core time a faster clock saves: ``-dt / d ln f``."""
    unit_ratio = jnp.ones((), jnp.result_type(float))
    kernel_time, slope = jax.jvp(lambda ratio: time(at_clock(accelerator, ratio)), (unit_ratio,), (unit_ratio,))
    core_time = jnp.clip(-slope, 0.0, kernel_time)
    active = jnp.minimum(energy.tiles / accelerator.cores, 1.0) * jnp.maximum(1.0 - energy.idle / kernel_time, 0.0)
    return Demand(core_time, kernel_time - core_time, energy.core_energy, energy.other_energy, active)


def gemm_demand(gemm: Gemm, accelerator: Accelerator) -> Demand:
    """Return the time (s) and energy (J) demand of a GEMM with its quantisation, none for empty parts of tiles."""
    work, kernels = gemm.work, accelerator.kernels
    cache, memory = moved_energy(work.bytes + gemm.narrow * gemm.quantized_bytes, work.bytes, accelerator)
    tiles_per_row = just_below_reciprocal(kernels.tile_rows)
    tiles_per_column = just_below_reciprocal(kernels.tile_columns)
    energy = KernelEnergy(
        core_energy=flop_energy(gemm.precision, accelerator.power) * work.flops,
        other_energy=cache + memory,
        tiles=ceiling(work.rows * 2.0 * tiles_per_row)
        * ceiling(work.columns * 2.0 * tiles_per_column),  # quarter tiles
        idle=required(kernels.fine, "kernels.fine").gemm_floor,
    )
    return demand_of(lambda device: device_time(gemm, device), energy, accelerator)


def attention_demand(call: AttentionKernel, accelerator: Accelerator) -> Demand:
    """Return the time (s) and energy (J) demand of attention over entire sequences, or of one new token each."""
    power, kernels = accelerator.power, required(accelerator.kernels.attention, "kernels.attention")
    is_context, decode = call.is_context, call.decoding
    keys = jnp.where(is_context, call.mean_keys, jnp.minimum(decode.max_attended, decode.tokens + 1.0))
    pairs = call.batch * call.heads * jnp.where(is_context, call.tokens, 1.0) * keys
    size = jnp.where(is_context, sum(context_bytes(call)), decode_bytes(decode))
    cache, memory = moved_energy(size, size, accelerator)
    pair_energy = 4.0 * call.head_dim * power.matrix_energy + call.softmax_flops * power.vector_energy
    energy = KernelEnergy(
        core_energy=pair_energy * pairs,
        other_energy=cache + memory,
        tiles=call.batch * jnp.where(is_context, call.heads * call.query_tiles, call.kv_heads),
        idle=jnp.where(is_context, kernels.context_floor, kernels.decode_floor),
    )
    return demand_of(lambda device: attention_time(call, device), energy, accelerator)


def limited_clock(demand: Demand, accelerator: Accelerator) -> Scalar:
    """Return the ratio to the nominal clock of a repeated kernel: as set, or lower under the power limit."""
    power = accelerator.power
    highest = clock_ratio(power) * jnp.ones((), jnp.result_type(float))
    return clock_under_limit(demand, power_limit(power), highest, power)


def repeated_power(demand: Demand, accelerator: Accelerator) -> Scalar:
    """Return the board power in W of a device that repeats a kernel."""
    return busy_power(demand, limited_clock(demand, accelerator), accelerator.power)


def gemm_power(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Return the board power in W of a device that repeats a GEMM."""
    return repeated_power(gemm_demand(gemm, accelerator), accelerator)


def attention_power(call: AttentionKernel, accelerator: Accelerator) -> Scalar:
    """Return the board power in W of a device that repeats an attention kernel."""
    return repeated_power(attention_demand(call, accelerator), accelerator)


def sustained_gemm_time(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Return the seconds of a GEMM that repeats until the power limit sets the clock."""
    ratio = limited_clock(gemm_demand(gemm, accelerator), accelerator)
    return with_host_launch(device_time(gemm, at_clock(accelerator, ratio)), gemm, accelerator)
