r"""Prediction intervals: from the uncertainty of the calibration, and from the distance to measured rows.

Standard deviations of a logarithm add up in squares: of the fitted parameters (``spread`` of a value in the catalogue),
propagated through the model to first order; of what they leave open in rows of the stack (``residual``: launch jitter,
congestion, library versions; for serving a residual by kind of figure stands for both); and of each level at which the
design lies off measured rows (:mod:`dse.measured.distance`). A step time ``T`` then lies, with probability ``q``, in

.. math:: T \, e^{\pm z_q \sigma}, \qquad \sigma^2 = \mathrm{Var}_\theta[\log T(\theta)] + r^2 + \sum_l s_l^2

Widths are set so that the intervals cover this share of measured rows left out of the fit
(:mod:`dse.calibrate.residuals`), without an assumption on the distribution of the errors.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import jax
import numpy as np

from dse.designs import catalog
from dse.designs.leaves import known_leaves, leaf, leaves, replace
from dse.doors.study import Study
from dse.doors.study_training import TRAINING
from dse.measured import distance
from dse.measured.distance import Levels
from dse.types import Design

#: Default probability of an interval.
SHARE = 0.8


class Uncertainty(NamedTuple):
    """Uncertainty of predictions of the step time with a stack."""

    spreads: dict[str, float]  #: full leaf path → standard deviation of the logarithm
    residual: float  #: standard deviation of what no parameter explains


class MetricInterval(NamedTuple):
    """Bounds of a metric."""

    low: float
    high: float


def uncertainty_of(software: str, at: Levels = ()) -> Uncertainty:
    """Uncertainty of predictions with a stack of the catalogue, from its current file, at some levels of distance."""
    entry = catalog.entry("software", software)
    paths = _software_leaves()
    spreads = {paths[name]: found.spread for name, found in entry.values.items() if found.spread and name in paths}
    return Uncertainty(spreads, math.hypot(*distance.parts("step", software, at).values()))


@functools.cache
def _software_leaves() -> dict[str, str]:
    """Leaf of the software → its path."""
    return {path.rpartition(".")[2]: path for path in leaves() if path.startswith("software.")}


def quantile(share: float = SHARE) -> float:
    """Standard deviations to either side that cover ``share`` of a normal distribution."""
    return NormalDist().inv_cdf(0.5 + 0.5 * share)


def deviations(designs: Sequence[Design], open_parts: Sequence[Uncertainty]) -> np.ndarray:
    """Standard deviation of each design's log step time over the spread of its stack's parameters, to first order."""
    moved = shifts(designs, open_parts).values()
    return np.sqrt(sum((((up - down) / 2.0) ** 2 for up, down in moved), np.zeros(len(designs))))


def shifts(
    designs: Sequence[Design], open_parts: Sequence[Uncertainty], metric: str = "step_time", study: Study = TRAINING
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Parameter → change of each design's log metric where it is a spread more, and where it is one less."""
    from dse.measured.prediction import by_structure, evaluate_stack

    paths = list(dict.fromkeys(path for one in open_parts for path in one.spreads))
    found = {path: (np.zeros(len(designs)), np.zeros(len(designs))) for path in paths}
    for members, stack in by_structure(designs):
        moved = moved_parameters(stack, [open_parts[i] for i in members], paths)
        values = np.log(np.asarray(getattr(evaluate_stack(moved, study), metric), float))
        values = values.reshape(len(members), 1 + 2 * len(paths))
        for place, path in enumerate(paths):
            for end in (0, 1):
                found[path][end][members] = values[:, 1 + 2 * place + end] - values[:, 0]
    return found


def moved_parameters(stack: Design, open_parts: Sequence[Uncertainty], paths: Sequence[str]) -> Design:
    """Each of a stack of designs as it is, then with every parameter a spread more and less, in its bounds."""
    copies = 1 + 2 * len(paths)
    repeated = jax.tree.map(lambda values: np.repeat(values, copies), stack)
    columns = {}
    for place, path in enumerate(paths):
        powers = np.zeros((len(open_parts), copies))
        powers[:, 1 + 2 * place], powers[:, 2 + 2 * place] = 1.0, -1.0
        factors = np.exp(np.array([[one.spreads.get(path, 0.0)] for one in open_parts]) * powers).reshape(-1)
        most = known_leaves()[path]["bounds"].high
        columns[path] = np.minimum(leaf(repeated, path) * factors, most).astype(np.float32)
    return replace(repeated, columns)


#: Metrics inversely proportional to the step time; other times and rates do not depend on it.
_RATES = ("tokens_per_second", "tokens_per_second_per_device", "mfu", "mfu_causal", "hfu")

#: Percentiles of a figure err as its mean does.
_PERCENTILE = re.compile(r"^p\d+_")

#: Metrics that multiply a time with a power.
_ENERGIES = ("energy_per_step",)


def figure_of(metric: str, study: Study) -> str | None:
    """Kind of figure of a metric, None for one without an interval.

    >>> figure_of("mfu", TRAINING), figure_of("peak_memory", TRAINING)
    ('step', 'memory')
    """
    if metric == study.memory:
        return "memory"
    if study.residuals:
        return study.residuals.get(metric) or study.residuals.get(_PERCENTILE.sub("", metric))
    if metric in _ENERGIES:
        return metric
    return "step" if metric == "step_time" or metric in _RATES else None


def parts_of(metric: str, design: Design, stack: str, at: Levels, study: Study, step: float = 0.0) -> dict[str, float]:
    """Part of the log error of a metric → its standard deviation; empty for a metric without an interval.

    Args:
        metric: its name.
        design: the design, with ``memory_spread`` of its software for peak memory.
        stack: its stack, by its name in the catalogue.
        at: levels of its distance.
        study: its study.
        step: standard deviation of its log step time over the parameters of its stack (:func:`deviations`).
    """
    figure = figure_of(metric, study)
    if figure is None:
        return {}
    if figure == "memory":
        return distance.parts_of_memory(stack, float(design.software.memory_spread))
    if study.residuals:
        return distance.parts(figure, stack, at)
    # What a vendor without rows adds was learnt of the neutral stack, whose parameters it holds.
    found = ({} if "vendor" in at else {"parameters": step}) | distance.parts("step", stack, at)
    return found | ({"power": distance.parts("power", stack, ())["home"]} if figure in _ENERGIES else {})


def half_width(found: Mapping[str, float], share: float = SHARE) -> float:
    """Half-width of the interval of a log error of these parts."""
    return quantile(share) * math.hypot(*found.values())


def interval(value: float, found: Mapping[str, float]) -> MetricInterval | None:
    """The interval of a metric of these parts, None for one without any."""
    if not found:
        return None
    factor = math.exp(half_width(found))
    return MetricInterval(value / factor, value * factor)


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
    model: str = "",
) -> Judged:  # fmt: skip
    """80 % intervals of the metrics that have one.

    Args:
        design: the design.
        metrics: metric → value in SI units.
        software: the stack, by its name in the catalogue.
        study: study of the design.
        accelerator: its slug; "" where unknown.
        model: name of its model; "" where unknown.
    """
    at = distance.levels_of(software, accelerator, design, model)
    spread = 0.0 if study.residuals else float(deviations([design], [uncertainty_of(software)])[0])
    parts = {name: parts_of(name, design, software, at, study, spread) for name in metrics}
    bounds = {name: ends for name, value in metrics.items() if (ends := interval(value, parts[name]))}
    return Judged(bounds, {name: parts[name] for name in bounds})
