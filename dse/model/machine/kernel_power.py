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
from dse.model.machine.gemm_kernels import Gemm, device_time, launched
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
KEPT = 0.5


def moved_energy(size: Scalar, once: Scalar, accelerator: Accelerator) -> tuple[Scalar, Scalar]:
    """Energy of ``size`` bytes through the last cache, and of the part that device memory serves, J.

    ``once``: distinct bytes, of which the cache keeps its capacity.
    """
    power = accelerator.power
    missed = size - jnp.minimum(once, KEPT * accelerator.cache)
    return power.cache_energy * size, power.memory_energy * jnp.maximum(missed, 0.0)


class KernelSpent(NamedTuple):
    """Energy and shape of a kernel."""

    core_energy: Scalar  # J, at the nominal voltage
    other_energy: Scalar  # J, independent of the cores' voltage
    tiles: Scalar  # pieces of work that the cores share
    idle: Scalar  # seconds until the cores have their first operands


def demand_of(time: Callable[[Accelerator], Scalar], spent: KernelSpent, accelerator: Accelerator) -> Demand:
    """Demand of a kernel; its core time is the saving of a faster clock, ``-dt / d ln f``."""
    one = jnp.ones((), jnp.result_type(float))
    whole, slope = jax.jvp(lambda ratio: time(at_clock(accelerator, ratio)), (one,), (one,))
    core = jnp.clip(-slope, 0.0, whole)
    active = jnp.minimum(spent.tiles / accelerator.cores, 1.0) * jnp.maximum(1.0 - spent.idle / whole, 0.0)
    return Demand(core, whole - core, spent.core_energy, spent.other_energy, active)


def gemm_demand(gemm: Gemm, accelerator: Accelerator) -> Demand:
    """Demand of a GEMM with its quantisation; empty parts of tiles use no energy."""
    work, kernels = gemm.work, accelerator.kernels
    cache, memory = moved_energy(work.bytes + gemm.narrow * gemm.quantized_bytes, work.bytes, accelerator)
    row_tiles, column_tiles = just_below_reciprocal(kernels.tile_rows), just_below_reciprocal(kernels.tile_columns)
    spent = KernelSpent(
        core_energy=flop_energy(gemm.precision, accelerator.power) * work.flops + cache,
        other_energy=memory,
        tiles=ceiling(work.rows * 2.0 * row_tiles) * ceiling(work.columns * 2.0 * column_tiles),  # quarter tiles
        idle=required(kernels.fine, "kernels.fine").gemm_floor,
    )
    return demand_of(lambda device: device_time(gemm, device), spent, accelerator)


def attention_demand(call: AttentionKernel, accelerator: Accelerator) -> Demand:
    """Demand of attention over whole sequences, or of one new token per sequence over a cache."""
    power, own = accelerator.power, required(accelerator.kernels.attention, "kernels.attention")
    whole, decode = call.is_whole, call.decoding
    keys = jnp.where(whole, call.mean_keys, jnp.minimum(decode.seen, decode.tokens + 1.0))
    pairs = call.batch * call.heads * jnp.where(whole, call.tokens, 1.0) * keys
    size = jnp.where(whole, sum(context_bytes(call)), decode_bytes(decode))
    cache, memory = moved_energy(size, size, accelerator)
    a_pair = 4.0 * call.head_dim * power.matrix_energy + call.softmax_flops * power.vector_energy
    spent = KernelSpent(
        core_energy=a_pair * pairs + cache,
        other_energy=memory,
        tiles=call.batch * jnp.where(whole, call.heads * call.query_tiles, call.kv_heads),
        idle=jnp.where(whole, own.context_floor, own.decode_floor),
    )
    return demand_of(lambda device: attention_time(call, device), spent, accelerator)


def limited_clock(demand: Demand, accelerator: Accelerator) -> Scalar:
    """Clock over the nominal one of a repeated kernel: as set, or lower under the power limit."""
    power = accelerator.power
    highest = clock_ratio(power) * jnp.ones((), jnp.result_type(float))
    return clock_under_limit(demand, power_limit(power), highest, power)


def repeated_power(demand: Demand, accelerator: Accelerator) -> Scalar:
    """Board power in W of a device that repeats a kernel."""
    return busy_power(demand, limited_clock(demand, accelerator), accelerator.power)


def gemm_power(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Board power in W of a device that repeats a GEMM."""
    return repeated_power(gemm_demand(gemm, accelerator), accelerator)


def attention_power(call: AttentionKernel, accelerator: Accelerator) -> Scalar:
    """Board power in W of a device that repeats an attention kernel."""
    return repeated_power(attention_demand(call, accelerator), accelerator)


def sustained_gemm_time(gemm: Gemm, accelerator: Accelerator) -> Scalar:
    """Seconds of a GEMM that repeats until the power limit sets the clock."""
    ratio = limited_clock(gemm_demand(gemm, accelerator), accelerator)
    return launched(device_time(gemm, at_clock(accelerator, ratio)), gemm, accelerator)
