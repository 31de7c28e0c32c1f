"""Swaps of offloaded tensors: the closed forms against their schedules event by event, laws, and numbers by hand."""

import dataclasses
import itertools

import pytest
from hypothesis import given, settings, strategies as st

import dse
from dse.model.parallel.swaps import (
    Move,
    PassSwaps,
    Swaps,
    UpdateParts,
    copy_rate,
    exposed_passes,
    exposed_update,
    host_update_rate,
    pipelined_update,
    swap_seconds,
)
from dse.types import HostTiers, Tiers
from tests.oracles import swaps as events
from tests.programs import metrics_of

SECONDS = st.floats(0.1, 10.0)
LINK, HOST = (
    10.0,
    HostTiers(pageable_bandwidth=2.0, storage_read=5.0, storage_write=2.0, link_duplex=1.0, storage_duplex=0.0),
)


def by_formula(passes, layers, depth):
    """Seconds of a forward and a backward over ``layers`` layers whose copies take one direction."""
    copies = []
    for copy, _ in passes:
        share = min(depth, 1.0)
        ahead = min(max(depth - 1.0, 0.0), layers) * copy / layers
        copies.append(PassSwaps(share * copy, 0.0, (1.0 - share) * copy, ahead))
    swaps = Swaps(*copies, 0.0, 0.0, 0.0)
    exposed = exposed_passes(swaps, tuple(compute for _, compute in passes), (0.0, 0.0), 1.0)
    return layers * (sum(compute for _, compute in passes) + sum(map(float, exposed)))


@given(forward=st.tuples(SECONDS, SECONDS), backward=st.tuples(SECONDS, SECONDS), depth=st.integers(0, 6))
def test_passes_are_those_of_their_events(forward, backward, depth):
    """Within a layer of each pass: the formula lets a pass start with no copy, the ring with one."""
    passes, layers = (forward, backward), 12
    expected = events.step_seconds(passes, layers, depth)
    tolerance = 1e-5 * expected + (0.0 if depth == 0 else sum(max(job) for job in passes))
    assert by_formula(passes, layers, depth) == pytest.approx(expected, abs=tolerance)


@given(forward=st.tuples(SECONDS, SECONDS), backward=st.tuples(SECONDS, SECONDS))
def test_no_depth_is_the_sum_and_any_depth_the_longer_of_both(forward, backward):
    passes, layers = (forward, backward), 8
    copies, computes = (layers * sum(job[i] for job in passes) for i in (0, 1))
    assert by_formula(passes, layers, 0) == pytest.approx(copies + computes, rel=1e-5)
    assert by_formula(passes, layers, 1000) == pytest.approx(max(copies, computes), rel=1e-5)
    assert events.step_seconds(passes, layers, 1000, repeats=40) == pytest.approx(max(copies, computes), rel=0.15)
    deeper = [by_formula(passes, layers, depth) for depth in range(10)]
    assert all(less >= more * (1.0 - 1e-6) for less, more in itertools.pairwise(deeper))


@given(
    group=st.tuples(SECONDS, SECONDS, SECONDS),
    groups=st.integers(1, 9),
    ahead=st.booleans(),
    behind=st.booleans(),
    in_parallel=st.booleans(),
)
def test_updates_are_those_of_their_events(group, groups, ahead, behind, in_parallel):
    """Exact but for both pipelines at once, whose ends overlap, too: within the shorter parts of one group."""
    read, update, write = (groups * seconds for seconds in group)
    tiers = Tiers(pipeline_read=float(ahead), pipeline_write=float(behind))
    formula = float(pipelined_update(UpdateParts(read, update, write, 0.0), float(groups), tiers, float(in_parallel)))
    expected = events.update_seconds(group, groups, ahead, behind, in_parallel)
    assert formula >= expected * (1.0 - 1e-5)
    spare = sum(group) if ahead and behind else 1e-5 * expected
    assert formula == pytest.approx(expected, abs=spare)


@given(group=st.tuples(SECONDS, SECONDS, SECONDS), groups=st.integers(1, 50), in_parallel=st.booleans())
def test_more_of_a_pipeline_is_never_slower(group, groups, in_parallel):
    """From the sum of all parts to the longest of them, with many groups."""
    parts, duplex = UpdateParts(*group, 0.0), float(in_parallel)

    def seconds(read, write, count=groups):
        tiers = Tiers(pipeline_read=read, pipeline_write=write)
        return float(pipelined_update(parts, float(count), tiers, duplex))

    serial, both = seconds(0.0, 0.0), seconds(1.0, 1.0)
    assert serial == pytest.approx(sum(group))
    for one in (seconds(1.0, 0.0), seconds(0.0, 1.0)):
        assert serial * (1 + 1e-6) >= one >= both * (1 - 1e-6)
    drives = max(group[0], group[2]) if in_parallel else group[0] + group[2]
    assert seconds(1.0, 1.0, 1e6) == pytest.approx(max(drives, group[1]), rel=1e-4)


