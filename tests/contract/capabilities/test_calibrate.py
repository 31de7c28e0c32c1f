"""Fits as a capability: files of the report, and a last line that runs as it is."""

from __future__ import annotations

import csv
import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.errors import InputError
from dse.reports.registry import capabilities

ROW = {
    "model": "llama-3-8b", "system": "eos", "n_gpus": "8", "tp": "2", "pp": "1", "micro_batch": "1", "vp": "1",
    "global_batch": "128", "seq_len": "8192", "recompute": "selective", "iteration_s_measured": "30",
}  # fmt: skip
ROWS = [ROW, ROW | {"global_batch": "256", "iteration_s_measured": "59"}]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("DSE_CATALOG", raising=False)
    monkeypatch.chdir(tmp_path)
    with open("rows.csv", "w", newline="") as file:
        table = csv.DictWriter(file, [*ROW])
        table.writeheader()
        table.writerows(ROWS)
    return tmp_path


def invoke(line: str):
    return CliRunner().invoke(app, line.split())


def test_a_stack_of_ones_own_is_a_report_with_its_file_and_its_use(folder):
    report = dse.calibrate(ROWS, "mine")
    assert [str(path) for path in report.files] == ["mine/software/my-stack.toml"] and report.files[0].is_file()
    assert report["runs"] == 2 and report["error"] < report["before"]
    assert report.to_dataframe().path[0] == "level" and "spread_after" in report.to_csv()
    assert report["usage"].startswith("use it: export DSE_CATALOG=mine; dse evaluate -w llama-3-8b")
    printed = invoke("calibrate rows.csv -o again --stack other").stdout.splitlines()
    assert printed[-1].startswith("use it: export DSE_CATALOG=again") and "--software other" in printed[-1]
    assert "again/software/other.toml" in printed
    document = json.loads(invoke("calibrate rows.csv -o third --json").stdout)
    assert document["values"] == report.to_dict()["values"] and document["path"] == "third/software/my-stack.toml"
    assert report["usage"] in str(report) and "use it" in report._repr_html_()


def test_rows_are_added_to_a_catalogue(folder):
    report = dse.calibrate(ROWS, "added.toml", catalog="mine", add=True)
    assert {str(path).partition("/")[0] for path in report.files} == {"added.toml", "mine"}
    assert report["updates"][0].kind == "software" and report["usage"] == "use it: export DSE_CATALOG=mine"
    assert "use it: export DSE_CATALOG=mine" in str(report) and "nemo" in str(report)


def test_a_fit_is_a_table_of_errors(folder):
    report = dse.calibrate("rows.csv", "fitted.toml")
    assert [str(path) for path in report.files] == ["fitted.toml"] and report["errors"][0]["rows"] == 2
    assert report.to_dataframe().source[0] == "rows" and "intervals hold" in report["note"]


@pytest.mark.parametrize(
    ("options", "got"),
    [
        ({"cases": ROWS, "output": "mine", "stack": "My Stack"}, "My Stack"),
        ({"cases": ROWS, "output": "a.toml", "add": True}, "no --catalog"),
        ({"cases": ROWS, "output": "a.toml", "stack": "mine"}, "-o a.toml"),
        ({"cases": ROWS, "output": "a.toml", "system": "eos"}, "-s"), ({"cases": [], "output": "a.toml"}, "no rows"),
        ({"cases": ROWS, "output": "a.toml", "folds": 30}, "30"), ({"cases": "none.csv", "output": "mine"}, "No such"),
    ],
)  # fmt: skip
def test_bad_input_in_python_has_four_parts(options, got, folder):
    with pytest.raises(InputError) as fault:
        dse.calibrate(**options)
    assert got in fault.value.got and fault.value.where and fault.value.allowed and fault.value.fix
    assert sorted(path.name for path in folder.iterdir()) == ["rows.csv"]


def test_programs_do_not_write_catalogues():
    assert "catalogue" in capabilities()["calibrate"].local
