"""Rates on this machine, as the program of the checkout measures them."""

from __future__ import annotations

import dse
from dse.cli.service.worker import answer
from dse.io import checkout
from tests.contract.capabilities.claims import assert_refused, assert_renderers_agree


def test_rates_are_a_table(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.dse.checkout]\nbench = 'stand_in'\n")
    (tmp_path / "stand_in.py").write_text('print(\'{"flat_full": 2.0, "cores": 2}\')')
    monkeypatch.setattr(checkout, "_PACKAGE", tmp_path / "dse")
    report = dse.bench(starts=False)
    assert report.to_dict() == {"flat_full": 2.0, "cores": 2}
    assert_renderers_agree(report, "bench", "--no-starts")
    monkeypatch.setattr(checkout, "_PACKAGE", tmp_path / "absent" / "dse")
    assert_refused(dse.bench, "a source checkout")
    assert "error" in answer("bench", {})
