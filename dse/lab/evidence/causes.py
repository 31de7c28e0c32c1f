"""Causes of a gap between a measured and a predicted step, in seconds, each with its evidence.

A cause is worth what the step, by its schedule, takes less without it (:mod:`dse.lab.evidence.state`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dse.lab.evidence.finding import Cause, CauseSearch
from dse.lab.evidence.ranks import RankParts, measured_parts, predicted_parts, with_ends, without_waits
from dse.lab.evidence.state import MeasuredState
from dse.lab.evidence.traces import OF_MESSAGES, RankTrace
from dse.measured.profiles.kernels import union_length
from dse.types import Design
from dse.views.trace import DeviceStep, device_step, ledger_of, step_of

__all__ = ["Cause", "Explained", "as_dict", "explain", "step_parts"]


#: Share of the time of kernels below which what is matched tells no cause: another model or mapping ran.
LEAST_MATCHED = 0.5


class Explained(NamedTuple):
    """A measured step and the causes of its gap, the largest first."""

    measured: float  #: s of a step
    predicted: float  #: s, by the schedule event by event
    causes: tuple[Cause, ...]
    ranks: tuple[RankParts, ...]
    expected: tuple[DeviceStep, ...]  #: of each rank

    @property
    def named(self) -> tuple[Cause, ...]:
        """The causes that stand out; none where most kernels are not those of the model."""
        return tuple(one for one in self.causes if one.named) if self.is_matched else ()

    @property
    def is_matched(self) -> bool:
        """Whether what ran seems to be what is predicted."""
        return sum(self.shares.values()) >= LEAST_MATCHED

    @property
    def shares(self) -> dict[str, float]:
        """How kernels were matched → share of their time, mean over the ranks."""
        keys = dict.fromkeys(key for one in self.ranks for key in one.matched.shares)
        return {key: sum(one.matched.shares[key] for one in self.ranks) / len(self.ranks) for key in keys}

    @property
    def unmatched(self) -> dict[str, float]:
        """Kernel without an operator → s a step on the rank where it takes longest, the longest first."""
        found: dict[str, float] = {}
        for one in self.ranks:
            for name, seconds in one.matched.unmatched.items():
                found[name] = max(found.get(name, 0.0), seconds)
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def explain(design: Design, traces: Sequence[RankTrace]) -> Explained:
    """The causes of the gap between traces of a step and the prediction of what ran.

    Args:
        design: what ran, with plain numbers as leaves.
        traces: of one rank or several; several ranks of a stage show which of them the others wait for.

    Returns:
        The causes, which with the rest sum to the gap.
    """
    step, ledger = step_of(design), ledger_of(design)
    of_stage = max(round(float(design.mapping.tp * design.mapping.cp * design.mapping.dp)), 1)
    stages = [min(trace.rank // of_stage, len(step.plan.orders) - 1) for trace in traces]
    expected = {stage: device_step(design, stage, step, ledger) for stage in sorted(set(stages))}
    ranks = without_waits(with_ends([measured_parts(t, expected[s]) for t, s in zip(traces, stages, strict=True)]))
    state = MeasuredState(step, ranks, {stage: predicted_parts(one) for stage, one in expected.items()})
    found = CauseSearch(state).found()
    measured = max(trace.length for trace in traces)
    order = sorted(found, key=lambda one: (one.kind == "rest", not one.named, -abs(one.seconds)))
    return Explained(measured, step.total, tuple(order), tuple(ranks), tuple(expected[s] for s in stages))


def step_parts(found: Explained) -> list[tuple[str, float, float]]:
    """(part, measured, predicted) seconds of a step of the first rank: compute, exposed messages, gaps."""
    one, usual = found.ranks[0], predicted_parts(found.expected[0])
    computing, theirs = _computing(one), _computing(usual)
    exposed = one.trace.length - computing - one.trace.idle
    return [
        ("compute", computing, theirs),
        ("exposed communication", exposed, usual.trace.length - theirs - usual.trace.idle),
        ("gaps", one.trace.idle, usual.trace.idle),
    ]


def _computing(one: RankParts) -> float:
    """Seconds a step with a kernel that computes."""
    own = one.trace.labels != OF_MESSAGES
    return union_length(one.trace.start[own], one.trace.end[own]) / one.trace.steps


def as_dict(found: Explained) -> dict[str, Any]:
    """JSON-ready dictionary."""
    return {
        "measured": found.measured,
        "predicted": found.predicted,
        "gap": found.measured - found.predicted,
        "matched": found.shares,
        "unmatched": found.unmatched,
        "causes": [one._asdict() for one in found.causes] if found.is_matched else [],
        "ranks": [one.trace.rank for one in found.ranks],
    }
