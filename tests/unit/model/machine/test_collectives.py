"""Collectives over two levels: textbook costs are special cases."""

import csv
import dataclasses
import gzip
import itertools
import math
import statistics
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dse import types
from dse.designs import catalog
from dse.model import Route, groups
from dse.model.machine import collectives
from dse.model.machine.routes import domain_level
from dse.types import Collective, Group, MessageKind, Volumes
from tests.designs import SCALE_OUT, SCALE_UP, SYSTEM, make_design

PLAIN = dataclasses.replace(
    SYSTEM,
    scale_up=dataclasses.replace(SCALE_UP, efficiency=1.0, ramp=0.0, latency=1e-6),
    scale_out=dataclasses.replace(SCALE_OUT, efficiency=1.0, ramp=0.0, latency=5e-6),
)
REDUCING = dataclasses.replace(PLAIN, scale_up=dataclasses.replace(PLAIN.scale_up, in_network_reduction=1.0))
ALGORITHMS = [float(c) for c in Collective]
SIZES = st.floats(1e3, 1e10)
GROUPS = st.sampled_from([Group(2.0, 2.0), Group(8.0, 8.0), Group(16.0, 8.0), Group(64.0, 1.0), Group(512.0, 4.0)])


def placed(**degrees):
    return groups.communicators(make_design(**degrees).mapping, PLAIN)


def test_a_group_of_one_costs_nothing():
    for algorithm in ALGORITHMS:
        assert float(collectives.all_reduce(1e9, Route(Group(1.0, 1.0), PLAIN), algorithm)) == 0.0
        assert float(collectives.all_gather(1e9, Route(Group(1.0, 1.0), PLAIN), algorithm)) == 0.0


def test_ring_inside_one_domain():
    """2 (P - 1) (alpha + S / (P B)) (Thakur et al. 2005); a ramp of under a byte is left out of both."""
    size, members = 1e9, 8.0
    expected = 2 * (members - 1) * (1e-6 + size / members / 300e9)
    found = collectives.all_reduce(size, Route(Group(members, members), PLAIN), float(Collective.ring))
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_ring_across_domains_uses_every_members_own_link():
    """Eight members a domain cross with eight links; with one member a domain a single link is left."""
    size = 1e9
    wide = collectives.all_gather(size, Route(Group(64.0, 8.0), PLAIN), float(Collective.ring))
    narrow = collectives.all_gather(size, Route(Group(64.0, 1.0), PLAIN), float(Collective.ring))
    assert float(narrow) == pytest.approx(63 * 5e-6 + size * 63 / 64 / 25e9, rel=1e-4)
    assert float(wide) < float(narrow)


@pytest.mark.parametrize("collective", [collectives.all_gather, collectives.all_reduce])
def test_a_single_ring_enters_a_domain_over_one_link(collective):
    """Large messages take as long as with one member a domain, and a ring inside one domain is a single one."""
    ring, single = float(Collective.ring), float(Collective.single_ring)
    wide, narrow = Route(Group(64.0, 8.0), PLAIN), Route(Group(64.0, 1.0), PLAIN)
    assert float(collective(1e12, wide, single)) == pytest.approx(float(collective(1e12, narrow, ring)), rel=1e-3)
    inside = Route(Group(8.0, 8.0), PLAIN)
    assert float(collective(1e9, inside, single)) == float(collective(1e9, inside, ring))


def test_in_switch_reduction_halves_a_large_all_reduce():
    """Each byte crosses a link once each way: towards a factor of two against the ring, 14/9 with eight members."""
    size, group = 1e10, Group(8.0, 8.0)
    ring = float(collectives.all_reduce(size, Route(group, REDUCING), float(Collective.ring)))
    switch = float(collectives.all_reduce(size, Route(group, REDUCING), float(Collective.in_switch)))
    assert ring / switch == pytest.approx((2 * 7 / 8) / (9 / 8), rel=1e-2)


