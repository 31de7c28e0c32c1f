"""Laws of the wait for the slowest replica: where it is 0, how it grows, and what it leaves as it is."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse.designs import replace
from dse.doors.evaluation import evaluate
from dse.types import Design, ExpertKernels, ExpertMapping, Experts, Metrics
from dse.views.trace.perfetto import events
from dse.views.trace.step import schedule_step
from tests.designs import SOFTWARE, WORKLOAD, designs, make_design
from tests.programs import metrics_of, slopes_by_numpy

JITTER = "software.jitter"
SIGMA = st.floats(0.01, 0.5)


def spread(design: Design, dp: float, n: float) -> Design:
    """The design on ``dp`` replicas, each with ``n`` micro-batches."""
    m = design.mapping
    batch, devices = dp * n * m.micro_batch, m.tp * m.cp * m.pp * dp
    changes = {"mapping.dp": dp, "mapping.zero_stage": min(m.zero_stage, 1.0), "mapping.dp_replicate": 1.0}
    return replace(design, changes | {"workload.global_batch": batch, "system.n_devices": devices})


def wait(design: Design, sigma: float) -> float:
    """Its seconds per step."""
    return float(metrics_of(replace(design, {JITTER: sigma})).step_time_synchronization)


@given(design=designs())
@settings(max_examples=15, deadline=None)
def test_without_jitter_nothing_changes(design):
    absent, none = metrics_of(design), metrics_of(replace(design, {JITTER: 0.0}))
    for name in Metrics.__dataclass_fields__:
        assert float(getattr(none, name)) == pytest.approx(float(getattr(absent, name)), rel=1e-6), name
    assert float(none.step_time_synchronization) == 0.0


@given(design=designs(), sigma=SIGMA)
@settings(max_examples=15, deadline=None)
def test_it_adds_to_the_step_and_to_no_other_part(design, sigma):
    before, after = metrics_of(design), metrics_of(replace(design, {JITTER: sigma}))
    for name in (name for name in Metrics.__dataclass_fields__ if name.startswith("step_time_")):
        if name != "step_time_synchronization":
            assert float(getattr(after, name)) == pytest.approx(float(getattr(before, name)), rel=1e-5, abs=1e-9)
    added = float(after.step_time - before.step_time)
    assert added == pytest.approx(float(after.step_time_synchronization), rel=1e-3, abs=1e-6 * float(after.step_time))
    assert float(after.run_time_with_failures) >= float(before.run_time_with_failures) * (1 - 1e-6)


@given(design=designs(), sigma=SIGMA, n=st.sampled_from([8.0, 16.0, 32.0]), dp=st.integers(1, 512))
@settings(max_examples=15, deadline=None)
def test_more_replicas_of_as_many_micro_batches_never_wait_less(design, sigma, n, dp):
    few, many = (spread(design, float(count), n) for count in (dp, 2 * dp))
    assert wait(few, sigma) < wait(many, sigma)
    step = [float(metrics_of(replace(one, {JITTER: sigma})).step_time) for one in (few, many)]
    plain = [float(metrics_of(one).step_time) for one in (few, many)]
    assert step[1] - step[0] >= plain[1] - plain[0] - 1e-5 * plain[1]
    assert wait(spread(design, 1.0, n), sigma) == 0.0


@given(design=designs(), sigma=SIGMA, dp=st.sampled_from([2.0, 64.0, 1000.0]))
@settings(max_examples=15, deadline=None)
def test_its_share_falls_with_the_root_of_the_micro_batches(design, sigma, dp):
    """Four times as many wait twice as long for four times the passes."""
    once, more = (wait(spread(design, dp, n), sigma) for n in (64.0, 256.0))
    assert more == pytest.approx(2.0 * once, rel=0.02)  # exchanges of experts pair a little more
    assert wait(spread(design, dp, 64.0), 2.0 * sigma) == pytest.approx(2.0 * once, rel=1e-5)


@pytest.mark.parametrize("dp", [1.0, 2.0, 64.0])
def test_its_slopes_are_finite(dp):
    """Those by the counts of replicas and by jitter, at one replica too."""
    design = replace(spread(make_design(zero_stage=1), dp, 16.0), {JITTER: 0.1})
    seconds, slopes = slopes_by_numpy(lambda one: evaluate(one).step_time_synchronization)(design)
    assert np.all(np.isfinite([float(slope) for slope in jax.tree.leaves(slopes)]))
    assert float(slopes.software.jitter) == pytest.approx(float(seconds) / 0.1, rel=1e-4, abs=1e-9)
    assert float(slopes.mapping.dp) != 0.0


def test_ranks_that_exchange_experts_are_one_replica():
    """Of 64 devices of a stage, in exchanges of 1 to 64, those of more ranks have fewer replicas that drift apart."""
    workload = dataclasses.replace(WORKLOAD, experts=Experts(n_experts=64.0, top_k=2.0, expert_ffn=1024.0))
    software = dataclasses.replace(SOFTWARE, experts=ExpertKernels())
    plain = make_design(workload, software=software, dp=64, zero_stage=1)
    shares = []
    for ep in (1.0, 2.0, 16.0, 64.0):
        mapping = dataclasses.replace(plain.mapping, experts=ExpertMapping(ep=ep))
        metrics = metrics_of(replace(dataclasses.replace(plain, mapping=mapping), {JITTER: 0.1}))
        shares.append(float(metrics.step_time_synchronization / metrics.step_time))
    assert sorted(shares, reverse=True) == shares and shares[-1] == 0.0 < shares[-2]


def test_the_schedule_event_by_event_has_it_after_the_last_pass():
    design = replace(make_design(pp=2, dp=8, zero_stage=1), {JITTER: 0.2})
    step, metrics = schedule_step(design), metrics_of(design)
    waited = float(metrics.step_time_synchronization)
    assert waited > 0.0 and step.synchronization == pytest.approx(waited, rel=1e-5)
    plain = schedule_step(replace(design, {JITTER: 0.0}))
    assert step.total - plain.total == pytest.approx(waited, rel=1e-4)
    assert [e for e in events(step) if e["name"] == "wait for other replicas"]
    assert not [e for e in events(plain) if e["name"] == "wait for other replicas"]
