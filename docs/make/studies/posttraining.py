"""Claims on reinforcement learning: steps that NeMo-RL and verl publish."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from benchmarks.posttraining import NEMO, VERL_RATIOS, NemoStep, compare
from docs.make.studies.claim import SETTING, Claim, about
from dse.lab.rl.posttraining import RlDemand, plan_rl

#: Why our steps are shorter, by model.
_FRAMEWORK = (
    "Ours has no time of the framework between parts (data, advantages, refits, wake-up), and micro-batches and "
    "engines in balance; spread of lengths and split are assumed. No parts are published, so that none can be named"
)
_WHY = {
    "deepseek-v3": "As the rows above; its engine also splits every layer over four nodes, of whose small messages we "
    "have no rows, and the shortest rollout and update of all rows stand against the framework's fixed time",
}


@functools.cache
def _seconds(row: int) -> tuple[float, ...]:
    (found,) = compare((NEMO[row],))
    return (found.parts["step_time"],)


def _name(row: NemoStep) -> str:
    return f"{row.workload}, {row.devices} H100, {'one step off policy' if row.staleness else 'on policy'}"


def _h20(workload: str, devices: int, answer: float, **more: Any) -> tuple[float, ...]:
    """Seconds of a step of ours on H20: log-probabilities, rollout, training, weights."""
    found = plan_rl(RlDemand(workload, "h20-96gb", devices, 512, 16, 512.0, answer, longest=8192.0, **more)).best
    parts = ("log_probs", "rollout", "training", "weights")
    return tuple(float(found[f"step_time_{part}"].values[0]) for part in parts)


def log_probs_share() -> Iterator[float]:
    """Old log-probabilities over the update of a 7B on 16 H20, with recompute and without; lengths matter little."""
    for recompute in ("full", "none"):
        found = _h20("qwen2-5-7b", 16, 2048.0, reference=False, modes=("colocated",), training={"recompute": recompute})
        yield found[0] / found[2]


def weights() -> Iterator[float]:
    """Seconds of sending weights between pools of the same size."""
    for model, devices in (("qwen2-5-7b", 8), ("qwen3-30b-a3b", 32), ("qwen3-235b-a22b", 128)):
        yield _h20(model, devices, 2048.0, trainers=devices // 2, train_batch=2048, modes=("async",))[3]


def mixture() -> tuple[float, ...]:
    """Log-probabilities and rollout of 30B-A3B on 128 H20."""
    return _h20("qwen3-30b-a3b", 128, 3360.0, train_batch=2048, modes=("colocated",))[:2]


def claims() -> Iterator[Claim]:
    """The rows of both frameworks."""
    for place, row in enumerate(NEMO):
        yield Claim(
            f"nemo-rl-{row.workload}-{'off' if row.staleness else 'on'}",
            "NeMo-RL 0.5",
            f"GRPO step, {_name(row)}",
            f"{row.seconds:g} s",
            functools.partial(_seconds, place),
            (about(row.seconds),),
            "{:.1f} s",
            SETTING,
            _WHY.get(row.workload, _FRAMEWORK),
        )
    yield Claim(
        "verl-log-probs",
        "verl",
        "old log-probabilities over the update, 7B on 16 H20: FSDP2, Megatron",
        ", ".join(f"{one:.2f}" for one in VERL_RATIOS),
        lambda: tuple(log_probs_share()),
        tuple(map(about, VERL_RATIOS)),
        "{:.2f}, {:.2f}",
        why="Its log-probabilities also have the entropy of every token and micro-batches of their own; that FSDP2 "
        "recomputes and Megatron does not is assumed",
    )
    yield Claim(
        "verl-30b",
        "verl",
        "30B-A3B on 128 H20, 512 x 16 answers: log-probabilities with reference, rollout",
        "49.6, 348 s",
        mixture,
        (about(49.6), about(348.0)),
        "{:.1f}, {:.0f} s",
        why="Mean answers, not published, are taken as 3,360 tokens, with which our update takes its 86 s; the "
        "engines' mapping is not published either, ours is the fastest",
    )
    yield Claim(
        "verl-weights",
        "verl",
        "weights from 4 to 4, 16 to 16, 64 to 64 H20: 7B, 30B-A3B, 235B-A22B",
        "0.02, 4.38, 23.7 s",
        lambda: tuple(weights()),
        (about(0.02), about(4.38), about(23.7)),
        "{:.2f}, {:.2f}, {:.2f} s",
        why="Ours is the time on the wire; verl writes that most goes into gathering parameters of the trainer",
    )
