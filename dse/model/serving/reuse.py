"""Hit rates of prefix caches by their size, from the reuse of prefixes and of sessions' contexts, by tier.

An item of a cache that evicts the least recently used first stays for the characteristic time ``t_c`` after its last
use: the time in which as many other bytes come in as it holds, ``sum over items of size (1 - exp(-lambda_i t_c)) =
capacity`` (Che, Tung and Wang 2002; Fricker, Robert and Roberts 2012). Tiers that take what the one above evicts have
the time of their capacities together.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dse.model.serving.memory import KvCapacity
from dse.model.serving.steady import Served
from dse.model.serving.work import Rank, cache_bytes
from dse.types import CacheTiers, HostTiers, Requests, Reuse, Scalar

#: Prefixes that are counted one by one, and parts of the logarithmic rank for the rest (Gauss-Legendre).
_FIRST, _PARTS = 4, 10

#: Newton steps of a characteristic time, and rounds of hit rates with the load that they make.
_STEPS, ROUNDS = 7, 2

#: Longest characteristic time, s, and largest share of a link's time.
_FOREVER, _BUSY = 1e9, 0.95


class Lookups(NamedTuple):
    """Share of prompt tokens found in prefix caches, and what they take."""

    device: Scalar  # in device memory
    whole: Scalar  # in all tiers
    load_time: Scalar  # of a request's tokens from other tiers, mean, s


class _Group(NamedTuple):
    """Prefixes of one popularity."""

    many: Scalar
    share: Scalar  # of requests, each


class Contents(NamedTuple):
    """What comes into the cache of a rank, in tokens."""

    groups: list[_Group]
    prefix: Scalar  # tokens of a prefix
    rate: Scalar  # requests/s
    held: Scalar  # time that a request holds its prefix, s
    grown: Scalar  # tokens that a turn adds to its session's context
    turns: Scalar
    think: Scalar  # s

    def within(self, time: Scalar) -> tuple[Scalar, Scalar]:
        """Tokens that were used within ``time``, and their slope.

        Prefixes; contexts of sessions whose user still thinks, ``(t - 1) / 2`` turns long; and of those that have
        ended, which nobody asks for again.
        """
        used, slope = _used(self, time)
        kept = jnp.exp(-time / self.think)
        thinking = 0.5 * (self.turns - 1.0)
        inside = self.prefix * used + self.rate * self.grown * (thinking * self.think * (1.0 - kept) + time)
        return inside, self.prefix * slope + self.rate * self.grown * (thinking * kept + 1.0)


def _used(contents: Contents, time: Scalar) -> tuple[Scalar, Scalar]:
    """Prefixes that were used within ``time``, and the slope of their number."""
    used: Scalar = 0.0
    slope: Scalar = 0.0
    for many, share in contents.groups:
        rate = contents.rate * share
        absent = jnp.exp(-rate * (time + contents.held))
        used, slope = used + many * (1.0 - absent), slope + many * rate * absent
    return used, slope


def popularity(reuse: Reuse) -> list[_Group]:
    """Zipf's law: the prefix of rank ``r`` has ``r^-a / sum r^-a`` of the requests."""
    nodes, weights = np.polynomial.legendre.leggauss(_PARTS)
    ranks: list[tuple[Scalar, Scalar]] = [(jnp.clip(reuse.prefix_groups - r, 0.0, 1.0), r + 1.0) for r in range(_FIRST)]
    start = _FIRST + 0.5
    span = jnp.log(jnp.maximum(reuse.prefix_groups + 0.5, start) / start)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        rank = start * jnp.exp(0.5 * (1.0 + node) * span)
        ranks.append((0.5 * weight * span * rank, rank))
    shares = [rank**-reuse.prefix_skew for _, rank in ranks]
    whole = sum(many * share for (many, _), share in zip(ranks, shares, strict=True))
    return [_Group(many, share / whole) for (many, _), share in zip(ranks, shares, strict=True)]


def characteristic_time(contents: Contents, capacity: Scalar) -> Scalar:
    """Seconds that an item stays after its last use: Newton steps in logarithms, where contents are concave.

    From below, as the first one takes all requests for different ones.
    """
    time = capacity / (contents.rate * (contents.prefix + 0.5 * (contents.turns + 1.0) * contents.grown))
    for _ in range(_STEPS):
        inside, slope = contents.within(time)
        step = jnp.log(jnp.maximum(capacity, 1e-9) / jnp.maximum(inside, 1e-9)) * inside
        time = jnp.clip(time * jnp.exp(jnp.clip(step / jnp.maximum(slope * time, 1e-30), -9.0, 9.0)), 1e-9, _FOREVER)
    return time