def test_a_pass_by_hand():
    """Weights of 20 B in, of which 10 from drives, and activations of 6 B out, over 10 B/s, drives of 5 and 2 B/s.

    One ahead: link max(2.0, 0.6) = 2.0, drives 10/5 = 2.0. Synchronous: 2.0 + 2.0 for the weights, 0.6 for the
    activations, or 6/2 = 3.0 of pageable memory, copied at 2 B/s.
    """

    def seconds(depth, pinned, layers=4.0):
        weights, stored = Move(20.0, 0.0, 10.0, 0.0, depth, pinned), Move(0.0, 6.0, 0.0, 0.0, depth, pinned)
        swapped = swap_seconds((weights, stored), LINK, HOST, layers)
        return [float(value) for value in (swapped.overlapped, swapped.synchronous, swapped.ahead)]

    one, two, zero = (seconds(*map(jax_number, (depth, 1.0))) for depth in (1.0, 3.0, 0.0))
    assert one == pytest.approx([2.0, 0.0, 0.0])
    assert two == pytest.approx([2.0, 0.0, 2.0 * 2.0 / 4.0])  # two layers beyond the first, over four
    assert zero == pytest.approx([0.0, 2.0 + 2.0 + 0.6, 0.0])
    assert seconds(*map(jax_number, (1.0, 0.0))) == pytest.approx([0.0, 20.0 / 2.0 + 2.0 + 6.0 / 2.0, 0.0])
    assert seconds(0.0, 1.0) == zero, "a literal depth is a depth, too"
    half = dataclasses.replace(HOST, link_duplex=jax_number(0.0))
    moves = Move(20.0, 0.0, 0.0, 0.0, 1.0, 1.0), Move(0.0, 6.0, 0.0, 0.0, 1.0, 1.0)
    assert float(swap_seconds(moves, LINK, half, 4.0).overlapped) == pytest.approx(2.6)


@pytest.mark.parametrize(
    ("copies", "chain", "seconds"),
    [
        # The last backward takes 4 s, 1 s of which in device memory. Its own copies of 3 s are hidden, with 2 s of the
        # update they take 5 s, 5 + 1 - 4 = 2 s more; 2 s of the update come after it.
        (3.0, 0.0, 2.0 + 2.0),
        (3.0, 5.0, 2.0 + 2.0),  # a chain of 5 s takes 1 s more than the backward, less than the copies do
        (3.0, 9.0, 5.0 + 2.0),  # one of 9 s takes 5 s more
        # Copies of 4 s take 1 s more than the backward anyway: the update adds 2 - 1 = 1 s, the chain 9 - 4 - 1 = 4 s.
        (4.0, 0.0, 1.0 + 2.0),
        (4.0, 9.0, 4.0 + 2.0),
    ],
)
def test_an_update_by_hand(copies, chain, seconds):
    swaps = Swaps(PassSwaps(0.0), PassSwaps(copies), 5.0, chain, 2.0)
    assert float(exposed_update(swaps, 4.0, 1.0)) == pytest.approx(seconds)


def jax_number(value):
    """A leaf as the model gets it, not a literal."""
    import jax.numpy as jnp

    return jnp.asarray(value)


def test_rates_by_hand():
    """A DGX A100's eighth: 51.2 GB/s, 16 cores. 30 bytes a parameter (state of 12 in and out, an fp32
    gradient, a 16-bit weight) are 1.7e9 parameters/s, of one core 0.32e9."""
    assert float(host_update_rate(HostTiers(), 30.0)) == pytest.approx(51.2 / 30.0 * 1e9)
    assert float(host_update_rate(HostTiers(host_cores=1.0), 30.0)) == pytest.approx(9.6 / 30.0 * 1e9)
    assert float(copy_rate(LINK, HOST, 1.0)) == 10.0 and float(copy_rate(LINK, HOST, 0.0)) == 2.0
    assert (
        float(copy_rate(LINK, dataclasses.replace(HOST, pageable_bandwidth=100.0), 0.0)) == 10.0
    )  # no faster than the link


#: Everything off the device, on one card.
OFF = dict(offload_weights=1, offload_activations=1, offload_optimizer=1, offload_gradients=1, host_update=1)
ONE = dict(n_devices=1, global_batch=8, micro_batch=1, seq_len=512, recompute="full", any_option=True)


def off_the_device(**settings_):
    return metrics_of(dse.design("llama-7b", "rtx-4090", "fsdp", **{**ONE, **OFF, "host.capacity": 4e11, **settings_}))