@given(size=SIZES, group=GROUPS)
def test_auto_is_the_fastest(size, group):
    auto = float(collectives.all_reduce(size, Route(group, REDUCING), float(Collective.auto)))
    counted_on = [a for a in ALGORITHMS if a not in (Collective.auto, Collective.doubling, Collective.single_ring)]
    others = [float(collectives.all_reduce(size, Route(group, REDUCING), a)) for a in counted_on]
    assert auto == pytest.approx(min(others))


@pytest.mark.parametrize("domains", [2.0, 64.0, 2048.0])
def test_latency_across_domains_grows_with_their_number_or_its_logarithm(domains):
    """Of a small gather over nodes of eight: a ring enters every other node once, doubling takes log2 of them."""
    route = Route(Group(8.0 * domains, 8.0), PLAIN)
    ring = float(collectives.all_gather(1.0, route, float(Collective.ring)))
    doubling = float(collectives.all_gather(1.0, route, float(Collective.doubling)))
    assert ring == pytest.approx((domains - 1.0) * 5e-6 + 7.0 * domains * 1e-6, rel=1e-3)
    assert doubling == pytest.approx(math.log2(domains) * 5e-6 + 7.0 * 1e-6, rel=1e-3)


MESH = dataclasses.replace(PLAIN, scale_up=dataclasses.replace(PLAIN.scale_up, mesh=1.0, domain=8.0, latency=0.0))


@pytest.mark.parametrize(("members", "links"), [(2.0, 1.0), (4.0, 3.0), (8.0, 7.0)])
def test_in_a_full_mesh_a_pair_has_one_link(members, links):
    """Seven links of 300/7 GB/s: those that lead to the other members carry a gather, a switch would carry all."""
    size = 1e9
    meshed, switched = (
        float(collectives.all_gather(size, Route(Group(members, members), system), float(Collective.ring)))
        for system in (MESH, dataclasses.replace(PLAIN, scale_up=dataclasses.replace(MESH.scale_up, mesh=0.0)))
    )
    assert meshed / switched == pytest.approx(7.0 / links, rel=1e-4)
    pair = float(collectives.send(size, Route(Group(2.0, 2.0), MESH)))
    assert pair == pytest.approx(size / (300e9 / 7.0), rel=1e-4)


@given(size=SIZES, crowding=st.floats(0.0, 3.0), kind=st.sampled_from(list(MessageKind)))
def test_behind_shared_bridges_more_members_and_bytes_never_take_less(size, crowding, kind):
    """Two have all of the bandwidth, as behind a switch; without crowding so have all."""

    def seconds(members, crowding, size=size):
        system = dataclasses.replace(PLAIN, scale_up=dataclasses.replace(PLAIN.scale_up, crowding=crowding))
        route = Route(Group(members, members), system)
        return float(collectives.time(kind, size, route, float(Collective.auto)))

    times = [seconds(members, crowding) for members in (2.0, 3.0, 4.0, 6.0, 8.0, 16.0)]
    assert all(more >= fewer * (1.0 - 1e-6) for fewer, more in itertools.pairwise(times))
    assert times[0] == pytest.approx(seconds(2.0, 0.0), rel=1e-6)
    assert seconds(8.0, crowding) >= seconds(8.0, 0.0) * (1.0 - 1e-6)
    assert seconds(8.0, crowding, 2.0 * size) >= seconds(8.0, crowding) * (1.0 - 1e-6)


def test_members_behind_shared_bridges_share_what_leads_through_them():
    """``1 + c (N - 2)`` times as long a byte: of eight, at 1.5, ten times."""
    bridged = dataclasses.replace(PLAIN.scale_up, crowding=1.5)
    switched = domain_level(PLAIN.scale_up, 8.0).byte_time
    assert [float(domain_level(bridged, n).byte_time / switched) for n in (2.0, 4.0, 8.0)] == pytest.approx(
        [1.0, 4.0, 10.0]
    )


ROWS = Path(__file__).parents[5] / "shared" / "reference" / "kernels" / "aic_nccl.csv.gz"
KINDS = {
    "all_reduce": MessageKind.all_reduce,
    "all_gather": MessageKind.all_gather,
    "reduce_scatter": MessageKind.reduce_scatter,
    "alltoall": MessageKind.all_to_all,
}


