"""``dse plan --serving``: the cheapest replicas and pools of each accelerator, and what would change the cheapest.

Replicas are engines that do prompts and answers. One sweep lists every mapping of one replica and rate of Poisson
arrivals at it. ``R = ceil(rate / r)`` replicas of ``n`` devices serve the rate, where one serves ``r`` requests/s
within the limits, for ``R n c`` USD an hour at ``c`` USD per device-hour. Limits are of the mean or of a percentile.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dse.errors import InputError
from dse.fleet import pooled
from dse.fleet.demand import DEGREES, Fleet, ServiceDemand, WorkerGroup, fleet_of, precision_of
from dse.fleet.planning import Plan, Progress, checked, plan, plan_kind, specification
from dse.fleet.swept import swept_designs
from dse.io import counted, digits, seconds
from dse.spec import sweep as specs
from dse.sweep.grid import compose

_KIND = plan_kind(
    "service",
    criterion=lambda fleet, demand: fleet.hourly,
    fleet_text=lambda fleet: f"{digits(fleet.hourly)} USD/h, {fleet.accelerator}, {fleet.kind}",
    price_text=lambda best, other, demand: (
        f"{other.accelerator} is as cheap at a price per device-hour "
        f"{100.0 * (1.0 - best.hourly / other.hourly):.0f} % lower"
    ),
)


def provision(demand: ServiceDemand, progress: Progress | None = None) -> Plan:
    """Return the cheapest replicas and the cheapest pools of each accelerator for a demand.

    Args:
        demand: rate, lengths and limits, at least one; names of the catalogue.
        progress: called with the state of the plan.

    Returns:
        The plan; no fleet where no accelerator serves the demand.

    Raises:
        InputError: for unknown names, numbers that are not positive, and settings of what the plan decides.
    """
    if not demand.limits:
        raise InputError("dse plan --serving", "no limit of latency", "--ttft, --tpot or both", "add --tpot 50ms")
    return plan(checked(demand, _KIND), _KIND, _candidates, progress)


def _candidates(demand: ServiceDemand) -> Iterator[tuple[str, ServiceDesigns]]:
    """Yield accelerator and its designs."""
    for name, replicas in swept_replicas(demand).items():
        yield name, ServiceDesigns(demand, name, replicas)


class ServiceDesigns:
    """Designs of one accelerator, which serve any demand of the same lengths."""

    def __init__(self, demand: ServiceDemand, accelerator: str, replicas: dict[str, Any]) -> None:
        self.accelerator, self.replicas = accelerator, replicas
        self.pools = pooled.pool_designs(demand, accelerator) if replicas["possible"].any() else None

    def fleets(self, demand: ServiceDemand) -> tuple[list[Fleet], str]:
        """Return the cheapest replicas and pools that serve a demand, and a text why one is missing, or ""."""
        results = [cheapest_replicas(self.replicas, demand, self.accelerator)]
        if self.pools:
            results.append(pooled.cheapest(self.pools, demand, self.accelerator))
        reasons = "; ".join(result for result in results if isinstance(result, str))
        return [result for result in results if isinstance(result, Fleet)], reasons


#: Replicas that share a rate, up to this multiple of the most devices, and higher rates for the margins.
_REPLICAS = sorted({*range(1, 17), *(round(2.0 ** (k / 4)) for k in range(81))})
_MAX_DEVICE_FACTOR, _RATE_FACTORS = 16, (1.1, 1.25, 1.5, 2.0)


def _specification(demand: ServiceDemand) -> str:
    """Return the TOML specification of the replicas of all accelerators."""
    rates = (
        rate / count
        for rate in (demand.rate, *demand.further_rates)
        for count in _REPLICAS
        if count <= _MAX_DEVICE_FACTOR * demand.max_devices
    )
    axes = {
        "accelerator": list(demand.accelerators),
        "n_devices": [2**k for k in range(demand.max_devices.bit_length())],
        "tp": "divisors",
        "request_rate": [*dict.fromkeys(rates), *(demand.rate * factor for factor in _RATE_FACTORS)],
    }
    output = {"keep": "all", "money": True, "tails": True}
    return specification(demand, demand.accelerators[0], axes, serving=demand.request_lengths, output=output)


def swept_replicas(demand: ServiceDemand) -> dict[str, dict[str, np.ndarray]]:
    """Return accelerator → column → values [design] of all replicas, with masks ``possible`` and ``feasible``."""
    grid = compose.build(specs.from_text(_specification(demand), "plan"))
    swept = swept_designs(grid)
    columns, is_launched = swept.columns, swept.launched
    is_possible = columns["infeasible_reason"].astype(int) & ~int(grid.spec.study.hypothetical) == 0
    columns["possible"], columns["feasible"] = is_possible & is_launched, columns["feasible"].astype(bool) & is_launched
    names = [
        "feasible", "possible", "requests_per_second", *demand.metrics, "cost_per_device_hour", "parameters",
        "requests_in_flight", "utilisation", "n_devices", "request_rate", "software", *DEGREES,
    ]  # fmt: skip
    columns_by_accelerator = {}
    for slug in demand.accelerators:
        of_slug = swept.take(columns["accelerator"] == slug)
        columns_by_accelerator[slug] = of_slug.pick(names)
        first = of_slug.designs(np.arange(1))[0] if of_slug.size else grid.base
        columns_by_accelerator[slug]["precision"] = np.full(of_slug.size, precision_of(first))
    return columns_by_accelerator


def cheapest_replicas(replicas: dict[str, np.ndarray], demand: ServiceDemand, accelerator: str) -> Fleet | str:
    """Return the cheapest fleet (USD/h) of replicas of one accelerator, or the reason for none as a text."""
    if not replicas["possible"].any():
        devices = counted(demand.max_devices, "device")
        return f"no mapping of up to {devices} that {replicas['software'][0]} can be started with fits in memory"
    within_limits = replicas["feasible"].astype(bool)
    if not within_limits.any():
        return f"replicas need more than {_MAX_DEVICE_FACTOR * demand.max_devices:,} devices"
    first, token = (replicas[name] for name in demand.metrics)
    for token_name, values, limit in (
        ("token", token, demand.token_limit),
        ("first token", first, demand.first_token_limit),
    ):
        if not (within_limits & (values <= limit)).any():
            return f"replicas take {seconds(float(values[within_limits].min()))} of {seconds(limit)} to a {token_name}"
    within_limits &= (token <= demand.token_limit) & (first <= demand.first_token_limit)
    if not within_limits.any():
        return "no replica meets the limits"
    fitting = {name: values[within_limits] for name, values in replicas.items()}
    count = np.ceil(demand.rate / fitting["request_rate"] * (1.0 - 1e-6))
    devices = count * fitting["n_devices"]
    hourly = devices * fitting["cost_per_device_hour"]
    if not (devices <= demand.max_devices).any():
        return f"replicas need {counted(devices.min(), 'device')} of {demand.max_devices}"
    best_index = int(np.lexsort((fitting["n_devices"], np.where(devices <= demand.max_devices, hourly, np.inf)))[0])
    best_replica = {name: values[best_index] for name, values in fitting.items()}
    workers = WorkerGroup(
        "",
        int(count[best_index]),
        int(best_replica["n_devices"]),
        {name: int(best_replica[name]) for name in DEGREES if name in best_replica},
        float(best_replica["requests_in_flight"]),
        float(best_replica["utilisation"]),
    )
    return fleet_of(
        demand,
        accelerator,
        str(best_replica["software"]),
        (workers,),
        times=[float(best_replica[name]) for name in demand.metrics],
        rate=float(count[best_index] * _highest_rate(fitting, best_replica)),
        hourly=float(hourly[best_index]),
        parameters=float(best_replica["parameters"]),
        precision=str(best_replica["precision"]),
    )


def _highest_rate(fitting: dict[str, np.ndarray], best_replica: dict[str, Any]) -> float:
    """Return the highest requests/s of one replica, of those in ``fitting`` with the same mapping."""
    is_same_mapping = np.full(fitting["request_rate"].shape, True)
    for name in ("n_devices", "software", *(name for name in DEGREES if name in best_replica)):
        is_same_mapping &= fitting[name] == best_replica[name]
    return float(fitting["request_rate"][is_same_mapping].max())
