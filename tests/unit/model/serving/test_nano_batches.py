"""Steps in nano-batches: what kernels that run together take from each other, by hand and as laws."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

import dse
from dse.doors import SERVING
from dse.model import Batch, stage_of
from dse.model.machine.messages import message_memory_bytes
from dse.model.serving.memory import FarReads
from dse.model.serving.nano_batches import ResourceTimes, kernel_shares, nano_batch, resource_times, side_by_side
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.step import engine_step, layer_message_time, rates_in, stage_time
from dse.model.serving.work import step_work
from dse.types import Engine, OperatorKind, Work
from tests.programs import served

LLAMA = dict(any_option=True, tp=8, precision="fp16")
#: An engine that adds nothing to its kernels.
PLAIN = Engine(
    layer_time=0.0, expert_layer_time=0.0, host_step_time=0.0, sequence_time=0.0, rank_time=0.0, small_message_time=0.0,
    narrow_expert=0.0, cast_layer_time=0.0, latent_layer_time=0.0,
)  # fmt: skip


def a100(workload="llama-2-70b", **settings):
    return dse.design(workload, "a100-sxm-80gb", "vllm", **LLAMA, **settings)


def seconds(design, engine=PLAIN, **batch):
    """Time of an engine step by part."""
    step = Batch(**(dict(sequences=1024.0, context=768.0, prompt=1024.0, prompt_context=256.0) | batch))
    return engine_step(stage_of(design), 1.0, design.mapping.serving, engine, step)


def test_the_cores_that_a_kernel_takes():
    """A100: 16.72 GB at 82 % of 2,039 GB/s take 10 ms, and 2,039 / 5,100 of the cores: their cache has 5,100 GB/s."""
    design, read = a100(), Work(0.0, 16.72e9)
    rates, power = rates_in(PLAIN, stage_of(design)), design.system.accelerator.power
    share = design.system.accelerator.memory.bandwidth / power.feed
    alone = kernel_shares(OperatorKind.vector, read, rates, share)
    assert (float(alone.memory), float(alone.cores)) == pytest.approx((10e-3, 4.0e-3), rel=1e-3)
    # FLOPs that last longer than the bytes take the cores for as long as they last.
    flops = 20e-3 / float(rates.units[OperatorKind.vector].flop_time)
    busy = kernel_shares(OperatorKind.vector, read._replace(flops=flops), rates, share)
    blend = float(rates.kernels.roofline_blend)
    assert (float(busy.memory), float(busy.cores)) == pytest.approx((10e-3, (20 + blend * 4.0) * 1e-3), rel=1e-3)


def test_a_step_of_two_parts_by_hand():
    """Cores 3, memory 2, links 1 s each: two parts take 6 s side by side, where one after the other takes 2 x 5."""
    resources = ResourceTimes(cores=3.0, memory=2.0, links=1.0, launches=0.5, far=0.0)
    assert [float(side_by_side(n, 5.0, resources)) for n in (1.0, 2.0, 3.0)] == [5.0, 6.0, 9.0]
    # Two parts that each wait for all of their own operators take no less than one of them alone.
    assert float(side_by_side(2.0, 7.0, resources)) == 7.0
    assert float(side_by_side(2.0, 5.0, resources._replace(far=4.0))) == 8.0


def test_bytes_of_a_sum_in_memory():
    """1,024 tokens of 8,192 values of 2 B: 2 x 7/8 of 16.8 MB are read to be sent and as much is written, twice."""
    design = a100()
    work = step_work(stage_of(design), 1.0, design.mapping.serving, Batch(1024.0, 512.0, 0.0, 0.0), PLAIN)
    moved = float(message_memory_bytes(work.messages, design.system))
    assert moved == pytest.approx(2 * 2 * (2 * 7 / 8) * 1024 * 8192 * 2, rel=1e-6)


times = st.floats(1e-6, 1.0)


@given(st.tuples(times, times, times, times, times), times, st.integers(1, 8), st.integers(0, 4), st.floats(1.0, 3.0))
def test_no_step_beats_its_busiest_resource_nor_rises_where_one_is_faster(seconds, rest, parts, slowed, slowdown):
    """Between the bound of all resources and the parts one after the other; slower resources are never faster."""
    resources = ResourceTimes(*seconds)
    chain = max(seconds) + rest  # a nano-batch keeps no resource busy for longer than it takes
    step = float(side_by_side(float(parts), chain, resources))
    assert step >= chain * (1 - 1e-6) and step <= parts * chain * (1 + 1e-6)
    assert parts == 1 or step >= parts * max(seconds) * (1 - 1e-6)
    slower = list(seconds)
    slower[slowed] *= slowdown
    assert float(side_by_side(float(parts), chain, ResourceTimes(*slower))) >= step * (1 - 1e-6)


@pytest.mark.parametrize("workload", ["llama-2-70b", "mixtral-8x7b", "nemotron-nano-9b-v2"])
@pytest.mark.parametrize("parts", [2.0, 3.0, 4.0])
def test_resources_are_busy_for_no_longer_than_a_part_takes(workload, parts):
    """So that parts side by side are never slower than the same parts one after the other."""
    design = a100(workload, nano_batches=parts)
    stage, serving, engine = stage_of(design), design.mapping.serving, PLAIN
    batch = Batch(256.0, 2048.0, 512.0, 256.0)
    part = nano_batch(stage, batch)
    assert float(part.sequences) == pytest.approx(256.0 / parts) and float(part.prompt) == pytest.approx(512.0 / parts)
    work = step_work(stage, 1.0, serving, part, engine)
    ledger = stage_pass(stage, work, part)
    messages = ledger.layers * layer_message_time(stage.design, engine, work)
    resources = resource_times(stage, ledger, work, rates_in(engine, stage), messages, 0.0, FarReads(0.0, 0.0, 0.0))
    alone = stage_time(stage_of(a100(workload)), serving, engine, work, part).total
    together = stage_time(stage, serving, engine, work, batch).total
    assert float(resources.longest) <= float(alone) * (1 + 1e-5)
    assert float(together) == pytest.approx(max(float(alone), parts * float(resources.longest)), rel=1e-5)


def test_one_nano_batch_changes_nothing():
    """To the bit: no record, and a record with one nano-batch."""
    for load in ("concurrency", "offline", "static"):
        settings = dict(load=load, concurrency=256, prompt_tokens=512, output_tokens=512)
        without, single = (served(a100(**settings, **more)) for more in ({}, {"nano_batches": 1.0}))
        np.testing.assert_array_equal(jax.tree.leaves(single), jax.tree.leaves(without))


@pytest.mark.parametrize("count", [1, 32, 256, 1024])
def test_a_step_is_cut_where_that_saves_time(count):
    """Whatever the load, no longer with 2 to 4 nano-batches than without; parts add up to the total."""
    asked = dict(concurrency=count, prompt_tokens=1024, output_tokens=512)
    whole = served(a100(**asked))
    for parts in (2.0, 3.0, 4.0):
        cut = served(a100(**asked, nano_batches=parts))
        assert float(cut.time_per_output_token) <= float(whole.time_per_output_token) * (1 + 1e-5)
        total = sum(float(getattr(cut, name)) for name in SERVING.parts("time_per_output_token"))
        assert total == pytest.approx(float(cut.time_per_output_token), rel=1e-5)


def _with_power(design, **leaves):
    accelerator = design.system.accelerator
    power = dataclasses.replace(accelerator.power, **leaves)
    system = dataclasses.replace(design.system, accelerator=dataclasses.replace(accelerator, power=power))
    return dataclasses.replace(design, system=system)


def test_kernels_that_take_more_cores_leave_less_to_products():
    """By the rate at which cores take bytes, and the cores on which a collective polls; free of both, more overlaps."""
    design = a100(nano_batches=2.0)
    by_feed = [float(seconds(_with_power(design, feed=feed)).total) for feed in (2.5e12, 5.1e12, 1e13, 1e16)]
    by_polling = [float(seconds(_with_power(design, polling=share)).total) for share in (0.6, 0.2, 0.0)]
    assert sorted(by_feed, reverse=True) == by_feed and by_feed[0] > by_feed[-1]
    assert sorted(by_polling, reverse=True) == by_polling and by_polling[0] > by_polling[-1]
    alone = seconds(a100())
    free = seconds(_with_power(design, feed=1e16, polling=0.0))
    # Products alone keep the cores busy then: 2 x 68.7e9 FLOPs a token of 2,048, on 8 devices at 83 % of 312 TFLOP/s.
    products = 2 * 68.7e9 * 2048 / 8 / (0.83 * 312e12)
    assert products < float(free.total) < min(1.1 * products, float(alone.matrix))
    assert float(seconds(design).total) < 0.9 * float(alone.total)


def test_parts_pay_for_weights_launches_and_messages():
    """One sequence: two parts read the weights twice, and no step of few tokens gains from parts."""
    few = dict(sequences=8.0, prompt=0.0)
    cut, whole = seconds(a100(nano_batches=4.0), **few), seconds(a100(), **few)
    assert float(cut.total) > 2.0 * float(whole.total)
    slow = dataclasses.replace(PLAIN, layer_time=2e-3)  # launches of four parts queue up
    step = seconds(a100(nano_batches=4.0), engine=slow)
    assert float(step.total) == pytest.approx(4 * 80 * 2e-3, rel=1e-3)


def test_weights_far_away_are_read_once_for_all_parts():
    """Layer by layer, so that the link to the host is as busy as without parts, and bounds the step."""
    asked = dict(far_weights=0.5, concurrency=64, prompt_tokens=128, load="static")
    whole, cut = (served(a100(**asked, **more)) for more in ({}, {"nano_batches": 2.0}))
    assert float(cut.time_per_output_token) <= float(whole.time_per_output_token) * (1 + 1e-5)
    far = 0.5 * 68.7e9 * 2 / 8 / float(a100().system.host.bandwidth)
    assert float(cut.time_per_output_token) > 0.95 * far