@pytest.mark.skipif(not ROWS.is_file(), reason="the reference tables are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "device"), [("l40s-shared-root", "l40s"), ("rtx-pro-6000-server", "rtx_pro_6000_server")]
)
@pytest.mark.parametrize("members", [2, 4, 8])
def test_cards_on_pcie_against_their_hosts_nccl_rows(name, device, members):
    """Collectives of steps, of at least 1 MB: in the median within a factor of 1.3, all within 2.

    Source: NCCL tables of ai-dynamo/aiconfigurator. The same rows gave the values: this says that one leaf tells groups
    of each size apart, not how near it comes on another host, which may have a tenth of its crowding.
    """
    system = catalog.record(types.System, name)
    with gzip.open(ROWS, "rt", encoding="utf-8", newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["system"] == device
            and row["dtype"] == "half"
            and int(row["num_gpus"]) == members
            and float(row["bytes"]) >= 1e6
        ]
    route = Route(Group(float(members), float(members)), system)
    logs = [
        math.log(
            float(collectives.time(KINDS[row["collective"]], float(row["bytes"]), route, float(Collective.auto)))
            / (1e-3 * float(row["latency_ms"]))
        )
        for row in rows
    ]
    assert len(logs) >= 5
    assert statistics.median(map(abs, logs)) < math.log(1.3)
    assert max(map(abs, logs)) < math.log(2.0)


def test_crowding_is_of_a_host_and_none_by_default():
    """Cards of one kind behind shared root ports and behind switches; a network alone has none."""
    crowded = {
        name: float(catalog.record(types.System, name).scale_up.crowding)
        for name in ("l40s", "l40s-shared-root", "rtx-pro-6000-server", "a100-pcie-40gb", "h100-sxm-80gb")
    }
    assert crowded == pytest.approx(
        {
            "l40s": 0.0,
            "l40s-shared-root": 1.6,
            "rtx-pro-6000-server": 0.091,
            "a100-pcie-40gb": 0.0,
            "h100-sxm-80gb": 0.0,
        }
    )
    for name in ("pcie3-x16", "pcie4-x16", "pcie5-x16", "pcie6-x16", "pcie7-x16"):
        assert catalog.record(types.Network, name).crowding == 0.0


def test_catalogued_meshes():
    """MI300X: seven Infinity Fabric links of 64 GB/s; Gaudi 3: three 200 Gb/s ports to each of the seven others."""
    for name, link in (("mi300x", 64e9), ("mi355x", 76.8e9), ("gaudi-3", 75e9)):
        network = catalog.record(types.System, name).scale_up
        assert domain_level(network, 2.0).byte_time * network.efficiency == pytest.approx(1.0 / link, rel=1e-3), name
        assert domain_level(network, 8.0).byte_time * network.efficiency == pytest.approx(1.0 / network.bandwidth), name


@given(size=SIZES, group=GROUPS, factor=st.floats(1.0, 10.0))
def test_more_bytes_take_longer(size, group, factor):
    for algorithm in ALGORITHMS:
        small = float(collectives.all_reduce(size, Route(group, SYSTEM), algorithm))
        assert float(collectives.all_reduce(size * factor, Route(group, SYSTEM), algorithm)) >= small * (1 - 1e-6)


@given(size=SIZES, group=GROUPS)
def test_an_all_reduce_is_no_cheaper_than_its_bytes(size, group):
    """Every member must take in the others' sum: at least S (P - 1) / P over all its links."""
    time = float(collectives.all_reduce(size, Route(group, REDUCING), float(Collective.auto)))
    assert time >= size * (group.size - 1) / group.size / (300e9 + 25e9)


@pytest.mark.parametrize(
    ("placement", "expected"), [(0, (8.0, 1.0, 1.0)), (1, (8.0, 1.0, 1.0))], ids=["dp inside pp", "pp inside dp"]
)
def test_a_full_node_of_tensor_parallelism_sends_everything_else_outside(placement, expected):
    groups = placed(tp=8, pp=4, dp=2, placement=placement)
    assert (groups.tp.local, groups.dp.local, groups.pp.local) == expected


