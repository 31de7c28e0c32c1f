"""Pages: of results in a file or a dataset, and of a design."""

from __future__ import annotations

import dse
from dse.cli.service.worker import answer
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree


def test_a_page_of_results(tmp_path, small_results):
    _, path = small_results
    output = tmp_path / "page.html"
    report = dse.page(results=path, output=output)
    assert report.files == [output] and output.stat().st_size == report["bytes"] and report["designs"] == 44
    assert_renderers_agree(report, "page", path, "-o", output)
    assert dse.report(path, output=output).to_dict() == report.to_dict()
    with dse.open_results(path) as dataset:
        assert dse.page(dataset, output=output, force=True)["designs"] == 44


def test_a_page_of_a_design(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    report = dse.page(workload="llama-3-8b", system="h100", tp=8)
    assert [path.name for path in report.files] == ["llama-3-8b_h100.html"] and report["designs"] is None
    assert_renderers_agree(report, "page", "-w", "llama-3-8b", "-s", "h100", "--set", "tp=8")


def test_bad_input_is_told(tmp_path):
    assert_refused(dse.page, "nothing to show")
    assert_refused(lambda: dse.page(workload="llama-3-8b"), "only one of -w and -s")
    assert_refused(lambda: dse.page(3), "got 3")
    assert_refused(lambda: dse.page(tmp_path / "absent.nc"), "absent.nc")
    assert_refused(lambda: dse.page(workload="llama-3-8b", system="h100", output="page.txt"), "page.html")
    assert "error" in answer("page", {"workload": "llama-3-8b", "system": "h100"})
