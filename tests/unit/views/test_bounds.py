"""The step time by what bounds it: along the axes of a grid, and of the best mappings."""

from __future__ import annotations

import numpy as np
import pytest

import dse
from dse.views import plot
from dse.views.plot import style
from dse.views.plot.capacity import BINDS
from tests.conftest import SMALL_SWEEP
from tests.figures import assert_readable, bar_widths, legend_texts

LABELS = {name: looks.label for name, looks in style.BOUNDS.items()}


@pytest.fixture(scope="module")
def grid_results(tmp_path_factory):
    """Of machines by memory bandwidth: the best mapping of each, and all."""
    folder = tmp_path_factory.mktemp("grid")
    axes = '[axes]\nmemory.bandwidth = ["0.3 TB/s", "2 TB/s", "8 TB/s"]\nscale_out.bandwidth = ["5 GB/s", "25 GB/s"]'
    (folder / "grid.toml").write_text(SMALL_SWEEP.replace("[axes]", axes))
    return {keep: dse.run(folder / "grid.toml", output=False, keep=keep) for keep in ("best", "all")}


def panel(figure, title):
    return next(axes for axes in figure.axes if axes.get_title(loc="left") == title)


def test_along_the_axes_of_a_grid(grid_results):
    results = grid_results["best"]
    assert plot.suited(results)[-1] == "bounds"
    figure = plot.bounds(results)
    assert_readable(figure)
    widths = bar_widths(panel(figure, "memory bandwidth"))
    memory, compute = widths[LABELS["bound_by_memory"]], widths[LABELS["bound_by_compute"]]
    assert memory[0] > memory[1] > memory[2] and compute[0] < compute[2], "short of bandwidth: bound by it"
    np.testing.assert_allclose(np.sum(list(widths.values()), axis=0), 100.0, rtol=1e-4)
    assert_readable(plot.bounds(results.isel(scale_out_bandwidth=[0])))


def test_the_best_mappings_of_all_are_the_kept_ones(grid_results):
    best, every = (plot.bounds(grid_results[keep]) for keep in ("best", "all"))
    for one, other in zip(best.axes, every.axes, strict=True):
        assert one.get_title(loc="left") == other.get_title(loc="left")
        assert bar_widths(one) == bar_widths(other)


def test_of_a_plain_sweep_the_best_mappings(small_results):
    results = small_results[0]
    figure = plot.bounds(results)
    assert_readable(figure)
    times, _ = figure.axes
    assert set(legend_texts(figure)) <= {*LABELS.values(), BINDS}
    totals = np.sum([w for label, w in bar_widths(times).items() if label in LABELS.values()], axis=0)
    best = sorted(results.step_time[results.feasible].to_series().groupby(["tp", "pp"]).min())
    np.testing.assert_allclose(totals, best, rtol=2e-3)  # what is next to nothing has no bar


def test_what_is_no_result_of_this_model_is_told(small_results):
    results = small_results[0]
    with pytest.raises(dse.InputError, match="not the model's"):
        plot.bounds(results.assign(step_time=("mapping", 1.1 * results.step_time.values)))
    without = results.copy()
    del without.attrs["specification"]
    with pytest.raises(dse.InputError, match="specification"):
        plot.bounds(without)


@pytest.mark.slow
def test_of_what_serves(tmp_path):
    """Seconds of an output token; few requests wait for memory and links, many compute more."""
    sweep = """
        [workload]
        name = "llama-3-8b"
        [system]
        name = "h100"
        n_devices = 8
        [serving]
        prompt_tokens = 1024
        [axes]
        tp = [1, 8]
        concurrency = [8, 256]
        [output]
        keep = "best"
    """
    (tmp_path / "served.toml").write_text(sweep)
    figure = plot.bounds(dse.run(tmp_path / "served.toml", output=False))
    widths = bar_widths(panel(figure, "concurrency"))
    compute = widths[LABELS["bound_by_compute"]]
    assert compute[1] > compute[0]
    np.testing.assert_allclose(np.sum(list(widths.values()), axis=0), 100.0, rtol=1e-4)
