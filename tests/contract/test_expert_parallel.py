"""The exchange of experts is a part of its own wherever a step is told by part, and adds up with results without it."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import dse
from dse.capabilities.run import best_sections
from dse.cli import app
from dse.doors import TRAINING, evaluation
from dse.equations import recording
from dse.model.steps.layer import LayerTime
from dse.model.steps.training import StepTime
from dse.reports import Report
from dse.reports.terminal import plain_text
from dse.sweep import execute, from_text
from dse.types import Metrics
from dse.views import compare, explain, plot
from dse.views.difference import ROUNDING, IncludedPart
from dse.views.trace import perfetto
from dse.views.trace.step import schedule_step
from tests.contract import golden
from tests.figures import legend_texts
from tests.panel import PANEL

TENSOR, EXPERT = "step_time_tensor_parallel", "step_time_expert_parallel"

SWEEP = """
[workload]
name = "deepseek-v3"
global_batch = 1024
[system]
name = "h800-cluster"
n_devices = 256
"memory.capacity" = "1 TB"
[axes]
tp = [1, 2]
pp = [8]
ep = [1, 8]
schedule = ["1f1b", "dualpipe"]
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A small sweep of a mixture: its summary, its file, and one as an earlier version wrote it."""
    folder = tmp_path_factory.mktemp("experts")
    new, old = folder / "new.nc", folder / "old.nc"
    _, summary = execute(from_text(SWEEP), new)
    with dse.open_results(new) as found:
        found = found.load()
        named = found[TENSOR].attrs | {"long_name": "exposed tensor- and expert-parallel communication"}
        both = (found[TENSOR] + found[EXPERT]).variable
        both.attrs = named
        found.assign({TENSOR: both}).drop_vars(EXPERT).to_netcdf(old)
    return summary, new, old


def table(summary) -> str:
    return plain_text(Report({}, best_sections(summary)), width=240)


def test_parts_of_a_step_by_hand():
    """Of 1, 2, … 14 s the sum is 14 x 15 / 2 = 105; messages are 6 + 7 + 8 + 10 + 12 = 43, other waits 9 + 11."""
    step = StepTime(*map(float, range(1, 15)))
    assert (step.tensor_parallel, step.expert_parallel, step.context_parallel) == (6.0, 7.0, 8.0)
    assert (step.total, step.messages, step.waiting) == (105.0, 43.0, 63.0)
    layer = LayerTime(*map(float, range(1, 8)))  # messages are 4 + 5 + 6 = 15; half of their cores poll
    assert (layer.total, layer.messages, layer.working(0.5)) == (28.0, 15.0, 20.5)


@pytest.mark.parametrize("name", [name for name, case in PANEL.items() if case.kind == "training"])
def test_parts_of_the_panel_and_what_is_0_in_them(name):
    """The part of experts is 0 exactly in designs without experts, and that of tensors where tp is 1."""
    found = golden.kept()[name]["metrics"]
    assert sum(found[part] for part in TRAINING.parts("step_time")) == pytest.approx(found["step_time"], rel=1e-9)
    one = golden.designed(name)
    assert (found[EXPERT] > 0.0) == (one.mapping.experts is not None)
    assert one.mapping.tp > 1.0 or found[TENSOR] == 0.0


@pytest.mark.parametrize("schedule", [None, "dualpipe"])
def test_a_dense_design_has_no_equation_for_it(schedule):
    """The part is the literal 0, which no program computes."""
    settings = {} if schedule is None else {"schedule": schedule}
    one = dse.design("llama-3-70b", "eos", n_devices=64, tp=4, pp=8, any_option=True, **settings)
    leaves, structure = jax.tree.flatten(one)
    inputs = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct((), "float32")] * len(leaves))
    found, _ = recording.trace(evaluation.evaluate, inputs)
    part = found.outputs[[*Metrics.__dataclass_fields__].index(EXPERT)]
    assert not isinstance(part, int) and part.value == 0.0


def test_without_tensor_parallelism_no_exchange_counts_as_such():
    one = dse.design("qwen3-30b-a3b", "h100", n_devices=64, ep=16, tp=1, micro_batch=1, global_batch=512)
    found = explain(one)
    parts = {part.name: part.value for part in found.waterfalls["step_time"]}
    assert parts["tensor_parallel"] == 0.0 < 0.05 * found.metrics["step_time"] < parts["expert_parallel"]
    layer = {part.name: part.value for part in found.layer}
    assert layer["tensor_parallel"] == 0.0 < layer["expert_parallel"]
    told = CliRunner().invoke(app, [
        "evaluate", "-w", "qwen3-30b-a3b", "-s", "h100", "-n", "64", "--set", "ep=16", "--set", "micro_batch=1",
        "--set", "global_batch=512", "--no-uncertainty",
    ]).stdout  # fmt: skip
    assert "expert parallel" in told and "tensor parallel" not in told


def test_the_table_has_a_column_where_it_is_not_0(results):
    summary, _, _ = results
    assert " ep %" in table(summary)
    dense = 'tp = [4, 8]\n[workload]\nname = "gpt-3-13b"\n[system]\nname = "selene"\nn_devices = 16\n'
    _, other = execute(from_text(f"[axes]\n{dense}"), output=False)
    assert "comp %" in table(other) and " ep %" not in table(other)


def test_figures_and_timelines_name_it(results):
    _, new, old = results
    drawn = {}
    for path in (new, old):
        with dse.open_results(path) as found:
            drawn[path] = legend_texts(plot.breakdown(found.load()))
    assert "expert parallel" in drawn[new] and "expert parallel" not in drawn[old]
    one = dse.design("qwen3-30b-a3b", "h100", n_devices=64, ep=16, tp=1, pp=2, global_batch=64)
    lanes = {event["args"]["name"] for event in perfetto.events(schedule_step(one)) if event["name"] == "thread_name"}
    assert "expert parallel" in lanes and "tensor parallel" not in lanes


@pytest.mark.parametrize("is_first", [True, False])
def test_results_without_the_part_are_compared_with_the_sum(results, is_first):
    _, new, old = results
    pair = (old, new) if is_first else (new, old)
    found = compare(*pair)
    assert found.same and found.included == (IncludedPart(EXPERT, TENSOR, 0 if is_first else 1),)
    done = CliRunner().invoke(app, ["diff", *map(str, pair)])
    lacks, has = "AB" if is_first else "BA"
    assert done.exit_code == 0 and f"{lacks} includes {EXPERT} in {TENSOR}" in " ".join(done.stdout.split())
    assert f"the sum of both in {has}" in " ".join(done.stdout.split())
    told = json.loads(CliRunner().invoke(app, ["diff", *map(str, pair), "--json"]).stdout)
    assert told["included"] == [{"part": EXPERT, "within": TENSOR, "side": 0 if is_first else 1}]


def test_a_difference_beside_it_is_still_told(results, tmp_path):
    _, new, old = results
    with xr.open_dataset(old) as found:
        found = found.load()
    longer = found.assign({TENSOR: found[TENSOR].variable * np.float32(1.01)})
    longer[TENSOR].attrs = found[TENSOR].attrs
    longer.to_netcdf(tmp_path / "longer.nc")
    found = compare(tmp_path / "longer.nc", new)
    (change,) = found.metrics
    assert change.metric == TENSOR and change.largest == pytest.approx(1 / 1.01 - 1, rel=1e-3)
    assert not found.same and abs(change.largest) > ROUNDING


def test_the_tolerance_of_rounding_is_that_of_the_sum_alone(results, tmp_path):
    _, new, old = results
    with xr.open_dataset(old) as found:
        found = found.load()
    changed = {name: found[name].variable * np.float32(1.0 + 0.5 * ROUNDING) for name in (TENSOR, "peak_memory")}
    made = found.assign(changed)
    for name in changed:
        made[name].attrs = found[name].attrs
    made.to_netcdf(tmp_path / "rounded.nc")
    assert {change.metric for change in compare(tmp_path / "rounded.nc", new).metrics} == {"peak_memory"}


def test_a_file_that_has_merely_lost_the_part_is_no_earlier_version(results, tmp_path):
    _, new, _ = results
    with dse.open_results(new) as found:
        found.load().drop_vars(EXPERT).to_netcdf(tmp_path / "lost.nc")
    found = compare(new, tmp_path / "lost.nc")
    assert found.included == () and found.only_metrics == ([EXPERT], [])
