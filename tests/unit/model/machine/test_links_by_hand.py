"""Links without a switch in numbers: bytes over the fullest link and links per byte, added up by hand in comments.

``V`` is what a member has for all members together, ``B`` the bandwidth of all links of a device.
"""

from __future__ import annotations

import dataclasses

import pytest

from dse.model import Route, links as model
from dse.model.machine import collectives
from dse.types import Group, Links, MessageKind, Package, Topology
from tests.designs import SCALE_UP, SYSTEM

#: Bytes of a member, bandwidth of its links in B/s, energy of a byte on a link in J.
V, B, JOULES = 32e9, 4e9, 10e-12


def built(devices, links=None, package=None):
    """A system of so many devices in one domain."""
    network = dataclasses.replace(
        SCALE_UP,
        bandwidth=B,
        latency=0.0,
        efficiency=1.0,
        ramp=0.0,
        domain=devices,
        energy=JOULES,
        links=links,
        package=package,
    )
    return dataclasses.replace(SYSTEM, scale_up=network, n_devices=devices)


def torus(wrap, x, y, per_device=4.0):
    return built(x * y, Links(topology=float(Topology.torus), per_device=per_device, wrap=wrap, x=x, y=y))


def reach(system, *runs):
    return tuple(map(float, model.reach_in(system, 1.0)(*runs)))


def route(system, size, *runs):
    return Route(Group(size, size, reach=model.reach_in(system, 1.0)(*runs)), system)


def test_a_torus_of_four_by_eight():
    """All 32 devices.

    Ring: all four links of each. Steps: both ways around, 2 + 4. Links to a device of a ring of 4: 0 1 2 1, mean 1; of
    8: 0 1 2 3 4 3 2 1, mean 2; together 3, without the device itself 3 x 32 / 31. All-to-all: a cut through the rings
    of 8 has 16 devices on a side, which send V / 2 each over 4 x 2 links of B / 4: 8 V / (8 x B / 4) = 4 V / B.
    """
    system = torus(4.0, 4.0, 8.0)
    ring, exchange, neighbour, steps, hops = reach(system, (1.0, 32.0))
    assert (ring, neighbour, steps) == pytest.approx((1.0, 0.25, 6.0))
    assert hops == pytest.approx(3.0 * 32.0 / 31.0)
    assert exchange == pytest.approx(31.0 / 32.0 / 4.0)
    whole = route(system, 32.0, (1.0, 32.0))
    assert float(collectives.all_to_all(V, whole)) == pytest.approx(4.0 * V / B, rel=1e-5)  # 32 s
    # V / 32 to each of 32 devices, itself among them, over 3 links in the mean: 32e9 x 3 x 10 pJ = 0.96 J.
    assert float(collectives.energy(MessageKind.all_to_all, V, whole)) == pytest.approx(0.96, rel=1e-5)


def test_lines_of_four_by_two():
    """All 8 devices of a mesh.

    Ring: a line has one link each way, 2 of 4. Steps: 3 + 1. Links to a device of a line of 4, from each end inwards:
    (0 1 2 3), (1 0 1 2) and their mirrors: 20 / 16 = 1.25; of 2: 0.5; together 1.75, without the device itself
    1.75 x 8 / 7 = 2. All-to-all: the cut has 4 devices a side, V / 2 each over 2 links of B / 4: 4 V / B.
    """
    system = torus(16.0, 4.0, 2.0)
    ring, exchange, neighbour, steps, hops = reach(system, (1.0, 8.0))
    assert (ring, neighbour, steps, hops) == pytest.approx((0.5, 0.25, 4.0, 2.0))
    assert exchange == pytest.approx(7.0 / 8.0 / 4.0)
    assert float(collectives.all_to_all(V, route(system, 8.0, (1.0, 8.0)))) == pytest.approx(4.0 * V / B, rel=1e-5)


