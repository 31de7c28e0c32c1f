"""The measured state of a step, and what it takes less without a part of it.

The state is the time of the passes of each stage, of messages between stages, and of what follows the last pass; the
length of the step is that of its schedule, event by event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dse.lab.evidence.ranks import RankParts
from dse.views.trace import PassKind, ScheduledStep, Task, simulate


class SavedTime(NamedTuple):
    """What a step without a cause saves, in s a step.

    It is seconds by stage in the passes, seconds after them, and a factor of messages between stages.
    """

    passes: Mapping[int, float]
    after_passes: float = 0.0
    message_factor: float = 1.0
    everywhere: bool = True  #: whether stages without a trace save the same share


class MeasuredState:
    """The times of passes, messages and optimiser of a measured step, of which its schedule makes the length."""

    def __init__(self, step: ScheduledStep, ranks: list[RankParts], predicted: Mapping[int, RankParts]) -> None:
        self.step, self.ranks, self.predicted = step, ranks, predicted
        self.measured = max(rank.trace.step_seconds for rank in ranks)
        self.stages = {s: [rank for rank in ranks if rank.stage == s] for s in {rank.stage for rank in ranks}}
        self.busy = {s: float(np.mean([rank.busy for rank in stage_ranks])) for s, stage_ranks in self.stages.items()}
        self.last_rank = max(
            ranks, key=lambda rank: rank.replicas + rank.optimizer_seconds
        )  # whose messages and optimiser end last
        self.after_passes = self.last_rank.replicas + self.last_rank.optimizer_seconds
        self.message_factor = self._message_ratio()

    def _message_ratio(self) -> float:
        """Return the mean time of messages sent between stages over the predicted one; 1 without such messages."""
        ratios: list[float] = []
        for matched in (rank.matched for rank in self.ranks):
            is_output = [
                kernel_class.family == "message"
                and "stage_output" in kernel_class.name
                and kernel_class.key[1] == "send"
                for kernel_class in matched.classes
            ]
            has_run = np.array(is_output, bool) & (matched.launches > 0.0)
            ratios += (matched.seconds[has_run] / matched.expected[has_run]).tolist()
        return float(np.mean(ratios)) if ratios else 1.0

    def total(self, saved: SavedTime | None = None) -> float:
        """Return the length of the step by its schedule, s, in the measured state or with something saved."""
        saved = saved or SavedTime({})
        busy = {s: seconds - saved.passes.get(s, 0.0) for s, seconds in self.busy.items()}
        scales = {s: busy[s] / max(self.predicted[s].busy, 1e-12) for s in busy}
        measured_scales = {s: self.busy[s] / max(self.predicted[s].busy, 1e-12) for s in busy}
        untraced_scale = float(np.mean([*(scales if saved.everywhere else measured_scales).values()]))
        plan, predicted_durations = self.step.plan, self.step.durations
        stages = [plan.place(Task(PassKind.forward, 0, chunk)) for chunk in range(plan.chunks)]
        chunk_scales = [scales.get(stage, untraced_scale) for stage in stages]
        scaled = [
            [factor * value for factor, value in zip(chunk_scales, chunk_seconds, strict=True)]
            for chunk_seconds in predicted_durations[:3]
        ]
        hidden = (
            None
            if predicted_durations.hidden is None
            else [f * value for f, value in zip(chunk_scales, predicted_durations.hidden, strict=True)]
        )
        message_factor = self.message_factor / saved.message_factor
        durations = predicted_durations._replace(
            forward=scaled[0],
            input_gradient=scaled[1],
            weight_gradient=scaled[2],
            hidden=hidden,
            receive=message_factor * predicted_durations.receive,
        )
        return simulate(plan, durations).makespan + self.after_passes - saved.after_passes

    def cause_seconds(self, saved: SavedTime) -> float:
        """Return the s by which the step is longer than without a cause, which is what it would save."""
        return self.total() - self.total(saved)

    def last_rank_value(self, values: Mapping[int, float]) -> float:
        """Return of values by ``id`` of a rank that of the rank that ends last, else their mean."""
        return values.get(id(self.last_rank), float(np.mean([*values.values()])))

    @staticmethod
    def stage_means(values: Mapping[int, Sequence[float]]) -> dict[int, float]:
        """Return stage → mean of the values of its ranks; stages without values are left out."""
        return {stage: float(np.mean(rank_values)) for stage, rank_values in values.items() if rank_values}
