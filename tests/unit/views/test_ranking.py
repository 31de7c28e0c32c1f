"""Figures rank designs by the objective that results state, as tables do, and say what they leave out of what."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import dse
from dse.lab.page import table
from dse.sweep import execute, from_text
from dse.sweep.results.ranking import ranking
from dse.views import plot
from dse.views.plot import designs, grid, style
from dse.views.plot.ranking import worst_shown
from tests.conftest import CHIP_SERVING_SWEEP
from tests.figures import assert_readable, visible_texts
from tests.unit.views.test_words import served

#: Concurrency is of the workload: designs of unlike work.
CONCURRENCY = {"path": "workload.requests.concurrency", "units": "1"}

SERVING = """
[workload]
name = "llama-3-70b"
[system]
name = "h100-sxm-80gb"
[serving]
[axes]
concurrency = [1, 2]
[objective]
{objective}
"""


def results(objective: str = 'minimize = "time_per_output_token"') -> xr.Dataset:
    made = served()
    loads = ("concurrency", made.concurrency.values[::-1], CONCURRENCY)  # the shorter the time, the fewer in flight
    specification = SERVING.format(objective=objective)
    return made.assign_coords(concurrency=loads).assign_attrs(specification=specification, keep="best")


def suptitle(figure) -> str:
    return figure.get_suptitle().replace("\u00a0", " ").replace("\n", " ")


def times(figure) -> list[float]:
    return [float(text.get_text().split(" ms")[0]) for text in figure.axes[0].texts if " ms · " in text.get_text()]


def test_bars_of_a_latency_are_the_fastest():
    """By throughput per device the fastest designs are the last: they were said to be slower ones."""
    made = results()
    figure = plot.breakdown(made, bars=8)
    assert times(figure) == sorted(times(figure))
    assert times(figure)[0] == pytest.approx(1e3 * float(made.time_per_output_token.min()), rel=5e-3)
    groups = "(accelerator, software, concurrency)"
    assert f"best by time per output token; 16 others of 24 {groups} are not shown" in suptitle(figure)
    assert "slower" not in suptitle(figure)


def test_bars_say_what_ranks_them_where_their_length_does_not():
    made = results('maximize = "output_tokens_per_second_per_device"')
    figure = plot.breakdown(made, bars=24, within=1e3)
    assert "best by output tokens per second per device" in suptitle(figure) and "others" not in suptitle(figure)
    assert times(figure)[0] == pytest.approx(1e3 * float(made.time_per_output_token.max()), rel=5e-3)
    plain = plot.breakdown(results(), bars=24, within=1e3)
    assert "best by" not in suptitle(plain), "a bar is as long as its rank says"


def test_the_default_objective_compares_no_unlike_work():
    ranked = ranking(results('minimize = "request_latency"'))
    assert ranked.objective == "output tokens per second per device"
    assert ranked.scores.min() == -results().output_tokens_per_second_per_device.max()


def test_machines_are_the_best_by_the_objective():
    best = grid.machines(results()).best_position
    assert best["concurrency"] == 5, "the shortest time per output token"
    assert grid.machines(results('maximize = "output_tokens_per_second_per_device"')).best_position["concurrency"] == 0
    assert "from the best machine by time per output token (bold)" in suptitle(plot.shares(results()))


def test_mappings_are_the_best_by_the_objective(small_results):
    """With all mappings kept the figure shows those that ``keep = "best"`` keeps."""
    every = small_results[0]
    text = every.attrs["specification"]
    assert 'minimize = "step_time"' in text
    for objective, sign in (('maximize = "mfu"', -1.0), ('minimize = "peak_memory * step_time"', 1.0)):
        made = every.assign_attrs(specification=text.replace('minimize = "step_time"', objective))
        values = made.mfu if sign < 0.0 else made.peak_memory * made.step_time
        wanted = float(made.step_time[int((sign * values).where(made.feasible).argmin("mapping"))])
        plain = grid.best_mappings(made)
        assert float(plain.step_time) == wanted
        columns, _ = designs.columns(made)
        assert columns.time[np.where(columns.feasible, columns.scores, np.inf).argmin()] == wanted


def test_an_objective_reads_leaves_that_nothing_moves(small_results):
    made = small_results[0]
    text = made.attrs["specification"].replace('minimize = "step_time"', 'minimize = "step_time * n_devices"')
    scores = ranking(made.assign_attrs(specification=text)).scores
    fits = made.feasible.values
    devices = float(made.n_devices) if "n_devices" in made else 64.0
    np.testing.assert_allclose(scores.values[fits], devices * made.step_time.values[fits], rtol=1e-6)


@pytest.mark.parametrize("keep", ["all", "best", "pareto"])
def test_an_objective_reads_the_codes_of_names(keep):
    """``recompute`` none and full are 0 and 2, ``precision`` bf16 and fp32 are 2 and 0."""
    more = ', "peak_memory * (1 + recompute)"' if keep == "pareto" else ""
    text = f"""
