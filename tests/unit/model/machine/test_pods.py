"""Over-subscribed fabrics: what leaves a pod is slower, what stays is not, and a full bisection changes nothing."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
from hypothesis import given, strategies as st

import dse
from dse import types
from dse.designs import catalog
from dse.doors import TRAINING
from dse.errors import InputError
from dse.model import lay_out
from dse.sweep import execute, from_text, plan
from dse.types import Infeasible, Pods
from dse.types.metrics import CARBON, MONEY
from tests.designs import designs, make_design
from tests.programs import metrics_of


def with_pods(design, size=1.0, oversubscription=1.0):
    network = dataclasses.replace(
        design.system.scale_out, pods=Pods(size=float(size), oversubscription=float(oversubscription))
    )
    return dataclasses.replace(design, system=dataclasses.replace(design.system, scale_out=network))


@pytest.mark.slow
@given(designs(), st.sampled_from([1, 4, 64, 10_000]))
def test_full_bisection_changes_nothing(design, size):
    """But for the switches and cables of such pods, which are counted and paid."""
    plain, same = metrics_of(design), metrics_of(with_pods(design, size))
    for name, value in vars(plain).items():
        if name in TRAINING.group(MONEY) | TRAINING.group(CARBON):
            continue
        assert float(getattr(same, name)) == pytest.approx(float(value), rel=1e-6), name


@given(designs(), st.sampled_from([1, 4, 32, 128]), st.floats(1.0, 16.0), st.floats(1.0, 4.0))
def test_never_faster_by_more_oversubscription_or_smaller_pods(design, size, ratio, factor):
    base = float(metrics_of(with_pods(design, size, ratio)).step_time)
    assert float(metrics_of(with_pods(design, size, ratio * factor)).step_time) >= base * (1 - 1e-6)
    assert float(metrics_of(with_pods(design, 4 * size, ratio)).step_time) <= base * (1 + 1e-6)


def rings(positions, strides, sizes, ring):
    """Devices of every ring along the dimensions ``ring``, in order, the innermost of them first."""
    others = [name for name in positions if name not in ring]
    for fixed in itertools.product(*(range(sizes[name]) for name in others)):
        start = sum(strides[name] * i for name, i in zip(others, fixed, strict=True))
        turns = itertools.product(*(range(sizes[name]) for name in reversed(ring)))
        yield [start + sum(strides[n] * i for n, i in zip(reversed(ring), turn, strict=True)) for turn in turns]


def counted(sizes, ring, pod, ratio):
    """Share of its bandwidth that a ring has, by counting which rings leave each pod."""
    strides, stride = {}, 1
    for name, size in sizes.items():
        strides[name], stride = stride, stride * size
    leaving = dict.fromkeys(range(-(-stride // pod)), 0)
    for members in rings(sizes, strides, sizes, ring):
        for here, there in zip(members, [*members[1:], members[0]], strict=True):
            leaving[here // pod] += here // pod != there // pod
    return min([1.0, *((pod / ratio) / count for count in leaving.values() if count)])


@pytest.mark.parametrize("outermost", [0, 1])
@pytest.mark.parametrize("pod", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("ratio", [1, 2, 7])
def test_shares_are_those_of_counted_rings(outermost, pod, ratio):
    sizes = {"tp": 2, "cp": 2, "dp": 4, "pp": 4} if outermost == 0 else {"tp": 2, "cp": 2, "pp": 4, "dp": 4}
    groups = lay_out(with_pods(make_design(**sizes, placement=outermost), pod, ratio)).groups
    assert float(groups.dp.share) == pytest.approx(counted(sizes, ["cp", "dp"], pod, ratio))
    assert float(groups.pp.share) == pytest.approx(counted(sizes, ["pp"], pod, ratio))


def test_hybrid_sharding_keeps_gathers_inside_a_pod():
    mapping = dict(tp=2, dp=8, zero_stage=3, dp_replicate=2)
    groups = lay_out(with_pods(make_design(**mapping), 8, 4)).groups
    assert (float(groups.dp.share), float(groups.copies.share)) == (1.0, 0.25)


def test_pods_are_leaves_of_designs_and_sweeps():
    options = {"n_devices": 64, "tp": 8, "dp": 8, "recompute": "full"}
    slow = dse.design("gpt-3-13b", "selene", **options, **{"pods.size": 8, "pods.oversubscription": 8})
    assert slow.system.scale_out.pods == Pods(size=8.0, oversubscription=8.0)
    text = """
