"""Timelines: the report says what was written, and where."""

from __future__ import annotations

import json

import dse
from dse.cli.service.worker import answer
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree

DESIGN = {"workload": "gpt-3-13b", "system": "selene", "n_devices": 16, "tp": 8, "pp": 2, "global_batch": 4}


def test_a_trace_is_written(tmp_path):
    path = tmp_path / "step.json"
    report = dse.trace(**DESIGN, output=path)
    assert report.files == [path] and json.loads(path.read_text())["otherData"]["step_time"] == report["step_time"]
    words = ["trace", "-w", "gpt-3-13b", "-s", "selene", "-n", 16, "-o", path]
    assert_renderers_agree(report, *words, *("--set", "tp=8", "--set", "pp=2", "--set", "global_batch=4"))
    assert "16 passes on 2 stages" in str(report) and "event by event" in str(report)


def test_formats_of_other_tools(tmp_path):
    report = dse.trace(**DESIGN, output=tmp_path / "rank.json", format="kineto", rank=1)
    assert report["format"] == "kineto" and "of rank 1" in report["contents"]


def test_bad_input_is_told(tmp_path):
    assert_refused(lambda: dse.trace(**DESIGN), "output")
    assert_refused(lambda: dse.trace(**DESIGN, output=tmp_path / "t.json", format="kinetto"), "kineto")
    assert_refused(lambda: dse.trace(**DESIGN, output=tmp_path / "t.json", rank=-1), "rank")
    assert "error" in answer("trace", {"workload": "gpt-3-13b", "system": "selene"})
    assert not [*tmp_path.iterdir()]
