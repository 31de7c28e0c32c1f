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

from dse.model.machine.rates import host_link_rate
from dse.model.serving.memory import KvCapacity
from dse.model.serving.steady import SteadyState
from dse.model.serving.work import Rank, cache_bytes
from dse.types import CacheTiers, HostTiers, Requests, Reuse, Scalar

#: Prefixes that are counted one by one, and parts of the logarithmic rank for the rest (Gauss-Legendre).
_SINGLE_PREFIXES, _RANK_NODES = 4, 10

#: Newton steps of a characteristic time, and rounds of hit rates with the load that they make.
_NEWTON_STEPS, ROUNDS = 7, 2

#: Longest characteristic time, s, and largest share of a link's time.
_FOREVER, _BUSY = 1e9, 0.95


class Lookups(NamedTuple):
    """Share of prompt tokens found in prefix caches, and what they take."""

    device_hits: Scalar  # in device memory
    total_hits: Scalar  # in all tiers
    load_time: Scalar  # of a request's tokens from other tiers, mean, s


class _PrefixGroup(NamedTuple):
    """Prefixes of one popularity."""

    prefixes: Scalar
    request_share: Scalar  # of requests, each


class CacheContents(NamedTuple):
    """Contents of the prefix cache of a rank by their source, in tokens."""

    groups: list[_PrefixGroup]
    prefix_tokens: Scalar  # tokens of a prefix
    request_rate: Scalar  # requests/s
    prefix_hold_time: Scalar  # time that a request holds its prefix, s
    turn_tokens: Scalar  # tokens that a turn adds to its session's context
    turns: Scalar
    think_time: Scalar  # s

    def tokens_used(self, time: Scalar) -> tuple[Scalar, Scalar]:
        """Return (tokens that were used within ``time`` seconds, their slope in tokens/s).

        Prefixes; contexts of sessions whose user still thinks, ``(t - 1) / 2`` turns long; and of those that have
        ended, which nobody asks for again.
        """
        prefixes, slope = _prefixes_used(self, time)
        thinking_share = jnp.exp(-time / self.think_time)
        mean_turns = 0.5 * (self.turns - 1.0)
        tokens = self.prefix_tokens * prefixes + self.request_rate * self.turn_tokens * (
            mean_turns * self.think_time * (1.0 - thinking_share) + time
        )
        return tokens, self.prefix_tokens * slope + self.request_rate * self.turn_tokens * (
            mean_turns * thinking_share + 1.0
        )


def _prefixes_used(contents: CacheContents, time: Scalar) -> tuple[Scalar, Scalar]:
    """Return (mean count of prefixes used within ``time`` seconds, their slope in prefixes/s)."""
    prefixes: Scalar = 0.0
    slope: Scalar = 0.0
    for count, share in contents.groups:
        rate = contents.request_rate * share
        absent_share = jnp.exp(-rate * (time + contents.prefix_hold_time))
        prefixes, slope = prefixes + count * (1.0 - absent_share), slope + count * rate * absent_share
    return prefixes, slope


def popularity(reuse: Reuse) -> list[_PrefixGroup]:
    """Return groups of prefixes by popularity under Zipf's law: count, and share of the requests of each prefix.

    The prefix of rank ``r`` has ``r^-a / sum r^-a`` of the requests.
    """
    nodes, weights = np.polynomial.legendre.leggauss(_RANK_NODES)
    ranks: list[tuple[Scalar, Scalar]] = [
        (jnp.clip(reuse.prefix_groups - r, 0.0, 1.0), r + 1.0) for r in range(_SINGLE_PREFIXES)
    ]
    start = _SINGLE_PREFIXES + 0.5
    span = jnp.log(jnp.maximum(reuse.prefix_groups + 0.5, start) / start)
    for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
        rank = start * jnp.exp(0.5 * (1.0 + node) * span)
        ranks.append((0.5 * weight * span * rank, rank))
    shares = [rank**-reuse.prefix_skew for _, rank in ranks]
    total = sum(count * share for (count, _), share in zip(ranks, shares, strict=True))
    return [_PrefixGroup(count, share / total) for (count, _), share in zip(ranks, shares, strict=True)]


def characteristic_time(contents: CacheContents, capacity: Scalar) -> Scalar:
    """Return the seconds that an item stays after its last use in a cache of ``capacity`` tokens, up to 1e9 s.

    Newton steps in logarithms, from below, as the first one takes all requests for different ones.
    """
    time = capacity / (
        contents.request_rate * (contents.prefix_tokens + 0.5 * (contents.turns + 1.0) * contents.turn_tokens)
    )
    for _ in range(_NEWTON_STEPS):
        tokens, slope = contents.tokens_used(time)
        step = jnp.log(jnp.maximum(capacity, 1e-9) / jnp.maximum(tokens, 1e-9)) * tokens
        time = jnp.clip(time * jnp.exp(jnp.clip(step / jnp.maximum(slope * time, 1e-30), -9.0, 9.0)), 1e-9, _FOREVER)
    return time


