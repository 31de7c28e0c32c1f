"""A decision: which design is best and how surely, the same behind every door."""

from __future__ import annotations

import functools

import pytest

import dse
from dse.cli.service.worker import answer
from dse.reports.terminal import plain_text
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree

WORDS = "decide h100 dgx-b200 -w llama-3-8b --set tp=8 --set n_devices=8 --set global_batch=64"
SHARED = {"workload": "llama-3-8b", "tp": 8, "n_devices": 8, "global_batch": 64}


def test_every_door_gives_one_document():
    report = dse.decide(["h100", "dgx-b200"], **SHARED)
    assert_renderers_agree(report, *WORDS.split())
    settings = {"tp": 8, "n_devices": 8, "global_batch": 64}
    request = {"designs": ["h100", "dgx-b200"], "workload": "llama-3-8b", "set": settings}
    assert answer("decide", request)["document"] == report.to_dict()


def test_a_design_is_a_text_or_a_dictionary():
    texts = dse.decide(["h100,micro_batch=2", "dgx-b200,tp=4"], workload="llama-3-8b", n_devices=8)
    records = [{"system": "h100", "micro_batch": 2}, {"system": "dgx-b200", "tp": 4}]
    assert dse.decide(records, workload="llama-3-8b", n_devices=8).to_dict() == texts.to_dict()
    request = {"designs": records, "workload": "llama-3-8b", "set": {"n_devices": 8}}
    assert answer("decide", request)["document"] == texts.to_dict()


def test_the_answer_comes_first_and_is_short():
    lines = plain_text(dse.decide(["h100", "dgx-b200"], **SHARED), width=80).splitlines()
    assert lines[1].startswith("best at the mean: dgx-b200 (") and len(lines) <= 30


def test_scenarios_are_a_detail_with_the_same_numbers_as_texts():
    metric, futures = "cost_per_token", {"dear power": {"prices.electricity": "+100 %"}}
    report = dse.decide(["h100", "mi300x"], workload="llama-3-8b", tp=8, metric=metric, scenario=futures)
    text = dse.decide(
        ["h100", "mi300x"], workload="llama-3-8b", tp=8, metric=metric, scenario="dear power: prices.electricity=+100 %"
    )
    assert report.to_dict() == text.to_dict() and report.details == ["scenarios"]
    assert "dear power" in plain_text(report, ["scenarios"]) and "weight" not in plain_text(report)
    assert [*report.to_dataframe("scenarios").scenario] == ["as stated", "dear power"]
    for future in ({"dear": 3}, {"dear": {"prices.electricity": [3]}}, {"dear": {"prices.electricity": True}}):
        asked = {"workload": "llama-3-8b", "scenario": future}
        assert_refused(functools.partial(dse.decide, ["h100", "mi300x"], **asked), "dear")


def test_results_are_decided_from_a_file_and_from_a_dataset(tmp_path):
    sweep = {"workload": "gpt-3-13b", "system": "selene", "axes": {"tp": [4, 8], "n_devices": [16]}}
    output = tmp_path / "small.nc"
    results = dse.run(sweep, output=output, keep="all")
    from_file = dse.decide(str(output))
    assert from_file.to_dict() == dse.decide(results).to_dict() == dse.decide(output).to_dict()
    assert_renderers_agree(from_file, "decide", output)


def test_no_option_that_may_be_left_out_is_at_fault_for_none():
    """None is the default of lists and of dictionaries, too."""
    report = dse.decide(["h100", "dgx-b200"], **SHARED, metric=None, scenario=None, measured=None, system=None)
    assert report.to_dict() == dse.decide(["h100", "dgx-b200"], settings=None, **SHARED).to_dict()


@pytest.mark.parametrize(
    ("designs", "keywords", "texts"),
    [
        (["h100"], {"workload": "llama-3-8b"}, ["1 design", "two designs or more"]),
        (["h100", "h1000"], {"workload": "llama-3-8b"}, ["h1000"]),
        (["h100", "mi300x"], {}, ["no workload", "-w NAME"]),
        (["h100", "mi300x"], {"workload": "llama-3-8b", "metric": "parameters"}, ["parameters", "interval"]),
        (3, {"workload": "llama-3-8b"}, ["designs", "3"]),
    ],
)
def test_bad_input_in_python_has_four_parts(designs, keywords, texts):
    assert_refused(lambda: dse.decide(designs, **keywords), *texts)
