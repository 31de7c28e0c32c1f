"""Runs with failures: the best interval against failures drawn at random, published runs, laws, ends."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dse
from dse.designs import all_leaves, leaf, replace
from dse.doors import TRAINING
from dse.errors import InputError
from dse.model.accounts.failures import (
    CheckpointTimes,
    FailureRates,
    best_interval,
    growth,
    lost_time,
    relative_slowdown,
    spare_wait,
    storage_bandwidth,
)
from dse.model.steps.training import StepTime
from dse.model.work.convergence import critical_batch
from dse.spec.sweep import from_text
from dse.types import Convergence, Infeasible, Reliability
from dse.types.fields import LARGEST, SMALLEST
from dse.views.studies import presentation_of
from dse.views.studies.training import _failures_text
from tests.unit.sweep.toy import sweep

DAY, HOUR = 86400.0, 3600.0
RELIABILITY = "system.reliability"
KINDS = ("synchronous", "asynchronous", "in-memory")

#: Compiled once for all cases.
lost_of = jax.jit(lost_time)


@functools.cache
def llama(kind="synchronous", n_devices=16384, **values):
    """Llama 3 405B on so many H100s; failures as they are where nothing is said."""
    return dse.design(
        "llama-3-1-405b",
        "eos",
        "megatron-core",
        n_devices=n_devices,
        tp=8,
        pp=16,
        zero_stage=1,
        sequence_parallel=1,
        global_batch=2048,
        run_tokens=15.6e12,
        checkpoint=kind,
        **values,
    )


def at(design, **values):
    """Metrics with leaves of its reliability replaced."""
    return dse.evaluate(replace(design, {f"{RELIABILITY}.{name}": value for name, value in values.items()}))


# --- failures at random ---------------------------------------------------------------------------------------


def drawn(generator, interval, saving, back, rate, work, runs):
    """Mean seconds of runs whose failures are drawn: stretch by stretch, from the last checkpoint that was safe."""
    period = interval + saving.stall
    done, spent = np.zeros(runs), np.zeros(runs)
    going = np.full(runs, True)
    while going.any():
        left = np.ceil((work - done) / interval - 1e-9)
        up = generator.exponential(1.0 / rate, runs)
        ends = up >= left * period
        safe = np.clip(np.floor((up - saving.time_to_restorable) / period), 0.0, left)
        spent += np.where(going, np.where(ends, left * period, up), 0.0)
        done += np.where(going & ~ends, safe * interval, 0.0)
        going &= ~ends
        restarts = going.copy()
        while restarts.any():
            fails = generator.exponential(1.0 / rate, runs)
            spent += np.where(restarts, np.minimum(fails, back), 0.0)
            restarts &= fails < back
    return spent.mean()


#: Mean time between failures, stall, time until a checkpoint is safe, restart: in seconds.
RANDOM = [(3 * HOUR, 60.0, 0.0, 600.0), (HOUR, 300.0, 0.0, 600.0), (2 * HOUR, 10.0, 200.0, 400.0)]


def compared_with_drawn(mtbf, stall, exposed, back, stretches, runs):
    """Expected over drawn time at the interval that is found, and drawn time there over the least of others."""
    reliability = Reliability(restart_time=back, detection_time=0.0)
    saving, rates = CheckpointTimes(stall, exposed, 0.0, 0.0), FailureRates(0.0, 1.0 / mtbf)
    lost = lost_of(reliability, saving, rates, 1.0)
    best = float(lost.interval)
    times = {}
    for factor in (1.0, 0.5, 0.7, 1.4, 2.0):
        interval = factor * best
        count = max(round(stretches / factor), 1)
        whole = drawn(np.random.default_rng(7), interval, saving, back, 1.0 / mtbf, count * interval, runs)
        times[factor] = whole / (count * interval)
    return (1.0 + float(lost.total)) / times[1.0], times[1.0] / min(times.values())


@pytest.mark.parametrize("case", RANDOM)
def test_the_best_interval_is_that_of_failures_drawn_at_random(case):
    ratio, excess = compared_with_drawn(*case, stretches=100, runs=1000)
    assert ratio == pytest.approx(1.0, abs=0.02)
    assert excess <= 1.02


@pytest.mark.slow
@pytest.mark.parametrize("case", [*RANDOM, (HOUR / 6, 120.0, 0.0, 300.0), (HOUR / 2, 1.0, 100.0, 60.0)])
def test_many_more_failures_say_the_same(case):
    ratio, excess = compared_with_drawn(*case, stretches=1000, runs=20_000)
    assert ratio == pytest.approx(1.0, abs=0.02)
    assert excess <= 1.002


def test_no_other_interval_loses_less():
    stalls = np.logspace(-6, 1.3, 60)
    found = np.asarray(jax.jit(best_interval)(jnp.float32(stalls), 1.0), np.float64)
    intervals = found * np.linspace(0.5, 2.0, 200)[:, None]
    loss = np.expm1(intervals + stalls) / intervals  # a mean of one second between failures
    assert np.max(np.expm1(found + stalls) / found / loss.min(axis=0)) < 1.0003


@pytest.mark.parametrize("mtbf", [HOUR, 10 * HOUR, 1000 * HOUR])
def test_the_interval_of_short_checkpoints_is_youngs(mtbf):
    for stall in (1e-4 * mtbf, 1e-3 * mtbf):
        assert float(best_interval(stall, 1.0 / mtbf)) == pytest.approx(np.sqrt(2.0 * stall * mtbf), rel=0.05)


def test_growth_is_exact_in_single_precision():
    x = np.logspace(-12, 1.3, 200)
    assert np.asarray(growth(jnp.float32(x))) == pytest.approx(np.expm1(x) / x - 1.0, rel=1e-5)


# --- published ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interruptions", [419, 466])
def test_llama_3_trains_for_more_than_ninety_per_cent_of_the_time(kind, interruptions):
    """54 days on 16,384 H100s, 466 interruptions of which 419 unexpected (Llama team 2024, section 3.3.4)."""
    factor = 419 / interruptions
    defaults = Reliability()
    mtbf = {name: factor * getattr(defaults, name) for name in vars(defaults) if name.endswith("_mtbf")}
    found = at(llama(kind), **mtbf)
    assert float(found.time_between_failures) == pytest.approx(54 * DAY / interruptions, rel=0.005)
    trained = found.run_time + found.run_time_with_failures_stragglers
    assert 0.90 < float(trained / found.run_time_with_failures) < 0.97
    # 1 MB to 4 GB of state a device (section 3.3.1), 14 bytes a parameter
    assert float(found.checkpoint_bytes) == pytest.approx(14 * 405.9e9, rel=0.01)


def test_checkpoints_in_memory_are_as_often_as_young_says():
    """REFT (Wang et al. 2023): the square root of 2 C MTBF, within 5 %."""
    found = at(llama("in-memory"), copy_interference=1.0, device_mtbf=1e9)
    young = np.sqrt(2.0 * float(found.checkpoint_stall) * float(found.time_between_failures))
    assert float(found.checkpoint_stall) < 1e-3 * float(found.time_between_failures)
    assert float(found.checkpoint_interval) == pytest.approx(young, rel=0.05)


def test_hidden_checkpoints_gain_no_more_than_datastates_says():
    """Up to 48 times faster checkpoints and 2.2 times faster runs (Maurya et al. 2024), with one every step.

    Where each waits for the one before, runs gain a factor of two at most.
    """
    for batch in (16.0, 48.0, 256.0):
        design = dse.design("llama-13b", "selene", tp=4, pp=4, global_batch=batch, checkpoint_every=1e-3)
        waits, hides = (at(design, checkpoint=code) for code in (0.0, 1.0))
        assert 1.0 < float(waits.run_time_with_failures / hides.run_time_with_failures) <= 2.0
        if batch == 16.0:  # storage sets the pace
            assert 1.0 < float(waits.checkpoint_stall / hides.checkpoint_stall) <= 48.0


def test_congestion_of_a_few_messages_costs_what_c4_gained():
    """15 % where a step has 13 % of exposed messages that collisions make 2.15 times as long (C4: Dong et al. 2024)."""
    step = StepTime(
        **dict.fromkeys(StepTime._fields, 0.0) | {"forward": 0.87, "data_parallel": 0.10, "pipeline_parallel": 0.03}
    )
    assert float(relative_slowdown(Reliability(slow_nodes=0.0, congestion=1.15), 1024.0, step)) == pytest.approx(
        0.15, rel=0.01
    )


def test_a_job_waits_for_its_slow_nodes():
    """Expected as drawn at random: the passes of a job take 10 % longer if one of its nodes is among the 0.5 %."""
    step = StepTime(**dict.fromkeys(StepTime._fields, 0.0) | {"forward": 0.6, "bubble": 0.2, "tensor_parallel": 0.2})
    nodes = np.array([1, 32, 128, 1536])
    lost = relative_slowdown(Reliability(), 8.0 * nodes, step)
    drawn_slow = np.random.default_rng(0).random((4000, nodes.max())) < 0.005
    of_drawn = [0.08 * drawn_slow[:, :some].any(1).mean() for some in nodes]
    np.testing.assert_allclose(lost, of_drawn, atol=1e-3)
    assert float(relative_slowdown(Reliability(slow_nodes=0.0), 1e5, step)) == 0.0
    assert float(relative_slowdown(Reliability(slow_nodes=1.0), 8.0, step)) == pytest.approx(0.08, rel=1e-4)


def test_flops_of_a_run():
    """A model of a trillion parameters, 20 T tokens: 1.2e26 FLOPs (Heim 2024, of Frontier), within 3 %."""
    found = dse.evaluate(dse.design("megatron-1t", "frontier", tp=8, pp=64, run_tokens=20e12))
    assert float(found.run_flops) == pytest.approx(1.2e26, rel=0.03)


# --- storage ---------------------------------------------------------------------------------------------------


def test_a_small_cluster_has_a_file_server_and_a_large_one_a_file_system():
    """By hand: 4^1.3 = 6.063 times 1.5 GB/s for 256 devices; 256^1.3 = 1,351 times it are beyond 2 TB/s."""

    def of(n_devices, **values):
        sized = replace(llama(n_devices=1024), {"system.n_devices": float(n_devices)} | values)
        return float(storage_bandwidth(sized.system))

    assert [of(n) for n in (1, 8, 64, 16384, 131072)] == pytest.approx([1.5e9, 1.5e9, 1.5e9, 2e12, 2e12], rel=1e-6)
    assert of(256) == pytest.approx(9.094e9, rel=1e-3)
    sizes = [of(n) for n in (32, 64, 128, 512, 1024, 4096, 16384, 65536)]
    assert all(np.diff(sizes) >= 0.0)
    assert 7e9 < of(256) < 20e9, "written by a scalable unit of a DGX SuperPOD H100: good, better"
    assert of(3072) == pytest.approx(273e9, rel=0.25), "checkpoints of Selene (Narayanan et al. 2021)"
    assert of(64, **{f"{RELIABILITY}.storage_bandwidth": 2e12}) == 2e12


def test_a_checkpoint_of_64_devices_takes_minutes_and_says_of_which_storage():
    """Llama 2 70B: 14 bytes of each of 69e9 parameters are 966 GB, 644 s at 1.5 GB/s; people report ten minutes."""
    design = dse.design("llama-2-70b", "selene", n_devices=64, tp=8, pp=8)
    found = dse.evaluate(design)
    assert float(found.checkpoint_bytes) == pytest.approx(966e9, rel=0.01)
    assert float(found.checkpoint_time) == pytest.approx(644.0, rel=0.02)
    values = {name: float(getattr(found, name)) for name in TRAINING.group("run") | {"run_time", "step_time"}}
    told = _failures_text(values, design)
    assert "(storage of 1.50 GB/s, the default for 64 devices)" in told
    stated = dse.design("llama-2-70b", "selene", n_devices=64, tp=8, pp=8, storage_bandwidth=250e9)
    assert "(storage of 250 GB/s)" in _failures_text(values, stated)
    assert "storage" not in _failures_text(values, replace(stated, {f"{RELIABILITY}.checkpoint": 2.0}))


# --- laws -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_goodput_falls_with_devices_and_rises_with_what_is_better(kind):
    by_devices = [float(at(llama(kind, n)).goodput_fraction) for n in (1024, 4096, 16384, 65536, 131072)]
    assert all(np.diff(by_devices) < 0.0)
    large = llama(kind, 131072)
    for name in (
        "device_mtbf",
        "link_mtbf",
        "node_mtbf",
        "software_mtbf",
        "storage_bandwidth",
        "device_storage_bandwidth",
        "spares",
    ):
        start = {"spares": 10.0, "storage_bandwidth": 2e12}.get(name) or leaf(large, f"{RELIABILITY}.{name}")
        found = [float(at(large, **{name: factor * start}).goodput_fraction) for factor in (1e-3, 0.1, 0.5, 1.0, 4.0)]
        assert all(np.diff(found) >= -1e-6), name
        if name.endswith("_mtbf"):
            assert found[0] < found[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_what_each_checkpoint_stops_training_for_makes_them_rarer(kind):
    """Written ones as Young says, minutes apart by default; those in memory are not written. None is ever free."""
    overheads = (0.0, 0.1, 1.0, 10.0, 100.0)
    found = [at(llama(kind), checkpoint_overhead=overhead) for overhead in overheads]
    intervals = [float(m.checkpoint_interval) for m in found]
    goodput = [float(m.goodput_fraction) for m in found]
    if kind == "in-memory":
        assert len(set(intervals)) == len(set(goodput)) == 1
        return
    assert all(np.diff(intervals) > 0.0) and all(np.diff(goodput) < 0.0)
    young = np.sqrt(2.0 * float(found[2].checkpoint_stall) * float(found[2].time_between_failures))
    assert intervals[2] == pytest.approx(young, rel=0.02) and intervals[2] > 120.0


@pytest.mark.parametrize("n_devices", [1024, 16384])
def test_the_storage_writes_no_more_than_it_can(n_devices):
    """A checkpoint is over before the next begins, however cheap it is for the training."""
    for bandwidth in (1e10, 1e11, 1e12, 1e13):
        found = at(llama("asynchronous", n_devices), checkpoint_overhead=0.0, storage_bandwidth=bandwidth)
        written = float(found.checkpoint_bytes) / float(found.checkpoint_interval + found.checkpoint_stall)
        assert written <= bandwidth * (1.0 + 1e-4)


@pytest.mark.parametrize("faster", [1e-4, 1e-3, 1e-2, 1.0])
@pytest.mark.parametrize("mtbf", [1e4, 1e6, 1e8])
def test_asynchronous_loses_no_more_than_synchronous(faster, mtbf):
    values = {"storage_bandwidth": 2e12 * faster, "device_mtbf": mtbf}
    waits, hides = (at(llama(), checkpoint=code, **values) for code in (0.0, 1.0))
    assert float(hides.run_time_with_failures) <= float(waits.run_time_with_failures) * (1.0 + 1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mtbf", [1e-24, 1.0, 1e3, 1e8, 1e24, float("inf")])
def test_parts_add_up_and_nothing_overflows(kind, mtbf):
    found = at(
        llama(kind),
        spares=1.0,
        slow_nodes=0.01,
        straggler_slowdown=0.02,
        congestion=0.5,
        **{name: mtbf for name in vars(Reliability()) if name.endswith("_mtbf")},
    )
    values = {name: float(getattr(found, name)) for name in TRAINING.group("run")}
    assert all(np.isfinite(value) for value in values.values())
    parts = [values[name] for name in TRAINING.parts("run_time_with_failures")]
    assert min(parts) >= 0.0 and values["run_time_with_failures"] == pytest.approx(sum(parts), rel=1e-6)
    assert values["goodput_fraction"] == pytest.approx(float(found.run_time) / sum(parts), rel=1e-6)
    if mtbf >= 1e24:
        stragglers = values["run_time_with_failures_stragglers"]
        assert values["run_time_with_failures"] - stragglers < 1.001 * float(found.run_time)


@pytest.mark.parametrize("record", [RELIABILITY, "workload.convergence"])
def test_no_leaf_at_its_bounds_gives_no_number(record):
    design = llama("asynchronous", critical_batch=0.0)
    names = sorted(TRAINING.group("run") | {"run_time"})
    for path, about in all_leaves().items():
        low, high = max(about["bounds"].low, SMALLEST), min(about["bounds"].high, LARGEST)
        for extreme in (low, high) if path.startswith(f"{record}.") and "enum" not in about else ():
            for kind in range(3):
                found = dse.evaluate(replace(design, {path: extreme, f"{RELIABILITY}.checkpoint": float(kind)}))
                lost = [name for name in names if np.isnan(float(getattr(found, name)))]
                assert not lost, (path, extreme, kind)


def test_repair_is_waited_for_without_spares():
    assert float(spare_wait(Reliability(spares=0.0, repair_time=7.0), 1e-9)) == pytest.approx(7.0, rel=1e-3)
    for mean in (0.05, 1.0, 7.0, 60.0):
        spares = np.arange(0.0, 3.0 * mean + 2.0)
        waits = jax.vmap(lambda s, m: spare_wait(Reliability(spares=s, repair_time=1.0), m), (0, None))(spares, mean)
        chances, erlang = np.asarray(waits) * (1.0 + spares), [1.0]
        for s in spares[1:]:  # B(s) = m B(s - 1) / (s + m B(s - 1))
            erlang.append(mean * erlang[-1] / (s + mean * erlang[-1]))
        assert all(np.diff(chances) <= 0.0)
        near = chances / np.array(erlang)
        assert np.all(((near > 0.5) & (near < 1.15))[np.array(erlang) > 1e-6])
        far = (spares > 2.0 * mean) & (np.array(erlang) > 1e-6)
        np.testing.assert_allclose(chances[far], np.array(erlang)[far], rtol=0.1)
    without, enough = (at(llama(), slow_nodes=0.0, spares=spares).goodput_fraction for spares in (0.0, 20.0))
    assert without < 0.3 < 0.9 < enough


def test_slopes_are_differences():
    saving, rates = CheckpointTimes(20.0, 30.0, 100.0, 60.0), FailureRates(3e-5, 4e-5)
    with jax.enable_x64(True):

        def lost(values):
            reliability = dataclasses.replace(Reliability(spares=3.0), restart_time=values[2], repair_time=values[3])
            chances = FailureRates(rates.hardware * values[1], rates.total * values[1])
            return lost_time(reliability, saving._replace(stall=values[0]), chances, 5.0).total

        lost = jax.jit(lost)
        here = jnp.array([20.0, 1.0, 200.0, 4e4])
        steps = jnp.diag(1e-5 * here)
        differences = [(lost(here + step) - lost(here - step)) / (2.0 * step.sum()) for step in steps]
        np.testing.assert_allclose(jax.grad(lost)(here), differences, rtol=1e-6)


# --- tokens that a batch needs ----------------------------------------------------------------------------------


def test_the_critical_batch_is_that_of_the_loss():
    """Kaplan et al. 2020, section 5.1: 2e8 tokens at one nat, exponent 0.21."""
    assert float(critical_batch(Convergence(target_loss=1.0))) == pytest.approx(2e8)
    assert float(critical_batch(Convergence(target_loss=2.0))) == pytest.approx(2e8 / 2.0 ** (1 / 0.21))
    assert float(critical_batch(Convergence(critical_batch=1e6))) == 1e6


def test_larger_batches_need_more_tokens_and_fewer_steps():
    """``E / E_min - 1`` and ``S / S_min - 1`` are one another's reciprocal (McCandlish et al. 2018, equation 2.11)."""
    tokens, critical, least = [], 8e6, 15.6e12
    for batch in (1024, 2048, 4096):
        design = replace(llama(critical_batch=critical), {"workload.global_batch": float(batch)})
        found = dse.evaluate(design)
        tokens.append(float(found.tokens_needed))
        steps = tokens[-1] / (batch * 8192)
        assert (tokens[-1] / least - 1.0) * (steps / (least / critical) - 1.0) == pytest.approx(1.0, rel=1e-3)
        for metric, of_step in (("run_time", "step_time"), ("run_energy", "energy_per_step")):
            assert float(getattr(found, metric)) == pytest.approx(steps * float(getattr(found, of_step)), rel=1e-5)
    assert all(np.diff(tokens) > 0.0)