def test_every_second_device_of_a_ring():
    """Two members, two apart on a ring of 4 that another pair shares.

    They have half of the two links of the axis: 1 of 4. The other member is two links away. All-to-all: of the pairs on
    both sides of a cut 2 x V / 2 crosses 2 links: V / 2 a link of B / 4, which is 2 V / B; their own ring of one
    link carries V / 2 in the same time. A send to the next member has half of a link.
    """
    system = torus(4.0, 4.0, 8.0)
    ring, exchange, neighbour, steps, hops = reach(system, (2.0, 2.0))
    assert (ring, exchange, neighbour, steps, hops) == pytest.approx((0.25, 0.25, 0.125, 1.0, 2.0))
    pair = route(system, 2.0, (2.0, 2.0))
    assert float(collectives.all_to_all(V, pair)) == pytest.approx(2.0 * V / B, rel=1e-5)
    assert float(collectives.send(V, pair)) == pytest.approx(8.0 * V / B, rel=1e-5)


@pytest.mark.parametrize("stride", [1.0, 4.0])
@pytest.mark.parametrize("topology", [Topology.torus, Topology.hypercube])
def test_a_group_of_one_has_one_link_and_uses_none(topology, stride):
    system = built(32.0, Links(topology=float(topology), per_device=4.0, wrap=4.0, x=4.0, y=8.0))
    ring, exchange, neighbour, steps, hops = reach(system, (stride, 1.0))
    assert (ring, neighbour, steps, hops) == pytest.approx((0.25, 0.25, 0.0, 0.0)) and exchange > 0.0


def test_the_column_of_a_torus():
    """Every fourth device of 4 x 8, a ring of 8: two of four links, 4 steps, links 0 1 2 3 4 3 2 1: 16 / 7 to others.

    All-to-all: 4 devices a side, V / 2 each over 2 links of B / 4: V a link, 4 V / B.
    """
    system = torus(4.0, 4.0, 8.0)
    ring, exchange, neighbour, steps, hops = reach(system, (4.0, 8.0))
    assert (ring, exchange, neighbour, steps) == pytest.approx((0.5, 7.0 / 8.0 / 4.0, 0.25, 4.0))
    assert hops == pytest.approx(16.0 / 7.0)
    assert float(collectives.all_to_all(V, route(system, 8.0, (4.0, 8.0)))) == pytest.approx(4.0 * V / B, rel=1e-5)


def test_a_hypercube_of_eight_with_four_links_a_device():
    """Links to a device: 0, three of 1, three of 2, one of 3: 12 / 7 without itself. Three of four links are used.

    All-to-all: 4 devices a side, V / 2 each over the 4 links of a dimension: V / 2 a link of B / 4, 2 V / B.
    """
    system = built(8.0, Links(topology=float(Topology.hypercube), per_device=4.0))
    ring, exchange, neighbour, steps, hops = reach(system, (1.0, 8.0))
    assert (ring, exchange, neighbour, steps) == pytest.approx((0.75, 7.0 / 8.0 / 2.0, 0.25, 3.0))
    assert hops == pytest.approx(12.0 / 7.0)
    whole = route(system, 8.0, (1.0, 8.0))
    assert float(collectives.all_to_all(V, whole)) == pytest.approx(2.0 * V / B, rel=1e-5)
    # To 7 others V / 8 each over 12 / 7 links: 12 x 4e9 x 10 pJ.
    assert float(collectives.energy(MessageKind.all_to_all, V, whole)) == pytest.approx(0.48, rel=1e-5)


