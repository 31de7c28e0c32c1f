"""Links without a switch: tori, meshes, hypercubes and packages against closed forms, bounds, a walk of every link."""

from __future__ import annotations

import dataclasses
import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

import dse
from dse import types
from dse.designs import catalog
from dse.errors import InputError
from dse.model import Route, links as model
from dse.model.machine import collectives
from dse.sweep import from_text, plan
from dse.types import Collective, Group, Infeasible, Links, MessageKind, Package, Topology
from tests.designs import SCALE_UP, SYSTEM
from tests.oracles import torus
from tests.programs import metrics_of
from tests.unit.model.machine.test_collectives import PLAIN, REDUCING

SIZE = 1e6


def pod(axes, wrap=1.0, per_device=6.0, **stated):
    """A system of one slice whose links carry a byte a second."""
    lengths = [length for length, _ in axes] + [1] * (3 - len(axes))
    links = Links(topology=0.0, per_device=per_device, wrap=wrap, x=float(lengths[0]), y=float(lengths[1]), **stated)
    count = float(np.prod(lengths))
    network = dataclasses.replace(
        SCALE_UP, bandwidth=per_device, latency=0.0, efficiency=1.0, ramp=0.0, domain=count, links=links
    )
    return dataclasses.replace(SYSTEM, scale_up=network, n_devices=count)


def whole(system, count):
    return Route(Group(count, count, reach=model.reach_in(system, 1.0)((1.0, count))), system)


SHAPES = [
    ((4, True),), ((2, False),), ((3, False),), ((4, True), (4, True)), ((3, False), (3, False)),
    ((2, True), (2, True)), ((4, True), (2, True)), ((4, False), (2, False)),
    ((4, True), (4, True), (4, True)), ((2, False),) * 3,
]  # fmt: skip


@pytest.mark.parametrize("axes", SHAPES, ids=str)
def test_as_walked_over_every_link(axes):
    """A gather as by multi-ring where all axes are alike, never slower than that elsewhere; an all-to-all as routed."""
    wraps = axes[0][1]
    system = pod(axes, wrap=1.0 if wraps else 1024.0)
    count = float(np.prod([length for length, _ in axes]))
    gather = float(collectives.all_gather(SIZE, whole(system, count), float(Collective.auto)))
    exchange = float(collectives.all_to_all(SIZE, whole(system, count)))
    walked = torus.all_gather(axes, SIZE)
    alike = len({length for length, _ in axes}) == 1
    assert gather == pytest.approx(walked, rel=1e-4) if alike else walked / 1.3 <= gather <= walked * (1 + 1e-4)
    if all(length % 2 == 0 for length, _ in axes):
        assert exchange == pytest.approx(torus.all_to_all(axes, SIZE), rel=1e-4)
    # No algorithm beats what the poorest device can take in, or what fits through the worst cut.
    taken_in = SIZE * (count - 1.0) / count / torus.poorest(axes)
    cut = SIZE * torus.narrowest_cut(axes)
    assert min(gather, exchange) >= taken_in * (1 - 1e-4) and exchange >= cut * (1 - 1e-4)
    for algorithm in Collective:
        assert float(collectives.all_gather(SIZE, whole(system, count), float(algorithm))) >= taken_in * (1 - 1e-4)
        assert float(collectives.all_reduce(SIZE, whole(system, count), float(algorithm))) >= 2 * taken_in * (1 - 1e-4)


@pytest.mark.parametrize("axes", SHAPES, ids=str)
def test_experts_exchange_as_all_do(axes):
    """What is sent inside a domain and out of it, apart, is an all-to-all where parts are equal and nothing leaves."""
    system = pod(axes, wrap=1.0 if axes[0][1] else 1024.0)
    count = float(np.prod([length for length, _ in axes]))
    route = whole(system, count)
    near = SIZE * (count - 1.0) / count
    assert float(collectives.exchange(near, 0.0, route)) == pytest.approx(float(collectives.all_to_all(SIZE, route)))
    energy = float(collectives.energy(MessageKind.all_to_all, SIZE, route))
    assert float(collectives.exchange_energy(near, 0.0, route)) == pytest.approx(energy)


