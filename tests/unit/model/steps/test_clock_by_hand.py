"""The clock under a power limit in numbers, worked out by hand in comments."""

from __future__ import annotations

import dataclasses

import pytest

from dse.model.machine.power import Demand
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
