"""A measured step against the predicted one: one record at every door, short first."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.cli.service.worker import answer
from dse.errors import InputError
from dse.reports.terminal import plain_text
from tests.unit.measured import profiles as files

ROW = {
    "model": "gpt-3-13b", "system": "selene", "n_gpus": 16, "tp": 8, "pp": 1, "micro_batch": 2, "global_batch": 64,
    "seq_len": 2048, "recompute": "full", "iteration_s_measured": 9.0,
}  # fmt: skip


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(files.kineto(), encoding="utf-8")
    return path


def test_every_door_gives_one_document(trace):
    options = ["-w", "llama-3-8b", "-s", "h100", "--set", "global_batch=16", "--set", "seq_len=8192"]
    printed = json.loads(invoke("diagnose", trace, *options, "--json").stdout)
    report = dse.diagnose(trace, "llama-3-8b", "h100", global_batch=16, seq_len=8192)
    assert report.to_dict() == printed
    assert dse.diagnose([str(trace)], workload="llama-3-8b", system="h100",
                        settings={"global_batch": 16, "seq_len": 8192}).to_dict() == printed  # fmt: skip
    posted = answer("diagnose", {"files": [ROW]})["document"]
    assert posted == dse.diagnose([ROW]).to_dict() and posted["steps"][0]["measured"] == 9.0


def test_one_step_is_told_whole_and_several_by_a_line_each(monkeypatch):
    one = dse.diagnose([ROW])
    text = plain_text(one, width=80).splitlines()
    assert len(text) <= 30 and max(map(len, text)) <= 80
    assert any("9.00 s measured" in line for line in text) and "shorter by" in plain_text(one)
    assert "dse launch -w gpt-3-13b" in plain_text(one, ["commands"]) and "dse launch" not in plain_text(one)
    several = dse.diagnose([ROW, ROW | {"micro_batch": 1}, ROW | {"model": "unheard-of"}], advice=False)
    text = plain_text(several, width=80)
    assert len(several["steps"]) == 2 == len(several.to_dataframe()) and "exposed communication" not in text
    assert several["skipped"] and any("not predicted" in note for note in several.notes)
    assert plain_text(several, ["steps"]).count("exposed communication") == 2
    assert len({section.name for section in several.tables.values()}) == len(several.tables)
    assert max(map(len, text.splitlines()[:5])) <= 80


def test_figure_and_timelines_are_files_of_the_report(trace, tmp_path):
    with pytest.raises(InputError, match="traces of the ranks of one step"):
        dse.diagnose([ROW], output=tmp_path / "gap.png")
    options = {"workload": "llama-3-8b", "system": "h100", "global_batch": 16, "seq_len": 8192, "tp": 8, "pp": 1}
    report = dse.diagnose(trace, output=tmp_path / "gap.png", trace=tmp_path / "both.json", advice=False, **options)
    assert [*report.files, *report.figures] == [tmp_path / "both.json", tmp_path / "gap.png"]
    assert all(path.stat().st_size > 100 for path in (*report.files, *report.figures))


@pytest.mark.parametrize(
    ("cases", "got"), [([], "no rows"), ("none.log", "No such file"), ([{"model": "llama-3-8b"}], "model"), (3, "int")]
)
def test_bad_input_in_python_has_four_parts(cases, got):
    with pytest.raises((InputError, OSError)) as fault:
        dse.diagnose(cases)
    assert got in str(fault.value)


def test_status_is_1_where_nothing_is_predicted():
    report = dse.diagnose([ROW | {"model": "unheard-of"}])
    assert report.status == 1 and not report["steps"] and "not predicted: " in report.notes[0]
