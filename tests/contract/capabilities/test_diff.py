"""Differences between results: files, datasets and commands say the same; short unless details are asked for."""

from __future__ import annotations

import pytest

import dse
from dse.reports.terminal import plain_text
from dse.sweep import perform
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree, run
from tests.unit.sweep import toy

AXES = "tp = [1, 2, 4]\nmicro_batch = [1, 2]\nrecompute = ['none', 'full']"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("diff")
    for name, axes in (("a", AXES), ("b", AXES.replace("4]", "4, 8]"))):
        slower = {"system": 'n_devices = 16\n"memory.bandwidth" = "1 TB/s"'} if name == "b" else {}
        perform(toy.sweep(axes, **slower), folder / f"{name}.nc", study=toy.STUDY, keep="all")
    return folder / "a.nc", folder / "b.nc"


def test_files_and_datasets_differ_by_the_same(files):
    report = dse.diff(*files)
    assert_renderers_agree(report, "diff", *files)
    assert report.status == 1 and not report["same"] and dse.diff(files[0], files[0]).status == 0
    with dse.open_results(files[0]) as first, dse.open_results(files[1]) as second:
        of_datasets = dse.diff(first, second).to_dict()
        assert dse.diff(first, files[1]).status == 1
    assert of_datasets | {"first": str(files[0]), "second": str(files[1])} == report.to_dict()


def test_the_short_answer_says_what_changed(files):
    report = dse.diff(*files)
    lines = plain_text(report, width=80).splitlines()
    assert len(lines) <= 32 and lines[2] == "" and lines[3].startswith("not the same: ")
    text = "\n".join(lines)
    assert all(word in text for word in ("axes.tp", "memory.bandwidth", "changed metric", "best of A", "in all"))
    full = report.table("all_metrics")
    assert len(full.rows) == len(report["metrics"]) > len(report.table("metrics").rows)
    assert run("diff", *files, "--show", "metrics", "--csv").stdout.count("\n") == len(full.rows) + 1


def test_bad_input_is_told(files):
    assert_refused(lambda: dse.diff(files[0]), "dse.diff: second")
    assert_refused(lambda: dse.diff(files[0], 3), "got 3")
    assert_refused(lambda: dse.diff(*files, tolerance=-1.0), "--tolerance")
    assert_refused(lambda: dse.diff(files[0], "absent.nc"), "absent.nc")