def turn_growth(requests: Requests, reuse: Reuse) -> tuple[Scalar, Scalar]:
    """Return (new prompt tokens of a turn, tokens that it adds to its session's context with its answer).

    The mean prompt ``P`` of ``t`` turns with a shared prefix ``s``, ``u`` new tokens and answers ``a`` is ``s + u (t +
    1) / 2 + a (t - 1) / 2``. Of answers too long for such a mean the prompts have what is left by one new token.

    Args:
        requests: lengths of prompts and answers.
        reuse: turns of a session.
    """
    unshared_tokens, turns = requests.prompt_tokens * (1.0 - requests.prefix_share), reuse.turns
    new_tokens = jnp.maximum((2.0 * unshared_tokens - requests.output_tokens * (turns - 1.0)) / (turns + 1.0), 1.0)
    max_answer_tokens = jnp.maximum(2.0 * unshared_tokens - (turns + 1.0), 0.0) / jnp.maximum(turns - 1.0, 1e-6)
    return new_tokens, new_tokens + jnp.where(
        turns > 1.0, jnp.minimum(requests.output_tokens, max_answer_tokens), requests.output_tokens
    )


def hit_rate(contents: CacheContents, prompt: Scalar, time: Scalar) -> Scalar:
    """Return the share of prompt tokens in caches with a characteristic time of ``time`` seconds.

    Args:
        contents: of the cache.
        prompt: tokens of a prompt.
        time: characteristic time, s.
    """
    group_share = sum(
        count * share * -jnp.expm1(-contents.request_rate * share * (time + contents.prefix_hold_time))
        for count, share in contents.groups
    )
    later_turn_share = (contents.turns - 1.0) / contents.turns
    session_share = -jnp.expm1(-time / contents.think_time)
    prefix_tokens = contents.prefix_tokens * (group_share + later_turn_share * session_share * (1.0 - group_share))
    return jnp.minimum(
        (prefix_tokens + 0.5 * (contents.turns - 1.0) * contents.turn_tokens * session_share) / prompt, 1.0
    )


def perfect_lookups(requests: Requests, reuse: Reuse) -> Lookups:
    """Return the lookups of caches that hold everything in device memory.

    There the fixed point of hits and load begins, as an engine does.

    Without hits a load may be more than can be served, with no room left for a cache: another fixed point.

    Args:
        requests: as stated.
        reuse: their prefixes and sessions.
    """
    turns = 0.5 * (reuse.turns - 1.0) * turn_growth(requests, reuse)[1]
    reused_share = jnp.minimum(requests.prefix_share + turns / requests.prompt_tokens, 1.0)
    return Lookups(reused_share, reused_share, 0.0)


def with_shared_prefixes(kv: KvCapacity, reuse: Reuse) -> KvCapacity:
    """Return the capacity for sequences where ``n`` of them have ``sum 1 - exp(-n p)`` prefixes, not just 1.

    Args:
        kv: capacity for sequences with one prefix.
        reuse: their prefixes.
    """
    prefix_and_cache_bytes = kv.sequences * kv.bytes_per_sequence + kv.prefix
    groups = popularity(reuse)
    n = kv.sequences
    for _ in range(ROUNDS):
        distinct_prefixes = sum(count * -jnp.expm1(-n * share) for count, share in groups)
        n = prefix_and_cache_bytes / (kv.bytes_per_sequence + kv.prefix * distinct_prefixes / jnp.maximum(n, 1.0))
    distinct_prefixes = sum(count * -jnp.expm1(-n * share) for count, share in groups)
    return kv._replace(sequences=n, prefix=kv.prefix * distinct_prefixes)


def lookups(rank: Rank, reuse: Reuse, kv: KvCapacity, state: SteadyState) -> Lookups:
    """Return the hit shares and load time, s, of the prefix caches of a rank under a load.

    Args:
        rank: with the requests as stated.
        reuse: their prefixes and sessions.
        kv: cache of the rank, by :func:`with_shared_prefixes`.
        state: rate and requests in flight.
    """
    requests, design = rank.requests, rank.stage.design
    tiers, storage = design.mapping.cache_tiers or CacheTiers(), design.system.host_tiers or HostTiers()
    prompt = requests.prompt_tokens
    token_bytes = rank.stage.layout.layers * cache_bytes(design, rank.serving, prompt) / prompt
    contents = CacheContents(
        popularity(reuse),
        requests.prefix_share * prompt,
        state.rate,
        state.running / state.rate,
        turn_growth(requests, reuse)[1],
        reuse.turns,
        reuse.think_time,
    )
    free_tokens = jnp.maximum((kv.sequences - state.running) * kv.bytes_per_sequence + kv.prefix, 0.0) / token_bytes
    sizes = (
        free_tokens,
        free_tokens + tiers.host_cache / token_bytes,
        free_tokens + (tiers.host_cache + tiers.disk_cache) / token_bytes,
    )
    device, host, disk = (hit_rate(contents, prompt, characteristic_time(contents, size)) for size in sizes)
    bandwidths = host_link_rate(design.system), storage.storage_read
    lower_tier_shares = host - device, disk - host
    load_times = [
        share * prompt * token_bytes / bandwidth for share, bandwidth in zip(lower_tier_shares, bandwidths, strict=True)
    ]
    seconds: Scalar = sum(load_time / (1.0 - jnp.minimum(state.rate * load_time, _BUSY)) for load_time in load_times)
    return Lookups(device, disk, seconds)


def with_lookups(rank: Rank, hits: Lookups) -> Rank:
    """Return the rank with its hits as prefix share, and the time to load them added to its request time.

    Args:
        rank: with the requests as stated.
        hits: of its caches.
    """
    requests = dataclasses.replace(rank.requests, prefix_share=hits.total_hits)
    engine = dataclasses.replace(rank.engine, request_time=rank.engine.request_time + hits.load_time)
    return rank._replace(requests=requests, engine=engine)
