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
import tomlkit

from dse.designs import calibrated, catalog, leaf_value
from dse.designs.records import N_DEVICES
from dse.errors import InputError
from dse.fleet.settings import PlanProgress, Progress, Settings, foreign_stack, read_settings, with_settings
from dse.fleet.swept import swept_designs
from dse.io import counted, digits, duration
from dse.spec import sweep as specs
from dse.sweep.grid import compose

#: Fewest devices, and parts of a mapping that are shown.
_MIN_DEVICES, DEGREES = 8, ("tp", "pp", "dp", "ep", "virtual_stages", "micro_batch", "recompute")

#: Changed demands whose effect is shown: field → factors; relative change of cost that is shown.
_CHANGES, _MIN_CRITERION_CHANGE = {"seconds": (0.5, 2.0), "budget": (0.5, 2.0)}, 0.02

#: Sequences of a global batch where neither options nor the model's file state it.
_BATCH = 1024

#: Limit of each number of a demand.
_MAX_VALUE = 1e18


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

    def margins(self, demand: RunDemand) -> dict[str, float]:
        """Return ``time`` and ``budget`` → share by which the limit may change; without infinite limits."""
        share_by_limit = {"time": demand.seconds / self.seconds - 1.0, "budget": demand.budget / self.cost - 1.0}
        return {name: share for name, share in share_by_limit.items() if math.isfinite(share)}


class RunPlan(NamedTuple):
    """Clusters by accelerator, cheapest first; the reason of those without one; what would change the cheapest."""

    demand: RunDemand
    clusters: list[Cluster]
    without: dict[str, str]
    changes: list[str]
    batch_tokens: float  #: tokens of a global batch


#: Leaf that a plan decides → what states it instead.
_DECIDED = {
    N_DEVICES: "limit it by --max-devices",
    "workload.global_batch": "state it by --global-batch",
    "workload.run_tokens": "state it by --tokens",
}


def plan_run(demand: RunDemand, progress: Progress | None = None) -> RunPlan:
    """Return the cheapest cluster of each accelerator within the limits, or the fastest without a time limit.

    Args:
        demand: model, limits, at least one, names of the catalogue.
        progress: called with the state of the plan.

    Returns:
        The plan; no cluster where no accelerator keeps the limits.

    Raises:
        InputError: for unknown names, numbers that are not positive, settings of what the plan decides, and no limit.
    """
    options = {
        "seconds": "--in",
        "budget": "--under",
        "max_devices": "--max-devices",
        "tokens": "--tokens",
        "global_batch": "--global-batch",
    }
    for name, option in options.items():
        value = getattr(demand, name)
        if value is not None and not 0.0 < value < _MAX_VALUE and not (name in _CHANGES and value == math.inf):
            raise InputError(option, f"{value:g}", f"more than 0, less than {_MAX_VALUE:g}", "check the number")
    if demand.seconds == demand.budget == math.inf:
        raise InputError("dse plan", "neither --in nor --under", "a limit of time or of cost", "add --in 30d")
    if not demand.accelerators:
        raise InputError("--on", "no name", "accelerators of the catalogue", "see: dse catalog list accelerator")
    if demand.max_devices < _MIN_DEVICES:
        raise InputError("--max-devices", str(demand.max_devices), f"{_MIN_DEVICES} or more", "a node has as many")
    slugs = dict.fromkeys(catalog.resolve("accelerator", name, "--on") for name in demand.accelerators)
    model = catalog.values("workload", demand.workload)
    global_batch, tokens = demand.global_batch or model.get("global_batch"), demand.tokens or model.get("run_tokens")
    if tokens is None:
        raise InputError("--tokens", f"none, and none in the file of {demand.workload}", "tokens of the run", "add it")
    demand = demand._replace(
        accelerators=tuple(slugs),
        global_batch=int(global_batch or _BATCH),
        tokens=float(tokens),
        software=demand.software and catalog.resolve("software", demand.software, "--software"),
        settings=read_settings(demand.settings, False, _DECIDED),
    )
    without = {slug: reason for slug in demand.accelerators if (reason := foreign_stack(demand.software, slug))}
    runs = _all_runs(
        demand, [slug for slug in demand.accelerators if slug not in without], progress or (lambda _: None)
    )
    results = {slug: _cheapest(columns, demand, slug) for slug, columns in runs.items()}
    clusters = sorted(
        (cluster for cluster in results.values() if isinstance(cluster, Cluster)),
        key=lambda cluster: _criterion(cluster, demand),
    )
    without |= {slug: reason for slug, reason in results.items() if isinstance(reason, str)}
    seq_len = leaf_value("workload.seq_len", demand.settings.get("seq_len", model["seq_len"]))
    batch_tokens = float(global_batch or _BATCH) * seq_len
    return RunPlan(demand, clusters, without, list(_changes(runs, demand, clusters)), batch_tokens)


def _all_runs(demand: RunDemand, slugs: list[str], progress: Progress) -> dict[str, dict[str, np.ndarray]]:
    """Return accelerator → columns of its mappings, and report each that is done."""
    runs = dict[str, dict[str, np.ndarray]]()
    progress(PlanProgress(0, len(slugs), ""))
    for slug in slugs:
        runs[slug] = _runs(demand, slug)
        progress(PlanProgress(len(runs), len(slugs), slug))
    return runs


