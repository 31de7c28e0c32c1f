"""What a service is asked for, and the workers that serve it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from dse.designs import calibrated, catalog
from dse.fleet.planning import Settings
from dse.types import Design, Precision, Serving, choice_name

#: Statistics of a limit.
STATISTICS = ("mean", "p50", "p90", "p95", "p99")

#: Degrees of a mapping that are shown.
DEGREES = ("tp", "ep", "dp")


class ServiceDemand(NamedTuple):
    """Requests of a service, their latency limits, and the devices that may serve them."""

    workload: str
    accelerators: tuple[str, ...]
    rate: float  #: requests/s
    prompt_tokens: float
    output_tokens: float
    first_token_limit: float  #: time to first token, s; infinite for none
    token_limit: float  #: time per output token, s; likewise
    max_devices: int
    first_token_statistic: str = "mean"  #: of ``STATISTICS``
    token_statistic: str = "mean"
    software: str = ""  #: stack of every candidate; "": the usual one of each accelerator
    settings: Settings = MappingProxyType({})  #: leaf → value of every candidate
    further_rates: tuple[float, ...] = ()  #: rates that replicas share too, for the same candidates at other rates

    @property
    def metrics(self) -> tuple[str, str]:
        """Names of the metrics of the two limits: time to first token, time per output token."""
        limits = ("time_to_first_token", self.first_token_statistic), ("time_per_output_token", self.token_statistic)
        first, token = (name if statistic == "mean" else f"{statistic}_{name}" for name, statistic in limits)
        return first, token

    @property
    def limits(self) -> dict[str, float]:
        """Metric → its limit in seconds, without infinite ones."""
        limits = zip(self.metrics, (self.first_token_limit, self.token_limit), strict=True)
        return {metric: limit for metric, limit in limits if math.isfinite(limit)}

    @property
    def request_lengths(self) -> dict[str, float]:
        """``prompt_tokens`` and ``output_tokens`` → tokens, as a sweep states them."""
        return {"prompt_tokens": self.prompt_tokens, "output_tokens": self.output_tokens}

    def settings_of(self, workers: WorkerGroup, at_rate: bool = True) -> dict[str, Any]:
        """Return name → value of a worker and of what its role changes, as :func:`dse.design` reads them.

        Args:
            workers: of a fleet for the demand.
            at_rate: give the load of a replica as its share of the rate (:func:`worker_settings`).
        """
        return worker_settings(workers, self, at_rate) | ROLES[workers.role]


class WorkerGroup(NamedTuple):
    """Equal engines of one role."""

    role: str  #: "" for engines that do both; prefill, decode
    number: int
    devices: int  #: of one
    degrees: dict[str, int]
    in_flight: float  #: requests in flight of one, mean
    utilisation: float  #: rate over what they can serve at most


#: Settings with which the design of an engine does what a worker of a role does.
ROLES: dict[str, dict[str, Any]] = {
    "": {}, "prefill": {"load": "static", "osl": 1.0}, "decode": {"prefix_share": 1.0},
}  # fmt: skip


def worker_settings(workers: WorkerGroup, demand: ServiceDemand, at_rate: bool = True) -> dict[str, float | str]:
    """Return name → value of settings, degrees, load and lengths of a worker, as :func:`dse.design` reads them.

    Args:
        workers: of a fleet for the demand.
        demand: what they serve.
        at_rate: give the load of a replica as its share of the rate, whose queue its latencies include. False: as its
            requests in flight, at which its cost of a token depends on its throughput; at a rate it does not. Workers
            of pools have their requests in flight in both cases.
    """
    by_rate = at_rate and not workers.role
    load = {"request_rate": demand.rate / workers.number} if by_rate else {"concurrency": workers.in_flight}
    degrees = {name: float(value) for name, value in workers.degrees.items() if value > 1}
    return {**demand.settings, **degrees, **load, "isl": demand.prompt_tokens, "osl": demand.output_tokens}


class Fleet(NamedTuple):
    """Workers that serve a demand: replicas that do both, or a pool for prompts and one that decodes."""

    accelerator: str
    software: str
    workers: tuple[WorkerGroup, ...]
    first_token: float  #: s, of the statistic of its limit
    token: float  #: s, likewise
    rate: float  #: highest requests/s within the limits; of replicas of those that were tried
    hourly: float  #: USD
    outside: str  #: what lies outside of the rows of the engine, in words
    precision: str = ""  #: format that the model is served in

    @property
    def kind(self) -> str:
        """Kind of its workers: "replicas" that do both, or "pools"."""
        return "pools" if len(self.workers) > 1 else "replicas"

    @property
    def devices(self) -> int:
        """Number of devices of all workers."""
        return sum(group.number * group.devices for group in self.workers)

    @property
    def figures(self) -> tuple[float, float, float]:
        """Time to first token and time per output token in s, and USD per hour."""
        return self.first_token, self.token, self.hourly

    def margins(self, demand: ServiceDemand) -> dict[str, float]:
        """Return limit → share by which it, or the rate, may change before the fleet no longer serves.

        Keys are ``first_token`` and ``token``, left out where infinite, and ``rate``.
        """
        limits = {
            "first_token": demand.first_token_limit / self.first_token - 1.0,
            "token": demand.token_limit / self.token - 1.0,
        }
        limited = {name: share for name, share in limits.items() if math.isfinite(share)}
        return limited | {"rate": self.rate / demand.rate - 1.0}


def precision_of(design: Design) -> str:
    """Return the number format in which a design serves its model, as text.

    >>> import dse
    >>> precision_of(dse.design("gpt-oss-120b", "h100", kind="serving"))
    'bf16, 0.53 B per weight of experts'
    """
    serving = design.mapping.serving or Serving()
    weight_sizes = ((serving.weight_bytes, "weight"), (serving.expert_bytes, "weight of experts"))
    name = choice_name(Precision(int(design.mapping.precision)))
    return ", ".join(
        [name, *(f"{float(size):.2g} B per {parameter_kind}" for size, parameter_kind in weight_sizes if size)]
    )


def fleet_of(
    demand: ServiceDemand,
    accelerator: str,
    software: str,
    workers: tuple[WorkerGroup, ...],
    times: Sequence[float],
    rate: float,
    hourly: float,
    parameters: float,
    precision: str,
) -> Fleet:
    """Return a fleet of workers for a demand, with what of those that decode lies outside of their engine's rows.

    Args:
        demand: that they serve.
        accelerator: of the workers.
        software: stack of the workers.
        workers: the last group decodes.
        times: to the first token, and per token, s.
        rate: highest requests/s.
        hourly: USD.
        parameters: of the model.
        precision: format that the model is served in.
    """
    decoding = workers[-1]
    values = {
        "system.n_devices": float(decoding.devices),
        "parameters": parameters,
        "workload.requests.concurrency": decoding.in_flight,
        "workload.requests.prompt_tokens": demand.prompt_tokens,
        "workload.requests.output_tokens": demand.output_tokens,
    }
    outside = extrapolations(demand, accelerator, software, values)
    return Fleet(accelerator, software, workers, times[0], times[1], rate, hourly, outside, precision)


def extrapolations(demand: Any, accelerator: str, software: str, values: dict[str, float]) -> str:
    """Return the quantities of a design outside of the measured rows of its stack, a text; "" for none.

    Args:
        demand: whose workload it is.
        accelerator: of the design.
        software: its stack.
        values: quantity → its value.
    """
    if catalog.is_mixture(demand.workload):
        values = values | {"workload.experts.n_experts": 1.0}
    return ", ".join(calibrated.uncalibrated_quantities(software, values.get, accelerator))
