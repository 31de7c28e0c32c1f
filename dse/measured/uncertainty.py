r"""How far the truth may lie from a prediction: an interval from what the calibration left open.

Two things are left open, both as standard deviations of a logarithm: the fitted parameters (``spread`` of a value in
the catalogue), which are drawn and sent through the model, and what no parameter explains (``residual`` of the
software stack: launch jitter, congestion, library versions). A step time ``T`` then lies, with probability ``q``, in

.. math:: T \, e^{\pm z_q \sigma}, \qquad \sigma^2 = \mathrm{Var}_\theta[\log T(\theta)] + r^2

Residuals are set where measured steps that the fit had not seen lie in that many of their intervals
(:mod:`dse.calibrate.residuals`); nothing else is assumed of the form of the errors.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import jax
import numpy as np

from dse import catalog
from dse.catalog.fields import upper_bound
from dse.design import leaves
from dse.types import Design

#: Probability of an interval, unless another is asked for.
SHARE = 0.8

#: Draws of the parameters; half of them mirror the others, so that their mean is the prediction's own.
DRAWS = 64


class Doubt(NamedTuple):
    """What the calibration left open for a stack."""

    spreads: dict[str, float]  #: full leaf path → standard deviation of the logarithm
    residual: float  #: the same of what no parameter explains


class Interval(NamedTuple):
    """Bounds of a metric."""

    low: float
    high: float


@functools.cache
def doubt_of(software: str) -> Doubt:
    """What is open for predictions with a stack of the catalogue."""
    entry = catalog.entry("software", software)
    paths = {path.rpartition(".")[2]: path for path in leaves() if path.startswith("software.")}
    spreads = {paths[name]: found.spread for name, found in entry.values.items() if found.spread and name in paths}
    return Doubt(spreads, float(entry.value("residual", 0.0)))


def quantile(share: float = SHARE) -> float:
    """Standard deviations to either side that hold ``share`` of a normal distribution."""
    return NormalDist().inv_cdf(0.5 + 0.5 * share)


def half_widths(designs: Sequence[Design], doubts: Sequence[Doubt], share: float = SHARE) -> np.ndarray:
    """Half the width of the interval of each design's log step time, ``z_q sigma``."""
    residuals = np.array([doubt.residual for doubt in doubts])
    return quantile(share) * np.hypot(deviations(designs, doubts), residuals)


def deviations(designs: Sequence[Design], doubts: Sequence[Doubt]) -> np.ndarray:
    """Standard deviation of each design's log step time over draws of its stack's parameters."""
    from dse.measured.prediction import evaluate_leaves

    found = np.zeros(len(designs))
    structures = [jax.tree.structure(design) for design in designs]
    for structure in dict.fromkeys(structures):
        members = [i for i, own in enumerate(structures) if own == structure]
        drawn = _drawn([designs[i] for i in members], [doubts[i] for i in members])
        times = np.asarray(evaluate_leaves(drawn.reshape(-1, drawn.shape[-1]), structure).step_time)
        found[members] = np.log(times.reshape(len(members), DRAWS)).std(axis=1)
    return found


def _drawn(designs: Sequence[Design], doubts: Sequence[Doubt]) -> np.ndarray:
    """[design, draw, leaf] leaves of the designs under draws that all designs share; shares stay below 1."""
    known = list(leaves())
    order = {path: i for i, path in enumerate(_paths(designs[0]))}
    once = np.random.default_rng(0).standard_normal((DRAWS // 2, len(known)))
    normal = dict(zip(known, np.concatenate([once, -once]).T, strict=True))
    drawn = np.repeat(np.array([jax.tree.leaves(design) for design in designs], np.float32)[:, None], DRAWS, axis=1)
    for values, doubt in zip(drawn, doubts, strict=True):
        for path, spread in doubt.spreads.items():
            column = values[:, order[path]] * np.exp(spread * normal[path])
            values[:, order[path]] = np.minimum(column, upper_bound(path.rpartition(".")[2]))
    return drawn


def _paths(design: Design) -> list[str]:
    """Full leaf path of each leaf, in the order of ``jax.tree.leaves``."""
    return [jax.tree_util.keystr(keys).lstrip(".") for keys, _ in jax.tree_util.tree_leaves_with_path(design)]


#: Metrics that fall as the step time grows; other times and rates do not depend on it.
_RATES = ("tokens_per_second", "tokens_per_second_per_device", "mfu", "mfu_causal", "hfu")


def interval(metric: str, value: float, half_width: float) -> Interval | None:
    """The interval of a metric from that of the log step time; None for one that does not follow from it."""
    if metric != "step_time" and metric not in _RATES:
        return None
    return Interval(value * float(np.exp(-half_width)), value * float(np.exp(half_width)))
