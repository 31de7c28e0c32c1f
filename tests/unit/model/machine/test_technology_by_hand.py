"""A generated chip of round numbers, every part of it worked out by hand in comments.

One die of 20 x 20 mm. Half of it are cores: 200 mm2 of 100 million devices a mm2 are 2e10 devices. 400 W are shared.
"""

from __future__ import annotations

import dataclasses
import math

import pytest

from dse import types
from dse.designs import catalog
from dse.model.machine import technology
from dse.types import LogicNode, MemoryTechnology
from tests.designs import make_design

MM2 = 1e-6

NODE = LogicNode(
    density=1e14,
    sram_density=1e12,
    clock=1e9,
    energy=1.0,
    leakage=1.0,
    threshold=0.5,
    lowest_voltage=0.6,
    highest_voltage=1.5,
    highest_clock=3e9,
    temperature=300.0,
)
BASE_NODE = dataclasses.replace(NODE, density=0.5e14, sram_density=2e12, energy=3.0, leakage=0.5)
MEMORY = MemoryTechnology(
    unit_bandwidth=1e12,
    unit_capacity=16e9,
    unit_energy=20e-12,
    unit_edge=10e-3,
    unit_area=10 * MM2,
    unit_temperature=300.0,
    unit_latency=0.0,
)
GPU = catalog.record(types.Accelerator, "gpu")

CHIP = dataclasses.replace(
    GPU.chip,
    node=NODE,
    base_node=BASE_NODE,
    memory=MEMORY,
    die_area=400 * MM2,
    base_area=0.0,
    power_budget=500.0,
    heat_flux=1.5e6,
    board_power=100.0,
    clock_ratio=1.0,
    stacks=3.0,
    link_bandwidth=1e12,
    link_density=1e14,
    link_depth=1e-3,
    link_energy=20e-12,
    core_area=0.5,
    matrix_area=0.5,
    vector_area=0.125,
    core_memory_area=0.25,
    cache_area=0.25,
    memory_area=0.2,
    link_area=0.1,
    control_area=0.0,
    memory_edge=0.5,
    link_edge=0.25,
    core_power=0.5,
    matrix_load=1.0,
    boost_voltage=0.8,
    memory_power=0.25,
    link_power=0.1,
    in_flight=0.5,
    matrix_devices=1e4,
    vector_devices=1e3,
    core_devices=1e8,
    activity=0.1,
    control_activity=0.05,
    switching_energy=1e-16,
    device_leakage=1e-9,
    byte_energy=4e-12,
    tf32_ratio=0.5,
    fp8_ratio=2.0,
    fp4_ratio=4.0,
    int8_ratio=1.5,
    die_link_depth=1e-3,
    cooler=0.25,
    memory_cooler=0.25,
)


def chip(memory=None, node=None, **values):
    """The chip with other values, also of its memory and its node."""
    parts = {"memory": dataclasses.replace(MEMORY, **memory or {}), "node": dataclasses.replace(NODE, **node or {})}
    return dataclasses.replace(CHIP, **parts | values)


def made(one=CHIP):
    return technology.generate(dataclasses.replace(GPU, chip=one))


def pj(joules):
    """In pJ: numbers near 1, as a comparison has an absolute tolerance too."""
    return 1e12 * float(joules)


def test_areas_and_what_they_hold():
    """200 mm2 of cores and as much beside them; a quarter of either is SRAM of 1 MB a mm2."""
    assert tuple(map(float, technology.areas(CHIP))) == pytest.approx((200 * MM2, 200 * MM2, 0.0))
    assert float(technology.core_memory(CHIP)) == pytest.approx(50e6)
    assert float(technology.cache(CHIP)) == pytest.approx(50e6)
    # On a base die of 400 mm2 too: half of 800 mm2 are cores, all of the compute die; 100 mm2 of cache at 2 MB a mm2.
    based = chip(base_area=400 * MM2)
    assert tuple(map(float, technology.areas(based))) == pytest.approx((400 * MM2, 0.0, 400 * MM2))
    assert float(technology.cache(based)) == pytest.approx(200e6)
    # 30 % of 800 mm2 are cores: 160 mm2 of the compute die and the base die hold the rest.
    assert tuple(map(float, technology.areas(chip(base_area=400 * MM2, core_area=0.3)))) == pytest.approx(
        (240 * MM2, 160 * MM2, 400 * MM2)
    )
    assert float(technology.cache(chip(base_area=400 * MM2, core_area=0.3))) == pytest.approx(40e6 + 200e6)


