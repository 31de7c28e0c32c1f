"""Claims on reinforcement learning: steps that NeMo-RL and verl publish."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from benchmarks.posttraining import NEMO, VERL_RATIOS, NemoStep, compare
from docs.make.studies.claim import Claim, about
from dse.sweep.posttraining import RlDemand, plan_rl

#: Why our steps are shorter, by model.
_FRAMEWORK = (
    "Ours is a lower bound: without the framework's time between parts (data, advantages, refits, wake-up), with "
    "packed micro-batches and engines in balance; spread of lengths and split are our assumptions"
)
_WHY = {
    "deepseek-v3": "As the rows before; its engine also splits every layer over four nodes, of whose small messages we "
    "have no rows, and the shortest rollout and update of all rows stand against the framework's fixed time",
}  # fmt: skip


@functools.cache
def _seconds(row: int) -> tuple[float, ...]:
    (found,) = compare((NEMO[row],))
    return (found.parts["step_time"],)


def _name(row: NemoStep) -> str:
    return f"{row.workload}, {row.devices} H100, {'one step off policy' if row.staleness else 'on policy'}"


def log_probs_share() -> tuple[float, ...]:
    """Old log-probabilities over the update: Qwen2.5-7B on 16 H20, full recompute; lengths matter little."""
    found = plan_rl(RlDemand(
        "qwen2-5-7b", "h20-96gb", 16, 512, 16, 512.0, 2048.0, longest=8192.0, reference=False, modes=("colocated",),
        training={"recompute": "full"},
    )).best  # fmt: skip
    return (float(found.step_time_log_probs.values[0] / found.step_time_training.values[0]),)


def claims() -> Iterator[Claim]:
    """The rows of both frameworks."""
    for place, row in enumerate(NEMO):
        yield Claim(
            f"nemo-rl-{row.workload}-{'off' if row.staleness else 'on'}", "NeMo-RL 0.5",
            f"GRPO step, {_name(row)}", f"{row.seconds:g} s", functools.partial(_seconds, place),
            (about(row.seconds),), "{:.1f} s", why=_WHY.get(row.workload, _FRAMEWORK),
        )  # fmt: skip
    yield Claim(
        "verl-log-probs", "verl", "old log-probabilities over the update, 7B on 16 H20 (FSDP2, Megatron), ± 25 %",
        ", ".join(f"{one:.2f}" for one in VERL_RATIOS), lambda: 2 * log_probs_share(),
        tuple(about(one, 0.25) for one in VERL_RATIOS), "{:.2f}, {:.2f}",
        why="Its log-probabilities also have the entropy of every token and micro-batches of their own; ours are a "
        "forward pass of the update's",
    )  # fmt: skip
