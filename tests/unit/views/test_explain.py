"""``dse.explain``: parts, bounds, elasticities and reasons of one design."""

from __future__ import annotations

import dataclasses
import json
import math
import re

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.designs import all_leaves, leaf, leaf_path, replace, short_name
from dse.types import INFEASIBLE_MEANING, Infeasible
from dse.views import explain
from dse.views.explanation import continuous_leaves
from tests.designs import make_design
from tests.programs import metrics_of

GIB = 2.0**30


@pytest.fixture(scope="module")
def design():
    return dse.design(
        workload="megatron-1t", system="selene", n_devices=4096, tp=8, pp=64, micro_batch=1, recompute="full"
    )


@pytest.fixture(scope="module")
def explained(design):
    return explain(design)


def test_parts_add_up(explained):
    for parts, total in [(parts, total) for total, parts in explained.waterfalls.items()]:
        assert sum(p.value for p in parts) == pytest.approx(explained.metrics[total], rel=1e-5)
        assert sum(p.share for p in parts) == pytest.approx(1.0)


def test_operators_add_up_to_the_layer(design, explained):
    layer = {p.name: p.value for p in explained.layer}
    own = [o for o in explained.operators if o.section == "layer"]
    small = design.software.small_kernel_time  # of kernels that no operator stands for
    assert sum(o.forward_time for o in own) + small == pytest.approx(layer["forward"], rel=1e-5)
    assert sum(o.backward_time for o in own) + 2.0 * small == pytest.approx(layer["backward"], rel=1e-5)


def test_absent_operators_are_left_out(explained):
    names = {o.name for o in explained.operators}
    assert "attention_scores" in names and "flash_attention" not in names and "rotary" not in names


def test_bounds(explained):
    bound = {o.name: o.forward_bound for o in explained.operators}
    assert bound["ffn_up"] == "compute"
    assert bound["attention_norm"] == "memory"
    assert not explained.host_bound and not explained.caution


def test_slow_launches_bind():
    slow = {"system.accelerator.kernels.kernel_floor": 1.0, "software.host_time": 60.0}
    told = explain(replace(make_design(), slow))
    assert {bound for o in told.operators for bound in (o.forward_bound, o.backward_bound)} == {"kernel floor"}
    assert told.host_bound
    assert told.caution.startswith("host launch time (software.host_time) costs")
    assert told.to_dict()["caution"] == told.caution


def test_the_wait_for_the_host_is_told_beside_the_layer():
    """Of a step whose launches are hardly longer than its kernels: the device waits for a little of it."""
    one = dse.design("llama-3-8b", "eos", n_devices=8, tp=8, micro_batch=1, global_batch=512)
    seconds = sum(part.value for part in explain(replace(one, {"software.host_time": 0.0})).layer)
    settings = ("tp=8", "micro_batch=1", "global_batch=512", f"software.host_time={1.01 * seconds / 2.0!r} s")
    words = ["-w", "llama-3-8b", "-s", "eos", "-n", "8", *(word for one in settings for word in ("--set", one))]
    told = CliRunner().invoke(app, ["evaluate", *words, "--no-uncertainty"]).stdout
    (waits,) = re.findall(r"host-bound: the device waits for ([\d.]+) % of the step", " ".join(told.split()))
    assert 0.5 < float(waits) < 1.5 and "host launch time" not in told


def test_elasticities_are_slopes(design, explained):
    """Against central differences of one per cent each way."""
    time = {e.parameter: e.elasticity for e in explained.elasticities}
    for name in ("matrix_slowdown", "memory.bandwidth", "scale_up.bandwidth", "fp16", "bf16"):
        path = leaf_path(name)
        if name not in time:
            continue
        moved = [replace(design, {path: leaf(design, path) * factor}) for factor in (1.01, 1 / 1.01)]
        up, down = (math.log(float(metrics_of(d).step_time)) for d in moved)
        assert time[name] == pytest.approx((up - down) / (2 * math.log(1.01)), abs=0.02), name


def test_elasticities_come_largest_first(explained):
    sizes = [abs(e.elasticity) for e in explained.elasticities]
    assert sizes == sorted(sizes, reverse=True) and len(sizes) > 10
    assert all(math.isfinite(size) for size in sizes)


def test_throughput_has_the_opposite_elasticities(design, explained):
    time = {e.parameter: e.elasticity for e in explained.elasticities[:5]}
    rate = {e.parameter: e.elasticity for e in dse.explain(design, "tokens_per_second").elasticities}
    assert {name: -value for name, value in time.items()} == pytest.approx({n: rate[n] for n in time}, abs=1e-4)


def test_unknown_metric_is_told():
    with pytest.raises(dse.InputError, match="step_time"):
        explain(make_design(), metric="step_tme")


def test_short_names_mean_one_leaf():
    for path in all_leaves():
        assert leaf_path(short_name(path)) == path
    assert short_name("system.accelerator.memory.bandwidth") == "memory.bandwidth"


def test_slopes_are_asked_of_continuous_parameters_only():
    names = set(continuous_leaves(make_design()))
    assert "system.accelerator.memory.bandwidth" in names
    assert not names & {"system.n_devices", "software.attention", "software.collective", "system.accelerator.cores"}
    assert not any(name.startswith(("workload.", "mapping.")) for name in names)


def test_reasons_have_numbers():
    wrong = dse.design(
        workload="megatron-1t",
        system="selene",
        n_devices=84,
        tp=12,
        pp=7,
        virtual_stages=2,
        precision="fp8",
        dp=2,
    )
    told = explain(wrong)
    numbers = {reason.name: reason.numbers for reason in told.reasons}
    assert not told.feasible
    assert numbers["memory"] == f"needs {told.metrics['peak_memory'] / GIB:.1f} GiB of 78.0 GiB usable"
    assert numbers["heads_not_divisible"] == "tp=12, heads=160, key/value heads=160"
    assert numbers["layers_not_divisible"] == "pp=7, virtual_stages=2, layers=128"
    assert numbers["device_count_mismatch"] == "tp x cp x pp x dp = 168, n_devices=84"
    assert numbers["precision_unsupported"] == "precision=fp8"


def test_every_reason_has_a_sentence_and_numbers(design):
    told = explain(dataclasses.replace(design))
    everything = told.metrics | {"infeasible_reason": float(sum(Infeasible))}
    from dse.views.explanation import reasons

    found = reasons(design, everything)
    assert [r.name for r in found] == [bit.name for bit in Infeasible]
    assert all(r.meaning == INFEASIBLE_MEANING[Infeasible[r.name]] and r.numbers for r in found)


def test_is_json(explained):
    document = json.loads(json.dumps(explained.to_dict(), allow_nan=False))
    assert document["feasible"] is True and document["reasons"] == []
    assert document["waterfall"]["step_time"][0]["name"] == "forward"
