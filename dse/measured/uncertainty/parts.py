r"""Prediction intervals: from the uncertainty of the calibration, and from the distance to measured rows.

Standard deviations of a logarithm add up in squares: of the fitted parameters (``spread`` of a value in the catalogue),
propagated through the model to first order; of what they leave open in rows of the stack (``residual``: launch jitter,
congestion, library versions; for serving a residual by kind of figure stands for both); and of each level at which the
design lies off measured rows (:mod:`dse.measured.uncertainty.distance`). A step time ``T`` then lies, with probability
``q``, in

.. math:: T \, e^{\pm z_q \sigma}, \qquad \sigma^2 = \mathrm{Var}_\theta[\log T(\theta)] + r^2 + \sum_l s_l^2

Widths are set so that the intervals cover this share of measured rows left out of the fit
(:mod:`dse.lab.fits.residuals`), without an assumption on the distribution of the errors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from dse.designs import all_leaves, leaf, replace
from dse.doors import TRAINING, Study
from dse.measured.uncertainty import distance
from dse.measured.uncertainty.distance import Levels
from dse.types import Design
from dse.types.trees import tree_map

#: Default probability of an interval.
COVERAGE = 0.8


class MetricInterval(NamedTuple):
    """Lower and upper bound of a metric."""

    low: float
    high: float


def quantile(share: float = COVERAGE) -> float:
    """Return the number of standard deviations to either side that cover ``share`` of a normal distribution.

    Args:
        share: probability of the interval.
    """
    return NormalDist().inv_cdf(0.5 + 0.5 * share)


def weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> float:
    """Return the least of the values that ``share`` of the weight does not exceed."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order])
    return float(values[order][min(int(np.searchsorted(cumulative, share * cumulative[-1])), len(order) - 1)])


class Perturbations(NamedTuple):
    """Metrics of designs evaluated with each of their parameters a spread more and less."""

    paths: list[str]
    n_designs: int
    parts: list[tuple[list[int], Any]]  #: designs of one structure, and their metrics

    def logs(self, metric: str) -> np.ndarray:
        """Return the logarithm of a metric [designs, copies]: as it is, then by parameter a spread more and less."""
        logs = np.zeros((self.n_designs, 1 + 2 * len(self.paths)))
        for indices, metrics in self.parts:
            with np.errstate(divide="ignore", invalid="ignore"):
                logs[indices] = np.log(np.asarray(getattr(metrics, metric), float)).reshape(len(indices), -1)
        return logs

    def slopes(self, metric: str) -> dict[str, np.ndarray]:
        """Return parameter → change of a metric's logarithm by a spread, first order, 0 if not finite [designs]."""
        logs = np.nan_to_num(self.logs(metric), posinf=0.0, neginf=0.0)
        return dict(zip(self.paths, ((logs[:, 1::2] - logs[:, 2::2]) / 2.0).T, strict=True))

    def deviations(self, metric: str) -> np.ndarray:
        """Return the standard deviation of a metric's logarithm over all parameters [designs]."""
        return np.sqrt(sum((slope**2 for slope in self.slopes(metric).values()), np.zeros(self.n_designs)))


def perturb(
    designs: Sequence[Design], spreads: Sequence[Mapping[str, float]], study: Study = TRAINING
) -> Perturbations:
    """Return the metrics of every design as it is and with each parameter of its spreads a spread more and less.

    Args:
        designs: of one study.
        spreads: of each leaf path → standard deviation of the logarithm.
        study: the study.
    """
    from dse.measured.prediction import evaluate_batch, group_by_structure

    paths = list(dict.fromkeys(path for design_spreads in spreads for path in design_spreads))
    parts = [
        (indices, evaluate_batch(perturbed_copies(batch, [spreads[i] for i in indices], paths), study))
        for indices, batch in group_by_structure(designs)
    ]
    return Perturbations(paths, len(designs), parts)


def perturbed_copies(batch: Design, spreads: Sequence[Mapping[str, float]], paths: Sequence[str]) -> Design:
    """Return each design of a batch as it is, then with each parameter a spread more and a spread less.

    Copies of one design follow one another, 1 + 2 × paths of them; values stay up to their upper bounds.
    """
    columns = {}
    for index, path in enumerate(paths):
        powers = np.zeros(1 + 2 * len(paths))
        powers[1 + 2 * index : 3 + 2 * index] = 1.0, -1.0
        columns[path] = np.outer([design_spreads.get(path, 0.0) for design_spreads in spreads], powers)
    return scale_leaves(batch, columns)


def scale_leaves(batch: Design, logs: Mapping[str, np.ndarray]) -> Design:
    """Return copies of each design of a batch with leaves changed by logarithms, up to their upper bounds.

    Args:
        batch: of designs.
        logs: leaf path → logarithms of its factor [designs, copies].

    Returns:
        Batch of designs × copies, copies fastest.
    """
    n_copies = next((log_factors.shape[1] for log_factors in logs.values()), 1)
    repeated = tree_map(lambda values: np.repeat(values, n_copies), batch)
    columns = {
        path: np.minimum(leaf(repeated, path) * np.exp(log_factors).reshape(-1), all_leaves()[path]["bounds"].high)
        for path, log_factors in logs.items()
        if np.any(log_factors)
    }
    return replace(repeated, {path: column.astype(np.float32) for path, column in columns.items()})


#: Metrics inversely proportional to the step time; other times and rates do not depend on it.
_RATES = ("tokens_per_second", "tokens_per_second_per_device", "mfu", "mfu_causal", "hfu")