def test_edges():
    """4 x 20 mm; 4 x 40 mm of base dies of 1,600 mm2."""
    assert float(technology.perimeter(CHIP)) == pytest.approx(80e-3)
    assert float(technology.perimeter(chip(base_area=1600 * MM2))) == pytest.approx(160e-3)


@pytest.mark.parametrize(
    ("values", "units"),
    # Of 80 mm of edge half for memory, 10 mm a unit: 4. Of 200 mm2 a fifth, 10 mm2 a unit: 4.
    [({}, 3.0), (dict(stacks=9.0), 4.0), (dict(stacks=9.0, memory_edge=0.25), 2.0),
     (dict(stacks=9.0, memory_area=0.125), 2.5), (dict(stacks=9.0, memory=dict(unit_edge=16e-3)), 2.5),
     # All of a base die of 400 mm2 is beside the cores, a twentieth: 2.
     (dict(stacks=9.0, memory_area=0.05, base_area=400 * MM2), 2.0)],
)  # fmt: skip
def test_units_of_memory(values, units):
    assert float(technology.memory_units(chip(**values))) == pytest.approx(units)
    assert float(technology.memory_tier(chip(**values)).capacity) == pytest.approx(16e9 * units)


@pytest.mark.parametrize(
    ("values", "bandwidth"),
    [
        ({}, 3e12),  # three units
        # A quarter of 400 W at 50 pJ a byte: 100 W / 50 pJ.
        (dict(memory=dict(unit_energy=50e-12)), 2e12),
        # At 200 K a cooler of a quarter of Carnot takes (300 - 200) / 200 / 0.25 = 2 W a watt: 150 pJ a byte.
        (dict(memory=dict(unit_energy=50e-12, unit_temperature=200.0)), 100.0 / 150e-12),
        # Little's law: 25 MB of the cores' 50 MB are in flight, one latency of 10 us long: 2.5e7 B / 1e-5 s.
        (dict(memory=dict(unit_latency=10e-6)), 2.5e12),
        (dict(memory=dict(unit_latency=20e-6)), 1.25e12),
        (dict(memory=dict(unit_latency=20e-6), in_flight=1.0), 2.5e12),
    ],
)
def test_bandwidth_of_memory(values, bandwidth):
    assert float(technology.memory_tier(chip(**values)).bandwidth) == pytest.approx(bandwidth)


@pytest.mark.parametrize(
    ("values", "bandwidth"),
    [
        ({}, 1e12),  # as wanted
        (dict(link_bandwidth=9e12), 2e12),  # a quarter of 80 mm at 100 GB/s a mm; 20 mm2 of 1 mm depth; 40 W at 20 pJ
        (dict(link_bandwidth=9e12, link_edge=0.125), 1e12),
        (dict(link_bandwidth=9e12, link_area=0.05), 1e12),
        (dict(link_bandwidth=9e12, link_depth=4e-3), 0.5e12),
        (dict(link_bandwidth=9e12, link_depth=4e-3, base_area=400 * MM2), 1e12),  # on a base die of 400 mm2
        (dict(link_bandwidth=9e12, link_power=0.05), 1e12),
        (dict(link_bandwidth=9e12, link_energy=80e-12), 0.5e12),
    ],
)
def test_bandwidth_of_links(values, bandwidth):
    one = chip(**values)
    assert float(technology.link_bandwidth(one)) == pytest.approx(bandwidth)
    # The network's 300 GB/s, unless the chip drives less.
    system = dataclasses.replace(make_design().system, accelerator=dataclasses.replace(GPU, chip=one))
    assert float(technology.generated(dataclasses.replace(make_design(), system=system)).system.scale_up.bandwidth) == (
        pytest.approx(300e9)
    )
    fast = dataclasses.replace(system, scale_up=dataclasses.replace(system.scale_up, bandwidth=5e12))
    found = technology.generated(dataclasses.replace(make_design(), system=fast)).system.scale_up.bandwidth
    assert float(found) == pytest.approx(bandwidth)


def test_heat():
    """400 mm2 conduct 1.5 W/mm2: 600 W beside the board's 100 W, above the budget; at 0.5 W/mm2 200 and 100 W."""
    assert float(technology.cooled_power(CHIP)) == 500.0 and float(technology.shared_power(CHIP)) == 400.0
    assert float(technology.cooled_power(chip(heat_flux=0.5e6))) == pytest.approx(300.0)
    assert float(technology.shared_power(chip(heat_flux=0.5e6))) == pytest.approx(200.0)
    assert float(technology.cooled_power(chip(heat_flux=0.5e6, base_area=600 * MM2))) == pytest.approx(400.0)


