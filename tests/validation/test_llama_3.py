"""Llama 3 405B as it was trained: 126 layers on 16 stages (Llama team 2024, arXiv:2407.21783, section 3.3.2, table 4).

Meta's own stack is not in the catalogue: the one of Megatron-Core of that year stands for it, without overlap of tp
messages. One layer a chunk, the first of the embedding and the last of the loss alone, no recompute, split optimiser.
"""

from __future__ import annotations

import pytest

import dse
from dse.types import Infeasible
from tests.programs import metrics_of

#: Devices, tokens of a sequence, cp, dp, sequences a step → published MFU, tolerance of ours, and what of it runs here.
ROWS = [
    # With 32 micro-batches our interleaved schedule holds 141 chunks where Meta's, which takes fewer than 16
    # micro-batches in a row, fits in 80 GB.
    (8192, 8192, 1, 64, 2048, 0.43, 0.05, Infeasible.memory),
    (16384, 8192, 1, 128, 2048, 0.41, 0.05, 0),
    (16384, 131072, 16, 8, 128, 0.38, 0.10, 0),
]


@pytest.mark.parametrize(("devices", "tokens", "cp", "dp", "batch", "published", "tolerance", "reason"), ROWS)
def test_published_mapping_runs_at_the_published_utilisation(
    devices, tokens, cp, dp, batch, published, tolerance, reason
):
    design = dse.design(
        "llama-3-1-405b", "eos", "megatron-core", n_devices=devices, tp=8, cp=cp, pp=16, dp=dp, virtual_stages=8,
        micro_batch=1, recompute="none", zero_stage=1, sequence_parallel=1, overlap_dp=1, overlap_tp=0,
        placement="tp_cp_pp_dp",
        **{"workload.seq_len": tokens, "workload.window": tokens, "workload.global_batch": batch},
    )  # fmt: skip
    metrics = metrics_of(design)
    assert int(metrics.infeasible_reason) == reason
    assert float(metrics.peak_memory) <= 1.1 * float(design.system.accelerator.memory.capacity)
    assert float(metrics.mfu) == pytest.approx(published, rel=tolerance)
