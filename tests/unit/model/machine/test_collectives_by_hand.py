"""Collectives in numbers: 8 members, 4 a domain, and 800 MB; every line of arithmetic is a step of the algorithm.

Domains have 100 GB/s and 1 us, the network across 10 GB/s and 10 us, without a ramp. A ring sends 7/8 of the bytes.
"""

from __future__ import annotations

import dataclasses

import pytest

from dse.model import Route
from dse.model.machine import collectives
from dse.types import Collective, Group, MessageKind, Volumes
from tests.designs import SCALE_OUT, SCALE_UP, SYSTEM

MS, US, PJ = 1e-3, 1e-6, 1e-12
SIZE = 800e6

UP = dataclasses.replace(
    SCALE_UP, bandwidth=100e9, latency=1e-6, efficiency=1.0, ramp=0.0, domain=4.0, energy=10 * PJ, processor_usage=0.125
)
OUT = dataclasses.replace(
    SCALE_OUT, bandwidth=10e9, latency=10e-6, efficiency=1.0, ramp=0.0, energy=90 * PJ, processor_usage=0.25
)
BOTH = Group(8.0, 4.0)


def route(group=BOTH, up=UP, out=OUT):
    return Route(group, dataclasses.replace(SYSTEM, scale_up=up, scale_out=out))


#: Six hops inside and one that enters the other domain; every member's ring crosses with a quarter of 700 MB.
RING = 6 * US + 10 * US + 700e6 / 4 / 10e9  # 17.516 ms; inside 7 ms
#: Across a ring of two for a quarter each, then a ring of four inside.
HIERARCHICAL = (10 * US + 200e6 / 2 / 10e9) + (3 * US + 600e6 / 100e9)  # 10.01 + 6.003 ms


@pytest.mark.parametrize(
    ("algorithm", "seconds"),
    [(Collective.ring, RING), (Collective.hierarchical, HIERARCHICAL), (Collective.auto, HIERARCHICAL),
     (Collective.doubling, HIERARCHICAL),  # of two domains one step
     (Collective.single_ring, 16 * US + 700e6 / 10e9)],
)  # fmt: skip
def test_all_gather(algorithm, seconds):
    assert float(collectives.all_gather(SIZE, route(), float(algorithm))) == pytest.approx(seconds, rel=1e-5)
    for kind in (MessageKind.all_gather, MessageKind.reduce_scatter):
        assert float(collectives.time(kind, SIZE, route(), float(algorithm))) == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize(
    ("algorithm", "seconds"),
    [(Collective.ring, 2 * RING), (Collective.hierarchical, 2 * HIERARCHICAL),
     # Each byte up and down: 1.6 GB inside in 16 ms, a quarter of that across in 40 ms; up and down 3 + 10 us each.
     (Collective.tree, 2 * 13 * US + 400e6 / 10e9),
     # No switch reduces: rings.
     (Collective.in_switch, 2 * HIERARCHICAL), (Collective.auto, 2 * HIERARCHICAL)],
)  # fmt: skip
def test_all_reduce(algorithm, seconds):
    assert float(collectives.all_reduce(SIZE, route(), float(algorithm))) == pytest.approx(seconds, rel=1e-5)
    found = collectives.time(MessageKind.all_reduce, SIZE, route(), float(algorithm))
    assert float(found) == pytest.approx(seconds, rel=1e-5)


def test_the_fastest_of_all():
    """1 kB and 64 domains of one: the tree's 12 steps of 10 us; 800 MB of four members: in the switch, 8 us + 10 ms."""
    alone = route(Group(64.0, 1.0))
    assert float(collectives.all_reduce(1e3, alone, 0.0)) == pytest.approx(120 * US + 2e3 / 10e9, rel=1e-4)
    reducing = route(Group(4.0, 4.0), up=dataclasses.replace(UP, in_network_reduction=1.0))
    assert float(collectives.all_reduce(SIZE, reducing, 0.0)) == pytest.approx(8 * US + 10 * MS, rel=1e-5)


def test_a_group_of_one():
    """Nothing is sent, by any algorithm, nor summed."""
    volumes = Volumes(gather=0.5, gather_share=2.0, reduce=1.5, reduce_share=4.0, reduction_traffic=3.0)
    stated = dict(up=dataclasses.replace(UP, volumes=volumes), out=dataclasses.replace(OUT, volumes=volumes))
    for one in (route(Group(1.0, 1.0)), route(Group(1.0, 1.0), **stated)):
        for algorithm in map(float, Collective):
            assert float(collectives.all_gather(SIZE, one, algorithm)) == 0.0
            assert float(collectives.all_reduce(SIZE, one, algorithm)) == 0.0
        assert float(collectives.all_to_all(SIZE, one)) == 0.0
        assert float(collectives.exchange(SIZE, 0.0, one)) == 0.0
        assert float(collectives.summing_time(SIZE, one.group, one.system)) == 0.0
    # Stated volumes of two domains of one member: nothing inside.
    apart = float(collectives.all_gather(SIZE, route(Group(2.0, 1.0), **stated), 0.0))
    assert apart == pytest.approx(10 * US + 800e6 * 1.5 / 10e9, rel=1e-5)
    assert float(collectives.exchange(5e9, 100e6, route(Group(2.0, 1.0)))) == pytest.approx(10 * US + 10 * MS, rel=1e-5)