@pytest.mark.parametrize(
    ("size", "stride", "local"),
    [(8, 1, 8), (4, 1, 4), (16, 1, 8), (6, 1, 6), (12, 1, 6), (4, 8, 1), (4, 2, 4), (3, 1, 3), (7, 1, 7), (14, 1, 7)],
)
def test_members_of_a_group_in_a_node_of_eight(size, stride, local):
    """All that fit, else as many as divide the group: nodes are filled with whole parts of it."""
    assert float(groups.members_within(float(size), float(stride), 8.0)) == local


@pytest.mark.parametrize(
    ("degrees", "local"),
    [((16, 4), (16, 4)), ((16, 64), (16, 4)), ((8, 8), (8, 8)), ((8, 72), (8, 9))],
)
def test_a_rack_of_72_holds_what_fits(degrees, local):
    """64 devices of a job fit into one rack; of larger ones 64 of 72 are used where a group has no factor of nine."""
    rack = dataclasses.replace(PLAIN, scale_up=dataclasses.replace(PLAIN.scale_up, domain=72.0))
    found = groups.communicators(make_design(tp=degrees[0], dp=degrees[1]).mapping, rack)
    assert (float(found.tp.local), float(found.dp.local)) == local


@given(whole=st.integers(1, 1 << 20), most=st.integers(1, (1 << 15) - 2))
def test_largest_divisor(whole, most):
    found = float(groups.largest_divisor(float(whole), float(most)))
    assert found <= most and whole % found == 0.0
    assert found <= float(groups.largest_divisor(float(whole), most + 1.0))
    odd = whole // (whole & -whole)
    if odd in (1, 3, 5, 7, 9, 11, 13):
        assert found == max(d for i in range(21) for f in range(1, 14) if (d := f << i) <= most and whole % d == 0)
    if whole <= most:
        assert found == whole


#: nccl-tests style facts, 8 H100 of one node: bytes and measured bus bandwidth (ai-dynamo/aiconfigurator).
H100_ALL_REDUCE = [(16_777_216, 241e9), (67_108_864, 364e9), (268_435_456, 431e9), (536_870_912, 445e9)]
EOS_NODE = Route(Group(8.0, 8.0), catalog.record(types.System, "eos"))
H100_ALL_GATHER = [(67_108_864, 292e9), (268_435_456, 322e9), (536_870_912, 336e9)]


@pytest.mark.parametrize(("size", "measured"), H100_ALL_REDUCE)
def test_in_switch_all_reduce_of_an_h100_node(size, measured):
    time = float(collectives.all_reduce(float(size), EOS_NODE, float(Collective.auto)))
    assert 2 * 7 / 8 * size / time == pytest.approx(measured, rel=0.2)


@pytest.mark.parametrize(("size", "measured"), H100_ALL_GATHER)
def test_all_gather_of_an_h100_node(size, measured):
    time = float(collectives.all_gather(float(size), EOS_NODE, float(Collective.auto)))
    assert 7 / 8 * size / time == pytest.approx(measured, rel=0.15)


def test_placement_decides_who_stays_inside_the_node():
    dp_inside, pp_inside = (placed(tp=2, pp=4, dp=4, placement=placement) for placement in (0, 1))
    assert (float(dp_inside.dp.local), float(dp_inside.pp.local)) == (4.0, 1.0)
    assert (float(pp_inside.dp.local), float(pp_inside.pp.local)) == (1.0, 2.0)


@given(t=st.floats(0, 1), window=st.floats(0, 1), overlap=st.floats(0, 1), usage=st.floats(0, 0.5))
def test_exposure_is_bounded(t, window, overlap, usage):
    """max(t_comm - window, (1 - overlap) t_comm) when hiding costs no compute; never more than t_comm."""
    free = float(collectives.exposed(t, window, overlap, 0.0))
    assert free == pytest.approx(max(t - window, (1 - overlap) * t), abs=1e-6)
    assert free - 1e-6 <= float(collectives.exposed(t, window, overlap, usage)) <= t + 1e-6


