"""Combined 1F1B of Megatron-Core, pass by pass, against its closed form."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import pytest

from dse.model.parallel.pipeline import paired_share


def slots_of(rank: int, p: int, v: int, n: int) -> list[tuple[tuple[str, int, int], ...]]:
    """Passes (kind, micro-batch, stage of the model) of a rank in order, those of one slot in parallel.

    ``get_pp_rank_microbatches`` and ``get_schedule_table`` of megatron/core/pipeline_parallel/schedules.py: forwards of
    the warm-up, pairs, and as many backwards as there were forwards; p micro-batches on a chunk, then the next one.
    """
    groups = [range(first, min(first + p, n)) for first in range(0, n, p)]
    forwards = [("forward", m, c * p + rank) for group in groups for c in range(v) for m in group]
    backwards = [("backward", m, c * p + rank) for group in groups for c in reversed(range(v)) for m in group]
    warm_up = min((p - rank - 1) * 2 + (v - 1) * p + 1, n * v)
    pairs = zip(forwards[warm_up:], backwards, strict=False)
    return [*((f,) for f in forwards[:warm_up]), *pairs, *((b,) for b in backwards[n * v - warm_up :])]


def makespan(p: int, v: int, n: int, seconds: dict[tuple[str, ...], float]) -> float:
    """Seconds of a step whose slots take ``seconds``: of a forward or a backward chunk alone, and of both."""
    slots = [slots_of(rank, p, v, n) for rank in range(p)]
    places = {task: (rank, i) for rank, row in enumerate(slots) for i, slot in enumerate(row) for task in slot}

    def needs(kind: str, micro_batch: int, stage: int) -> list[tuple[str, int, int]]:
        if kind == "forward":
            return [("forward", micro_batch, stage - 1)] if stage else []
        return [("backward", micro_batch, stage + 1) if stage < p * v - 1 else ("forward", micro_batch, stage)]

    @functools.cache
    def end(rank: int, i: int) -> float:
        slot = slots[rank][i]
        before = [places[task] for one in slot for task in needs(*one)] + ([(rank, i - 1)] if i else [])
        return max((end(*place) for place in before), default=0.0) + seconds[tuple(kind for kind, *_ in slot)]

    return max(end(rank, len(slots[rank]) - 1) for rank in range(p))


@pytest.mark.parametrize(
    ("p", "v", "n"), [(1, 1, 1), (1, 1, 4), (2, 2, 4), (4, 2, 4), (4, 2, 8), (4, 4, 16), (8, 2, 16), (8, 4, 24)]
)
def test_the_closed_form_is_that_of_the_schedule(p, v, n):
    """Chunks of 1 s forward and 2 s backward, 2.5 s as a pair: ``n v + p - 1`` of the mean pass.

    By hand for p = v = 2, n = 4: the last rank starts after 1 s, has 3 forwards alone, 5 pairs, 3 backwards alone, and
    the first rank ends 2 s later: 1 + 3 + 5 x 2.5 + 6 + 2 = 24.5 s, 9 x 2.5 s and 4 times the 0.5 s that a pair saves.
    """
    step = makespan(p, v, n, {("forward",): 1.0, ("backward",): 2.0, ("forward", "backward"): 2.5})
    paired = float(paired_share(SimpleNamespace(pp=float(p), virtual_stages=float(v)), float(n)))
    assert step == pytest.approx((n * v + p - 1) * (3.0 - 0.5 * paired), rel=1e-6)
    if (p, v, n) == (2, 2, 4):
        assert step == 24.5 and paired == pytest.approx(5 / 9)