@pytest.mark.parametrize("share", [1.0, 0.8, 0.4])
def test_an_all_reduce_in_the_switch_of_a_domain(share):
    """A member's link carries its 800 MB and the 200 MB that it sums for all, at a share of its bandwidth or all of it.

    10 ms, or 12.5; at 40 % its ring is faster. Then the rings across. Up and down a tree of four between two barriers:
    4 x 2 us.
    """
    up = dataclasses.replace(UP, in_network_reduction=share)
    inside = 8 * US + 1000e6 / (share * 100e9)
    across = 2 * (10 * US + 200e6 / 2 / 10e9)
    ring = 2 * (3 * US + 600e6 / 100e9)
    found = float(collectives.all_reduce(SIZE, route(up=up), float(Collective.in_switch)))
    assert found == pytest.approx(min(inside, ring) + across, rel=1e-5)
    # Four domains, a network that reduces: a quarter of the bytes once up and, at the same time, down; where a ring
    # takes 2 x 15 ms. A tree of four has two steps.
    out = dataclasses.replace(OUT, in_network_reduction=1.0)
    summed = 4 * 20 * US + 200e6 / 10e9
    four = route(Group(16.0, 4.0), up=up, out=out)
    found = float(collectives.all_reduce(SIZE, four, float(Collective.in_switch)))
    assert found == pytest.approx(min(inside, ring) + summed, rel=1e-5)


def test_a_tree_of_eight_domains_has_three_steps_each_way():
    """64 devices of one a domain: 2 x 6 steps of 10 us, and 2 x 1 MB over 10 GB/s; a ring takes 126 steps."""
    alone = route(Group(64.0, 1.0))
    assert float(collectives.all_reduce(1e6, alone, float(Collective.tree))) == pytest.approx(320 * US, rel=1e-4)
    ring = 63 * 10 * US + 1e6 * 63 / 64 / 10e9
    assert float(collectives.all_reduce(1e6, alone, float(Collective.ring))) == pytest.approx(2 * ring, rel=1e-4)
    assert float(collectives.all_gather(1e6, alone, float(Collective.ring))) == pytest.approx(ring, rel=1e-4)
    doubled = ring - 57 * 10 * US  # six steps, for the same bytes
    assert float(collectives.all_gather(1e6, alone, float(Collective.doubling))) == pytest.approx(doubled, rel=1e-4)


def test_all_to_all():
    """700 MB leave a member in 7 ms; of them the 400 MB of the other domain over its own link across, 40 ms."""
    assert float(collectives.all_to_all(SIZE, route())) == pytest.approx(10 * US + 40 * MS, rel=1e-5)
    assert float(collectives.all_to_all(SIZE, route(Group(4.0, 4.0)))) == pytest.approx(1 * US + 6 * MS, rel=1e-5)
    assert float(collectives.time(MessageKind.all_to_all, SIZE, route(), 0.0)) == pytest.approx(40.01 * MS, rel=1e-5)


def test_bytes_inside_and_out_of_a_domain_at_the_same_time():
    """5 GB inside take 50 ms and 100 MB across 10 ms; kernels that reach half of a link need 100 and 20."""
    assert float(collectives.exchange(5e9, 100e6, route())) == pytest.approx(1 * US + 50 * MS, rel=1e-5)
    assert float(collectives.exchange(5e9, 100e6, route(), 0.5)) == pytest.approx(1 * US + 100 * MS, rel=1e-5)
    assert float(collectives.exchange(5e8, 100e6, route())) == pytest.approx(10 * US + 10 * MS, rel=1e-5)
    assert float(collectives.exchange(5e9, 100e6, route(), 0.25)) == pytest.approx(1 * US + 200 * MS, rel=1e-5)
    assert float(collectives.exchange(5e8, 100e6, route(), 0.5)) == pytest.approx(10 * US + 20 * MS, rel=1e-5)
    assert float(collectives.exchange(5e8, 100e6, route(Group(4.0, 4.0)))) == pytest.approx(1 * US + 5 * MS, rel=1e-5)


def test_a_pair():
    """Half of 800 MB, over 100 GB/s within a domain and over 10 GB/s across."""
    for local, seconds in ((2.0, 1 * US + 4 * MS), (1.0, 10 * US + 40 * MS)):
        pair = route(Group(2.0, local))
        assert float(collectives.all_gather(SIZE, pair, 0.0)) == pytest.approx(seconds, rel=1e-5)
        assert float(collectives.all_reduce(SIZE, pair, float(Collective.ring))) == pytest.approx(2 * seconds, rel=1e-5)
        assert float(collectives.all_to_all(SIZE, pair)) == pytest.approx(seconds, rel=1e-5)
    assert float(collectives.exchange(400e6, 0.0, route(Group(2.0, 2.0)))) == pytest.approx(1 * US + 4 * MS, rel=1e-5)
    assert float(collectives.direct_all_reduce(1e5, 2.0, UP)) == pytest.approx(2 * US, rel=1e-4)
    volumes = Volumes(gather=0.5, gather_share=2.0, reduce=1.5, reduce_share=4.0, reduction_traffic=3.0)
    stated = route(Group(2.0, 2.0), up=dataclasses.replace(UP, volumes=volumes)).system
    assert float(collectives.summing_time(SIZE, Group(2.0, 2.0), stated)) == pytest.approx(2.4e9 / (0.85 * 2.039e12))