def test_closed_forms_of_a_pod():
    """16 x 16 around: four links a gather; ``V k / (8 b)`` an all-to-all; lines of 8 have half the links."""
    system = pod(((16, True), (16, True)), wrap=16.0, per_device=4.0)
    route = whole(system, 256.0)
    gather = float(collectives.all_gather(SIZE, route, 0.0))
    assert gather == pytest.approx(SIZE * 255 / 256 / 4, rel=1e-4)
    assert float(collectives.all_reduce(SIZE, route, 0.0)) == pytest.approx(2 * gather, rel=1e-4)
    assert float(collectives.all_to_all(SIZE, route)) == pytest.approx(SIZE * 16 / 8, rel=1e-4)
    assert float(collectives.send(SIZE, route)) == pytest.approx(SIZE, rel=1e-4)
    part = whole(pod(((8, False), (8, False)), wrap=16.0, per_device=4.0), 64.0)
    assert float(collectives.all_gather(SIZE, part, 0.0)) == pytest.approx(SIZE * 63 / 64 / 2, rel=1e-4)
    assert float(collectives.all_to_all(SIZE, part)) == pytest.approx(SIZE * 8 / 4, rel=1e-4)


@pytest.mark.parametrize(("stride", "size"), [(1, 2), (1, 4), (1, 8), (2, 2), (2, 8), (4, 4), (4, 16), (16, 4), (8, 8)])
def test_members_of_a_group_are_counted_on_every_axis(stride, size):
    """Every ``stride``-th device of 4 x 4 x 4: how many coordinates of an axis it has, and who lies between."""
    links = Links(topology=0.0, per_device=6.0, wrap=4.0)
    place = [(n % 4, n // 4 % 4, n // 16) for n in range(0, stride * size, stride)]
    edges = model.axis_edges(links, 64.0)
    for axis, (low, high) in enumerate(itertools.pairwise(edges)):
        found = model.torus_axis(links, low, high, ((float(stride), float(size)),))
        used = sorted({where[axis] for where in place})
        assert float(found.members) == len(used)
        if len(used) > 1:
            gap = used[1] - used[0]
            assert float(found.sharing) == gap and float(found.directions) == (2 if gap * len(used) == 4 else 1)


@pytest.mark.parametrize(
    ("chip", "devices", "tp", "shape"),
    [("tpu-v4", 64, 1, (4, 4, 4)), ("tpu-v4", 192, 1, (4, 4, 12)), ("tpu-v5p", 256, 8, (8, 4, 8)),
     ("tpu-v5p", 2048, 16, (16, 8, 16)), ("tpu-v5p", 6144, 1, (16, 16, 24)), ("tpu-v5e", 128, 1, (8, 16, 1)),
     ("tpu-v5e", 512, 1, (16, 16, 1)), ("tpu-v6e", 8, 1, (2, 4, 1)), ("tpu-v4", 192, 8, (4, 4, 12)),
     ("tpu-v4", 4096, 8, (8, 16, 32)), ("tpu-v4", 4096, 4, (4, 32, 32)), ("tpu-v4", 4096, 1, (16, 16, 16))],
)  # fmt: skip
def test_slices_are_as_near_to_a_cube_as_they_come_and_tp_has_an_axis(chip, devices, tp, shape):
    """Of 512 chips of pods of 256 two whole pods are in use."""
    network = catalog.record(types.System, chip).scale_up
    edges = model.axis_edges(network.links, min(float(devices), network.domain), float(tp))
    assert tuple(b / a for a, b in itertools.pairwise(map(float, edges))) == shape


@pytest.mark.parametrize("tp", [4, 8])
def test_larger_slices_of_more_sequences_are_as_fast_a_chip(tp):
    """Slices are asked for in shapes that suit tp: no count of chips leaves its ring a line."""
    found = [
        metrics_of(
            dse.design("llama-3-70b", "tpu-v4-pod", n_devices=n, tp=tp, zero_stage=3, recompute="full", global_batch=n)
        )
        for n in (64, 192, 1024, 4096)
    ]
    rates = [float(one.tokens_per_second_per_device) for one in found]
    assert min(rates) > 0.92 * max(rates)


def test_stated_axes_that_do_not_fill_a_slice_cannot_be():
    found = [dse.evaluate(dse.design("llama-2-7b", "tpu-v5e", n_devices=64, **{"links.x": x})) for x in (8, 24)]
    assert not int(found[0].infeasible_reason) & Infeasible.network_too_small
    assert int(found[1].infeasible_reason) & Infeasible.network_too_small


@pytest.mark.parametrize("study", ["training", "serving"])
def test_axes_beyond_a_slice_are_a_reason_and_no_overflow(study):
    """300 devices along an axis of 192, of three axes and of two."""
    for chip, axes in (("tpu-v4", {"links.x": 300}), ("tpu-v4", {"links.y": 300}), ("tpu-v5e", {"links.x": 300})):
        found = dse.explain(dse.design("llama-2-7b", chip, n_devices=192, tp=8, dp=24, **axes), study=study)
        assert "network_too_small" in {reason.name for reason in found.reasons}
        assert all(math.isfinite(value) for value in found.metrics.values())


@pytest.mark.parametrize("leaf", ["per_device", "links.wrap", "links.x", "slice_loss"])
def test_a_leaf_of_a_torus_does_not_take_a_switch_away(leaf):
    with pytest.raises(InputError, match=r"a system whose links are switched.*links\.topology too"):
        dse.design("llama-2-7b", "eos", n_devices=8, tp=8, **{leaf: 1})
    torus = dse.design("llama-2-7b", "eos", n_devices=8, tp=8, **{leaf: 1, "links.topology": "torus"})
    assert torus.system.scale_up.links is not None
    text = 'workload.name = "llama-2-7b"\nsystem.name = "{}"\nsystem.n_devices = 8\n[axes]\n{} = [1]\n'
    with pytest.raises(InputError, match="a system whose links are switched"):
        plan(from_text(text.format("eos", f'"{leaf}"')))
    for chosen in ('"links.topology" = ["torus"]', '"links.topology" = ["torus", "hypercube"]'):
        assert plan(from_text(text.format("eos", f'{chosen}\n"{leaf}"')))[0].base.system.scale_up.links is not None
    assert plan(from_text(text.format("tpu-v5e", f'"{leaf}"')))[0].base.system.scale_up.links.per_device in (1.0, 4.0)


def built(devices, **links):
    """Whether so many devices can be joined by such links."""
    network = dataclasses.replace(SCALE_UP, domain=2048.0, links=Links(**links))
    system = dataclasses.replace(SYSTEM, scale_up=network, n_devices=jnp.asarray(devices, jnp.float32))
    return ~model.faults(system, 1.0)[0]


@pytest.mark.parametrize("per_device", [1.0, 3.0, 6.0, 10.0])
def test_a_hypercube_is_a_power_of_two_with_a_link_a_dimension(per_device):
    devices = np.arange(1, 2049)
    can_be = [n.bit_count() == 1 and n <= 2**per_device for n in devices.tolist()]
    np.testing.assert_array_equal(built(devices, topology=float(Topology.hypercube), per_device=per_device), can_be)


def test_a_torus_has_two_links_an_axis():
    """One where the axis is a pair; no more axes than links."""
    assert built(64, per_device=4.0) and built(64, per_device=6.0) and built(8, per_device=3.0, x=2.0, y=2.0)
    assert not built(64, per_device=4.0, x=4.0, y=4.0) and built(64, per_device=4.0, x=8.0, y=8.0)
    assert not built(64, per_device=2.0) and built(64, per_device=2.0, x=64.0)
    assert not built(8, per_device=1.0, x=8.0) and built(2, per_device=1.0)


def test_what_a_device_has_too_few_links_for_is_told():
    stated = {"links.topology": "hypercube", "links.per_device": 3, "scale_up.domain": 16}
    found = dse.explain(dse.design("llama-2-7b", "tpu-v5e", n_devices=16, tp=8, dp=2, **stated))
    (told,) = [reason.numbers for reason in found.reasons if reason.name == "network_too_small"]
    assert "a hypercube of links.per_device=3" in told and "links.x" not in told


def cube_mesh(devices=8.0, per_device=6.0):
    links = Links(topology=float(Topology.cube_mesh), per_device=per_device)
    network = dataclasses.replace(SCALE_UP, domain=8.0, links=links)
    return dataclasses.replace(SYSTEM, scale_up=network, n_devices=jnp.asarray(devices, jnp.float32))


@pytest.mark.parametrize(("members", "links"), [(2.0, 1.0), (3.0, 2.0), (4.0, 4.0), (6.0, 4.0), (8.0, 6.0)])
def test_members_of_a_cube_mesh_have_the_links_between_them(members, links):
    """Of six of a V100 in a DGX-1: one to a neighbour, four in a quad, all among eight."""
    found = model.reach_in(cube_mesh(), members)((1.0, members))
    assert float(found.ring) == pytest.approx(links / 6.0)
    assert float(found.neighbour) == pytest.approx(1.0 / 6.0)
    assert 1.0 / 6.0 - 1e-6 <= float(found.exchange) <= float(found.ring) + 1e-6
    assert float(found.steps) == members - 1.0


def test_a_cube_mesh_has_up_to_eight_devices_of_four_links_or_more():
    assert not model.faults(cube_mesh(8.0), 1.0)[0] and not model.faults(cube_mesh(2.0), 1.0)[0]
    assert not model.faults(cube_mesh(per_device=4.0), 1.0)[0]  # DGX-1 with P100
    assert model.faults(cube_mesh(per_device=3.0), 1.0)[0]


def test_two_of_a_cube_mesh_have_a_sixth_of_what_eight_have():
    """V100 of a DGX-1 as catalogued: large all-reduces, by the bytes that a ring carries."""
    system = catalog.record(types.System, "v100-sxm-32gb")
    seconds = {
        n: float(collectives.all_reduce(1e9, whole(system, n), float(Collective.ring))) * n / (2.0 * (n - 1.0))
        for n in (2.0, 4.0, 8.0)
    }
    assert seconds[2.0] / seconds[8.0] == pytest.approx(6.0, rel=0.05)
    assert seconds[4.0] / seconds[8.0] == pytest.approx(1.5, rel=0.05)


def test_a_hypercube_is_a_torus_of_two_an_axis():
    """Eight devices, three links each: the closed form, and what 2 x 2 x 2 lines have."""
    lines = pod(((2, False),) * 3, wrap=1024.0, per_device=3.0)
    cube = dataclasses.replace(lines.scale_up.links, topology=float(Topology.hypercube))
    system = dataclasses.replace(lines, scale_up=dataclasses.replace(lines.scale_up, links=cube))
    for kind in (MessageKind.all_gather, MessageKind.all_to_all, MessageKind.send):
        cubed, lined = (float(collectives.time(kind, SIZE, whole(one, 8.0), 0.0)) for one in (system, lines))
        assert cubed == pytest.approx(lined, rel=1e-4)
    assert float(collectives.all_gather(SIZE, whole(system, 8.0), 0.0)) == pytest.approx(SIZE * 7 / 8 / 3, rel=1e-4)


def test_a_package_is_a_faster_level_inside_for_groups_that_fit():
    """Two dies of a package: twice the bandwidth between them, that of the node for more."""
    network = dataclasses.replace(PLAIN.scale_up, package=Package(dies=2.0, speedup=2.0))
    system = dataclasses.replace(PLAIN, scale_up=network)
    reach = model.reach_in(system, 1.0)
    pair, four, apart = ((1.0, 2.0), (1.0, 4.0), (2.0, 2.0))
    times = {}
    for stride, size in (pair, four, apart):
        for name, one in (("with", Group(size, size, reach=reach((stride, size)))), ("without", Group(size, size))):
            times[stride, size, name] = float(collectives.all_gather(1e9, Route(one, system), 0.0))
    assert times[*pair, "without"] / times[*pair, "with"] == pytest.approx(2.0, rel=1e-2)
    for group in (four, apart):
        assert times[*group, "with"] == pytest.approx(times[*group, "without"], rel=1e-6)


@pytest.mark.parametrize("local", [2.0, 8.0])
@pytest.mark.parametrize("domains", [1.0, 4.0, 64.0])
def test_no_collective_beats_injection_or_bisection(local, domains):
    """Switched levels: what a member takes in; in-network reduction halves an all-reduce at most."""
    group = Group(local * domains, local)
    count, up, out = group.size, 300e9, 25e9
    into = up if domains == 1.0 else up + out
    cut = 0.0 if domains == 1.0 else (domains / 2) * local * SIZE * 0.5 / (domains / 2 * local * out)
    for system, times in ((PLAIN, 2.0), (REDUCING, 1.0)):
        for algorithm in Collective:
            reduced = float(collectives.all_reduce(SIZE, Route(group, system), float(algorithm)))
            assert reduced >= times * SIZE * (count - 1.0) / count / into
        assert float(collectives.all_gather(SIZE, Route(group, system), 0.0)) >= SIZE * (count - 1.0) / count / into
        assert float(collectives.all_to_all(SIZE, Route(group, system))) >= max(cut, SIZE * (count - 1) / count / into)


def test_a_step_on_a_torus():
    """Axes without a way around, or cut by tp, are slower; several slices lose to each other."""

    def step(**leaves):
        options = {"micro_batch": 1, "recompute": "full", "tp": 8} | leaves
        return dse.evaluate(dse.design("llama-2-70b", "tpu-v5p", n_devices=512, **options))

    plain = step()
    assert math.isfinite(plain.energy_per_step) and plain.step_time_data_parallel > 0.0
    for slower in ({"links.wrap": 1024}, {"links.x": 2, "links.y": 16}):
        assert step(**slower).step_time > plain.step_time
    slices = {"scale_up.domain": 64, "dp_replicate": 8}
    assert step(**slices).step_time > step(**slices, **{"links.slice_loss": 0.0}).step_time
    assert math.isfinite(step(**{"links.topology": "hypercube", "links.per_device": 9}).step_time)
