"""Figures: what they show, and that files can be written."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import dse
from dse.views import plot
from dse.views.plot import designs, style
from dse.views.plot.capacity import BINDS, FASTER, faster_than_fitting, memory_binds
from tests.figures import assert_drawn, assert_readable, bar_widths, legend_texts


@pytest.fixture
def results(small_results) -> xr.Dataset:
    return small_results[0]


def texts(figure) -> set[str]:
    return {text.get_text() for axes in figure.axes for text in axes.texts}


def test_breakdown_shows_the_best_of_each_pair(results):
    figure = plot.breakdown(results)
    times, memory = figure.axes
    fits = results.step_time[results.feasible]
    best = sorted(fits.to_series().groupby(["tp", "pp"]).min())
    shown = [t for t in times.texts if " s · " in t.get_text()]
    assert [float(t.get_text().split(" s")[0]) for t in shown] == pytest.approx(best, rel=5e-3)
    assert "MFU" in shown[0].get_text()
    hatched = [bar for bar in times.patches if bar.get_hatch() == "////"]
    assert len(hatched) == 3, "three (tp, pp) do not fit"
    assert memory.get_xlabel() == "peak memory (GiB)"


def test_bars_are_as_long_as_the_parts_of_the_step(results):
    """The fastest mapping comes first: each bar is a part of its step, the memory beside it is its peak memory."""
    figure = plot.breakdown(results)
    times, memory = figure.axes
    fastest = results.isel(mapping=int(results.step_time.where(results.feasible).argmin("mapping")))
    for part, looks in style.PARTS.items():
        drawn = bar_widths(times).get(looks.label, [0.0])[0]
        assert drawn == pytest.approx(float(fastest[f"step_time_{part}"]), abs=2e-3 * float(fastest.step_time)), part
    assert bar_widths(memory)["_container0"][0] == pytest.approx(float(fastest.peak_memory) / 2.0**30, rel=1e-6)
    told = {label for label in bar_widths(times) if not label.startswith("_")}
    assert set(legend_texts(figure)) == told | {BINDS} and "does not fit in memory" in legend_texts(figure)
    assert times.get_xlabel() == "step time (s)"


@pytest.mark.parametrize("draw", [plot.breakdown, plot.pareto])
def test_nothing_overlaps(results, draw):
    assert_readable(draw(results))
    assert_readable(draw(results.assign_attrs(memory_capacity_bytes=80 * 2.0**30)))


def test_every_design_is_a_dot(results):
    figure = plot.pareto(results)
    (axes,) = figure.axes
    limit = 8.0 * float(results.step_time.where(results.feasible).min())
    near = results.step_time < limit
    dots = {dots.get_label(): dots.get_offsets() for dots in axes.collections}
    fits = (near & results.feasible).values
    np.testing.assert_allclose(dots["fits"][:, 0], results.step_time.values[fits], rtol=1e-6)
    np.testing.assert_allclose(dots["fits"][:, 1], results.peak_memory.values[fits] / 2.0**30, rtol=1e-6)
    too_large, least = results.infeasible_reason == 1, results.step_time.where(results.feasible).min()
    assert len(dots["does not fit"]) == int((near & too_large & (results.step_time >= least)).sum())
    assert len(dots[FASTER]) == int((too_large & (results.step_time < least)).sum()) > 0
    assert legend_texts(figure) == ["does not fit", FASTER, "fits", "Pareto front"]
    alone = plot.pareto(results.isel(mapping=np.flatnonzero(results.feasible)))
    assert legend_texts(alone) == ["fits", "Pareto front"], "nothing is told that is not drawn"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step time (s)", "peak memory (GiB)")


def test_capacity_is_marked(results):
    marked = plot.breakdown(results.assign_attrs(memory_capacity_bytes=80 * 2.0**30))
    assert "usable 80 GiB" in texts(marked)
    assert "usable 80 GiB" in texts(plot.pareto(results.assign_attrs(memory_capacity_bytes=80 * 2.0**30)))


def test_marks_are_of_bars_that_memory_keeps_from_better_ones(results):
    """By hand: of the (tp, pp) of each bar some mapping is faster and lacks memory alone."""
    _, memory = plot.breakdown(results).axes
    marks = [line for line in memory.lines if line.get_label() == BINDS]
    alone = results.where(results.infeasible_reason == 1).step_time.to_series().groupby(["tp", "pp"]).min()
    fitting = results.where(results.feasible).step_time.to_series().groupby(["tp", "pp"]).min()
    order = fitting.dropna().sort_values().index
    expected = [place for place, pair in enumerate(order) if alone[pair] < fitting[pair]]
    assert [place for line in marks for place in line.get_ydata()] == expected and len(expected) > 0
    fits = results.isel(mapping=np.flatnonzero(results.feasible))
    assert BINDS not in legend_texts(plot.breakdown(fits)), "what is not in the results is not told"


def test_memory_binds_by_hand():
    """Better and too large, of the same group, for memory alone; a worse one, or of another group, binds nothing."""
    columns = designs.columns(sweep_of(time=[3.0, 2.0, 1.0, 5.0, 4.0], reason=[0, 1, 3, 0, 1], tp=[1, 1, 1, 2, 2]))[0]
    assert memory_binds(columns, [0, 3]).tolist() == [True, True] and memory_binds(columns, []).tolist() == []
    columns = designs.columns(sweep_of(time=[3.0, 3.5, 1.0, 5.0, 4.0], reason=[0, 1, 2, 0, 0], tp=[1, 1, 1, 2, 1]))[0]
    assert memory_binds(columns, [0, 3]).tolist() == [False, False]
    assert not faster_than_fitting(columns).any()


def sweep_of(time, reason, tp):
    """Results of mappings with these step times, reasons and tensor-parallel sizes."""
    names = ("step_time", "peak_memory", "mfu", "tokens_per_second")
    variables = {name: ("mapping", np.array(time)) for name in names}
    variables |= {"feasible": ("mapping", np.array(reason) == 0), "infeasible_reason": ("mapping", np.array(reason))}
    return xr.Dataset(variables, {"tp": ("mapping", np.array(tp))}, {"study": "training"})


@pytest.mark.parametrize("order", [("step_time", "peak_memory"), ("peak_memory", "step_time")])
def test_a_front_over_memory_has_the_line_of_the_capacity(small_sweep, tmp_path, order):
    text = small_sweep.read_text()
    spec = tmp_path / "front.toml"
    spec.write_text(text.replace('minimize = "step_time"', f"minimize = {list(order)}"))
    front = dse.run(spec, output=False, keep="pareto")
    figure = plot.pareto(front)
    (axes,) = figure.axes
    assert texts(figure) == {"usable 78 GiB"} and float(front.attrs["memory_capacity_bytes"]) == 78 * 2.0**30
    (line,) = (line for line in axes.lines if line.get_linestyle() == "--")
    values = line.get_ydata() if order[1] == "peak_memory" else line.get_xdata()
    assert [*values] == [78.0, 78.0]
    assert_readable(figure)
    assert not texts(plot.pareto(front.assign_attrs(memory_capacity_bytes=0.0)))


def test_capacity_follows_from_what_fits():
    memory, reason = np.array([10.0, 79.9, 80.1, 200.0]), np.array([0, 2, 1, 3])
    assert designs.capacity(memory, reason) == pytest.approx(80.0)
    assert designs.capacity(memory[[0, 3]], reason[[0, 3]]) == 0.0, "too far apart to tell"
    assert designs.capacity(memory, None) == 0.0


def test_orthogonal_axes_show_the_best_point(results):
    slow = results.assign(step_time=("mapping", 2 * results.step_time.values))
    both = xr.concat([slow, results], xr.DataArray(["slow", "fast"], dims="variant", name="variant"))
    figure = plot.breakdown(both)
    assert figure.get_suptitle().splitlines()[0].replace("\u00a0", " ") == "a small sweep (variant fast)"
    fastest = float(results.step_time.where(results.feasible).min())
    assert any(f"{fastest:.2f} s" in text for text in texts(figure))


def test_of_several_workloads_the_one_of_most_tokens_a_second_is_shown(results):
    """The least work has the shortest step, whatever it gets done."""
    more = results.assign(step_time=("mapping", 2 * results.step_time.values))
    more = more.assign(tokens_per_second=("mapping", 1.5 * results.tokens_per_second.values))
    batches = xr.DataArray([64, 192], dims="batch", name="batch", attrs={"path": "workload.global_batch"})
    figure = plot.breakdown(xr.concat([results, more], batches))
    assert figure.get_suptitle().splitlines()[0].replace("\u00a0", " ") == "a small sweep (batch 192)"


def test_single_designs_can_be_drawn(results):
    kept = results.reset_index("mapping").isel(mapping=np.flatnonzero(results.feasible)).rename(mapping="design")
    assert plot.suited(kept) == ["breakdown"]
    for draw in (plot.breakdown, plot.pareto):
        assert draw(kept).axes


def test_best_of_each_point_can_be_drawn(results):
    rows = np.flatnonzero(results.feasible)[[0, 5]]
    kept = results.reset_index("mapping").isel(mapping=rows).rename(mapping="accelerator")
    kept = kept.drop_vars("infeasible_reason").assign_coords(accelerator=["one", "other"])
    assert {"one", "other", "accelerator"} <= texts(plot.breakdown(kept, within=10.0))


def test_a_capacity_that_is_none_is_not_drawn(results):
    unknown = results.drop_vars("infeasible_reason").assign_attrs(memory_capacity_bytes=-(2.0**31))
    assert not any("GiB" in text for text in texts(plot.breakdown(unknown)))


def test_labels_do_not_overlap(results):
    rows = np.flatnonzero(results.feasible)[:6]
    kept = results.reset_index("mapping").isel(mapping=rows).rename(mapping="accelerator")
    kept = kept.drop_vars("infeasible_reason").assign_coords(
        accelerator=[f"an-accelerator-with-a-long-name-{i}" for i in range(6)],
        scale_out=("accelerator", [f"infiniband-of-the-year-{2030 + i}" for i in range(6)]),
        chip_clock_ratio=("accelerator", np.linspace(0.5, 1.0, 6), {"units": "1"}),
    )
    figure = plot.breakdown(kept, within=100.0)
    assert len(figure.axes[0].texts) > 20
    assert_readable(figure)
    assert {"scale out", "clock ratio"} <= {text.replace("\n", " ") for text in texts(figure)}, "headings are short"


def test_what_all_rows_share_is_in_the_title(results):
    full = results.isel(mapping=np.flatnonzero((results.recompute == "full").values))
    figure = plot.breakdown(full)
    assert "same for all: " in figure.get_suptitle() and "recompute\u00a0full" in figure.get_suptitle()
    assert "recompute" not in texts(figure) and "tp" in texts(figure)


def test_front():
    generator = np.random.default_rng(1)
    time, memory = generator.integers(1, 20, (2, 200)).astype(float)
    front = designs.front(time, memory)
    for i in range(200):
        beaten = np.any((time <= time[i]) & (memory <= memory[i]) & ((time < time[i]) | (memory < memory[i])))
        assert ((time[i], memory[i]) in set(zip(time[front], memory[front], strict=True))) == (not beaten)


def test_nothing_feasible_is_told(results):
    nothing = results.assign(feasible=("mapping", np.zeros(results.sizes["mapping"], bool)))
    for draw in (plot.breakdown, plot.pareto):
        with pytest.raises(dse.InputError, match="no feasible design"):
            draw(nothing)


def test_missing_variable_is_told(results):
    with pytest.raises(dse.InputError, match="'mfu'"):
        plot.breakdown(results.drop_vars("mfu"))


@pytest.mark.parametrize("ending", ["png", "pdf"])
def test_same_results_same_file(results, tmp_path, ending):
    first, second = (plot.save(plot.breakdown(results), tmp_path / f"{i}.{ending}") for i in (1, 2))
    assert first.read_bytes() == second.read_bytes()
    if ending == "png":
        assert_drawn(first, plot.breakdown(results))


def test_svg_keeps_text_and_has_no_date(results, tmp_path):
    text = plot.save(plot.breakdown(results), tmp_path / "figure.svg").read_text()
    assert "peak memory (GiB)" in text and "<dc:date>" not in text


@pytest.mark.parametrize("name", ["figure.txt", "figure.eps", "figure.jpg", "figure"])
def test_unknown_ending_is_told(results, tmp_path, name):
    with pytest.raises(dse.InputError, match=r"allowed \.png \.svg \.pdf;"):
        plot.save(plot.pareto(results), tmp_path / name)


@pytest.mark.parametrize("ending", [*plot.ENDINGS, ".PDF"])
def test_every_ending_works(results, tmp_path, ending):
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    written = plot.save(plot.pareto(results), tmp_path / f"figure{ending}")
    assert written.read_bytes().startswith(starts[ending.lower()])


def test_unwritable_place_is_told(results, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(dse.InputError, match="file"):
        plot.save(plot.pareto(results), tmp_path / "file" / "figure.png")
