"""Pools of a service: designs of one pool, balanced pairs, and fleets of whole workers.

A fleet has ``x`` workers that compute prompts and ``y`` that decode, or ``x`` that do both, within a number of devices.
It is asked for the stated share of what it can serve, ``u min(x X_p, y X_d)`` requests/s of Poisson arrivals. A request
waits for a place of each pool as of ``c`` servers in parallel, ``rho^(sqrt(2 (c + 1)) - 1) T / (2 c (1 - rho))`` for
places of ``T`` seconds (Sakasegawa 1977, service without variation): workers with their batches of prompts, and all
sequences of workers that decode.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from dse.model.queues import waiting_share

#: What a worker takes: devices per rate, and whole ones.
WORKER = ("share", "devices", "price")


@dataclasses.dataclass(frozen=True)
class PoolCandidate:
    """A design of one pool, with its costs per rate of requests."""

    accelerator: str
    labels: dict[str, Any]
    rate: float  #: requests/s
    devices: float
    watts: float  #: provisioned power per rate of requests, W s
    price: float  #: USD per request; 0 without prices
    first_token: float  #: time to first token, s
    token: float
    cache: float  #: keys and values of a sequence on a device, bytes
    row: int = 0  #: index in the results of the pool
    queues: bool = False  #: whether memory holds fewer requests than are in flight

    @property
    def share(self) -> float:
        """Devices per rate of requests, s."""
        return self.devices / self.rate


@dataclasses.dataclass(frozen=True)
class Match:
    """Balanced prefill and decode pools, or engines that do both (``decode`` is None)."""

    prefill: PoolCandidate
    decode: PoolCandidate | None
    transfer: float  #: time to send the keys and values of a prompt, s

    @property
    def parts(self) -> tuple[PoolCandidate, ...]:
        """The pools, prefill first."""
        return (self.prefill,) if self.decode is None else (self.prefill, self.decode)

    @property
    def roles(self) -> tuple[str, ...]:
        """Names of the pools in a specification, in the order of the parts."""
        return ("together",) if self.decode is None else ("prefill", "decode")

    @property
    def watts(self) -> float:
        """Provisioned power per rate of requests, W s."""
        return sum(pool.watts for pool in self.parts)

    @property
    def price(self) -> float:
        """USD per request; 0 without prices."""
        return sum(pool.price for pool in self.parts)

    @property
    def share(self) -> float:
        """Share of the devices that are in the prefill pool, of balanced pools."""
        return self.prefill.share / sum(pool.share for pool in self.parts)

    @property
    def rate(self) -> float:
        """Requests/s per device, of balanced pools."""
        return 1.0 / sum(pool.share for pool in self.parts)

    @property
    def first_token(self) -> float:
        """Time to first token with the transfer, s."""
        return self.prefill.first_token + self.transfer

    @property
    def token(self) -> float:
        """Time per output token, s."""
        return self.parts[-1].token

    def gain(self, other: Match) -> tuple[float, float, float]:
        """Return the ratio of the rates to ``other`` at equal price, at equal power, and at both.

        The ratio at equal price is NaN without prices.
        """
        power = other.watts / self.watts
        price = other.price / self.price if self.price > 0.0 and other.price > 0.0 else math.nan
        return price, power, min(price, power) if math.isfinite(price) else math.nan


class PoolFleet(NamedTuple):
    """Whole workers that serve a rate of requests."""

    match: Match
    workers: tuple[int, ...]  #: of each pool
    rate: float  #: requests/s that are asked of it
    waits: tuple[float, ...]  #: for a place of each pool, s; that of pools that decode comes after the first token
    later: float = 1.0  #: output tokens after the first one

    @property
    def counted_pools(self) -> list[tuple[int, PoolCandidate]]:
        """Number of workers and design of each pool."""
        return list(zip(self.workers, self.match.parts, strict=True))

    @property
    def devices(self) -> int:
        """Number of devices of all workers."""
        return int(sum(count * pool.devices for count, pool in self.counted_pools))

    @property
    def first_token(self) -> float:
        """Time to first token with transfer and queue, s."""
        return self.match.first_token + self.waits[0]

    @property
    def token(self) -> float:
        """Time per output token with the wait for a place of the decode pool, s."""
        return self.match.token + sum(self.waits[1:]) / self.later

    @property
    def headroom(self) -> tuple[float, ...]:
        """Share by which the rate may grow until each pool is full, by pool."""
        return tuple(count * pool.rate / self.rate - 1.0 for count, pool in self.counted_pools)

    @property
    def hourly(self) -> float:
        """USD per hour; 0 without prices."""
        return 3600.0 * sum(count * pool.price * pool.rate for count, pool in self.counted_pools)


def fleets(matches: Iterable[Match], devices: dict[str, int], utilisation: float, later: float) -> Iterator[PoolFleet]:
    """Yield a fleet for each match, with the fewest workers that serve the highest rate; none where no worker fits.

    Args:
        matches: pairs of designs, or designs that do both.
        devices: accelerator → devices; of all together under "".
        utilisation: share of what a fleet can serve that is asked of it.
        later: output tokens after the first one, mean.
    """
    for match in matches:
        splits = [workers for workers in _splits(match, devices) if all(workers)]
        if not splits:
            continue

        def capacity(workers: tuple[int, ...], match: Match = match) -> float:
            return min(count * pool.rate for count, pool in zip(workers, match.parts, strict=True))

        rate = max(map(capacity, splits))
        counts = tuple(math.ceil(rate / pool.rate - 1e-9) for pool in match.parts)
        offered_rate = utilisation * rate
        waits = tuple(
            wait(pool, count, offered_rate, index == 0 and match.decode is not None)[1]
            for index, (pool, count) in enumerate(zip(match.parts, counts, strict=True))
        )
        yield PoolFleet(match, counts, offered_rate, waits, max(later, 1.0))


def _splits(match: Match, devices: dict[str, int]) -> Iterator[tuple[int, ...]]:
    """Yield the numbers of workers (by pool) that the devices allow; of a total, those next to the balance."""
    total = devices.get("")
    if total is None:
        devices_by_pool = [devices.get(pool.accelerator, 0) for pool in match.parts]
        if len(devices_by_pool) == 1 or match.parts[0].accelerator != match.parts[1].accelerator:
            yield tuple(int(count // pool.devices) for count, pool in zip(devices_by_pool, match.parts, strict=True))
            return
        total = devices_by_pool[0]
    prefill_devices = match.parts[0].devices
    if match.decode is None:
        yield (int(total // prefill_devices),)
        return
    balanced = int(match.share * total / prefill_devices)
    for count in range(max(balanced - 1, 1), balanced + 3):
        yield count, int(max(total - count * prefill_devices, 0.0) // match.decode.devices)


def wait(pool: PoolCandidate, workers: int, rate: float, is_prefill: bool) -> tuple[float, float]:
    """Return the share (0 to 1) of requests that wait for a place of a pool, and the mean wait of all in seconds.

    A worker for prompts is a place for a batch, one that decodes has a place for each of its sequences.
    """
    batch = float(pool.labels.get("concurrency", 1.0))
    slots = workers if is_prefill else workers * batch
    rho, residence = rate / (workers * pool.rate), (batch / pool.rate)
    share = float(waiting_share(rho, slots))
    return share, share * residence / (2.0 * slots * (1.0 - rho))


def best_fleets(candidates: list[PoolFleet]) -> list[PoolFleet]:
    """Return the fleets that no other one beats in TTFT, TPOT and rate at once, ordered by TPOT."""
    front: list[PoolFleet] = []
    for candidate in sorted(candidates, key=lambda fleet: (fleet.token, fleet.first_token, -fleet.rate)):
        if not any(other.first_token <= candidate.first_token and other.rate >= candidate.rate for other in front):
            front.append(candidate)
    return front
