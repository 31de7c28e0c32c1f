"""Whole workers of a service: output tokens/s per device over tokens/s per user, pools and engines that do both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.views.plot.style import COLUMN, freeze_layout, legend_below, new_figure, series, set_title, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dse.fleet import MatchedPools

#: Height in inches.
_HEIGHT = 3.0


def fleets(found: MatchedPools) -> Figure:
    """Draw output tokens/s per device and the time to first token over output tokens/s per user.

    Args:
        found: of :func:`dse.fleet.pools.match`, with whole workers.

    Returns:
        The figure: a curve of pools and one of engines that do both.
    """
    kinds = {"prefill and decode pools": False, "engines that do both": True}
    style_by_kind = series([*kinds])
    with style():
        figure = new_figure(width=COLUMN, height=2 * _HEIGHT)
        throughput_axes, latency_axes = figure.subplots(2, 1, sharex=True)
        for name, does_both in kinds.items():
            kind_fleets = [fleet for fleet in found.fleets if (fleet.match.decode is None) is does_both]
            if not kind_fleets:
                continue
            per_user = np.array([1.0 / fleet.token for fleet in kind_fleets])
            per_device = np.array([fleet.rate * found.output_tokens / fleet.devices for fleet in kind_fleets])
            best = [
                i
                for i in range(len(kind_fleets))
                if not ((per_user >= per_user[i]) & (per_device > per_device[i])).any()
            ]
            throughput_axes.plot(
                per_user[best], per_device[best], label=name, markersize=3.2, linewidth=1.3, **style_by_kind[name]
            )
            first = [kind_fleets[i].first_token for i in best]
            latency_axes.plot(per_user[best], first, markersize=3.2, linewidth=1.3, **style_by_kind[name])
        throughput_axes.set(ylabel="output tokens/s per device", ylim=(0.0, None))
        latency_axes.set(xlabel="output tokens/s per user", ylabel="time to first token, s", ylim=(0.0, None))
        legend_below(figure, *throughput_axes.get_legend_handles_labels())
        set_title(figure, found.title)
        freeze_layout(figure, 2 * _HEIGHT)
    return figure
