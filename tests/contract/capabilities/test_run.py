"""A sweep from a file, a dictionary or keywords: one document, one dataset, one report behind every door."""

from __future__ import annotations

import gc
import html
import json
import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.errors import InputError
from dse.io import attachments
from dse.reports.terminal import plain_text
from dse.spec.sweep import read

TEXT = """
title = "a small sweep"
workload = { name = "gpt-3-13b", global_batch = 64 }
system = { name = "selene", n_devices = 16 }
[axes]
"memory.bandwidth" = { from = "1 TB/s", to = "2 TB/s", count = 2 }
tp = [1, 2, 8]
pp = [1, 2]
recompute = ["none", "full"]
[constraints]
all = ["peak_memory <= '79 GiB'"]
[objective]
minimize = "step_time"
[output]
keep = "top:3"
"""
SECTIONS = {
    "title": "a small sweep",
    "workload": {"name": "gpt-3-13b", "global_batch": np.int64(64)},
    "system": {"name": "selene", "n_devices": 16},
    "axes": {
        "memory.bandwidth": {"from": "1 TB/s", "to": "2 TB/s", "count": 2},
        "tp": (1, 2, 8),
        "pp": np.array([1, 2]),
        "recompute": ["none", "full"],
    },
    "constraints": ["peak_memory <= '79 GiB'"],
    "objective": {"minimize": "step_time"},
    "output": {"keep": "top:3"},
}
REQUEST = {"title": "a small sweep", "workload": "gpt-3-13b", "system": "selene", "axes": {"tp": [4, 8]}}


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run") / "small.toml"
    path.write_text(TEXT)
    return path


def command(*words: object):
    return CliRunner().invoke(app, [*map(str, words)])


# --- one document


def test_a_file_a_dictionary_and_keywords_are_one_document(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    by_keywords = {**SECTIONS, "output": {**SECTIONS["output"], "file": "results/kept.nc"}}
    found = [dse.run(file, output=False), dse.run(SECTIONS, output=False), dse.run(**by_keywords)]
    for other in found[1:]:
        xr.testing.assert_identical(*(one.drop_attrs(deep=False) for one in (found[0], other)))
        assert {**found[0].attrs, "specification": ""} == {**other.attrs, "specification": ""}
    assert len({one.attrs["specification_hash"] for one in found}) == 1
    assert read(SECTIONS).hash() == read(file).hash() == read({**SECTIONS, "title": "another"}).hash()
    names = [[axis.name for axis in read(form).axes] for form in (SECTIONS, file)]
    assert names[0] == names[1], "axes keep their order"


def test_a_dictionary_writes_where_its_title_or_its_output_says(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dse.run(SECTIONS)
    dse.run(SECTIONS, output="other.nc")
    dse.run({name: value for name, value in SECTIONS.items() if name not in ("title", "output")}, keep="best")
    dse.run({**SECTIONS, "title": "../etc: a/b", "output": {"keep": "best"}})
    dse.run(**{**SECTIONS, "output": {"keep": "best", "file": "said.nc"}})
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.nc")}
    assert written == {
        "results/a_small_sweep.nc", "other.nc", "results/sweep.nc", "results/etc_a_b.nc", "said.nc",
    }  # fmt: skip
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".png", ".svg")], "Python draws when asked"


def test_plain_values_of_sections_are_names_and_constraints():
    short = read({"workload": "gpt-3-13b", "system": "selene", "software": "nemo", "constraints": ["tp <= 8"]})
    long = read({
        "workload": {"name": "gpt-3-13b"}, "system": {"name": "selene"}, "software": {"name": "nemo"},
        "constraints": {"all": ["tp <= 8"]},
    })  # fmt: skip
    assert short.hash() == long.hash() and short.text == long.text


