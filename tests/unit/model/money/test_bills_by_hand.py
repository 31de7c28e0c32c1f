"""The bill of an accelerator of round numbers, part by part; every sum is worked out by hand in comments.

A wafer of 300 mm without edge and scribe has pi (150 / a)^2 - 300 pi / (sqrt(2) a) square dies of side a mm. Its price
is stated so that a compute die of 100 mm2, and a base die of 400 mm2, cost 100 USD.
"""

from __future__ import annotations

import dataclasses
import math

import pytest

from dse import types
from dse.designs import catalog
from dse.model.money.account import EmbodiedCarbon, device_carbon, emission_rates
from dse.model.money.device import bill, parts_of
from dse.types import Assembly, Emissions, Fab, Manufacture, Packaging, Prices, Process
from tests.designs import ACCELERATOR
from tests.unit.model.machine.test_technology_by_hand import chip

MM2 = 1e-6


def wafer(area):
    """Dies of so many mm2 of a wafer."""
    side = math.sqrt(area)
    return math.pi * (150.0 / side) ** 2 - 300.0 * math.pi / (math.sqrt(2.0) * side)


COMPUTE = Process(wafer_price=100.0 * wafer(100.0), defect_density=0.0, design_cost=3e8)
BASE = Process(wafer_price=100.0 * wafer(400.0), defect_density=0.0, design_cost=6e7)

#: On a carrier as large as its dies and memory: 10 USD for 300 mm2 and 0.01 USD/mm2 of dicing.
CARRIED = Assembly(
    carrier_scale=1.0,
    carrier_price=10.0 * wafer(300.0),
    bond_yield=0.9,
    bump_price=0.02 / MM2,
    design_rate=1000.0 / MM2,
    design_fixed=7e5,
)
FAB = Fab(
    wafer_edge=0.0,
    scribe=0.0,
    clustering=1.0,
    critical_area=1.0,
    link_area=0.0,
    silicon=CARRIED,
    organic=dataclasses.replace(CARRIED, carrier_scale=0.0),
    substrate_price=0.005 / MM2,
    substrate_scale=2.0,
    substrate_layers=1.5,
    layers_above_289mm2=1.5,
    layers_above_900mm2=1.5,
    attach_yield=0.8,
    carrier_dicing=0.01 / MM2,
    memory_price=15e-9,
    memory_unit=16e9,
    memory_area=50 * MM2,
    test_price=50.0,
    link_design=20 * MM2,
)
MADE = Manufacture(
    process=COMPUTE,
    base_process=BASE,
    chiplets=2.0,
    logic_area=200 * MM2,
    packaging=float(Packaging.silicon),
    volume=1e6,
    reuse=2.0,
    blocks=5.0,
    block_area=0.5,
)


def accelerator(made=MADE, fab=FAB, memory=32e9, chip=None):
    tier = dataclasses.replace(ACCELERATOR.memory, capacity=memory)
    return dataclasses.replace(ACCELERATOR, memory=tier, made=made, fab=fab, chip=chip)


def total(**values):
    """Parts of the bill of the accelerator with other dies."""
    return {name: float(value) for name, value in bill(accelerator(**values))._asdict().items()}


#: Yield of four bonds, of two dies and two stacks, and of that with the attached carrier.
BONDS, KEPT = 0.9**4, 0.8 * 0.9**4


def test_two_dies_and_two_stacks_on_a_carrier():
    """Dies: 2 x 100 USD and bumps on 200 mm2 at 0.02 USD. Memory: 32 GB at 15 USD.

    Carrier: 200 mm2 of dies and 2 x 50 of memory, 10 + 3 USD, lost with bad bonds and at the attachment; substrate: 600
    mm2 at 0.005 USD, lost at the attachment. Of a package that fails the dies and the memory are lost too.

    Design of a die: of 100 mm2 a fifth of its half of blocks is designed, 60 mm2 of 1 million USD each: half of that,
    with 20 mm2 of links, for modules; 0.3 of that and 0.2 x 300 million for the chip: 118 million over two products.
    Of the package: 300 mm2 at 1,000 USD, 3 USD, 0.7 million. A million are made.
    """
    found = total()
    assert found["dies"] == pytest.approx(204.0)
    assert found["memory"] == pytest.approx(480.0)
    assert found["package"] == pytest.approx(13.0 / KEPT + 3.0 / 0.8)
    assert found["lost"] == pytest.approx((204.0 + 480.0) * (1.0 / KEPT - 1.0))
    assert found["test"] == 50.0
    assert found["design"] == pytest.approx((0.5 * 80.0 + 0.3 * 60.0 + 60.0) / 2.0 + 1.000003)


