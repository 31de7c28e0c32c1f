"""Throughput per device over interactivity: fronts by accelerator, never of unlike workloads."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from dse.cli import app
from dse.errors import InputError
from dse.spec.sweep import from_text
from dse.sweep import execute
from dse.views import plot
from dse.views.plot.interactivity import fronts
from tests.figures import assert_readable

SWEEP = """
title = "Two chips, two models"
[system]
name = "h100"
[mapping]
precision = "fp8"
[serving]
osl = 256
[axes]
workload = ["gpt-oss-120b", "llama-3-8b"]
accelerator = ["h200", "b200"]
concurrency = [4, 16, 64, 256]
n_devices = [2, 8]
tp = [1, 2, 4, 8]
{more}
"""
USER, DEVICE = "output_tokens_per_second_per_user", "output_tokens_per_second_per_device"


@pytest.fixture(scope="module")
def results():
    return execute(from_text(SWEEP.format(more="")), output=False)[0]


def test_each_curve_is_the_front_of_one_accelerator_and_one_workload(results):
    found = fronts(results)
    assert list(found) == ["gpt-oss-120b", "llama-3-8b"]
    for work, curves in found.items():
        assert [curve.accelerator for curve in curves] == ["h200-sxm-141gb", "b200-sxm-180gb"]
        for curve in curves:
            own = results.sel(workload=work, accelerator=curve.accelerator)
            fits = own.feasible.values.ravel()
            user, device = (own[name].values.ravel()[fits] for name in (USER, DEVICE))
            both = np.unique(np.column_stack([user, device]), axis=0)
            best = [one for one in both if not ((both >= one).all(axis=1) & (both > one).any(axis=1)).any()]
            np.testing.assert_allclose(np.column_stack([curve.per_user, curve.per_device]), best, rtol=1e-6)
            assert (np.diff(curve.per_user) > 0.0).all() and (np.diff(curve.per_device) < 0.0).all()


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_a_panel_a_workload_with_names_at_its_curves(results, scale):
    figure = plot.interactivity(results, scale)
    assert [axes.get_title() for axes in figure.axes] == ["gpt-oss-120b", "llama-3-8b"]
    for axes in figure.axes:
        assert sorted(text.get_text() for text in axes.texts) == ["b200", "h200"] and len(axes.lines) == 2
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("output tokens/s per user", "output tokens/s per device")
        assert axes.get_xscale() == axes.get_yscale() == scale
    assert_readable(figure)
    assert "interactivity" in plot.suited(results)


def test_lengths_of_requests_are_workloads_and_the_load_is_none(results):
    text = SWEEP.format(more="isl = [512, 4096]").replace('["gpt-oss-120b", "llama-3-8b"]', '["llama-3-8b"]')
    found = fronts(execute(from_text(text), output=False)[0])
    assert list(found) == ["prompt tokens 512", "prompt tokens 4096"]


def test_the_sweep_of_the_repository_is_small():
    """Three chips, two models: seconds."""
    found = fronts(execute("sweeps/interactivity.toml", output=False)[0])
    assert list(found) == ["deepseek-v3", "llama-3-1-70b"] and all(len(curves) == 3 for curves in found.values())


def test_what_has_no_such_figure(results, small_results, tmp_path):
    with pytest.raises(InputError, match="a study of training"):
        plot.interactivity(small_results[0])
    with pytest.raises(InputError, match="linear, log"):
        plot.interactivity(results, "square")
    execute(from_text(SWEEP.format(more="")), output=tmp_path / "two.nc")
    asked = ["plot", str(tmp_path / "two.nc"), "-o", str(tmp_path / "two.png")]
    assert CliRunner().invoke(app, [*asked, "--kind", "interactivity", "--scale", "log"]).exit_code == 0
    refused = CliRunner().invoke(app, [*asked, "--scale", "log"])
    assert refused.exit_code == 2 and "add --kind interactivity" in refused.stderr
