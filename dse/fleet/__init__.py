"""Devices for a service or a run: pools, replicas, and the cheapest plans.

**Answers** which devices serve a rate of requests within limits of latency, which train a model within a time and a
budget, and how prefill and decode pools are best matched.

**Knows** demands (what is asked for), fleets and clusters (workers with their loads, their figures and margins), and
pairs of pools; candidates come from sweeps, so that no formula of the model stands here.

**Start** with ``planning.py``, the frame of every plan: check a demand, sweep each accelerator, sort, try changes.
``service.py`` and ``runs.py`` are its two kinds, ``pooled.py`` the pools of a service; ``pools.py`` matches the pools
of a specification (``dse pools``), with designs, pairs and waits of ``workers.py``; ``swept.py`` has sweeps as columns.
"""

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
