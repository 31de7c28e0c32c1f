"""Laws of ZeRO 3 over parts of the replicas: ZeRO++, and weights, gradients and optimiser split over three levels."""

import dataclasses

import pytest

from dse.doors.evaluation import evaluate
from dse.model import lay_out, training_work
from dse.model.machine.operator_energy import phase_energy
from dse.model.work import replicas
from dse.model.work.state import state_bytes
from dse.model.work.training import step_phase
from dse.types import Infeasible, Scope, Sharding
from tests.designs import SCALE_OUT, SOFTWARE, SYSTEM, WORKLOAD, make_design
from tests.programs import metrics_of

#: FSDP on 16 nodes of eight behind slow links.
SLOW = dataclasses.replace(SYSTEM, scale_out=dataclasses.replace(SCALE_OUT, bandwidth=3e9))
STACK = dataclasses.replace(SOFTWARE, attention=1.0, gradient_message_bytes=2.0)
LAYERS = dataclasses.replace(WORKLOAD, tied_embeddings=0.0, learned_positions=0.0, dropout=0.0, global_batch=256.0)


def sharded(zero_stage=3, **parts):
    """A design of 128 replicas, split over these parts."""
    design = make_design(LAYERS, SLOW, STACK, dp=128, zero_stage=zero_stage, overlap_dp=1)
    return dataclasses.replace(design, mapping=dataclasses.replace(design.mapping, sharding=Sharding(**parts)))


def plain(zero_stage=3):
    """The same split over all replicas."""
    return make_design(LAYERS, SLOW, STACK, dp=128, zero_stage=zero_stage, overlap_dp=1)


@pytest.mark.parametrize("zero_stage", [0, 1, 2, 3])
def test_parts_of_all_replicas_are_none(zero_stage):
    """Whatever the stage; and below ZeRO 3 parts change nothing."""
    expected = metrics_of(plain(zero_stage))
    for parts in ({}, {"weights_over": 8.0, "gradients_over": 8.0, "secondary": 1.0} if zero_stage < 3 else {}):
        found = metrics_of(sharded(zero_stage, **parts))
        for name in ("step_time", "peak_memory", "energy_per_step"):
            assert float(getattr(found, name)) == pytest.approx(float(getattr(expected, name)), rel=1e-6)


def across_nodes(design) -> float:
    """Bytes of a micro-batch's weights and gradients that a node's devices send to others, over 16-bit weights."""
    work = training_work(design, lay_out(design))
    sent = 0.0
    for message in work.messages:
        domains = message.group.domains
        if message.scope is Scope.weights and float(message.times) > 1.0:  # every micro-batch
            sent += float(message.size * (domains - 1.0) / domains)
    return sent / (2.0 * float(work.parameters))


def test_zero_plus_plus_sends_a_quarter():
    """3 M of 16-bit elements between nodes become 0.75 M (Wang et al. 2023, table 1)."""
    all_of_it = across_nodes(plain())
    less = across_nodes(sharded(weights_over=8.0, secondary=1.0, gathered_bytes=1.0, scattered_bytes=0.5))
    assert all_of_it == pytest.approx(3.0 * 15.0 / 16.0, rel=1e-6)
    assert less == pytest.approx(0.75 * 15.0 / 16.0, rel=1e-6)


def test_casts_take_the_time_of_their_bytes(monkeypatch):
    """Kernels read all elements, write fewer bits and read them again: by hand, at the rate of device memory.

    ``V (1 + r) (1 + 1 / N)`` for a gather, ``V (1 + 2 r + 1 / N)`` for a scatter, each micro-batch; that time is
    exposed where all messages are (no overlap).
    """
    parts = dict(weights_over=8.0, secondary=1.0, gathered_bytes=1.0, scattered_bytes=0.5)
    design = sharded(**parts)
    work = training_work(design, lay_out(design))
    whole, micro_batches = 2.0 * float(work.parameters), 256.0 / 128.0
    casts = {m.name: float(m.converted * m.times) for m in work.messages if float(m.converted) > 0.0}
    expected = {
        "weights_all_gather": whole * 1.5 * (1.0 + 1.0 / 128.0),
        "weights_all_gather_again": whole * 1.5 * (1.0 + 1.0 / 8.0),
        "gradients_reduce_scatter": whole * (1.0 + 2.0 * 0.25 + 1.0 / 128.0),
    }
    assert casts == pytest.approx({name: size * micro_batches for name, size in expected.items()}, rel=1e-6)
    device = design.system.accelerator
    seconds = sum(casts.values()) / float(device.memory.bandwidth * device.kernels.memory_efficiency)
    joules = sum(casts.values()) * float(device.power.memory_energy) * 128.0
    with_casts = metrics_and_memory_energy(design)
    monkeypatch.setattr(replicas, "converted_bytes", lambda *_: 0.0)
    without = metrics_and_memory_energy(design)
    assert with_casts[0] - without[0] == pytest.approx(seconds, rel=1e-3)
    assert with_casts[1] - without[1] == pytest.approx(joules, rel=1e-3)


def metrics_and_memory_energy(design) -> tuple[float, float]:
    """Step time and energy of device memory, by the equations as they are now."""
    layout = lay_out(design)
    phase = step_phase(design, layout, training_work(design, layout))
    return float(evaluate(design).step_time), float(phase_energy(phase, design).memory)


def test_full_width_messages_have_no_casts():
    """Parts alone, or 16 bits as the stack sends, cost no kernel."""
    for parts in (dict(weights_over=8.0), dict(gathered_bytes=2.0, scattered_bytes=2.0)):
        design = sharded(**parts)
        assert all(float(m.converted) == 0.0 for m in training_work(design, lay_out(design)).messages)


def test_bytes_of_a_parameter():
    """Weights over 2 and gradients over 8 of 128, the optimiser over all; a secondary copy comes on top."""
    for parts, weights, gradients in (
        (dict(weights_over=2.0, gradients_over=8.0), 2.0 / 2.0, 4.0 / 8.0),
        (dict(weights_over=8.0, secondary=1.0), 2.0 / 8.0 + 2.0 / 128.0, 4.0 / 128.0),
    ):
        design = sharded(**parts)
        layout = lay_out(design)
        state = state_bytes(design, layout, layout.groups.dp)
        assert (float(state.weights), float(state.gradients)) == (weights, gradients)
        assert float(state.optimizer) == 12.0 / 128.0


def test_smaller_parts_are_faster_over_slow_links_and_take_more_memory():
    """All, a node, a pair; and half a byte of a gradient is no slower than what the stack sends."""
    rows = [metrics_of(sharded(weights_over=size, gradients_over=max(size, 8.0))) for size in (128.0, 8.0, 2.0)]
    times, bytes_ = [float(m.step_time) for m in rows], [float(m.peak_memory) for m in rows]
    assert times[0] > times[1] >= times[2] and bytes_[0] < bytes_[1] < bytes_[2]
    narrow = metrics_of(sharded(weights_over=8.0, gradients_over=8.0, gathered_bytes=1.0, scattered_bytes=0.5))
    assert float(narrow.step_time) <= times[1]


def test_parts_divide_the_replicas():
    """Else the design says so."""
    bits = int(metrics_of(sharded(weights_over=12.0)).infeasible_reason)
    assert bits & Infeasible.shards_not_divisible and not int(metrics_of(sharded()).infeasible_reason)
