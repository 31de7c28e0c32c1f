"""What to measure, the same behind every door."""

from __future__ import annotations

import csv

import pytest

import dse
from dse.cli.service.worker import answer
from dse.reports.terminal import plain_text
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree

WORDS = "measure h100,tp=8 h100,tp=4,pp=2 --on h100 -w llama-3-8b --set n_devices=8 --set global_batch=64"
DESIGNS = ["h100,tp=8", "h100,tp=4,pp=2"]
SHARED = {"workload": "llama-3-8b", "on": "h100"}


@pytest.fixture(scope="module")
def report():
    return dse.measure(DESIGNS, **SHARED, n_devices=8, global_batch=64)


def test_every_door_gives_one_document(report):
    assert_renderers_agree(report, *WORDS.split())
    request = {"designs": DESIGNS, **SHARED, "set": {"n_devices": 8, "global_batch": 64}}
    assert answer("measure", request)["document"] == report.to_dict()


def test_the_line_of_the_first_is_shown_and_others_are_a_detail(report):
    first, second, *_ = report["measurements"]
    lines = plain_text(report, width=80).splitlines()
    assert len([line for line in lines if line not in first["line"]]) <= 30
    assert first["line"] in plain_text(report) and second["line"] in plain_text(report, ["lines"])
    shown = plain_text(report).split(first["line"])[1].splitlines()[1:3]
    assert next(csv.DictReader(shown)) == first["row"]


def test_nothing_to_measure_has_status_1():
    designs = ["h100", "h100,micro_batch=2", "dgx-b200"]  # the last one is far ahead
    report = dse.measure(designs, **SHARED, n_devices=8, global_batch=64)
    assert report.status == 1 and "none lowers the expected loss" in plain_text(report)


def test_bad_input_in_python_has_four_parts():
    two = ["h100", "mi300x"]
    assert_refused(lambda: dse.measure(two, "h1000", workload="llama-3-8b"), "--on", "h1000")
    assert_refused(lambda: dse.measure(two, "tpu-v5p", workload="llama-3-8b", tp=8), "no chip of the designs")
    assert_refused(lambda: dse.measure(two, "h100", workload="llama-3-8b", count=51), "count", "51")
