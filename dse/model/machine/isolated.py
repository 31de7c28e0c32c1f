"""Time of single kernels as benchmarks measure them: a GEMM with its quantisation, attention with its cache.

They need the accelerator's ``kernels.fine`` and ``kernels.attention``; training steps do without both.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling
from dse.model.formats import operand_bytes
from dse.model.machine.collectives import all_gather, all_reduce, all_to_all, direct_all_reduce, send
from dse.model.machine.roofline import isolated_time, matrix_rate, memory_time, overlapped
from dse.model.work.operators import matmul_work
from dse.types import Accelerator, Collective, Element, Group, Network, Precision, Scalar, System, Work

#: Rows of queries, and keys, that one attention core works on at a time.
TILE = 128.0
#: Time of the longest query tile alone over its share of a full device: fewer neighbours, more cache and clock.
ALONE = 0.65
#: Rows up to which, and blocks in which, block-scaled GEMMs have kernels of their own.
FEW_ROWS, BLOCK = 32.0, 128.0
#: Seconds that a split of k costs in 8- and 4-bit GEMMs, whose libraries do not split it: none pays.
NO_SPLIT = 1.0
#: Rows of queries that decode attention fills up to.
QUERY_ROWS = 16.0


class Attention(NamedTuple):
    """One attention call of one device; counts of heads are the device's."""

    batch: Scalar
    tokens: Scalar  # new tokens of a sequence (context), or those in the cache (decode)
    heads: Scalar
    kv_heads: Scalar
    head_dim: Scalar
    window: Scalar  # tokens that a query sees; 0 for all
    cache_bytes: Scalar  # bytes of one element of the cache
    compute_stretch: Scalar = 1.0  # compute time over that of the device's best kernel
    reading_stretch: Scalar = 1.0  # the same of reading the cache

    @property
    def seen(self) -> Scalar:
        """Tokens that a query may see at most."""
        return jnp.where(self.window > 0.0, self.window, 1e9)

    @property
    def narrow(self) -> Scalar:
        """1 where the cache holds 8-bit numbers."""
        return jnp.where(self.cache_bytes < 2.0, 1.0, 0.0)


def gemm_work(rows: Scalar, columns: Scalar, depth: Scalar, precision: Scalar, accelerator: Accelerator) -> Work:
    """Work of C[rows, columns] = A[rows, depth] B[depth, columns] with 16-bit results."""
    return matmul_work(rows, columns, depth, 1.0, Element(operand_bytes(precision), 2.0, 2.0, accelerator.cache))


def is_narrow(precision: Scalar) -> Scalar:
    """1 for the 8- and 4-bit formats, to which an activation is quantised first."""
    eight = (precision == float(Precision.fp8)) | (precision == float(Precision.fp8_block))
    return jnp.where(eight | (precision == float(Precision.fp4)), 1.0, 0.0)


def device_gemm_time(
    rows: Scalar, columns: Scalar, depth: Scalar, precision: Scalar, accelerator: Accelerator
) -> Scalar:
    """Seconds of a GEMM and of quantising its activation, as far as the device works on them."""
    narrow = is_narrow(precision)
    work = gemm_work(rows, columns, depth, precision, accelerator)
    time = isolated_time("matrix", work, _adjusted(accelerator, narrow), precision) + accelerator.kernels.kernel_floor
    return time + narrow * quantize_time(rows, depth, precision, accelerator)


def launched(
    time: Scalar, rows: Scalar, columns: Scalar, depth: Scalar, precision: Scalar, accelerator: Accelerator
) -> Scalar:
    """The same with the host's launch, which a block-scaled GEMM may have to wait for."""
    blocks = precision == float(Precision.fp8_block)
    return jnp.where(blocks, overlapped(time, block_launch(rows, columns, depth, accelerator), 0.15), time)


def gemm_time(
    rows: Scalar, columns: Scalar, depth: Scalar, precision: Scalar, accelerator: Accelerator
) -> Scalar:
    """Seconds of a GEMM in short runs, at the clock of the accelerator's rates."""
    time = device_gemm_time(rows, columns, depth, precision, accelerator)
    return launched(time, rows, columns, depth, precision, accelerator)


def _adjusted(accelerator: Accelerator, narrow: Scalar) -> Accelerator:
    """The accelerator with kernels of 8- and 4-bit formats where ``narrow`` is 1."""
    kernels = accelerator.kernels
    fine = kernels.fine
    own = dataclasses.replace(
        kernels,
        matrix_efficiency=kernels.matrix_efficiency * (1.0 + narrow * (fine.narrow_efficiency - 1.0)),
        fine=dataclasses.replace(fine, split_time=fine.split_time + narrow * NO_SPLIT),
    )
    return dataclasses.replace(accelerator, kernels=own)


def quantize_time(rows: Scalar, depth: Scalar, precision: Scalar, accelerator: Accelerator) -> Scalar:
    """Seconds to turn a 16-bit activation into a narrower one: it is read and written.

    A scale for a whole row needs all of the row first; one for a block of it does not.
    """
    fine = accelerator.kernels.fine
    a_row = jnp.where(precision == float(Precision.fp8), fine.quantize_row, 0.0)
    return fine.quantize_floor + a_row * rows + memory_time(3.0 * rows * depth, accelerator)


