"""Pictures of schedules: boxes where passes run, waits white, mean colours where passes are too many for boxes."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from typer.testing import CliRunner

import dse
from dse.cli import app
from dse.errors import InputError
from dse.views import plot
from dse.views.plot.timeline import _COLOURS, _boxes, _mean_colours
from dse.views.trace import PassKind, schedule_step
from tests.figures import assert_drawn, assert_readable, legend_texts

SCHEDULES = {
    "GPipe": {"schedule": "gpipe"},
    "1F1B": {},
    "interleaved": {"virtual_stages": 2},
    "zero bubble": {"schedule": "zb-h1"},
}
STAGES, MICRO_BATCHES = 4, 8


@pytest.fixture(scope="module")
def steps():
    fixed = {"n_devices": 32, "tp": 8, "pp": STAGES, "micro_batch": 1, "global_batch": MICRO_BATCHES}
    return {
        name: schedule_step(dse.design("gpt-3-175b", "selene", "megatron-core-te", any_option=True, **fixed | changes))
        for name, changes in SCHEDULES.items()
    }


@pytest.fixture(scope="module")
def figure(steps):
    return plot.timeline(steps)


def test_every_pass_is_a_box_at_its_stage_and_time(steps, figure):
    for axes, step in zip(figure.axes, steps.values(), strict=True):
        (boxes,) = [one for one in axes.collections if isinstance(one, PolyCollection)]
        spans = sorted((round(path.vertices[:, 1].mean()), *path.get_extents().intervalx) for path in boxes.get_paths())
        events = [event for event in step.timeline.events if len(event.slot) == 1]
        expected = sorted((event.device, event.start + event.received, event.end) for event in events)
        # the mean of the closed path counts its first corner twice: rounding leaves the stage
        np.testing.assert_allclose(np.sort(spans, axis=0), np.sort(expected, axis=0), rtol=1e-9)


def test_panels_share_time_and_are_readable(steps, figure, tmp_path):
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(SCHEDULES)
    assert {axes.get_xlim() for axes in figure.axes} == {(0.0, max(step.total for step in steps.values()))}
    assert {"forward", "backward", "weight gradient", "critical path"} <= set(legend_texts(figure))
    assert_readable(figure)
    assert_drawn(plot.save(figure, tmp_path / "t.png"), figure)


def test_path_ends_with_the_last_pass(steps, figure):
    for axes, step in zip(figure.axes, steps.values(), strict=True):
        assert axes.lines[-1].get_xdata()[-1] == pytest.approx(step.timeline.makespan)
    assert not plot.timeline(steps["1F1B"], critical_path=False).axes[0].lines


def test_mean_colours_keep_the_time_of_passes(steps):
    """The darkness of a row is that of its passes by their share of the span: 8 forwards and 8 backwards a stage."""
    step = steps["1F1B"]
    start, end = 0.0, step.timeline.makespan
    picture = _mean_colours(_boxes(step, start, end), STAGES, start, end)
    durations = step.durations
    for stage in range(STAGES):
        seconds = {
            PassKind.forward: durations.forward[stage],
            PassKind.backward: durations.input_gradient[stage] + durations.weight_gradient[stage],
        }
        dark = sum(MICRO_BATCHES * time * (1.0 - np.array(to_rgb(_COLOURS[kind][0]))) for kind, time in seconds.items())
        np.testing.assert_allclose((1.0 - picture[stage]).mean(axis=0), dark / (end - start), rtol=1e-3)


def test_a_span_of_time_is_drawn_alone(steps):
    half = 0.5 * steps["1F1B"].timeline.makespan
    boxes = _boxes(steps["1F1B"], 0.0, half)
    assert 0 < len(boxes.kind) < 2 * STAGES * MICRO_BATCHES and (boxes.start <= half).all()
    assert plot.timeline(steps["1F1B"], 0.0, half).axes[0].get_xlim() == (0.0, half)
    assert _boxes(steps["1F1B"], 1e9, 2e9).kind == []


def test_many_stages_are_a_picture():
    design = dse.design(
        "megatron-1t", "selene", n_devices=512, tp=8, pp=64, micro_batch=1, global_batch=64, virtual_stages=1
    )
    axes = plot.timeline(schedule_step(design)).axes[0]
    assert len(axes.images) == 1 and not [one for one in axes.collections if isinstance(one, PolyCollection)]


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_the_command_writes_a_picture_by_the_ending(ending, tmp_path):
    path = tmp_path / f"step{ending}"
    words = ["trace", "-w", "gpt-3-13b", "-s", "selene", "-n", "16", "-o", str(path)]
    words += [word for setting in ("tp=8", "pp=2", "global_batch=4") for word in ("--set", setting)]
    ended = CliRunner().invoke(app, words, prog_name="dse")
    assert ended.exit_code == 0 and ended.stdout.endswith(f"\n{path}\n")
    if ending == ".png":
        assert_drawn(path)
    assert path.stat().st_size > 1000


def test_a_span_of_time_without_passes_is_white_and_none_is_refused():
    design = dse.design("gpt-3-175b", "selene", n_devices=192, tp=8, pp=24, global_batch=24, micro_batch=1)
    step = schedule_step(design)
    after = plot.timeline(step, start=1.5 * step.total, end=2.0 * step.total).axes[0]
    assert (after.images[0].get_array() == 1.0).all()
    for steps, start, end in (({}, 0.0, None), (step, 0.0, 0.0), (step, 2.0 * step.total, None)):
        with pytest.raises(InputError):
            plot.timeline(steps, start, end)


def test_a_picture_is_of_no_other_format(tmp_path):
    words = ["trace", "-w", "gpt-3-13b", "-s", "selene", "-n", "16", "-o", str(tmp_path / "step.svg")]
    ended = CliRunner().invoke(app, [*words, "--format", "kineto"], prog_name="dse")
    assert ended.exit_code and "leave out --format" in ended.stderr and not list(tmp_path.iterdir())
