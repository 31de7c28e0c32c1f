"""Decisions between designs: shared errors cancel, probabilities and regrets agree, ties are called ties."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest
import xarray as xr

import dse
from dse.cli import app
from dse.designs import catalog
from dse.doors import STUDIES
from dse.measured import evaluate_many
from dse.measured.decisions import running
from dse.measured.decisions.choice import Choice, decide
from dse.measured.uncertainty import distance
from dse.types import Software

STUDY = STUDIES["training"]

#: A small sweep, by the values of ``pp``.
SMALL = """
[workload]
name = "gpt-3-13b"
[system]
name = "selene"
[mapping]
recompute = "full"
[axes]
n_devices = [16]
pp = {}
tp = [1, 2, 4, 8]
micro_batch = [1, 2]
"""


def choice(name, system="selene", stack="megatron-2021", chip="a100-sxm-80gb", **settings):
    asked = {"n_devices": 16, "recompute": "full", "global_batch": 64, "tp": 8, "pp": 2} | settings
    return Choice(name, dse.design("gpt-3-13b", system, stack, **asked), stack, chip, "gpt-3-13b")


NEAR = [choice("plain"), choice("slower", micro_batch=2, pp=1)]


def test_a_design_against_itself_is_a_coin_and_a_tie():
    found = decide([choice("one"), choice("two")], "step_time", STUDY)
    assert found.better[0, 1] == pytest.approx(0.5, abs=0.1)
    assert found.ties


def test_probabilities_and_regrets_agree():
    found = decide([*NEAR, choice("tp 1", tp=1, pp=2)], "step_time", STUDY)
    assert sum(one.probability_best for one in found.verdicts) == pytest.approx(1.0)
    np.testing.assert_allclose(found.better + found.better.T + np.eye(3), 1.0, atol=1e-6)
    assert found.robust.expected_regret == min(one.expected_regret for one in found.verdicts)
    assert all(one.low < one.value < one.high for one in found.verdicts)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    rate = decide([*NEAR], "tokens_per_second", STUDY, higher_is_better=True)
    assert rate.best.name == decide(NEAR, "step_time", STUDY).best.name


def test_what_designs_have_in_common_cancels():
    """Two mappings on one chip are told apart better than as far a gap between two chips."""
    one, other = decide(NEAR, "step_time", STUDY).verdicts
    apart = decide([NEAR[0], NEAR[1]._replace(accelerator="tpu-v5p", model="other")], "step_time", STUDY)
    alike = decide(NEAR, "step_time", STUDY)
    first = int(one.value > other.value)
    assert alike.better[first, 1 - first] >= apart.better[first, 1 - first]


def test_memory_that_is_too_small_is_told():
    found = decide([NEAR[0], choice("all on one", tp=1, pp=1, micro_batch=4)], "step_time", STUDY)
    fits = {one.name: one.fits_probability for one in found.verdicts}
    assert fits["plain"] > 0.9 > 0.1 > fits["all on one"]
    metric = evaluate_many([choice("all on one", tp=1, pp=1, micro_batch=4).design])["fits_probability"]
    assert fits["all on one"] == metric  # one chance, by whatever door


def test_stacks_whose_memory_nobody_measured_have_the_spread_of_frameworks_left_out():
    table = tomllib.loads((catalog.catalog_root() / "intervals.toml").read_text())
    spread = catalog.record(Software, "maxtext").memory_spread
    home = catalog.record(Software, "megatron-core").memory_spread  # of the median stack
    assert spread == pytest.approx(np.hypot(home, table["widths"]["memory"]["framework"]), abs=1e-3)
    assert distance.memory_parts("maxtext", spread) == {"framework": spread}
    assert all(
        "memory_spread" in catalog.entry("software", name).values
        for name in catalog.names("software")
        if distance.framework_of(name) in table["memory"]["frameworks"]
    )


def told(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        app(list(arguments), prog_name="dse")
    return ended.value.code, capsys.readouterr().out


def test_the_command_decides_between_systems(capsys):
    options = ["-w", "llama-3-8b", "--set", "tp=8", "--set", "n_devices=8", "--set", "global_batch=64"]
    status, text = told(capsys, "decide", "dgx-b200", "h100,micro_batch=1", *options)
    assert status == 0 and "expected loss" in text and "best at the mean" in text
    document = json.loads(told(capsys, "decide", "dgx-b200", "h100", *options, "--metric", "step_time", "--json")[1])
    (found,) = document["decisions"]
    assert found["best"] == "dgx-b200" and len(found["designs"]) == 2
    assert told(capsys, "decide", "h100", *options)[0] == 2
    assert told(capsys, "decide", "h100", "dgx-b200", *options, "--metric", "parameters")[0] == 2


def test_the_best_of_designs_that_do_not_fit_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        app(["decide", "h100,tp=8", "h100,tp=4", "-w", "llama-3-70b", "--set", "global_batch=8"], prog_name="dse")
    assert ended.value.code == 1 and "h100,tp=8 fits in memory in only 0.0 % of cases" in capsys.readouterr().out


def test_a_sweep_that_keeps_the_best_says_how_sure_it_is(tmp_path, capsys):
    sweep = tmp_path / "small.toml"
    sweep.write_text(SMALL.format("[2]"))
    output = tmp_path / "small.nc"
    status, text = told(capsys, "run", str(sweep), "-o", str(output), "--keep", "top:5", "--no-figure")
    assert status == 0 and "best %" in text
    with dse.open_results(output) as results:
        assert float(results.probability_best.sum()) == pytest.approx(1.0, abs=1e-5)
        np.testing.assert_allclose(results.probability_feasible, results.fits_probability, rtol=1e-6)
        from_python = dse.run(sweep, output=False, keep="top:5")
        assert {*from_python} == {*results} >= {"step_time_low", "step_time_high"}
        xr.testing.assert_allclose(from_python, results.load())
    status, text = told(capsys, "decide", str(output))
    assert status == 0 and "best at the mean" in text


def test_a_sweep_without_intervals_does_not_ask_for_them(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "judge", lambda *asked: pytest.fail("intervals of a sweep that shows none"))
    (tmp_path / "small.toml").write_text(SMALL.format("[2]"))
    for keep in ("best", "feasible", "all"):
        assert "step_time_low" not in dse.run(tmp_path / "small.toml", output=False, keep=keep)


def test_results_are_decided_by_their_objective(tmp_path, capsys):
    """Not by the study's: what answers fastest costs most."""
    sweep, output = tmp_path / "served.toml", tmp_path / "served.nc"
    sweep.write_text("""
[workload]
name = "llama-3-70b"
[system]
name = "h100"
[axes]
tp = [8]
concurrency = [16, 64]
[serving]
[objective]
minimize = "cost_per_token"
""")
    assert told(capsys, "run", str(sweep), "-o", str(output), "--keep", "all", "--no-figure")[0] == 0
    status, text = told(capsys, "decide", str(output))
    assert status == 0 and "cost per output token" in text and "best at the mean: concurrency 64" in text
    assert "64.0" not in text


@pytest.mark.parametrize("text", ["h100,dgx-b200", "h100,tp"])
def test_what_a_design_does_not_use_is_refused(text, capsys):
    with pytest.raises(SystemExit) as ended:
        app(["decide", text, "mi300x", "-w", "llama-3-8b"], prog_name="dse")
    assert ended.value.code == 2 and "one system each" in capsys.readouterr().err
