"""Figures as they go into papers: sizes of columns, letters that can be read, the user's words as they are, units."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from dse.views import plot
from dse.views.plot import designs as designs_of, style
from dse.views.plot.breakdown import draw_mappings
from tests.conftest import SMALL_SWEEP
from tests.figures import assert_readable, legend_texts, visible_texts

OBJECTIVES = SMALL_SWEEP.replace('minimize = "step_time"', 'minimize = ["step_time", "peak_memory"]')
TITLE = "made up at $0.05 a kWh: a_b and $x_1^2$"
GIB = 2.0**30


def designs(count: int = 12, **attrs: object) -> xr.Dataset:
    """Single designs on a front of time and memory, of two capacities."""
    places = np.arange(count)
    time, memory = 10.0 + places, (78.0 - 5.0 * places) * GIB
    parts = {
        f"step_time_{part}": ("design", time * share, {"units": "s"})
        for part, share in (("forward", 0.3), ("backward", 0.5), ("tensor_parallel", 0.2))
    }
    made = xr.Dataset(parts | {
        "step_time": ("design", time, {"units": "s", "long_name": "time of one training step"}),
        "peak_memory": ("design", memory, {"units": "B", "long_name": "peak memory"}),
        "mfu": ("design", 4.0 / time, {"units": "1"}),
        "feasible": ("design", np.ones(count, bool)),
    })  # fmt: skip
    capacity = np.where(places % 2, 141e9, 80 * GIB)
    return made.assign_coords(
        memory_capacity=("design", capacity, {"units": "B", "path": "system.accelerator.memory.capacity"}),
        memory_bandwidth=("design", 3.35e12 * (1 + places % 2), {"units": "B/s", "path": "memory.bandwidth"}),
        workload=("design", [f"a_model_of_${i}_$" for i in places], {"path": "workload"}),
    ).assign_attrs({"title": TITLE, "specification": OBJECTIVES, "keep": "pareto"} | attrs)


def grid(nodes: int) -> xr.Dataset:
    """Machines by node and clock."""
    clocks = np.linspace(0.7e9, 1.4e9, 5)
    time = 8.0 / np.arange(1, nodes + 1)[:, None] / (clocks / 1e9) + 1.0
    dims = ("node", "power_clock")
    made = xr.Dataset(
        {
            "step_time": (dims, time, {"units": "s", "long_name": "time of one training step"}),
            "step_time_forward": (dims, time - 1.0),
            "step_time_tensor_parallel": (dims, np.ones_like(time)),
            "peak_memory": (dims, np.full_like(time, 5e10)),
            "mfu": (dims, 0.4 / time),
            "feasible": (dims, time > 0),
            "energy_per_step": (dims, 1e6 * time, {"units": "J", "long_name": "energy of one step, whole system"}),
            "device_power": (dims, 300.0 + 0.0 * time, {"units": "W", "long_name": "average board power of a device"}),
        }
    )
    attrs = {"path": "system.accelerator.power.clock", "units": "Hz", "long_name": "clock of the cores"}
    return made.assign_coords(
        node=[f"a-node_with-$-{i}" for i in range(nodes)], power_clock=("power_clock", clocks, attrs)
    ).assign_attrs(title=TITLE, objective="step_time", keep="best")


FIGURES = {
    "breakdown": lambda: plot.breakdown(designs()),
    "pareto": lambda: plot.pareto(designs(keep="top:12")),
    "front": lambda: plot.pareto(designs()),
    "shares": lambda: plot.shares(grid(4)),
    "shares of one axis": lambda: plot.shares(grid(4).isel(power_clock=[0])),
    "energy": lambda: plot.energy(grid(8)),
    "clock": lambda: plot.clock(grid(8)),
}


@pytest.fixture(params=FIGURES)
def figure(request):
    return FIGURES[request.param]()


def test_figures_fit_a_column_or_a_page(figure):
    assert figure.get_figwidth() in (style.COLUMN, style.PAGE) == (3.4, 7.0)
    assert {text.get_fontsize() for text in visible_texts(figure)} == {8.0}
    assert_readable(figure)


def test_titles_are_literal(figure):
    assert TITLE.replace(" ", "") in figure.get_suptitle().replace("\n", "").replace(" ", "")
    assert not any(text.get_parse_math() or text.get_usetex() for text in visible_texts(figure))


def test_legends_stand_beside_the_data(figure):
    figure.canvas.draw()
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    for legend in legends:
        box = legend.get_window_extent().padded(-1.0)
        assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)


def test_values_have_the_units_that_people_read():
    texts = {text.get_text() for text in plot.breakdown(designs()).axes[0].texts}
    assert {"141 GB", "80 GiB", "3.35 TB/s", "6.7 TB/s"} <= texts
    assert not any("00000" in text or "e+" in text for text in texts)
    clocks = plot.shares(grid(3)).axes[0].get_yticklabels()
    assert [text.get_text() for text in clocks] == ["0.7 GHz", "0.875 GHz", "1.05 GHz", "1.225 GHz", "1.4 GHz"]


# Fronts


def test_a_sweep_that_kept_its_front_draws_it():
    kept = designs()
    assert plot.suited(kept) == ["breakdown", "pareto"]
    (axes,) = plot.pareto(kept).axes
    (line,) = axes.get_lines()
    np.testing.assert_allclose(line.get_xdata(), kept.step_time)
    np.testing.assert_allclose(line.get_ydata(), kept.peak_memory / GIB)
    assert axes.get_xlabel() == "time of one training step (s)" and axes.get_ylabel() == "peak memory (GiB)"
    assert "12 designs" in plot.pareto(kept).get_suptitle()
    assert plot.suited(kept.assign_attrs(keep="top:12")) == ["breakdown"], "time against memory is drawn if asked for"


def test_what_is_maximised_says_so():
    more = SMALL_SWEEP.replace('minimize = "step_time"', 'minimize = "step_time"\nmaximize = "mfu"')
    (axes,) = plot.pareto(designs(specification=more)).axes
    assert axes.get_ylabel().replace("\n", " ") == "mfu, more is better"


def test_more_objectives_than_two_are_told():
    three = SMALL_SWEEP.replace('minimize = "step_time"', 'minimize = ["step_time", "peak_memory", "step_time * mfu"]')
    figure = plot.pareto(designs(specification=three))
    assert "two of 3 objectives" in figure.get_suptitle().replace("\n", " ")
    assert figure.axes[0].get_lines()[0].get_linestyle() == "None", "what is no curve is not joined"


# Searches


def search(front: bool) -> xr.Dataset:
    """What a search of two methods with three seeds writes, one of them infeasible."""
    shape = ("searcher", "seed")
    one = designs(6)
    made = xr.Dataset(
        {
            str(name): (shape, values.values.reshape(2, 3), values.attrs)
            for name, values in one.variables.items()
            if name != "feasible"
        },
        {"searcher": ["random", "evolution"], "seed": [0, 1, 2]},
    )
    made = made.assign(violation=(shape, [[0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]))
    if front:
        variables = designs(5).drop_vars("feasible").variables
        made = made.assign({f"front_{name}": values for name, values in variables.items()})
    text = OBJECTIVES + '\n[search]\nmethod = ["random", "evolution"]\n'
    return made.assign_attrs(title=TITLE, specification=text, objectives=json.dumps(["step_time", "peak_memory"]))


def test_a_search_is_not_drawn_as_machines():
    assert plot.suited(search(front=True)) == ["breakdown", "pareto"]
    (axes,) = plot.pareto(search(front=True)).axes
    assert len(axes.get_lines()[0].get_xdata()) == 5
    bars = plot.breakdown(search(front=True)).axes[0]
    assert len(bars.containers[0]) == 5 and {"141 GB", "80 GiB"} <= {text.get_text() for text in bars.texts}


def with_clocks(results: xr.Dataset, clocks: np.ndarray) -> xr.Dataset:
    """Single designs that nothing but their clock tells apart."""
    plain = results.drop_vars(["memory_capacity", "memory_bandwidth", "workload"])
    return plain.assign_coords(clock=("design", clocks, {"units": "Hz", "path": "system.accelerator.power.clock"}))


@pytest.mark.parametrize("spread", [1e-7, 1e-3])
def test_what_prints_alike_is_one_bar(spread):
    """Of the best so many, and whatever the axes are: a bar for each that can be told apart, in a table or without."""
    clocks = 1.41e9 * (1.0 + spread * np.arange(6))
    figure = plot.breakdown(with_clocks(designs(6, keep="top:6"), clocks), within=9.0)
    assert len(figure.axes[0].containers[0]) == (1 if spread < 1e-4 else 6)
    assert_readable(figure)


def test_designs_without_anything_to_tell_them_apart_are_drawn():
    """Parts of a mapping that nobody sees at the digits of the table leave it empty."""
    columns, title = designs_of.columns(with_clocks(designs(4, keep="top:4"), np.full(4, 1.41e9)))
    assert_readable(draw_mappings(columns, title, [0, 1, 2], []))


def test_bars_of_a_front_are_its_ends_and_some_between():
    count = 400
    front = with_clocks(designs(count), 1.41e9 * (1.0 + 1e-3 * np.arange(count)))
    front = front.assign(
        step_time=("design", np.linspace(10.0, 20.0, count), {"units": "s"}),
        peak_memory=("design", np.linspace(78.0, 30.0, count) * GIB, {"units": "B"}),
    )
    whole = search(front=True)
    whole = whole.drop_vars([name for name in whole.variables if str(name).startswith("front_")])
    whole = whole.assign({f"front_{name}": v for name, v in front.drop_vars("feasible").variables.items()})
    figure = plot.breakdown(whole)
    times = [text.get_text() for text in figure.axes[0].texts if " s · " in text.get_text()]
    assert len(times) == 16 and times[0].startswith("10.0 s") and times[-1].startswith("20.0 s")
    assert "16 of 400 designs of the front" in figure.get_suptitle()


def test_the_best_of_a_search_without_a_front():
    found = search(front=False)
    found.attrs["specification"] = SMALL_SWEEP + '\n[search]\nmethod = ["random"]\n'
    assert plot.suited(found) == ["breakdown"]
    figure = plot.breakdown(found)
    assert len(figure.axes[0].containers[0]) == 5, "five seeds of six are feasible"
    assert "does not fit in memory" not in legend_texts(figure)


@pytest.mark.parametrize("kind", ["shares", "energy", "clock", "bounds"])
def test_figures_of_machines_refuse_searches(kind):
    with pytest.raises(style.InputError):
        plot.KINDS[kind](search(front=True))
