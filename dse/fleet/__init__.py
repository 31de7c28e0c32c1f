"""Devices for a service or a run: pools, replicas, and the cheapest plans."""

from dse.fleet.demand import STATISTICS, Fleet, ServiceDemand, WorkerGroup, worker_settings
from dse.fleet.planning import Plan
from dse.fleet.pools import MatchedPools, match
from dse.fleet.runs import Cluster, RunDemand, plan_run
from dse.fleet.service import provision
from dse.fleet.swept import only_launched, swept_designs
from dse.fleet.workers import Match, PoolCandidate, PoolFleet

__all__ = [
    "STATISTICS",
    "Cluster",
    "Fleet",
    "Match",
    "MatchedPools",
    "Plan",
    "PoolCandidate",
    "PoolFleet",
    "RunDemand",
    "ServiceDemand",
    "WorkerGroup",
    "match",
    "only_launched",
    "plan_run",
    "provision",
    "swept_designs",
    "worker_settings",
]
