"""Systems in money and carbon: what is counted of networks, published sums, parts that add up, laws."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

import dse
from benchmarks.rates.programs import plain_numbers
from dse import types
from dse.designs import catalog, replace
from dse.doors import SERVING, TRAINING
from dse.doors.evaluation import evaluate
from dse.errors import InputError
from dse.model.money.device import price_of
from dse.model.money.system import YEAR, Capital, capital, fabric, scale_out_price, spending, tree_levels
from dse.spec import sweep
from dse.sweep import plan
from dse.types import Network, Pods, Prices
from dse.types.paths import build, leaves

KWH = 3.6e6


def test_electricity_of_a_year():
    """700 W with 1.45 times the power of its server, PUE 1.15, 0.083 USD/kWh, full load: 848.7 USD a year.

    Of 8,760 hours; a year has 6 more here.
    """
    prices = Prices(electricity=0.083 / KWH, in_use=1.0)
    spent = spending(Capital(0.0, 0.0, 0.0, 0.0, 0.0), prices, 1.0, 700.0 * 1.45 * 1.15)
    assert spent.electricity * YEAR * 8760 / 8766 == pytest.approx(848.7, abs=0.1)
    assert spent.total == spent.electricity


def test_levels_of_a_tree_are_whole():
    """``2 (k / 2)^l`` devices: 2,048 at 64 ports and two levels, 65,536 at three (Al-Fares et al. 2008)."""
    counts = [1.0, 2.0, 64.0, 65.0, 2048.0, 2049.0, 65536.0, 66000.0]
    assert [float(tree_levels(n, 64.0)) for n in counts] == pytest.approx([1, 1, 1, 2, 2, 3, 3, 4])
    found = fabric(_network(), 65536.0, 64.0)
    assert tuple(map(float, found)) == pytest.approx((5.0, 1.0, 2.0))  # 5/4 k^3 / (k^3 / 4) switches' ports a device


def _network(**more) -> Network:
    return (
        build(Network, dict.fromkeys(leaves(Network), 1.0) | {"domain": 1e6})
        if not more
        else dataclasses.replace(_network(), **more)
    )


def test_what_is_less_of_a_network_costs_less():
    """A tree that is over-subscribed above its pods, and a dragonfly, which has 4 ports where a tree has 5."""
    system = dataclasses.replace(catalog.record(types.System, "eos"), n_devices=65536.0)
    prices = Prices()

    def price(pods):
        out = dataclasses.replace(system.scale_out, pods=pods)
        return float(scale_out_price(dataclasses.replace(system, scale_out=out), prices))

    whole, same = price(None), price(Pods(size=2048.0))
    tapered = price(Pods(size=2048.0, oversubscription=4.0))
    dragonfly = price(Pods(size=2048.0, detour=2.0))
    assert same == pytest.approx(whole) and tapered < whole and dragonfly < whole
    assert fabric(_network(pods=Pods(size=2048.0, detour=2.0)), 65536.0, 64.0).ports == pytest.approx(4.0)


@pytest.mark.parametrize("devices", [512.0, 1024.0, 2048.0, 4096.0, 65536.0])
@pytest.mark.parametrize("size", [64.0, 256.0, 1024.0])
def test_what_is_over_subscribed_never_costs_more(devices, size):
    """Nor does a pod that needs as many levels of switches as all of them."""
    whole = fabric(_network(), devices, 64.0)
    found = [fabric(_network(pods=Pods(size=size, oversubscription=over)), devices, 64.0) for over in (1.0, 2.0, 7.0)]
    for parts in zip(*found, strict=True):
        assert all(np.diff(np.array(parts, float)) <= 1e-6), parts
    assert float(found[0].ports) == pytest.approx(float(whole.ports)) and float(found[2].ports) >= 1.0
    if devices > size:
        assert float(found[2].optical) < float(whole.optical)


@pytest.fixture(scope="module")
def h100():
    design = dse.design("llama-3-70b", "h100", tp=8, pp=4, n_devices=2048, zero_stage=1)
    return design, dse.evaluate(design)


def test_a_rented_h100(h100):
    """Clouds ask 2 to 3 USD an hour (2024, 2025), with their margin: what it costs is below, but not by half."""
    assert 1.25 < float(h100[1].cost_per_device_hour) < 2.5


def test_a_node_of_eight(h100):
    """DGX H100: sold at 300,000 to 400,000 USD."""
    metrics = h100[1]
    node = metrics.capital_cost_devices + metrics.capital_cost_servers + metrics.capital_cost_scale_up
    assert 300e3 < 8.0 / 2048.0 * float(node) < 400e3


def test_the_networks_share(h100):
    """8 to 20 % of what is bought of a cluster."""
    metrics = h100[1]
    bought = metrics.capital_cost - metrics.capital_cost_facility
    assert 0.08 < float(metrics.capital_cost_scale_out / bought) < 0.2


def test_parts_add_up(h100):
    """Of training and of serving, in money and in carbon; totals of different spans agree."""
    design, metrics = h100
    served = dse.serve(dse.design("llama-3-70b", "h200", tp=8, concurrency=32, prompt_tokens=1024))
    for study, found in ((TRAINING, metrics), (SERVING, served)):
        for total in study.totals:
            parts = sum(float(getattr(found, part)) for part in study.parts(total))
            assert parts == pytest.approx(float(getattr(found, total)), rel=1e-5), total
    hours = 2048 * float(metrics.run_time) / 3600.0
    assert hours * float(metrics.cost_per_device_hour) == pytest.approx(float(metrics.cost_per_run), rel=1e-5)
    tokens = float(design.workload.run_tokens)
    assert tokens * float(metrics.cost_per_token) == pytest.approx(float(metrics.cost_per_run), rel=1e-5)
    assert tokens * float(metrics.carbon_per_token) == pytest.approx(float(metrics.carbon_per_run), rel=1e-5)
    assert tokens / float(metrics.tokens_per_cost) == pytest.approx(float(metrics.cost_per_run), rel=1e-5)
    assert float(metrics.run_energy) / KWH * 0.083 == pytest.approx(float(metrics.cost_per_run_electricity), rel=1e-5)
    assert float(metrics.run_energy) / KWH * 0.369 == pytest.approx(float(metrics.carbon_per_run_operation), rel=1e-5)
    year = float(metrics.tco_per_year) / 2048.0 / float(metrics.cost_per_device_hour)
    assert year == pytest.approx(0.85 * 8766.0, rel=1e-5)


def test_money_changes_nothing_else(h100):
    """Prices and emissions move their own metrics alone, each as it says."""
    metrics = h100[1]
    dear = dse.evaluate(
        dse.design(
            "llama-3-70b",
            "h100",
            tp=8,
            pp=4,
            n_devices=2048,
            zero_stage=1,
            **{"prices.electricity": "0.166 USD/kWh", "prices.lifetime": "2 years", "emissions.grid": "738 g/kWh"},
        )
    )
    money = TRAINING.group("money") | TRAINING.group("carbon")
    same = [name for name in TRAINING.units if name not in money]
    assert [getattr(dear, name) for name in same] == [getattr(metrics, name) for name in same]
    for name in ("cost_per_run_electricity", "cost_per_run_devices", "carbon_per_run_operation"):
        assert float(getattr(dear, name)) == pytest.approx(2.0 * float(getattr(metrics, name)), rel=1e-5)
    assert float(dear.capital_cost) == pytest.approx(float(metrics.capital_cost), rel=1e-6)


def test_laws_of_ownership():
    """Dearer electricity, shorter lives, idle devices and larger networks never make an hour cheaper."""
    system = catalog.record(types.System, "eos")

    def hour(**changed):
        prices = Prices(**changed)
        return float(spending(capital(system, prices, 28000.0, 1000.0), prices, 1.0, 1000.0).total)

    for name, values in (
        ("electricity", np.array([0.05, 0.1, 0.2]) / KWH),
        ("lifetime", np.array([6.0, 4.0, 3.0]) * YEAR),
        ("in_use", [1.0, 0.8, 0.5]),
        ("server", [5e3, 1e4, 2e4]),
        ("facility", [5.0, 10.0, 20.0]),
        ("maintenance", np.array([0.0, 0.05, 0.1]) / YEAR),
        ("nic_price", [1e-8, 3e-8, 6e-8]),
    ):
        costs = [hour(**{name: float(value)}) for value in values]
        assert costs == sorted(costs), name


def test_plain_numbers_give_the_same(h100):
    """The loop over Python's own floats that rates are compared with, money included."""
    design, metrics = h100
    with plain_numbers():
        found = evaluate(jax.tree.map(float, design))
    for name in ("cost_per_run", "capital_cost", "device_cost", "carbon_per_run", "device_carbon"):
        assert float(getattr(found, name)) == pytest.approx(float(getattr(metrics, name)), rel=1e-3), name