def test_operations_a_cycle():
    """1e10 devices of matrix units at 1e4 a FLOP and cycle; 2.5e9 of vector units at 1e3."""
    assert tuple(map(float, technology.flops_per_cycle(CHIP))) == pytest.approx((1e6, 2.5e6))


def test_the_nominal_clock():
    """A tenth of the matrix units' 1e10 devices and a twentieth of all 2e10 switch a cycle: 2e9 x 1e-16 J x 1 GHz.

    That is 200 W, half of the 400: the nominal clock at the nominal voltage.
    """
    clocked = technology.clocked(CHIP)
    assert tuple(map(float, clocked)) == pytest.approx((1e9, 1.0, 1.0, 2e10), rel=1e-3)
    device = made()
    assert float(device.cores) == pytest.approx(200.0)
    assert float(device.vector_rate) == pytest.approx(2.5e15, rel=1e-3)
    rates = device.matrix_rate
    assert [
        float(rates.bf16),
        float(rates.fp16),
        float(rates.tf32),
        float(rates.fp8),
        float(rates.fp4),
        float(rates.int8),
        float(rates.fp32),
    ] == pytest.approx([1e15, 1e15, 0.5e15, 2e15, 4e15, 1.5e15, 2.5e15], rel=1e-3)
    power = device.power
    assert pj(power.matrix_energy) == pytest.approx(1e-4 * 0.1 * 1e4, rel=1e-3)  # 0.1 pJ: 100 W at 1e15
    assert pj(power.vector_energy) == pytest.approx(1e-4 * 0.1 * 1e3, rel=1e-3)
    assert float(power.control) == pytest.approx(100.0, rel=1e-3)  # 1e9 devices a cycle at 1e-16 J and 1 GHz
    assert float(power.leakage) == pytest.approx(40.0, rel=1e-3)  # 4e10 devices at 1 nW
    assert pj(power.cache_energy) == pytest.approx(4.0, rel=1e-3)
    assert pj(power.memory_energy) == pytest.approx(20.0)
    assert [float(power.uncore), float(power.tdp), float(power.cooling)] == pytest.approx([100.0, 500.0, 0.0])
    assert [float(power.threshold), float(power.lowest_voltage)] == pytest.approx([0.5, 0.6], rel=1e-3)


def test_a_higher_clock_takes_voltage():
    """At 1.2 of the nominal voltage f ~ (V - 0.5)^2 / V is 0.49 / 1.2 over 0.25: 1.6333.

    Energies are 1.44 times those above, so 200 W become 200 x 1.44 x 1.6333 = 470.4 W: half of 940.8 W.
    """
    fast = chip(power_budget=1040.8, heat_flux=3e6, clock_ratio=0.75)
    clock, volts, fed, _ = map(float, technology.clocked(fast))
    assert (clock, volts, fed) == pytest.approx((0.49 / 0.3 * 1e9, 1.2, 1.0), rel=1e-3)
    power = made(fast).power
    assert pj(power.matrix_energy) == pytest.approx(0.144, rel=1e-3)
    assert pj(power.vector_energy) == pytest.approx(0.0144, rel=1e-3)
    assert pj(power.cache_energy) == pytest.approx(1.44 * 4.0, rel=1e-3)
    assert float(power.control) == pytest.approx(100.0 * 1.44 * 0.49 / 0.3, rel=1e-3)
    # Current of 40 W at the nominal voltage, exponential in what is beyond it.
    leaked = 40.0 * 1.2 * math.exp(0.2 * float(GPU.power.leakage_slope))
    assert float(power.leakage) == pytest.approx(leaked, rel=1e-3)
    assert [float(power.threshold), float(power.lowest_voltage)] == pytest.approx([0.5 / 1.2, 0.5], rel=1e-3)
    assert [float(power.nominal_clock), float(power.clock)] == pytest.approx([0.49e9 / 0.3, 0.3675e9 / 0.3], rel=1e-3)


def test_limits_of_the_clock():
    """The highest clock of the node, 1.2 GHz; its highest voltage, 1.2: 1.6333 GHz."""
    plenty = dict(power_budget=1e4, heat_flux=1e9)
    assert float(technology.clocked(chip(**plenty, node=dict(highest_clock=1.2e9))).clock) == pytest.approx(1.2e9)
    found = technology.clocked(chip(**plenty, node=dict(highest_voltage=1.2))).clock
    assert float(found) == pytest.approx(0.49e9 / 0.3, rel=1e-5)


