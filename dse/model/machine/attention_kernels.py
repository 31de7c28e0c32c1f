"""Time of attention kernels: chains of keys on the cores of a device.

A kernel consists of *chains*: a tile of queries over its keys, or the cached keys of one sequence for its new token. A
core starts a chain, visits its keys in order and ends it::

    compute = load (start + keys cost)

with ``load`` chains per core. With few chains the longest one alone, or split over idle cores, is a lower bound.
Compute overlaps with memory traffic. Four kernels have this form:

- :func:`flash_time`, in a training step: many chains without rounding to tiles, so FLOPs at a rate that ramps up with
  the sequence length;
- :func:`prompt_time`, in a step of an engine: prompts in tiles of queries, over what is cached of them;
- :func:`context_time`, an isolated kernel: whole causal sequences in tiles of queries and keys;
- :func:`decode_time`, an isolated kernel: one new token per sequence over cached keys and values.

The last two need the accelerator's ``kernels.attention``, which all but :func:`flash_time` read.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling, required
from dse.model.machine.overlap import best_splits, overlapped
from dse.model.work.operators import BACKWARD_FLOPS
from dse.types import Accelerator, Kernels, Scalar, Work

#: Tile size of a core: rows of queries, and keys.
TILE = 128.0
#: Time of the longest query tile alone over its share of a full device: it has more cache and a higher clock.
LONE_TILE_RATIO = 0.65
#: Rows of queries that decode attention is padded to.
QUERY_ROWS = 16.0


class Chains(NamedTuple):
    """Load of the cores by an attention kernel, whose chains differ in their keys only."""

    load: Scalar  # chains per core
    keys: Scalar  # mean keys of a chain
    cost: Scalar  # seconds per key
    start: Scalar  # seconds to start and end a chain

    def chain_time(self, keys: Scalar) -> Scalar:
        """Return the seconds of one chain of ``keys`` keys on its core."""
        return keys * self.cost + self.start

    def total_time(self, keys: Scalar) -> Scalar:
        """Return the seconds of all chains, of which the longest one, of ``keys`` keys, is a lower bound."""
        return overlapped(self.full_load_time, LONE_TILE_RATIO * self.chain_time(keys), 1.0)

    def split_chain_time(self, split_time: Scalar) -> Scalar:
        """Return the seconds of one chain split over idle cores, each at a cost of ``split_time`` seconds."""
        chain_time = self.keys * self.cost
        splits = best_splits(chain_time, split_time, self.load)
        return chain_time / splits + self.start + split_time * (splits - 1.0)

    @property
    def full_load_time(self) -> Scalar:
        """Seconds of all chains with all cores busy."""
        return self.load * self.chain_time(self.keys)


# In a training step


def flash_time(work: Work, flop_time: Scalar, kernels: Kernels, backward: bool) -> Scalar:
    """Return the compute time of flash attention in a training step, s.

    The start of a query row takes as long as ``s0 / 2`` keys of a causal sequence (Dao 2023); chains are counted by
    their FLOPs, so the rate ramps up as ``s / (s + s0)``. Heads of less than ``d0`` columns wait for the exponential of
    each pair, one in either pass, which takes as long as the forward's ``4 d0`` FLOPs.

    Args:
        work: FLOPs, with the keys per kernel as rows.
        flop_time: seconds per FLOP at the peak.
        kernels: those of the device.
        backward: whether of the backward.
    """
    cost = kernels.flash_backward * flop_time if backward else flop_time
    if work.columns is not math.inf:  # of engines, which do not distinguish heads
        exponentials = flop_time * (kernels.flash_least_head / work.columns)
        cost = jnp.maximum(cost, exponentials / BACKWARD_FLOPS if backward else exponentials)
    return Chains(load=work.flops, keys=1.0, cost=cost, start=cost * kernels.flash_sequence / work.rows).full_load_time


# In a step of an engine


def prompt_time(work: Work, flop_time: Scalar, cores: Scalar, kernels: Kernels) -> Scalar:
    """Return the compute time of the attention of prompts in an engine's step, s.

    ``rows`` queries of each of ``batch`` heads see ``columns`` keys on average, at ``depth`` FLOPs per pair: tiles of
    queries as of :func:`context_time`, or the ramp of :func:`flash_time` without ``kernels.attention``. Tiles are not
    whole, because the rows of a step are a mean over steps.

    Args:
        work: of all heads.
        flop_time: seconds per FLOP at the peak.
        cores: those of the device.
        kernels: those of the device.
    """
    attention = kernels.attention
    if attention is None:
        ramp = work._replace(rows=jnp.maximum(2.0 * work.columns, 1.0), columns=math.inf)
        return flash_time(ramp, flop_time, kernels, False)
    tiles = work.rows / TILE
    chains = Chains(
        load=tiles * (work.batch / cores),
        keys=work.flops / (work.depth * work.batch) / jnp.maximum(work.rows, 1e-6),
        cost=TILE * (work.depth * flop_time * cores + attention.context_pair),
        start=attention.context_tile,
    )
    last = jnp.minimum(tiles, 1.0) * (work.columns + 0.5 * work.rows)
    return jnp.where(work.flops > 0.0, chains.total_time(last), 0.0)


# Isolated kernels


class AttentionKernel(NamedTuple):
    """One attention call of one device, with the heads of that device."""

    batch: Scalar
    tokens: Scalar  # new tokens per sequence (context), or cached ones (decode)
    heads: Scalar
    kv_heads: Scalar
    head_dim: Scalar
    window: Scalar  # attention window in tokens; 0 for full attention
    cache_bytes: Scalar  # bytes per cached element
    context: Scalar  # 1 for whole sequences, 0 for one new token per sequence
    softmax_flops: Scalar  # vector FLOPs per query-key pair
    compute_stretch: Scalar = 1.0  # compute time over that of the device's best kernel
    reading_stretch: Scalar = 1.0  # cache reading time over that of the device's best kernel

    @property
    def max_attended(self) -> Scalar:
        """Maximum attended tokens of a query."""
        return jnp.where(self.window > 0.0, self.window, 1e9)

    @property
    def narrow(self) -> Scalar:
        """1 for an 8-bit cache."""
        return jnp.where(self.cache_bytes < 2.0, 1.0, 0.0)

    @property
    def is_context(self) -> Scalar:
        """True for whole sequences of more than one token. One token is a decode step with an empty cache."""
        return (self.context > 0.0) & (self.tokens > 1.0)

    @property
    def decoding(self) -> AttentionKernel:
        """The call as a decode step."""
        return self._replace(tokens=jnp.where(self.context > 0.0, 0.0, self.tokens))

    @property
    def query_tiles(self) -> Scalar:
        """Tiles of queries of a whole sequence."""
        return ceiling(self.tokens / TILE)

    @property
    def most_keys(self) -> Scalar:
        """Keys of the last query tile of a causal sequence: whole tiles, or the window and a tile."""
        return jnp.minimum(self.max_attended + TILE, self.query_tiles * TILE)

    @property
    def mean_keys(self) -> Scalar:
        """Mean keys of a query tile: whole tiles, up to its own or the window."""
        steps = ceiling(self.most_keys / TILE)
        return self.most_keys - 0.5 * TILE * steps * (steps - 1.0) / self.query_tiles

    @property
    def cached_keys(self) -> Scalar:
        """Keys that the new token of a decode step reads, its own too: whole tiles, at most the window and one tile."""
        return jnp.minimum(ceiling((self.tokens + 1.0) / TILE) * TILE, self.max_attended + TILE)


def attention_time(call: AttentionKernel, accelerator: Accelerator) -> Scalar:
    """Return the time of attention over whole sequences, or of one new token per sequence over a cache, s."""
    return jnp.where(call.is_context, context_time(call, accelerator), decode_time(call.decoding, accelerator))


def context_time(call: AttentionKernel, accelerator: Accelerator) -> Scalar:
    """Return the time of causal flash attention over whole sequences and of writing keys and values to the cache, s."""
    attention = required(accelerator.kernels.attention, "kernels.attention")
    chains = context_chains(call, accelerator)
    compute = chains.total_time(call.most_keys)
    moved_bytes, stored_bytes = context_bytes(call)
    bandwidth = accelerator.memory.bandwidth * attention.context_memory
    return (
        overlapped(compute, moved_bytes / bandwidth, attention.blend)
        + stored_bytes / bandwidth
        + attention.context_floor
    )


def context_chains(call: AttentionKernel, accelerator: Accelerator) -> Chains:
    """Return the load of the cores by the query tiles of whole causal sequences: ``ceil(s / T)`` chains per head.

    A key costs ``T (4 d / rate + t_pair)`` per tile (Dao 2023; Shah et al. 2024 on the cost of exponentials).
    """
    attention, cores = required(accelerator.kernels.attention, "kernels.attention"), accelerator.cores
    rate = accelerator.matrix_rate.bf16 * attention.context_efficiency / cores
    tile_fill = jnp.minimum(call.tokens / TILE, 1.0)
    cost = TILE * (4.0 * call.head_dim / rate + attention.context_pair) * tile_fill
    return Chains(
        load=call.batch * call.heads * call.query_tiles / cores,
        keys=call.mean_keys,
        cost=cost * jnp.where(call.narrow > 0.0, attention.context_fp8, 1.0) * call.compute_stretch,
        start=attention.context_tile * call.compute_stretch,
    )


def decode_time(call: AttentionKernel, accelerator: Accelerator) -> Scalar:
    """Return the time of attention of one new token per sequence over ``tokens`` cached ones, s.

    Keys and values are read once at the memory bandwidth; the compute of the cores overlaps.
    """
    attention = required(accelerator.kernels.attention, "kernels.attention")
    chains = decode_chains(call, accelerator)
    compute = overlapped(chains.full_load_time, chains.split_chain_time(attention.decode_split), 0.0)
    memory = decode_bytes(call) / (accelerator.memory.bandwidth * attention.decode_memory / call.reading_stretch)
    grouped = jnp.where(call.heads > call.kv_heads, attention.grouped_floor, 0.0)
    return overlapped(compute, memory, attention.blend) + attention.decode_floor + grouped


def decode_chains(call: AttentionKernel, accelerator: Accelerator) -> Chains:
    """Return the load of the cores in decode: a chain per sequence and key/value head, queries padded to 16 rows."""
    attention, cores = required(accelerator.kernels.attention, "kernels.attention"), accelerator.cores
    rate = accelerator.matrix_rate.bf16 * attention.decode_efficiency / cores
    rows = QUERY_ROWS * ceiling(call.heads / (call.kv_heads * QUERY_ROWS))
    return Chains(
        load=call.batch * call.kv_heads / cores,
        keys=call.cached_keys,
        cost=4.0 * rows * call.head_dim / rate * call.reading_stretch,
        start=attention.decode_tile,
    )


def context_bytes(call: AttentionKernel) -> tuple[Scalar, Scalar]:
    """Return the bytes moved by attention over whole sequences, and by writing keys and values to the cache."""
    elements = call.batch * call.tokens * call.head_dim
    moved_bytes = elements * (4.0 * call.heads + 2.0 * call.cache_bytes * call.kv_heads)
    return moved_bytes, elements * (2.0 * (2.0 + call.cache_bytes) * call.kv_heads + 3.0 * call.heads * call.narrow)


def decode_bytes(call: AttentionKernel) -> Scalar:
    """Return the bytes moved by attention of one new token per sequence."""
    keys = jnp.minimum(call.max_attended, call.tokens + 1.0)
    read = 2.0 * call.cache_bytes * call.batch * call.kv_heads * call.head_dim * keys
    return read + 4.0 * call.batch * call.heads * call.head_dim
