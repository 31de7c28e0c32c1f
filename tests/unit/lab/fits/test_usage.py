"""The line that says how a calibrated catalogue is used: what it says runs as it is."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys

import pytest

from dse.designs import catalog
from dse.lab.fits import adding, own
from dse.lab.fits.usage import usage_line
from dse.measured import predict_cases, read_cases
from tests.unit.lab.fits.test_own import STEP, runs, table

SERVED = {
    "source": "mine", "model": "llama-3-8b", "gpu": "h100-sxm-80gb", "software": "vllm", "n_gpus": "1", "tp": "1",
    "isl": "1024", "osl": "512", "batch": "32", "precision": "bf16", "metric": "tpot", "value": "12", "unit": "ms",
}  # fmt: skip


def shell(line, folder):
    """The JSON document of the last command of a line, run by a shell in a folder without a catalogue of the user."""
    environment = {name: text for name, text in os.environ.items() if name != "DSE_CATALOG"}
    words = f'dse() {{ {shlex.quote(sys.executable)} -m dse "$@"; }}; {line.removeprefix("use it: ")} --json'
    done = subprocess.run(
        ["bash", "-c", words], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_command_predicts_the_run_with_the_fitted_stack(tmp_path, monkeypatch):
    monkeypatch.delenv("DSE_CATALOG", raising=False)
    monkeypatch.chdir(tmp_path)
    rows = runs(tmp_path / "rows.csv", [STEP], [1.3])
    found = own.fit([rows], "my-stack", "my catalog")
    assert found.usage.startswith("use it: export DSE_CATALOG='my catalog'; dse evaluate -w llama-3-8b -s eos -n 8 ")
    document = shell(found.usage, tmp_path)
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path / "my catalog"))
    (expected,) = predict_cases(read_cases(table(tmp_path / "next.csv", [STEP | {"software": "my-stack"}])))
    assert document["metrics"]["step_time"] == pytest.approx(expected.metrics["step_time"], rel=1e-5)


def test_the_command_serves_with_the_fitted_engine(tmp_path, monkeypatch):
    monkeypatch.delenv("DSE_CATALOG", raising=False)
    monkeypatch.chdir(tmp_path)
    found = own.fit([table(tmp_path / "rows.csv", [SERVED])], "my-engine", "mine")
    assert "--serving -w llama-3-8b -s h100-sxm-80gb" in found.usage and "concurrency=32" in found.usage
    assert shell(found.usage, tmp_path)["metrics"]["time_per_output_token"] > 0.0


def test_added_rows_name_their_folder_first(tmp_path, monkeypatch):
    """Before the folders in use, and not twice."""
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    update = adding.add([runs(tmp_path / "rows.csv", [STEP], [1.3])], "mine", tmp_path / "report.toml")
    assert update.usage == 'use it: export DSE_CATALOG=mine:"$DSE_CATALOG"'
    line = f"{update.usage.removeprefix('use it: ')}; dse catalog show nemo"
    environment = os.environ | {"DSE_CATALOG": str(tmp_path / "other")}
    words = f'dse() {{ {shlex.quote(sys.executable)} -m dse "$@"; }}; {line}'
    done = subprocess.run(
        ["bash", "-c", words], capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert done.returncode == 0 and "dse calibrate --add" in done.stdout
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path / "mine"))
    assert usage_line("mine") == "use it: DSE_CATALOG names mine already"
    assert usage_line("mine", "my-stack") == "use it: any command with --software my-stack"


def test_a_run_that_the_catalogue_cannot_name_has_no_command(tmp_path, monkeypatch):
    monkeypatch.delenv("DSE_CATALOG", raising=False)
    shape = {"model": "unknown", "layers": "4", "hidden": "1024", "heads": "8", "vocab": "32000"}
    (prediction,) = predict_cases(read_cases(table(tmp_path / "rows.csv", [STEP | shape])))
    assert (
        usage_line("mine", "my-stack", prediction)
        == "use it: export DSE_CATALOG=mine; then any command with --software my-stack"
    )
    assert usage_line(catalog.catalog_root()).endswith("already")
