"""Dies, packages and accelerators in money: published rows, analysts' bills, laws, slopes."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from docs.make.cost import bill_of
from dse import types, validate
from dse.designs import catalog
from dse.measured.comparison import compare
from dse.model.machine.technology import generate
from dse.model.money.account import device_carbon, die_carbon
from dse.model.money.device import Bill, bill, parts_of, price_of
from dse.model.money.die import die, die_yield, dies_per_wafer, survival
from dse.types import Emissions, Fab, Manufacture, Packaging, Prices, Process
from dse.types.paths import build

ROWS = "tests/published/bills/chiplet_actuary.csv"
MM2 = 1e-6


def test_rows_of_the_chiplet_actuary_to_their_printed_digit():
    """Ten systems computed by the actuary's own code (Feng and Ma, DAC 2022), printed to six digits."""
    compared = [c for c in compare(ROWS) if c.measured]
    assert len({c.measurement.row.cells["case_id"] for c in compared}) == 10 and not any(c.skip for c in compared)
    for c in compared:
        assert abs(c.predicted - c.measured) <= 0.5000001 * 10.0 ** -min(6, _decimals(c)), (c.metric, c.error)


def _decimals(c) -> int:
    """Digits after the point, as printed; of a trailing zero nothing is known, so six."""
    return 6 if math.log10(abs(c.measured)) < 6.0 else 1


def test_the_rows_come_through_validate():
    report = validate(ROWS)
    assert sum(row["predicted"] for row in report["rows"]) > 140
    assert max(row["mape"] for row in report["rows"]) < 1e-5


@pytest.mark.parametrize(
    ("cells", "told"),
    [({"model": "paper"}, "unknown cost model"), ({"package": "glass"}, "unknown package"),
     ({"groups": "7 nm x2"}, "cannot be read"), ({"groups": "6 nm:100 mm2 x1"}, "without a price")],
)  # fmt: skip
def test_rows_that_cannot_be_priced_say_why(tmp_path, cells, told):
    row = {"case_id": "a", "model": "chiplet_actuary", "package": "SoC_organic", "groups": "7 nm:100 mm2 x1"} | cells
    file = tmp_path / "bills.csv"
    file.write_text(",".join([*row, "die0_area"]) + "\n" + ",".join([*row.values(), "100"]) + "\n")
    (found,) = compare(file)
    assert told in str(found.skip)


@pytest.mark.parametrize(("area", "raw", "sold"), [(200.0, 58.68, 104.58)])
def test_a_die_of_catch(area, raw, sold):
    """CATCH packs whole dies row by row and counts the use of the reticle; a smooth count is near."""
    fab, entry = build(Fab, catalog.values("cost", "catch")), catalog.entry("cost", "catch")
    process = Process(**{n: entry.value(f"nodes.5nm.{n}") for n in ("wafer_price", "defect_density")})
    found = die(area * MM2, process, fab, Manufacture())
    assert found.raw == pytest.approx(raw, rel=0.02) and found.cost == pytest.approx(sold, rel=0.02)
    assert float(survival(814 * MM2, 0.5e4 * 0.67, 2.0)) == pytest.approx(0.1790, abs=1e-4)
    for size, whole in ((100.0, 637), (200.0, 308), (400.0, 148), (814.0, 69)):
        assert dies_per_wafer(size * MM2, fab) == pytest.approx(whole, rel=0.1)


def accelerator(name, **made):
    own = build(Manufacture, catalog.manufacture(name) | made)
    return dataclasses.replace(catalog.record(types.Accelerator, name), made=own)


@pytest.mark.parametrize(("name", "dollars"), [("h100", 3320.0), ("b200", 6400.0), ("mi300x", 5300.0)])
def test_bills_of_analysts(name, dollars):
    """Manufacturing costs as siliconanalysts.com estimates them (2025), within 25 %, with one set of parameters."""
    found = bill(accelerator(name))
    assert float(found.total - found.design) == pytest.approx(dollars, rel=0.25)
    assert float(sum(found)) == pytest.approx(float(found.total), rel=1e-6)