@pytest.mark.parametrize(
    ("members", "ring", "exchange", "hops"),
    # Eight: of seven peers four are one link away, three two: (4 + 6) / 7; six links over that mean.
    [(8.0, 1.0, 0.7, 10.0 / 7.0), (6.0, 4.0 / 6.0, 4.0 / 6.0 / 1.2, 1.2), (4.0, 4.0 / 6.0, 0.5, 1.0),
     (2.0, 1.0 / 6.0, 1.0 / 6.0, 1.0)],
)  # fmt: skip
def test_a_cube_mesh_of_six_links_a_device(members, ring, exchange, hops):
    system = built(8.0, Links(topology=float(Topology.cube_mesh), per_device=6.0))
    assert reach(system, (1.0, members)) == pytest.approx((ring, exchange, 1.0 / 6.0, members - 1.0, hops))
    # V / N to each of the others over the mean number of links.
    joules = V * (members - 1.0) / members * hops * JOULES
    found = collectives.energy(MessageKind.all_to_all, V, route(system, members, (1.0, members)))
    assert float(found) == pytest.approx(joules, rel=1e-5)


@pytest.mark.parametrize(("members", "speedup"), [(2.0, 3.0), (4.0, 1.0)])
def test_members_of_a_package_are_one_link_apart(members, speedup):
    """Two dies of a package have three times the bandwidth; a byte to another die takes one link, not N / (N - 1)."""
    system = built(8.0, package=Package(dies=2.0, speedup=3.0))
    assert reach(system, (1.0, members)) == pytest.approx((speedup, speedup, speedup, members - 1.0, 1.0))
    sent = V * (members - 1.0) / members
    found = route(system, members, (1.0, members))
    assert float(collectives.energy(MessageKind.all_to_all, V, found)) == pytest.approx(sent * JOULES, rel=1e-5)
    assert float(collectives.exchange_energy(sent, 0.0, found)) == pytest.approx(sent * JOULES, rel=1e-5)
    assert float(collectives.all_to_all(V, found)) == pytest.approx(sent / (speedup * B), rel=1e-5)


@pytest.mark.parametrize(
    ("runs", "ring", "exchange", "neighbour"),
    [
        # Two dies of a module: their four links.
        (((1.0, 2.0),), 4.0, 4.0, 4.0),
        # Two modules: each die has one link to the other module. Both ways around, over it and over its sibling: 2. Two
        # thirds of the bytes of an all-to-all leave the module: 1 / (2 / 3).
        (((1.0, 4.0),), 2.0, 1.5, 1.0),
        # Four: two rings without a common link, both ways around; six of seven peers are on other modules: 2 / (6 / 7).
        (((1.0, 8.0),), 4.0, 14.0 / 6.0, 1.0),
        # One die of each module: a ring over its two links, both ways; all peers are on other modules.
        (((2.0, 4.0),), 2.0, 2.0, 1.0),
        # One die of each of two modules, far from each other: one link.
        (((4.0, 2.0),), 1.0, 1.0, 1.0),
        # tp 2 inside, two shards of it: the four dies of two modules.
        (((1.0, 2.0), (2.0, 2.0)), 2.0, 1.5, 1.0),
    ],
)
def test_modules_of_two_dies_with_links_to_two_others(runs, ring, exchange, neighbour):
    """Frontier's node by its links (RCCL's rome_model_74): shares of one link of a die."""
    system = built(8.0, package=Package(dies=2.0, speedup=4.0, neighbours=2.0))
    size = 1.0
    for _, members in runs:
        size *= members
    assert reach(system, *runs) == pytest.approx((ring, exchange, neighbour, size - 1.0, 1.0))
    # Of rings: V (N - 1) / N at so many links.
    taken = float(collectives.all_gather(V, route(system, size, *runs), 0.0))
    assert taken == pytest.approx(V * (size - 1.0) / size / (ring * B), rel=1e-5)


def test_links_to_no_other_module_are_a_switch():
    """Without neighbours a group of several packages has the bandwidth of the network, as before."""
    for runs in (((1.0, 4.0),), ((1.0, 8.0),), ((2.0, 4.0),)):
        found = reach(built(8.0, package=Package(dies=2.0, speedup=4.0)), *runs)
        assert found[:3] == pytest.approx((1.0, 1.0, 1.0))
