"""Whole workers of a service: output tokens/s per device over tokens/s per user, pools and engines that do both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dse.views.plot.style import COLUMN, THIN, canvas, figure_of, series

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
    looks: dict[str, Any] = {"titles": [found.title], "panels": 2 * _HEIGHT, "legend": {}, "sharex": True}
    with canvas(COLUMN, 2 * _HEIGHT, (2, 1), **looks) as (throughput_axes, latency_axes):
        for name, does_both in kinds.items():
            kind_fleets = [fleet for fleet in found.fleets if (fleet.match.decode is None) is does_both]
            if not kind_fleets:
                continue
            per_user = np.array([1.0 / fleet.token for fleet in kind_fleets])
            per_device = np.array([fleet.rate * found.output_tokens / fleet.devices for fleet in kind_fleets])
            best = [
                i for i in range(len(per_user)) if not ((per_user >= per_user[i]) & (per_device > per_device[i])).any()
            ]
            first = np.array([fleet.first_token for fleet in kind_fleets])
            for axes, values, label in ((throughput_axes, per_device, name), (latency_axes, first, None)):
                axes.plot(per_user[best], values[best], label=label, **THIN, **style_by_kind[name])
        throughput_axes.set(ylabel="output tokens/s per device", ylim=(0.0, None))
        latency_axes.set(xlabel="output tokens/s per user", ylabel="time to first token, s", ylim=(0.0, None))
    return figure_of(throughput_axes)
