"""A measured step against the predicted one: what was made slower in a trace is what is named."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.lab.evidence import diagnose
from dse.measured import profiles, read_cases
from dse.measured.columns import TRACE_PARTS
from dse.measured.comparison import write_lines
from tests.unit.measured import profiles as files

STATED = {
    "model": "llama-3-8b",
    "system": "h100",
    "n_gpus": "8",
    "global_batch": "16",
    "seq_len": "8192",
    "tp": "8",
    "pp": "1",
    "micro_batch": "1",
    "recompute": "selective",
    "zero_stage": "1",
}


@pytest.fixture(scope="module")
def predicted():
    """Microseconds of the parts of the design that is stated."""
    settings = {name: float(STATED[name]) for name in ("tp", "pp", "micro_batch", "zero_stage", "global_batch")}
    design = dse.design("llama-3-8b", "h100", seq_len=8192, recompute="selective", **settings)
    metrics = dse.evaluate(design)
    return {
        name: 1e6 * sum(float(getattr(metrics, f"step_time_{one}")) for one in ours)
        for name, (_, ours) in TRACE_PARTS.items()
    }


def of_trace(folder, text):
    path, rows = folder / "trace.json", folder / "rows.csv"
    path.write_text(text, encoding="utf-8")
    write_lines(rows, profiles.read([path], STATED).tables["steps"], True)
    (one,) = diagnose(read_cases(rows))
    return one


def test_parts_are_all_of_the_step(predicted):
    from dse.doors import TRAINING

    ours = {one for _, parts in TRACE_PARTS.values() for one in parts}
    assert ours == {name.removeprefix("step_time_") for name in TRAINING.parts("step_time")}


def test_a_trace_as_predicted_lies_within_the_interval(predicted, tmp_path):
    compute, exposed, gap = predicted.values()
    one = of_trace(tmp_path, files.kineto(3, compute, exposed, gap, 1.0))
    assert one.is_explained and abs(one.gap) < 1e-3 * one.predicted
    assert all(part.measured == pytest.approx(part.predicted, rel=1e-3, abs=1e-5) for part in one.parts)
    assert sum(part.measured for part in one.parts) == pytest.approx(one.measured)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(range(3)), st.floats(0.1, 3.0))
def test_what_is_slower_is_named_with_its_seconds(predicted, tmp_path, which, share):
    times = list(predicted.values())
    lost = share * sum(times)
    times[which] += lost
    one = of_trace(tmp_path, files.kineto(3, *times, 1.0))
    worst = max(one.parts, key=lambda part: part.measured - part.predicted)
    assert worst.name == list(TRACE_PARTS)[which]
    assert worst.measured - worst.predicted == pytest.approx(1e-6 * lost, rel=0.01)
    assert one.gap == pytest.approx(1e-6 * lost, rel=0.01)


def test_the_command_prints_a_trace_a_log_and_rows(tmp_path):
    trace, log, rows = tmp_path / "trace.json", tmp_path / "run.log", tmp_path / "rows.csv"
    trace.write_text(files.kineto(), encoding="utf-8")
    log.write_text(files.torchtitan([500, 4000, 5700, 5800, 5750]), encoding="utf-8")
    asked = ["-w", "llama-3-8b", "-s", "h100", "--set", "global_batch=16", "--set", "seq_len=8192", "--rows", str(rows)]
    done = CliRunner().invoke(app, ["diagnose", str(trace), *asked])
    assert done.exit_code == 0, done.output
    assert "exposed communication" in done.output and "shorter than predicted" in done.output
    again = CliRunner().invoke(app, ["diagnose", str(rows), "--json"])
    (step,) = json.loads(again.stdout)["steps"]
    assert [part["measured"] for part in step["parts"]] == pytest.approx([0.0065, 0.001, 0.0025])
    done = CliRunner().invoke(app, ["diagnose", str(log), "--json"])
    (step,) = json.loads(done.stdout)["steps"]
    tokens = 16 * 8192
    assert step["measured"] == pytest.approx(tokens / (8 * 5750.0)) and step["parts"][0]["measured"] is None
    assert step["memory"][0] == 64.0 * 2**30


def test_other_rows_are_refused(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(files.VLLM), encoding="utf-8")
    done = CliRunner().invoke(app, ["diagnose", str(path), "-s", "h100"])
    assert done.exit_code == 2 and "dse validate --profile" in " ".join(done.output.split())
