"""Ticks of logarithmic axes: plain numbers, at least two, as many as fit.

Imported without matplotlib, as all figures are, whose colours pages have.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from dse.views.plot.style import text_width

if TYPE_CHECKING:
    from matplotlib.axis import Axis

#: Numbers per decade, from few to many; and steps of decades where these are too many.
_DECADES = ((1, 2, 5), (1, 3), (1,), (1, 1.5, 2, 3, 5, 7), (1, 2, 3, 4, 5, 6, 7, 8, 9))
_STRIDES = (2, 3, 5, 10)

#: Maximum numbers per axis; inches between two of them; lines of text between them on a vertical axis.
_MOST, _GAP, _LINES = 6, 0.09, 1.5


def plain_ticks(*axes: Any) -> None:
    """Set at least two plain numbers, not powers of ten, as ticks of logarithmic axes.

    Args:
        axes: axis objects of matplotlib (``axes.xaxis``).
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for axis in axes:
        axis.set_major_locator(_plain_locator()())
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value)))
        low, high = axis.get_view_interval()
        axis.set_minor_locator(LogLocator(subs="all", numticks=100) if high > 10.0 * low else NullLocator())
        axis.set_minor_formatter(NullFormatter())


def tick_text(value: float) -> str:
    """Format a number of an axis, without an exponent where readable."""
    return f"{value:,.10g}" if value >= 1e-4 else f"{value:.3g}"


@functools.cache
def _plain_locator() -> type:
    """Return the class of locators of plain ticks; its base, matplotlib's, is imported here."""
    from matplotlib.ticker import Locator

    class PlainLocator(Locator):
        """Ticks at round numbers with the shortest gap without any."""

        def __call__(self) -> np.ndarray:  # type: ignore[override]
            """Ticks of the current view."""
            return self.tick_values(*self.axis.get_view_interval())  # type: ignore[union-attr]

        def tick_values(self, vmin: float, vmax: float) -> np.ndarray:  # type: ignore[override]
            """Ticks between two ends."""
            return _ticks(self.axis, *sorted((vmin, vmax)))  # type: ignore[arg-type]

    return PlainLocator


def _ticks(axis: Axis, low: float, high: float) -> np.ndarray:
    """Return the values of the ticks between two ends that leave the shortest gap and whose numbers fit."""
    candidates = [values for values in _candidates(low, high) if 2 <= len(values) <= _MOST]
    if fitting := [values for values in candidates if _fits(axis, values, low, high)]:
        return min(fitting, key=lambda values: (_longest_gap(values, low, high), len(values)))
    return min(candidates, key=len, default=np.array([low, high]))


def _fits(axis: Axis, values: np.ndarray, low: float, high: float) -> bool:
    """Return True if the numbers of all ticks fit side by side on a logarithmic axis."""
    axes = axis.axes
    box, is_x = axes.get_window_extent(), axis is axes.xaxis
    inches = (box.width if is_x else box.height) / axes.figure.dpi
    places = np.log(values / low) / np.log(high / low) * inches
    size = float(axis.majorTicks[0].label1.get_fontsize())
    if not is_x:
        return bool(np.diff(places).min() >= _LINES * size / 72.0)
    widths = np.array([text_width(axes.figure, tick_text(value), size) for value in values.tolist()])
    return bool((np.diff(places) >= (widths[1:] + widths[:-1]) / 2.0 + _GAP).all())


def _candidates(low: float, high: float) -> Iterator[np.ndarray]:
    """Yield arrays of candidate ticks: the same per decade, every few decades, or in even steps."""
    from matplotlib.ticker import MaxNLocator

    if not 0.0 < low < high:
        return
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for numbers in _DECADES:
        yield _in_range(np.outer(10.0**decades, numbers).ravel(), low, high)
    for stride in _STRIDES:
        yield _in_range(10.0 ** decades[decades % stride == 0], low, high)
    for count in range(2, _MOST + 1):
        yield _in_range(np.asarray(MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)), low, high)


def _longest_gap(values: np.ndarray, low: float, high: float) -> float:
    """Return the longest gap without a number, as a share of the logarithmic axis in hundredths."""
    places = np.log(np.concatenate([[low], values, [high]]) / low) / np.log(high / low)
    return round(float(np.diff(places).max()), 2)


def _in_range(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the positive values between two ends, ends included."""
    slack = 1e-9 * (high - low)
    return values[(values >= low - slack) & (values <= high + slack) & (values > 0.0)]
