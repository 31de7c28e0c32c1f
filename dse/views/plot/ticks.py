"""Ticks of logarithmic axes; imported without matplotlib, as all figures are, whose colours pages have."""

from __future__ import annotations

from typing import Any


def plain_ticks(*axes: Any) -> None:
    """At least two plain numbers, not powers of ten, on logarithmic axes; even steps below a decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    from dse.views.plot.locator import PlainLocator, written

    for axis in axes:
        axis.set_major_locator(PlainLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: written(value)))
        least, most = axis.get_view_interval()
        axis.set_minor_locator(LogLocator(subs="all", numticks=100) if most > 10.0 * least else NullLocator())
        axis.set_minor_formatter(NullFormatter())
