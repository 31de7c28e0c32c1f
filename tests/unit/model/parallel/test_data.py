"""Messages between replicas of an interleaved pipeline whose chunks are exchanged one by one."""

from __future__ import annotations

import pytest

from dse.designs import replace
from tests.designs import make_design
from tests.programs import metrics_of

PIPELINE = dict(tp=2, pp=4, dp=16, zero_stage=1, overlap_dp=1)


def exposed(by_chunk, bandwidth=2e9, **mapping):
    """Seconds of data-parallel messages that nothing hides; None leaves the leaf away."""
    design = replace(make_design(**{**PIPELINE, **mapping}), {"system.scale_out.bandwidth": bandwidth})
    if by_chunk is not None:
        design = replace(design, {"software.dp_by_chunk": by_chunk})
    return float(metrics_of(design).step_time_data_parallel)


@pytest.mark.parametrize("virtual_stages", [1, 2, 4])
@pytest.mark.parametrize("zero_stage", [0, 1, 3])
@pytest.mark.parametrize("bandwidth", [2e8, 2e9, 2e10])
def test_all_chunks_but_one_may_hide_behind_others(virtual_stages, zero_stage, bandwidth):
    """Never more is exposed than of the whole stage, nor less than one chunk's share of that."""
    mapping = dict(virtual_stages=virtual_stages, zero_stage=zero_stage, bandwidth=bandwidth)
    absent, whole, chunks = (exposed(by_chunk, **mapping) for by_chunk in (None, 0.0, 1.0))
    assert whole == pytest.approx(absent, rel=1e-6)
    assert whole / virtual_stages * (1.0 - 1e-5) <= chunks <= whole * (1.0 + 1e-5)
    if virtual_stages == 1:
        assert chunks == pytest.approx(whole, rel=1e-6)


def test_what_hides_is_more_where_links_are_slow_but_not_too_slow():
    """A stage works on pp micro-batches of a chunk before the next, so messages of their length are hidden."""
    gained = [
        exposed(0.0, bandwidth, virtual_stages=4) - exposed(1.0, bandwidth, virtual_stages=4)
        for bandwidth in (2e8, 2e9, 2e11)
    ]
    assert gained[1] > gained[2] >= 0.0 and gained[0] > 0.0
    assert exposed(1.0, virtual_stages=4, overlap_dp=0) == exposed(0.0, virtual_stages=4, overlap_dp=0)
