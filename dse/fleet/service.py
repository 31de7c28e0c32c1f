"""``dse plan --serving``: the cheapest replicas and pools of each accelerator, and what would change the cheapest.

Replicas are engines that do prompts and answers. One sweep lists every mapping of one replica and rate of Poisson
arrivals at it. ``R = ceil(rate / r)`` replicas of ``n`` devices serve the rate, where one serves ``r`` requests/s
within the limits, for ``R n c`` USD an hour at ``c`` USD per device-hour. Limits are of the mean or of a percentile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tomlkit

from dse.designs import catalog
from dse.designs.records import N_DEVICES
from dse.errors import InputError
from dse.fleet import pooled
from dse.fleet.demand import DEGREES, Fleet, ServiceDemand, WorkerGroup, extrapolations, precision_of
from dse.fleet.settings import PlanProgress, Progress, foreign_stack, read_settings, with_settings
from dse.fleet.swept import swept_designs
from dse.io import counted, digits, seconds
from dse.spec import sweep as specs
from dse.sweep.grid import compose

#: Changed demands whose effect is shown: field → factors.
_CHANGES = {"token_limit": (0.75, 1.5), "first_token_limit": (0.5, 2.0), "rate": (2.0,)}

#: Numbers of a demand that may be infinite: no limit.
_LIMITS = ("first_token_limit", "token_limit")

#: Limit of each number of a demand.
_MAX_VALUE = 1e9

#: Number of a demand → option of ``dse plan``.
_OPTIONS = {
    "rate": "--rate",
    "prompt_tokens": "--isl",
    "output_tokens": "--osl",
    "first_token_limit": "--ttft",
    "token_limit": "--tpot",
    "max_devices": "--max-devices",
}

#: Relative change of cost that is shown.
_MIN_COST_CHANGE = 0.02


class ServicePlan(NamedTuple):
    """Fleets by accelerator, cheapest first; the reason of those without one; what would change the cheapest."""

    demand: ServiceDemand
    fleets: list[Fleet]
    without: dict[str, str]
    changes: list[str]
    designs: Mapping[str, AcceleratorDesigns]  #: accelerator → its designs, which serve other rates and limits too


#: Leaf that a plan decides → what states it instead.
_DECIDED = {
    "workload.requests.request_rate": "state it by --rate",
    "workload.requests.prompt_tokens": "state it by --isl",
    "workload.requests.output_tokens": "state it by --osl",
    "workload.requests.first_token_limit": "state it by --ttft",
    "workload.requests.token_limit": "state it by --tpot",
    "workload.requests.concurrency": "leave it out: the plan looks for it",
    "workload.requests.load": "leave it out: it differs between workers",
    "workload.requests.prefix_share": "leave it out: it differs between workers",
    N_DEVICES: "limit it by --max-devices, or set tp and dp",
}


def provision(demand: ServiceDemand, progress: Progress | None = None) -> ServicePlan:
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
    for name, value in demand._asdict().items():
        unlimited = name in _LIMITS and value == math.inf
        if isinstance(value, int | float) and not unlimited and not 0.0 < value < _MAX_VALUE:
            raise InputError(_OPTIONS[name], f"{value:g}", f"more than 0, less than {_MAX_VALUE:g}", "check the number")
    if not demand.accelerators:
        raise InputError("--on", "no name", "accelerators of the catalogue", "see: dse catalog list accelerator")
    slugs = [catalog.resolve("accelerator", name, "--on") for name in demand.accelerators]
    demand = demand._replace(
        accelerators=tuple(dict.fromkeys(slugs)),
        software=demand.software and catalog.resolve("software", demand.software, "--software"),
        settings=read_settings(demand.settings, True, _DECIDED),
    )
    without = {name: reason for name in demand.accelerators if (reason := foreign_stack(demand.software, name))}
    names = tuple(name for name in demand.accelerators if name not in without)
    candidates = _candidates(demand._replace(accelerators=names), progress or (lambda _: None)) if names else {}
    fleets_and_reasons = {name: designs.fleets(demand) for name, designs in candidates.items()}
    fleets = sorted(
        (candidate for accelerator_fleets, _ in fleets_and_reasons.values() for candidate in accelerator_fleets),
        key=lambda fleet: fleet.hourly,
    )
    without |= {name: reason for name, (_, reason) in fleets_and_reasons.items() if reason}
    return ServicePlan(demand, fleets, without, list(_changes(candidates, demand, fleets)), candidates)


def _candidates(demand: ServiceDemand, progress: Progress) -> dict[str, AcceleratorDesigns]:
    """Return accelerator → its designs, and report each that is done."""
    total, candidates = len(demand.accelerators), dict[str, AcceleratorDesigns]()
    progress(PlanProgress(0, total, ""))
    for name, replicas in swept_replicas(demand).items():
        candidates[name] = AcceleratorDesigns(demand, name, replicas)
        progress(PlanProgress(len(candidates), total, name))
    return candidates


class AcceleratorDesigns:
    """Designs of one accelerator, which serve any demand of the same lengths."""

    def __init__(self, demand: ServiceDemand, accelerator: str, replicas: dict[str, Any]) -> None:
        self.accelerator, self.replicas = accelerator, replicas
        self.pools = pooled.pool_designs(demand, accelerator) if replicas["possible"].any() else None

    def fleets(self, demand: ServiceDemand) -> tuple[list[Fleet], str]:
        """Return the cheapest replicas and pools that serve a demand, and a text why one is missing, or ""."""
        results = [cheapest_replicas(self.replicas, demand, self.accelerator)]
        if self.pools:
            results.append(pooled.cheapest(self.pools, demand, self.accelerator))
        return [result for result in results if isinstance(result, Fleet)], "; ".join(
            result for result in results if isinstance(result, str)
        )


def _changes(candidates: dict[str, AcceleratorDesigns], demand: ServiceDemand, fleets: list[Fleet]) -> Iterator[str]:
    """Yield what would change the cheapest fleet, a line each: prices, limits, rate; nothing without fleets."""
    if not fleets:
        return
    best = fleets[0]
    other_best = {other.accelerator: other for other in reversed(fleets) if other.accelerator != best.accelerator}
    for name, other in sorted(other_best.items(), key=lambda item: item[1].hourly):
        saving_percent = 100.0 * (1.0 - best.hourly / other.hourly)
        yield f"{name} is as cheap at a price per device-hour {saving_percent:.0f} % lower"
    for field, factors in _CHANGES.items():
        for factor in factors if math.isfinite(getattr(demand, field)) else ():
            changed_demand = demand._replace(**{field: factor * getattr(demand, field)})
            changed_fleets = [
                candidate for designs in candidates.values() for candidate in designs.fleets(changed_demand)[0]
            ]
            change_text = f"{field.replace('_', ' ')} x {factor:g}"
            if not changed_fleets:
                yield f"{change_text}: no fleet"
                continue
            cheapest = min(changed_fleets, key=lambda fleet: fleet.hourly)
            if abs(cheapest.hourly / best.hourly - 1.0) > _MIN_COST_CHANGE or cheapest.accelerator != best.accelerator:
                yield f"{change_text}: {digits(cheapest.hourly)} USD/h, {cheapest.accelerator}, {cheapest.kind}"


#: Replicas that share a rate, up to this multiple of the most devices, and higher rates for the margins.
_REPLICAS = sorted({*range(1, 17), *(round(2.0 ** (k / 4)) for k in range(81))})
_MAX_DEVICE_FACTOR, _RATE_FACTORS = 16, (1.1, 1.25, 1.5, 2.0)


def _specification(demand: ServiceDemand) -> str:
    """Return the TOML specification of the replicas of all accelerators."""
    sizes = [2**k for k in range(demand.max_devices.bit_length())]
    axes = {
        "accelerator": list(demand.accelerators),
        "n_devices": sizes,
        "tp": "divisors",
        "request_rate": [
            *dict.fromkeys(
                rate / count
                for rate in (demand.rate, *demand.further_rates)
                for count in _REPLICAS
                if count <= _MAX_DEVICE_FACTOR * demand.max_devices
            ),
            *(demand.rate * factor for factor in _RATE_FACTORS),
        ],
    }
    if catalog.is_mixture(demand.workload):
        axes["ep"] = "divisors"
    return tomlkit.dumps(
        {
            "workload": {"name": demand.workload},
            "system": {"name": demand.accelerators[0]},
            "software": {"name": demand.software} if demand.software else {},
            "serving": demand.request_lengths,
            "axes": with_settings(axes, demand.settings),
            "output": {"keep": "all", "money": True, "tails": True},
        }
    )


def swept_replicas(demand: ServiceDemand) -> dict[str, dict[str, np.ndarray]]:
    """Return accelerator → column → values [design] of all replicas, with masks ``possible`` and ``feasible``."""
    grid = compose.build(specs.from_text(_specification(demand), "plan"))
    swept = swept_designs(grid)
    columns, is_launched = swept.columns, swept.launched
    is_possible = columns["infeasible_reason"].astype(int) & ~int(grid.spec.study.hypothetical) == 0
    columns["possible"], columns["feasible"] = is_possible & is_launched, columns["feasible"].astype(bool) & is_launched
    metrics = (
        "feasible",
        "possible",
        "requests_per_second",
        *demand.metrics,
        "cost_per_device_hour",
        "parameters",
        "requests_in_flight",
        "utilisation",
    )
    names = [*metrics, "n_devices", "request_rate", "software", *DEGREES]
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
    first_token, token_time = (float(best_replica[name]) for name in demand.metrics)
    degrees, software = (
        {name: int(best_replica[name]) for name in DEGREES if name in best_replica},
        str(best_replica["software"]),
    )
    workers = WorkerGroup(
        "",
        int(count[best_index]),
        int(best_replica["n_devices"]),
        degrees,
        float(best_replica["requests_in_flight"]),
        float(best_replica["utilisation"]),
    )
    return Fleet(
        accelerator,
        software,
        (workers,),
        first_token,
        token_time,
        float(count[best_index] * _highest_rate(fitting, best_replica)),
        float(hourly[best_index]),
        extrapolations(accelerator, software, workers, float(best_replica["parameters"]), demand),
        str(best_replica["precision"]),
    )


def _highest_rate(fitting: dict[str, np.ndarray], best_replica: dict[str, Any]) -> float:
    """Return the highest requests/s of one replica, of those in ``fitting`` with the same mapping."""
    is_same_mapping = np.full(fitting["request_rate"].shape, True)
    for name in ("n_devices", "software", *(name for name in DEGREES if name in best_replica)):
        is_same_mapping &= fitting[name] == best_replica[name]
    return float(fitting["request_rate"][is_same_mapping].max())