[workload]
name = "gpt-3-13b"
[system]
name = "selene"
n_devices = 64
[mapping]
recompute = "full"
[axes]
tp = [8]
"pods.size" = [8]
"pods.oversubscription" = [1, 2, 8]
"""
    found, _ = execute(from_text(text), output=False)
    times = found.step_time.values.reshape(-1)
    assert times[0] < times[1] < times[2] == pytest.approx(float(metrics_of(slow).step_time), rel=1e-5)


@pytest.mark.filterwarnings("ignore::dse.errors.Notice")  # of the same file, which another scan meets first
def test_more_endpoints_than_65536(tmp_path, monkeypatch):
    options = {"n_devices": 262144, "tp": 8, "pp": 16, "recompute": "full", "global_batch": 16384}
    bits = [
        int(metrics_of(dse.design("llama-3-1-405b", "eos", **options, **more)).infeasible_reason)
        for more in ({}, {"scale_out.domain": 2**20})
    ]
    assert bits[0] & Infeasible.network_too_small and not bits[1] & Infeasible.network_too_small
    folder = tmp_path / "networks"
    folder.mkdir()
    text = (catalog.catalog_root() / "networks" / "infiniband-ndr.toml").read_text()
    tall = text.replace("domain = 65536", "radix = 64\nlevels = 4").replace("InfiniBand-NDR", "Tall")
    (folder / "tall.toml").write_text(f"{tall}\n[pods]\nsize = 65536\noversubscription = 3\n")
    (folder / "short.toml").write_text(text.replace("domain = 65536", "radix = 64").replace("InfiniBand-NDR", "Short"))
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    made = catalog.record(types.Network, "tall")
    assert made.domain == 2 * 32**4 and made.pods == Pods(size=65536.0, oversubscription=3.0)
    assert catalog.record(types.Network, "infiniband-ndr").domain == 2 * 32**3, "three levels of switches of 64 ports"
    with pytest.raises(InputError, match="domain"):
        catalog.record(types.Network, "short")


@given(designs(), st.sampled_from([1, 32]), st.floats(1.0, 4.0))
def test_dragonflies_and_nics_of_their_own_are_slower_pods(design, size, ratio):
    """A detour by way of a third group takes links between groups twice; slow NICs are not shared by several rings."""
    plain, twice = with_pods(design, size, ratio), with_pods(design, size, 2.0 * ratio)
    changed = {
        name: dataclasses.replace(plain.system.scale_out.pods, **leaf)
        for name, leaf in (("detour", {"detour": 2.0}), ("own", {"pooled": 0.0}))
    }
    shares = {}
    for name, pods in {**changed, "twice": twice.system.scale_out.pods, "plain": plain.system.scale_out.pods}.items():
        network = dataclasses.replace(plain.system.scale_out, pods=pods)
        system = dataclasses.replace(plain.system, scale_out=network)
        groups = lay_out(dataclasses.replace(plain, system=system)).groups
        shares[name] = [float(group.share) for group in (groups.dp, groups.copies, groups.pp)]
    assert shares["detour"] == pytest.approx(shares["twice"])
    assert all(own <= pooled for own, pooled in zip(shares["own"], shares["plain"], strict=True))


def test_leaves_of_pods_need_their_size():
    """Pods of one device would divide every link, those within a leaf too."""
    with pytest.raises(InputError, match=r"pods\.oversubscription of a network without pods.*pods\.size too"):
        dse.design("llama-3-70b", "eos", n_devices=64, tp=8, **{"pods.oversubscription": 4})
    text = 'workload.name = "llama-3-70b"\nsystem.name = "eos"\nsystem.n_devices = 64\n[axes]\n'
    with pytest.raises(InputError, match="without pods"):
        plan(from_text(f'{text}"pods.oversubscription" = [1, 4]\n'))
    assert plan(from_text(f'{text}"pods.oversubscription" = [1, 4]\n"pods.size" = [32]\n'))
    dse.design("llama-3-70b", "eos", n_devices=64, tp=8, **{"pods.oversubscription": 4, "pods.size": 32})
