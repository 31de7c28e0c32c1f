"""Laws that every change of the model must keep, over every field of a design.

Machines are stated, limited in power or generated from a chip, with networks, domains and software of all kinds.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

import dse
from dse import types
from dse.designs import catalog, replace
from dse.doors.evaluation import evaluate
from dse.model.work.parameters import layer_parameters
from dse.types import Infeasible, Metrics, OperatorKind
from tests.designs import (
    GENERATED,
    STATED,
    designs,
    generated_machines,
    machines,
    make_design,
    scaled,
    stated_machines,
    value,
    work_of,
    workloads,
)
from tests.programs import metrics_of, metrics_of_many, slopes_by_numpy

CHIP = "system.accelerator.chip"
POWER = "system.accelerator.power"

#: More of these never makes a step slower.
FASTER = [
    "system.accelerator.memory.bandwidth",
    "system.accelerator.matrix_rate.bf16",
    "system.accelerator.matrix_rate.fp16",
    "system.accelerator.vector_rate",
    "system.accelerator.cache",
    "system.accelerator.kernels.matrix_efficiency",
    "system.accelerator.kernels.memory_efficiency",
    "system.accelerator.kernels.flash_efficiency",
    "system.scale_up.bandwidth",
    "system.scale_up.efficiency",
    "system.scale_out.bandwidth",
    "system.scale_out.efficiency",
    "system.host.bandwidth",
    "software.tp_overlap",
    "software.dp_overlap",
    "software.pp_overlap",
    "software.backward_tp_overlap",
    "software.cp_overlap",
    f"{POWER}.feed",
]
#: Less of these never makes a step slower.
SLOWER = [
    "system.scale_up.latency",
    "system.scale_out.latency",
    "system.scale_up.ramp",
    "system.scale_out.ramp",
    "system.scale_up.processor_usage",
    "system.accelerator.kernels.kernel_floor",
    "system.accelerator.kernels.roofline_blend",
    "software.host_time",
    "software.flash_slowdown",
    "software.cp_flash_slowdown",
    "software.communication_slowdown",
    "software.small_kernel_time",
    "software.step_overhead",
    "software.matrix_slowdown",
    "software.elementwise_slowdown",
    "software.cross_entropy_traffic",
]
#: More of these never makes a step on a generated chip slower: budgets of what it is made in and from.
RICHER = [
    f"{CHIP}.node.clock",
    f"{CHIP}.memory.unit_capacity",
    f"{CHIP}.link_bandwidth",
    f"{CHIP}.link_density",
    f"{CHIP}.fp8_ratio",
    f"{CHIP}.memory_power",
    f"{CHIP}.link_power",
    f"{CHIP}.link_edge",
]
#: Less of these never makes a step on a generated chip slower: what its power budget has to pay for.
THRIFTIER = [
    f"{CHIP}.switching_energy",
    f"{CHIP}.byte_energy",
    f"{CHIP}.device_leakage",
    f"{CHIP}.memory.unit_energy",
    f"{CHIP}.link_energy",
    f"{CHIP}.node.energy",
    f"{CHIP}.node.leakage",
    "system.scale_up.energy",
]


def parts_of(metrics, name):
    return {
        f.name: float(getattr(metrics, f.name)) for f in dataclasses.fields(Metrics) if f.name.startswith(f"{name}_")
    }


@given(design=stated_machines(), path=st.sampled_from(FASTER), factor=st.floats(1.0, 4.0))
def test_more_resource_is_never_slower(design, path, factor):
    before, after = metrics_of(design), metrics_of(scaled(design, path, factor))
    assert float(after.step_time) <= float(before.step_time) * (1 + 1e-5)


@given(design=stated_machines(), path=st.sampled_from(SLOWER), factor=st.floats(0.0, 1.0))
def test_less_cost_is_never_slower(design, path, factor):
    before, after = metrics_of(design), metrics_of(scaled(design, path, factor))
    assert float(after.step_time) <= float(before.step_time) * (1 + 1e-5)


@given(design=generated_machines(), path=st.sampled_from(RICHER), factor=st.floats(1.0, 4.0))
def test_a_richer_chip_is_never_slower(design, path, factor):
    before, after = metrics_of(design), metrics_of(scaled(design, path, factor))
    assert float(after.step_time) <= float(before.step_time) * (1 + 1e-5)


@given(design=generated_machines(), path=st.sampled_from(THRIFTIER), factor=st.floats(0.1, 1.0))
def test_a_thriftier_chip_is_never_slower(design, path, factor):
    """Of chips with units for the precision: what a matrix takes without them is no time."""
    assume(not int(metrics_of(design).infeasible_reason) & Infeasible.precision_unsupported)
    before, after = metrics_of(design), metrics_of(scaled(design, path, factor))
    assert float(after.step_time) <= float(before.step_time) * (1 + 1e-5)


#: Devices of a scale-up domain, as built and between: nodes of eight, a rack of 72, what no power of two fills.
DOMAINS = [1.0, 2.0, 4.0, 6.0, 8.0, 9.0, 12.0, 16.0, 36.0, 64.0, 72.0, 144.0, 576.0]


@given(design=stated_machines(), domains=st.lists(st.sampled_from(DOMAINS), min_size=2, max_size=2).map(sorted))
def test_a_larger_domain_is_never_slower(design, domains):
    """Behind a switch, whose links are no worse than those between domains."""
    up, out = design.system.scale_up, design.system.scale_out
    no_worse = {"mesh": 0.0, "crowding": 0.0, "processor_usage": min(up.processor_usage, out.processor_usage)}
    design = replace(design, {f"system.scale_up.{name}": value for name, value in no_worse.items()})
    small, large = (metrics_of(replace(design, {"system.scale_up.domain": d})) for d in domains)
    assert float(large.step_time) <= float(small.step_time) * (1 + 1e-5)


@given(design=machines(), factor=st.floats(1.0, 16.0))
def test_more_memory_never_makes_a_feasible_design_infeasible(design, factor):
    generated = design.system.accelerator.chip is not None
    path = f"{CHIP}.memory.unit_capacity" if generated else "system.accelerator.memory.capacity"
    assert bool(metrics_of(scaled(design, path, factor)).feasible) >= bool(metrics_of(design).feasible)


@given(design=machines())
def test_parts_add_up(design):
    metrics = metrics_of(design)
    for name in ("step_time", "peak_memory", "energy_per_step"):
        parts, total = parts_of(metrics, name), float(getattr(metrics, name))
        assert sum(parts.values()) == pytest.approx(total, rel=1e-5)
        assert all(part >= -1e-6 * total for part in parts.values()), parts


@given(design=machines())
def test_rates_and_powers_follow_from_time_and_energy(design):
    m, w = metrics_of(design), design.workload
    tokens, devices = w.global_batch * w.seq_len, design.system.n_devices
    seconds, joules = float(m.step_time), float(m.energy_per_step)
    assert float(m.tokens_per_second) * seconds == pytest.approx(tokens, rel=1e-5)
    assert float(m.tokens_per_second_per_device) * devices == pytest.approx(float(m.tokens_per_second), rel=1e-5)
    assert float(m.average_power) * seconds == pytest.approx(joules, rel=1e-5)
    assert float(m.average_power) <= float(m.peak_power) * (1.0 + 1e-5)
    assert float(m.energy_per_token) * tokens == pytest.approx(joules, rel=1e-5)
    assert float(m.run_energy) / float(m.run_time) == pytest.approx(float(m.average_power), rel=1e-5)


@given(design=machines())
def test_never_nan_and_never_negative(design):
    metrics = metrics_of(design)
    for field in dataclasses.fields(Metrics):
        found = float(getattr(metrics, field.name))
        assert np.isfinite(found) and found >= 0.0, field.name


def test_a_chip_of_cores_alone_is_no_nan():
    """Without area for a cache or for memory's controllers nothing fits, which is told in numbers."""
    system = dataclasses.replace(make_design().system, accelerator=catalog.record(types.Accelerator, "scd-board"))
    design = replace(make_design(system=system), {f"{CHIP}.core_area": 1.0})
    metrics = metrics_of(design)
    assert np.isfinite(jax.tree.leaves(metrics)).all()
    assert int(metrics.infeasible_reason) & Infeasible.memory


