"""Words of figures: one letter a thing, units that say what is counted, plurals, titles and legends in their room."""

from __future__ import annotations

from pathlib import Path

import matplotlib.pyplot
import numpy as np
import pytest
import xarray as xr

from docs.make.search.figure import in_words
from dse.io import counted
from dse.io.quantities import counted_units
from dse.views import plot
from dse.views.plot import style
from dse.views.plot.breakdown import wrap_letters
from dse.views.words import SHORT
from tests.figures import assert_readable, legend_texts, visible_texts
from tests.unit.views.test_papers import OBJECTIVES, designs, grid

ROOT = Path(__file__).parents[3]
NAMES = ["h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "an-accelerator-of-the-year-2030"]


def served(names: list[str] = NAMES) -> xr.Dataset:
    """Designs that serve, some of each accelerator, none of them on a device alone."""
    user = np.geomspace(11.0, 140.0, 6)
    shape = (len(names), len(user))
    rate = 4000.0 / user * (1.0 + np.arange(len(names)))[:, None]
    dims = ("accelerator", "concurrency")
    made = xr.Dataset({
        "time_per_output_token": (dims, np.broadcast_to(1.0 / user, shape), {"units": "s"}),
        "time_per_output_token_matrix": (dims, np.broadcast_to(0.6 / user, shape), {"units": "s"}),
        "time_per_output_token_communication": (dims, np.broadcast_to(0.4 / user, shape), {"units": "s"}),
        "output_tokens_per_second_per_user": (dims, np.broadcast_to(user, shape), {"units": "s-1"}),
        "output_tokens_per_second_per_device": (dims, rate, {"units": "s-1"}),
        "request_latency": (dims, np.broadcast_to(100.0 / user, shape), {"units": "s"}),
        "peak_memory": (dims, np.full(shape, 5e10), {"units": "B"}),
        "feasible": (dims, np.ones(shape, bool)),
    })  # fmt: skip
    where = made.assign_coords(accelerator=names, concurrency=2 ** np.arange(6), software=("accelerator", names))
    return where.assign_attrs(title="Made up: what a user gets against what a device gives", study="serving")


# One letter a thing


def test_figures_and_tables_call_a_degree_the_same():
    shared = set(style.HEADINGS) & set(SHORT)
    assert {"tp", "pp", "dp", "cp", "micro_batch", "virtual_stages"} <= shared
    assert style.HEADINGS["micro_batch"] == SHORT["micro_batch"] == "mb"
    assert all(style.HEADINGS[name].lower() == SHORT[name] for name in shared)


def test_a_mapping_is_labelled_as_in_tables(small_results):
    figure = plot.breakdown(small_results[0])
    words = set(figure.get_suptitle().replace("\u00a0", " ").split())
    words |= {text.get_text() for text in figure.axes[0].texts}
    assert "mb" in words and "b" not in words


# Units and numbers of things


def test_an_axis_says_what_is_counted():
    rate = xr.DataArray([1.0], name="output_tokens_per_second", attrs={"long_name": "tokens of answers a second"})
    assert style.axis_label(rate, "k/s") == "tokens of answers a second (thousand tokens/s)"
    assert counted_units("tokens_per_cost", "M/USD") == "million tokens/USD"
    assert counted_units("goodput", "/s") == "requests/s" and counted_units("goodput_fraction", "") == ""
    for name, units in (("step_time", "ms"), ("energy_per_output_token", "J"), ("memory_bandwidth", "TB/s")):
        assert counted_units(name, units) == units


def test_axes_of_a_front_say_what_is_counted():
    kept = (
        designs()
        .rename(mfu="tokens_per_second")
        .assign_attrs(specification=OBJECTIVES.replace('"peak_memory"]', '"-1 * tokens_per_second"]'))
    )
    rates = ("design", 1e4 / (1 + np.arange(12.0)), {"units": "s-1", "long_name": "tokens trained per second"})
    (axes,) = plot.pareto(kept.assign(tokens_per_second=rates)).axes
    assert "tokens/s" in axes.get_ylabel() and "k/s" not in axes.get_ylabel()


def test_what_serving_trades_has_units():
    (axes,) = plot.pareto(served()).axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("output tokens/s per user", "output tokens/s per device")


def test_one_is_one():
    assert counted(1, "design") == "1 design" and counted(2, "design") == "2 designs"
    assert "Pareto front: 1 design" in plot.pareto(designs(1)).get_suptitle().splitlines()
    slow = designs(2, keep="top:2").assign(step_time=("design", [10.0, 50.0], {"units": "s"}))
    assert "best by step time; 1 other of 2 (" in plot.breakdown(slow).get_suptitle()


def test_sizes_of_spaces_are_in_words():
    assert [in_words(count) for count in (512.0, 1.9e5, 1.04e9, 7.6e7)] == [
        "510",
        "190 thousand",
        "1 billion",
        "76 million",
    ]


# Titles and legends


@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_titles_fit_and_no_word_stands_alone(width):
    """A line is nearly as long as the others, where there are several."""
    title = "Llama-3.1-405B on 15 T tokens, 8,192 devices: days, dollars and tonnes of CO2 by accelerator and by grid"
    with style.style():
        figure = style.new_figure(width, 2.0)
        style.set_title(figure, title)
        lines = figure.get_suptitle().split("\n")
        widths = [style.text_width(figure, line, style.SIZE) for line in lines]
    assert " ".join(lines) == title and max(widths) <= width
    assert min(widths) > 0.5 * max(widths), lines


@pytest.mark.parametrize("count", [3, 5, 7])
@pytest.mark.parametrize("width", [style.COLUMN, style.PAGE])
def test_legends_fit_and_their_rows_are_even(width, count):
    with style.style():
        figure = style.new_figure(width, 2.5)
        axes = figure.subplots()
        for i in range(count):
            axes.plot([0, 1], [i, i], label=f"a name of some length {i}")
        axes.set(xlabel="x", ylabel="y")
        legend = style.legend_below(figure, *axes.get_legend_handles_labels())
        style.freeze_layout(figure)
    assert_readable(figure)
    columns = legend._ncols
    assert columns == -(-count // -(-count // columns)), "no column could go without another row"


def test_long_names_of_accelerators_are_not_cut():
    figure = plot.pareto(served())
    assert_readable(figure)
    assert set(NAMES) < set(legend_texts(figure)) and figure.legends[0].get_title().get_text() == "accelerator"


def test_the_name_of_the_second_number_leaves_bars_their_room():
    """Where the table is wide the name stands above the bars, which else end in a fraction of their panel."""
    wide = served().assign_coords(scale_up=("accelerator", [f"network-{name}" for name in NAMES]))
    figure = plot.breakdown(wide, within=10.0)
    times = figure.axes[0]
    assert "time · tok/s/device" in {text.get_text() for text in visible_texts(figure)}
    longest = max(bar.get_x() + bar.get_width() for bar in times.patches)
    assert longest > 0.4 * times.get_xlim()[1]
    assert_readable(figure)


def test_names_are_broken_at_their_hyphens():
    assert wrap_letters("scd-blade-4k", 7).split("\n") == ["scd-", "blade-", "4k"]


def test_parts_that_no_drawn_machine_has_are_not_in_the_legend():
    """Of a long axis some positions are drawn: what others alone spend is nothing of the figure."""
    many = grid(40).isel(power_clock=[0])
    recompute = np.where(np.arange(40) == 1, 0.3, 0.0)[:, None] * many.step_time
    figure = plot.shares(many.assign(step_time_recompute=recompute))
    assert "recompute" not in legend_texts(figure)


def test_panels_keep_their_height_whatever_stands_around_them():
    """Titles and legends make a figure taller, not its panels lower."""
    short = plot.pareto(served()).axes[0].get_window_extent().height
    long = plot.pareto(served().assign_attrs(title="word " * 60)).axes[0].get_window_extent().height
    assert long > 0.85 * short


# One colour a machine


@pytest.mark.slow
def test_a_machine_has_one_colour_in_all_figures_of_a_notebook(monkeypatch):
    """Notebook 06 draws three accelerators three times."""
    drawn, pareto = [], plot.pareto
    monkeypatch.setattr(plot, "pareto", lambda results: drawn.append(pareto(results)) or drawn[-1])
    monkeypatch.chdir(ROOT)
    matplotlib.use("Agg")
    path = ROOT / "notebooks" / "09_serving_pareto.py"
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), {"__name__": "notebook"})
    figures = [*drawn, *map(matplotlib.pyplot.figure, matplotlib.pyplot.get_fignums())]
    colours: dict[str, set] = {}
    for figure in figures:
        (axes,) = figure.axes
        for artist, name in zip(*axes.get_legend_handles_labels(), strict=True):
            colour = artist.get_facecolor()[0] if hasattr(artist, "get_facecolor") else artist.get_color()
            colours.setdefault(name, set()).add(matplotlib.colors.to_hex(colour))
    matplotlib.pyplot.close("all")
    machines = {name: found for name, found in colours.items() if name != "Pareto front"}
    assert len(figures) == 3 and len(machines) == 3 and all(len(found) == 1 for found in machines.values()), machines


def test_a_figure_escapes_control_codes_and_keeps_spaces(tmp_path):
    """Titles are of others; spaces that do not break are the figure's own."""
    from matplotlib.figure import Figure

    figure = Figure()
    title = figure.suptitle("n\u00a0devices\u202f4096 \x1b[31mred\nnext")
    plot.save(figure, tmp_path / "figure.svg")
    assert title.get_text() == "n\u00a0devices\u202f4096 \\x1b[31mred\nnext"
