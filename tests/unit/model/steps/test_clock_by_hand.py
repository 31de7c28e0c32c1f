"""The clock under a power limit in numbers, worked out by hand in comments."""

from __future__ import annotations

import dataclasses

import pytest

from dse.model.machine.power import LOWEST_CLOCK, Demand
from dse.model.steps.operating import limited_clock
from dse.types import Power
from tests.designs import ACCELERATOR
from tests.programs import by_numpy

clock_of = by_numpy(limited_clock)

#: Clock trees alone draw power, and the voltage follows the clock: ``400 W f^3`` at ``f`` times the nominal clock.
NAMES = ("matrix_energy", "vector_energy", "cache_energy", "memory_energy", "leakage", "uncore", "threshold")
CUBIC = Power(**dict.fromkeys(NAMES, 0.0), control=400.0, lowest_voltage=0.01, nominal_clock=1e9, clock=1e9)


@pytest.mark.parametrize(
    ("tdp", "limit", "clock", "ratio", "as_sold"),
    [
        # Sold with 400 W, which is the nominal clock. A limit of 50 W is (50 / 400)^(1/3) = 0.5 of it.
        (400.0, 400.0, 1.0, 1.0, 1.0),
        (400.0, 500.0, 1.0, 1.0, 1.0),
        (400.0, 50.0, 1.0, 0.5, 1.0),
        (1000.0, 1000.0, 1.0, 1.0, 1.0),
        (1000.0, 600.0, 1.0, 1.0, 1.0),
        # A clock that is set lower stays, and draws 400 x 0.6^3 = 86 W.
        (400.0, 400.0, 0.6, 0.6, 1.0),
        (400.0, 100.0, 0.6, 0.6, 1.0),
        (400.0, 50.0, 0.6, 0.5, 1.0),
        # Sold with 204.8 W, 0.8 of the nominal clock: limits count from there, 25.6 W is 0.4 of the nominal clock.
        (204.8, 204.8, 1.0, 0.8, 0.8),
        (204.8, 300.0, 1.0, 0.8, 0.8),
        (204.8, 25.6, 1.0, 0.4, 0.8),
        (204.8, 204.8, 0.6, 0.6, 0.8),
    ],
)
def test_the_clock_of_a_limit(tdp, limit, clock, ratio, as_sold):
    power = dataclasses.replace(CUBIC, tdp=tdp, limit=limit, clock=clock * 1e9)
    accelerator = dataclasses.replace(ACCELERATOR, power=power)
    solved = clock_of(accelerator, 1e-3, Demand(1e-3, 0.0, 0.0, 0.0))
    assert float(solved.ratio) == pytest.approx(ratio, rel=1e-3)
    assert float(solved.as_sold) == pytest.approx(as_sold, rel=1e-3)
    assert not bool(solved.violates_limit)


#: Each repetition of the work takes 0.4 J at the nominal voltage, and clock trees nothing.
WORK = dataclasses.replace(CUBIC, control=0.0, tdp=256.0)


@pytest.mark.parametrize(
    ("work", "limit", "ratio"),
    [
        # Measured in 1 ms under 256 W: 400 W f^2 is that at 0.8 of the nominal clock, at which the cores took 1 ms, at
        # the nominal one 0.8 ms. So the work draws 0.4 J f^2 / (0.8 ms / f) = 500 W f^3: 32 W at 0.4.
        (Demand(1e-3, 0.0, 0.4, 0.0), 256.0, 0.8),
        (Demand(1e-3, 0.0, 0.4, 0.0), 32.0, 0.4),
        # Memory time does not follow the clock: 400 W f^2 is 100 W at 0.5.
        (Demand(0.0, 1e-3, 0.4, 0.0), 100.0, 0.5),
        # But below 0.5 of the clock as sold, 0.4 of the nominal one: 0.4 J f^2 / (1 ms 0.4 / f) is 8 W at 0.2.
        (Demand(0.0, 1e-3, 0.4, 0.0, memory_time=1e-3, knee=0.5), 100.0, 0.5),
        (Demand(0.0, 1e-3, 0.4, 0.0, memory_time=1e-3, knee=0.5), 8.0, 0.2),
    ],
)
def test_work_as_measured_is_that_at_the_clock_as_sold(work, limit, ratio):
    accelerator = dataclasses.replace(ACCELERATOR, power=dataclasses.replace(WORK, limit=limit))
    solved = clock_of(accelerator, 1e-3, work)
    assert float(solved.ratio) == pytest.approx(ratio, rel=1e-3)
    assert float(solved.as_sold) == pytest.approx(0.8, rel=1e-3)


@pytest.mark.parametrize(("share", "violates"), [(1.005, False), (1.5, True), (4.0, True)])
def test_a_limit_that_the_lowest_clock_exceeds_by_over_a_hundredth_is_violated(share, violates):
    """400 W f^3 at the lowest clock, over the limit."""
    power = dataclasses.replace(CUBIC, tdp=400.0, limit=400.0 * LOWEST_CLOCK**3 / share)
    solved = clock_of(dataclasses.replace(ACCELERATOR, power=power), 1e-3, Demand(1e-3, 0.0, 0.0, 0.0))
    assert bool(solved.violates_limit) is violates
    assert float(solved.ratio) == pytest.approx(LOWEST_CLOCK, rel=1e-3)
