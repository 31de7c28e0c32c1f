"""Superconducting logic over CMOS by factors: each by hand, their products the gains that they explain."""

import math

import pytest

from docs.make.studies import superconducting
from dse.designs import catalog


@pytest.mark.parametrize("cooler", [0.1, 0.155, 0.2, 0.3, 1.0])
def test_factors_multiply_to_the_gain(cooler):
    """Of ours, and of the gain claimed over ours."""
    gain = superconducting.logic_gain(cooler)
    assert math.prod(superconducting.logic_factors(cooler).values()) == pytest.approx(gain, rel=1e-3)
    claimed = math.prod(superconducting.claimed_factors(cooler).values())
    assert claimed * gain == pytest.approx(superconducting.CLAIMED, rel=1e-6)


def test_factors_by_hand():
    """B200: 37,500 transistors a FLOP, 0.26 of them a cycle, 56 aJ each; boards: 4,500, a half, 2e-20 J."""
    factors = superconducting.logic_factors(0.2)
    assert factors["devices"] == pytest.approx(37500 / 4500) and factors["activity"] == pytest.approx(0.26 / 0.5)
    assert factors["switch"] == pytest.approx(5.458e-13 / (0.26 * 37500) / 2e-20, rel=1e-3)
    assert 1.0 / factors["cooler"] == pytest.approx(1.0 + 296.0 / 4.0 / 0.2)
    assert factors["FLOPs"] == pytest.approx(1.0, rel=1e-4) and 0.5 < factors["other logic"] < 2.0


def test_plants_of_helium():
    """Green 2015 by hand; Strobridge's 0.19 at 1 kW and 0.24 at 10 kW, read off within 15 %."""
    assert superconducting.plant_efficiency(1e3) == 0.155
    assert superconducting.plant_efficiency(18e3) == pytest.approx(0.155 * math.exp(0.23 * math.log(18.0)))
    assert superconducting.plant_efficiency(18e3) == pytest.approx(0.30, abs=0.005)
    assert superconducting.plant_efficiency(3e3) == pytest.approx(0.2, abs=0.001)
    for load, read in ((1e3, 0.19), (1e4, 0.24)):
        assert superconducting.plant_efficiency(load) == pytest.approx(read, rel=0.2)
    efficiencies = [superconducting.plant_efficiency(load) for load in (10.0, 150.0, 3e3, 18e3, 35e3)]
    assert sorted(efficiencies) == efficiencies and efficiencies[-1] < 0.36


def test_the_catalogue_is_by_these_sources():
    """Its cooler is a plant that eight stacks share; its junctions are those of 105 adders and a fifth more."""
    chip = catalog.entry("architecture", "scd")
    load = superconducting.stack_load()
    assert load == pytest.approx(100 * (1.96e17 * 4500 * 0.5 * 2e-20 + 1.176), rel=1e-3)
    assert chip.value("cooler") == pytest.approx(superconducting.plant_efficiency(8.0 * load), rel=0.01)
    assert sum(superconducting.ADDERS.values()) == 105 and superconducting.fewest_junctions() == 0.5 * 105 * 70
    assert superconducting.fewest_junctions() < chip.value("matrix_devices") < 1.3 * superconducting.fewest_junctions()


def test_larger_plants_gain_more_and_none_the_claim():
    """From the stack's plant to a large one; only without any cooler logic gains more than 100, by two orders."""
    small, large = superconducting.gains()
    assert small < large < superconducting.CLAIMED
    without = superconducting.logic_gain(1.0) * (1.0 + 296.0 / 4.0)
    assert without > 100.0 * superconducting.CLAIMED
    assert f"{superconducting.claimed_factors(0.15)['CMOS']:.1f} times: its CMOS" in superconducting.reason()