def test_a_send():
    assert float(collectives.send(SIZE, route(Group(2.0, 2.0)))) == pytest.approx(1 * US + 8 * MS, rel=1e-5)
    assert float(collectives.send(SIZE, route(Group(2.0, 1.0)))) == pytest.approx(10 * US + 80 * MS, rel=1e-5)


def test_small_messages_on_the_ramp():
    """1 MB where 4 MB reach half of the peak: (1 + sqrt(4 x 1)) MB at 80 % of 100 GB/s: 37.5 us, and 1 us."""
    up = dataclasses.replace(UP, ramp=4e6, efficiency=0.8)
    assert float(collectives.send(1e6, route(Group(2.0, 2.0), up))) == pytest.approx(38.5 * US, rel=1e-5)


def test_link_energy_of_a_member():
    """A ring: 3 of 4 hops at 10 pJ, 1 at 90: 30 pJ a byte, 700 MB: 21 mJ; twice that to sum.

    An all-to-all: 3/8 of 800 MB inside at 10 pJ, 4/8 across at 90: 3 + 36 mJ.
    """
    expected = {
        MessageKind.all_gather: 21e-3,
        MessageKind.reduce_scatter: 21e-3,
        MessageKind.all_reduce: 42e-3,
        MessageKind.all_to_all: 39e-3,
        MessageKind.send: 24e-3,
    }
    for kind, joules in expected.items():
        assert float(collectives.energy(kind, SIZE, route())) == pytest.approx(joules, rel=1e-5), kind
    assert float(collectives.exchange_energy(300e6, 400e6, route())) == pytest.approx(39e-3, rel=1e-5)


def test_an_all_reduce_in_one_kernel():
    """Four peers. 10 kB in one shot: the 30 kB of the others, 0.3 us, and 1 us. 1 MB in two: 750 kB, 7.5 us, each."""
    assert float(collectives.direct_all_reduce(10e3, 4.0, UP)) == pytest.approx(1.3 * US, rel=1e-4)
    assert float(collectives.direct_all_reduce(1e6, 4.0, UP)) == pytest.approx(2 * 8.5 * US, rel=1e-4)
    assert float(collectives.direct_all_reduce(1e6, 1.0, UP)) == 0.0


def test_stated_volumes():
    """(0.5 + 2 / N) of an all-gather, (1.5 + 4 / N) of an all-reduce; a member's quarter across, N = 2, then N = 4."""
    volumes = Volumes(gather=0.5, gather_share=2.0, reduce=1.5, reduce_share=4.0, reduction_traffic=3.0)
    stated = route(up=dataclasses.replace(UP, volumes=volumes), out=dataclasses.replace(OUT, volumes=volumes))
    gathered = (10 * US + 200e6 * 1.5 / 10e9) + (1 * US + 800e6 * 1.0 / 100e9)
    assert float(collectives.all_gather(SIZE, stated, 0.0)) == pytest.approx(gathered, rel=1e-5)
    reduced = (10 * US + 200e6 * 3.5 / 10e9) + (1 * US + 800e6 * 2.5 / 100e9)
    assert float(collectives.all_reduce(SIZE, stated, 0.0)) == pytest.approx(reduced, rel=1e-5)
    # 2.4 GB of device memory at 85 % of 2.039 TB/s.
    assert float(collectives.summing_time(SIZE, BOTH, stated.system)) == pytest.approx(2.4e9 / (0.85 * 2.039e12))


def test_cores_that_a_hidden_collective_takes():
    """10 ms of messages, of which 90 % may hide.

    Beside 6 ms of compute 6 hide and 4 wait. With a quarter of the cores taken those 6 ms do 4.5 ms of the compute, so
    1.5 ms more are left: 5.5 ms. Beside 20 ms of compute 9 hide: 1 ms waits, 9 / 4 ms of compute are left.
    """
    assert float(collectives.usage(BOTH, route().system)) == 0.25
    assert float(collectives.usage(Group(4.0, 4.0), route().system)) == 0.125
    assert float(collectives.exposed(10e-3, 6e-3, 0.9, 0.0)) == pytest.approx(4e-3)
    assert float(collectives.exposed(10e-3, 6e-3, 0.9, 0.25)) == pytest.approx(5.5e-3)
    assert float(collectives.exposed(10e-3, 20e-3, 0.9, 0.25)) == pytest.approx(3.25e-3)
    assert float(collectives.exposed(10e-3, 20e-3, 0.0, 0.25)) == pytest.approx(10e-3)
