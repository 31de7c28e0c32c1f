"""Post-training by reinforcement learning: one step of it, its demand, and the mapping of its devices.

Answers how long a step of GRPO or PPO takes by part, and how devices are split best between rollout engines and a
trainer: colocated, in turn, or with weights of a bounded age. ``demand`` is what is asked and refused, ``step`` one
step from the seconds of its parts (answers of a long tail decide a rollout), ``posttraining`` sweeps the mappings of
both pools and pairs them. It knows sweeps, fleets and both doors; the command is ``dse.lab.commands.posttrain``.

Start with ``posttraining.plan_rl``, then ``step.rl_step``.
"""

from dse.lab.rl.demand import RlDemand
from dse.lab.rl.posttraining import PARTS, RlPlan, plan_rl

__all__ = [
    "PARTS",
    "RlDemand",
    "RlPlan",
    "plan_rl",
]