def test_run_tokens_are_those_of_the_reference_batch():
    found = dse.evaluate(llama(critical_batch=8e6, reference_batch=2048 * 8192.0))
    assert float(found.tokens_needed) == pytest.approx(15.6e12, rel=1e-6)


# --- doors ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "asked"),
    [
        ("", False),
        ("[output]\nrun = true", True),
        ("[output]\nrun = false", False),
        ('[objective]\nminimize = "run_time_with_failures"', True),
        ('[constraints]\nall = ["goodput_fraction >= 0.9"]', True),
        ('[objective]\nminimize = "cost_per_run / goodput_fraction"', True),
        ('[objective]\nminimize = "run_time"', False),
    ],
)
def test_sweeps_have_the_metrics_of_runs_where_they_ask_for_them(more, asked):
    assert ("goodput_fraction" in sweep(more=more).metrics) is asked


def test_a_kind_of_checkpoint_is_an_axis():
    spec = sweep('checkpoint = ["synchronous", "in-memory"]\ncritical_batch = [1e4]')
    assert set(TRAINING.group("run")) <= set(spec.metrics)
    with pytest.raises(InputError, match="asynchronous, in-memory, synchronous"):
        llama("lazy")
    with pytest.raises(InputError, match="true or false"):
        sweep(more='[output]\nrun = "yes"')