@given(design=stated_machines())
def test_step_is_no_shorter_than_any_resource_needs(design):
    """Time >= model FLOPs at peak (causal where flash skips half), and >= the optimiser's traffic."""
    metrics = metrics_of(design)
    assert float(metrics.mfu_causal) <= 1.0
    layers = design.workload.n_layers / design.mapping.pp
    own = layer_parameters(design.workload, design.mapping.tp) * layers
    replicas = design.mapping.dp * design.mapping.cp if design.mapping.zero_stage >= 1 else 1.0
    traffic = float(own) / replicas * 24.0 / design.system.accelerator.memory.bandwidth
    assert float(metrics.step_time_optimizer) >= traffic


@given(workload=workloads(), recompute=st.sampled_from([0, 1, 2]), micro_batch=st.sampled_from([1, 4]))
def test_one_device_does_not_communicate(workload, recompute, micro_batch):
    metrics = metrics_of(make_design(workload, recompute=recompute, micro_batch=micro_batch, zero_stage=3))
    messages = ("tensor", "expert", "context", "pipeline", "data")
    for part in (*(f"{one}_parallel" for one in messages), "bubble"):
        assert float(getattr(metrics, f"step_time_{part}")) == pytest.approx(0.0, abs=1e-5)


@jax.jit
def matrix_flops(design):
    """FLOPs of the matrix operators of one layer and micro-batch on one device, forward and backward."""
    return sum(
        operator.present * work.flops
        for operator in work_of(design).layer
        if operator.kind is not OperatorKind.vector
        for work in (operator.forward, *operator.gradients)
    )


