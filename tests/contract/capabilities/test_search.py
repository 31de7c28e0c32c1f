"""A search: what was found and by which method first, the same behind every door."""

from __future__ import annotations

import html
import json

import pytest
import xarray as xr
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.errors import InputError
from dse.reports.terminal import plain_text
from dse.spec.search import read
from dse.spec.sweep import text_of

SECTIONS = {
    "title": "a small search",
    "workload": {"name": "gpt-3-13b", "global_batch": 64},
    "system": {"name": "selene", "n_devices": 16},
    "axes": {"tp": (1, 2, 8), "pp": (1, 2), "recompute": ["none", "full"]},
    "search": {"method": ["random", "evolution"], "evaluations": 128, "seeds": 2},
}


@pytest.fixture(scope="module")
def report():
    return dse.search(SECTIONS, output=False)


def test_forms_of_a_specification_are_one_document(report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(text_of(SECTIONS))
    others = dse.search("small.toml"), dse.search(**SECTIONS)
    assert read(SECTIONS).hash() == read("small.toml").hash()
    for other in others:
        xr.testing.assert_identical(other.dataset, report.dataset)
    assert {path.name for path in tmp_path.rglob("*.nc")} == {"small.nc", "a_small_search.nc"}
    printed = json.loads(CliRunner().invoke(app, ["search", "small.toml", "--json", "--no-figure"]).stdout)
    alone = dict.fromkeys(("seconds", "output"))
    assert {**printed, **alone} == {**report.to_dict(), **alone}


def test_the_best_comes_first_and_methods_are_a_detail(report):
    text = plain_text(report, width=80)
    assert max(map(len, text.splitlines())) <= 80 and len(text.splitlines()) <= 30
    assert "best designs by step time" in text and "found by" in text and "search: median %" not in text
    full = plain_text(report, ["all"], width=80)
    assert "search: median %" in full and "peak memory exceeds" in full and max(map(len, full.splitlines())) <= 80
    page = report._repr_html_()
    assert all(html.escape(cell) in page for table in report.tables.values() for row in table.cells() for cell in row)
    assert report.to_dataframe("methods").evaluations.tolist() == [*report["evaluations"].values()]
    assert report.status == 0 and report["designs"][0].gap == 0.0


def test_a_proof_and_its_check_are_reports(tmp_path):
    budget = {"memory.bandwidth": {"from": "1 TB/s", "to": "2 TB/s", "count": 3}}
    spec = {**SECTIONS, "axes": {**SECTIONS["axes"], **budget}}
    proven = dse.search(spec, tmp_path / "p.nc", prove=True, gap=0.02)
    (certificate,) = [path for path in proven.files if path.suffix == ".npz"]
    assert proven["proof"].gap <= 0.02 and "is better than step time" in str(proven)
    checked = dse.search(spec, certificate=certificate)
    assert checked["is_valid"] and checked.status == 0 and str(checked).startswith("valid: no design is better")
    assert dse.search(spec, check=certificate).to_dict()["is_valid"], "by the name of the option, too"


@pytest.mark.parametrize(
    ("keywords", "got"),
    [
        ({"seconds": -1}, "-1"), ({"evaluations": 0}, "0"), ({"gap": 2}, "2"), ({"search": {}}, "search twice"),
        ({"certificate": "none.npz"}, "no such file"), ({"evaluations": "many"}, "many"),
    ],
)  # fmt: skip
def test_bad_input_in_python_has_four_parts(keywords, got):
    with pytest.raises(InputError) as fault:
        dse.search(SECTIONS, output=False, **keywords)
    assert got in fault.value.got and fault.value.where and fault.value.allowed and fault.value.fix


def test_faults_name_the_field():
    with pytest.raises(InputError) as fault:
        dse.search({**SECTIONS, "search": {"method": "guess"}})
    assert fault.value.where == "specification: search.method"
