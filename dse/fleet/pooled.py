"""Cheapest pools that serve a rate of requests within latency limits: workers for prompts beside workers that decode.

A pair of designs of :mod:`dse.fleet.pools` with ``x`` and ``y`` workers serves the rate. A request waits for a place of
each pool as of ``c`` servers in parallel (:mod:`dse.fleet.workers`): a share ``P`` of them, ``W`` seconds in the mean
of all. Waits are exponential, so that a share ``e`` waits longer than ``W / P ln(P / e)``. The time per token is that
of workers whose places are all taken. The fewest workers are taken that keep the limits.
"""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from dse.designs import catalog, composing, leaf
from dse.fleet import workers
from dse.fleet.demand import DEGREES, Fleet, ServiceDemand, WorkerGroup, fleet_of, precision_of
from dse.fleet.planning import set_leaves, specification, with_settings
from dse.fleet.pools import front, swept_pools, transfer_time
from dse.fleet.swept import SweptDesigns
from dse.fleet.workers import WORKER, Match, PoolCandidate
from dse.io import counted
from dse.spec.pools import from_text

#: Most requests in flight of a worker for prompts and of one that decodes.
_MAX_PROMPTS, _MAX_SEQUENCES = 64, 8192

#: Most of what workers serve that is asked of them.
_UTILISATION = 0.9

#: Statistic → share of the requests beyond it.
_TAIL_SHARES = {"p50": 0.5, "p90": 0.1, "p95": 0.05, "p99": 0.01}

#: Workers are counted up to this multiple of the devices that there are.
_MAX_DEVICE_FACTOR = 16

#: Steps of the search for the highest rate.
_HALVINGS = 12


class PoolDesigns(NamedTuple):
    """Designs of both pools of one accelerator that none beats."""

    senders: list[PoolCandidate]
    receivers: list[PoolCandidate]
    bandwidth: float  #: bytes/s of a device
    parameters: float  #: of the model
    precision: str  #: format that it is served in


def pool_designs(demand: ServiceDemand, accelerator: str) -> PoolDesigns:
    """Return the designs of both pools of one accelerator that may be the cheapest, from a sweep of them."""
    design = composing.design(demand.workload, accelerator, demand.software or None, n_devices=1, kind="serving")
    design = set_leaves(design, demand.settings)
    bandwidth = float(leaf(design, "system.scale_out.bandwidth"))
    results, candidates = swept_pools(from_text(_specification(demand, accelerator, bandwidth), "plan"), "plan")
    priced_candidates = {name: list(_with_prices(candidates[name], results[name])) for name in candidates}
    parameters = results["decode"].columns["parameters"]
    senders = front(priced_candidates["prefill"], (*WORKER, "first_token", "cache"))
    receivers = front(priced_candidates["decode"], (*WORKER, "token", "cache"))
    return PoolDesigns(
        senders, receivers, bandwidth, float(parameters[0]) if parameters.size else 0.0, precision_of(design)
    )


def _with_prices(candidates: list[PoolCandidate], results: SweptDesigns) -> Iterator[PoolCandidate]:
    """Yield the candidates whose requests fit in memory, their price set to USD per request of the device-hours."""
    hourly = results.columns["cost_per_device_hour"]
    for candidate in candidates:
        if not candidate.queues:
            yield dataclasses.replace(
                candidate, price=float(hourly[candidate.row]) * candidate.devices / (3600.0 * candidate.rate)
            )


def _specification(demand: ServiceDemand, accelerator: str, bandwidth: float) -> str:
    """Return the TOML specification of a prefill and a decode pool of one accelerator, ``bandwidth`` in B/s."""
    axes: dict[str, Any] = {"n_devices": [2**k for k in range(demand.max_devices.bit_length())], "tp": "divisors"}
    if catalog.is_mixture(demand.workload):
        axes["ep"] = "divisors"

    def pool(most: int) -> dict[str, Any]:
        """Return the section of a pool with up to ``most`` requests in flight."""
        counts = {factor << k for k in range(most.bit_length()) for factor in (1, 3) if factor << k <= most}
        return {"axes": with_settings(axes | {"concurrency": sorted(counts)}, demand)}

    return specification(
        demand,
        accelerator,
        {},
        serving=demand.request_lengths,
        output={"money": True},
        prefill=pool(_MAX_PROMPTS),
        decode=pool(_MAX_SEQUENCES),
        pools={"transfer": f"{bandwidth!r} B/s"},
    )


