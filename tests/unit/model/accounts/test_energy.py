"""Energy and power of a step: parts, laws, derivatives, clocks and limits."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from hypothesis import given, strategies as st

import dse
from docs.make.energy.runs import DAY, MWH, RUNS, modelled
from dse.designs import replace
from dse.doors.evaluation import evaluate
from dse.types import Infeasible, Metrics
from tests.designs import designs, make_design
from tests.programs import metrics_of, slopes_by_numpy

POWER = "system.accelerator.power"

#: What energy follows smoothly: the clock, the voltage curve of the node, bandwidths, energies of work.
SMOOTH = [
    f"{POWER}.clock",
    f"{POWER}.threshold",
    f"{POWER}.leakage",
    f"{POWER}.matrix_energy",
    f"{POWER}.memory_energy",
    "system.accelerator.memory.bandwidth",
    "system.scale_up.bandwidth",
    "system.scale_out.bandwidth",
    "system.pue",
]


def limited(design, watts):
    return replace(design, {f"{POWER}.limit": watts})


def parts(metrics):
    names = [f.name for f in dataclasses.fields(Metrics) if f.name.startswith("energy_per_step_")]
    return [float(getattr(metrics, name)) for name in names]


@given(design=designs())
def test_parts_add_up(design):
    metrics = metrics_of(design)
    assert min(parts(metrics)) >= 0.0
    assert sum(parts(metrics)) == pytest.approx(float(metrics.energy_per_step), rel=1e-5)
    mean = float(metrics.energy_per_step) / float(metrics.step_time)
    assert float(metrics.average_power) == pytest.approx(mean, rel=1e-5)
    tokens = float(design.workload.global_batch * design.workload.seq_len)
    assert float(metrics.energy_per_token) * tokens == pytest.approx(float(metrics.energy_per_step), rel=1e-5)


@given(design=designs())
def test_a_device_keeps_to_its_limit(design):
    power = design.system.accelerator.power
    metrics = metrics_of(design)
    # What memory and links take is not throttled, and a fully throttled core still draws something.
    most = 1.5 * float(power.tdp)
    assert float(power.uncore) <= float(metrics.device_power) <= most
    assert float(metrics.average_power) <= 1.5 * float(metrics.provisioned_power)


#: Energy of a step and its gradient with respect to the leaves of the first argument (path -> value).
energy_and_slope = slopes_by_numpy(lambda values, design: evaluate(replace(design, values)).energy_per_step)


slopes_of_limit = {
    name: slopes_by_numpy(lambda watts, design, name=name: getattr(evaluate(limited(design, watts)), name))
    for name in ("step_time", "energy_per_step")
}


@given(design=designs(), path=st.sampled_from(SMOOTH), share=st.floats(0.72, 1.0))
def test_gradient_is_the_finite_difference(design, path, share):
    """Also at lower clocks; where a maximum switches inside the step, the one-sided slopes bracket it."""
    with jax.enable_x64(True):
        exact = jax.tree.map(np.float64, replace(design, {f"{POWER}.clock": share * 1.5e9}))
        values = {p: np.float64(functools.reduce(getattr, p.split("."), exact)) for p in SMOOTH}
        x = values[path]
        step = 1e-6 * x
        here, slopes = energy_and_slope(values, exact)
        above, below = (energy_and_slope(values | {path: x + s}, exact)[0] for s in (step, -step))
    right, left, slope = float(above - here) / step, float(here - below) / step, float(slopes[path])
    tolerance = 1e-3 * max(abs(right), abs(left)) + 1e-9 * float(here) / step
    assert min(left, right) - tolerance <= slope <= max(left, right) + tolerance


@given(design=designs(), shares=st.tuples(st.floats(0.3, 1.0), st.floats(0.3, 1.0)))
def test_a_lower_clock_never_makes_a_step_shorter(design, shares):
    slow, fast = (replace(design, {f"{POWER}.clock": share * 1.5e9}) for share in sorted(shares))
    assert float(metrics_of(slow).step_time) >= float(metrics_of(fast).step_time) * (1.0 - 1e-5)


@given(design=designs(), shares=st.tuples(st.floats(0.4, 1.2), st.floats(0.4, 1.2)))
def test_a_lower_limit_never_makes_a_step_shorter(design, shares):
    tight, loose = (metrics_of(limited(design, share * 400.0)) for share in sorted(shares))
    assert float(tight.step_time) >= float(loose.step_time) * (1.0 - 1e-4)


@given(design=designs())
def test_the_limit_as_sold_changes_nothing(design):
    free, as_sold = metrics_of(design), metrics_of(limited(design, 400.0))
    assert float(as_sold.step_time) == pytest.approx(float(free.step_time), rel=1e-4)


def test_a_limit_that_no_clock_meets_is_told():
    found = metrics_of(limited(make_design(), 50.0))
    assert int(found.infeasible_reason) & Infeasible.power
    assert np.isfinite(float(found.step_time)) and np.isfinite(float(found.energy_per_step))


def test_the_slope_of_a_limit_is_the_finite_difference():
    """The derivative of the clock that meets a limit comes from the implicit function theorem."""
    with jax.enable_x64(True):
        design = jax.tree.map(np.float64, make_design(tp=4.0, micro_batch=4.0))
        above, below = (metrics_of(limited(design, np.float64(250.0 + step))) for step in (0.05, -0.05))
        for name, slope_of in slopes_of_limit.items():
            difference = float(getattr(above, name) - getattr(below, name)) / 0.1
            assert slope_of(np.float64(250.0), design)[1] == pytest.approx(difference, rel=2e-3)


def test_energy_of_work_follows_the_square_of_the_voltage():
    """Half-way down the voltage curve the same FLOPs take less, on a longer step."""
    fast = metrics_of(make_design())
    slow = metrics_of(replace(make_design(), {f"{POWER}.clock": 1.1e9}))
    assert float(slow.energy_per_step_matrix) < 0.9 * float(fast.energy_per_step_matrix)
    assert float(slow.energy_per_step_uncore) > float(fast.energy_per_step_uncore)


@given(design=designs(), share=st.floats(0.0, 1.0))
def test_a_device_that_waits_for_others_polls(design, share):
    """Exposed messages, bubble and waits for replicas take the clocks of polling cores, and nothing else changes."""
    free = replace(design, {f"{POWER}.tdp": 1e5, "software.jitter": 0.1})  # no limit holds
    polls, sleeps = (metrics_of(replace(free, {f"{POWER}.polling": value})) for value in (share, 0.0))
    messages = ("tensor_parallel", "expert_parallel", "context_parallel", "pipeline_parallel", "data_parallel")
    waited = sum(float(getattr(sleeps, f"step_time_{name}")) for name in (*messages, "bubble", "synchronization"))
    power, mapping = design.system.accelerator.power, design.mapping
    devices = float(mapping.tp * mapping.pp * mapping.dp * mapping.cp)
    more = float(polls.energy_per_step_control) - float(sleeps.energy_per_step_control)
    clocks = share * waited * devices * float(power.control)
    assert more == pytest.approx(clocks, rel=1e-3, abs=1e-5 * sum(parts(polls)))
    assert float(polls.step_time) == float(sleeps.step_time)
    assert float(polls.energy_per_step_leakage) == float(sleeps.energy_per_step_leakage)


def test_a_device_that_waits_draws_more_than_at_rest_and_less_than_at_work():
    """A deep pipeline of few micro-batches waits most of its step."""
    shallow, deep = (make_design(pp=pp, tp=1.0, dp=1.0, micro_batch=4.0) for pp in (1.0, 8.0))
    work, wait = (float(metrics_of(one).device_power) for one in (shallow, deep))
    idle = float(metrics_of(replace(deep, {f"{POWER}.polling": 0.0})).device_power)
    power = deep.system.accelerator.power
    assert float(power.uncore + power.leakage) < idle < wait < work


@given(design=designs())
def test_the_forward_alone_is_a_part_of_the_step(design):
    """No backward, recompute, gradients or optimiser; a third of the FLOPs; not more time, memory or energy.

    What is left of data parallelism is gathering weights that ZeRO 3 splits.
    """
    whole, forward = metrics_of(design), metrics_of(replace(design, {"workload.backward": 0.0}))
    for name in ("backward", "recompute", "optimizer"):
        assert float(getattr(forward, f"step_time_{name}")) == 0.0
    replicas = float(design.mapping.dp * design.mapping.cp)
    gathers = float(design.mapping.zero_stage) == 3.0 and replicas > 1.0
    assert (float(forward.step_time_data_parallel) > 0.0) == gathers
    assert float(forward.model_flops) == pytest.approx(float(whole.model_flops) / 3.0, rel=1e-5)
    for name in ("step_time", "energy_per_step", "peak_memory_gradients", "peak_memory_optimizer"):
        assert float(getattr(forward, name)) <= float(getattr(whole, name)) * (1.0 + 1e-5)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.workload)
def test_published_runs_come_out_in_order(run):
    """The mapping of one and the host's share of both are guesses; days and energy agree to within a quarter."""
    found = modelled(run)
    assert float(found.run_time) / DAY == pytest.approx(run.days, rel=0.25)
    energy = float(found.run_energy) / MWH
    assert energy <= run.energy if run.bound else energy == pytest.approx(run.energy, rel=0.25)


