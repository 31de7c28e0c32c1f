"""A run that trains adapters has the tokens that are said of it, never those of its model's pre-training."""

import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.designs.records import TUNING_TOKENS
from dse.measured import read_cases
from dse.measured.completion import complete
from dse.spec import sweep as specs

SWEEP = """
[workload]
name = "llama-2-70b"
{workload}
[system]
name = "eos"
n_devices = 64
[axes]
tp = [8]
micro_batch = [1]
{axes}
"""


def swept(workload="", axes=""):
    grid = dse.sweep.plan(specs.from_text(SWEEP.format(workload=workload, axes=axes)))[0]
    return grid, [
        float(grid.values([i])["workload.run_tokens"][0])
        if "workload.run_tokens" in grid.values([i])
        else float(grid.base.workload.run_tokens)
        for i in range(grid.n_designs)
    ]


def test_a_design_of_adapters_does_not_take_the_tokens_of_pre_training():
    plain, tuned, said = (
        dse.design("llama-2-70b", "eos", n_devices=64, tp=8, **settings)
        for settings in ({}, {"adapters.rank": 16}, {"adapters.qkv": 1, "run_tokens": 5e7})
    )
    assert plain.workload.run_tokens == 2e12  # of pre-training
    assert tuned.workload.run_tokens == TUNING_TOKENS and said.workload.run_tokens == 5e7
    days = float(dse.evaluate(tuned).run_time) / 86400.0
    assert 0.0 < days < 0.2 and float(dse.evaluate(plain).run_time) / 86400.0 > 300.0


def test_evaluate_says_what_was_assumed():
    asked = ["evaluate", "-w", "llama-2-70b", "-s", "eos", "-n", "64", "--set", "tp=8", "--set", "rank=16"]
    shown = CliRunner().invoke(app, [*asked, "--show", "all"]).stdout
    assert "run_tokens of adapters: 100,000,000 assumed, not those of pre-training" in shown
    assert "Run of 100 Mtokens: " in shown and " kWh, without failures." in shown and " 0 times a run" not in shown
    (told,) = json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)["cautions"]
    assert "set run_tokens to the tokens of your set times its epochs" in told
    assert "assumed" not in CliRunner().invoke(app, [*asked, "--set", "run_tokens=3e7"]).stdout
    assert "assumed" not in CliRunner().invoke(app, asked[:-2]).stdout


@pytest.mark.parametrize(
    ("workload", "axes", "tokens"),
    [
        ("", "", [2e12]),
        ("adapters.rank = 16", "", [TUNING_TOKENS]),
        ("adapters.rank = 16\nrun_tokens = 3e7", "", [3e7]),
        ("adapters.rank = 16", "run_tokens = [1e7, 2e7]", [1e7, 2e7]),
        ("", "adapters.rank = [8, 64]", [TUNING_TOKENS] * 2),
    ],
)
def test_sweeps_do_so_too(workload, axes, tokens):
    grid, found = swept(workload, axes)
    assert found == pytest.approx(tokens)
    assert any("run_tokens of adapters" in told for told in grid.remarks) == (TUNING_TOKENS in tokens)


def test_an_axis_of_models_does_not_bring_the_tokens_of_their_pre_training():
    text = SWEEP.format(workload="", axes='workload = ["llama-2-70b", "llama-3-70b"]\nadapters.rank = [16]')
    text = text.replace('[workload]\nname = "llama-2-70b"\n', "")
    grid = dse.sweep.plan(specs.from_text(text))[0]
    assert float(grid.base.workload.run_tokens) == pytest.approx(TUNING_TOKENS)
    assert "workload.run_tokens" not in {path for dimension in grid.dimensions for path in dimension.columns}


def test_measured_rows_of_adapters_do_so_too(tmp_path):
    table = tmp_path / "rows.csv"
    table.write_text("model,gpu,n_gpus,tp,pp,global_batch,seq_len,note\nllama-2-70b,H100,8,8,1,8,4096,LoRA\n")
    (case,) = read_cases(table, measured=False)
    assert complete(case).workload.run_tokens == TUNING_TOKENS
