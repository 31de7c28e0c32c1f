"""A simulation, the same behind every door."""

from __future__ import annotations

import json

import pytest

import dse
from dse.cli.service.worker import answer
from dse.reports.terminal import plain_text
from tests.contract.capabilities.claims import assert_refused, run

WORDS = "simulate -w llama-3-8b -s h100-sxm-80gb --requests 300 --set request_rate=20 --set output_tokens=50"
ENGINE = {"workload": "llama-3-8b", "system": "h100-sxm-80gb", "requests": 300, "request_rate": 20, "output_tokens": 50}


@pytest.fixture(scope="module")
def report():
    return dse.simulate(**ENGINE)


def without_seconds(document):
    """All but how long the simulation took."""
    return {name: value for name, value in document.items() if name != "seconds"}


def test_every_door_gives_one_document(report):
    document = without_seconds(report.to_dict())
    assert document == without_seconds(json.loads(run(*WORDS.split(), "--json").stdout))
    settings = {name: ENGINE[name] for name in ("request_rate", "output_tokens")}
    request = {"workload": "llama-3-8b", "system": "h100-sxm-80gb", "requests": 300, "set": settings}
    assert document == without_seconds(answer("simulate", request)["document"])
    page = report._repr_html_()
    assert all(cell in page for row in report.table().cells() for cell in row)


def test_the_answer_is_short(report):
    lines = plain_text(report, width=80).splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80
    frame = report.to_dataframe().set_index("latency")
    assert frame.loc["time to first token", "p99"] == report["p99_time_to_first_token"]


def test_an_engine_without_room_for_a_cache_cannot_run():
    report = dse.simulate("llama-3-70b", "h100-sxm-80gb")
    assert report.status == 1 and not report["feasible"] and "no room for a cache" in report["reason"]
    assert "cannot run" in plain_text(report) and "no room for a cache" in plain_text(report)


def test_files_of_requests_and_steps(tmp_path):
    files = [tmp_path / "requests.csv", tmp_path / "steps.json"]
    report = dse.simulate(**ENGINE, output=files[0], timeline=files[1])
    assert report.files == files and all(file.exists() for file in files)
    assert_refused(lambda: dse.simulate(**ENGINE, output=files[0], timeline=files[0]), "--timeline")


def test_bad_input_in_python_has_four_parts(tmp_path):
    assert_refused(lambda: dse.simulate(**ENGINE, trace=tmp_path / "nowhere.csv"), "--trace")
    assert_refused(lambda: dse.simulate("llama-3-8b", "h1000"), "h1000")
    assert_refused(lambda: dse.simulate(**{**ENGINE, "requests": 0}), "requests", "0")
