"""Laws of a step under a clock or a power limit: lower ones never help time, and a lower voltage saves energy."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import dse
from dse.designs import replace
from dse.model.machine.power import Demand, busy_power, voltage
from dse.types import Metrics
from tests.programs import metrics_of

CLOCK, LIMIT = "system.accelerator.power.clock", "system.accelerator.power.limit"
quick = settings(deadline=None, max_examples=30)


def layer(device="a30", model="gpt-3-13b", **settings):
    return dse.design(
        workload=model,
        system=device,
        software="pytorch-eager",
        n_layers=2,
        vocab=1024,
        seq_len=512,
        global_batch=4,
        micro_batch=2,
        precision="fp16",
        **settings,
    )


#: As sold, under that limit as one that is set, and where no limit ever binds.
SOLD, LIMITED, FREE = layer(), layer(limit="165 W"), layer(tdp="1000 W")
NOMINAL = float(FREE.system.accelerator.power.nominal_clock)


def at(design, **values):
    return metrics_of(replace(design, {CLOCK if k == "clock" else LIMIT: float(v) for k, v in values.items()}))


@quick
@given(st.floats(0.15, 1.0), st.floats(0.15, 1.0), st.sampled_from([SOLD, LIMITED]))
def test_at_a_lower_clock_nothing_gets_faster(a, b, design):
    slow, fast = (at(design, clock=ratio * NOMINAL) for ratio in sorted((a, b)))
    for field in dataclasses.fields(Metrics):
        if field.name.startswith("step_time") and field.name != "step_time_host":
            assert getattr(slow, field.name) >= getattr(fast, field.name) * (1.0 - 1e-5), field.name


@quick
@given(st.floats(40.0, 165.0), st.floats(40.0, 165.0))
def test_a_lower_limit_never_shortens_a_step_nor_raises_its_power(a, b):
    low, high = (at(LIMITED, limit=watts) for watts in sorted((a, b)))
    assert low.step_time >= high.step_time * (1.0 - 1e-4)
    assert low.device_power <= high.device_power * (1.0 + 1e-3)


@quick
@given(st.floats(0.15, 1.0), st.floats(0.15, 1.0))
def test_energy_of_useful_switching_falls_with_the_voltage(a, b):
    slow, fast = (at(FREE, clock=ratio * NOMINAL) for ratio in sorted((a, b)))
    assert slow.energy_per_step_matrix <= fast.energy_per_step_matrix * (1.0 + 1e-5)
    volts = [float(voltage(jnp.float32(ratio), FREE.system.accelerator.power)) for ratio in sorted((a, b))]
    measured = float(slow.energy_per_step_matrix / fast.energy_per_step_matrix)
    assert measured == pytest.approx((volts[0] / volts[1]) ** 2, rel=1e-3)


@quick
@given(st.floats(0.15, 1.0), st.floats(60.0, 165.0))
def test_energy_parts_add_up(ratio, watts):
    found = at(LIMITED, clock=ratio * NOMINAL, limit=watts)
    parts = [
        float(getattr(found, f.name)) for f in dataclasses.fields(Metrics) if f.name.startswith("energy_per_step_")
    ]
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(float(found.energy_per_step), rel=1e-5)


def test_a_limit_as_sold_changes_no_time():
    assert float(metrics_of(LIMITED).step_time) == pytest.approx(float(metrics_of(SOLD).step_time), rel=1e-5)


def pretrained(device):
    """Two layers of Llama 3 70B, whose products draw about what the device is sold with."""
    return dse.design(
        workload="llama-3-70b",
        system=device,
        n_layers=2,
        vocab=1024,
        seq_len=8192,
        global_batch=8,
        tp=2,
        n_devices=8,
        micro_batch=1,
    )


def capped(design, share):
    return replace(design, {LIMIT: share * float(design.system.accelerator.power.tdp)})


POWER = "system.accelerator.power."
SOLD_BY_CHIP = {name: pretrained(name) for name in ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb")}
#: Energies with which the limit as sold binds.
HOT = {
    name: replace(one, {POWER + "matrix_energy": 2.0 * float(one.system.accelerator.power.matrix_energy)})
    for name, one in SOLD_BY_CHIP.items()
}


@pytest.mark.parametrize("name", SOLD_BY_CHIP)
@pytest.mark.parametrize("designs", [SOLD_BY_CHIP, HOT], ids=["as fitted", "throttled as sold"])
def test_a_cap_at_the_limit_as_sold_costs_exactly_nothing(designs, name):
    whole = metrics_of(designs[name])
    for share in (1.0, 1.2):
        same = metrics_of(capped(designs[name], share))
        assert float(same.step_time) == float(whole.step_time)


@quick
@given(st.floats(0.4, 1.0), st.floats(0.4, 1.0), st.sampled_from(sorted(SOLD_BY_CHIP)), st.booleans())
def test_a_cap_costs_more_the_lower_it_is_and_at_most_in_proportion_to_the_clock(a, b, name, hot):
    design = (HOT if hot else SOLD_BY_CHIP)[name]
    low, high, whole = (metrics_of(capped(design, share)) for share in (*sorted((a, b)), 1.0))
    assert low.step_time >= high.step_time * (1.0 - 1e-4) >= whole.step_time * (1.0 - 2e-4)
    assert low.device_power <= high.device_power * (1.0 + 2e-3)


@pytest.mark.parametrize("name", SOLD_BY_CHIP)
def test_a_cap_counts_from_the_clock_that_the_limit_as_sold_leaves(name):
    """Of a step that is throttled as sold the first watts cost time at once, in proportion, from nothing."""
    whole = float(metrics_of(HOT[name]).step_time)
    costs = [float(metrics_of(capped(HOT[name], share)).step_time) / whole - 1.0 for share in (0.995, 0.95, 0.9)]
    assert 0.0 < costs[0] < 0.01
    assert costs[1] == pytest.approx(0.5 * costs[2], rel=0.25)
    assert 0.02 < costs[2] < 0.1


@pytest.mark.parametrize("name", SOLD_BY_CHIP)
def test_a_cap_that_never_binds_leaves_the_step_of_a_board_without_limit(name):
    """As the energies go to nothing, so does what a cap costs."""
    cold = replace(SOLD_BY_CHIP[name], {POWER + leaf: 0.0 for leaf in ("matrix_energy", "cache_energy", "control")})
    assert float(metrics_of(capped(cold, 0.6)).step_time) == float(metrics_of(cold).step_time)


@quick
@given(st.floats(60.0, 165.0), st.floats(60.0, 165.0), st.floats(0.15, 1.0))
def test_the_clock_reached_grows_with_the_limit_up_to_the_clock_that_is_set(a, b, ratio):
    low, high = (at(LIMITED, limit=watts, clock=ratio * NOMINAL) for watts in sorted((a, b)))
    assert low.clock_reached <= high.clock_reached * (1.0 + 1e-3)
    assert high.clock_reached <= ratio * NOMINAL * (1.0 + 1e-5)


@quick
@given(st.floats(60.0, 165.0))
def test_a_step_at_the_clock_reached_takes_the_time_of_the_step_under_the_limit(watts):
    limited = at(replace(FREE, {LIMIT: 165.0}), limit=watts)
    assert float(limited.clock_reached) <= NOMINAL
    same = at(FREE, clock=float(limited.clock_reached))
    assert float(same.step_time) == pytest.approx(float(limited.step_time), rel=1e-4)


@quick
@given(st.floats(0.15, 1.0))
def test_a_limit_that_does_not_bind_leaves_the_clock_that_is_set(ratio):
    for design in (FREE, replace(FREE, {LIMIT: 1000.0})):
        assert float(at(design, clock=ratio * NOMINAL).clock_reached) == pytest.approx(ratio * NOMINAL, rel=1e-5)
    assert float(metrics_of(FREE).clock_reached) == NOMINAL


@pytest.mark.parametrize(("watts", "share"), [(400.0, 1.0), (50.0, 0.5), (400.0 * 0.8**3, 0.8), (500.0, 1.0)])
def test_the_clock_reached_by_hand(watts, share):
    """Without threshold the voltage follows the clock, and with clock trees alone power is ``400 W (f / f_0)^3``."""
    energies = ("matrix_energy", "vector_energy", "cache_energy", "memory_energy", "leakage", "uncore", "threshold")
    cubic = replace(
        FREE,
        dict.fromkeys((POWER + name for name in energies), 0.0)
        | {POWER + "saturation": 0.0, POWER + "control": 400.0, POWER + "lowest_voltage": 0.01, LIMIT: watts}
        | {"software.host_time": 0.0},
    )
    cubic = replace(cubic, {POWER + "voltage_bend": None}) if cubic.system.accelerator.power.voltage_bend else cubic
    assert float(metrics_of(cubic).clock_reached) == pytest.approx(share * NOMINAL, rel=1e-3)


def test_energy_is_u_shaped_in_the_clock():
    energies = np.array(
        [float(m.device_power * m.step_time) for m in (at(FREE, clock=r * NOMINAL) for r in np.linspace(0.15, 1.0, 18))]
    )
    least = int(np.argmin(energies))
    assert 0 < least < len(energies) - 1
    assert np.all(np.diff(energies[: least + 1]) < 0.0) and np.all(np.diff(energies[least:]) > 0.0)


@quick
@given(st.floats(0.15, 1.0), st.floats(0.0, 1e-2))
def test_waiting_for_the_host_draws_less(ratio, host):
    power = FREE.system.accelerator.power
    work = Demand(*map(jnp.float32, (1e-3, 2e-4)), host_time=jnp.float32(0.0), core_energy=0.1, other_energy=0.02)
    hosts = (work, work._replace(host_time=jnp.float32(host)))
    busy, waiting = (busy_power(one, jnp.float32(ratio), power) for one in hosts)
    assert waiting <= busy * (1.0 + 1e-6)
    assert waiting >= power.uncore
