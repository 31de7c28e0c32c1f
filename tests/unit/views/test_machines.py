"""Figures of grids of machines: shares along axes, energy against time, metrics against the clock."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import dse
from dse.views import figures, plot
from dse.views.plot import grid
from tests.figures import assert_drawn, assert_readable

NODES, MEMORIES, CLOCKS = ["n7", "n5", "extrapolated-a5"], ["hbm3", "hbm4"], [0.5, 0.7, 0.9, 1.0]
CLOCK_PATH = "system.accelerator.chip.clock_ratio"


@pytest.fixture
def results() -> xr.Dataset:
    """Compute time falls with the node and the clock, communication stays; energy has its least inside the clocks."""
    dims = ("node", "memory", "chip_clock_ratio")
    speed = np.array([1.0, 2.0, 8.0])[:, None, None] * np.array(CLOCKS)
    compute = 8.0 / speed * np.array([1.25, 1.0])[:, None]
    network = np.full_like(compute, 1.0)
    energy = 1e6 * (compute / 4.0 + np.array(CLOCKS) ** 2)
    feasible = np.ones(compute.shape, bool)
    feasible[0, 0, 0] = False

    def variable(values, units="s", words=""):
        return dims, np.where(feasible, values, np.nan), {"units": units, "long_name": words}

    found = {
        "step_time": variable(compute + network, words="time of one training step"),
        "step_time_forward": variable(compute / 3.0),
        "step_time_backward": variable(compute * 2.0 / 3.0),
        "step_time_tensor_parallel": variable(network),
        "step_time_recompute": variable(0.0 * compute),
        "peak_memory": variable(np.full_like(compute, 5e10), "B"),
        "mfu": variable(0.4 / speed, "1"),
        "energy_per_step": variable(energy, "J", "energy of one step"),
        "feasible": (dims, feasible),
    }
    coordinates = {
        "node": NODES, "memory": MEMORIES,
        "chip_clock_ratio": ("chip_clock_ratio", CLOCKS, {"path": CLOCK_PATH, "units": "1", "long_name": "clock"}),
        "pins": ("memory", [5.2, 8.0]),
        "by_node": ("by_node", NODES),
    }  # fmt: skip
    return xr.Dataset(found, coordinates, {"title": "made up", "objective": "step_time", "keep": "best"})


def panel(figure, heading: str):
    return next(axes for axes in figure.axes if axes.get_title(loc="left").startswith(heading))


@pytest.mark.parametrize("kind", [kind for kind in plot.KINDS if kind not in ("bounds", "nodes", "interactivity")])
def test_nothing_overlaps(results, kind):
    """Bounds needs real results, nodes their lengths (test_nodes.py), interactivity serving (test_interactivity.py)."""
    assert_readable(plot.KINDS[kind](results))


def test_long_names_make_room(results):
    """Long values, many tied axes and equal names: titles and labels keep apart, equal values are told apart."""
    named = results.assign_coords(
        node=["a-node-with-a-long-name"] * 2 + ["n5"],
        matrix_devices=("node", [2000.0, 4500.0, 4500.0]),
        unit_energy=("node", [8e-13, 8e-13, 16e-12], {"units": "J/B"}),
        scale_up_network=("node", ["one", "one", "other"]),
    )
    for kind in ("shares", "energy", "clock"):
        assert_readable(plot.KINDS[kind](named))
    nodes = panel(plot.shares(named), "node, matrix devices")
    assert [text.get_text().replace("\n", "") for text in nodes.get_yticklabels()] == [
        "a-node-with-a-long-name, 2000",
        "a-node-with-a-long-name, 4500",
        "n5, 4500",
    ]


def test_what_suits(results, small_results):
    assert plot.suited(results) == ["breakdown", "shares", "energy", "clock"]
    assert plot.suited(results.drop_vars("energy_per_step").isel(chip_clock_ratio=[0, 3])) == ["breakdown", "shares"]
    assert plot.suited(small_results[0]) == ["breakdown"]
    one_mapping = results.expand_dims(mapping=1, axis=3)
    assert plot.suited(one_mapping) == plot.suited(results)
    assert plot.shares(one_mapping).get_suptitle() == plot.shares(results).get_suptitle()
    assert len(plot.breakdown(one_mapping, within=2.0).axes[0].containers[0]) > 1, "a row a machine"
    assert list(plot.KINDS) == ["breakdown", "pareto", "shares", "energy", "clock", "bounds", "nodes", "interactivity"]
    assert "bounds" in plot.suited(results.assign_attrs(specification="")), "designs can be built again"


def test_shares_along_each_axis(results):
    figure = plot.shares(results)
    assert len(figure.axes) == 3 and panel(figure, "memory").get_title(loc="left") == "memory, pins"
    nodes = panel(figure, "node")
    assert [text.get_text() for text in nodes.get_yticklabels()] == NODES
    assert [text.get_fontweight() for text in nodes.get_yticklabels()] == ["normal", "normal", "bold"]
    compute = [bar.get_width() for bar in nodes.containers[0]]
    assert compute == pytest.approx([100.0 * 8 / 9, 80.0, 50.0])
    assert all(
        sum(bars) == pytest.approx(100.0)
        for bars in zip(*([bar.get_width() for bar in container] for container in nodes.containers), strict=True)
    )
    assert {text.get_text() for text in nodes.texts} == {"9.00 s", "5.00 s", "2.00 s"}
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["layers, forward and backward", "tensor parallel"], "nothing that takes no time"


def test_a_machine_that_nothing_fits_is_told(results):
    nothing = results.feasible.copy()
    nothing[0] = False
    figure = plot.shares(results.assign(feasible=nothing))
    assert panel(figure, "node").texts[0].get_text() == "nothing fits"


def test_long_axes_are_thinned(results):
    many = results.isel(chip_clock_ratio=np.arange(40) % 4).assign_coords(chip_clock_ratio=np.linspace(0.5, 1.0, 40))
    clocks = panel(plot.shares(many), "clock ratio")
    assert len(clocks.get_yticks()) == len(clocks.containers[0]) == 12
    for count, most, kept in ((40, 12, 7), (5, 12, 3), (100, 8, 99), (13, 12, 12)):
        places = grid.spread_positions(count, most, kept)
        assert kept in places and len(places) == min(count, most) and places == sorted(set(places))


def test_the_best_mapping_is_taken_where_all_are_kept(results):
    slow = results * 1.0
    for name in results.data_vars:
        slow[name] = results[name] * (3.0 if name.startswith("step_time") else 1)
    both = xr.concat([slow, results], "mapping").assign_coords(tp=("mapping", [1, 2])).assign_attrs(results.attrs)
    found, alone = grid.machines(both), grid.machines(results)
    assert found.axes == alone.axes and found.best_position == alone.best_position
    np.testing.assert_array_equal(found.points.step_time, alone.points.step_time)
    assert plot.suited(both) == ["breakdown", "clock"], "of all mappings, the clock is drawn alone"


def test_energy_against_time(results):
    figure = plot.energy(results)
    (axes,) = figure.axes
    assert axes.get_xlabel() == "time of one training step (s)" and axes.get_ylabel() == "energy of one step (MJ)"
    assert sum(np.isfinite(dots.get_offsets()).all(axis=1).sum() for dots in axes.collections) == 23
    (front,) = axes.get_lines()
    x, y = front.get_data()
    assert (np.diff(x) > 0).all() and (np.diff(y) < 0).all()
    times, joules = results.step_time.values.ravel(), results.energy_per_step.values.ravel() * (1.0 / 1e6)
    for time, energy in zip(x, y, strict=True):
        beaten = (times <= time) & (joules <= energy) & ((times < time) | (joules < energy))
        assert not beaten.any()
    assert "Fastest: node\u00a0extrapolated-a5" in figure.get_suptitle() and "Lowest energy" in figure.get_suptitle()


def test_energy_of_one_work(results):
    twice = xr.concat([results, results * 1.0], "global_batch").assign_attrs(results.attrs)
    tokens = xr.DataArray([1.0, 3.0], dims="global_batch")
    twice = twice.assign(feasible=twice.feasible == 1, tokens_per_second=tokens / twice.step_time)
    twice = twice.assign_coords(global_batch=("global_batch", [8, 16], {"path": "workload.global_batch"}))
    figure = plot.energy(twice)
    assert "all at global\u00a0batch\u00a016" in figure.get_suptitle()
    assert sum(np.isfinite(dots.get_offsets()).all(axis=1).sum() for dots in figure.axes[0].collections) == 23
    works = twice.isel(node=0, memory=1, chip_clock_ratio=1)
    assert plot.suited(works) == ["breakdown", "shares"]
    with pytest.raises(dse.InputError, match="one machine"):
        plot.energy(works)


def test_the_clock_with_its_least(results):
    figure = plot.clock(results)
    time, energy = figure.axes
    assert time.get_title(loc="left").startswith("time of one training step")
    dots = [line for line in energy.get_lines() if line.get_marker() == "o"]
    assert dots and all(0.5 < line.get_xdata()[0] < 1.0 for line in dots)
    assert not [line for line in time.get_lines() if line.get_marker() == "o"], "no least inside"
    right_ends = [line.get_ydata()[-1] for line in energy.get_lines() if len(line.get_ydata()) > 1]
    assert energy.get_ylim()[1] <= 1.6 * max(right_ends) < time.get_ylim()[1] * 1.6
    assert [text.get_text() for text in figure.legends[0].get_texts()] == NODES
    assert "memory\u00a0hbm4" in figure.get_suptitle()


def test_legends_name_axes_that_move_together(results):
    zipped = results.assign_coords(scale_out=("node", ["slow", "fast", "faster"]))
    (clocks,) = plot.clock(zipped).legends
    machines = plot.energy(zipped).axes[0].get_legend()
    assert clocks.get_title().get_text() == machines.get_title().get_text() == "node, scale out"
    assert plot.clock(results).legends[0].get_title().get_text() == "node"


def test_equal_values_are_told_apart_by_those_that_move_together_with_them(results):
    zipped = results.assign_coords(lot=("node", [1, 2, 1])).assign_coords(node=[1024, 1024, 8192])
    figure = plot.shares(zipped)
    texts = [label.get_text() for axes in figure.axes for label in axes.get_yticklabels()]
    assert {"1024, 1", "1024, 2", "8192, 1"} <= set(texts)
    assert "node" not in figure.get_suptitle() or "lot" in figure.get_suptitle()


def test_lines_far_apart_are_relative(results):
    assert "relative to the highest clock" in plot.clock(results).axes[0].get_title(loc="left").replace("\n", " ")
    one = plot.clock(results.isel(node=[1], memory=[1]))
    assert not one.legends and "(s)" in one.axes[0].get_title(loc="left")
    (line,) = one.axes[0].get_lines()
    assert line.get_ydata() == pytest.approx(results.step_time.values[1, 1])


def test_units_of_clocks(results):
    clocks = {"path": "system.accelerator.power.clock", "units": "Hz", "long_name": "clock of the cores"}
    hertz = results.assign_coords(chip_clock_ratio=("chip_clock_ratio", 1e9 * np.array(CLOCKS), clocks))
    axes = plot.clock(hertz).axes[0]
    assert axes.get_xlabel() == "clock of the cores (GHz)"
    assert axes.get_lines()[0].get_xdata() == pytest.approx(CLOCKS)


@pytest.mark.parametrize(
    ("kind", "match"), [("shares", "no axes"), ("energy", "energy_per_step"), ("clock", "three clocks")]
)
def test_what_does_not_suit_is_told(small_results, kind, match):
    with pytest.raises(dse.InputError, match=match):
        plot.KINDS[kind](small_results[0].drop_vars("energy_per_step", errors="ignore"))


@pytest.mark.parametrize("kind", ["shares", "energy", "clock"])
def test_nothing_feasible_is_told(results, kind):
    with pytest.raises(dse.InputError, match="no feasible design"):
        plot.KINDS[kind](results.assign(feasible=results.feasible & False))


def test_files_beside_the_results(results, tmp_path):
    path = tmp_path / "r.nc"
    results.assign_attrs(Conventions="CF-1.11").to_netcdf(path)
    drawn = figures.draw(path)
    assert [file.name for file in drawn[::2]] == ["r.png", "r_shares.png", "r_energy.png", "r_clock.png"]
    assert [file.name for file in drawn[1::2]] == ["r.svg", "r_shares.svg", "r_energy.svg", "r_clock.svg"]
    for png, svg in zip(drawn[::2], drawn[1::2], strict=True):
        assert_drawn(png)
        assert "made up" in svg.read_text(), "the title stays text"