@given(design=designs())
def test_flops_and_parameters_do_not_depend_on_the_mapping(design):
    """All devices together do the layer's FLOPs once, however they are split."""
    plain = make_design(design.workload, software=design.software)

    def layer_flops(d):
        return float(matrix_flops(d)) * d.mapping.tp * d.mapping.cp / d.mapping.micro_batch

    replicated = max(design.mapping.tp / design.workload.n_kv_heads, 1.0)
    if replicated == 1.0:  # replicated key/value heads are really computed more than once
        assert layer_flops(design) == pytest.approx(layer_flops(plain), rel=1e-5)
    assert float(metrics_of(design).parameters) == pytest.approx(float(metrics_of(plain).parameters))
    assert float(metrics_of(design).model_flops) == pytest.approx(float(metrics_of(plain).model_flops))


def with_mapping(design, **mapping):
    return metrics_of(dataclasses.replace(design, mapping=dataclasses.replace(design.mapping, **mapping)))


@given(design=designs())
def test_memory_falls_with_zero_stage_recompute_and_sequence_parallelism(design):
    def states(stage):
        m = with_mapping(design, zero_stage=stage)
        return float(m.peak_memory_weights + m.peak_memory_gradients + m.peak_memory_optimizer)

    assert states(0.0) >= states(1.0) >= states(2.0) >= states(3.0)
    kept = [float(with_mapping(design, recompute=policy).peak_memory_activations) for policy in (0.0, 1.0, 2.0)]
    assert kept[0] >= kept[1] >= kept[2]
    if design.mapping.tp > 1:
        split, whole = (with_mapping(design, sequence_parallel=choice) for choice in (1.0, 0.0))
        assert float(split.peak_memory_activations) <= float(whole.peak_memory_activations)


@given(design=designs(), stage=st.sampled_from([1.0, 2.0, 3.0]))
def test_hybrid_sharding_lies_between_none_and_all(design, stage):
    """A copy of the state in every replica is held by each; split over fewer devices the state is larger."""

    def states(copies, stage):
        m = with_mapping(design, zero_stage=stage, dp_replicate=copies)
        return float(m.peak_memory_weights + m.peak_memory_gradients + m.peak_memory_optimizer)

    dp = design.mapping.dp
    whole = states(1.0, stage)
    assert whole <= states(min(dp, 2.0), stage) <= states(dp, stage)
    if design.mapping.cp == 1:
        assert states(dp, stage) == pytest.approx(states(1.0, 0.0))


