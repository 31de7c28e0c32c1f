"""Devices for a service or a run: pools, replicas, and the cheapest plans."""

from dse.fleet.demand import ROLES, STATISTICS, Demand, Fleet, Workers, worker_settings
from dse.fleet.launched import only_launched
from dse.fleet.pools import MatchedPools, match
from dse.fleet.runs import Cluster, RunDemand, RunPlan, plan_run
from dse.fleet.service import Plan, provision
from dse.fleet.workers import Candidate, Match, PoolFleet

__all__ = [
    "ROLES",
    "STATISTICS",
    "Candidate",
    "Cluster",
    "Demand",
    "Fleet",
    "Match",
    "MatchedPools",
    "Plan",
    "PoolFleet",
    "RunDemand",
    "RunPlan",
    "Workers",
    "match",
    "only_launched",
    "plan_run",
    "provision",
    "worker_settings",
]
