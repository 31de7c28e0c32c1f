"""The yardstick itself: the plain loop computes what the model computes, and slower is told from noise."""

import json

import jax
import pytest

import dse
from benchmarks import rates as bench
from benchmarks.rates import __main__ as program
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


def test_the_program_prints_one_record(monkeypatch, capsys):
    monkeypatch.setattr(program, "bench", lambda starts: {"flat_full": 2.0, "cores": 2, "starts": starts})
    for arguments, starts in ([], True), (["--fast"], False):
        monkeypatch.setattr("sys.argv", ["rates", *arguments])
        assert program.main() == 0
        assert json.loads(capsys.readouterr().out) == {"flat_full": 2.0, "cores": 2, "starts": starts}
