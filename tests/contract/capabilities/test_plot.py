"""Figures of a results file as a capability, next to the package of figures, which has the name ``dse.plot``."""

from __future__ import annotations

import inspect
import json

import pytest
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.errors import InputError
from dse.reports.registry import capabilities


def test_python_draws_as_the_command_does(small_results, tmp_path):
    results = tmp_path / "r.nc"
    results.write_bytes(small_results[1].read_bytes())
    report = dse.plot_results(results)
    assert report.to_dict() == {"figures": [str(tmp_path / "r.png")]} and str(report) == str(tmp_path / "r.png")
    printed = json.loads(CliRunner().invoke(app, ["plot", str(results), "--json"]).stdout)
    assert printed == report.to_dict()
    report = dse.plot_results(results, output=tmp_path / "b.svg", kind="bounds")
    assert (tmp_path / "b.svg").exists() and str(tmp_path / "b.svg") in report._repr_html_()
    (path,) = dse.plot_results(kind="collectives", system=["eos"], n_devices=[8], output=tmp_path / "c.svg").figures
    assert path.exists()


def test_the_package_of_figures_keeps_its_name(small_results):
    assert inspect.ismodule(dse.plot) and dse.plot.breakdown(small_results[0])
    made = capabilities()["plot"]
    assert (made.key, bool(made.local)) == ("plot_results", True)


@pytest.mark.parametrize(
    ("keywords", "got"),
    [
        ({}, "no results file"), ({"results": "nowhere.nc"}, "no such file"), ({"kind": "nonsense"}, "nonsense"),
        ({"kind": "collectives", "n_devices": [1]}, "1"), ({"results": "r.nc", "scale": "log"}, "log"),
    ],
)  # fmt: skip
def test_bad_input_in_python_has_four_parts(keywords, got):
    with pytest.raises(InputError) as fault:
        dse.plot_results(**keywords)
    assert got in fault.value.got and fault.value.where and fault.value.allowed and fault.value.fix
