"""Cheapest pools that serve a rate of requests within latency limits: workers for prompts beside workers that decode.

A pair of designs of :mod:`dse.sweep.pools` with ``x`` and ``y`` workers serves the rate. A request waits for a place of
each pool as of ``c`` servers in parallel (:mod:`dse.sweep.workers`): a share ``P`` of them, ``W`` seconds in the mean
of all. Waits are exponential, so that a share ``e`` waits longer than ``W / P ln(P / e)``. The time per token is that
of workers whose places are all taken. The fewest workers are taken that keep the limits.
"""

from __future__ import annotations

import bisect
import dataclasses
import json
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from dse.designs import catalog, composing
from dse.designs.leaves import leaf
from dse.spec.pools import from_text
from dse.sweep.planning.demand import DEGREES, Demand, Fleet, Workers, outside
from dse.sweep.pools import front, swept_pools
from dse.sweep.workers import WORKER, Candidate, wait

#: Most requests in flight of a worker for prompts and of one that decodes.
_MOST_PROMPTS, _MOST_SEQUENCES = 64, 8192

#: Most of what workers serve that is asked of them.
_UTILISATION = 0.9

#: Statistic → share of the requests beyond it.
_BEYOND = {"p50": 0.5, "p90": 0.1, "p95": 0.05, "p99": 0.01}

#: Workers are counted up to this multiple of the devices that there are.
_MOST_DEVICES = 16

#: Steps of the search for the highest rate.
_HALVINGS = 12


class Pools(NamedTuple):
    """Designs of both pools of one accelerator that none beats."""

    senders: list[Candidate]
    receivers: list[Candidate]
    transfer: float  #: bytes/s of a device
    parameters: float  #: of the model


def swept(demand: Demand, accelerator: str) -> Pools:
    """All designs of pools of workers of one accelerator, those alone that may be the cheapest."""
    made = composing.design(demand.workload, accelerator, n_devices=1, kind="serving")
    transfer = float(leaf(made, "system.scale_out.bandwidth"))
    _, results, found = swept_pools(from_text(_specification(demand, accelerator, transfer), "plan"), "plan")
    priced = {name: list(_priced(found[name], results[name])) for name in found}
    parameters = results["decode"].parameters.values.ravel()
    senders = front(priced["prefill"], (*WORKER, "first_token", "cache"))
    receivers = front(priced["decode"], (*WORKER, "token", "cache"))
    return Pools(senders, receivers, transfer, float(parameters[0]) if parameters.size else 0.0)


def _priced(found: list[Candidate], results: Any) -> Iterator[Candidate]:
    """Candidates that hold their requests, with USD per request of buying and running them."""
    hourly = np.broadcast_to(results.cost_per_device_hour.values, results.sizes["design"])
    for one in found:
        if not one.queues:
            yield dataclasses.replace(one, price=float(hourly[one.row]) * one.devices / (3600.0 * one.rate))


def _specification(demand: Demand, accelerator: str, transfer: float) -> str:
    """The pools of one accelerator."""
    axes = {"n_devices": [2**k for k in range(demand.max_devices.bit_length())], "tp": "divisors"}
    if catalog.is_mixture(demand.workload):
        axes["ep"] = "divisors"

    def sized(most: int) -> list[str]:
        counts = sorted({factor << k for k in range(most.bit_length()) for factor in (1, 3) if factor << k <= most})
        return [f"{name} = {json.dumps(values)}" for name, values in (axes | {"concurrency": counts}).items()]

    lengths = f"prompt_tokens = {demand.prompt_tokens!r}\noutput_tokens = {demand.output_tokens!r}"
    return "\n".join([
        "[workload]", f"name = {json.dumps(demand.workload)}", "[system]", f"name = {json.dumps(accelerator)}",
        "[serving]", lengths, "[prefill.axes]", *sized(_MOST_PROMPTS), "[decode.axes]", *sized(_MOST_SEQUENCES),
        "[output]", "money = true", "[pools]", f'transfer = "{transfer!r} B/s"',
    ])  # fmt: skip