def test_hybrid_sharding_spares_the_latency_of_large_clusters():
    """70 B weights gathered layer by layer: 64 devices to 16,384 at one short sequence a device (FSDP against HSDP)."""
    spread = dict(tp=1, pp=1, zero_stage=3, overlap_dp=1, micro_batch=1, recompute=2)
    rates = {}
    for dp, copies in ((64, 1), (16384, 1), (16384, 256)):
        shared = dict(n_devices=dp, dp=dp, global_batch=dp, seq_len=2048, dp_replicate=copies)
        llama = dse.design("llama-3-70b", "eos", **shared, **spread)
        rates[dp, copies] = float(metrics_of(llama).tokens_per_second_per_device)
    assert rates[16384, 1] < 0.7 * rates[64, 1]  # a ring enters 2,048 nodes for each of 81 pieces
    assert rates[16384, 256] > 0.9 * rates[64, 1]


OFFLOADS = ("offload_weights", "offload_activations", "offload_optimizer")


@given(design=designs(), option=st.sampled_from(OFFLOADS))
def test_offload_moves_memory_to_the_host_and_never_saves_time(design, option):
    here, away = (with_mapping(design, **{option: choice}) for choice in (0.0, 1.0))
    assert float(away.peak_memory) <= float(here.peak_memory) * (1 + 1e-6)
    freed = float(here.peak_memory - away.peak_memory)
    moved = float(away.host_memory - here.host_memory)
    assert moved >= 0.0 and moved >= freed * (1 - 1e-4)  # the last stage may be the fullest: it moves less
    assert float(away.step_time) >= float(here.step_time) * (1 - 1e-6)


@given(design=designs(), option=st.sampled_from(OFFLOADS), share=st.floats(0.01, 0.99))
def test_a_share_offloaded_lies_between_nothing_and_all(design, option, share):
    """Bytes of a stage and on the host in proportion; peak and time never fall or rise against it."""
    none, some, whole = (with_mapping(design, **{option: part}) for part in (0.0, share, 1.0))
    host = [float(m.host_memory) for m in (none, some, whole)]
    assert host[1] == pytest.approx((1.0 - share) * host[0] + share * host[2], rel=1e-5)
    assert none.peak_memory * (1 + 1e-6) >= some.peak_memory >= whole.peak_memory * (1 - 1e-6)
    assert none.step_time * (1 - 1e-6) <= some.step_time <= whole.step_time * (1 + 1e-6)
    # The fuller of two stages: each is linear, so that the larger lies on or below the line between the ends.
    line = (1.0 - share) * float(none.peak_memory) + share * float(whole.peak_memory)
    assert float(some.peak_memory) <= line * (1 + 1e-5)


@given(design=designs())
def test_nothing_offloaded_needs_no_host(design):
    stays = with_mapping(design, **dict.fromkeys(OFFLOADS, 0.0))
    assert float(stays.host_memory) == float(stays.step_time_offload) == 0.0


@given(design=designs(), option=st.sampled_from(OFFLOADS))
def test_offload_needs_three_layers_and_room_on_the_host(design, option):
    few = dataclasses.replace(design.workload, n_layers=2.0 * design.mapping.pp)
    mapped = dataclasses.replace(design.mapping, **{option: 1.0}, virtual_stages=1.0)
    metrics = metrics_of(dataclasses.replace(design, workload=few, mapping=mapped))
    assert int(metrics.infeasible_reason) & Infeasible.offload_too_few_layers
    cramped = replace(dataclasses.replace(design, mapping=mapped), {"system.host.capacity": 1.0})
    assert int(metrics_of(cramped).infeasible_reason) & Infeasible.host_memory


@given(design=designs())
def test_zero_2_reduces_every_micro_batch_but_under_a_pipeline(design):
    """A pipeline accumulates whole gradients and reduces them once: ZeRO 2 is ZeRO 1. Without one it splits them."""
    one, two = (with_mapping(design, zero_stage=stage) for stage in (1.0, 2.0))
    if design.mapping.pp > 1:
        assert all(float(getattr(one, f.name)) == float(getattr(two, f.name)) for f in dataclasses.fields(Metrics))
        return
    shards = design.mapping.dp * design.mapping.cp / design.mapping.dp_replicate
    assert float(two.peak_memory_gradients) * shards == pytest.approx(float(one.peak_memory_gradients), rel=1e-5)
    times = [scatters(replace(design, {"mapping.zero_stage": stage})) for stage in (1.0, 2.0)]
    assert times == [1.0, design.workload.global_batch / (design.mapping.dp * design.mapping.micro_batch)]