def test_cores_without_power():
    """At the least boost voltage, 0.8, the clock is 0.09 / 0.8 over 0.25: 0.45; 0.64 x 0.45 x 200 W = 57.6 W.

    28.8 W power half of the cores at that clock: 0.5 x 0.45 x 1e15 FLOP/s.
    """
    clock, volts, fed, devices = map(float, technology.clocked(chip(core_power=28.8 / 400.0)))
    assert (clock, volts, fed, devices) == pytest.approx((0.45e9, 0.8, 0.5, 1e10), rel=2e-3)
    dark = made(chip(core_power=28.8 / 400.0))
    assert [float(dark.matrix_rate.bf16), float(dark.cores)] == pytest.approx([0.225e15, 100.0], rel=2e-3)


def test_a_cooler_takes_its_power_from_the_cores():
    """At 200 K 2 W a watt: 200 W of the cores are 600 W with it, half of 1,200 W beside the board's 100."""
    cold = chip(node=dict(temperature=200.0), power_budget=1300.0, heat_flux=5e6)
    assert float(technology.clocked(cold).clock) == pytest.approx(1e9, rel=1e-3)
    assert float(made(cold).power.cooling) == pytest.approx(2.0)


def test_lighter_loads_and_other_nodes():
    """Half of the matrix units at work: 0.5e9 + 1e9 devices a cycle, 150 W. A node of twice the energy: 400 W.

    Of twice the leakage: 80 W.
    """
    light = chip(matrix_load=0.5, core_power=150.0 / 400.0)
    assert float(technology.clocked(light).clock) == pytest.approx(1e9, rel=1e-3)
    hot = chip(node=dict(energy=2.0, leakage=2.0), power_budget=900.0, heat_flux=5e6)
    assert float(technology.clocked(hot).clock) == pytest.approx(1e9, rel=1e-3)
    assert pj(made(hot).power.matrix_energy) == pytest.approx(0.2, rel=1e-3)
    assert float(made(hot).power.leakage) == pytest.approx(80.0, rel=1e-3)


def test_base_dies_leak_and_hold_caches_too():
    """400 mm2 of half the density and half the leakage a device beside 4e10: 40 + 10 W.

    240 mm2 of cores; caches on 160 mm2 at 1 MB a mm2 and on 400 mm2 at 2, where a byte takes three times the energy:
    (160 x 1 + 800 x 3) / 960 of 4 pJ.
    """
    power = made(chip(base_area=400 * MM2, core_area=0.3, core_power=240.0 / 400.0)).power
    assert float(power.leakage) == pytest.approx(50.0, rel=1e-3)
    assert pj(power.cache_energy) == pytest.approx(4.0 * 2560.0 / 960.0, rel=1e-3)


def test_area_of_several_dies():
    """Links on two edges of four dies of 10 mm, 1 mm deep: 4 x 2 x 10 mm2. On four of sixteen of 5 mm: 16 x 4 x 5 mm2.

    Of sixteen only one die in two has its PHYs on the outside, so that these are there twice: 3 units of 10 mm2, and
    1 TB/s of links, 10 mm of 1 mm depth. Of 64 dies of 2.5 mm, with four edges too, they are there four times.
    """
    found = [float(technology.split_area(CHIP, dies)) / MM2 for dies in (1.0, 2.0, 4.0, 16.0, 64.0)]
    assert found == pytest.approx([0.0, 2 * math.sqrt(200.0), 80.0, 320.0 + 40.0, 640.0 + 3 * 40.0], abs=1e-3)


def test_areas_that_repeat():
    """200 mm2 of cores and 55 % of 200 mm2, less a core of 1e8 devices, 1 mm2, and a PHY of 10; half on two dies."""
    one, based = technology.repeated_areas(CHIP, 1.0, 1.0)
    assert (float(one) / MM2, float(based)) == pytest.approx((310.0 - 11.0, 0.0))
    found = technology.repeated_areas(chip(base_area=400 * MM2, core_area=0.3), 2.0, 4.0)
    # 240 + 88 mm2 over two dies; 55 % of 400 mm2 over four base dies, less a PHY.
    assert [float(area) / MM2 for area in found] == pytest.approx([164.0 - 11.0, 55.0 - 10.0])


def test_sums_of_shares():
    """Cores, half; of the other half 55 %; control a twentieth: 0.825."""
    assert {
        name: float(value) for name, value in technology.share_sums(chip(control_area=0.05)).items()
    } == pytest.approx({"power": 0.85, "edge": 0.75, "area of the cores": 0.875, "other area": 0.55, "area": 0.825})
