"""Sweeps, expressions, datasets, shards, explanations and predictions serve any kind of study unchanged."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

import dse
from dse.capabilities.run import best_sections
from dse.designs import design, replace
from dse.doors import STUDIES, TRAINING
from dse.doors.studies import study_of_document
from dse.doors.study_training import launch_times
from dse.errors import InputError
from dse.measured import evaluate_many, predict_cases, read_cases
from dse.reports import Report
from dse.reports.terminal import plain_text
from dse.spec.expression import parse
from dse.sweep import Shard, execute, merge, perform, perform_shard, plan
from dse.views import explain
from tests.designs import make_design
from tests.toy_study import ANSWERING, Answers, Silent, answer
from tests.unit.measured.test_cases import STATED
from tests.unit.sweep.toy import sweep

AXES = """
tp = "divisors"
pp = [1, 2]
micro_batch = [1, 2, 4]
recompute = ["none", "full"]
memory.capacity = ["20 GB", "80 GB"]
"""


def spec(more=""):
    return sweep(AXES, more=more, study=ANSWERING)


@pytest.fixture(scope="module")
def everything():
    """Every design of the sweep, one by one."""
    grid, _ = plan(spec())
    dataset, summary = execute(spec(), output=False, keep="all")
    return grid, dataset, summary


def test_all_metrics_have_the_names_units_and_flags_of_the_study(everything):
    grid, dataset, summary = everything
    assert grid.spec.study is ANSWERING
    assert set(dataset.data_vars) == set(ANSWERING.units)
    assert set(spec("[output]\nenergy = false").metrics) == set(ANSWERING.units) - {"heat"}
    for name, variable in dataset.data_vars.items():
        assert (variable.units, variable.long_name) == (ANSWERING.units[name], ANSWERING.long_names[name])
    reason = dataset.infeasible_reason
    assert reason.flag_meanings.split() == ["too_large", "heads", "too_hot", "constraint"]
    assert reason.flag_masks.tolist() == [1, 2, 4, 8]
    np.testing.assert_allclose(dataset.latency, dataset.latency_reading + dataset.latency_writing, rtol=1e-6)
    assert summary.objective == "latency" and 0 < summary.n_feasible < summary.n_designs
    assert summary.reasons == {"too_large": int(np.count_nonzero(reason.values & 1))}


def test_options_that_change_nothing_are_the_studys(everything):
    grid, _, _ = everything
    alone = grid.mapping_values(next(axis for axis in grid.mapping_axes if axis.name == "tp")) == 1
    recompute = grid.mapping_values(next(axis for axis in grid.mapping_axes if axis.name == "recompute"))
    assert set(recompute[alone]) == {0.0} and set(recompute[~alone]) == {0.0, 2.0}


@pytest.mark.parametrize("keep", ["feasible", "best", "top:5", "pareto"])
def test_every_mode_keeps_what_the_whole_says(everything, keep):
    _, dataset, _ = everything
    more = '[objective]\nminimize = ["latency", "footprint"]'
    found, summary = execute(spec(more), output=False, keep=keep)
    latency = np.where(dataset.feasible, dataset.latency, np.inf)
    assert summary.best[0].value == pytest.approx(latency.min(), rel=1e-6)
    assert float(found.latency.min()) == pytest.approx(latency.min(), rel=1e-6)
    sizes = {"feasible": np.isfinite(latency).sum(), "top:5": 5}
    if keep in sizes:
        assert found.sizes["design"] == sizes[keep]
    if keep == "top:5":
        np.testing.assert_allclose(found.latency, np.sort(latency.reshape(-1))[:5], rtol=1e-6)


def test_constraints_objectives_and_groups():
    limited = spec(
        '[constraints]\nall = ["answers_per_second > 0.001", "latency_writing < 1 or tp < 2"]\n'
        '[objective]\nmaximize = "answers_per_second / heat"'
    )
    found, summary = execute(limited, output=False, keep="all")
    assert "heat" in found and "constraint" in summary.reasons
    rate = np.where(found.feasible, found.answers_per_second / found.heat, -np.inf)
    assert summary.best[0].value == pytest.approx(rate.max(), rel=1e-6)
    with pytest.raises(InputError, match="did you mean 'latency'"):
        parse("latenci < 3", "here", ANSWERING)
    with pytest.raises(InputError, match="step_time"):
        parse("step_time < 3", "here", ANSWERING)


def test_shards_are_merged(tmp_path):
    whole, _ = perform(spec(), tmp_path / "whole.nc", chunk=20)
    for number in (1, 2):
        perform_shard(spec(), Shard(number, 2), tmp_path / "parts.nc", chunk=20, study=ANSWERING)
    merged, summary = merge(tmp_path / "parts.nc", ANSWERING)
    assert summary.study is ANSWERING
    for name, variable in whole.data.items():
        np.testing.assert_array_equal(merged.data[name].values, variable.values)
    assert dse.open_results(tmp_path / "parts.nc").attrs["study"] == "answering"


def test_the_table_of_the_best_has_the_studys_columns(everything):
    told = plain_text(Report({}, best_sections(everything[2])), width=200)
    assert all(heading in told for heading in ("latency", "GiB", "read %", "write %")) and "MFU" not in told


def one_design(**settings):
    return design("gpt-3-13b", "selene", micro_batch=1, **settings)


def test_a_design_is_explained():
    found = explain(one_design(tp=8), study=ANSWERING)
    assert list(found.waterfalls) == ["latency"] and found.elasticity_of == "latency"
    assert sum(part.share for part in found.waterfalls["latency"]) == pytest.approx(1.0)
    bandwidth = next(one for one in found.elasticities if one.parameter == "memory.bandwidth")
    reading = found.metrics["latency_reading"] / found.metrics["latency"]
    assert bandwidth.elasticity == pytest.approx(-reading, rel=1e-4)
    assert found.operators == found.layer == [] and found.to_dict()["waterfall"]["layer_time"] == []
    cannot = explain(one_design(tp=16, **{"memory.capacity": "1 GB"}), "footprint", ANSWERING)
    assert [reason.name for reason in cannot.reasons] == ["too_large", "heads"]
    with pytest.raises(InputError, match="latency"):
        explain(one_design(), "step_time", ANSWERING)


def test_rows_are_predicted(tmp_path):
    many = evaluate_many([one_design(tp=2), one_design(tp=4)], ANSWERING)
    assert list(many) == list(ANSWERING.units)
    assert many["latency"][1] == pytest.approx(float(answer(one_design(tp=4)).latency), rel=1e-6)
    file = tmp_path / "rows.csv"
    file.write_text(",".join(STATED) + "\n" + ",".join(STATED.values()) + "\n")
    (prediction,) = predict_cases(read_cases(file, measured=False), study=ANSWERING)
    assert prediction.skip is None, prediction.skip
    assert set(prediction.metrics) == set(ANSWERING.units)


def test_training_is_what_specifications_ask_for():
    assert study_of_document({}) is TRAINING is plan(sweep("tp = [1]"))[0].spec.study
    assert TRAINING.is_builtin and not ANSWERING.is_builtin
    assert ANSWERING.reason_bits == {"too_large": 1, "heads": 2, "too_hot": 4, "constraint": 8}
    assert list(ANSWERING.reasons_in(int(Silent.heads) | 8)) == ["heads", "constraint"]
    assert ANSWERING.smooth == tuple(name for name in Answers.__dataclass_fields__ if "feasible" not in name)


@pytest.mark.parametrize("wait", [70.0, 0.9])
def test_a_reader_is_told_what_the_step_takes_without_host_launch_time(wait):
    """Launches take 90 of 100 s in both steps. The device waits 70 s of these: 70 %; or 0.9 s: not worth a line."""
    work = dict.fromkeys(TRAINING.parts("step_time"), 0.0) | {
        "step_time": 100.0 - wait,
        "step_time_forward": 90.0 - wait,
        "step_time_optimizer": 10.0,
    }
    waits = work | {"step_time": 100.0, "step_time_host": wait}
    asked = []

    def evaluated(other):
        asked.append(other.software.host_time)
        return work

    told = TRAINING.caution(waits, make_design(), evaluated)
    assert asked == [0.0]
    costs = "host launch time (software.host_time) costs 70.0 % of the step, which takes 30.0 s without it"
    assert told.startswith(costs) if wait == 70.0 else not told
    assert not TRAINING.caution(work, make_design(), evaluated) and asked == [0.0], "a device that does not wait"
    assert not ANSWERING.caution({}, make_design(), evaluated)


@pytest.mark.parametrize(("longer", "costs"), [(1.009, 0.0), (2.0, 0.5)])
def test_the_caution_is_of_the_difference_that_launches_make(longer, costs):
    """Launches of ``longer`` times a layer's seconds: without them the step is ``1 - 1 / longer`` shorter, to 2 %."""
    one = design("llama-3-8b", "eos", n_devices=8, tp=8, micro_batch=1, global_batch=512)
    seconds = sum(part.value for part in explain(replace(one, {"software.host_time": 0.0})).layer)
    found = explain(replace(one, {"software.host_time": longer * seconds / 2.0}))  # a forward and a backward
    assert found.host_bound
    told = re.search(r"costs ([\d.]+) % of the step", found.caution)
    assert float(told.group(1) if told else 0.0) / 100.0 == pytest.approx(costs, abs=0.02)


