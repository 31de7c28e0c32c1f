"""Causes of a gap between a measured and a predicted step, in seconds, each with its evidence.

A cause is worth what the step, by its schedule, takes less without it (:mod:`dse.lab.evidence.state`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dse.errors import InputError
from dse.lab.evidence.finding import Cause, CauseSearch
from dse.lab.evidence.matching import ATTENTION
from dse.lab.evidence.ranks import RankParts, count_tails_as_waits, measured_parts, predicted_parts, remove_waits
from dse.lab.evidence.splitting import split_products
from dse.lab.evidence.state import MeasuredState
from dse.lab.evidence.traces import RankTrace
from dse.measured.profiles.kernels import MESSAGE_CLASS, union_length
from dse.types import Design
from dse.views.trace import DeviceStep, device_step, schedule_step, step_ledger

__all__ = ["Cause", "GapExplanation", "as_dict", "explain", "step_parts"]


#: Share of the time of kernels below which what is matched tells no cause: another model or mapping ran; and that of
#: products, which alone tell a model: names of other kernels are those of any.
MIN_MATCHED_SHARE, MIN_PRODUCT_SHARE = 0.5, 0.5


class GapExplanation(NamedTuple):
    """A measured step and the causes of its gap to the predicted one, largest first."""

    measured: float  #: s of a step
    predicted: float  #: s, by the schedule event by event
    causes: tuple[Cause, ...]
    ranks: tuple[RankParts, ...]
    expected: tuple[DeviceStep, ...]  #: of each rank

    @property
    def prominent_causes(self) -> tuple[Cause, ...]:
        """Causes that stand out, largest first; empty where most kernels are not those of the model."""
        return tuple(cause for cause in self.causes if cause.named) if self.is_matched else ()

    @property
    def is_matched(self) -> bool:
        """True where the trace is one of the stated step, so that its causes count."""
        return not self.doubt

    @property
    def doubt(self) -> str:
        """Why the trace is none of the stated step, "" where it is."""
        if any(rank.trace.is_forward_only for rank in self.ranks):
            return "the trace is of a forward pass alone, without a backward pass or an optimiser"
        if sum(self.shares.values()) < MIN_MATCHED_SHARE:
            return (
                "most of the time is of kernels that the stated model and mapping do not have; check -w, -s and --set"
            )
        if min(rank.matched.product_share for rank in self.ranks) < MIN_PRODUCT_SHARE:
            return (
                "most products are not those of the stated model, and names of other kernels are those of any model; "
                "check -w and --set, and profile with record_shapes=True"
            )
        rest = sum(abs(cause.seconds) for cause in self.causes if cause.kind == "rest")
        if rest > self.measured:
            return "what no part explains is longer than the step; check -w, -s and --set"
        return ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the trace shows of the stated step besides times."""
        is_fused = any(kernel.label == "flash_attention" for step in self.expected for kernel in step.kernels)
        labels = {kind.label for rank in self.ranks for kind in rank.trace.kinds}
        is_unfused = ATTENTION not in labels and any(
            "softmax" in kind.name.lower() for rank in self.ranks for kind in rank.trace.kinds
        )
        if is_fused and is_unfused:
            return ("attention ran as products and a softmax: flash attention was off, the prediction has it",)
        return ()

    @property
    def shares(self) -> dict[str, float]:
        """Method of matching → share of the kernels' time, mean over the ranks."""
        keys = dict.fromkeys(key for rank in self.ranks for key in rank.matched.shares)
        return {key: sum(rank.matched.shares[key] for rank in self.ranks) / len(self.ranks) for key in keys}

    @property
    def unmatched(self) -> dict[str, float]:
        """Name of a kernel without an operator → s a step on the rank where it takes longest, longest first."""
        seconds_by_kernel: dict[str, float] = {}
        for rank in self.ranks:
            for name, seconds in rank.matched.unmatched.items():
                seconds_by_kernel[name] = max(seconds_by_kernel.get(name, 0.0), seconds)
        return dict(sorted(seconds_by_kernel.items(), key=lambda item: -item[1]))


def explain(design: Design, traces: Sequence[RankTrace], stage: int | None = None) -> GapExplanation:
    """Explain the gap between traces of a step and the prediction of what ran by its causes.

    Args:
        design: what ran, with plain numbers as leaves.
        traces: of one rank or several; several ranks of a stage show which of them the others wait for.
        stage: of the pipeline that all traces are of, where it is not that of their ranks.

    Returns:
        The causes, which with the rest sum to the gap.

    Raises:
        InputError: for a stage that the design does not have.
    """
    step, ledger = schedule_step(design), step_ledger(design)
    ranks_per_stage = max(round(float(design.mapping.tp * design.mapping.cp * design.mapping.dp)), 1)
    last_stage = len(step.plan.orders) - 1
    if stage is not None and not 0 <= stage <= last_stage:
        raise InputError("--set stage", str(stage), f"0 to {last_stage}", "name a stage of the pipeline that ran")
    stages = [min(trace.rank // ranks_per_stage, last_stage) if stage is None else stage for trace in traces]
    expected = {
        s: split_products(device_step(design, s, step, ledger), design, traces[stages.index(s)])
        for s in sorted(set(stages))
    }
    ranks = remove_waits(
        count_tails_as_waits(
            [measured_parts(trace_of_rank, expected[s]) for trace_of_rank, s in zip(traces, stages, strict=True)]
        )
    )
    state = MeasuredState(step, ranks, {stage: predicted_parts(device) for stage, device in expected.items()})
    causes = CauseSearch(state).causes()
    measured = max(trace.step_seconds for trace in traces)
    order = sorted(causes, key=lambda cause: (cause.kind == "rest", not cause.named, -abs(cause.seconds)))
    return GapExplanation(measured, step.total, tuple(order), tuple(ranks), tuple(expected[s] for s in stages))


def step_parts(explanation: GapExplanation) -> list[tuple[str, float, float]]:
    """Return the seconds of compute, exposed messages and gaps of the first rank's step.

    Args:
        explanation: the explained gap.

    Returns:
        (part, measured, predicted) in s a step.
    """
    rank, predicted = explanation.ranks[0], predicted_parts(explanation.expected[0])
    measured_compute, predicted_compute = _compute_seconds(rank), _compute_seconds(predicted)
    exposed = rank.trace.step_seconds - measured_compute - rank.trace.idle
    return [
        ("compute", measured_compute, predicted_compute),
        ("exposed communication", exposed, predicted.trace.step_seconds - predicted_compute - predicted.trace.idle),
        ("gaps", rank.trace.idle, predicted.trace.idle),
    ]


def _compute_seconds(rank: RankParts) -> float:
    """Return the s a step in which some kernel other than a message runs on a rank."""
    is_compute = rank.trace.labels != MESSAGE_CLASS
    return union_length(rank.trace.start[is_compute], rank.trace.end[is_compute]) / rank.trace.n_steps


def as_dict(explanation: GapExplanation) -> dict[str, Any]:
    """Return the explanation as a JSON-ready dictionary; ``causes`` is empty where the trace is of another step.

    Args:
        explanation: the explained gap.

    Returns:
        Times in s, shares as fractions.
    """
    return {
        "measured": explanation.measured,
        "predicted": explanation.predicted,
        "gap": explanation.measured - explanation.predicted,
        "matched": explanation.shares,
        "unmatched": explanation.unmatched,
        "causes": [cause._asdict() for cause in explanation.causes] if explanation.is_matched else [],
        "doubt": explanation.doubt,
        "ranks": [rank.trace.rank for rank in explanation.ranks],
    }