def test_without_a_carrier_the_memory_is_not_in_the_package():
    """Two bonds. Substrate: 400 mm2 with 1.5 times the layers: 3 USD; its design 600,000 USD and 0.7 million."""
    found = total(made=dataclasses.replace(MADE, packaging=float(Packaging.organic)))
    assert found["package"] == pytest.approx(3.0 / 0.81)
    assert found["lost"] == pytest.approx(204.0 * (1.0 / 0.81 - 1.0))
    assert found["design"] == pytest.approx(59.0 + 0.6 + 0.7)


def test_a_base_die_beside_the_compute_dies():
    """100 USD for 400 mm2, with bumps 8 USD more; five bonds; 600 + 100 mm2 of carrier and twice that of substrate.

    Its design: 400 mm2 of 0.2 million each, half for modules, 0.3 and a fifth of 60 million for the chip: 76 million.
    """
    found = total(made=dataclasses.replace(MADE, io_area=400 * MM2))
    assert found["dies"] == pytest.approx(204.0 + 100.0 + 8.0)
    carrier, kept = 10.0 * wafer(300.0) / wafer(700.0) + 7.0, 0.8 * 0.9**5
    assert found["package"] == pytest.approx(carrier / kept + 7.0 / 0.8)
    assert found["lost"] == pytest.approx((312.0 + 480.0) * (1.0 / kept - 1.0))
    assert found["design"] == pytest.approx((118.0 + 40.0 + 24.0 + 12.0) / 2.0 + 0.7 + 0.7 + 7e-6)


def test_dies_that_nobody_tested_fail_in_the_package():
    """Without a test 1 / (1 + 0.25) of the dies work, two compute dies and two base dies: 0.8^4 of the packages."""
    process, base = (
        dataclasses.replace(COMPUTE, defect_density=0.25 / (100 * MM2)),
        dataclasses.replace(BASE, defect_density=0.25 / (200 * MM2)),
    )
    made = dataclasses.replace(
        MADE, process=process, base_process=base, io_area=400 * MM2, base_chiplets=2.0, block_area=0.0
    )
    found = total(made=made, fab=dataclasses.replace(FAB, coverage=0.0))
    dies = 200.0 + 2.0 * BASE.wafer_price / wafer(200.0) + 12.0
    assert found["dies"] == pytest.approx(dies)
    assert found["lost"] == pytest.approx((dies + 480.0) * (1.0 / (0.8 * 0.9**6 * 0.8**4) - 1.0))


def test_links_between_the_dies_take_area():
    """160 mm2 and a quarter of that in links are two dies of 100 mm2 as above.

    Of 80 mm2 without links 32 repeat: half of 48 + 20 mm2 of modules and 0.3 of 68 mm2 of the chip are designed.
    """
    found = total(made=dataclasses.replace(MADE, logic_area=160 * MM2), fab=dataclasses.replace(FAB, link_area=0.25))
    assert (found["dies"], found["package"]) == pytest.approx((204.0, 13.0 / KEPT + 3.0 / 0.8))
    assert found["design"] == pytest.approx((0.5 * 68.0 + 0.3 * 68.0 + 60.0) / 2.0 + 1.000003)