@pytest.mark.parametrize(
    ("changes", "where", "got"),
    [
        ({"title": None}, "sweep: title", "None"),
        ({"axes": {"tp": [1, None]}}, "sweep: axes.tp[1]", "None"),
        ({"axes": {"tp": object()}}, "sweep: axes.tp", "object"),
        ({"axes": {1: [2]}}, "sweep: axes", "1"),
        ({"axes": {"tp": "nonsense"}}, "sweep: axes.tp", "nonsense"),
        ({"axes": {"tp": [10**30]}}, "sweep: axes.tp", "1.000e+30"),
        ({"sistem": {}}, "sweep", "sistem"),
        ({"axes": [1]}, "sweep: axes", "[1]"),
        ({"workload": {"name": "gpt-3-13"}}, "", "gpt-3-13"),
        ({"title": "\ud800"}, "sweep: title", "ud800"),
    ],
)
def test_faults_of_a_dictionary_have_four_parts(changes, where, got, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as fault:
        dse.run({**SECTIONS, **changes})
    assert fault.value.where.startswith(where) and got in fault.value.got and fault.value.allowed and fault.value.fix
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "keywords", "got"),
    [
        (["nowhere.toml"], {}, "No such file"),
        ([3], {}, "int"),
        ([], {}, "none"),
        (["example:megatron_1t_4096_a100"], {"keeep": "best"}, "keeep"),
        ([SECTIONS], {"axes": {"tp": [1]}}, "axes twice"),
        ([SECTIONS], {"keep": "worst"}, "worst"),
        ([SECTIONS], {"output": False, "most_designs": 10}, "designs"),
        ([SECTIONS], {"chunk": "many"}, "many"),
    ],
)
def test_bad_input_in_python_has_four_parts(arguments, keywords, got):
    with pytest.raises(InputError) as fault:
        dse.run(*arguments, **keywords)
    assert got in fault.value.got and fault.value.where and fault.value.allowed and fault.value.fix


# --- one report


def test_a_dataset_remembers_its_report(file):
    results = dse.run(file, output=False)
    report = results.dse.report
    assert report["n_designs"] == 24 and report.to_dict()["best"][0]["labels"]["tp"] in (1, 2, 8)
    assert len(report["best"]) == 3 and 0.0 < report["best"][0]["probability_best"] <= 1.0
    xr.testing.assert_identical(report.dataset, results)
    with pytest.raises(InputError, match="not a selection"):
        _ = results.isel(design=0).dse.report
    count = len(attachments._ATTACHMENTS)
    del results, report
    gc.collect()
    assert len(attachments._ATTACHMENTS) < count


def test_the_document_is_the_same_behind_every_door(file, tmp_path):
    """What differs is of a run alone; HTTP is in tests/contract/cli/test_service.py."""
    printed = json.loads(command("run", file, "-o", tmp_path / "r.nc", "--no-figure", "--json").stdout)
    report = dse.run(file, output=False).dse.report.to_dict()
    assert printed.keys() == report.keys() and printed["study"] == "training"
    alone = {"seconds", "rate", "output", "n_programs"}
    assert {**printed, **dict.fromkeys(alone)} == {**report, **dict.fromkeys(alone)}
    again = json.loads(command("run", file, "-o", tmp_path / "r.nc", "--no-figure", "--json").stdout)
    assert again["best"] == printed["best"] and again["finished"]


