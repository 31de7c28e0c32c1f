"""Intervals of a design's metrics with what makes them wide: levels, drawn leaves, prices."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from dse.doors.study import Study
from dse.doors.study_training import TRAINING
from dse.measured.uncertainty import bills, distance
from dse.measured.uncertainty.distance import Levels
from dse.measured.uncertainty.parts import MetricInterval, Uncertainty, carved, figure_of, interval, moves, parts_of
from dse.measured.uncertainty.spreads import Spreads, group_of, spreads_of, total, within
from dse.types import Design


def has_interval(metric: str, study: Study) -> bool:
    """Whether a metric has an interval: a figure that is measured, or money, carbon or a run that follow from one."""
    return metric in study.units and (figure_of(metric, study) is not None or metric in bills.METRICS)


class Judged(NamedTuple):
    """Intervals of a design's metrics, and what they are wide by."""

    bounds: dict[str, MetricInterval]
    parts: dict[str, dict[str, float]]  #: metric → part → standard deviation of its log error

    def reasons(self, metric: str, count: int = 3) -> dict[str, float]:
        """The parts of a metric with the largest share of the variance, largest first."""
        squares = {name: part**2 for name, part in self.parts.get(metric, {}).items() if part}
        total = sum(squares.values())
        return {name: square / total for name, square in sorted(squares.items(), key=lambda item: -item[1])[:count]}


def intervals(
    design: Design, metrics: Mapping[str, float], software: str, study: Study = TRAINING, accelerator: str = "",
    model: str = "", system: str = "", stated: Collection[str] = (),
) -> Judged:  # fmt: skip
    """80 % intervals of the metrics that have one.

    Args:
        design: the design.
        metrics: metric → value in SI units.
        software: the stack, by its name in the catalogue.
        study: study of the design.
        accelerator: its slug; "" where unknown.
        model: name of its model; "" where unknown.
        system: whose networks it has, by its name in the catalogue; by default the accelerator's usual node.
        stated: paths of prices and the like that are known, and so have no spread.
    """
    at = distance.levels_of(software, accelerator, design, model)
    drawn = drawn_by(design, [*metrics], within(design, spreads_of(software, accelerator, system)), study)
    (owed,) = bills.bills([design], [accelerator], list(metrics), study, [stated])
    parts = {name: _all_parts(name, owed.get(name), design, software, at, study, drawn[name]) for name in metrics}
    bounds = {name: ends for name, value in metrics.items() if (ends := interval(value, parts[name]))}
    return Judged(bounds, {name: parts[name] for name in bounds})


def _all_parts(
    metric: str, bill: bills.Bill | None, design: Design, stack: str, at: Levels, study: Study,
    drawn: Mapping[str, float],
) -> dict[str, float]:  # fmt: skip
    """Parts of a metric's log error, drawn leaves and prices included."""
    where = metric, design, stack, at, study
    found = bills.of_time(bill, *where) if bill else parts_of(*where)
    kept = carved(found, drawn).parts if (found or bill) and metric != study.memory else found
    return kept | (bills.of_prices(bill, metric) if bill else {})


def drawn_by(
    design: Design, metrics: Sequence[str], known: Spreads, study: Study = TRAINING
) -> dict[str, dict[str, float]]:
    """Metric → group of leaves → standard deviation of the log metric over their spreads, to first order."""
    widths = {path: total(factors) for path, factors in known.items()}
    found = moves([design], [Uncertainty(widths, 0.0)], study)
    result: dict[str, dict[str, float]] = {}
    for metric in metrics:
        squares = dict[str, float]()
        for path, change in found.of(metric).items() if has_interval(metric, study) else ():
            squares[group_of(path)] = squares.get(group_of(path), 0.0) + float(change.slope[0]) ** 2
        result[metric] = {group: math.sqrt(square) for group, square in squares.items() if square}
    return result