def test_both_launch_times_of_a_mixture_are_left_out_at_once():
    """Setting one of the two to 0 leaves the other in place, which the host then takes."""
    one = design("qwen3-30b-a3b", "dgx-gb200", n_devices=64, ep=16, micro_batch=1, global_batch=512, any_option=True)
    names = launch_times(one)
    assert names == ["software.host_time", "software.experts.expert_host_time"]
    before = TRAINING.evaluated(one)
    after = TRAINING.evaluated(replace(one, dict.fromkeys(names, 0.0)))
    told = TRAINING.caution_on(before, one)
    assert f"({', '.join(names)}) costs {100 * (1 - after['step_time'] / before['step_time']):.1f} % of" in told


def test_the_summary_of_a_sweep_says_so_too():
    slow = sweep("tp = [1, 2]", more='[software]\nname = "megatron-core"\nhost_time = "10 s"\n')
    _, summary = execute(slow, output=False)
    assert summary.caution.startswith("2 of the 2 best designs: host launch time (software.host_time) costs 100.0 %")


def test_bills_are_told_alike_of_training_and_serving():
    """Both records list them, each in its own order of metrics; their units, words and groups are the same."""
    training, serving = (
        {field.name: field.metadata for field in dataclasses.fields(study.metrics)} for study in STUDIES.values()
    )
    bills = ("device_", "capital_cost", "tco_per_year", "provisioned_power")
    shared = [name for name in training if name.startswith(bills) and name in serving]
    assert len(shared) > 15 and all(training[name] == serving[name] for name in shared)