#: Percentiles of a figure err as its mean does.
_PERCENTILE = re.compile(r"^p\d+_")

#: Metrics that multiply a time with a power.
_ENERGIES = ("energy_per_step",)


def figure_of(metric: str, study: Study) -> str | None:
    """Return the kind of figure of a metric (``step``, ``memory``, …), None for one without an interval.

    Args:
        metric: its name.
        study: its study.

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


def parts_of(
    metric: str, design: Design, stack: str, levels: Levels, study: Study, step_deviation: float = 0.0
) -> dict[str, float]:
    """Return part → standard deviation in a metric's log error, {} for one without an interval.

    Args:
        metric: its name.
        design: the design, with ``memory_spread`` of its software for peak memory.
        stack: its stack, by its name in the catalogue.
        levels: levels of its distance.
        study: its study.
        step_deviation: standard deviation of its log step time over the parameters of its stack.
    """
    figure = figure_of(metric, study)
    if figure is None:
        return {}
    if figure == "memory":
        return distance.memory_parts(stack, float(design.software.memory_spread))
    if study.residuals:
        return distance.parts(figure, stack, levels)
    # What a vendor without rows adds was learnt of the neutral stack, whose parameters it holds.
    error_parts = ({} if "vendor" in levels else {"parameters": step_deviation}) | distance.parts("step", stack, levels)
    return error_parts | ({"board": distance.parts("power", stack, ())["home"]} if figure in _ENERGIES else {})


#: Groups of drawn leaves → levels that hold what they explain.
_LEVELS_OF_GROUPS = (
    (("kernels", "links", "technology", "power"), (*distance.HARDWARE, "announced")),
    (("engine",), distance.SOFTWARE), (("experts",), distance.MODEL),
)  # fmt: skip


class ReducedParts(NamedTuple):
    """Parts of a log error after the share of drawn leaves was subtracted."""

    parts: dict[str, float]  #: part → standard deviation
    scales: dict[str, float]  #: group of leaves → factor of its spreads
    removed_variance: dict[str, float]  #: level or ``home`` → variance that leaves have taken from it

    def common_share(self, part: str, share: float) -> float:
        """Return the share of what remains of a part's variance that designs have in common.

        ``share``: that of the part before leaves were subtracted.
        """
        remaining, removed = self.parts[part] ** 2, self.removed_variance.get(part, 0.0)
        return max(share * (remaining + removed) - removed, 0.0) / remaining if remaining else 0.0


def subtract_leaf_variance(parts: Mapping[str, float], leaf_deviations: Mapping[str, float]) -> ReducedParts:
    r"""Return the parts with drawn leaves among them, each error counted once.

    Widths of levels are all that rows left out show, so what leaves of the chip, its links, an engine or experts
    explain is taken from their level, in squares and not below zero. At home the rows of the stack are of these leaves
    too: they explain no more than designs alike share there, :math:`c \, \sigma_\mathrm{home}^2`, and are narrowed to
    it.

    Args:
        parts: as of :func:`parts_of`.
        leaf_deviations: group of leaves (:data:`dse.measured.uncertainty.spreads.GROUPS`) → standard deviation
            that they make.
    """
    remaining, scales, home_deviations = dict(parts), dict.fromkeys(leaf_deviations, 1.0), dict[str, float]()
    for groups, levels in _LEVELS_OF_GROUPS:
        group_deviations = {name: leaf_deviations[name] for name in groups if leaf_deviations.get(name)}
        if "chip" in levels and "vendor" in parts and "parameters" in leaf_deviations:  # it holds the stack's too
            group_deviations["parameters"] = leaf_deviations["parameters"]
        if "board" in parts and "power" in group_deviations:
            _subtract_variance(remaining, ("board",), group_deviations.pop("power") ** 2)
        holding_levels = [level for level in levels if parts.get(level)]
        if holding_levels:
            _subtract_variance(remaining, holding_levels, sum(deviation**2 for deviation in group_deviations.values()))
        else:
            home_deviations |= group_deviations
    variance, home_variance = sum(deviation**2 for deviation in home_deviations.values()), parts.get("home", 0.0) ** 2
    if variance:
        home_scale = min(1.0, math.sqrt(distance.common_shares("home")[0] * home_variance / variance))
        scales |= dict.fromkeys(home_deviations, home_scale)
        if home_variance:
            _subtract_variance(remaining, ("home",), home_scale**2 * variance)
    of_leaves = {name: scales[name] * deviation for name, deviation in leaf_deviations.items() if deviation}
    removed = {name: parts[name] ** 2 - remaining[name] ** 2 for name in parts}
    return ReducedParts(remaining | of_leaves, scales, removed)


def _subtract_variance(deviations: dict[str, float], levels: Sequence[str], variance: float) -> None:
    """Subtract a variance from levels in place, of each the same share and not below zero."""
    level_variance = sum(deviations[level] ** 2 for level in levels)
    for level in levels:
        deviations[level] *= math.sqrt(max(1.0 - variance / level_variance, 0.0)) if level_variance else 0.0


def half_width(error_parts: Mapping[str, float], share: float = COVERAGE) -> float:
    """Return the half-width of the interval of a logarithm with an error of these parts (part → standard deviation)."""
    return quantile(share) * math.hypot(*error_parts.values())


def interval(value: float, error_parts: Mapping[str, float]) -> MetricInterval | None:
    """Return the 80 % interval of a metric of these parts (part → standard deviation), None for one without any."""
    if not error_parts:
        return None
    factor = math.exp(half_width(error_parts))
    return MetricInterval(value / factor, value * factor)
