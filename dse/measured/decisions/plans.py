"""Intervals of planned designs, the probability that they keep limits, and that of costing the least."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dse.designs import catalog, design, leaf_path
from dse.doors import STUDIES
from dse.measured.decisions.choice import Choice, intervals_of
from dse.measured.uncertainty.parts import MetricInterval, quantile
from dse.measured.uncertainty.posterior import posterior

if TYPE_CHECKING:
    from dse.fleet import Cluster, Fleet, RunDemand, ServiceDemand, WorkerGroup


class PlanInterval(NamedTuple):
    """80 % interval of a figure of a plan."""

    low: float  #: ends of its 80 % interval
    high: float
    deviation: float  #: standard deviation of its logarithm

    def probability_below(self, limit: float) -> float:
        """Return the probability that the figure does not exceed a limit, 1 for an infinite limit."""
        if not math.isfinite(limit):
            return 1.0
        middle = 0.5 * (math.log(self.low) + math.log(self.high))
        return NormalDist(middle, max(self.deviation, 1e-6)).cdf(math.log(limit))


def plan_intervals(
    workload: str,
    accelerator: str,
    software: str,
    values: Mapping[str, float],
    kind: str,
    n_devices: int = 1,
    **settings: Any,
) -> dict[str, PlanInterval]:
    """Evaluate metric → 80 % interval of a design's planned metrics; those without an interval are left out.

    Args:
        workload: model, by its name in the catalogue.
        accelerator: likewise.
        software: likewise; "" for the default.
        values: metric → its value as planned.
        kind: ``serving`` or ``training``.
        n_devices: of the design.
        settings: leaves of the design; what they state has no spread.
    """
    choice = choice_of(workload, accelerator, software, kind, n_devices, **settings)
    intervals = intervals_of([choice], list(values), STUDIES[kind])
    return _plan_intervals(intervals, [values])[0]


def fleet_intervals(fleets: Sequence[Fleet], demand: ServiceDemand) -> list[dict[str, PlanInterval]]:
    """Evaluate 80 % intervals of the fleets of a plan, of all from one call of the model.

    Args:
        fleets: of the plan.
        demand: what they serve.

    Returns:
        Of each fleet metric → interval of times to first token and per token (s), and cost (USD/h).
    """
    first, token = demand.metrics
    designs = [_worker(fleet.workers[end], fleet, demand) for fleet in fleets for end in (0, -1)]
    intervals = intervals_of(designs, [first, token, "cost_per_device_hour"], STUDIES["serving"]) if fleets else {}
    ends = {name: pairs[0 if name == first else 1 :: 2] for name, pairs in intervals.items()}
    values = [{first: f.first_token, token: f.token, "cost_per_device_hour": f.hourly} for f in fleets]
    return _plan_intervals(ends, values)


def cluster_intervals(clusters: Sequence[Cluster], demand: RunDemand) -> list[dict[str, PlanInterval]]:
    """Evaluate 80 % intervals of the clusters of a plan, of all from one call of the model.

    Args:
        clusters: of the plan.
        demand: as the plan has it.

    Returns:
        Of each cluster metric → interval of the run's time with failures (s) and its cost (USD).
    """
    designs = [
        choice_of(
            demand.workload,
            cluster.accelerator,
            cluster.software,
            "training",
            cluster.devices,
            **{**demand.settings, **cluster.mapping, "run_tokens": demand.tokens, "global_batch": demand.global_batch},
        )
        for cluster in clusters
    ]
    values = [{"run_time_with_failures": cluster.seconds, "cost_per_run": cluster.cost} for cluster in clusters]
    return _plan_intervals(intervals_of(designs, list(values[0]), STUDIES["training"]) if values else {}, values)


def cheapest_probabilities(fleets: Sequence[Fleet], demand: ServiceDemand) -> list[float]:
    """Return for each fleet the probability to be the cheapest, its workers as many as its throughput requires."""

    def cost(workers: WorkerGroup, fleet: Fleet) -> float:
        return fleet.hourly * workers.number * workers.devices / fleet.devices

    plans = [[(_worker(w, fleet, demand, at_rate=False), cost(w, fleet)) for w in fleet.workers] for fleet in fleets]
    return least_cost_probabilities(plans, "cost_per_token", "serving")


def _worker(workers: WorkerGroup, fleet: Fleet, demand: ServiceDemand, at_rate: bool = True) -> Choice:
    """Build the design of a worker, at its share of the rate or, without ``at_rate``, at its requests in flight."""
    settings = demand.settings_of(workers, at_rate)
    return choice_of(demand.workload, fleet.accelerator, fleet.software, "serving", workers.devices, **settings)


def choice_of(workload: str, accelerator: str, software: str, kind: str, n_devices: int = 1, **settings: Any) -> Choice:
    """Build a design from names of the catalogue, for decisions, with the arguments of :func:`plan_intervals`."""
    serves = kind == "serving"
    stack = software or catalog.default_software(accelerator, serving=serves, workload=workload)
    complete_design = STUDIES[kind].complete(design(workload, accelerator, stack, n_devices, kind=kind, **settings))
    set_leaves = frozenset(map(leaf_path, settings))
    return Choice(
        "", complete_design, catalog.resolve("software", stack), accelerator, workload, fixed_paths=set_leaves
    )


def least_cost_probabilities(plans: Sequence[Sequence[tuple[Choice, float]]], metric: str, kind: str) -> list[float]:
    """Return for each plan the probability to cost the least, [1.0] for a single one.

    What plans have in common (chip, stack, prices) cancels (:mod:`dse.measured.uncertainty.posterior`).

    Args:
        plans: of each its designs, with the cost of each.
        metric: by whose relative error the cost of a design errs: its cost for a unit of work.
        kind: ``serving`` or ``training``.
    """
    if len(plans) < 2:
        return [1.0] * len(plans)
    cost_posterior = posterior([choice for parts in plans for choice, _ in parts], metric, STUDIES[kind])
    factors = iter(np.exp(cost_posterior.draws() - cost_posterior.logs[:, None]))
    costs = np.array([sum(cost * next(factors) for _, cost in parts) for parts in plans])
    return [float(share) for share in np.bincount(costs.argmin(axis=0), minlength=len(plans)) / costs.shape[1]]


def _plan_intervals(
    intervals: Mapping[str, Sequence[MetricInterval | None]], values: Sequence[Mapping[str, float]]
) -> list[dict[str, PlanInterval]]:
    """Return of each plan metric → interval around its value, as wide, relatively, as that of its design.

    Args:
        intervals: metric → interval of each design, None where it has none.
        values: of each plan metric → value as planned.
    """
    plans: list[dict[str, PlanInterval]] = [{} for _ in values]
    for index, plan in enumerate(values):
        for name, value in plan.items():
            if name in intervals and (ends := intervals[name][index]) is not None:
                factor = math.sqrt(ends.high / ends.low)
                plans[index][name] = PlanInterval(value / factor, value * factor, math.log(factor) / quantile())
    return plans
