"""Laws of clock, voltage and power: more clock draws more, a limit is met, its clock has the right slope."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dse import types
from dse.designs import catalog
from dse.model.machine.power import (
    LOWEST_CLOCK,
    Demand,
    at_clock,
    busy_power,
    clock_under_limit,
    flop_energy,
    power_limit,
    voltage,
)
from dse.types import Power, Precision
from tests.programs import by_numpy, slopes_by_numpy

CHIP = catalog.record(types.Accelerator, "h200-sxm-141gb")
POWER = CHIP.power
quick = settings(deadline=None, max_examples=40)
RATIOS = st.floats(0.15, 1.0)
TIMES = st.sampled_from([1e-6, 1e-4, 1e-2])
SHARES = st.floats(0.0, 1.0)
WATTS = st.sampled_from([0.0, 50.0, 400.0, 2000.0])


def demand(time=1e-4, share=0.7, core=400.0, other=100.0, active=1.0) -> Demand:
    """Work of so many seconds, ``share`` of them the cores', that adds ``core`` and ``other`` watts at full clock."""
    return Demand(share * time, (1.0 - share) * time, core * time, other * time, active)


clock = by_numpy(clock_under_limit)
drawn_by = by_numpy(busy_power)
slope_by_limit = slopes_by_numpy(lambda watts, work: clock_under_limit(work, watts, 1.0, POWER))


@quick
@given(RATIOS, RATIOS, TIMES, SHARES, WATTS, SHARES)
def test_more_clock_draws_more(a, b, time, share, core, active):
    work = demand(time, share, core, active=active)
    low, high = (drawn_by(work, r, POWER) for r in sorted((a, b)))
    assert low <= high * (1.0 + 1e-5)


@quick
@given(st.floats(250.0, 1200.0), st.floats(250.0, 1200.0), TIMES, SHARES, WATTS)
def test_a_higher_limit_never_lowers_clock_or_power_nor_lengthens_time(a, b, time, share, core):
    work = demand(time, share, core)
    ratios = [clock(work, limit, 1.0, POWER) for limit in sorted((a, b))]
    assert ratios[0] <= ratios[1] * (1.0 + 1e-4)
    low, high = (drawn_by(work, ratio, POWER) for ratio in ratios)
    assert low <= high * (1.0 + 1e-3)
    slow, fast = (float(work.core_time / ratio + work.other_time) for ratio in ratios)
    assert slow >= fast * (1.0 - 1e-4)


@quick
@given(st.floats(300.0, 900.0), TIMES, SHARES, WATTS)
def test_the_limit_is_met_wherever_the_clock_obeys_it(limit, time, share, core):
    work = demand(time, share, core)
    ratio = clock(work, limit, 1.0, POWER)
    drawn = drawn_by(work, ratio, POWER)
    if ratio >= 1.0:
        assert drawn <= limit * (1.0 + 1e-3)
    elif ratio > LOWEST_CLOCK:
        assert drawn == pytest.approx(limit, rel=1e-3)
    else:
        assert drawn >= limit * (1.0 - 1e-3)


@pytest.mark.parametrize("name", ["limit", "core", "threshold"])
def test_the_slope_of_the_clock_is_that_of_finite_differences(name):
    power = dataclasses.replace(POWER, lowest_voltage=0.3)

    def solved(value: jax.Array) -> jax.Array:
        own = dataclasses.replace(power, threshold=value) if name == "threshold" else power
        work = demand(core=value if name == "core" else 600.0)
        return clock_under_limit(work, value if name == "limit" else jnp.asarray(600.0), jnp.asarray(1.0), own)

    with jax.enable_x64(True):
        at, step = jnp.asarray({"limit": 600.0, "core": 600.0, "threshold": 0.3}[name], jnp.float64), 1e-3
        assert LOWEST_CLOCK < solved(at) < 1.0
        central = (solved(at * (1.0 + step)) - solved(at * (1.0 - step))) / (2.0 * step * at)
        assert float(jax.jit(jax.grad(solved))(at)) == pytest.approx(float(central), rel=1e-3)


def test_the_parts_of_power_add_up():
    work, bare = demand(share=0.5), demand(share=0.5, core=0.0, other=0.0, active=0.0)
    full, rest = (drawn_by(one, 1.0, POWER) for one in (work, bare))
    assert rest == pytest.approx(float(POWER.uncore) + float(POWER.leakage), rel=1e-5)
    assert full == pytest.approx(rest + float(POWER.control) + 400.0 + 100.0, rel=1e-5)


def test_voltage_follows_the_clock_down_to_its_floor():
    free = Power(threshold=0.3, lowest_voltage=0.01)
    volts = np.array([float(voltage(jnp.asarray(r), free)) for r in (0.1, 0.5, 1.0, 1.2)])
    assert volts[2] == pytest.approx(1.0, rel=1e-5)
    assert np.all(np.diff(volts) > 0.0)
    assert np.array([0.1, 0.5, 1.0, 1.2]) == pytest.approx((volts - 0.3) ** 2 / volts / 0.49, rel=1e-3)
    assert float(voltage(jnp.asarray(0.1), Power(lowest_voltage=0.8))) == pytest.approx(0.8)


def test_a_bend_by_hand():
    """V_t 0, no saturation: V = f. With V_0 0.8 and a bend of 0.05, so a width of 0.04, at f = 0.8 the hyperbola is
    0.02 and at f = 1 (0.2 + 0.2040) / 2 = 0.2020: V = 0.8 + 0.2 x 0.02 / 0.2020 = 0.8198.
    """
    bent = Power(threshold=0.0, lowest_voltage=0.8, voltage_bend=0.05)
    volts = [float(voltage(jnp.asarray(ratio), bent)) for ratio in (0.8, 1.0)]
    assert volts == pytest.approx([0.8198, 1.0], abs=1e-4)