def test_a_file_of_options_may_hold_the_sections(file, tmp_path, monkeypatch):
    """What HTTP takes; a specification of the command line counts first."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.json").write_text(json.dumps({"sweep": REQUEST, "keep": "best"}))
    found = json.loads(command("run", "--request", "r.json", "--no-figure", "--json").stdout)
    assert (found["keep"], found["output"]) == ("best", "results/a_small_sweep.nc")
    other = json.loads(command("run", file, "--request", "r.json", "--no-figure", "--json", "-o", "o.nc").stdout)
    assert other["n_designs"] == 24 and other["keep"] == "best" and found["n_designs"] == 2
    (tmp_path / "r.json").write_text(json.dumps({"sweep": {**REQUEST, "axes": {"tp": "nonsense"}}}))
    assert "sweep: axes.tp" in command("run", "--request", "r.json").stderr
    for text in ('{"sweep": ', "[1]", '{"sweep": [[1]]}', '{"sweep": 3}'):
        (tmp_path / "r.json").write_text(text)
        refused = command("run", "--request", "r.json")
        assert refused.exit_code == 2 and all(part in refused.stderr for part in ("where", "got", "allowed", "fix"))


def test_a_report_is_short_and_wide_enough_for_eighty_columns(file, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for words in ((file, "--show", "all"), ("example:megatron_1t_4096_a100",)):
        ended = command("run", *words, "-o", tmp_path / "w.nc", "--fresh", "--no-figure", "--no-progress")
        lines = [line for line in ended.stdout.splitlines() if str(tmp_path) not in line]
        assert ended.exit_code == 0 and max(map(len, lines)) <= 80, ended.stdout
    assert len(lines) <= 31, ended.stdout
    text = plain_text(dse.run(file, output=False).dse.report, width=80)
    assert text.index("a small sweep") < text.index("best by step time") < text.index("feasible:") < text.index("/s, ")
    assert len(re.findall(r"designs/s", text)) == 1


def test_every_visible_cell_is_in_a_notebook(file):
    report = dse.run(file, output=False).dse.report
    page = report._repr_html_()
    for table in report.tables.values():
        assert all(html.escape(cell) in page for row in table.cells() for cell in row)
    assert "<summary>seconds</summary>" in page and "best by step time" in page
    frame = report.to_dataframe("best")
    assert {"tp", "pp", "step_time", "peak_memory", "probability_best", "share_comp"} <= {*frame}
    assert frame.step_time.is_monotonic_increasing and "recompute" in report.to_csv("best").splitlines()[0]


def test_a_report_in_a_notebook_is_text_too(file, monkeypatch):
    """Consoles of rich that believe to be in a notebook display what they print in place of writing it."""
    report = dse.run(file, output=False).dse.report
    text = str(report)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert repr(report) == text and "best by step time" in text


def test_shards_return_reports_and_merge_the_whole(file, tmp_path):
    whole = dse.run(file, output=False)
    for shard in ("1/2", "2/2"):
        report = dse.run(file, tmp_path / "r.nc", chunk=4, shard=shard)
        assert report["shard"] == shard and report.load is None
    merged = dse.merge(tmp_path / "r.nc")
    xr.testing.assert_allclose(merged, whole)
    assert merged.dse.report["n_feasible"] == whole.dse.report["n_feasible"]
    assert not list(tmp_path.glob("*.png"))


def test_nothing_feasible_is_a_report_too():
    report = dse.run({**SECTIONS, "constraints": ["peak_memory <= '1 GiB'"]}, output=False).dse.report
    assert report.status == 1 and "a constraint of the sweep is not met" in str(report) and not report["best"]


def test_near_ties_are_one_row_and_a_line():
    """Designs whose times differ by less than 0.2 % along one axis; the document has all of them."""
    axes = {"tp": [2, 8], "memory.bandwidth": ["2 TB/s", "2.00001 TB/s", "2.00002 TB/s"], "recompute": ["full"]}
    sections = {name: value for name, value in SECTIONS.items() if name not in ("constraints", "output")}
    report = dse.run({**sections, "axes": axes}, output=False).dse.report
    assert len(report["best"]) > len(report.table("best").rows)
    assert re.search(r"as good as row 1: memory\.bandwidth .* within 0\.2 %", str(report))
    each = dse.run({**sections, "axes": axes}, output=False, keep="best").dse.report
    assert len(each["best"]) == len(each.table("best").rows) == 3, "each is the best mapping of a machine"


# --- progress


def test_progress_is_a_function_a_switch_or_of_notebooks(file, monkeypatch, capsys):
    states = []
    dse.run(file, output=False, progress=states.append)
    assert states[-1].done == states[-1].total == 24 and capsys.readouterr().err == ""
    dse.run(file, output=False)
    assert capsys.readouterr().err == ""
    dse.run(file, output=False, progress=True)
    assert "designs/s" in capsys.readouterr().err


def test_a_notebook_shows_bars_that_leave_nothing_behind(monkeypatch, capsys):
    import sys
    import types

    from dse.sweep import Progress, progress

    shown = []

    class Handle:
        def update(self, page):
            shown.append(page)

    def display(page, display_id):
        shown.append(page)
        return Handle()

    fake = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(display=fake))
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    with progress.shown(None, progress.progress_bar) as report:
        report(Progress(1, 10, 0.5, 1, 2.0, "step_time", units="s"))
        assert shown == [], "nothing of what is over in a second"
        monkeypatch.setattr(progress._NotebookBars, "DELAY", 0.0)
        monkeypatch.setattr(progress._NotebookBars, "PERIOD", 0.0)
        report(Progress(5, 10, 0.5, 1, 2.0, "a < b", units="s"))
    assert 'value="5" max="10"' in shown[0] and "a &lt; b" in shown[0] and shown[-1] == ""
    with progress.shown(False, progress.progress_bar) as report:
        assert report is None
    assert capsys.readouterr().err == ""