def test_deeper_is_never_slower_and_needs_no_less_memory():
    deep = [
        off_the_device(micro_batch=4, prefetch_depth=d, gradient_depth=d, activation_depth=d)
        for d in (0, 1, 2, 4, 8, 64)
    ]
    for less, more in itertools.pairwise(deep):
        assert float(more.step_time) <= float(less.step_time) * (1 + 1e-6)
        assert float(more.peak_memory) >= float(less.peak_memory) * (1 - 1e-6)
    assert float(deep[-1].step_time) < 0.97 * float(deep[1].step_time) < 0.8 * float(deep[0].step_time)
    assert float(deep[2].peak_memory) > float(deep[1].peak_memory)


@pytest.mark.parametrize(
    ("slower", "faster"),
    [
        (dict(pinned=0), dict(pinned=1)),
        (dict(pinned_activations=0), dict(pinned_activations=1)),
        (dict(link_duplex=0), dict(link_duplex=1)),
        (dict(link_sharing=4), dict(link_sharing=1)),
        (dict(host_cores=1), dict(host_cores=16)),
        (dict(host_memory_bandwidth=1e10), dict(host_memory_bandwidth=5e10)),
        (dict(update_overlap=0), dict(update_overlap=1)),
        (dict(gradient_copy_bytes=4, gradient_depth=0), dict(gradient_depth=0)),
        *(
            (dict(storage_optimizer=1, **slow), dict(storage_optimizer=1, **fast))
            for slow, fast in [
                (dict(pipeline_read=0), dict(pipeline_read=1)),
                (dict(pipeline_write=0), dict(pipeline_write=1)),
                (dict(storage_duplex=0, pipeline_read=1, pipeline_write=1),
                 dict(storage_duplex=1, pipeline_read=1, pipeline_write=1)),
                (dict(sub_group_size=1e10, pipeline_read=1), dict(sub_group_size=1e8, pipeline_read=1)),
                (dict(storage_gradients=1, gradient_depth=0), dict(storage_gradients=0, gradient_depth=0)),
            ]
        ),
    ],
)  # fmt: skip
def test_each_part_of_the_schedule_shows_in_the_step(slower, faster):
    assert float(off_the_device(**slower).step_time) > float(off_the_device(**faster).step_time) * 1.001


@settings(max_examples=10)
@given(depth=st.integers(0, 8), pinned=st.integers(0, 1), size=st.floats(1e6, 1e10))
def test_a_schedule_of_nothing_changes_nothing(depth, pinned, size):
    """Metrics to the bit: without offloading no schedule of it matters."""
    plain = dse.design("llama-7b", "eos", n_devices=8, any_option=True)
    schedule = dse.design(
        "llama-7b", "eos", n_devices=8, any_option=True, prefetch_depth=depth, activation_depth=depth, pinned=pinned,
        sub_group_size=size, pipeline_read=1, link_duplex=0, link_sharing=2,
    )  # fmt: skip
    assert plain.mapping.tiers is None and schedule.mapping.tiers is not None
    for name in ("step_time", "step_time_offload", "peak_memory", "host_memory"):
        assert float(getattr(metrics_of(plain), name)) == float(getattr(metrics_of(schedule), name))


@pytest.mark.parametrize(("stored", "size"), [(0, 12e9), (1, 16e9)])
def test_buffers_of_sub_groups_are_in_host_memory(stored, size):
    """State (12 B a parameter) of one group, two with a read ahead, three with both; its gradient is 4 B."""
    tiers = dict(storage_optimizer=1, storage_gradients=stored, gradient_copy_bytes=4)
    plain, ahead, both = (
        float(off_the_device(**tiers, pipeline_read=r, pipeline_write=w).host_memory)
        for r, w in ((0, 0), (1, 0), (1, 1))
    )
    assert ahead - plain == pytest.approx(size, rel=1e-4) and both - ahead == pytest.approx(size, rel=1e-4)


def test_the_last_backward_waits_for_the_busier_of_link_and_drives():
    """What an update moves on drives does not lengthen a backward that the link holds up."""

    def step(read):
        return float(
            off_the_device(
                storage_optimizer=1,
                offload_gradients=1,
                update_overlap=1,
                **{"host.bandwidth": 2e9, "storage_read": read},
            ).step_time
        )

    assert step(50e9) == pytest.approx(step(100e9), rel=0.02)


def test_a_shared_link_is_shared_by_all_that_cross_it():
    """Far memory of an engine, and copies of a checkpoint to the host, by a half of the link."""
    served = dict(software="vllm", concurrency=1, prompt_tokens=512, far_weights=0.5)
    alone, halved = (
        dse.serve(dse.design("llama-2-70b", "h100", any_option=True, **served, **links))
        for links in ({"link_sharing": 1.0}, {"link_sharing": 2.0})
    )
    assert float(halved.time_per_output_token) > 1.5 * float(alone.time_per_output_token)
