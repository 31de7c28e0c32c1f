"""A catalogue folder of the user's own: where it may lie, what it overrides, and how results name it."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.designs import catalog
from dse.designs.catalog import faults
from dse.designs.catalog.defaults import load
from dse.errors import InputError, Notice
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


#: Kind of fault → (folder, the file's text, what the notice says of it).
FAULTS = {
    "broken-toml": ("accelerators", 'name = "Broken', "invalid TOML"),
    "unknown-key": ("accelerators", 'colour = "red"\n' + CHIP.format(rate=1), "'colour'"),
    "wrong-unit": ("accelerators", CHIP.format(rate=1).replace("6 TB/s", "6 TB"), "another dimension"),
    "missing-field": ("accelerators", CHIP.format(rate=1).replace('capacity = "192 GiB"', ""), "add memory.capacity"),
    "unknown-entry": ("accelerators", CHIP.format(rate=1).replace("hopper", "hoppper"), "did you mean 'hopper'"),
    "not-text": ("workloads", b'name = "\xff"', "is not UTF-8"),
    "no-stack": ("software", 'name = "Mine"\nnonsense = 3', "'nonsense'"),
}


def faulty_folder(folder, faults=FAULTS):
    for slug, (kind, text, _) in faults.items():
        entry(folder, slug, text if isinstance(text, str) else "", kind)
        if isinstance(text, bytes):
            (folder / kind / f"{slug}.toml").write_bytes(text)
    return folder


@pytest.mark.parametrize("names", [("gpt-3-13b", "h100"), ("GPT-3 13B", "H100 SXM")])
def test_faulty_files_that_a_design_does_not_need_are_told_in_one_notice(tmp_path, monkeypatch, names):
    monkeypatch.delenv("DSE_CATALOG", raising=False)
    expected = dse.evaluate(dse.design("gpt-3-13b", "h100", tp=8))
    monkeypatch.setenv("DSE_CATALOG", str(faulty_folder(tmp_path)))
    with pytest.warns(Notice) as notices:
        design = dse.design(*names, tp=8)
    assert len(notices) == 1
    head, *lines = str(notices[0].message).splitlines()
    assert head == f"catalogue: {len(FAULTS)} faulty entries, left out unless they are named:" and len(lines) == len(
        FAULTS
    )
    for slug, (kind, _, reason) in FAULTS.items():
        (line,) = (line for line in lines if f"{kind}/{slug}.toml" in line)
        assert reason in line
    assert dse.evaluate(design) == expected


@pytest.mark.parametrize("slug", FAULTS)
@pytest.mark.filterwarnings("ignore::dse.errors.Notice")
def test_a_faulty_file_that_is_needed_is_an_error(tmp_path, monkeypatch, slug):
    kind, _, reason = FAULTS[slug]
    monkeypatch.setenv("DSE_CATALOG", str(faulty_folder(tmp_path)))
    named = {"workloads": "workload", "accelerators": "system", "software": "software"}[kind]
    with pytest.raises(InputError, match=f"{slug}.toml") as error:
        dse.design(**({"workload": "gpt-3-13b", "system": "h100"} | {named: slug}), tp=8)
    assert reason.strip("'") in str(error.value)


def test_an_override_of_what_a_design_needs_is_needed(tmp_path, monkeypatch):
    """Of the chip, and of the family of its kernels; a design of another chip does without both."""
    for kind, slug in (("accelerators", "h100-sxm-80gb"), ("kernels", "blackwell")):
        entry(tmp_path, slug, "aliases = ['h100']\ncolour = 'red'", kind)
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    with pytest.warns(Notice, match="2 faulty entries"):
        assert dse.design("gpt-3-13b", "a100", tp=8)
    for chip in ("h100", "b200"):
        with pytest.raises(InputError, match="colour"):
            dse.design("gpt-3-13b", chip, tp=8)


def test_the_check_is_strict_and_prints_no_notice(tmp_path, monkeypatch):
    monkeypatch.setenv("DSE_CATALOG", str(faulty_folder(tmp_path)))
    done = CliRunner().invoke(app, ["catalog", "check"])
    assert done.exit_code == 2 and "left out" not in done.stderr
    assert all(f"{slug}.toml" in done.stdout for slug in FAULTS)
    assert f"{len(FAULTS)} problems" in done.stderr


def test_copies_of_files_of_the_package_are_not_read_for_faults(tmp_path, monkeypatch):
    shutil.copytree(catalog.catalog_root() / "accelerators", tmp_path / "accelerators")
    entry(tmp_path, "my-chip", "colour = 'red'")
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    read = []
    monkeypatch.setattr(faults, "load", lambda kind, slug, folder: read.append(slug) or load(kind, slug, folder))
    assert [*faults.faults()] == [("accelerator", "my-chip")] and read == ["my-chip"]
    assert "my-chip" in catalog.names("accelerator") and "my-chip" not in catalog.readable_names("accelerator")
    entry(tmp_path, "my-chip", CHIP.format(rate=1500))
    assert not faults.faults() and "my-chip" in catalog.readable_names("accelerator")


def test_an_alias_in_a_file_that_cannot_be_read_is_unknown_and_the_file_told(tmp_path, monkeypatch):
    entry(tmp_path, "my-chip", 'aliases = ["mine"]\nname = [')
    monkeypatch.setenv("DSE_CATALOG", str(tmp_path))
    with pytest.warns(Notice, match="my-chip.toml"), pytest.raises(InputError, match="'mine'"):
        catalog.entry("accelerator", "mine")


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