@quick
@given(RATIOS, st.floats(0.05, 0.4), st.floats(0.1, 0.99), st.floats(0.0, 0.2))
def test_a_bend_keeps_the_lowest_and_the_nominal_voltage(ratio, threshold, lowest, bend):
    kink = Power(threshold=threshold, lowest_voltage=lowest)
    law = dataclasses.replace(kink, voltage_bend=bend)
    volts, higher = (float(voltage(jnp.asarray(r), law)) for r in (ratio, min(1.0, 1.05 * ratio)))
    assert lowest * (1.0 - 1e-5) <= volts <= higher * (1.0 + 1e-5)
    assert float(voltage(jnp.asarray(1.0), law)) == pytest.approx(1.0, abs=1e-5)
    assert abs(volts - float(voltage(jnp.asarray(ratio), kink))) <= 0.5 * bend * lowest + 1e-4


@pytest.mark.parametrize("lowest", [0.7, 1.0])
@pytest.mark.parametrize("bend", [0.0, 0.05, 1.0])
def test_a_bend_ends_at_the_nominal_voltage(lowest, bend):
    """Also where the lowest voltage is the nominal one, with nothing to bend."""
    kink = Power(threshold=0.2, lowest_voltage=lowest)
    for ratio in (1.1, 1.3):
        volts = float(voltage(jnp.asarray(ratio), dataclasses.replace(kink, voltage_bend=bend)))
        assert volts == pytest.approx(float(voltage(jnp.asarray(ratio), kink)), rel=1e-6) and volts > 1.0


@quick
@given(RATIOS)
def test_launches_and_what_memory_lacks_follow_the_clock(ratio):
    """A byte of HBM at its own clock, what kernels lose of the bandwidth in cycles."""
    device = catalog.record(types.Accelerator, "h100-sxm-80gb")
    slow = at_clock(device, ratio)
    assert float(slow.kernels.kernel_floor) == pytest.approx(device.kernels.kernel_floor / ratio, rel=1e-5)
    share, slow_share = (float(one.kernels.memory_efficiency) for one in (device, slow))
    bandwidth = float(slow.memory.bandwidth)
    assert bandwidth == pytest.approx(min(device.memory.bandwidth, device.power.feed * ratio), rel=1e-5)
    cycles = (1.0 / share - 1.0) / (device.memory.bandwidth * ratio)
    assert 1.0 / (slow_share * bandwidth) == pytest.approx(1.0 / bandwidth + cycles, rel=1e-4)


@quick
@given(RATIOS, st.floats(0.05, 0.4), st.sampled_from([0.0, 0.5, 4.0, 100.0]))
def test_the_voltage_is_that_of_the_law(ratio, threshold, saturation):
    """``f ~ (V - V_t)^2 / (V (1 + s (V - V_t)))``: alpha 2 without saturation, alpha 1 far in it."""
    law = Power(threshold=threshold, saturation=saturation, lowest_voltage=1e-3)
    volts = float(voltage(jnp.asarray(ratio), law))

    def current(v: float) -> float:
        return (v - threshold) ** 2 / (v * (1.0 + saturation * (v - threshold)))

    assert threshold <= volts <= 1.0 + 1e-5
    assert current(volts) / current(1.0) == pytest.approx(ratio, rel=5e-3)


@quick
@given(RATIOS, st.floats(0.05, 0.38), st.floats(0.0, 8.0), st.floats(0.0, 8.0))
def test_saturation_lowers_the_voltage_of_lower_clocks(ratio, threshold, a, b):
    less, more = (
        float(voltage(jnp.asarray(ratio), Power(threshold=threshold, saturation=s, lowest_voltage=1e-3)))
        for s in sorted((a, b))
    )
    assert more <= less * (1.0 + 1e-4)


def test_rates_follow_the_clock_and_memory_does_not():
    half = at_clock(CHIP, jnp.asarray(0.9))
    assert half.matrix_rate.bf16 == pytest.approx(0.9 * CHIP.matrix_rate.bf16)
    assert half.memory.bandwidth == pytest.approx(CHIP.memory.bandwidth)
    starved = at_clock(CHIP, jnp.asarray(0.2))
    assert starved.memory.bandwidth == pytest.approx(0.2 * POWER.feed)


def test_narrow_formats_cost_less_and_the_operator_limits():
    formats = (Precision.fp4, Precision.fp8, Precision.bf16)
    energies = [float(flop_energy(jnp.asarray(float(p)), POWER)) for p in formats]
    assert energies == sorted(energies)
    assert energies[-1] == pytest.approx(POWER.matrix_energy, rel=1e-6, abs=0.0)
    assert power_limit(POWER) == 700.0
    assert power_limit(dataclasses.replace(POWER, limit=500.0)) == 500.0


@pytest.mark.parametrize("work", [demand(0.0, core=0.0, other=0.0), demand(1e3), demand(core=1e9), demand(share=0.0)])
@pytest.mark.parametrize("limit", [1.0, 700.0, 1e9])
def test_extremes_are_numbers(work, limit):
    ratio = clock(work, limit, 1.0, POWER)
    assert np.isfinite([ratio, drawn_by(work, ratio, POWER), *slope_by_limit(limit, work)]).all()
    assert LOWEST_CLOCK <= ratio <= 1.0
