r"""Prediction intervals from the uncertainty of the calibration.

Two standard deviations of a logarithm: of the fitted parameters (``spread`` of a value in the catalogue), sampled and
propagated through the model, and of what no parameter explains (``residual`` of the software stack: launch jitter,
congestion, library versions). For serving a residual by kind of figure stands for both. A step time ``T`` then lies,
with probability ``q``, in

.. math:: T \, e^{\pm z_q \sigma}, \qquad \sigma^2 = \mathrm{Var}_\theta[\log T(\theta)] + r^2

Residuals are set so that the intervals cover this share of measured steps unseen by the fit
(:mod:`dse.calibrate.residuals`), without an assumption on the distribution of the errors.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import jax
import numpy as np

from dse.designs import catalog
from dse.designs.calibrated import is_unlike
from dse.designs.leaves import leaf, leaves, replace
from dse.doors.study import Study
from dse.doors.study_training import TRAINING
from dse.types import Design, Software

#: Default probability of an interval.
SHARE = 0.8

#: Residual by kind of an engine without measurements: that of unseen sources (docs/serving.md).
UNMEASURED = {"token": 0.55, "first": 0.72, "latency": 0.55, "rate": 0.42, "energy": 0.49}

#: Residual of the step time of a mixture on a stack without rows of one: kernels of experts differ by a factor of two
#: between measured stacks.
UNMEASURED_EXPERTS = 0.35

#: Samples of the parameters in antithetic pairs, so that their mean is that of the prediction.
DRAWS = 64


class Uncertainty(NamedTuple):
    """Uncertainty of the calibration of a stack."""

    spreads: dict[str, float]  #: full leaf path → standard deviation of the logarithm
    residual: float  #: standard deviation of what no parameter explains


class MetricInterval(NamedTuple):
    """Bounds of a metric."""

    low: float
    high: float


def uncertainty_of(software: str, mixture: bool = False) -> Uncertainty:
    """Uncertainty of predictions with a stack of the catalogue, from its current file; ``mixture``: of experts."""
    entry = catalog.entry("software", software)
    paths = _software_leaves()
    spreads = {paths[name]: found.spread for name, found in entry.values.items() if found.spread and name in paths}
    residual = float(entry.value("residual", 0.0))
    if mixture and not entry.states("experts"):
        residual = float(np.hypot(residual, UNMEASURED_EXPERTS))
    return Uncertainty(spreads, residual)


def is_mixture(design: Design) -> bool:
    """Whether a design is of a mixture of experts."""
    return design.workload.experts is not None


@functools.cache
def _software_leaves() -> dict[str, str]:
    """Leaf of the software → its path."""
    return {path.rpartition(".")[2]: path for path in leaves() if path.startswith("software.")}


def quantile(share: float = SHARE) -> float:
    """Standard deviations to either side that cover ``share`` of a normal distribution."""
    return NormalDist().inv_cdf(0.5 + 0.5 * share)


def half_widths(designs: Sequence[Design], open_parts: Sequence[Uncertainty], share: float = SHARE) -> np.ndarray:
    """Half-width of the interval of each design's log step time, ``z_q sigma``."""
    residuals = np.array([one.residual for one in open_parts])
    return quantile(share) * np.hypot(deviations(designs, open_parts), residuals)


def deviations(designs: Sequence[Design], open_parts: Sequence[Uncertainty]) -> np.ndarray:
    """Standard deviation of each design's log step time over samples of its stack's parameters."""
    from dse.measured.prediction import by_structure, evaluate_stack

    found = np.zeros(len(designs))
    for members, stack in by_structure(designs):
        times = np.asarray(evaluate_stack(sample_parameters(stack, [open_parts[i] for i in members])).step_time)
        found[members] = np.log(times.reshape(len(members), DRAWS)).std(axis=1)
    return found


def sample_parameters(stack: Design, open_parts: Sequence[Uncertainty]) -> Design:
    """A stack of designs, ``DRAWS`` times with samples of its open parameters, common to all designs.

    Samples are clipped to the bounds of their leaves.
    """
    known = list(leaves())
    once = np.random.default_rng(0).standard_normal((DRAWS // 2, len(known)))
    normal = dict(zip(known, np.concatenate([once, -once]).T, strict=True))
    repeated = jax.tree.map(lambda values: np.repeat(values, DRAWS), stack)
    columns = {}
    for path in dict.fromkeys(path for one in open_parts for path in one.spreads):
        spreads = np.array([one.spreads.get(path, 0.0) for one in open_parts])
        factors = np.exp(spreads[:, None] * normal[path]).reshape(-1)
        columns[path] = np.minimum(leaf(repeated, path) * factors, leaves()[path]["bounds"].high).astype(np.float32)
    return replace(repeated, columns)


#: Metrics inversely proportional to the step time; other times and rates do not depend on it.
_RATES = ("tokens_per_second", "tokens_per_second_per_device", "mfu", "mfu_causal", "hfu")


def intervals(
    design: Design, metrics: Mapping[str, float], software: str, study: Study = TRAINING, accelerator: str = ""
) -> dict[str, MetricInterval]:
    """Metric → its 80 % interval, for metrics that have one.

    Args:
        design: the design.
        metrics: metric → value in SI units.
        software: the stack, by its name in the catalogue.
        study: study of the design.
        accelerator: its slug; an engine without rows of its vendor counts as one without measurements.
    """
    unlike = bool(study.residuals) and is_unlike(software, accelerator)
    width = None if study.residuals else float(half_widths([design], [uncertainty_of(software, is_mixture(design))])[0])
    stack = "" if unlike else software
    found = {name: interval_of(name, value, stack, design.software, width, study) for name, value in metrics.items()}
    return {name: ends for name, ends in found.items() if ends}


def interval_of(
    metric: str, value: float, stack: str, software: Software, step: float | None, study: Study = TRAINING
) -> MetricInterval | None:
    """The interval of a metric; None for a metric without one.

    Args:
        metric: its name.
        value: of the metric, in SI units.
        stack: name of the design's software; "" for one without measurements.
        software: the design's software, with ``memory_spread`` for peak memory.
        step: half-width of the interval of the log step time, None where unknown.
        study: study of the metric.
    """
    if metric == study.memory:
        return _around(value, quantile() * float(software.memory_spread))
    width = step_half_width(metric, step) if not study.residuals else residual_half_width(stack, metric, study)
    return None if width is None else _around(value, width)


def step_half_width(metric: str, step: float | None) -> float | None:
    """Half-width of the log of a metric that follows from the step time; None for others."""
    return step if metric == "step_time" or metric in _RATES else None


def residual_half_width(stack: str, metric: str, study: Study) -> float | None:
    """Half-width of the log of a metric with a residual of its kind alone; None for a metric without a kind."""
    kind = study.residuals.get(metric)
    if kind is None:
        return None
    known = catalog.entry("software", stack).value(f"residuals.{kind}", UNMEASURED[kind]) if stack else UNMEASURED[kind]
    return quantile() * float(known)


def _around(value: float, half_width: float) -> MetricInterval:
    return MetricInterval(value * float(np.exp(-half_width)), value * float(np.exp(half_width)))