def test_one_design_is_told_with_its_failures():
    told = presentation_of(TRAINING).remark("run_time_with_failures", vars(dse.evaluate(llama())), llama())
    assert told.startswith(
        "Effective training time: 92.2 %, in which slow nodes and congestion lengthen steps by 9.6 %. "
        "Mean time between failures: 3 h 5 min"
    )


@pytest.mark.parametrize(
    ("interval", "told"),
    [(9.75, "(every step)"), (16.3, "(1.67 steps; every 2 steps, because a checkpoint follows a whole one)"),
     (19.5, "(every 2 steps)"), (9750.0, "(1,000 steps)")],
)  # fmt: skip
def test_the_interval_is_told_in_whole_steps(interval, told):
    metrics = {name: float(value) for name, value in vars(dse.evaluate(llama())).items()}
    metrics |= {"step_time": 9.75, "checkpoint_interval": interval}
    assert f" s {told}, stall" in presentation_of(TRAINING).remark("run_time_with_failures", metrics, llama())


def test_no_interval_is_shorter_than_a_step():
    """Where checkpoints cost next to nothing, and where too short an interval is stated."""
    for kind in KINDS:
        for values in (
            {"device_mtbf": 1.0},
            {"storage_bandwidth": 1e18, "device_storage_bandwidth": 1e18},
            {"checkpoint_every": 1e-3},
        ):
            found = at(llama(kind), **values)
            assert float(found.checkpoint_interval) >= float(found.step_time) * (1.0 - 1e-6)