def test_gradients_reach_the_node_and_the_memory():
    """Energy of a generated chip by energies, voltages and bandwidths of its technology, against differences."""
    paths = [
        f"system.accelerator.chip.{name}"
        for name in (
            "node.energy",
            "node.threshold",
            "node.clock",
            "memory.unit_bandwidth",
            "memory.unit_energy",
            "die_area",
            "power_budget",
            "clock_ratio",
            "matrix_area",
        )
    ]
    with jax.enable_x64(True):
        made = dse.design("llama-3-8b", "generated-h100", tp=4, micro_batch=1, recompute="full")
        design = jax.tree.map(np.float64, made)
        values = {p: np.float64(functools.reduce(getattr, p.split("."), design)) for p in paths}
        _, slopes = energy_and_slope(values, design)
        for path, x in values.items():
            up = 0.0 if path.endswith("clock_ratio") else 1e-4  # a clock at the nominal one can only move down
            shifted = [values | {path: x * factor} for factor in (1.0 + up, 1.0 - 1e-4)]
            above, below = (float(energy_and_slope(v, design)[0]) for v in shifted)
            difference = (above - below) / ((up + 1e-4) * x)
            assert float(slopes[path]) == pytest.approx(difference, rel=0.02, abs=1e-6 * above / x), path