[workload]
name = "gpt-3-13b"
[system]
name = "a100-sxm-80gb"
n_devices = 16
[axes]
precision = ["bf16", "fp32"]
recompute = ["none", "full"]
tp = [4, 8]
[objective]
minimize = ["step_time * (1 + recompute) * (3 + precision)"{more}]
"""
    made = execute(from_text(text), output=False, keep=keep)[0]
    assert made.recompute.dtype.kind == made.precision.dtype.kind == "U"
    factors = (1.0 + 2.0 * (made.recompute == "full")) * (3.0 + 2.0 * (made.precision == "bf16"))
    scores = ranking(made).scores
    expected = (made.step_time * factors).transpose(*scores.dims)
    np.testing.assert_allclose(scores.values, expected.values, rtol=1e-6)
    best = float(made.attrs["best_values"].split()[0])
    assert float(scores.where(made.feasible).min()) == pytest.approx(best, rel=1e-6)
    assert_readable(plot.breakdown(made))
    assert any("step_time * (1 + recompute)" in column.name for column in table.build(made, 100).columns)
    if keep == "pareto":
        designs_of_front, objectives = plot.front_of(made)
        own = designs_of_front.recompute == "full"
        memory = designs_of_front.peak_memory * (1.0 + 2.0 * own)
        ratios = objectives[1].values / memory.values
        np.testing.assert_allclose(ratios, ratios[0], rtol=1e-6)


def test_without_a_valid_specification_the_default_ranks(small_results):
    made = small_results[0].assign_attrs(specification="[nothing]")
    assert ranking(made).objective == "step time"
    del made.attrs["specification"]
    assert ranking(made).objective == "step time"


def test_what_is_much_worse():
    """10 s within a factor 2: 20 s; 10 tokens/s, whose score is -10: 5 tokens/s."""
    assert worst_shown(np.array([30.0, 10.0]), 2.0) == 20.0
    assert worst_shown(np.array([-3.0, -10.0]), 2.0) == -5.0
    assert worst_shown(np.array([0.0, 1.0]), 2.0) == np.inf


@pytest.mark.parametrize("draw", [plot.breakdown, plot.shares, plot.pareto, plot.interactivity])
def test_small_print(draw):
    """Cautions stand below everything else, and cover nothing."""
    lines = ["the power for memory moves 13.7 of the 16.4 TB/s of its stacks: " + "more needs power " * 12, "short"]
    figure = draw(results().assign_attrs(cautions="\n".join(lines)))
    assert_readable(figure)
    (small,) = (text for text in visible_texts(figure) if text.get_gid() == style._SMALL_PRINT)
    assert small.get_text().replace("\n", " ").split() == " ".join(lines).split()
    others = [text.get_window_extent() for text in visible_texts(figure) if text is not small]
    assert small.get_window_extent().y1 <= min(box.y0 for box in others)
    plain = draw(results())
    panels = [axes.get_position().height * figure.get_figheight() for axes in figure.axes]
    assert panels == pytest.approx([axes.get_position().height * plain.get_figheight() for axes in plain.axes])


def test_long_small_print_says_where_the_rest_is():
    figure = plot.breakdown(results().assign_attrs(cautions="\n".join(f"caution {i}" for i in range(99))))
    assert_readable(figure)
    assert any("attribute cautions" in text.get_text() for text in figure.texts)


def test_the_whole_way_of_a_serving_sweep(tmp_path):
    """A generated chip by memory and requests in flight: table, file and figure agree on the best."""
    sweep = tmp_path / "serve.toml"
    text = CHIP_SERVING_SWEEP.replace("concurrency = [1, 16]", "concurrency = [1, 256]")
    sweep.write_text(f'{text}[output]\nkeep = "best"\n')
    made = dse.run(sweep, tmp_path / "serve.nc")
    figure = plot.breakdown(made, bars=2)
    assert times(figure) == pytest.approx(sorted(1e3 * made.time_per_output_token.values.ravel())[:2], rel=5e-3)
    assert "each request: 1,024 prompt tokens and 1,024 output tokens" in suptitle(figure)
    assert "2 others of 4 (memory, concurrency" in suptitle(figure)
    assert any("the power for memory moves" in text.get_text().replace("\n", " ") for text in figure.texts)