def test_dies_bonded_on_base_dies():
    """Four compute dies of 50 mm2 on two base dies of 200 mm2, face to face for 0.1 USD/mm2 and with two bonds each.

    A bond loses 0.1, and 1 / (1 + 0.25) stay of 100 mm2 a base die: 0.81 x 0.8. Two base dies and two stacks stand on
    400 + 100 mm2 of carrier: the larger of the two areas counts.
    """
    hybrid = dataclasses.replace(CARRIED, bond_defects=0.25 / (100 * MM2), bond_price=0.1 / MM2)
    made = dataclasses.replace(
        MADE, chiplets=4.0, io_area=400 * MM2, base_chiplets=2.0, packaging=float(Packaging.hybrid), block_area=0.0
    )
    found = total(made=made, fab=dataclasses.replace(FAB, hybrid=hybrid))
    compute = 4.0 * COMPUTE.wafer_price / wafer(50.0)
    base = 2.0 * BASE.wafer_price / wafer(200.0)
    dies = compute + base + 12.0
    assert found["dies"] == pytest.approx(dies)
    carrier = 10.0 * wafer(300.0) / wafer(500.0) + 5.0
    assert found["package"] == pytest.approx(carrier / KEPT + 5.0 / 0.8 + 20.0)
    stacks = (dies + 20.0) / (0.81 * 0.8)
    assert found["lost"] == pytest.approx(stacks - dies - 20.0 + (stacks + 480.0) * (1.0 / KEPT - 1.0))


def test_parts_of_stated_dies():
    """2,145 mm2 are 2.5 dies of the reticle's 858; links take a tenth of the area of several dies, none of one."""
    fab = dataclasses.replace(FAB, link_area=0.1)
    parts = parts_of(accelerator(), MADE, fab)
    assert float(parts.links) == pytest.approx(20 * MM2) and float(parts.units) == 2.0
    assert float(parts.memory_area) == pytest.approx(100 * MM2)
    assert float(parts_of(accelerator(), dataclasses.replace(MADE, chiplets=4.0), fab).links) == pytest.approx(20 * MM2)
    alone = dataclasses.replace(MADE, chiplets=1.0, stacks_beside=6.0)
    assert float(parts_of(accelerator(), alone, fab).links) == 0.0
    assert float(parts_of(accelerator(), alone, fab).units) == 6.0
    large = parts_of(accelerator(), dataclasses.replace(MADE, chiplets=1.0, logic_area=2145 * MM2), FAB)
    assert float(large.chiplets) == pytest.approx(2.5)


def generated(made=MADE, **values):
    one = chip(**values)
    return parts_of(dataclasses.replace(catalog.record(types.Accelerator, "gpu"), chip=one), made, FAB)


def test_parts_of_a_generated_chip():
    """Three units of 16 GB at 15 USD a GB, or at 100 USD; 50 mm2 each, none where they are stacked on the die.

    200 cores on two dies; of their area, 400 mm2 and two edges of sqrt(2 x 400) mm of links 1 mm deep, 200 are cores.
    """
    parts = generated(spare_cores=0.05)
    assert [float(parts.units), float(parts.memory), float(parts.memory_bytes)] == pytest.approx([3.0, 720.0, 48e9])
    assert float(parts.memory_area) == pytest.approx(150 * MM2)
    assert float(parts.links) == pytest.approx(math.sqrt(800.0) * 1e-3 * 1e-3)
    redundant = parts.redundant
    assert [float(redundant.blocks), float(redundant.spare_blocks)] == pytest.approx([100.0, 5.0])
    assert float(redundant.block_area) == pytest.approx(200.0 / (400.0 + math.sqrt(800.0)))
    assert float(generated(memory=dict(unit_price=100.0)).memory) == pytest.approx(300.0)
    assert float(generated(memory=dict(unit_edge=0.0)).memory_area) == 0.0
    stated = generated(dataclasses.replace(MADE, spare_blocks=1.0), spare_cores=0.05).redundant
    assert [float(stated.blocks), float(stated.spare_blocks), float(stated.block_area)] == [5.0, 1.0, 0.5]
    assert float(generated(spare_cores=0.5).redundant.spare_blocks) == 16.0  # as many as are summed
    assert float(generated(dataclasses.replace(MADE, chiplets=1.0), die_area=1287 * MM2).chiplets) == pytest.approx(1.5)


