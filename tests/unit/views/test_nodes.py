"""Figures over logic nodes, and seconds by bound at every machine."""

from __future__ import annotations

import numpy as np
import pytest

import dse
from dse.errors import InputError
from dse.sweep import from_text
from dse.views import plot
from tests.figures import assert_drawn, assert_readable, legend_texts

GPUS = """
title = "GPUs by node"
[workload]
name = "gpt-3-13b"
global_batch = 64
[system]
name = "eos"
n_devices = 64
accelerator = "gpu"
[mapping]
tp = 8
zero_stage = 1
[axes]
node = ["n12", "n5", "n2", "extrapolated-a7"]
memory = ["hbm2e-3-2", "hbm4-8-0"]
scale_out = ["infiniband-hdr", "infiniband-gdr"]
pp = [1, 2]
recompute = ["none", "full"]
"""


@pytest.fixture(scope="module")
def results():
    return dse.run(from_text(GPUS), output=False, keep="best")


def test_a_line_has_the_best_time_of_each_node_at_its_length(results, tmp_path):
    figure = plot.nodes(results)
    assert [axes.get_title() for axes in figure.axes] == ["scale out infiniband-hdr", "scale out infiniband-gdr"]
    for axes, network in zip(figure.axes, results.scale_out.values, strict=True):
        lines = [line for line in axes.lines if line.get_linestyle() != "None"]
        for line, memory in zip(lines, results.memory.values, strict=True):
            np.testing.assert_allclose(line.get_xdata(), [12.0, 5.0, 2.0, 0.7])
            seconds = results.step_time.sel(memory=memory, scale_out=network)
            np.testing.assert_allclose(1e-3 * line.get_ydata(), seconds, rtol=1e-6)  # the axis has milliseconds
        left, right = axes.get_xlim()
        assert left > right, "newer nodes stand on the right"
    assert {"hbm2e-3-2", "hbm4-8-0"} <= set(legend_texts(figure))
    assert_readable(figure)
    assert_drawn(plot.save(figure, tmp_path / "nodes.png"), figure)


def test_extrapolated_nodes_are_hollow_on_grey(results):
    for axes in plot.nodes(results).axes:
        hollow = [line for line in axes.lines if line.get_linestyle() == "None"]
        assert hollow and all(line.get_xdata().tolist() == [0.7] for line in hollow)
        assert {line.get_markerfacecolor() for line in hollow} == {"white"} and len(axes.patches) == 1


def test_another_metric_and_what_is_missing(results):
    figure = plot.nodes(results, "energy_per_token")
    assert "energy" in figure.axes[0].get_ylabel()
    assert "nodes" in plot.suited(results) and "nodes" not in plot.suited(results.isel(node=[0]))
    assert "nodes" not in plot.suited(results.assign_coords(node_nm=("node", [12.0, np.nan, 2.0, 0.7])))
    assert "nodes" not in plot.suited(results.drop_vars("node_extrapolated"))
    with pytest.raises(InputError, match="no axis of logic nodes"):
        plot.nodes(results.drop_vars(["node", "node_nm", "node_year", "node_extrapolated"]))
    for lacking in (results.isel(node=[0]), results.drop_vars("node_nm")):  # as files of a version before it
        with pytest.raises(InputError, match="no lengths along an axis of logic nodes"):
            plot.nodes(lacking)
    with pytest.raises(InputError, match="nope"):
        plot.nodes(results, "nope")


def test_bounds_sum_to_the_step_at_every_machine_and_of_a_slice(results):
    seconds = plot.bound_times(results)
    total = sum(seconds[name] for name in seconds)
    assert seconds.bound_by_compute.dims == results.step_time.dims and "node_nm" in seconds.coords
    np.testing.assert_allclose(total, results.step_time, rtol=1e-4)
    part = plot.bound_times(results.sel(memory="hbm4-8-0", scale_out="infiniband-hdr"))
    expected = seconds.bound_by_compute.sel(memory="hbm4-8-0", scale_out="infiniband-hdr")
    np.testing.assert_allclose(part.bound_by_compute, expected, rtol=1e-6)
    assert (np.diff(part.bound_by_compute) < 0.0).all(), "compute takes less in every newer node"