def cheapest(pools: PoolDesigns, demand: ServiceDemand, accelerator: str) -> Fleet | str:
    """Return the cheapest fleet of pools (USD/h) within limits and devices, or the reason for none as a text."""
    receivers = [(pool, n_workers) for pool in pools.receivers if (n_workers := _fewest_workers(pool, 1, 0.0, demand))]
    pairs = [(sender, receiver, n_receivers) for sender in pools.senders for receiver, n_receivers in receivers]
    least_costs = [
        _least_workers(sender, demand) * sender.price * sender.rate + n_receivers * receiver.price * receiver.rate
        for sender, receiver, n_receivers in pairs
    ]
    senders_by_transfer: dict[tuple[int, float], int | None] = {}
    best, best_key, fewest_devices = None, (math.inf, math.inf, 0), math.inf
    for position in sorted(range(len(pairs)), key=least_costs.__getitem__):
        if 3600.0 * least_costs[position] > best_key[0] * (1.0 + 1e-9):
            break  # neither this pair nor a later one is cheaper, whatever its senders' waits need
        sender, receiver, n_receivers = pairs[position]
        transfer_seconds = transfer_time(sender, receiver, pools.bandwidth)
        key = id(sender), transfer_seconds
        if key not in senders_by_transfer:
            senders_by_transfer[key] = _fewest_workers(sender, 0, transfer_seconds, demand)
        if n_senders := senders_by_transfer[key]:
            pair = Match(sender, receiver, transfer_seconds)
            fleet = _fleet_at_rate(pair, (n_senders, n_receivers), demand.rate, demand)
            fewest_devices = min(fewest_devices, fleet.devices)
            fleet_key = (fleet.hourly, fleet.first_token, position)
            if fleet.devices <= demand.max_devices and fleet_key < best_key:
                best, best_key = fleet, fleet_key
    if not math.isfinite(fewest_devices):
        return "no pools meet the limits"
    if best is None:
        return f"pools need {counted(int(fewest_devices), 'device')} of {demand.max_devices}"
    software = str(best.match.parts[1].labels.get("software", ""))
    return fleet_of(
        demand,
        accelerator,
        software,
        _worker_groups(best),
        times=(best.first_token, best.token),
        rate=_highest_rate(best, demand),
        hourly=best.hourly,
        parameters=pools.parameters,
        precision=pools.precision,
    )


def _fewest_workers(pool: PoolCandidate, pool_index: int, transfer_seconds: float, demand: ServiceDemand) -> int | None:
    """Return the least number of workers of a pool that keep its limit, None where no number does.

    Args:
        pool: design of the pool.
        pool_index: of the pool in a pair, 0 for prompts.
        transfer_seconds: seconds between the pools.
        demand: rate and limits.
    """
    statistic = demand.token_statistic if pool_index else demand.first_token_statistic

    def keeps_limit(count: int) -> bool:
        wait = _wait(pool, count, demand.rate, pool_index == 0, statistic)
        if pool_index == 0:
            return pool.first_token + transfer_seconds + wait <= demand.first_token_limit
        return pool.token + wait / _later_tokens(demand) <= demand.token_limit

    low = _least_workers(pool, demand)
    high = max(_MAX_DEVICE_FACTOR * demand.max_devices // int(pool.devices), low)
    if not keeps_limit(high):
        return None
    return low + bisect.bisect_left(range(low, high), True, key=keeps_limit)  # more workers wait less


def _least_workers(pool: PoolCandidate, demand: ServiceDemand) -> int:
    """Return the number of workers of a pool below which they cannot serve the rate, whatever the waits."""
    return max(math.ceil(demand.rate / (_UTILISATION * pool.rate) - 1e-9), 1)


def _later_tokens(demand: ServiceDemand) -> float:
    """Return the number of output tokens after the first one, at least 1."""
    return max(demand.output_tokens - 1.0, 1.0)


def _fleet_at_rate(pair: Match, counts: tuple[int, ...], rate: float, demand: ServiceDemand) -> workers.PoolFleet:
    """Return the fleet of ``counts`` workers of each pool at a rate in requests/s, with waits of the statistics."""
    statistics = demand.first_token_statistic, demand.token_statistic
    waits = (
        _wait(pool, count, rate, pool_index == 0, statistic)
        for pool_index, (pool, count, statistic) in enumerate(zip(pair.parts, counts, statistics, strict=True))
    )
    return workers.PoolFleet(pair, counts, rate, tuple(waits), _later_tokens(demand))


def _highest_rate(fleet: workers.PoolFleet, demand: ServiceDemand) -> float:
    """Return the highest rate of the same workers within the limits, requests/s."""
    low = demand.rate
    high = _UTILISATION * min(count * pool.rate for count, pool in zip(fleet.workers, fleet.match.parts, strict=True))
    for _ in range(_HALVINGS):
        rate = 0.5 * (low + high)
        faster = _fleet_at_rate(fleet.match, fleet.workers, rate, demand)
        is_within_limits = faster.first_token <= demand.first_token_limit and faster.token <= demand.token_limit
        low, high = (rate, high) if is_within_limits else (low, rate)
    return low


def _worker_groups(fleet: workers.PoolFleet) -> tuple[WorkerGroup, ...]:
    """Return the prefill and the decode pool as groups of workers of a plan."""
    return tuple(
        WorkerGroup(
            role,
            count,
            int(pool.devices),
            {name: int(pool.labels[name]) for name in DEGREES if name in pool.labels},
            float(pool.labels["concurrency"]),
            fleet.rate / (count * pool.rate),
        )
        for role, count, pool in zip(("prefill", "decode"), fleet.workers, fleet.match.parts, strict=True)
    )


def _wait(pool: PoolCandidate, count: int, rate: float, is_prefill: bool, statistic: str) -> float:
    """Return the seconds that a request waits for a place of a pool: the mean, or the quantile ``statistic``."""
    share, mean = workers.wait(pool, count, rate, is_prefill)
    if statistic == "mean":
        return mean
    tail_share = _TAIL_SHARES[statistic]
    return mean / share * math.log(share / tail_share) if share > tail_share else 0.0