def grown_by_turn(requests: Requests, reuse: Reuse) -> tuple[Scalar, Scalar]:
    """New prompt tokens of a turn, and tokens that it adds to its session's context, its answer among them.

    The mean prompt ``P`` of ``t`` turns with a shared prefix ``s``, ``u`` new tokens and answers ``a`` is ``s + u (t +
    1) / 2 + a (t - 1) / 2``. Of answers too long for such a mean the prompts have what is left by one new token.
    """
    own, turns = requests.prompt_tokens * (1.0 - requests.prefix_share), reuse.turns
    new = jnp.maximum((2.0 * own - requests.output_tokens * (turns - 1.0)) / (turns + 1.0), 1.0)
    left = jnp.maximum(2.0 * own - (turns + 1.0), 0.0) / jnp.maximum(turns - 1.0, 1e-6)
    return new, new + jnp.where(turns > 1.0, jnp.minimum(requests.output_tokens, left), requests.output_tokens)


def found_share(contents: Contents, prompt: Scalar, time: Scalar) -> Scalar:
    """Share of prompt tokens found in caches with a characteristic time."""
    group = sum(
        many * share * -jnp.expm1(-contents.rate * share * (time + contents.held)) for many, share in contents.groups
    )
    again = (contents.turns - 1.0) / contents.turns
    session = -jnp.expm1(-time / contents.think)
    prefix = contents.prefix * (group + again * session * (1.0 - group))
    return jnp.minimum((prefix + 0.5 * (contents.turns - 1.0) * contents.grown * session) / prompt, 1.0)


def at_best(requests: Requests, reuse: Reuse) -> Lookups:
    """Lookups of caches that hold everything: where the fixed point of hits and load begins, as an engine does.

    Without hits a load may be more than can be served, with no room left for a cache: another fixed point.
    """
    turns = 0.5 * (reuse.turns - 1.0) * grown_by_turn(requests, reuse)[1]
    reused = jnp.minimum(requests.prefix_share + turns / requests.prompt_tokens, 1.0)
    return Lookups(reused, reused, 0.0)


def shared_among(held: KvCapacity, reuse: Reuse) -> KvCapacity:
    """The capacity for sequences where ``n`` of them have ``sum 1 - exp(-n p)`` prefixes, not one."""
    room, groups, n = held.sequences * held.each + held.prefix, popularity(reuse), held.sequences
    for _ in range(ROUNDS):
        distinct = sum(many * -jnp.expm1(-n * share) for many, share in groups)
        n = room / (held.each + held.prefix * distinct / jnp.maximum(n, 1.0))
    distinct = sum(many * -jnp.expm1(-n * share) for many, share in groups)
    return held._replace(sequences=n, prefix=held.prefix * distinct)


def lookups(rank: Rank, reuse: Reuse, held: KvCapacity, found: Served) -> Lookups:
    """Hits of the prefix caches of a rank under a load.

    Args:
        rank: with the requests as stated.
        reuse: their prefixes and sessions.
        held: cache of the rank, by :func:`shared_among`.
        found: rate and requests in flight.
    """
    requests, design = rank.requests, rank.stage.design
    tiers, storage = design.mapping.cache_tiers or CacheTiers(), design.system.host_tiers or HostTiers()
    prompt = requests.prompt_tokens
    each = rank.stage.layout.layers * cache_bytes(design, rank.serving, prompt) / prompt
    contents = Contents(
        popularity(reuse),
        requests.prefix_share * prompt,
        found.rate,
        found.running / found.rate,
        grown_by_turn(requests, reuse)[1],
        reuse.turns,
        reuse.think_time,
    )
    room = jnp.maximum((held.sequences - found.running) * held.each + held.prefix, 0.0) / each
    sizes = room, room + tiers.host_cache / each, room + (tiers.host_cache + tiers.disk_cache) / each
    device, host, disk = (found_share(contents, prompt, characteristic_time(contents, size)) for size in sizes)
    bandwidths = design.system.host.bandwidth, storage.storage_read
    beyond = host - device, disk - host
    loads = [share * prompt * each / bandwidth for share, bandwidth in zip(beyond, bandwidths, strict=True)]
    seconds: Scalar = sum(load / (1.0 - jnp.minimum(found.rate * load, _BUSY)) for load in loads)
    return Lookups(device, disk, seconds)


def with_lookups(rank: Rank, found: Lookups) -> Rank:
    """The rank whose prompts are found in caches, and wait for what other tiers send."""
    requests = dataclasses.replace(rank.requests, prefix_share=found.whole)
    engine = dataclasses.replace(rank.engine, request_time=rank.engine.request_time + found.load_time)
    return rank._replace(requests=requests, engine=engine)
