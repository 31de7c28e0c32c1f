"""Messages between replicas of an interleaved pipeline whose chunks are exchanged one by one, and waits of replicas."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dse.designs import replace
from dse.model import lay_out
from dse.model.parallel.data import expected_maximum, independent_replicas, synchronization_time
from dse.types import ExpertKernels, ExpertMapping, Experts
from tests.designs import SOFTWARE, WORKLOAD, make_design
from tests.programs import metrics_of

MIXTURE = dataclasses.replace(WORKLOAD, experts=Experts(n_experts=64.0, top_k=2.0, expert_ffn=1024.0))
KERNELS = dataclasses.replace(SOFTWARE, experts=ExpertKernels())
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


@pytest.mark.parametrize("count", [1, 2, 3, 8, 32, 128, 1024, 10_000, 131_072])
def test_the_largest_of_normal_numbers(count):
    """Against the integral ``count int x phi(x) Phi(x)^(count - 1) dx``: 0, 0.564, 0.846, 1.424 … 3.852, 4.443."""
    x = np.linspace(-10.0, 10.0, 20_001)
    share = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in x])
    density = count * np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi) * share ** (count - 1)
    assert float(expected_maximum(float(count))) == pytest.approx(np.trapezoid(x * density, x), rel=0.023, abs=1e-7)


def test_the_wait_for_the_slowest_replica_by_hand():
    """Of 128 replicas the slowest is 2.59 deviations late: of 16 micro-batches of 0.5 s 4 x 0.1 x 0.5 s, 0.52 s in all.

    By the closed form ``sqrt(2.847 ln 128 + 2.0217) - 1.4219 = sqrt(13.8136 + 2.0217) - 1.4219 = 2.5574``.
    """
    design = make_design(dp=128, micro_batch=1, zero_stage=1)
    design = replace(design, {"workload.global_batch": 16.0 * 128.0, "software.jitter": 0.1})
    wait = float(synchronization_time(design, lay_out(design), 0.5))
    assert wait == pytest.approx(4.0 * 0.1 * 0.5 * 2.5574, rel=1e-4)
    assert wait == pytest.approx(4.0 * 0.1 * 0.5 * 2.5946, rel=0.02)


@pytest.mark.parametrize(
    ("mapping", "experts", "expected"),
    [
        (dict(tp=4, pp=2, dp=16, cp=2), None, 16.0),  # tp, cp and pp wait for each other in every micro-batch
        (dict(tp=4, dp=16, zero_stage=1), None, 16.0),
        (dict(dp=16, zero_stage=3), None, 1.0),  # gathers in every layer
        (dict(dp=16, zero_stage=2, dp_replicate=4), None, 4.0),
        (dict(dp=16, pp=2, zero_stage=2), None, 16.0),  # a pipeline scatters once a step, as ZeRO 1
        (dict(tp=2, dp=32), (16.0, 1.0), 4.0),  # 64 devices of a stage in exchanges of 16
        (dict(tp=2, dp=32), (64.0, 1.0), 1.0),
        (dict(tp=2, dp=32), (4.0, 4.0), 4.0),
        (dict(tp=8, dp=8), (4.0, 1.0), 8.0),  # exchanges within tp: replicas by dp
    ],
)
def test_replicas_that_do_not_wait_within_a_step(mapping, experts, expected):
    design = make_design(MIXTURE if experts else WORKLOAD, software=KERNELS if experts else SOFTWARE, **mapping)
    if experts:
        ep, etp = experts
        mapped = dataclasses.replace(design.mapping, experts=ExpertMapping(ep=ep, etp=etp))
        design = dataclasses.replace(design, mapping=mapped)
    assert float(independent_replicas(design, lay_out(design))) == expected