def block_launch(rows: Scalar, columns: Scalar, depth: Scalar, accelerator: Accelerator) -> Scalar:
    """Seconds that the host needs to launch a block-scaled GEMM; the device waits for what is longer."""
    fine = accelerator.kernels.fine
    odd = (jnp.mod(depth, BLOCK) > 0.0) | (jnp.mod(columns, 0.5 * BLOCK) > 0.0)
    whole = jnp.where(rows <= FEW_ROWS, fine.block_floor_few, fine.block_floor)
    return jnp.where(odd, fine.block_floor_odd, whole)


def _reading(size: Scalar, accelerator: Accelerator, efficiency: Scalar) -> Scalar:
    """Seconds to move bytes at an attention kernel's own share of the bandwidth."""
    return size / (accelerator.memory.bandwidth * efficiency)


def visited_keys(call: Attention) -> Scalar:
    """Keys that a query tile of a causal sequence visits, in the mean: whole tiles, up to its own or the window."""
    tiles = ceiling(call.tokens / TILE)
    longest = _longest(call)
    steps = ceiling(longest / TILE)
    return longest - 0.5 * TILE * steps * (steps - 1.0) / tiles


def _longest(call: Attention) -> Scalar:
    """Keys that the last query tile visits."""
    return jnp.minimum(call.seen + TILE, ceiling(call.tokens / TILE) * TILE)


def context_bytes(call: Attention) -> tuple[Scalar, Scalar]:
    """Bytes that attention over whole sequences moves, and those of putting keys and values into the cache."""
    elements = call.batch * call.tokens * call.head_dim
    moved = elements * (4.0 * call.heads + 2.0 * call.cache_bytes * call.kv_heads)
    return moved, elements * (2.0 * (2.0 + call.cache_bytes) * call.kv_heads + 3.0 * call.heads * call.narrow)


def decode_bytes(call: Attention) -> Scalar:
    """Bytes that attention of one new token a sequence moves."""
    keys = jnp.minimum(call.seen, call.tokens + 1.0)
    read = 2.0 * call.cache_bytes * call.batch * call.kv_heads * call.head_dim * keys
    return read + 4.0 * call.batch * call.heads * call.head_dim


def context_time(call: Attention, accelerator: Accelerator) -> Scalar:
    """Seconds of causal flash attention over whole sequences, with putting keys and values into the cache.

    A head has ``n = ceil(s / T)`` query tiles; each sees whole tiles of keys up to its own, or the window
    and a tile. On one core a tile takes ``T keys (4 d / rate + t_pair) + t_tile``. All tiles share the cores; the
    longest one bounds the time from below (Dao 2023; Shah et al. 2024 on the cost of exponentials).
    """
    own = accelerator.kernels.attention
    tiles = ceiling(call.tokens / TILE)
    longest, keys = _longest(call), visited_keys(call)
    rate = matrix_rate(accelerator, jnp.asarray(float(Precision.bf16))) * own.context_efficiency / accelerator.cores
    full = jnp.minimum(call.tokens / TILE, 1.0)
    a_key = TILE * (4.0 * call.head_dim / rate + own.context_pair) * full
    a_key = a_key * jnp.where(call.narrow > 0.0, own.context_fp8, 1.0)
    start = own.context_tile
    shared = (a_key * keys + start) * call.compute_stretch * call.batch * call.heads * tiles / accelerator.cores
    alone = ALONE * (a_key * longest + start) * call.compute_stretch
    compute = overlapped(shared, alone, 1.0)
    moved, stored = context_bytes(call)
    memory = _reading(moved, accelerator, own.context_memory)
    filling = _reading(stored, accelerator, own.context_memory)
    return overlapped(compute, memory, own.blend) + filling + own.context_floor


def decode_time(call: Attention, accelerator: Accelerator) -> Scalar:
    """Seconds of attention of one new token a sequence against a cache of ``tokens``.

    Keys and values are read once, at the bandwidth. A core works through whole tiles of one key/value head at
    its own pace; where sequences are few, each is split over idle cores (Dao et al. 2023, flash decoding).
    """
    own = accelerator.kernels.attention
    units = call.batch * call.kv_heads
    visited = jnp.minimum(ceiling((call.tokens + 1.0) / TILE) * TILE, call.seen + TILE)
    memory = _reading(decode_bytes(call), accelerator, own.decode_memory / call.reading_stretch)
    rate = matrix_rate(accelerator, jnp.asarray(float(Precision.bf16))) * own.decode_efficiency / accelerator.cores
    rows = QUERY_ROWS * ceiling(call.heads / (call.kv_heads * QUERY_ROWS))
    a_key = 4.0 * rows * call.head_dim / rate * call.reading_stretch
    load = units / accelerator.cores
    splits = jnp.clip(jnp.sqrt(visited * a_key / own.decode_split), 1.0, jnp.maximum(1.0 / load, 1.0))
    chain = visited * a_key / splits + own.decode_tile + own.decode_split * (splits - 1.0)
    busy = jnp.maximum(load * (visited * a_key + own.decode_tile), chain)
    grouped = jnp.where(call.heads > call.kv_heads, own.grouped_floor, 0.0)
    return overlapped(memory, busy, own.blend) + own.decode_floor + grouped


