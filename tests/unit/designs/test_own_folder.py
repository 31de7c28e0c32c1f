"""A catalogue folder of the user's own: where it may lie, what it overrides, and how results name it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.designs import catalog
from dse.errors import InputError
from tests.unit.sweep import toy

CHIP = """name = "My chip"
aliases = ["mine"]
source = "its data sheet"
confidence = "datasheet"
kernels = "hopper"
[matrix_rate]
bf16 = "{rate} TFLOP/s"
[memory]
capacity = "192 GiB"
bandwidth = "6 TB/s"
"""


def entry(folder, slug, text, kind="accelerators"):
    (folder / kind).mkdir(parents=True, exist_ok=True)
    (folder / kind / f"{slug}.toml").write_text(text)
    return folder


def rate(name):
    return catalog.entry("accelerator", name).value("matrix_rate.bf16")


def test_it_is_found_from_another_folder(tmp_path, monkeypatch):
    entry(tmp_path / "mine", "my-chip", CHIP.format(rate=1500))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DSE_CATALOG", "mine")  # from where the command runs
    assert rate("mine") == 1.5e15
    monkeypatch.chdir(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="existing folder"):
        rate("mine")
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path / "mine"))
    assert rate("my-chip") == 1.5e15
    done = CliRunner().invoke(app, ["catalog", "show", "my-chip", "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)[0]["slug"] == "my-chip"
    assert CliRunner().invoke(app, ["catalog", "check"]).exit_code == 0
    made = dse.design("gpt-3-13b", "my-chip", tp=8)
    assert float(made.system.accelerator.memory.capacity) == 192 * 2**30


def test_the_first_folder_counts_and_files_are_whole(tmp_path, monkeypatch):
    first = entry(tmp_path / "first", "my-chip", CHIP.format(rate=1000))
    second = entry(tmp_path / "second", "my-chip", CHIP.format(rate=2000) + '[power]\nlimit = "650 W"\n')
    monkeypatch.setenv("DSE_CATALOG", f"{first}:{second}")
    assert rate("my-chip") == 1e15 and catalog.entry("accelerator", "my-chip").value("power.limit") != 650.0
    assert catalog.entry("accelerator", "my-chip", folder=second).value("matrix_rate.bf16") == 2e15
    entry(first, "h100-sxm-80gb", CHIP.format(rate=3000).replace("mine", "mine-too"))
    assert float(dse.design("gpt-3-13b", "eos", tp=8).system.accelerator.matrix_rate.bf16) == 3e15


def test_check_tells_what_is_wrong_with_it(tmp_path, monkeypatch):
    entry(tmp_path, "my-chip", CHIP.format(rate=1500).replace('"mine"', '"h100"').replace("6 TB/s", "6 TBps"))
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    done = CliRunner().invoke(app, ["catalog", "check"])
    assert done.exit_code == 2 and "my-chip.toml" in done.stdout and "6 TBps" in done.stdout


def test_results_name_it(tmp_path, monkeypatch):
    folder = entry(tmp_path / "mine", "my-chip", CHIP.format(rate=1500))
    monkeypatch.setenv("DSE_CATALOG", str(folder))
    spec = toy.sweep("tp = [1, 2]\nsystem = ['my-chip']")
    first = dse.sweep.perform(spec, tmp_path / "a.nc", study=toy.STUDY)[1]
    with dse.open_results(tmp_path / "a.nc") as results:
        assert "accelerator/my-chip" in json.loads(results.attrs["catalog_entries"])
        assert "its data sheet" in results.attrs["sources"]
    assert not first.finished and dse.sweep.perform(spec, tmp_path / "a.nc", study=toy.STUDY)[1].finished
    entry(folder, "my-chip", CHIP.format(rate=1600))
    again = dse.sweep.perform(toy.sweep("tp = [1, 2]\nsystem = ['my-chip']"), tmp_path / "b.nc", study=toy.STUDY)[1]
    assert not again.finished
    assert [*dse.diff(tmp_path / "a.nc", tmp_path / "b.nc")["entries"]] == ["accelerator/my-chip"]