SPEC = """
[workload]
name = "gpt-3-13b"
[system]
name = "eos"
n_devices = 8
{system}
[axes]
tp = [8]
{axes}
[objective]
{objective}
[output]
{output}
"""


@pytest.mark.parametrize(
    ("said", "groups"),
    [({}, ("energy",)), ({"objective": 'minimize = "cost_per_run"'}, ("energy", "money")),
     ({"output": "energy = false"}, ()), ({"output": "carbon = true"}, ("energy", "carbon")),
     ({"axes": '"emissions.grid" = ["24 g/kWh"]', "output": "energy = false"}, ("carbon",)),
     ({"system": "made.chiplets = 4"}, ("energy", "money")),
     ({"system": "prices.in_use = 0.5", "output": "money = false\nenergy = true"}, ("energy",))],
)  # fmt: skip
def test_sweeps_have_what_they_ask_for(said, groups):
    blank = dict.fromkeys(("system", "axes", "objective", "output"), "")
    spec = sweep.from_text(SPEC.format(**(blank | said)))
    assert spec.groups == groups
    left_out = {name for name in TRAINING.units if name not in spec.metrics}
    assert left_out == set().union(*(TRAINING.group(g) for g in TRAINING.optional if g not in groups))


@pytest.mark.parametrize(
    ("group", "metric", "said"),
    [("energy", "energy_per_step", 'minimize = "energy_per_step"'),
     ("money", "cost_per_run", 'minimize = ["step_time", "cost_per_run"]'),
     ("energy", "energy_per_step", 'minimize = "step_time"\n[constraints]\nall = ["energy_per_step <= 1 "]')],
)  # fmt: skip
def test_what_an_objective_reads_cannot_be_left_out(group, metric, said):
    blank = dict.fromkeys(("system", "axes", "objective", "output"), "")
    with pytest.raises(InputError, match=f"{group}.*false, with {metric}.*leave out {group} = false"):
        sweep.from_text(SPEC.format(**(blank | {"objective": said, "output": f"{group} = false"})))


