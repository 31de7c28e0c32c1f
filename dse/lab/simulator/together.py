"""Ranks that step together, as their tokens meet in the experts: a step of one is as long as that of the slowest."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dse.lab.simulator.scheduler import RankResult, Scheduler, StepWork


def run_together(ranks: Sequence[Scheduler], shared: float) -> list[RankResult]:
    """Serve the requests of ranks that step together.

    A step takes ``(1 - s) max + s mean`` of the ranks' own steps with a share ``s`` of work in the experts, which all
    ranks do; of ranks without work it is nothing but waiting.

    Args:
        ranks: each with its requests.
        shared: share of a step's work in the experts.

    Returns:
        Their results, in their order.
    """
    while not all(rank.is_done for rank in ranks):
        due = [(rank, work) for rank in ranks if not rank.is_done and (work := _planned(rank)) is not None]
        if due:
            _step(due, len(ranks), shared)
            now = max(rank.now for rank, _ in due)
        else:
            now = min(rank.next_event() for rank in ranks if not rank.is_done)
        for rank in ranks:
            rank.now = now
    return [rank.result() for rank in ranks]


def _planned(rank: Scheduler) -> StepWork | None:
    """The next work of a rank, after preemptions."""
    while (work := rank.plan()) is not None and not work.steps:
        pass
    return work


def _step(due: Sequence[tuple[Scheduler, StepWork]], ranks: int, shared: float) -> None:
    """Steps that all ranks with work do at once, up to the next event of any."""
    works = [work for _, work in due]
    count = min(work.steps for work in works)
    own = [work.seconds(count) for work in works]
    decode = min(own) if any(work.pieces for work in works) else 0.0
    slowest, idle = max(own), ranks - len(own)
    mean = (math.fsum(own) + idle * decode) / ranks if decode else math.fsum(own) / len(own)
    seconds = (1.0 - shared) * slowest + shared * mean
    for rank, work in due:
        rank.apply(work, count, seconds)
