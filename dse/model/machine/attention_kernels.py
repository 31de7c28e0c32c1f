"""Time of attention kernels: chains of keys on the cores of a device.

A kernel is cut into *chains*: a tile of queries against its keys, or the keys of one sequence in a cache against its
new token. A core starts a chain, visits its keys one after the other and ends it::

    compute = load (start + keys cost)

with ``load`` chains a core. Where chains are few, the longest of them alone, or split over idle cores, bounds it from
below. Compute overlaps with the traffic through device memory. Three kernels are this one with other parameters:

- :func:`flash_time`, in a training step: chains are many, queries and keys are not rounded to tiles, so that it is
  FLOPs at a rate that ramps up with the sequence;
- :func:`context_time`, measured alone: whole causal sequences in tiles of queries and keys;
- :func:`decode_time`, measured alone: one new token a sequence against a cache of keys and values.

The latter two need the accelerator's ``kernels.attention``.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling, required
from dse.model.machine.overlap import best_splits, overlapped
from dse.types import Accelerator, Kernels, Scalar, Work

#: Rows of queries, and keys, that one core works on at a time.
TILE = 128.0
#: Time of the longest query tile alone over its share of a full device: fewer neighbours, more cache and clock.
ALONE = 0.65
#: Rows of queries that decode attention fills up to.
QUERY_ROWS = 16.0


class Chains(NamedTuple):
    """How an attention kernel keeps the cores busy; chains of one kernel are alike but for the keys they visit."""

    load: Scalar  # chains of each core
    keys: Scalar  # keys that one visits, in the mean
    cost: Scalar  # seconds of one key
    start: Scalar  # seconds to start and end a chain

    def alone(self, keys: Scalar) -> Scalar:
        """Seconds of one chain of so many keys on its core."""
        return keys * self.cost + self.start

    def split(self, split_time: Scalar) -> Scalar:
        """Seconds of one chain that is split over idle cores, ``split_time`` for each."""
        whole = self.keys * self.cost
        splits = best_splits(whole, split_time, self.load)
        return whole / splits + self.start + split_time * (splits - 1.0)

    @property
    def shared(self) -> Scalar:
        """Seconds in which the cores together work off all chains."""
        return self.load * self.alone(self.keys)


# In a training step


def flash_time(work: Work, flop_time: Scalar, kernels: Kernels, backward: bool) -> Scalar:
    """Seconds of flash attention in a training step when compute bounds it; its FLOPs take ``flop_time`` at best.

    Chains are counted by their FLOPs: each carries its share ``s0 / s`` of the start of its query row, which takes
    as long as ``s0 / 2`` keys of a causal sequence (Dao 2023). The rate ramps up as ``s / (s + s0)``.
    """
    cost = kernels.flash_backward * flop_time if backward else flop_time
    return Chains(load=work.flops, keys=1.0, cost=cost, start=cost * kernels.flash_sequence / work.rows).shared


# Measured alone


class AttentionKernel(NamedTuple):
    """One attention call of one device; counts of heads are the device's."""

    batch: Scalar
    tokens: Scalar  # new tokens of a sequence (context), or those in the cache (decode)
    heads: Scalar
    kv_heads: Scalar
    head_dim: Scalar
    window: Scalar  # tokens that a query sees; 0 for all
    cache_bytes: Scalar  # bytes of one element of the cache
    context: Scalar  # 1 for whole sequences, 0 for one new token of each
    softmax_flops: Scalar  # FLOPs of the vector units for one query-key pair
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

    @property
    def is_whole(self) -> Scalar:
        """Whether it runs over whole sequences; a context of one token is a decode step with an empty cache."""
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
        """Keys that the last query tile of a causal sequence visits: whole tiles, or the window and a tile."""
        return jnp.minimum(self.seen + TILE, self.query_tiles * TILE)

    @property
    def mean_keys(self) -> Scalar:
        """Keys that a query tile visits, in the mean: whole tiles, up to its own or the window."""
        steps = ceiling(self.most_keys / TILE)
        return self.most_keys - 0.5 * TILE * steps * (steps - 1.0) / self.query_tiles

    @property
    def cached_keys(self) -> Scalar:
        """Keys that the new token of a decode step visits: whole tiles."""
        return jnp.minimum(ceiling((self.tokens + 1.0) / TILE) * TILE, self.seen + TILE)


