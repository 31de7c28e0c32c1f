"""Power limits and clocks as a figure: energy against the clock, time and power against the limit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibration.power import FittedChip
from dse.designs import leaf
from dse.measured.energy import CLOCKS_HZ
from dse.measured.prediction import evaluate_many
from dse.views.plot import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#08519c", "#a63603", "#238b45", "#6a51a3")
_LIMIT = "system.accelerator.power.limit"


def draw(found: Sequence[FittedChip], path: Path) -> None:
    """Draw all studies to ``path``."""
    with style.style():
        figure = style.new_figure(10.0, 3.4)
        clock, time, power = figure.subplots(1, 3)
        _draw_clocks(clock, [one for one in found if one.rows.studies[0].has_clock_designs])
        limits = [one for one in found if not one.rows.studies[0].has_clock_designs]
        _draw_limits(time, limits, "relative_time", "time over that under the highest limit")
        _draw_limits(power, limits, "relative_power", "power over that under the highest limit")
        for axes in (clock, time, power):
            axes.tick_params(labelsize=7)
        style.save(figure, path, force=True)


def _draw_clocks(axes: Axes, found: Sequence[FittedChip]) -> None:
    """Energy over that at the fastest clock; a circle is the measured saving at its measured loss of time."""
    for one in found:
        for index, (study, colour) in enumerate(zip(one.rows.fitted_studies(one.fit), _COLOURS, strict=False)):
            metrics = evaluate_many(study.designs)
            times, energies = metrics["step_time"], metrics["step_time"] * metrics["device_power"]
            label = f"{study.group[1]}, {study.group[2]} tokens"
            axes.plot(1e-6 * CLOCKS_HZ, energies / energies[-1], color=colour, linewidth=1.2, label=label)
            measured = {f.metric: f.measured for f in one.rows.figures if f.study == index}
            at = int(np.argmin(np.abs(times / times[-1] - measured["relative_time"])))
            axes.scatter([1e-6 * CLOCKS_HZ[at]], [measured["relative_energy"]], color=colour, s=26, zorder=3)
    axes.axvspan(620.0, 1030.0, color="#f0f0f0", zorder=0)
    axes.set_ylim(0.6, 1.6)
    axes.set_xlabel("clock of the cores in MHz", fontsize=8)
    axes.set_ylabel("energy relative to the fastest clock", fontsize=8)
    axes.set_title("A30, one decoder layer (line: model; dot: measured)", fontsize=8)
    axes.legend(fontsize=6.5, frameon=False)


def _draw_limits(axes: Axes, found: Sequence[FittedChip], metric: str, label: str) -> None:
    """Measured figures as dots, and the mean of those predicted without the batch as a line."""
    for one, colour, shift in zip(found, _COLOURS, (-1.5, 1.5), strict=False):
        picks = [i for i, figure in enumerate(one.rows.figures) if figure.metric == metric]
        limits = np.array([float(leaf(one.rows.studies[one.rows.figures[i].study].designs[0], _LIMIT)) for i in picks])
        measured = np.array([one.rows.figures[i].measured for i in picks])
        predicted = measured * np.exp(one.unseen[picks])
        known = sorted(set(limits))
        low, mean, high = ([f(predicted[limits == x]) for x in known] for f in (np.min, np.mean, np.max))
        axes.fill_between(known, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(known, mean, color=colour, linewidth=1.2, label=f"{one.slug}, model")
        axes.scatter(limits + shift, measured, color=colour, s=7, linewidths=0, label=f"{one.slug}, measured")
    axes.set_xlabel("power limit in W", fontsize=8)
    axes.set_ylabel(label, fontsize=8)
    axes.set_title("BERT-base fine-tuning, every batch", fontsize=8)
    axes.legend(fontsize=6.5, frameon=False)
