"""One design, explained: a short answer of thirty lines, everything else on request, the same behind every door."""

from __future__ import annotations

import json

import jax
import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.cli.service.worker import answer
from dse.errors import InputError
from dse.reports.terminal import plain_text

TRAINING = "evaluate -w llama-3-70b -s eos -n 512 --set tp=8 --set pp=4 --set recompute=full"
SERVING = "evaluate -w llama-3-70b -s h100 --serving --set tp=8"

#: Questions whose answers are long: warnings, experts, narrow formats, failures, a chip of one's own.
QUESTIONS = (
    TRAINING, SERVING, "evaluate -w llama-2-7b -s h100 -n 8 --set tp=8 --set global_batch=16",
    "evaluate -w deepseek-v3 -s h800-cluster -n 2048 --set pp=16 --set ep=64",
    "evaluate -w llama-3-1-405b -s eos -n 16384 --set tp=8 --set pp=16 --set cp=2 --set global_batch=2048",
    "evaluate -w deepseek-v3 -s h200 --serving --set dp=8 --set ep=8 --set precision=fp8 --set concurrency=256",
    "evaluate -w llama-3-70b -s mi300x --serving --set tp=8 --set request_rate=2 --set prompt_tokens=8000",
    "evaluate -w llama-3-70b -s h100 -n 8 --set tp=8",
)  # fmt: skip


def invoke(command: str):
    return CliRunner().invoke(app, command.split())


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_short_answer_has_thirty_lines_of_eighty_columns(question, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = invoke(question).stdout.splitlines()
    assert len(lines) <= 30, "\n".join(lines)
    assert max(map(len, lines)) <= 80, "\n".join(lines)


def test_what_stands_first_is_what_people_ask():
    text = plain_text(dse.evaluate("llama-3-70b", "eos", n_devices=512, tp=8, pp=4, recompute="full"))
    for words in (
        "step time",
        "80 % interval",
        "peak memory",
        "energy per step",
        "cost of the run",
        "carbon",
        "run, with",
    ):
        assert words in text
    for words in ("step time: backward", "peak memory: ", "kernels bound by compute", "recompute=none"):
        assert words in text
    assert "flash attention" not in text and "elasticity" not in text


def test_details_come_by_name_and_all_of_them_by_all():
    report = dse.evaluate("llama-3-70b", "eos", n_devices=512, tp=8, pp=4, recompute="full")
    full = plain_text(report, ["all"])
    assert all(plain_text(report, [name]) != plain_text(report) for name in report.details)
    assert "flash attention" in plain_text(report, ["operators"]) and "elasticity" in plain_text(
        report, ["elasticities"]
    )
    assert all(table.title.partition(":")[0] in full for table in report.tables.values())
    assert "matrix" in invoke(f"{TRAINING} --show energy").stdout
    bad = invoke(f"{TRAINING} --show energie")
    assert bad.exit_code == 2 and "energy" in bad.stderr


def test_every_door_gives_one_document():
    report = dse.evaluate("llama-2-7b", "h100", n_devices=8, tp=8, global_batch=16)
    printed = json.loads(invoke("evaluate -w llama-2-7b -s h100 -n 8 --set tp=8 --set global_batch=16 --json").stdout)
    request = {"workload": "llama-2-7b", "system": "h100", "n_devices": 8, "set": {"tp": 8, "global_batch": 16}}
    assert report.to_dict() == printed == answer("evaluate", request)["document"]
    assert answer("evaluate", {**request, "set": ["tp=8", "global_batch=16"]})["document"] == printed
    assert dse.serve("llama-3-8b", "h100").to_dict() == dse.evaluate("llama-3-8b", "h100", serving=True).to_dict()


def test_changes_are_what_the_model_says_of_them():
    report = dse.evaluate("llama-3-70b", "eos", n_devices=512, tp=8, pp=4, recompute="full")
    first = report["changes"][0]
    name, value = first.change.split("=")
    other = dse.evaluate("llama-3-70b", "eos", n_devices=512, **{"tp": 8, "pp": 4, "recompute": "full", name: value})
    gain = 1.0 - other["metrics"]["step_time"] / report["metrics"]["step_time"]
    assert first.gain == pytest.approx(gain, rel=1e-4) and first.memory == pytest.approx(
        other["metrics"]["peak_memory"]
    )
    assert [one.gain for one in report["changes"]] == sorted((one.gain for one in report["changes"]), reverse=True)


def test_a_design_goes_through_the_pure_door():
    design = dse.design("llama-2-7b", "h100", n_devices=8, tp=8, global_batch=16)
    report = dse.evaluate("llama-2-7b", "h100", n_devices=8, tp=8, global_batch=16)
    assert float(jax.jit(dse.evaluate)(design).step_time) == pytest.approx(report["metrics"]["step_time"], rel=1e-6)
    assert "step_time" in dse.evaluate(design)._repr_html_() and "workload.n_layers" in design._repr_html_()
    assert repr(dse.evaluate(design)).startswith("Metrics(step_time=1.32127 s, ")
    assert dse.explain(design)._repr_html_().count("<table>") > 8


@pytest.mark.parametrize(
    ("keywords", "got", "fix"),
    [
        ({"workload": "llama-2-7b", "system": "h1000"}, "h1000", "h100"),
        ({"workload": "llama-2-7b", "system": "h100", "tensor_parallel": 8}, "tensor_parallel", "tp"),
        ({"workload": "llama-2-7b"}, "none", "add it"),
        ({"workload": "llama-2-7b", "system": "h100", "n_devices": "many"}, "many", "Number of devices"),
    ],
)
def test_bad_input_in_python_has_four_parts(keywords, got, fix):
    with pytest.raises(InputError) as fault:
        dse.evaluate(**keywords)
    assert got in fault.value.got and fix in fault.value.fix and fault.value.allowed and fault.value.where


@pytest.mark.parametrize("what", [None, 5, {"workload": "llama-3-8b"}, ["llama-3-8b", "h100"]])
@pytest.mark.parametrize("name", ["evaluate", "serve"])
def test_anything_but_a_design_or_names_is_refused(name, what):
    with pytest.raises(InputError, match="a design, or names"):
        getattr(dse, name)(what)


@pytest.mark.parametrize(
    ("keyword", "wanted"),
    [("servin", "'serving'"), ("metrc", "'metric'"), ("n_device", "'n_devices'"), ("tpp", "'tp'")],
)
def test_a_misspelt_option_or_leaf_is_told_its_name(keyword, wanted):
    with pytest.raises(InputError) as fault:
        dse.evaluate("llama-3-8b", "h100", **{keyword: 1})
    assert fault.value.fix.startswith(f"did you mean {wanted}")
