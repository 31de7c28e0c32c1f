"""Timelines of training steps as pictures: the passes of every stage, one panel a schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dse.errors import InputError
from dse.views.plot.style import INK, PAGE, PARTS, freeze_layout, legend_below, new_figure, style
from dse.views.trace import PassKind

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from dse.views.trace import ScheduledStep

#: Kind of pass → colours of its chunks in turn, dark and light: blue forward, brown and orange backward.
_COLOURS = {
    PassKind.forward: ("#0e306e", "#5b8fd4"),
    PassKind.backward: ("#7a2b00", "#d8791f"),
    PassKind.input_gradient: ("#7a2b00", "#d8791f"),
    PassKind.weight_gradient: ("#076344", "#4f9d78"),
}

#: Parts of a step after its last pass.
_ENDS = ("synchronization", "data_parallel", "optimizer")

#: Inches of a row of a stage and of a panel at most, and of the texts of a panel.
_ROW, _MOST_PANEL, _TEXTS = 0.17, 1.4, 0.45

#: Points of the numbers of micro-batches, and inches of a pass that has room for one.
_NUMBER, _ROOM = 5.0, 0.07

#: Stages and passes up to which every pass is a box; beyond, a picture has their mean colours in so many columns.
_MOST_ROWS, _MOST_BOXES, _COLUMNS = 16, 3000, 1200

#: Share of the axis of time below which a part after the passes is not in the legend.
_VISIBLE = 3e-3


class _Boxes(NamedTuple):
    """Passes of a step in a span of time, an entry each."""

    kind: list[PassKind]
    chunk: list[int]  #: of its stage
    micro_batch: list[int]
    stage: list[int]
    start: np.ndarray  #: s
    end: np.ndarray  #: s

    @property
    def colours(self) -> list[str]:
        """Colours of the passes."""
        return [_COLOURS[kind][chunk % 2] for kind, chunk in zip(self.kind, self.chunk, strict=True)]


def timeline(
    steps: Mapping[str, ScheduledStep] | ScheduledStep,
    start: float = 0.0,
    end: float | None = None,
    critical_path: bool = True,
) -> Figure:
    """Draw the passes of every stage over time, a panel a schedule and a row a stage, all on one axis of time.

    Forward and backward passes have a colour each, which chunks of a stage take in turn dark and light; passes wide
    enough have the number of their micro-batch, from 1. Of thousands of passes the picture has the mean colours. White
    is waiting. After the last pass stand the wait for other replicas, exposed messages of data parallelism and the
    optimiser. The line is the critical path: each of its passes starts when the one before it ends.

    Args:
        steps: title → step of :func:`dse.views.trace.schedule_step`, or a single one.
        start: s from the start of the step, where the axis begins.
        end: s from the start of the step, where it ends; by default the end of the longest step.
        critical_path: whether to draw it.

    Returns:
        The figure, one panel a schedule from top to bottom.

    Raises:
        InputError: without steps, and for an end that is not after the start.

    >>> import dse
    >>> from dse.views.trace import schedule_step
    >>> design = dse.design("gpt-3-175b", "selene", n_devices=64, tp=8, pp=4, global_batch=16, micro_batch=1)
    >>> len(timeline({"1F1B": schedule_step(design)}).axes)
    1
    """
    panels = dict(steps) if isinstance(steps, Mapping) else {"": steps}
    if not panels:
        raise InputError("steps", "none", "a step or more", "pass steps of dse.views.trace.schedule_step")
    last = max(step.total for step in panels.values()) if end is None else end
    if not last > start:
        raise InputError("end", f"{last:g} s", f"more than the start, {start:g} s", "pass a later end")
    heights = [_panel_height(len(step.plan.orders)) for step in panels.values()]
    with style():
        figure = new_figure(PAGE, sum(heights) + _TEXTS * len(panels))
        rows = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for axes, (title, step) in zip(rows, panels.items(), strict=True):
            _draw_step(axes, step, start, last)
            if critical_path:
                _draw_path(axes, step)
            stages = len(step.plan.orders)
            axes.set(xlim=(start, last), ylim=(stages - 0.4, -0.6), ylabel="stage")
            axes.set_title(title, loc="left")
            axes.set_yticks(range(stages) if stages <= 8 else [0, stages // 2 - 1, stages - 1])
        rows[-1].set_xlabel("time from the start of the step (s)")
        legend_below(figure, *_legend(list(panels.values()), start, last, critical_path), most=6)
        return freeze_layout(figure)


def _panel_height(stages: int) -> float:
    """Return the inches of a panel of so many stages."""
    return min(_ROW * max(stages, 3), _MOST_PANEL)


def _boxes(step: ScheduledStep, start: float, end: float) -> _Boxes:
    """Return the passes between two times (s); of a pair in one slot each has half of its time."""
    stages = len(step.plan.orders)
    rows = []
    for event in step.timeline.events:
        if event.end < start or event.start > end:
            continue
        begin = event.start + event.received
        share = (event.end - begin) / len(event.slot)
        rows += [
            (
                task.kind,
                task.chunk // stages,
                task.micro_batch,
                event.device,
                begin + place * share,
                begin + (place + 1) * share,
            )
            for place, task in enumerate(event.slot)
        ]
    kind, chunk, micro_batch, stage, starts, ends = map(list, zip(*rows, strict=True)) if rows else ([],) * 6
    return _Boxes(kind, chunk, micro_batch, stage, np.array(starts), np.array(ends))


def _draw_step(axes: Axes, step: ScheduledStep, start: float, end: float) -> None:
    """Draw the passes of a step, and the parts after them, between two times (s)."""
    boxes, stages = _boxes(step, start, end), len(step.plan.orders)
    is_fine = stages <= _MOST_ROWS and len(boxes.kind) <= _MOST_BOXES
    if is_fine:
        _draw_boxes(axes, boxes, start, end)
    else:
        extent = (start, end, stages - 0.5, -0.5)
        axes.imshow(_mean_colours(boxes, stages, start, end), extent=extent, aspect="auto", interpolation="nearest")
    begin = step.timeline.makespan
    for name in _ENDS:
        seconds: float = getattr(step, name)
        if seconds:
            bottom, height = (np.arange(stages) - 0.45, 0.9) if is_fine else ([-0.5], stages)
            axes.bar([begin] * len(bottom), height, seconds, bottom, align="edge", **PARTS[name].fill)
        begin += seconds


def _draw_boxes(axes: Axes, boxes: _Boxes, start: float, end: float) -> None:
    """Draw every pass as a box, with the number of its micro-batch where there is room."""
    from matplotlib.collections import PolyCollection

    top, bottom = np.array(boxes.stage) - 0.45, np.array(boxes.stage) + 0.45
    corners = [(boxes.start, top), (boxes.end, top), (boxes.end, bottom), (boxes.start, bottom)]
    shapes = np.array(corners).transpose(2, 0, 1)
    axes.add_collection(PolyCollection(list(shapes), facecolor=boxes.colours, edgecolor="white", linewidth=0.3))
    inches = 0.9 * PAGE * (boxes.end - boxes.start) / (end - start)
    for place in np.flatnonzero((inches > _ROOM) & (boxes.start >= start) & (boxes.end <= end)):
        axes.text(
            (boxes.start[place] + boxes.end[place]) / 2,
            boxes.stage[place],
            str(boxes.micro_batch[place] + 1),
            ha="center",
            va="center",
            size=_NUMBER,
            color=INK if boxes.chunk[place] % 2 else "white",
        )


def _mean_colours(boxes: _Boxes, stages: int, start: float, end: float) -> np.ndarray:
    """Return (stages, columns, 3) colours from 0 to 1: means over the time of a column, white where a stage waits."""
    from matplotlib.colors import to_rgb

    if not boxes.kind:
        return np.ones((stages, _COLUMNS, 3))
    darkness = 1.0 - np.array([to_rgb(colour) for colour in boxes.colours])
    edges = (np.stack([boxes.start, boxes.end]) - start) / (end - start) * _COLUMNS
    steps = np.zeros((stages, _COLUMNS + 2, 3))  # second differences of the darkness that is summed up to a column
    for edge, sign in zip(np.clip(edges, 0.0, _COLUMNS), (1.0, -1.0), strict=True):
        column = np.floor(edge).astype(int)
        inside = (edge - column)[:, None]
        np.add.at(steps, (boxes.stage, column), sign * (1.0 - inside) * darkness)
        np.add.at(steps, (boxes.stage, column + 1), sign * inside * darkness)
    return np.clip(1.0 - np.cumsum(steps, axis=1)[:, :_COLUMNS], 0.0, 1.0)


def _draw_path(axes: Axes, step: ScheduledStep) -> None:
    """Draw the critical path through the passes of a step, below the numbers."""
    path = step.timeline.critical_path(step.plan.chunks)
    offset = 0.3 if len(step.plan.orders) <= _MOST_ROWS else 0.0
    points = [(time, event.device + offset) for event in path for time in (event.start, event.end)]
    for colour, width in (("white", 2.4), (INK, 1.2)):
        axes.plot(*zip(*points, strict=True), color=colour, linewidth=width, solid_joinstyle="round")


def _legend(steps: Iterable[ScheduledStep], start: float, end: float, path: bool) -> tuple[list[Artist], list[str]]:
    """Return handles and labels of what the panels show between two times (s)."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: dict[str, Artist] = {}
    for step in steps:
        kinds = {task.kind for event in step.timeline.events for task in event.slot}
        chunks = 2 if step.plan.chunks > len(step.plan.orders) else 1
        for kind in (kind for kind in _COLOURS if kind in kinds):
            for place in range(chunks):
                label = f"{kind}{', every other chunk' if place else ''}"
                handles.setdefault(label, Patch(facecolor=_COLOURS[kind][place], edgecolor="white"))
    for step in steps:
        for name in _ENDS:
            if getattr(step, name) > _VISIBLE * (end - start) and step.timeline.makespan < end:
                handles[PARTS[name].label] = Patch(**PARTS[name].fill)
    if path:
        handles["critical path"] = Line2D([], [], color=INK, linewidth=1.2)
    return list(handles.values()), list(handles)