def scatters(design):
    """How often a device scatters its gradients in a step."""
    return next(float(m.times) for m in work_of(design).messages if m.name == "gradients_reduce_scatter")


@given(design=designs())
def test_variants_of_sequence_parallelism_are_ordered(design):
    """Keeping gathered inputs trades memory for messages; splitting at cuts only changes no activation."""
    none, again, keep, cuts = (with_mapping(design, sequence_parallel=choice) for choice in (0.0, 1.0, 2.0, 3.0))
    assert float(keep.step_time_tensor_parallel) <= float(again.step_time_tensor_parallel) * (1 + 1e-6)
    assert float(keep.peak_memory_activations) >= float(again.peak_memory_activations) * (1 - 1e-6)
    assert float(cuts.peak_memory_activations) == pytest.approx(float(none.peak_memory_activations))
    assert float(cuts.step_time_pipeline_parallel) <= float(none.step_time_pipeline_parallel) * (1 + 1e-6)
    if design.mapping.tp == 1:
        times = [float(m.step_time) for m in (none, again, keep, cuts)]
        assert times == pytest.approx([times[0]] * 4)


@given(design=designs())
def test_recompute_costs_time(design):
    none, selective, full = (float(with_mapping(design, recompute=r).step_time_recompute) for r in (0.0, 1.0, 2.0))
    assert 0.0 == none <= selective <= full


@given(several=st.lists(generated_machines(), min_size=3, max_size=3))
@settings(max_examples=10)
def test_vmap_is_a_loop(several):
    stacked = jax.tree.map(lambda *leaves: np.array(leaves, np.float32), *several)
    together = metrics_of_many(stacked)
    for index, design in enumerate(several):
        alone = metrics_of(design)
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            assert float(b[index]) == pytest.approx(float(a), rel=1e-4, abs=1e-6)


@given(design=machines())
@settings(max_examples=25)
def test_single_precision_is_enough(design):
    single = metrics_of(design)
    with jax.enable_x64(True):
        double = metrics_of(jax.tree.map(np.float64, design))
        double = jax.tree.map(np.asarray, double)
    assert double.step_time.dtype == np.float64
    times = max(float(double.checkpoint_time), float(double.step_time))
    for field in dataclasses.fields(Metrics):
        if field.name in DIFFERENCES and float(double.checkpoint_stall) < 1e-2 * times:
            continue
        a, b = float(getattr(single, field.name)), float(getattr(double, field.name))
        whole = next((name for name in WHOLES if field.name.startswith(name)), field.name)
        scale = abs(float(getattr(double, whole)))
        assert a == pytest.approx(b, rel=1e-3 if field.name in DIFFERENCES else 2e-5, abs=2e-6 * scale), field.name


#: Metrics of which parts are held to the scale of the whole.
WHOLES = ("step_time", "peak_memory", "energy_per_step", "run_time_with_failures")

#: What of a copy is not hidden is a difference of times that may be equal but for rounding; and what follows from it.
DIFFERENCES = (
    "checkpoint_stall",
    "checkpoint_interval",
    "run_time_with_failures_checkpointing",
    "run_time_with_failures_lost_work",
)


#: Step time and its gradient with respect to the leaves of the first argument (path -> value).
time_and_slopes = slopes_by_numpy(lambda values, design: evaluate(replace(design, values)).step_time)


def smooth_values(design, dtype):
    paths = STATED if design.system.accelerator.chip is None else GENERATED
    return {path: dtype(value(design, path)) for path in paths}


@given(design=generated_machines())
def test_gradients_are_finite(design):
    _, slopes = time_and_slopes(smooth_values(design, np.float32), design)
    infinite = [path for path, slope in slopes.items() if not np.isfinite(slope)]
    assert not infinite


