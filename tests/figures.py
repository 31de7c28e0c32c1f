"""What a reader sees of a figure: its texts, where they stand, and the bars."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text
from matplotlib.transforms import Bbox

#: Pixels by which boxes may touch: letters do not fill theirs.
TOUCH = 1.0


def visible_texts(figure: Figure) -> list[Text]:
    """All texts that are drawn: titles, labels, ticks inside the limits, annotations, legends."""
    figure.draw_without_rendering()  # texts and ticks are where they would be drawn
    hidden = {id(text) for axes in figure.axes for text in _ticks_outside(axes)}
    texts = figure.findobj(Text)
    return [text for text in texts if text.get_visible() and text.get_text().strip() and id(text) not in hidden]


def _ticks_outside(axes: Axes) -> Iterator[Text]:
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        slack = 1e-9 * (high - low)
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
            if not low - slack <= tick.get_loc() <= high + slack:
                yield from (tick.label1, tick.label2)


def boxes(figure: Figure) -> list[tuple[str, Bbox]]:
    """Every visible text with its box in pixels."""
    renderer = figure.canvas.get_renderer()
    return [(text.get_text(), text.get_window_extent(renderer)) for text in visible_texts(figure)]


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts of which one covers the other."""
    return _overlapping(boxes(figure))


def _overlapping(texts: list[tuple[str, Bbox]]) -> list[tuple[str, str]]:
    found = [(text, box.padded(-TOUCH)) for text, box in texts]
    return [(a, b) for i, (a, box) in enumerate(found) for b, other in found[:i] if box.overlaps(other)]


def cut_off(figure: Figure) -> list[str]:
    """Texts that reach beyond the canvas."""
    return _beyond(figure, boxes(figure))


def _beyond(figure: Figure, texts: list[tuple[str, Bbox]]) -> list[str]:
    width, height = figure.get_size_inches() * figure.dpi
    return [
        text
        for text, box in texts
        if box.x0 < -TOUCH or box.y0 < -TOUCH or box.x1 > width + TOUCH or box.y1 > height + TOUCH
    ]


def assert_readable(figure: Figure) -> None:
    """No text covers another or leaves the canvas, and every axis with numbers says what they are."""
    texts = boxes(figure)
    assert not _overlapping(texts)
    assert not _beyond(figure, texts)
    for axes in figure.axes:
        assert axes.get_xlabel() or any(other.get_xlabel() for other in _below(axes)), "numbers without a name"


def _below(axes: Axes) -> list[Axes]:
    """Axes of the same column."""
    left = axes.get_position().x0
    return [other for other in axes.figure.axes if abs(other.get_position().x0 - left) < 0.05]


def bar_widths(axes: Axes) -> dict[str, list[float]]:
    """Label of the legend → widths of its bars, from the top."""
    return {bars.get_label(): [bar.get_width() for bar in bars] for bars in axes.containers}


def legend_texts(figure: Figure) -> list[str]:
    """What the legends of a figure and its axes say."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes if axes.get_legend())]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


def assert_drawn(path: Path, figure: Figure | None = None) -> None:
    """A picture file opens, has the figure's shape where that is known, and shows something on white."""
    pixels = imread(path)[..., :3]
    if figure is not None:
        np.testing.assert_allclose(pixels.shape[1::-1], 200 * figure.get_size_inches(), atol=1.0)
    inked = float((pixels.min(axis=-1) < 0.9).mean())
    assert 0.01 < inked < 0.7, f"{inked:.1%} of {path.name} is inked"
