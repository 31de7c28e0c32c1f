"""The measured state of a step, and what it takes less without a part of it.

The state is the time of the passes of each stage, of messages between stages, and of what follows the last pass; the
length of the step is that of its schedule, event by event.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dse.lab.evidence.ranks import RankParts
from dse.views.trace import PassKind, Step, Task, simulate


class SavedTime(NamedTuple):
    """What a step without a cause saves: s a step in the passes of each stage, s after them, factor between stages."""

    passes: Mapping[int, float]
    after: float = 0.0
    between: float = 1.0
    everywhere: bool = True  #: whether stages without a trace save the same share


class MeasuredState:
    """The measured state of a step."""

    def __init__(self, step: Step, ranks: list[RankParts], predicted: Mapping[int, RankParts]) -> None:
        self.step, self.ranks, self.predicted = step, ranks, predicted
        self.measured = max(one.trace.length for one in ranks)
        self.stages = {s: [one for one in ranks if one.stage == s] for s in {one.stage for one in ranks}}
        self.busy = {s: float(np.mean([one.busy for one in own])) for s, own in self.stages.items()}
        self.last = max(ranks, key=lambda one: one.replicas + one.after)  # whose messages and optimiser end last
        self.after = self.last.replicas + self.last.after
        self.between = self._between()

    def _between(self) -> float:
        """Time of messages between stages over the predicted one."""
        ratios = []
        for one in self.ranks:
            for at, item in enumerate(one.matched.classes):
                sent = one.matched.times(at) if item.family == "message" and "stage_output" in item.name else 0.0
                if sent and item.key[1] == "send":
                    ratios.append(one.matched.seconds(at) / sent / item.each)
        return float(np.mean(ratios)) if ratios else 1.0

    def total(self, saved: SavedTime | None = None) -> float:
        """Seconds of the step by its schedule, in the measured state or with something saved."""
        saved = saved or SavedTime({})
        busy = {s: seconds - saved.passes.get(s, 0.0) for s, seconds in self.busy.items()}
        scales = {s: busy[s] / max(self.predicted[s].busy, 1e-12) for s in busy}
        plain = {s: self.busy[s] / max(self.predicted[s].busy, 1e-12) for s in busy}
        others = float(np.mean([*(scales if saved.everywhere else plain).values()]))
        plan, d = self.step.plan, self.step.durations
        place = [plan.place(Task(PassKind.forward, 0, chunk)) for chunk in range(plan.chunks)]
        each = [scales.get(stage, others) for stage in place]
        scaled = [[factor * value for factor, value in zip(each, part, strict=True)] for part in d[:3]]
        hidden = None if d.hidden is None else [f * value for f, value in zip(each, d.hidden, strict=True)]
        between = self.between / saved.between
        durations = d._replace(
            forward=scaled[0],
            input_gradient=scaled[1],
            weight_gradient=scaled[2],
            hidden=hidden,
            receive=between * d.receive,
        )
        return simulate(plan, durations).makespan + self.after - saved.after

    def worth(self, saved: SavedTime) -> float:
        """Seconds by which the step is longer for a cause."""
        return self.total() - self.total(saved)

    def at_last(self, values: Mapping[int, float]) -> float:
        """Of seconds by rank those of the rank that ends last; the mean where it is not among them."""
        return values.get(id(self.last), float(np.mean([*values.values()])))

    def mean(self, values: Mapping[int, Sequence[float]]) -> dict[int, float]:
        """Stage → mean over its ranks."""
        return {stage: float(np.mean(own)) for stage, own in values.items() if own}