def assert_slope_is_the_difference(design, path):
    """Differences in float64; where a maximum switches inside the step, the one-sided slopes bracket it."""
    with jax.enable_x64(True):
        exact = jax.tree.map(np.float64, design)
        values = smooth_values(design, np.float64)
        x = values[path]
        step = 1e-6 * (abs(x) or 1e-9)
        here, slopes = time_and_slopes(values, exact)
        above, _ = time_and_slopes(values | {path: x + step}, exact)
        below, _ = time_and_slopes(values | {path: x - step}, exact)
        here, above, below, slope = float(here), float(above), float(below), float(slopes[path])
    right, left = (above - here) / step, (here - below) / step
    tolerance = 1e-3 * max(abs(right), abs(left)) + 1e-9 * here / step
    assert min(left, right) - tolerance <= slope <= max(left, right) + tolerance


@given(design=stated_machines(), path=st.sampled_from(STATED))
def test_gradient_is_the_finite_difference(design, path):
    assert_slope_is_the_difference(design, path)


@given(design=generated_machines(), path=st.sampled_from(GENERATED))
def test_gradient_of_a_generated_chip_is_the_finite_difference(design, path):
    assert_slope_is_the_difference(design, path)


def test_one_program_serves_every_workload_system_and_mapping():
    """Three workloads on two systems, flash and unfused attention, all recompute policies: one compilation."""
    traces = []

    def counted(d):
        traces.append(1)
        return evaluate(d)

    compiled = jax.jit(counted)
    for workload in ("megatron-1t", "llama-3-70b", "gpt-3-175b"):
        for system in ("selene", "eos"):
            for recompute in ("none", "selective", "full"):
                compiled.trace(dse.design(workload, system, n_devices=64, tp=8, pp=8, recompute=recompute))
    assert len(traces) == 1


@given(design=machines())
def test_a_host_that_lags_behind_sets_the_interval(design):
    """Without communication a step takes at least what the host needs to launch it, and the parts add up."""
    slow = replace(design, {"software.host_time": 10.0})
    m = metrics_of(slow)
    w, mapping = design.workload, design.mapping
    launches = jnp.ceil(w.n_layers / mapping.pp) * w.global_batch / (mapping.dp * mapping.micro_batch)
    assert float(m.step_time) >= 2.0 * 10.0 * float(launches) * (1.0 - 1e-5)
    parts = [float(getattr(m, f.name)) for f in dataclasses.fields(Metrics) if f.name.startswith("step_time_")]
    assert min(parts) >= 0.0
    assert sum(parts) == pytest.approx(float(m.step_time), rel=1e-5)


@pytest.mark.parametrize("pp", [1, 4])
def test_messages_of_replicas_hide_in_the_waits_of_the_slowest_stage_alone(pp):
    """Neither a slower host nor slower kernels shorten a step whose messages use what waits the host leaves.

    A small model with many tokens in its vocabulary: its stages with embedding and head wait otherwise than others.
    """
    mapping = {"tp": 1, "pp": pp, "dp": 4, "cp": 2, "micro_batch": 2, "zero_stage": 3, "overlap_dp": 1}
    design = dse.design("qwen2.5-0.5b", "rtx-pro-6000-server", any_option=True, global_batch=512, **mapping)
    for path in ("software.host_time", "software.matrix_slowdown", "software.elementwise_slowdown"):
        times = [float(metrics_of(scaled(design, path, factor)).step_time) for factor in np.linspace(0.25, 6.0, 24)]
        assert np.all(np.diff(times) >= -1e-5 * np.array(times[1:])), path


@given(design=designs(), extra=st.integers(1, 7))
def test_stages_may_differ_by_a_layer(design, extra):
    """A chunk with a layer less than the others costs at most what it does in a model whose layers all divide.

    One or two of them, at the ends, may run; more only where a measured row states them.
    """
    chunks = float(design.mapping.pp) * float(design.mapping.virtual_stages)
    layers = float(design.workload.n_layers) + min(extra, chunks)
    full = float(np.ceil(layers / chunks)) * chunks
    uneven, even = (metrics_of(replace(design, {"workload.n_layers": count})) for count in (layers, full))
    reason = int(uneven.infeasible_reason) & Infeasible.layers_not_divisible
    assert bool(reason) == (full - layers > 2.0)
    assert float(uneven.peak_memory) <= float(even.peak_memory) * (1.0 + 1e-5)
    assert float(uneven.step_time) <= float(even.step_time) * (1.0 + 1e-5)