def test_harvest_counts_the_dies_that_may_lack_blocks():
    """Against the binomial sum of SciPy, and no die of which blocks may be defect sells worse for it."""
    binom = pytest.importorskip("scipy.stats").binom
    fab, process = Fab(), Process(defect_density=2000.0)
    made = Manufacture(blocks=40.0, spare_blocks=2.0, block_area=0.7)
    area = 400 * MM2
    lost = 1.0 - (1.0 + 0.7 * area * 2000.0 / (40.0 * 10.0)) ** -10.0
    expected = (1.0 + 0.3 * area * 2000.0 / 10.0) ** -10.0 * binom.cdf(2, 40, lost)
    assert float(die_yield(area, process, fab, made)) == pytest.approx(expected, rel=1e-5)
    sold = [float(die_yield(area, process, fab, dataclasses.replace(made, spare_blocks=k))) for k in (0.0, 0.5, 1, 16)]
    assert sold == sorted(sold) and sold[1] == pytest.approx(0.5 * (sold[0] + sold[2]), rel=1e-6)


def test_a_test_that_misses_dies_ships_bad_ones():
    found = die(300 * MM2, Process(), Fab(coverage=0.9, die_test=1.0), Manufacture())
    known = die(300 * MM2, Process(), Fab(), Manufacture())
    assert known.quality == pytest.approx(1.0) and known.cost == pytest.approx(float(known.raw / known.good))
    passing = 1.0 - (1.0 - known.good) * 0.9
    assert found.cost == pytest.approx(float((known.raw + 1.0) / passing)) and found.quality < 1.0


GPU = catalog.record(types.Accelerator, "gpu")


def cost(chiplets=1.0, area=800.0, defects=0.12, volume=1e6, packaging=Packaging.silicon, design=0.0):
    """USD of a generated accelerator without its memory and test; ``design``: times its design."""
    made = Manufacture(chiplets=chiplets, volume=volume, packaging=packaging, block_area=0.0)
    node = dataclasses.replace(GPU.chip.node, defect_density=defects * 1e4)
    chip = dataclasses.replace(GPU.chip, die_area=area * MM2, node=node, stacks=0.0)
    found = bill(dataclasses.replace(GPU, chip=chip, made=made))
    return found.dies + found.package + found.lost + design * found.design


def test_laws_of_cost():
    """More area and more defects cost more, more units less; splitting pays past a threshold alone."""
    over = jax.jit(jax.vmap(cost, in_axes=(0, 0, 0, 0, None, None)))
    one = np.ones(9)
    area, defects = np.linspace(50.0, 850.0, 9), np.linspace(0.01, 0.3, 9)
    for found in (
        over(one, area, 0.12 * one, 1e6 * one, 2.0, 1.0),
        over(one, 800.0 * one, defects, 1e6 * one, 2.0, 1.0),
        over(one, 800.0 * one, 0.12 * one, np.geomspace(1e8, 1e4, 9), 2.0, 1.0),
    ):
        assert np.all(np.diff(found) > 0.0)
    for packaging in (0.0, 1.0, 2.0, 3.0):
        small, large = (
            over(np.array([1.0, 4.0] + 7 * [1.0]), a * one, 0.12 * one, 1e6 * one, packaging, 0.0)
            for a in (60.0, 800.0)
        )
        assert small[1] > small[0] and large[1] < large[0], packaging


@pytest.mark.parametrize("packaging", list(Packaging))
def test_slopes_of_cost_are_those_of_differences(packaging):
    """By the count of dies, area and defects: the whole bill is smooth between its named thresholds."""
    at = (3.5, 700.0, 0.15, 1e6)
    with jax.enable_x64(True):
        slopes = jax.grad(lambda *x: cost(*x, float(packaging), 1.0), argnums=(0, 1, 2, 3))(*at)
        for i, (value, slope) in enumerate(zip(at, slopes, strict=True)):
            step = 1e-6 * value
            up, down = (cost(*at[:i], value + s, *at[i + 1 :], float(packaging), 1.0) for s in (step, -step))
            assert float(slope) == pytest.approx(float((up - down) / (2 * step)), rel=1e-5), i