def cheapest(pools: Pools, demand: Demand, accelerator: str) -> Fleet | str:
    """The cheapest pools of one accelerator, or the reason for none."""
    pairs = (_Pair(p, d, max(p.cache, d.cache) / pools.transfer, demand)
             for p in pools.senders for d in pools.receivers)  # fmt: skip
    made = [(pair, workers) for pair in pairs if (workers := pair.fewest())]
    if not made:
        return "no pools meet both limits"
    within = [(pair, workers) for pair, workers in made if pair.devices(workers) <= demand.max_devices]
    if not within:
        return f"pools need {min(one.devices(workers) for one, workers in made)} devices of {demand.max_devices}"
    pair, workers = min(within, key=lambda one: (one[0].hourly(one[1]), one[0].first_token(one[1][0])))
    fleet = Fleet(
        accelerator, str(pair.decode.labels.get("software", "")), pair.workers(workers), pair.first_token(workers[0]),
        pair.token(workers[1]), pair.highest(workers), pair.hourly(workers), "",
    )  # fmt: skip
    return fleet._replace(outside=outside(fleet, pools.parameters, demand))


class _Pair(NamedTuple):
    """A design of each pool, with what is asked of them."""

    prefill: Candidate
    decode: Candidate
    transfer: float  #: seconds of the keys and values of a prompt
    demand: Demand

    def devices(self, workers: tuple[int, int]) -> int:
        """Devices of so many workers."""
        return int(workers[0] * self.prefill.devices + workers[1] * self.decode.devices)

    def hourly(self, workers: tuple[int, int]) -> float:
        """USD per hour."""
        parts = zip(workers, (self.prefill, self.decode), strict=True)
        return sum(3600.0 * count * part.price * part.rate for count, part in parts)

    def first_token(self, count: int, rate: float = 0.0) -> float:
        """Time to first token of so many workers for prompts, of the statistic that is limited."""
        waits = _wait(self.prefill, count, rate or self.demand.rate, True, self.demand.first_token_statistic)
        return self.prefill.first_token + self.transfer + waits

    def token(self, count: int, rate: float = 0.0) -> float:
        """Time per output token of so many workers that decode, likewise."""
        waits = _wait(self.decode, count, rate or self.demand.rate, False, self.demand.token_statistic)
        return self.decode.token + waits / max(self.demand.output_tokens - 1.0, 1.0)

    def fewest(self) -> tuple[int, int] | None:
        """Numbers of workers that keep both limits; None where no number does."""
        x = self._fewest(self.prefill, self.first_token, self.demand.first_token_limit)
        y = self._fewest(self.decode, self.token, self.demand.token_limit)
        return (x, y) if x and y else None

    def _fewest(self, part: Candidate, seconds: Callable[[int], float], limit: float) -> int:
        """Number of workers of one pool that keep its limit, of which more wait less; 0 where none does."""
        least = max(math.ceil(self.demand.rate / (_UTILISATION * part.rate) - 1e-9), 1)
        most = max(_MOST_DEVICES * self.demand.max_devices // int(part.devices), least)
        if seconds(most) > limit:
            return 0
        return least + bisect.bisect_left(range(least, most), -limit, key=lambda count: -seconds(count))

    def highest(self, workers: tuple[int, int]) -> float:
        """Highest rate within the limits, requests/s."""
        low = self.demand.rate
        high = _UTILISATION * min(workers[0] * self.prefill.rate, workers[1] * self.decode.rate)
        for _ in range(_HALVINGS):
            rate = 0.5 * (low + high)
            keeps = self.first_token(workers[0], rate) <= self.demand.first_token_limit
            keeps &= self.token(workers[1], rate) <= self.demand.token_limit
            low, high = (rate, high) if keeps else (low, rate)
        return low

    def workers(self, counts: tuple[int, int]) -> tuple[Workers, ...]:
        """Both pools, in words of a plan."""
        made = []
        for role, count, part in zip(("prefill", "decode"), counts, (self.prefill, self.decode), strict=True):
            degrees = {name: int(part.labels[name]) for name in DEGREES if name in part.labels}
            busy = self.demand.rate / (count * part.rate)
            made.append(Workers(role, count, int(part.devices), degrees, float(part.labels["concurrency"]), busy))
        return tuple(made)


def _wait(part: Candidate, count: int, rate: float, prompts: bool, statistic: str) -> float:
    """Seconds that a request waits for a place of a pool: the mean, or those that a share waits longer."""
    share, mean = wait(part, count, rate, prompts)
    if statistic == "mean":
        return mean
    beyond = _BEYOND[statistic]
    return mean / share * math.log(share / beyond) if share > beyond else 0.0