def test_accelerators_on_one_axis_have_their_own_prices():
    """A generated one beside those that are sold is sold at what its chip costs."""
    text = SPEC.format(
        system="", axes='accelerator = ["h100", "b200", "gpu"]', objective='minimize = "cost_per_run"', output=""
    )
    grid, _ = plan(sweep.from_text(text))
    sold, generated = grid.structure_grids
    assert sold.columns["system.accelerator.made.price"].tolist() == [28000.0, 40000.0]
    gpu, _ = price_of(dse.design("gpt-3-13b", "gpu", tp=8).system.accelerator, Prices())
    assert price_of(generated.base.system.accelerator, Prices())[0] == pytest.approx(float(gpu), rel=1e-5)
    with pytest.raises(InputError, match="true or false"):
        sweep.from_text(SPEC.format(system="", axes="", objective="", output='money = "yes"'))


@pytest.mark.slow
def test_slopes_reach_cost_through_the_whole_model():
    """A generated chip's area moves the cost of a run through its price and its speed: as differences say."""
    path = "system.accelerator.chip.die_area"
    base = dse.design("gpt-3-13b", "gpu", tp=8, n_devices=8)
    with jax.enable_x64(True):
        base = jax.tree.map(np.float64, base)

        def cost(area):
            return dse.evaluate(replace(base, {path: area})).cost_per_run

        value = 1.2e-3
        slope = jax.jit(jax.grad(cost))(value)
        run = jax.jit(cost)
        step = 1e-5 * value
        assert float(slope) == pytest.approx(float((run(value + step) - run(value - step)) / (2 * step)), rel=1e-4)


def test_memory_beyond_a_servers_own_is_paid_for():
    """256 GiB a device are within the server's price; 2 USD a GB beyond, and far memory from the host's capacity on."""

    def servers(host, far=None):
        beyond = {} if far is None else {"far.capacity": far}
        found = dse.design("llama-3-8b", "h100", **{"host.capacity": host, **beyond})
        return float(capital(found.system, Prices(), 0.0, 0.0).servers)

    own = servers(256 * 2.0**30)
    assert servers(128 * 2.0**30) == own == Prices().server
    assert servers(256 * 2.0**30 + 1e12) - own == pytest.approx(2000.0)
    assert servers(256 * 2.0**30, 256 * 2.0**30 + 1e12) - own == pytest.approx(2000.0)
    assert servers(1e12, 1e12) == servers(1e12) > own
