"""Cheapest clusters that train a model within a time and a budget, by accelerator.

One sweep lists the mappings of every number of devices (powers of two). A run takes ``run_time_with_failures``; it
costs ``cost_per_run`` times the ratio to ``run_time``, which has no failures. Mappings surely fit
(``fits_probability``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from dse.designs import catalog, leaf_value
from dse.errors import InputError
from dse.fleet.demand import extrapolations
from dse.fleet.planning import MIN_CHANGE, Plan, Progress, Settings, checked, plan, plan_kind, specification
from dse.fleet.swept import swept_designs
from dse.io import counted, digits, duration
from dse.spec import sweep as specs
from dse.sweep.grid import compose

#: Fewest devices, and parts of a mapping that are shown.
_MIN_DEVICES, DEGREES = 8, ("tp", "pp", "dp", "ep", "virtual_stages", "micro_batch", "recompute")

#: Sequences of a global batch where neither options nor the model's file state it.
_BATCH = 1024


class RunDemand(NamedTuple):
    """A run that is planned."""

    workload: str
    accelerators: tuple[str, ...]
    seconds: float  #: limit of the time with failures; infinite without one
    budget: float  #: limit of the cost, USD; infinite without one
    max_devices: int
    tokens: float | None = None  #: of the run; None: those of the model's file
    global_batch: int | None = None  #: sequences; None: those of the model's file
    software: str = ""  #: stack of every candidate; "": the usual one of each accelerator
    settings: Settings = MappingProxyType({})  #: leaf → value of every candidate

    @property
    def limits(self) -> dict[str, float]:
        """Metric → its limit in s or USD, without infinite ones."""
        limits = {"run_time_with_failures": self.seconds, "cost_per_run": self.budget}
        return {metric: limit for metric, limit in limits.items() if math.isfinite(limit)}


class Cluster(NamedTuple):
    """Devices with a mapping that train a model."""

    accelerator: str
    software: str
    devices: int
    mapping: dict[str, Any]
    seconds: float  #: of the run, with failures
    cost: float  #: USD
    mfu: float
    outside: str  #: what lies outside of the rows of the stack, in words

    @property
    def figures(self) -> tuple[float, float]:
        """Seconds and USD of the run."""
        return self.seconds, self.cost

    def margins(self, demand: RunDemand) -> dict[str, float]:
        """Return ``time`` and ``budget`` → share by which the limit may change; without infinite limits."""
        share_by_limit = {"time": demand.seconds / self.seconds - 1.0, "budget": demand.budget / self.cost - 1.0}
        return {name: share for name, share in share_by_limit.items() if math.isfinite(share)}


def _criterion(cluster: Cluster, demand: RunDemand) -> float:
    """Return what the best cluster minimises: its cost in USD, or seconds where only cost is limited."""
    return cluster.cost if math.isfinite(demand.seconds) else cluster.seconds


def _price_text(best: Cluster, other: Cluster, demand: RunDemand) -> str:
    """Return at which costs another cluster is as cheap as the best one, "" where only cost is limited."""
    if not math.isfinite(demand.seconds):
        return ""
    return f"{other.accelerator} is as cheap at costs {100.0 * (1.0 - best.cost / other.cost):.0f} % lower"


def _cluster_text(cluster: Cluster) -> str:
    """Return devices, time and cost of a cluster."""
    return f"{cluster.devices:,} {cluster.accelerator}, {duration(cluster.seconds)}, {digits(cluster.cost)} USD"


_KIND = plan_kind("run", criterion=_criterion, fleet_text=_cluster_text, price_text=_price_text)


def plan_run(demand: RunDemand, progress: Progress | None = None) -> Plan:
    """Return the cheapest cluster of each accelerator within the limits, or the fastest without a time limit.

    Args:
        demand: model, limits, at least one, names of the catalogue.
        progress: called with the state of the plan.

    Returns:
        The plan; no cluster where no accelerator keeps the limits.

    Raises:
        InputError: for unknown names, numbers that are not positive, settings of what the plan decides, and no limit.
    """
    if demand.seconds == demand.budget == math.inf:
        raise InputError("dse plan", "neither --in nor --under", "a limit of time or of cost", "add --in 30d")
    demand = checked(demand, _KIND)
    if demand.max_devices < _MIN_DEVICES:
        raise InputError("--max-devices", str(demand.max_devices), f"{_MIN_DEVICES} or more", "a node has as many")
    model = catalog.values("workload", demand.workload)
    global_batch, tokens = demand.global_batch or model.get("global_batch"), demand.tokens or model.get("run_tokens")
    if tokens is None:
        raise InputError("--tokens", f"none, and none in the file of {demand.workload}", "tokens of the run", "add it")
    demand = demand._replace(global_batch=int(global_batch or _BATCH), tokens=float(tokens))
    run_plan = plan(demand, _KIND, _candidates, progress)
    larger_batch = _larger_batch_change(demand, run_plan.fleets[0]) if run_plan.fleets else ()
    return run_plan._replace(changes=[*larger_batch, *run_plan.changes])


def batch_tokens(demand: RunDemand) -> float:
    """Return the tokens of a global batch of the demand of a plan."""
    seq_len = demand.settings.get("seq_len", catalog.values("workload", demand.workload)["seq_len"])
    return float(demand.global_batch or _BATCH) * leaf_value("workload.seq_len", seq_len)


class RunDesigns:
    """Mappings of one accelerator that can run."""

    def __init__(self, demand: RunDemand, accelerator: str) -> None:
        self.accelerator, self.columns = accelerator, _runs(demand, accelerator)

    def fleets(self, demand: RunDemand) -> tuple[list[Cluster], str]:
        """Return the cheapest cluster within the limits, or none and the reason as a text."""
        result = _cheapest(self.columns, demand, self.accelerator)
        return ([], result) if isinstance(result, str) else ([result], "")


def _candidates(demand: RunDemand) -> Iterator[tuple[str, RunDesigns]]:
    """Yield accelerator and its mappings."""
    for name in demand.accelerators:
        yield name, RunDesigns(demand, name)


def _specification(demand: RunDemand, slug: str) -> str:
    """Return a sweep as TOML: mappings with micro-batches of 1 to 8, on 8, 16, … devices of one accelerator."""
    assert demand.global_batch is not None, "resolved before"
    axes = {
        "n_devices": [2**k for k in range(3, demand.max_devices.bit_length())],
        "tp": "divisors",
        "pp": "divisors",
        "virtual_stages": "divisors",
        "micro_batch": [size for size in (1, 2, 4, 8) if demand.global_batch % size == 0],
        "recompute": ["none", "selective", "full"],
    }
    return specification(
        demand,
        slug,
        axes,
        workload={"run_tokens": demand.tokens, "global_batch": demand.global_batch},
        constraints={"all": ["fits_probability >= 0.9"]},
        output={"keep": "feasible", "money": True, "run": True},
    )


def _runs(demand: RunDemand, slug: str) -> dict[str, np.ndarray]:
    """Return column → values [design] of all mappings that can run; ``seconds`` and ``cost`` (USD) include failures."""
    swept = swept_designs(compose.build(specs.from_text(_specification(demand, slug), "plan")))
    names = ("run_time", "run_time_with_failures", "cost_per_run", "mfu", "parameters", "n_devices", "software")
    columns = swept.pick((*names, *DEGREES))
    columns["seconds"] = columns["run_time_with_failures"].astype(float)
    columns["cost"] = columns["cost_per_run"] * columns["seconds"] / np.maximum(columns["run_time"], 1e-9)
    return columns


def _cheapest(columns: dict[str, np.ndarray], demand: RunDemand, slug: str) -> Cluster | str:
    """Return the cheapest cluster of an accelerator within the limits, or the reason for none as a text.

    Without a time limit it is the fastest.
    """
    seconds, cost = columns["seconds"], columns["cost"]
    if not seconds.size:
        return f"no mapping of up to {counted(demand.max_devices, 'device')} fits in memory"
    within_limits = (seconds <= demand.seconds) & (cost <= demand.budget)
    if not within_limits.any():
        if not (seconds <= demand.seconds).any():
            return (
                f"the fastest run on up to {demand.max_devices:,} devices takes {duration(float(seconds.min()))} with "
                f"{counted(demand.global_batch or 1, 'sequence')} per step (--global-batch)"
            )
        lowest_cost = float(cost[seconds <= demand.seconds].min())
        return f"the cheapest run {'in time ' * math.isfinite(demand.seconds)}costs {digits(lowest_cost)} USD"
    criterion = cost if math.isfinite(demand.seconds) else seconds
    best_index = int(np.argmin(np.where(within_limits, criterion, np.inf)))
    best_run = {name: values[best_index] for name, values in columns.items()}
    quantities = {
        "system.n_devices": float(best_run["n_devices"]), "parameters": float(best_run["parameters"]),
        "mapping.micro_batch": float(best_run["micro_batch"]),
    }  # fmt: skip
    software = str(best_run["software"])
    return Cluster(
        slug,
        software,
        int(best_run["n_devices"]),
        {name: best_run[name].item() for name in DEGREES if name in best_run},
        float(best_run["seconds"]),
        float(best_run["cost"]),
        float(best_run["mfu"]),
        extrapolations(demand, slug, software, quantities),
    )


def _larger_batch_change(demand: RunDemand, best: Cluster) -> Iterator[str]:
    """Yield one line on the best cluster with a batch twice as large, where that is better."""
    assert demand.global_batch is not None, "resolved before"
    changed_demand = demand._replace(global_batch=2 * demand.global_batch)
    cluster = _cheapest(_runs(changed_demand, best.accelerator), changed_demand, best.accelerator)
    most = (1.0 - MIN_CHANGE) * _criterion(best, demand)
    if isinstance(cluster, Cluster) and _criterion(cluster, changed_demand) < most:
        yield f"global batch x 2: {cluster.devices:,} devices, {duration(cluster.seconds)}, {digits(cluster.cost)} USD"
