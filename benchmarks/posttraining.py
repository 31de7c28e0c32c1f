"""Steps of reinforcement learning that others published, and ours: checks, to which nothing is fitted.

NeMo-RL publishes whole steps with their mappings (performance summary of v0.5: H100 in BF16, GRPO on
OpenMathInstruct-2, old and reference log-probabilities, Megatron and vLLM). Prompt tokens follow from its tokens/s; it
does not state the spread of lengths (ours 0.5 before the limit), nor the split of asynchronous runs (ours half, as in
its recipes).
verl publishes parts of a step (one-step-off recipe, Qwen2.5-Math-7B, H20) without mean lengths: of these the ratio of
old log-probabilities to the update is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dse.lab.rl.posttraining import RlDemand, plan_rl


class NemoStep(NamedTuple):
    """A published step."""

    workload: str
    staleness: int  #: 0: on policy, colocated
    longest: int  #: tokens of prompt and answer
    answer: float  #: tokens, mean
    devices: int
    answers: int
    engine_tp: int
    training: dict[str, Any]
    tokens: float  #: per second and device
    seconds: float

    @property
    def demand(self) -> RlDemand:
        """The step as we ask for it."""
        prompt = self.tokens * self.devices * self.seconds / self.answers - self.answer
        return RlDemand(
            self.workload,
            "h100",
            self.devices,
            self.answers // 32,
            32,
            prompt,
            self.answer,
            longest=self.longest - prompt,
            staleness=self.staleness,
            train_batch=512,
            modes=("async" if self.staleness else "colocated",),
            trainers=self.devices // 2 if self.staleness else 0,
            training=self.training,
            rollout={
                "tp": self.engine_tp,
                "n_devices": self.engine_tp,
                "precision": "bf16",
                "memory_share": 0.8 if self.staleness else 0.6,
            },
        )


def _mapping(tp: int, cp: int, pp: int, micro_batch: int, recompute: str, ep: int = 0) -> dict[str, Any]:
    found = {"tp": tp, "cp": cp, "pp": pp, "micro_batch": micro_batch, "recompute": recompute}
    return found | ({"ep": ep} if ep else {})


#: NVIDIA-NeMo/RL, docs/about/performance-summary.md of v0.5: GRPO on H100 in BF16. Recompute and micro-batch as its
#: recipes have them: as many answers as a bin of the longest sequence holds.
NEMO = (
    NemoStep("llama-3-1-8b", 0, 4096, 1019, 16, 2048, 1, _mapping(1, 1, 2, 4, "full"), 1581, 92.8),
    NemoStep("llama-3-1-8b", 1, 4096, 1123, 16, 2048, 1, _mapping(1, 1, 1, 4, "full"), 2478, 64.8),
    NemoStep("qwen3-32b", 0, 4096, 3251, 32, 2048, 4, _mapping(4, 1, 4, 1, "none"), 571, 376.0),
    NemoStep("qwen3-32b", 1, 4096, 3252, 64, 2048, 4, _mapping(4, 1, 4, 1, "none"), 538, 200.0),
    NemoStep("qwen3-30b-a3b", 0, 4096, 3196, 32, 2048, 2, _mapping(1, 1, 1, 1, "none", 8), 1066, 198.0),
    NemoStep("qwen3-30b-a3b", 1, 4096, 3201, 32, 2048, 2, _mapping(1, 1, 2, 1, "none", 8), 1391, 154.0),
    NemoStep("qwen3-235b-a22b", 0, 8192, 5700, 128, 512, 16, _mapping(2, 2, 8, 1, "full", 16), 54.1, 431.0),
    NemoStep("qwen3-235b-a22b", 1, 8192, 5707, 256, 512, 8, _mapping(4, 1, 8, 1, "full", 16), 58.7, 203.0),
    NemoStep("deepseek-v3", 0, 1536, 744, 256, 512, 32, _mapping(1, 1, 16, 1, "full", 16), 12.7, 134.0),
    NemoStep("deepseek-v3", 1, 1536, 738, 512, 512, 32, _mapping(1, 1, 16, 1, "full", 16), 13.1, 64.9),
)

#: Old log-probabilities over the update, of verl: FSDP2 and Megatron, colocated (docs/advance/one_step_off.md).
VERL_RATIOS = (88 / 286, 119 / 344)


class Compared(NamedTuple):
    """A published step and ours."""

    row: NemoStep
    parts: dict[str, float]  #: seconds; empty where ours does not fit
    why: str


def compare(rows: tuple[NemoStep, ...] = NEMO) -> Iterator[Compared]:
    """Every published step with our seconds, whole and by part."""
    for row in rows:
        found = plan_rl(row.demand)
        parts = {str(name): float(found.best[name].values[0]) for name in found.best.data_vars} if found.best else {}
        yield Compared(row, parts, " ".join(found.without.values()))
