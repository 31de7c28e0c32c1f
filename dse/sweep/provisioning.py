"""Cheapest replicas that serve a rate of requests within latency limits, by accelerator.

One sweep lists every mapping of one replica and rate of Poisson arrivals at it. ``R = ceil(rate / r)`` replicas of
``n`` devices serve the rate, where one serves ``r`` requests/s within the limits, for ``R n c`` USD an hour at ``c``
USD per device-hour. Limits are of the mean or of a percentile.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from dse.designs import calibrated, catalog
from dse.errors import InputError
from dse.io.quantities import digits, seconds
from dse.spec import sweep as specs
from dse.sweep import execute

#: Replicas that share a rate, up to this multiple of the most devices, and higher rates for the margins.
_REPLICAS = sorted({*range(1, 17), *(round(2.0 ** (k / 4)) for k in range(81))})
_BEYOND, _MORE = 16, (1.1, 1.25, 1.5, 2.0)

#: Statistics of a limit.
STATISTICS = ("mean", "p50", "p90", "p95", "p99")

#: Degrees of a mapping that are shown.
_DEGREES = ("tp", "ep", "dp")

#: Changed demands whose effect is shown: field → factors.
_CHANGES = {"token_limit": (0.75, 1.5), "first_token_limit": (0.5, 2.0), "rate": (2.0,)}

#: Limit of each number of a demand.
_MOST = 1e9

#: Number of a demand → option of ``dse plan``.
_OPTIONS = {
    "rate": "--rate", "prompt_tokens": "--isl", "output_tokens": "--osl", "first_token_limit": "--ttft",
    "token_limit": "--tpot", "max_devices": "--max-devices",
}  # fmt: skip

#: Relative change of cost that is shown.
_NOTICED = 0.02


class Demand(NamedTuple):
    """What is served."""

    workload: str
    accelerators: tuple[str, ...]
    rate: float  #: requests/s
    prompt_tokens: float
    output_tokens: float
    first_token_limit: float  #: time to first token, s
    token_limit: float  #: time per output token, s
    max_devices: int
    first_token_statistic: str = "mean"  #: of ``STATISTICS``
    token_statistic: str = "mean"

    @property
    def metrics(self) -> tuple[str, str]:
        """Metrics that the limits are of."""
        limits = ("time_to_first_token", self.first_token_statistic), ("time_per_output_token", self.token_statistic)
        first, token = (name if of == "mean" else f"{of}_{name}" for name, of in limits)
        return first, token


class Fleet(NamedTuple):
    """Equal replicas that serve a demand."""

    accelerator: str
    software: str
    replicas: int
    devices: int  #: of one replica
    degrees: dict[str, int]
    in_flight: float  #: requests in flight of one replica, mean
    utilisation: float  #: rate over what the replicas can serve at most
    first_token: float  #: s, of the statistic of its limit
    token: float  #: s, likewise
    rate: float  #: highest tried requests/s of all replicas within the limits
    hourly: float  #: USD
    outside: str  #: what lies outside of the rows of the engine, in words

    def margins(self, demand: Demand) -> dict[str, float]:
        """Share by which limits and rate may change before the fleet no longer serves them."""
        return {
            "first_token": demand.first_token_limit / self.first_token - 1.0,
            "token": demand.token_limit / self.token - 1.0, "rate": self.rate / demand.rate - 1.0,
        }  # fmt: skip


class Plan(NamedTuple):
    """Fleets by accelerator, cheapest first; the reason of those without one; what would change the cheapest."""

    demand: Demand
    fleets: list[Fleet]
    without: dict[str, str]
    changes: list[str]


def provision(demand: Demand) -> Plan:
    """The cheapest fleet of each accelerator for a demand.

    Args:
        demand: rate, lengths and limits; names of the catalogue.

    Returns:
        The plan; no fleet where no accelerator serves the demand.

    Raises:
        InputError: for unknown names and numbers that are not positive.
    """
    for name, value in demand._asdict().items():
        if isinstance(value, int | float) and not 0.0 < value < _MOST:
            raise InputError(_OPTIONS[name], f"{value:g}", f"more than 0, less than {_MOST:g}", "check the number")
    if not demand.accelerators:
        raise InputError("--on", "no name", "accelerators of the catalogue", "see: dse catalog list accelerator")
    slugs = [catalog.resolve("accelerator", name, "--on") for name in demand.accelerators]
    demand = demand._replace(accelerators=tuple(dict.fromkeys(slugs)))
    replicas = _replicas(demand)
    found = {name: _cheapest(replicas[name], demand, name) for name in demand.accelerators}
    fleets = sorted((one for one in found.values() if isinstance(one, Fleet)), key=lambda fleet: fleet.hourly)
    without = {name: one for name, one in found.items() if isinstance(one, str)}
    return Plan(demand, fleets, without, list(_changes(replicas, demand, fleets)))


def _specification(demand: Demand) -> str:
    """The sweep over the replicas of all accelerators."""
    sizes = [2**k for k in range(demand.max_devices.bit_length())]
    axes = {
        "accelerator": list(demand.accelerators), "n_devices": sizes, "tp": "divisors",
        "request_rate": [
            *(demand.rate / count for count in _REPLICAS if count <= _BEYOND * demand.max_devices),
            *(demand.rate * more for more in _MORE),
        ],
    }  # fmt: skip
    if catalog.is_mixture(demand.workload):
        axes["ep"] = "divisors"
    lengths = f"prompt_tokens = {demand.prompt_tokens!r}\noutput_tokens = {demand.output_tokens!r}"
    return "\n".join([
        "[workload]", f"name = {json.dumps(demand.workload)}", "[system]", f'name = "{demand.accelerators[0]}"',
        "[serving]", lengths, "[axes]", *(f"{name} = {json.dumps(values)}" for name, values in axes.items()),
        "[output]", 'keep = "all"', "money = true", "tails = true",
    ])  # fmt: skip


def _replicas(demand: Demand) -> dict[str, dict[str, np.ndarray]]:
    """Accelerator → column → values of all replicas [designs]."""
    spec = specs.from_text(_specification(demand), "plan")
    data, _ = execute(spec, output=False)
    possible = data.infeasible_reason.values.astype(int) & ~int(spec.study.hypothetical) == 0
    data["possible"] = (data.infeasible_reason.dims, possible)
    metrics = ("feasible", "possible", "requests_per_second", *demand.metrics, "cost_per_device_hour",
               "parameters", "requests_in_flight", "utilisation", "concurrency_limit")  # fmt: skip
    names = [*metrics, "n_devices", "request_rate", "software", *(name for name in _DEGREES if name in data)]
    shape = data.requests_per_second.dims
    found = {}
    for slug in demand.accelerators:
        own = data.sel(accelerator=slug) if "accelerator" in shape else data
        like = own.requests_per_second
        found[slug] = {name: np.ravel(own[name].broadcast_like(like).transpose(*like.dims).values) for name in names}
    return found


def _cheapest(replicas: dict[str, np.ndarray], demand: Demand, accelerator: str = "") -> Fleet | str:
    """The cheapest fleet of one accelerator, or the reason for none."""
    if not replicas["possible"].any():
        return f"no mapping of up to {demand.max_devices} devices fits in memory"
    fits = replicas["feasible"].astype(bool)
    if not fits.any():
        return f"needs more than {_BEYOND * demand.max_devices:,} devices"
    first, token = (replicas[name] for name in demand.metrics)
    for what, values, limit in (("token", token, demand.token_limit), ("first token", first, demand.first_token_limit)):
        if not (fits & (values <= limit)).any():
            return f"the fastest time to a {what} is {seconds(float(values[fits].min()))} of {seconds(limit)}"
    fits &= (token <= demand.token_limit) & (first <= demand.first_token_limit)
    if not fits.any():
        return "no mapping meets both limits"
    one = {name: values[fits] for name, values in replicas.items()}
    count = np.ceil(demand.rate / one["request_rate"] * (1.0 - 1e-6))
    devices = count * one["n_devices"]
    hourly = devices * one["cost_per_device_hour"]
    if not (devices <= demand.max_devices).any():
        return f"needs {devices.min():.0f} devices of {demand.max_devices}"
    best = int(np.lexsort((one["n_devices"], np.where(devices <= demand.max_devices, hourly, np.inf)))[0])
    own = {name: values[best] for name, values in one.items()}
    first_token, each = (float(own[name]) for name in demand.metrics)
    return Fleet(
        accelerator, str(own["software"]), int(count[best]), int(own["n_devices"]),
        {name: int(own[name]) for name in _DEGREES if name in own}, float(own["requests_in_flight"]),
        float(own["utilisation"]), first_token, each, float(count[best] * _highest(one, own)), float(hourly[best]),
        _outside(accelerator, own, demand),
    )  # fmt: skip


def _highest(one: dict[str, np.ndarray], own: dict[str, Any]) -> float:
    """Highest rate of the replicas within the limits that are mapped as this one, requests/s."""
    same = np.full(one["request_rate"].shape, True)
    for name in ("n_devices", "software", *(name for name in _DEGREES if name in own)):
        same &= one[name] == own[name]
    return float(one["request_rate"][same].max())


def _outside(accelerator: str, own: dict[str, Any], demand: Demand) -> str:
    """What of a replica lies outside of the rows of its engine, in words."""
    values = {
        "system.n_devices": float(own["n_devices"]), "parameters": float(own["parameters"]),
        "workload.requests.concurrency": float(own["requests_in_flight"]),
        "workload.requests.prompt_tokens": demand.prompt_tokens,
        "workload.requests.output_tokens": demand.output_tokens,
    }  # fmt: skip
    if catalog.is_mixture(demand.workload):
        values["workload.experts.n_experts"] = 1.0
    return ", ".join(calibrated.beyond(str(own["software"]), values.get, accelerator))


def _changes(replicas: dict[str, Any], demand: Demand, fleets: list[Fleet]) -> Iterator[str]:
    """What would change the cheapest fleet, a line each: prices, limits, rate."""
    if not fleets:
        return
    best, *others = fleets
    for other in others:
        saved = 100.0 * (1.0 - best.hourly / other.hourly)
        yield f"{other.accelerator} is as cheap at a price per device-hour {saved:.0f} % lower"
    for field, factors in _CHANGES.items():
        for factor in factors:
            asked = demand._replace(**{field: factor * getattr(demand, field)})
            found = {name: _cheapest(replicas[name], asked) for name in demand.accelerators}
            costs = {name: one.hourly for name, one in found.items() if isinstance(one, Fleet)}
            words = f"{field.replace('_', ' ')} x {factor:g}"
            if not costs:
                yield f"{words}: no fleet"
                continue
            name = min(costs, key=lambda slug: costs[slug])
            if abs(costs[name] / best.hourly - 1.0) > _NOTICED or name != best.accelerator:
                yield f"{words}: {digits(costs[name])} USD/h, {name}"
