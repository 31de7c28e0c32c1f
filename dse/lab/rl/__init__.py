"""Post-training by reinforcement learning: one step of it, its demand, and the mapping of its devices."""

from dse.lab.rl.demand import RlDemand
from dse.lab.rl.posttraining import PARTS, RlPlan, plan_rl

__all__ = [
    "PARTS",
    "RlDemand",
    "RlPlan",
    "plan_rl",
]
