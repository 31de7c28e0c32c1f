"""Intervals of a design's metrics with what makes them wide: levels, drawn leaves, prices."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from dse.doors import TRAINING, Study
from dse.measured.uncertainty import bills
from dse.measured.uncertainty.parts import MetricInterval, figure_of, interval
from dse.measured.uncertainty.posterior import Choice, posteriors, variance_shares
from dse.types import Design


def has_interval(metric: str, study: Study) -> bool:
    """Return True for a metric that is measured, or of money, carbon or a run that follow from one.

    Args:
        metric: its name.
        study: its study.
    """
    return metric in study.units and (figure_of(metric, study) is not None or metric in bills.METRICS)


class DesignIntervals(NamedTuple):
    """Intervals of a design's metrics, and the parts of their log errors."""

    bounds: dict[str, MetricInterval]
    parts: dict[str, dict[str, float]]  #: metric → part → standard deviation of its log error

    def reasons(self, metric: str, count: int = 3) -> dict[str, float]:
        """Return part → share of a metric's variance, of its ``count`` largest parts in order; {} without interval."""
        shares = variance_shares({name: part**2 for name, part in self.parts.get(metric, {}).items() if part})
        return dict([*shares.items()][:count])


def intervals(
    design: Design,
    metrics: Mapping[str, float],
    software: str,
    study: Study = TRAINING,
    accelerator: str = "",
    model: str = "",
    system: str = "",
    fixed_paths: Collection[str] = (),
) -> DesignIntervals:
    """Return the 80 % intervals of the metrics that have one.

    Args:
        design: the design.
        metrics: metric → value in SI units.
        software: the stack, by its name in the catalogue.
        study: study of the design.
        accelerator: its slug; "" where unknown.
        model: name of its model; "" where unknown.
        system: whose networks it has, by its name in the catalogue; by default the accelerator's usual node.
        fixed_paths: paths of values that the user has stated, which have no spread.
    """
    choice = Choice("", design, software, accelerator, model, system, fixed_paths=fixed_paths)
    posterior_by_metric = posteriors([choice], [name for name in metrics if has_interval(name, study)], study)
    parts = {name: metric_posterior.parts(0) for name, metric_posterior in posterior_by_metric.items()}
    bounds = {name: ends for name, metric_parts in parts.items() if (ends := interval(metrics[name], metric_parts))}
    return DesignIntervals(bounds, {name: parts[name] for name in bounds})