# --- serving --------------------------------------------------------------------------------------------------


def test_a_replica_answers_but_while_it_is_down():
    design = dse.design("llama-3-70b", "h100", tp=8, dp=16, spares=6)
    served = dse.serve(design)
    between, up = float(served.time_between_failures), float(served.availability)
    load = float(served.peak_memory_weights) / 2.5e9
    assert between * (1.0 / up - 1.0) == pytest.approx(600.0 + load, rel=0.02)
    assert between == pytest.approx(419**-1 * 54 * DAY * 16384 / 8, rel=0.01)
    alone = dse.serve(replace(design, {f"{RELIABILITY}.spares": 0.0}))
    assert float(alone.availability) < up < 1.0
    with pytest.raises(InputError, match="checkpoint"):
        from_text('[workload]\nname = "llama-3-70b"\n[system]\nname = "h100"\n[serving]\n[axes]\ncheckpoint = [0, 1]')


# --- what it costs --------------------------------------------------------------------------------------------


def test_spares_that_are_stated_are_paid():
    """64 nodes of eight beside 2,048 are a thirty-second of what is bought; those of a larger cluster are not paid."""
    free, some, more = (at(llama(), **stated) for stated in ({}, {"spares": 64.0}, {"spares": 128.0}))
    for name in ("capital_cost", "capital_cost_devices", "carbon_per_run_devices"):
        costs = [float(getattr(one, name)) for one in (free, some, more)]
        assert costs[1] / costs[0] == pytest.approx(1.0 + 64.0 / 2048.0, rel=1e-5), name
        assert costs[2] / costs[0] == pytest.approx(1.0 + 128.0 / 2048.0, rel=1e-5), name
    assert float(some.energy_per_step) == float(free.energy_per_step)
    assert float(some.goodput_fraction) <= float(more.goodput_fraction)


@pytest.mark.parametrize("kind", KINDS)
def test_the_host_has_room_for_the_copy(kind):
    """14 bytes of every parameter a device of dp holds; nothing is kept where training waits for the storage."""
    there = at(llama(kind))
    kept = float(there.host_memory)
    assert (kept == 0.0) == (kind == "synchronous")
    assert 0.0 <= kept < float(there.peak_memory)
    small = dse.evaluate(replace(llama(kind), {"system.host.capacity": 0.5 * kept}))
    assert bool(int(small.infeasible_reason) & Infeasible.host_memory) == (kept > 0.0)
