"""Board power of single kernels that repeat back to back, and their time at the clock that the power limit leaves.

A kernel's power is that of its demand (:mod:`dse.model.machine.power`): energies of its FLOPs and bytes over its
time, with what the device draws anyway. Of the time, what shrinks with a faster clock is the cores'; the rest is
device memory's and the wait for the launch. What the host makes a device wait for is left out: power is that of
kernels in a row.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dse.model.choice import ceiling
from dse.model.machine import isolated
from dse.model.machine.isolated import Attention
from dse.model.machine.power import (
    Demand,
    at_clock,
    busy_power,
    clock_ratio,
    clock_under_limit,
    flop_energy,
    power_limit,
)
from dse.model.machine.roofline import pieces
from dse.model.work.operators import SOFTMAX
from dse.types import Accelerator, Precision, Scalar

#: Share of the last cache's capacity that holds its contents from one repetition of a kernel to the next: the
#: halves of a partitioned cache keep copies of what the other half's cores read.
KEPT = 0.5


def moved_energy(size: Scalar, once: Scalar, accelerator: Accelerator) -> tuple[Scalar, Scalar]:
    """Joules of ``size`` bytes through the last cache, and of those among them that device memory serves.

    ``once`` bytes are touched at all; of them the cache keeps what fits.
    """
    power = accelerator.power
    missed = size - jnp.minimum(once, KEPT * accelerator.cache)
    return power.cache_energy * size, power.memory_energy * jnp.maximum(missed, 0.0)


def demand_of(
    time: Callable[[Accelerator], Scalar], core_energy: Scalar, other_energy: Scalar, tiles: Scalar, idle: Scalar,
    accelerator: Accelerator,
) -> Demand:  # fmt: skip
    """Demand of a kernel: the time of its cores is what a faster clock would save, ``-dt / d ln f``.

    Its ``tiles`` share the cores, which wait for the first ones ``idle`` seconds.
    """
    one = jnp.ones((), jnp.result_type(float))
    whole, slope = jax.jvp(lambda ratio: time(at_clock(accelerator, ratio)), (one,), (one,))
    core = jnp.clip(-slope, 0.0, whole)
    active = jnp.minimum(tiles / accelerator.cores, 1.0) * jnp.maximum(1.0 - idle / whole, 0.0)
    return Demand(core, whole - core, core_energy, other_energy, active)


def gemm_demand(
    rows: Scalar, columns: Scalar, depth: Scalar, precision: Scalar, accelerator: Accelerator
) -> Demand:
    """Demand of a GEMM with its quantisation; what partial tiles leave empty burns nothing."""
    narrow = isolated.is_narrow(precision)
    work = isolated.gemm_work(rows, columns, depth, precision, accelerator)
    quantized = narrow * 3.0 * rows * depth
    cache, memory = moved_energy(work.bytes + quantized, work.bytes, accelerator)
    kernels = accelerator.kernels
    tiles = pieces(rows, 0.5 * kernels.tile_rows) * pieces(columns, 0.5 * kernels.tile_columns)
    return demand_of(
        lambda device: isolated.device_gemm_time(rows, columns, depth, precision, device),
        flop_energy(precision, accelerator.power) * work.flops + cache, memory, tiles, kernels.kernel_floor,
        accelerator,
    )  # fmt: skip


def attention_demand(call: Attention, context: Scalar, accelerator: Accelerator) -> Demand:
    """Demand of attention over whole sequences, or of one new token against a cache."""
    power, own = accelerator.power, accelerator.kernels.attention
    whole, decode = isolated.is_whole(call, context), isolated.decoding(call, context)
    keys = jnp.where(whole, isolated.visited_keys(call), jnp.minimum(decode.seen, decode.tokens + 1.0))
    pairs = call.batch * call.heads * jnp.where(whole, call.tokens, 1.0) * keys
    size = jnp.where(whole, sum(isolated.context_bytes(call)), isolated.decode_bytes(decode))
    cache, memory = moved_energy(size, size, accelerator)
    bf16 = jnp.asarray(float(Precision.bf16))
    computed = (4.0 * call.head_dim * flop_energy(bf16, power) + SOFTMAX.forward * power.vector_energy) * pairs
    tiles = call.batch * jnp.where(whole, call.heads * ceiling(call.tokens / isolated.TILE), call.kv_heads)
    return demand_of(
        lambda device: isolated.attention_time(call, context, device), computed + cache, memory, tiles,
        jnp.where(whole, own.context_floor, own.decode_floor), accelerator,
    )  # fmt: skip


def limited_clock(demand: Demand, accelerator: Accelerator) -> Scalar:
    """Clock over the nominal one at which a kernel repeats: the one that is set, or what the limit leaves of it."""
    power = accelerator.power
    highest = clock_ratio(power) * jnp.ones((), jnp.result_type(float))
    return clock_under_limit(demand, power_limit(power), highest, power)


def repeated_power(demand: Demand, accelerator: Accelerator) -> Scalar:
    """Board power in W of a device that repeats a kernel."""
    return busy_power(demand, limited_clock(demand, accelerator), accelerator.power)


def gemm_power(rows: Scalar, columns: Scalar, depth: Scalar, precision: Scalar, accelerator: Accelerator) -> Scalar:
    """Board power in W of a device that repeats a GEMM."""
    return repeated_power(gemm_demand(rows, columns, depth, precision, accelerator), accelerator)


def attention_power(call: Attention, context: Scalar, accelerator: Accelerator) -> Scalar:
    """Board power in W of a device that repeats an attention kernel."""
    return repeated_power(attention_demand(call, context, accelerator), accelerator)


def sustained_gemm_time(
    rows: Scalar, columns: Scalar, depth: Scalar, precision: Scalar, accelerator: Accelerator
) -> Scalar:
    """Seconds of a GEMM that repeats until the power limit sets the clock."""
    ratio = limited_clock(gemm_demand(rows, columns, depth, precision, accelerator), accelerator)
    time = isolated.device_gemm_time(rows, columns, depth, precision, at_clock(accelerator, ratio))
    return isolated.launched(time, rows, columns, depth, precision, accelerator)