def stated(**volumes):
    """The plain system with collectives of stated volume on both levels, those of a ring by default."""
    ring = dict(gather=1.0, gather_share=-1.0, reduce=2.0, reduce_share=-2.0, reduction_traffic=0.0)
    record = Volumes(**(ring | volumes))
    levels = {name: dataclasses.replace(getattr(PLAIN, name), volumes=record) for name in ("scale_up", "scale_out")}
    return dataclasses.replace(PLAIN, **levels)


def test_stated_volumes_of_a_ring_are_a_ring_with_one_latency():
    """(a + b / N) S / B + alpha: of all algorithms only the bytes are left."""
    group = Group(8.0, 8.0)
    for collective, steps in ((collectives.all_gather, 7.0), (collectives.all_reduce, 14.0)):
        ring = float(collective(1e9, Route(group, PLAIN), float(Collective.ring))) - steps * 1e-6
        assert float(collective(1e9, Route(group, stated()), 0.0)) == pytest.approx(ring + 1e-6, rel=1e-4)


def test_stated_volumes_add_up_over_the_levels_and_reductions_may_cost_memory():
    inside = Group(8.0, 8.0)
    both, in_domain, across = (
        float(collectives.all_gather(size, Route(group, stated()), 0.0))
        for size, group in ((8e9, Group(32.0, 8.0)), (8e9, inside), (1e9, Group(4.0, 1.0)))
    )
    assert both == pytest.approx(in_domain + across)
    assert float(collectives.all_reduce(1e9, Route(Group(1.0, 1.0), stated()), 0.0)) == 0.0
    assert float(collectives.summing_time(1e9, inside, PLAIN)) == 0.0
    summed = collectives.summing_time(1e9, inside, stated(reduction_traffic=2.0))
    memory = PLAIN.accelerator.memory.bandwidth * PLAIN.accelerator.kernels.memory_efficiency
    assert float(summed) == pytest.approx(2e9 / memory)


# Messages of every kind

PRICED = dataclasses.replace(
    PLAIN,
    scale_up=dataclasses.replace(PLAIN.scale_up, energy=1e-11),
    scale_out=dataclasses.replace(PLAIN.scale_out, energy=9e-11),
)


@given(size=SIZES, group=GROUPS, kind=st.sampled_from(MessageKind))
def test_no_message_is_faster_than_the_bytes_that_leave_a_device(size, group, kind):
    """At least a ring's share over all its links, or what a switch takes in; energy is the price of those bytes."""
    route = Route(group, PRICED)
    time = float(collectives.time(kind, size, route, float(Collective.auto)))
    fraction = 1.0 if kind is MessageKind.send else (group.size - 1.0) / group.size
    assert time >= fraction * size / (300e9 + 25e9)
    joules = float(collectives.energy(kind, size, route))
    rounds = 2.0 if kind is MessageKind.all_reduce else 1.0
    assert rounds * fraction * size * 1e-11 * (1 - 1e-6) <= joules <= rounds * fraction * size * 9e-11 * (1 + 1e-6)


def test_the_energy_of_a_byte_is_that_of_the_links_it_crosses():
    """Of eight hops of a ring through nodes of eight one leaves the node; a send between nodes leaves it whole."""
    crossing = float(collectives.energy(MessageKind.send, 1.0, Route(Group(64.0, 8.0), PRICED)))
    assert crossing == pytest.approx((7.0 * 1e-11 + 9e-11) / 8.0, rel=1e-6, abs=0.0)
    apart = float(collectives.energy(MessageKind.send, 1.0, Route(Group(2.0, 1.0), PRICED)))
    assert apart == pytest.approx(9e-11, rel=1e-6, abs=0.0)
    assert float(collectives.energy(MessageKind.all_reduce, 1.0, Route(Group(1.0, 1.0), PRICED))) == 0.0


def test_a_send_takes_the_network_that_joins_the_farthest_neighbours():
    inside, across = (float(collectives.send(1e9, Route(Group(2.0, local), PLAIN))) for local in (2.0, 1.0))
    assert (inside, across) == pytest.approx((1e-6 + 1e9 / 300e9, 5e-6 + 1e9 / 25e9), rel=1e-4)
