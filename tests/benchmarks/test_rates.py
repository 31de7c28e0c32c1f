"""The yardstick itself: the plain loop computes what the model computes, and slower is told from noise."""

import json

import jax
import pytest
from typer.testing import CliRunner

import dse
from benchmarks import rates as bench
from dse.cli import app
from dse.doors.evaluation import evaluate
from tests.programs import compiled

WAITED = ("checkpoint_stall", "checkpoint_interval", "run_time_with_failures_checkpointing")


def test_plain_numbers_give_the_same_metrics():
    design = dse.design("gpt-3-13b", "selene", n_devices=16, tp=8, pp=2, recompute="full", global_batch=64)
    expected = compiled(evaluate)(design)
    with bench.plain_numbers():
        found = evaluate(jax.tree.map(float, design))
    assert isinstance(found.step_time, float)
    for name, value in vars(expected).items():  # what a checkpoint waits for is a difference of times that are near
        near = 1e-3 if name in WAITED else 1e-5
        assert float(getattr(found, name)) == pytest.approx(float(value), rel=near), name


@pytest.mark.parametrize(("rate", "lines"), [(100.0, 0), (81.0, 0), (79.0, 1)])
def test_a_fifth_slower_is_told(rate, lines):
    measured = {"flat_full": 100.0, "grid_best": rate}
    assert len(bench.slower(measured, {"flat_full": 100.0, "grid_best": 100.0})) == lines


def test_the_command_prints_what_the_package_of_the_checkout_measures(monkeypatch):
    monkeypatch.setattr(bench, "bench", lambda starts: {"flat_full": 2.0, "cores": 2, "starts": starts})
    ended = CliRunner().invoke(app, ["bench", "--json", "--no-starts"])
    assert ended.exit_code == 0
    assert json.loads(ended.stdout) == {"flat_full": 2.0, "cores": 2, "starts": False}
    assert "flat_full" in CliRunner().invoke(app, ["bench", "--no-starts"]).stdout
