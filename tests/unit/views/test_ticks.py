"""Numbers of logarithmic axes: two or more whatever an axis spans, plain, and none on another."""

from __future__ import annotations

import numpy as np
import pytest

from dse.views.plot import style
from dse.views.plot.ticks import plain_ticks, tick_text
from tests.figures import assert_readable, visible_texts

#: Ends of axes: less than a tenth, less than a factor of two, a decade without a power of ten, many decades.
SPANS = [
    (3.66, 3.84), (0.97, 1.02), (11.0, 19.0), (3.0, 8.0), (51.0, 190.0), (4.1, 29.0), (18.0, 4000.0), (0.1, 45.0),
    (900.0, 1300.0), (2e-4, 0.9), (1e-9, 1e6), (0.013, 0.0131), (120_000.0, 3_400_000.0),
]  # fmt: skip


def drawn(low: float, high: float, width: float = style.COLUMN):
    """A figure of a column with both axes logarithmic between these ends, and the numbers of each."""
    with style.style():
        figure = style.new_figure(width, 2.4)
        axes = figure.subplots()
        axes.plot([low, high], [low, high])
        axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), xlabel="x (s)", ylabel="y (s)")
        plain_ticks(axes.xaxis, axes.yaxis)
        style.freeze_layout(figure)
    shown = {id(text) for text in visible_texts(figure)}
    return figure, [
        [label.get_text() for label in axis.get_majorticklabels() if id(label) in shown]
        for axis in (axes.xaxis, axes.yaxis)
    ]


@pytest.mark.parametrize(("low", "high"), SPANS)
def test_every_axis_has_numbers_that_can_be_read(low, high):
    figure, numbers = drawn(low, high)
    for texts in numbers:
        assert 2 <= len(texts) <= 6 and len(set(texts)) == len(texts), texts
        values = [float(text.replace(",", "")) for text in texts]
        assert all(low * (1 - 1e-6) <= value <= high * (1 + 1e-6) for value in values)
        assert low < 1e-4 or not any("e" in text for text in texts), texts
    assert_readable(figure)


@pytest.mark.parametrize(("low", "high"), [(18.0, 4000.0), (5.0, 48.0), (51.0, 190.0)])
def test_numbers_stand_along_the_whole_axis(low, high):
    _, numbers = drawn(low, high)
    for texts in numbers:
        places = np.log([low, *(float(text.replace(",", "")) for text in texts), high]) / np.log(high / low)
        assert np.diff(places).max() < 0.4, texts


def test_a_narrow_axis_has_fewer_numbers():
    wide, narrow = (len(drawn(1000.0, 30_000.0, width)[1][0]) for width in (style.PAGE, 1.6))
    assert 2 <= narrow < wide


def test_letters_of_another_size_have_their_room():
    with style.style():
        figure = style.new_figure(style.COLUMN, 2.4)
        axes = figure.subplots()
        axes.plot([18.0, 4000.0], [1.0, 2.0])
        axes.set(xscale="log", xlabel="x (s)", ylabel="y (s)")
        axes.tick_params(labelsize=16)
        plain_ticks(axes.xaxis)
    assert_readable(figure)


def test_numbers_are_written_out():
    texts = ["0.0001", "0.3", "20", "1,500", "2,000,000"]
    assert [tick_text(value) for value in (0.0001, 0.3, 20.0, 1500.0, 2e6)] == texts
