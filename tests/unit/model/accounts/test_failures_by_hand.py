"""Failures and checkpoints in numbers, worked out by hand in comments."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dse.model import lay_out, training_work
from dse.model.accounts.failures import (
    CheckpointTimes,
    FailureRates,
    best_interval,
    checkpoint_times,
    chosen_checkpoint,
    device_bytes,
    failure_rates,
    host_copy,
    lost_time,
    relative_slowdown,
    replica_reliability,
    run_with_failures,
    spare_wait,
)
from dse.model.steps.training import StepTime
from dse.types import Checkpoint, Reliability
from tests.designs import SCALE_OUT, SYSTEM, make_design
from tests.oracles.links import parameters

RELIABILITY = Reliability(
    device_mtbf=1e8,
    link_mtbf=4e8,
    node_mtbf=5e7,
    software_mtbf=2e8,
    node_devices=8.0,
    detection_time=60.0,
    restart_time=100.0,
    spares=0.0,
    repair_time=1e4,
    storage_bandwidth=1e12,
    device_storage_bandwidth=5e9,
    checkpoint_overhead=1.0,
    copy_interference=0.25,
    slow_nodes=0.1,
    straggler_slowdown=0.5,
    congestion=2.0,
)

#: A step of 5 s, of which the optimiser takes 1 s and messages 3 s.
STEP = StepTime(
    **dict.fromkeys(StepTime._fields, 0.0)
    | {
        "forward": 1.0,
        "tensor_parallel": 0.5,
        "context_parallel": 0.5,
        "pipeline_parallel": 0.75,
        "data_parallel": 1.25,
        "optimizer": 1.0,
    }
)


def design(**mapping):
    """Hosts of 50 GB/s a device, a network of 25 GB/s."""
    host = dataclasses.replace(SYSTEM.host, bandwidth=50e9)
    out = dataclasses.replace(SCALE_OUT, bandwidth=25e9)
    system = dataclasses.replace(SYSTEM, host=host, scale_out=out, reliability=RELIABILITY)
    return make_design(system=system, **mapping)


def test_rates_of_failures():
    """A device: 1e-8 by itself, 0.25e-8 its link, an eighth of 2e-8 its node, 0.5e-8 software; of 1,000 devices."""
    assert tuple(map(float, failure_rates(RELIABILITY, 1000.0))) == pytest.approx((1.5e-5, 2e-5))


@pytest.mark.parametrize(("size", "write"), [(10e12, 20.0), (40e12, 40.0)])
def test_seconds_of_a_checkpoint(size, write):
    """100 GB a device: 2 s to the host, 20 to storage or, together, 1 s a terabyte; 4 s to another host.

    Passes take 4 s of a step, in which copies hide and slow them by a quarter: 0.5 s of 2 s. Copies and parities of 6 s
    hide for 4 s and are waited for 2 s: 3 s.
    """
    found = checkpoint_times(design(), 100e9, STEP, size)
    load = 2.0 + write
    expected = {
        Checkpoint.synchronous: (1.0 + load, 0.0, 5.0, load),
        Checkpoint.asynchronous: (1.5, 1.0 + load - 1.5, 1.0 + load, load),
        Checkpoint.in_memory: (3.0, 3.0, 6.0, 6.0),
    }
    for kind, seconds in expected.items():
        assert tuple(map(float, found[kind])) == pytest.approx(seconds), kind


#: Three failures of four take a node; one in 1e4 s.
RATES = FailureRates(7.5e-5, 1e-4)


def lost(saving, rates=RATES, step=1.0, **values):
    return lost_time(dataclasses.replace(RELIABILITY, **values), CheckpointTimes(*saving), rates, step)


def test_time_that_failures_take():
    """1,000 s of training and a stall of 20 s, at one failure in 1e4 s: 1020 / 1e4 = 0.102 a stretch.

    Failures in a second of training: (e^0.102 - 1) / 1000 = 1.0738e-4. A restart is 60 + 100 + 40 s, and 50 s until the
    checkpoint is safe: it fails 0.025 times, so there are (e^0.025 - 1) / 0.025 = 1.0126 of them for a failure. Three
    failures of four take a node, for which the job waits 1e4 s without spares, once it is restarted: e^0.025.
    """
    found = lost((20.0, 50.0, 0.0, 40.0), checkpoint_every=1000.0)
    failures, restarts = math.expm1(0.102) / 1000.0, math.expm1(0.102) / 1000.0 * math.expm1(0.025) / 0.025
    assert float(found.interval) == 1000.0
    assert float(found.checkpointing) == pytest.approx(0.02)
    assert float(found.lost_work) == pytest.approx(10.0 * math.expm1(0.102) - 1.02 + restarts * 50.0, rel=1e-4)
    assert float(found.detection) == pytest.approx(restarts * 60.0, rel=1e-5)
    assert float(found.restart) == pytest.approx(restarts * 140.0, rel=1e-5)
    assert float(found.repair) == pytest.approx(failures * math.exp(0.025) * 0.75e4, rel=1e-5)
    assert float(found.total) == pytest.approx(sum(map(float, found[:5])))


def test_the_sum_is_that_of_daly():
    """Equation 13: e^(R / M) (e^((tau + delta) / M) - 1) M / tau, of 1,000 s with 20, 200 s to restart, M of 1e4."""
    found = lost((20.0, 0.0, 0.0, 40.0), checkpoint_every=1000.0, spares=1e9)
    assert 1.0 + float(found.total) == pytest.approx(math.exp(0.02) * math.expm1(0.102) * 10.0, rel=1e-5)


@pytest.mark.parametrize(("stall", "interval"), [(0.5, 0.6983), (0.01, 0.1348), (5.0, 0.9975)])
def test_the_best_interval(stall, interval):
    """Where (e^(t + d) - 1) / t is least 1 - t = e^-(t + d): 1 - 0.6983 = e^-1.1983, in mean times between failures."""
    assert 1.0 - interval == pytest.approx(math.exp(-(interval + stall)), rel=0.02)
    assert float(best_interval(3600.0 * stall, 1.0 / 3600.0)) == pytest.approx(3600.0 * interval, rel=0.02)


@pytest.mark.parametrize(("mapping", "weights", "optimizer"), [({}, 2.0, 12.0), (dict(dp=4, zero_stage=1), 2.0, 3.0)])
def test_bytes_of_a_device_in_a_checkpoint(mapping, weights, optimizer):
    """A weight in bf16 and, shared by four replicas, 12 bytes of fp32 weights and two moments; all on the host, but for
    synchronous checkpoints.
    """
    one = design(**mapping)
    layout = lay_out(one)
    work = training_work(one, layout)
    held = parameters(one) * (weights + optimizer)
    assert float(device_bytes(layout, work)) == pytest.approx(held, rel=1e-3)
    assert float(host_copy(one, layout, work)) == pytest.approx(held, rel=1e-3)
    waiting = dataclasses.replace(RELIABILITY, checkpoint=float(Checkpoint.synchronous))
    one = dataclasses.replace(one, system=dataclasses.replace(one.system, reliability=waiting))
    assert float(host_copy(one, layout, work)) == 0.0


def test_intervals():
    """Young's is sqrt(2 x 1 s x 1e4 s) = 141 s; a checkpoint of 500 s, 1 s of them a stall, ends first.

    A stated interval of 100 s waits 400 s for it; one below a step is a step.
    """
    assert float(lost((1.0, 0.0, 0.0, 40.0)).interval) == pytest.approx(141.4, rel=0.02)
    assert float(lost((1.0, 0.0, 500.0, 40.0)).interval) == pytest.approx(499.0)
    short = lost((1.0, 0.0, 500.0, 40.0), checkpoint_every=100.0)
    assert (float(short.interval), float(short.checkpointing)) == pytest.approx((100.0, 4.0))
    assert float(lost((1.0, 0.0, 0.0, 40.0), checkpoint_every=10.0, step=30.0).interval) == 30.0


def test_a_repair_is_waited_for():
    """One spare, 2e-6 failures/s and 1e4 s a repair: 0.02 are in repair, so that 0.02 / 1.02 of failures find none.

    Two nodes are in repair then, of which the first returns after half of the time.
    """
    wait = float(spare_wait(dataclasses.replace(RELIABILITY, spares=1.0), 2e-6))
    assert wait == pytest.approx(0.02 / 1.02 * 0.5e4, rel=0.01)
    assert float(spare_wait(RELIABILITY, 2e-6)) == pytest.approx(1e4)


def test_an_asynchronous_checkpoint_waits_where_that_loses_less():
    """At one failure an hour stalls of 20 s lose less than 1e4 s between two checkpoints that are written behind."""
    waiting, behind = CheckpointTimes(20.0, 0.0, 1.0, 20.0), CheckpointTimes(1.0, 9999.0, 1e4, 20.0)
    by_kind = {Checkpoint.synchronous: waiting, Checkpoint.asynchronous: behind, Checkpoint.in_memory: behind}
    rates = FailureRates(1.0 / 3600.0, 1.0 / 3600.0)
    for kind, stall in ((Checkpoint.asynchronous, 20.0), (Checkpoint.in_memory, 1.0), (Checkpoint.synchronous, 20.0)):
        saving, _ = chosen_checkpoint(dataclasses.replace(RELIABILITY, checkpoint=float(kind)), by_kind, rates, 1.0)
        assert float(saving.stall) == stall, kind


def test_slow_nodes_and_congestion():
    """Of two nodes one is slow with 1 - 0.9^2 = 0.19: half of the 2 s that are no messages take longer.

    Context, pipeline and data parallelism: 2.5 s of messages, twice as much more: 5 s. Of a step of 5 s.
    """
    assert float(relative_slowdown(RELIABILITY, 16.0, STEP)) == pytest.approx(
        (0.5 * 0.19 * 2.0 + 2.0 * 2.5) / 5.0, rel=1e-5
    )


def test_a_run():
    """1,000 steps of 64 x 2,048 tokens and 5 s, a checkpoint every 100 s of 14 bytes a weight.

    Slow nodes and congestion add 1.02 of it: of one node 0.1 is slow, 0.5 x 0.1 x 2 s, and 5 s of messages. Failures
    take their share of both. A checkpoint of 100 GB stalls and is exposed as above.
    """
    one = design()
    reliability = dataclasses.replace(RELIABILITY, checkpoint_every=100.0, checkpoint=float(Checkpoint.in_memory))
    one = dataclasses.replace(
        one,
        system=dataclasses.replace(one.system, reliability=reliability),
        workload=dataclasses.replace(one.workload, run_tokens=64.0 * 2048.0 * 1000.0),
    )
    layout = lay_out(one)
    work = training_work(one, layout)
    found = {}
    for name, value in run_with_failures(one, layout, work, STEP).items():
        total, parts = value if isinstance(value, tuple) else (value, {})
        found |= {name: float(total)} | {f"{name}_{part}": float(seconds) for part, seconds in parts.items()}
    assert (found["tokens_needed"], found["run_time_with_failures_training"]) == pytest.approx((131072e3, 5000.0))
    assert found["run_time_with_failures_stragglers"] == pytest.approx(5000.0 * 1.02)
    size = 14.0 * parameters(one)
    assert found["checkpoint_bytes"] == pytest.approx(size, rel=1e-3)
    assert found["time_between_failures"] == pytest.approx(1.0 / 2e-8)
    # Some 50 GB: copy and parity hide for a quarter of their time, and are exposed for the rest.
    copy = size / 50e9 + size / 25e9
    assert copy < 4.0
    assert found["checkpoint_time"] == pytest.approx(copy, rel=1e-3)
    assert found["checkpoint_stall"] == pytest.approx(0.25 * copy, rel=1e-3)
    assert found["checkpoint_interval"] == 100.0
    assert found["run_time_with_failures_checkpointing"] == pytest.approx(10100.0 * 0.25 * copy / 100.0, rel=1e-3)
    rates = FailureRates(1.5e-8, 2e-8)
    saving = (0.25 * copy, 0.75 * copy, copy, copy)
    expected = lost(saving, rates, 5.0, checkpoint_every=100.0)
    for part in ("lost_work", "detection", "restart", "repair"):
        share = float(getattr(expected, part))
        assert found[f"run_time_with_failures_{part}"] == pytest.approx(10100.0 * share, rel=1e-3), part
    assert found["run_time_with_failures"] == pytest.approx(10100.0 * (1.0 + float(expected.total)), rel=1e-4)
    assert found["goodput_fraction"] == pytest.approx(5000.0 / found["run_time_with_failures"])
    # 6 FLOPs a weight and token but for the positions that are looked up; 12 of attention a pair of tokens and column.
    weights = parameters(one) - 2048.0 * 4096.0
    attention = 12.0 * 4096.0 * 2048.0 * 16.0
    assert found["run_flops"] == pytest.approx(131072e3 * (6.0 * weights + attention), rel=1e-3)


def test_availability_of_a_replica():
    """Two of four ranks share experts: 2 x 3 x 2 = 12 devices, 2.4e-7 failures/s, 1.8e-7 of hardware.

    Down for 60 + 100 s, 2 s to load 10 GB, and for a node, in three cases of four: both replicas have 3.6e-3 in repair,
    so that 3.6e-3 / 1.0036 of failures find the spare taken, for half of 1e4 s.
    """
    one = design(tp=2, pp=3, dp=4)
    reliability = dataclasses.replace(RELIABILITY, spares=1.0)
    one = dataclasses.replace(one, system=dataclasses.replace(one.system, reliability=reliability))
    found = replica_reliability(one, 10e9, 2.0)
    assert float(found["time_between_failures"]) == pytest.approx(1.0 / 2.4e-7)
    down = 162.0 + 0.75 * 3.6e-3 / 1.0036 * 0.5e4
    # In single precision 1 - 4e-5 has three digits of the difference.
    assert 1.0 - float(found["availability"]) == pytest.approx(2.4e-7 * down, rel=2e-2)