def test_prices_are_those_as_sold_else_of_the_bill_else_of_the_power():
    prices = Prices()
    assert price_of(accelerator("h100"), prices)[0] == pytest.approx(28000.0)
    sold, of_bill = price_of(accelerator("h100", price=0.0), prices)
    assert sold == pytest.approx(float((of_bill.total - of_bill.design) / 0.2 + of_bill.design))
    unknown, nothing = price_of(accelerator("a30", price=0.0), prices)
    assert unknown == pytest.approx(35.0 * 165.0) and float(nothing.total) == 0.0
    h100 = catalog.record(types.Accelerator, "h100")
    assert price_of(h100, prices) == (35.0 * 700.0, Bill(0.0, 0.0, 0.0, 0.0, 0.0, 0.0))


@pytest.mark.parametrize("name", ["gb200-nvl72", "gb300-nvl72"])
def test_the_same_dies_emit_the_same(name):
    """Of GB200 and B200 the dies are alike: without [made] kilograms of a watt stood for them, three times as many."""
    own, other = (device_carbon(accelerator(one), Emissions()) for one in (name, "b200"))
    assert (float(own.dies), float(own.package)) == pytest.approx((float(other.dies), float(other.package)), rel=0.02)
    assert float(bill(accelerator(name)).total) > 5000.0


def test_memory_that_finds_no_room_is_not_paid():
    """A die of 400 mm2 has 48 mm of its edge for memory, of which a stack takes 11, and area for fewer."""

    def chip(stacks, area=400.0):
        return dataclasses.replace(GPU, chip=dataclasses.replace(GPU.chip, stacks=stacks, die_area=area * MM2))

    few, full, more = (bill(chip(stacks)) for stacks in (2.0, 8.0, 32.0))
    assert float(full.total) == float(more.total) and float(few.memory) < float(full.memory)
    parts = parts_of(chip(32.0), Manufacture(), Fab())
    assert 3.0 < float(parts.units) < 0.6 * 4.0 * 20.0 / 11.0
    assert float(parts.memory_bytes) == pytest.approx(float(generate(chip(32.0)).memory.capacity), rel=1e-6)


def test_no_bill_is_nan():
    """In single precision, for chips that no fab would make."""
    draw = np.random.default_rng(0)

    def of(area, base, stacks, defects, chiplets, packaging):
        node = dataclasses.replace(GPU.chip.node, defect_density=defects)
        chip = dataclasses.replace(GPU.chip, die_area=area, base_area=base, stacks=stacks, node=node, base_node=node)
        made = Manufacture(chiplets=chiplets, packaging=packaging, blocks=100.0, spare_blocks=5.0, block_area=0.5)
        accelerator = dataclasses.replace(GPU, chip=chip, made=made)
        return jnp.stack([*bill(accelerator), *device_carbon(accelerator, Emissions())])

    ranges = [(1e-7, 1.0), (1e-9, 1.0), (1e-2, 1e5), (1e-3, 1e7), (1.0, 1e4)]
    at = [np.exp(draw.uniform(np.log(low), np.log(high), 500)).astype(np.float32) for low, high in ranges]
    found = jax.jit(jax.vmap(of))(*at, draw.integers(0, 5, 500).astype(np.float32))
    assert np.all(np.isfinite(found)) and np.all(found >= 0.0)


def test_no_die_is_larger_than_the_reticle():
    """1,716 mm2 are two dies, whether these are asked for or not; a design of one pays for the second's links."""
    whole, asked = cost(1.0, 2.0 * 858.0), cost(2.0, 2.0 * 858.0)
    assert float(whole) == pytest.approx(float(asked), rel=1e-6)


def test_carbon_of_a_die():
    """ACT: 814 mm2 of 5 nm, 42.42 % good, made in Taiwan: 47.8 kg."""
    found = die_carbon(814 * MM2, 0.4242, Process(), Emissions())
    assert float(found) == pytest.approx(47.8, abs=0.05)
    assert jnp.isfinite(found)


def test_the_margin_of_chips_that_nobody_sells_is_that_of_those_sold():
    """The default is the median over those whose price and dies the catalogue states, to the first digit."""
    kept = []
    for slug in catalog.names("accelerator"):
        made = catalog.manufacture(slug)
        if made.get("price") and made.get("logic_area"):
            kept.append(1.0 - bill_of(slug).total / made["price"])
    assert len(kept) >= 7
    assert float(np.median(kept)) == pytest.approx(Manufacture().margin, abs=0.05)