def is_whole(call: Attention, context: Scalar) -> Scalar:
    """Whether a call runs over whole sequences; a context of one token is a decode step with an empty cache."""
    return (context > 0.0) & (call.tokens > 1.0)


def decoding(call: Attention, context: Scalar) -> Attention:
    """The call as a decode step."""
    return call._replace(tokens=jnp.where(context > 0.0, 0.0, call.tokens))


def attention_time(call: Attention, context: Scalar, accelerator: Accelerator) -> Scalar:
    """Seconds of attention over whole sequences, or of one new token against a cache."""
    whole = context_time(call, accelerator)
    return jnp.where(is_whole(call, context), whole, decode_time(decoding(call, context), accelerator))


def elementwise_time(size: Scalar, core_rate: Scalar, floor: Scalar, accelerator: Accelerator) -> Scalar:
    """Seconds of an element-wise kernel that moves ``size`` bytes, of which a core handles ``core_rate`` a second."""
    work = Work(0.0 * size, size)
    memory = isolated_time("vector", work, accelerator, jnp.asarray(float(Precision.bf16)))
    return memory + size / (core_rate * accelerator.cores) + floor


#: A send between two devices over their own link: share of the bandwidth, and of the ramp of a ring.
SEND_EFFICIENCY, SEND_RAMP = 0.95, 0.05


def collective_time(operation: Scalar, size: Scalar, group: Group, launch: Scalar, system: System) -> Scalar:
    """Seconds of a library's collective with its launch, that of the network's library where ``launch`` is 0.

    ``operation`` 0: all-reduce, 1: all-gather, 2: reduce-scatter, 3: all-to-all, 4: send to a neighbour.
    """
    auto = jnp.asarray(float(Collective.auto))
    up = system.scale_up
    alone = dataclasses.replace(
        system, scale_up=dataclasses.replace(up, efficiency=SEND_EFFICIENCY, ramp=SEND_RAMP * up.ramp)
    )
    system = _crowded(system, group.local)
    share = system.scale_up.alone.exchange_efficiency
    exchange = dataclasses.replace(system, scale_up=_scaled(system.scale_up, share))
    gathered = jnp.where(
        operation < 0.5, all_reduce(size, group, system, auto), all_gather(size, group, system, auto)
    )
    apart = jnp.where(
        operation > 3.5, send(size, Group(2.0, jnp.minimum(group.local, 2.0)), alone),
        all_to_all(size, group, exchange),
    )  # fmt: skip
    return jnp.where(launch > 0.0, launch, up.alone.launch) + jnp.where(operation > 2.5, apart, gathered)


def direct_time(size: Scalar, members: Scalar, eager: Scalar, lean: Scalar, system: System) -> Scalar:
    """Seconds of a framework's all-reduce: direct for small messages, the library's for large ones.

    ``lean`` is 1 for an engine with a shorter launch. In a graph the library works on registered buffers;
    launched one by one the host's pace bounds it.
    """
    own = system.scale_up.alone
    system = _crowded(system, members)
    launch = own.launch * own.direct_launch * jnp.where(lean > 0.0, own.lean_launch, 1.0)
    # Plain loads reach their rate at once: no ramp. That rate and the link's count in series.
    up = system.scale_up
    loading = 1.0 / (1.0 + up.bandwidth * up.efficiency / own.direct_rate)
    direct = dataclasses.replace(_scaled(up, loading), latency=up.latency * own.direct_latency, ramp=1.0)
    small = launch + direct_all_reduce(size, members, direct)
    share = jnp.where(eager > 0.0, 1.0, own.graph_efficiency)
    graph = dataclasses.replace(system, scale_up=_scaled(system.scale_up, share))
    auto = jnp.asarray(float(Collective.auto))
    large = launch + all_reduce(size, Group(members, members), graph, auto)
    device = jnp.minimum(small, large)
    return jnp.where(eager > 0.0, overlapped(device, own.eager_launch, 0.1), device)


def _crowded(system: System, members: Scalar) -> System:
    """The system with the share of its scale-up bandwidth that so many members reach together.

    Two members use few channels; behind bridges that are shared, many take bandwidth from each other.
    """
    own = system.scale_up.alone
    peers = jnp.maximum(members - 1.0, 1.0)
    share = (1.0 - own.pair_loss / peers) / (1.0 + own.crowding * (peers - 1.0) * (peers - 1.0))
    return dataclasses.replace(system, scale_up=_scaled(system.scale_up, share))


def _scaled(network: Network, share: Scalar) -> Network:
    """A network level at a share of its efficiency."""
    return dataclasses.replace(
        network, efficiency=network.efficiency * share, in_network_reduction=network.in_network_reduction * share
    )