def _criterion(cluster: Cluster, demand: RunDemand) -> float:
    """Return what the best cluster minimises: its cost in USD, or seconds where only cost is limited."""
    return cluster.cost if math.isfinite(demand.seconds) else cluster.seconds


def _specification(demand: RunDemand, slug: str) -> str:
    """Return a sweep as TOML: mappings with micro-batches of 1 to 8, on 8, 16, … devices of one accelerator."""
    assert demand.global_batch is not None, "resolved before"
    sizes = [2**k for k in range(3, demand.max_devices.bit_length())]
    axes: dict[str, Any] = {
        "n_devices": sizes,
        "tp": "divisors",
        "pp": "divisors",
        "virtual_stages": "divisors",
        "micro_batch": [size for size in (1, 2, 4, 8) if demand.global_batch % size == 0],
        "recompute": ["none", "selective", "full"],
    }
    if catalog.is_mixture(demand.workload):
        axes["ep"] = "divisors"
    return tomlkit.dumps(
        {
            "workload": {"name": demand.workload, "run_tokens": demand.tokens, "global_batch": demand.global_batch},
            "system": {"name": slug},
            "software": {"name": demand.software} if demand.software else {},
            "axes": with_settings(axes, demand.settings),
            "constraints": {"all": ["fits_probability >= 0.9"]},
            "output": {"keep": "feasible", "money": True, "run": True},
        }
    )


def _runs(demand: RunDemand, slug: str) -> dict[str, np.ndarray]:
    """Return column → values [design] of all mappings that can run; ``seconds`` and ``cost`` (USD) include failures."""
    swept = swept_designs(compose.build(specs.from_text(_specification(demand, slug), "plan")))
    names = (
        "run_time",
        "run_time_with_failures",
        "cost_per_run",
        "mfu",
        "parameters",
        "n_devices",
        "software",
        *DEGREES,
    )
    columns = swept.pick(names)
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
    mapping = {name: best_run[name].item() for name in DEGREES if name in best_run}
    return Cluster(
        slug,
        str(best_run["software"]),
        int(best_run["n_devices"]),
        mapping,
        float(best_run["seconds"]),
        float(best_run["cost"]),
        float(best_run["mfu"]),
        _extrapolations(slug, best_run, demand),
    )


def _extrapolations(slug: str, best_run: dict[str, Any], demand: RunDemand) -> str:
    """Return the quantities of a cluster outside of the measured rows of its stack, a text; "" for none."""
    values = {
        "system.n_devices": float(best_run["n_devices"]), "parameters": float(best_run["parameters"]),
        "mapping.micro_batch": float(best_run["micro_batch"]),
    }  # fmt: skip
    if catalog.is_mixture(demand.workload):
        values["workload.experts.n_experts"] = 1.0
    return ", ".join(calibrated.uncalibrated_quantities(str(best_run["software"]), values.get, slug))


def _changes(runs: dict[str, dict[str, np.ndarray]], demand: RunDemand, clusters: list[Cluster]) -> Iterator[str]:
    """Yield what would change the best cluster, a line each: batch, prices, limits; nothing without clusters."""
    if not clusters:
        return
    best, *other_clusters = clusters
    yield from _larger_batch_change(demand, best)
    for other in other_clusters:
        if math.isfinite(demand.seconds):
            yield f"{other.accelerator} is as cheap at costs {100.0 * (1.0 - best.cost / other.cost):.0f} % lower"
    limit_names = {"seconds": "time", "budget": "budget"}
    for field, factors in _CHANGES.items():
        limit = getattr(demand, field)
        for factor in factors if math.isfinite(limit) else ():
            changed_demand = demand._replace(**{field: factor * limit})
            results = (_cheapest(columns, changed_demand, slug) for slug, columns in runs.items())
            changed_clusters = [result for result in results if isinstance(result, Cluster)]
            if not changed_clusters:
                yield f"{limit_names[field]} x {factor:g}: no cluster"
                continue
            cheapest = min(changed_clusters, key=lambda cluster: _criterion(cluster, changed_demand))
            if (
                abs(_criterion(cheapest, changed_demand) / _criterion(best, demand) - 1.0) > _MIN_CRITERION_CHANGE
                or cheapest.accelerator != best.accelerator
            ):
                yield (
                    f"{limit_names[field]} x {factor:g}: {cheapest.devices:,} {cheapest.accelerator}, "
                    f"{duration(cheapest.seconds)}, {digits(cheapest.cost)} USD"
                )


def _larger_batch_change(demand: RunDemand, best: Cluster) -> Iterator[str]:
    """Yield one line on the best cluster with a batch twice as large, where that is better."""
    assert demand.global_batch is not None, "resolved before"
    changed_demand = demand._replace(global_batch=2 * demand.global_batch)
    cluster = _cheapest(_runs(changed_demand, best.accelerator), changed_demand, best.accelerator)
    if isinstance(cluster, Cluster) and _criterion(cluster, changed_demand) < (
        1.0 - _MIN_CRITERION_CHANGE
    ) * _criterion(best, demand):
        yield f"global batch x 2: {cluster.devices:,} devices, {duration(cluster.seconds)}, {digits(cluster.cost)} USD"
