"""The load at which two fleets cost the same: on both sides of it the plan says the same."""

from __future__ import annotations

import itertools
import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.cli.service.worker import answer
from dse.errors import InputError
from dse.reports.terminal import plain_text

ASKED = {"workload": "llama-3-8b", "on": ["l40s", "h100"], "tpot": "30ms", "ttft": "1s", "from": 0.5, "to": 4}


@pytest.fixture(scope="module")
def report():
    return dse.break_even("llama-3-8b", on=["l40s", "h100"], token="30ms", first_token="1s", low=0.5, high=4)


def test_the_plan_agrees_on_both_sides(report):
    (crossing,) = report["break_even"]
    for factor, name in ((0.95, crossing.below), (1.05, crossing.above)):
        rate = factor * crossing.rate
        plan = dse.plan("llama-3-8b", serving=True, rate=rate, on=["l40s", "h100"], tpot="30ms", ttft="1s")
        assert plan["fleets"][0]["accelerator"] == name


def test_costs_rise_with_the_rate_and_name_the_cheaper(report):
    rates = report["rates"]
    assert [row.rate for row in rates] == sorted(row.rate for row in rates) and rates[-1].rate == 4.0
    for name in ("first", "second"):
        costs = [getattr(row, name) for row in rates]
        assert all(later >= 0.999 * sooner for sooner, later in itertools.pairwise(costs))
    assert rates[0].is_first_cheaper and not rates[-1].is_first_cheaper


def test_every_door_has_it(report, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = "break-even -w llama-3-8b --on l40s --on h100 --tpot 30ms --ttft 1s --from 0.5 --to 4".split()  # noqa: SIM905
    printed = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert printed == report.to_dict() == answer("break_even", ASKED)["document"]
    lines = CliRunner().invoke(app, words).stdout.splitlines()
    assert lines[0] == plain_text(report).splitlines()[0] and max(map(len, lines)) <= 80 and len(lines) <= 30
    assert "<table>" in report._repr_html_() and list(report.to_dataframe()["rate"])[-1] == 4.0


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ({"on": ["h100"]}, "h100"),
        ({"on": ["h100", "h100-sxm-80gb"]}, "h100, h100-sxm-80gb"),
        ({"low": 4, "high": 1}, "4, 1"),
        ({"on": ["h100", "h1000"]}, "h1000"),
    ],
)
def test_bad_input_has_four_parts(options, got):
    with pytest.raises(InputError) as fault:
        dse.break_even("llama-3-8b", **{"on": ["l40s", "h100"], "token": 0.03, **options})
    assert got in fault.value.got


def test_a_table_is_whole_on_narrow_terminals_and_left_out_without_rates():
    words = "break-even -w llama-3-8b --on b200 --on h100 --tpot 30ms --from 4 --to 8".split()  # noqa: SIM905
    lines = CliRunner().invoke(app, words, env={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, lines)) <= 80 and sum(line.startswith("requests/s") for line in lines) == 1
    report = dse.break_even("llama-3-8b", "b200,h100", token=1e-6, low=1, high=2)
    assert report.status == 1 and not report.tables