def test_the_design_of_a_generated_chip():
    """Two dies of 200 mm2 beside four base dies of 100, at 1 million USD a mm2 and 60 million a chip.

    Of a compute die 153 mm2 repeat, with half of two edges of sqrt(800) mm of links it is larger: half of 47 + 20 mm2
    for modules, 0.3 of 47 + sqrt(800) / 2 for the chip. Of a base die 45 mm2 repeat: half and 0.3 of 55 mm2. The
    carrier is 800 + sqrt(800) mm2 and three stacks of 50, the substrate twice that.
    """
    node = dict(design_cost=3e8)
    one = chip(node=node, base_area=400 * MM2, core_area=0.3)
    one = dataclasses.replace(one, base_node=dataclasses.replace(one.base_node, design_cost=3e8))
    made = dataclasses.replace(MADE, base_chiplets=4.0)
    links = math.sqrt(800.0)
    compute, base = 0.5 * 67.0 + 0.3 * (47.0 + links / 2.0) + 60.0, 0.8 * 55.0 + 60.0
    carrier = 800.0 + links + 150.0
    package = 1e-3 * carrier + 1e-6 * 0.01 * carrier + 0.7
    device = dataclasses.replace(catalog.record(types.Accelerator, "gpu"), chip=one, made=made, fab=FAB)
    assert float(bill(device).design) == pytest.approx((compute + base) / 2.0 + package, rel=1e-5)


EMISSIONS = Emissions(
    grid=1e-7,
    fab_grid=2e-7,
    materials=0.5 / MM2 * 1e-2,
    carrier=0.01 / MM2,
    memory_intensity=0.1e-9,
    watt=0.2,
    server=250.0,
)


def test_emissions_of_an_accelerator():
    """A fab takes 0.1 MJ/mm2 at 0.2 kg/MJ, emits 0.005 kg of gas and takes materials of 0.005: 0.03 kg/mm2.

    Compute dies of 200 mm2 of which 1 / (1 + 0.25) are good: 7.5 kg; a base die of 400 mm2 at 0.015 kg/mm2: 6 kg. 32 GB
    at 0.1 kg; the package stands on 400 and 100 mm2 at 0.01 kg.
    """
    process = dataclasses.replace(
        COMPUTE, defect_density=0.25 / (100 * MM2), fab_energy=0.1e6 / MM2, fab_gas=0.005 / MM2
    )
    base = dataclasses.replace(BASE, fab_energy=0.05e6 / MM2, fab_gas=0.0)
    made = dataclasses.replace(MADE, process=process, base_process=base, io_area=400 * MM2, block_area=0.0)
    found = device_carbon(accelerator(made), EMISSIONS)
    assert tuple(map(float, found)) == pytest.approx((7.5 + 6.0, 3.2, 5.0))
    assert float(found.total) == pytest.approx(21.7)
    # Of unknown dies 0.2 kg a watt.
    unknown = accelerator(dataclasses.replace(MADE, logic_area=0.0))
    unknown = dataclasses.replace(unknown, power=dataclasses.replace(unknown.power, tdp=700.0))
    assert tuple(map(float, device_carbon(unknown, EMISSIONS))) == pytest.approx((140.0, 3.2, 0.0))
    nothing = device_carbon(dataclasses.replace(unknown, made=None), EMISSIONS)
    assert tuple(map(float, nothing)) == pytest.approx((140.0, 3.2, 0.0))


def test_emissions_of_a_system_in_use():
    """12 kW at 0.1 kg/MJ: 1.2e-3 kg/s. Ten devices of 21.7 kg and a server's 250, used for half of 1e8 s."""
    prices = Prices(lifetime=1e8, in_use=0.5)
    found = emission_rates(EmbodiedCarbon(13.5, 3.2, 5.0), EMISSIONS, prices, 10.0, 12000.0)
    assert tuple(map(float, found)) == pytest.approx((1.2e-3, 4.34e-6, 5e-5))
    assert float(found.total) == pytest.approx(1.25434e-3)
