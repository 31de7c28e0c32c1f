"""Tables of configurations, predicted and compared: files, rows of a program, data frames, at every door the same."""

from __future__ import annotations

import csv
import json

import pandas as pd
import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.cli.service.worker import answer
from dse.errors import InputError, Notice
from dse.reports.registry import capabilities
from dse.reports.terminal import plain_text

ROWS = [
    {"model": "llama-3-70b", "gpu": "H100", "n_gpus": 64, "tp": 4, "pp": 4, "micro_batch": 1, "global_batch": 128,
     "seq_len": 8192, "iteration_s_measured": 22.4},
    {"model": "llama-3-8b", "gpu": "H100", "n_gpus": 8, "global_batch": 16, "seq_len": 8192,
     "iteration_s_measured": 1.9},
    {"model": "unheard-of", "gpu": "H100", "n_gpus": 8, "global_batch": 16, "seq_len": 8192,
     "iteration_s_measured": 1.0},
]  # fmt: skip

PUBLISHED = "tests/published/narayanan_2021.csv"


def invoke(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "cases.csv"
    pd.DataFrame(ROWS).to_csv(path, index=False)
    return path


def test_every_door_predicts_the_same(table, tmp_path):
    report, output = dse.predict(ROWS), tmp_path / "out.csv"
    printed = json.loads(invoke("predict", table, "-o", output, "--json").stdout)
    assert printed["output"] == str(output) and output.is_file() and report["output"] is None
    assert report.to_dict()["all"] == printed["all"] == {
        "n": 3, "predicted": 2, "skipped": printed["all"]["skipped"], "misspelt": {},
    }  # fmt: skip
    figures = [name for name in printed["rows"][0] if name.startswith("pred_")]
    rows = answer("predict", {"cases": ROWS})["document"]["rows"]
    for own, other, posted in zip(report.to_dict()["rows"], printed["rows"], rows, strict=True):
        assert [own.get(name) for name in figures] == [other.get(name) for name in figures]
        assert own == posted
    written = list(csv.DictReader(output.read_text().splitlines()))
    assert [row["pred_step_time"] != "" for row in written] == [True, True, False]


def test_a_data_frame_comes_back_as_one_with_its_columns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(ROWS)
    report = dse.predict(frame)
    found = report.to_dataframe()
    assert found[[*frame]].astype(frame.dtypes).equals(frame)
    assert (found.pred_step_time_low < found.pred_step_time)[:2].all() and found.pred_step_time.isna()[2]
    assert not [*tmp_path.iterdir()], "without an output nothing is written"
    head = next(csv.reader(report.to_csv().splitlines()))
    assert set(head) == {*found.columns}
    without = dse.predict(frame, uncertainty=False).to_dataframe()
    assert not [name for name in without if name.endswith("_low")]


def test_the_command_needs_an_output(table):
    ended = invoke("predict", table)
    assert ended.exit_code == 2 and "--output" in ended.stderr


def test_options_state_what_rows_leave_empty(tmp_path):
    bare = [{name: row[name] for name in ("global_batch", "iteration_s_measured")} for row in ROWS[:1]]
    options = {"workload": "llama-3-70b", "system": "h100", "n_devices": 64, "seq_len": 8192, "tp": 4, "pp": 4}
    report = dse.predict(bare, micro_batch=1, **options)
    step = dse.predict([ROWS[0]])["rows"][0]["pred_step_time"]
    assert report["rows"][0]["pred_step_time"] == pytest.approx(step, rel=1e-6)
    settings = {name: options[name] for name in ("seq_len", "tp", "pp")} | {"micro_batch": 1}
    path = tmp_path / "bare.csv"
    pd.DataFrame(bare).to_csv(path, index=False)
    words = ["-w", "llama-3-70b", "-s", "h100", "-n", 64]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    printed = json.loads(invoke("validate", path, *words, "--json").stdout)
    assert printed["all"]["step_time"]["mape"] == pytest.approx(abs(step / 22.4 - 1.0), rel=1e-5)
    request = {"cases": bare, "workload": "llama-3-70b", "system": "h100", "n_devices": 64, "set": settings}
    assert answer("validate", request)["document"]["all"] == printed["all"]
    with pytest.warns(Notice, match="1 row of 3 say 64, which counts; others 8"):
        dse.predict(ROWS, n_devices=8)
    with pytest.raises(InputError, match="where every row says"):
        dse.predict(ROWS[:1], tp=8)


def test_validation_is_a_mapping_with_its_tables(tmp_path):
    report = dse.validate([PUBLISHED], uncertainty=True)
    assert report.to_dict() == json.loads(invoke("validate", PUBLISHED, "--uncertainty", "--json").stdout)
    assert report["all"]["step_time"]["predicted"] == 16 and report["coverage"][-1]["source"] == "all"
    assert report.to_dataframe()[["metric", "predicted"]].iloc[-1].to_list() == ["step_time", 16]
    figures = report.to_dataframe("figures")
    assert len(figures) == 16 and (figures.predicted / figures.measured - 1.0).to_list() == pytest.approx(
        figures.error.to_list(), abs=1e-5
    )
    output = tmp_path / "compared.csv"
    dse.validate(PUBLISHED, output)
    assert len(output.read_text().splitlines()) == 17
    assert dse.validate(pd.read_csv(PUBLISHED))["all"] == report["all"]


@pytest.mark.parametrize(
    "words", [["validate", PUBLISHED, "--uncertainty"], ["validate", "cases"], ["predict", "cases"]]
)
def test_short_answers_are_readable_at_eighty_columns(words, table, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = [table if word == "cases" else word for word in words]
    words += ["-o", tmp_path / "o.csv"] if words[0] == "predict" else []
    lines = invoke(*words).stdout.splitlines()
    assert len(lines) <= 30 and max(len(line) for line in lines if str(tmp_path) not in line) <= 80, "\n".join(lines)
    assert "step time" in "\n".join(lines)


@pytest.mark.parametrize("door", [dse.predict, dse.validate])
def test_what_is_shown_stands_in_a_notebook(door):
    report = door(ROWS)
    html = report._repr_html_()
    for one in report.tables.values():
        assert all(cell.replace("<", "&lt;") in html for row in one.cells() for cell in row)
    assert "unheard-of" in plain_text(report, ["all"])


@pytest.mark.parametrize("name", ["predict", "validate"])
@pytest.mark.parametrize(
    ("cases", "got"),
    [([], "no rows"), ([{}], "no rows"), (3, "int"), ([{"model": [1]}], "list"), ("none.csv", "No such file"),
     ([{"model": "x"}, "a.csv"], "str"), ([b"x"], "bytes")],
)  # fmt: skip
def test_bad_input_in_python_has_four_parts(name, cases, got):
    with pytest.raises(InputError) as fault:
        getattr(dse, name)(cases)
    assert got in fault.value.got and fault.value.allowed and fault.value.fix and "/dse-" not in str(fault.value)


@pytest.mark.parametrize(
    "request_",
    [{"cases": []}, {"cases": [{"model": [1]}]}, {"cases": "rows.csv"}, {"cases": ["rows.csv"]}, {},
     {"cases": ROWS, "output": "x.csv"}, {"cases": ROWS, "profile": True}, {"cases": [{"tp": 1}] * 2001},
     {"cases": [{"model": "/etc/passwd"}]}],
)  # fmt: skip
@pytest.mark.parametrize("name", ["predict", "validate", "diagnose"])
def test_bad_requests_are_refused(name, request_):
    request_ = {("files" if name == "diagnose" and key == "cases" else key): value for key, value in request_.items()}
    found = answer(name, request_)
    assert found["status"] == 2 and all(found["error"][part] for part in ("where", "got", "allowed", "fix"))


def test_files_are_of_this_machine_alone():
    for name in ("predict", "validate", "diagnose"):
        fields = json.dumps(capabilities()[name].request.model_json_schema())
        assert '"format": "path"' not in fields and '"output"' not in fields and '"profile"' not in fields
    assert capabilities()["calibrate"].local


@pytest.mark.parametrize("name", ["predict", "validate"])
def test_columns_are_those_of_the_list(name):
    ended = invoke(name, "--columns")
    assert ended.exit_code == 0 and ended.stdout == invoke("list", "columns").stdout
    assert "docs/kernels.md" in ended.stdout
