"""Llama 3 405B as it was trained: 126 layers on 16 stages (Llama team 2024, section 3.3.2, table 4)."""

from __future__ import annotations

import itertools

import pytest

from docs.make.accuracy.decisions import LLAMA, llama
from dse.designs import replace
from dse.types import Infeasible
from tests.programs import metrics_of

#: Tolerance of our MFU, and what keeps the run from fitting here.
OURS = [
    # With 32 micro-batches our interleaved schedule holds 141 chunks where Meta's, which takes fewer than 16
    # micro-batches in a row, fits in 80 GB.
    (0.05, Infeasible.memory),
    (0.05, 0),
    (0.10, 0),
]


@pytest.mark.parametrize(("run", "tolerance", "reason"), [(run, *ours) for run, ours in zip(LLAMA, OURS, strict=True)])
def test_published_mapping_runs_at_the_published_utilisation(run, tolerance, reason):
    design = llama(run)
    metrics = metrics_of(design)
    assert int(metrics.infeasible_reason) == reason
    assert float(metrics.peak_memory) <= 1.1 * float(design.system.accelerator.memory.capacity)
    assert float(metrics.mfu) == pytest.approx(run.mfu, rel=tolerance)


def test_the_mapping_of_long_sequences_is_near_the_best():
    """Of the degrees and chunks that the run could have chosen, what fits is at most 5 % faster."""
    design = llama(LLAMA[2])
    found = []
    for tp, cp, pp, chunks in itertools.product((4, 8), (4, 8, 16, 32, 64), (4, 8, 16, 32), (1, 2, 4, 8, 16)):
        dp = LLAMA[2].devices / (tp * cp * pp)
        mapping = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "virtual_stages": chunks}
        metrics = metrics_of(replace(design, {f"mapping.{name}": float(degree) for name, degree in mapping.items()}))
        found += [float(metrics.mfu)] if metrics.feasible else []
    assert len(found) > 20 and float(metrics_of(design).mfu) >= 0.95 * max(found)
