"""Laws of single collectives: bytes and bandwidth, direct all-reduces, groups of one."""

from __future__ import annotations

import jax
import pytest
from hypothesis import given, settings, strategies as st

from dse import types
from dse.designs import catalog, replace
from dse.model import Route
from dse.model.machine import collective_kernels
from dse.model.machine.collectives import all_gather, all_to_all, direct_all_reduce
from dse.model.machine.routes import domain_level
from dse.types import Group

SYSTEM = catalog.record(types.System, "h100-sxm-80gb", fine=True)

collective = jax.jit(collective_kernels.collective_time)
direct = jax.jit(collective_kernels.direct_time)
quick = settings(deadline=None, max_examples=30)


@quick
@given(st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0]), st.sampled_from([2.0, 4.0, 8.0]), st.floats(1e3, 1e9))
def test_collectives_grow_with_bytes_and_shrink_with_bandwidth(operation, members, size):
    group = Group(members, members)
    base = collective(operation, size, group, 0.0, SYSTEM)
    faster = replace(SYSTEM, {"scale_up.bandwidth": 2.0 * SYSTEM.scale_up.bandwidth})
    assert collective(operation, 2.0 * size, group, 0.0, SYSTEM) >= base
    assert collective(operation, size, group, 0.0, faster) <= base
    assert base >= SYSTEM.scale_up.alone.launch


@quick
@given(st.sampled_from([2.0, 4.0, 8.0]), st.floats(1e2, 1e9), st.booleans())
def test_a_direct_all_reduce_is_never_slower_than_one_shot(members, size, eager):
    one_shot = domain_level(SYSTEM.scale_up, members).send_time(size * (members - 1.0))
    assert direct_all_reduce(size, members, SYSTEM.scale_up) <= one_shot * (1.0 + 1e-6)
    assert direct(2.0 * size, members, float(eager), 0.0, SYSTEM) >= direct(size, members, float(eager), 0.0, SYSTEM)
    assert direct(size, members, 1.0, 0.0, SYSTEM) >= 0.9 * SYSTEM.scale_up.alone.eager_launch


@quick
@given(st.sampled_from([2.0, 4.0, 8.0]), st.floats(1e2, 1e9))
def test_small_messages_go_with_flags_and_large_ones_between_barriers(members, size):
    """Each protocol bounds the library's time from above; flags win small, bandwidth wins large."""
    group, launch = Group(members, members), SYSTEM.scale_up.alone.launch
    alone = collective_kernels._of_members(SYSTEM, members)
    flagged, simple = (float(all_gather(size, Route(group, one), 0.0)) for one in collective_kernels.protocols(alone))
    found = float(collective(1.0, size, group, 0.0, SYSTEM)) - launch
    assert found <= min(flagged, simple) * (1.0 + 1e-4)
    if size < 1e4:
        assert flagged < simple
    if size > 1e8:
        assert simple < flagged


A100 = catalog.record(types.System, "a100-sxm-80gb", fine=True)


@pytest.mark.parametrize(
    ("operation", "members", "size", "microseconds"),
    # aic_nccl of ai-dynamo/aiconfigurator: all-reduces and gathers on both sides of NCCL's change of protocol
    [(0.0, 2.0, 2.0**18, 15.0), (0.0, 2.0, 2.0**20, 41.0), (0.0, 2.0, 2.0**21, 48.0), (0.0, 8.0, 2.0**20, 39.0),
     (1.0, 4.0, 2.0**21, 53.0), (2.0, 4.0, 2.0**20, 21.0)],
)  # fmt: skip
def test_around_a_mebibyte_a100s_take_what_the_library_chooses(operation, members, size, microseconds):
    found = float(collective(operation, size, Group(members, members), 0.0, A100))
    assert 1e6 * found == pytest.approx(microseconds, rel=0.2)


def test_a_least_latency_counts_up_to_the_steps_that_take_as_long():
    """Barriers among few cost what is stated, among many what their steps take."""
    bare = replace(A100, {"scale_up.alone.simple_floor": 0.0})
    size = 2.0**25
    for members, more in ((2.0, True), (8.0, False)):
        with_floor, without = (float(collective(0.0, size, Group(members, members), 0.0, one)) for one in (A100, bare))
        assert (with_floor > without * (1.0 + 1e-3)) == more


def test_what_peers_exchange_beyond_sixteen_kibibytes_waits_for_barriers():
    """A step at NCCL's own threshold, which is none of the fastest choice."""
    below, at, above = (
        float(collective(3.0, 4.0 * peer, Group(4.0, 4.0), 0.0, SYSTEM)) for peer in (16000.0, 16384.0, 16768.0)
    )
    assert above - at > 3.0 * (at - below) > 0.0


def test_an_exchange_of_one_costs_nothing():
    assert float(collective(3.0, 1e4, Group(1.0, 1.0), 1e-6, SYSTEM)) == pytest.approx(1e-6)
    assert float(all_to_all(1e6, Route(Group(1.0, 1.0), SYSTEM))) == 0.0
    assert float(direct_all_reduce(1e6, 1.0, SYSTEM.scale_up)) == 0.0
