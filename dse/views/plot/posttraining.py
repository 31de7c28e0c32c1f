"""Post-training: seconds of a step by part and mode, and the step over the devices of the trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dse.views.plot.style import COLUMN, POSTTRAINING_PARTS, THIN, canvas, figure_of, series, stack_bars

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

#: Height of a panel in inches.
_HEIGHT = 2.4


def posttraining(best: xr.Dataset, splits: xr.Dataset) -> Figure:
    """Draw a bar of parts for each mode's pools, and the step time over the devices of the trainer.

    Args:
        best: the best step of each mode, of :func:`dse.lab.rl.posttraining.plan_rl`.
        splits: steps of every split, likewise.

    Returns:
        The figure; what a bar lacks to its step time is idle.
    """
    bars = [
        (str(mode), pool)
        for mode in best.mode.values
        for pool in (("",) if mode == "colocated" else ("rollout", "trainer"))
    ]
    lengths = {
        part: np.array([_part_seconds(best, mode, pool, part) for mode, pool in bars]) for part in POSTTRAINING_PARTS
    }
    titles = [str(splits.attrs["title"])]
    with canvas(COLUMN, 2 * _HEIGHT, (2, 1), titles=titles, panels=2 * _HEIGHT, legend={}) as (top, below):
        parts = {look.label: (lengths[part], look.colour) for part, look in POSTTRAINING_PARTS.items()}
        stack_bars(top, range(len(bars)), {label: part for label, part in parts.items() if part[0].any()}, 0.8)
        top.set_yticks(range(len(bars)), [f"{mode} {pool}".strip() for mode, pool in bars])
        top.invert_yaxis()
        top.set(xlabel="seconds of a step")
        modes = [str(mode) for mode in dict.fromkeys(splits.mode.values)]
        for mode, line_style in series(modes).items():
            mode_splits = splits.isel(point=np.flatnonzero(splits.mode.values == mode))
            below.plot(mode_splits.training_devices, mode_splits.step_time, label=mode, **THIN, **line_style)
        below.set(xlabel="devices of the trainer", ylabel="step time, s", ylim=(0.0, None))
    return figure_of(top)


def _part_seconds(best: xr.Dataset, mode: str, pool: str, part: str) -> float:
    """Return the seconds of a part of a mode's step on one of its pools ("": both), 0 where it is another pool's."""
    is_rollout_part = part in ("rollout", "reward", "weights")
    busy = not pool or part == "weights" or is_rollout_part == (pool == "rollout")
    return float(best[f"step_time_{part}"].values[best.mode.values == mode][0]) if busy else 0.0
