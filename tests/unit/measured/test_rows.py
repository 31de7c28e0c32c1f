"""A format of logs and a kind of measured tables are rows: toy ones, registered here, are read and compared."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from dse.doors import TRAINING
from dse.io import toml
from dse.measured import KINDS, compare, profiles
from dse.measured.comparison import comparison_line, report
from dse.measured.prediction import TableKind
from dse.measured.profiles.logs import LOG_FORMATS, log_format
from dse.measured.table import KINDS_FILE, meanings, nonnegative_number

ROOT = Path(profiles.__file__).parent

LOG = r"""
tool = "toy"
signature = 'toy trainer \d'
step = ['^step (\d+):']
rows = [
    { figure = "iteration_time", unit = "ms", step = true, pattern = '^step \d+: ([\d.]+) ms' },
    { figure = "peak_memory", unit = "GiB", pattern = 'peak ([\d.]+) GiB' },
    { column = "n_gpus", pattern = 'on (\d+) GPUs' },
    { column = "gpu", as = "device", pattern = 'GPUs (.+)$' },
]
"""


def test_a_format_of_logs_is_a_table_of_rows(tmp_path, monkeypatch):
    toy = log_format("toy", **tomllib.loads(LOG))
    monkeypatch.setitem(profiles.LOGS, "toy", (toy.signature, toy.read))
    lines = [
        "toy trainer 1 on 8 GPUs NVIDIA H100 80GB HBM3",
        *(f"step {i}: {ms} ms" for i, ms in enumerate([90, 30, 12, 10, 11])),
    ]
    (tmp_path / "toy.log").write_text("\n".join([*lines, "peak 40.5 GiB", "peak 39 GiB"]), encoding="utf-8")
    rows = profiles.read([tmp_path / "toy.log"]).tables["steps"]
    assert [(row["metric"], row["value"], row["unit"]) for row in rows] == [
        ("iteration_time", "11", "ms"), ("peak_memory", "40.5", "GiB"),
    ]  # fmt: skip
    assert rows[0]["n_gpus"] == "8" and rows[0]["gpu"] == "h100-sxm-80gb" and rows[0]["source"] == "profile toy"


@pytest.mark.parametrize("name", LOG_FORMATS)
def test_rows_of_logs_say_one_thing_each(name):
    rows = LOG_FORMATS[name].rows
    for row in rows:
        assert sum(map(bool, (row.figure, row.column, row.setting))) == 1, row
        assert row.value or re.compile(row.pattern).groups >= 1, row
        assert not row.figure or row.unit
    figures = {**meanings("steps"), **meanings("serving")}
    parts = {"cache_keys", "cache_values", "cache_blocks"}  # of which figures are made
    assert {row.figure for row in rows if row.figure} <= figures.keys() | parts
    assert {row.column for row in rows if row.column} <= profiles.COLUMNS
    steps = [row.figure for row in rows if row.step]
    assert not steps or rows[0].figure == steps[0]


@pytest.fixture
def bubbles(tmp_path, monkeypatch):
    """A toy kind: the share of a pipeline's bubble by a formula, of rows of stages and micro-batches."""

    def arguments(case, _):
        return nonnegative_number(case.row, "stages"), nonnegative_number(case.row, "micro_batches")

    def predict(configurations, _):
        return [{"bubble_share": (p - 1.0) / (m + p - 1.0)} for _, (p, m) in configurations]

    figure = {"metric": "bubble_share", "unit": "%"}
    toy = {"keys": [["stages"]], "metrics": ["bubble_share"], "figures": {"bubble": figure}}
    monkeypatch.setitem(toml.table(KINDS_FILE), "bubbles", toy)
    monkeypatch.setitem(KINDS, "bubbles", TableKind("bubbles", TRAINING, predict, arguments))
    path = tmp_path / "bubbles.csv"
    path.write_text(
        "source,stages,micro_batches,metric,value\npaper,4,9,bubble,20\npaper,4,x,bubble,30\n", encoding="utf-8"
    )
    yield path
    meanings.cache_clear()


def test_a_kind_of_measured_tables_is_a_record_and_rows(bubbles):
    read, skipped = compare(bubbles)
    assert (read.measured, read.predicted) == (pytest.approx(0.2), pytest.approx(0.25))
    assert comparison_line(skipped)["skipped"] == "no usable number: micro_batches = 'x'"
    (row,) = report([read, skipped])["rows"]
    assert (row["source"], row["metric"], row["n"], row["mape"]) == ("paper", "bubble_share", 2, pytest.approx(0.25))


@pytest.mark.parametrize("path", sorted(ROOT.parent.rglob("*.toml")), ids=lambda path: path.name)
def test_rows_of_the_package_are_read_once(path):
    assert toml.table(path) is toml.table(path)