def attention_time(call: AttentionKernel, accelerator: Accelerator) -> Scalar:
    """Seconds of attention over whole sequences, or of one new token against a cache."""
    return jnp.where(call.is_whole, context_time(call, accelerator), decode_time(call.decoding, accelerator))


def context_time(call: AttentionKernel, accelerator: Accelerator) -> Scalar:
    """Seconds of causal flash attention over whole sequences, with putting keys and values into the cache."""
    own = required(accelerator.kernels.attention, "kernels.attention")
    chains = context_chains(call, accelerator)
    compute = overlapped(chains.shared, ALONE * chains.alone(call.most_keys), 1.0)
    moved, stored = context_bytes(call)
    bandwidth = accelerator.memory.bandwidth * own.context_memory
    return overlapped(compute, moved / bandwidth, own.blend) + stored / bandwidth + own.context_floor


def context_chains(call: AttentionKernel, accelerator: Accelerator) -> Chains:
    """Query tiles of whole causal sequences: ``ceil(s / T)`` a head.

    A key costs a tile ``T (4 d / rate + t_pair)`` (Dao 2023; Shah et al. 2024 on the cost of exponentials).
    """
    own, cores = required(accelerator.kernels.attention, "kernels.attention"), accelerator.cores
    rate = accelerator.matrix_rate.bf16 * own.context_efficiency / cores
    full = jnp.minimum(call.tokens / TILE, 1.0)
    cost = TILE * (4.0 * call.head_dim / rate + own.context_pair) * full
    return Chains(
        load=call.batch * call.heads * call.query_tiles / cores,
        keys=call.mean_keys,
        cost=cost * jnp.where(call.narrow > 0.0, own.context_fp8, 1.0) * call.compute_stretch,
        start=own.context_tile * call.compute_stretch,
    )


def decode_time(call: AttentionKernel, accelerator: Accelerator) -> Scalar:
    """Seconds of attention of one new token a sequence against a cache of ``tokens``.

    Keys and values are read once, at the bandwidth; beside that the cores work through them at their own pace.
    """
    own = required(accelerator.kernels.attention, "kernels.attention")
    chains = decode_chains(call, accelerator)
    compute = overlapped(chains.shared, chains.split(own.decode_split), 0.0)
    memory = decode_bytes(call) / (accelerator.memory.bandwidth * own.decode_memory / call.reading_stretch)
    grouped = jnp.where(call.heads > call.kv_heads, own.grouped_floor, 0.0)
    return overlapped(compute, memory, own.blend) + own.decode_floor + grouped


def decode_chains(call: AttentionKernel, accelerator: Accelerator) -> Chains:
    """Whole tiles of one key/value head of a sequence, visited by the new token's queries, filled up to 16 rows."""
    own, cores = required(accelerator.kernels.attention, "kernels.attention"), accelerator.cores
    rate = accelerator.matrix_rate.bf16 * own.decode_efficiency / cores
    rows = QUERY_ROWS * ceiling(call.heads / (call.kv_heads * QUERY_ROWS))
    return Chains(
        load=call.batch * call.kv_heads / cores,
        keys=call.cached_keys,
        cost=4.0 * rows * call.head_dim / rate * call.reading_stretch,
        start=own.decode_tile,
    )


def context_bytes(call: AttentionKernel) -> tuple[Scalar, Scalar]:
    """Bytes that attention over whole sequences moves, and those of putting keys and values into the cache."""
    elements = call.batch * call.tokens * call.head_dim
    moved = elements * (4.0 * call.heads + 2.0 * call.cache_bytes * call.kv_heads)
    return moved, elements * (2.0 * (2.0 + call.cache_bytes) * call.kv_heads + 3.0 * call.heads * call.narrow)


def decode_bytes(call: AttentionKernel) -> Scalar:
    """Bytes that attention of one new token a sequence moves."""
    keys = jnp.minimum(call.seen, call.tokens + 1.0)
    read = 2.0 * call.cache_bytes * call.batch * call.kv_heads * call.head_dim * keys
    return read + 4.0 * call.batch * call.heads * call.head_dim

