"""Histograms of the objectives over the feasible designs: edges from a pilot, exact counts of everything.

Edges are in the units of a metric, thresholds in those of scores, where maximised metrics have the other sign.
"""

from __future__ import annotations

import numpy as np

from dse.spec.sweep import Objective
from dse.sweep.engine.engine import SweepEngine

#: Designs of the pilot.
_PILOT = 4096

#: The golden section of 2^64: its multiples, modulo that, are spread evenly and in step with no axis.
_GOLDEN = 0x9E3779B97F4A7C15


def pilot(n_designs: int) -> np.ndarray:
    """Indices of designs spread evenly over a sweep, ascending; all of a small one."""
    if n_designs <= _PILOT:
        return np.arange(n_designs)
    return np.unique([(i * _GOLDEN % (1 << 64)) * n_designs >> 64 for i in range(_PILOT)])


def edges(engine: SweepEngine, bins: int) -> np.ndarray:
    """[objective, bins + 1] edges of the bins: what the feasible designs of the pilot span, rounded outwards."""
    index = engine.grid.indices(pilot(engine.grid.n_designs))
    metrics, scores = engine.designs(index)
    feasible = metrics.feasible
    signs = [objective.sign for objective in engine.grid.spec.objectives]
    return np.stack([_spaced(sign * row, feasible, bins) for sign, row in zip(signs, scores, strict=True)])


def _spaced(values: np.ndarray, feasible: np.ndarray, bins: int) -> np.ndarray:
    """Edges of equal ratios, of equal differences where something is not positive."""
    finite = np.isfinite(values)
    usual = values[finite & feasible] if np.any(finite & feasible) else values[finite]
    least, most = (usual.min(), usual.max()) if len(usual) else (0.0, 1.0)
    low, high = rounded_edge(float(least), np.floor), rounded_edge(float(most), np.ceil)
    if low == high:
        low, high = (low / 2, high * 2) if low > 0 else (low - 1.0, high + 1.0)
    spaced = np.geomspace if low > 0 else np.linspace
    return spaced(low, high, bins + 1).astype(np.float32)


def rounded_edge(value: float, how: np.ufunc) -> float:
    """Three digits of a number: few enough that all processors agree on them."""
    if value == 0.0:
        return 0.0
    unit = 10.0 ** (np.floor(np.log10(abs(value))) - 2)
    return float(how(value / unit) * unit)


def thresholds(edges: np.ndarray, objectives: tuple[Objective, ...]) -> np.ndarray:
    """[objective, bins] ascending scores below which designs are counted: the inner edges, and infinity for all.

    A value on an edge belongs to the bin above it, which for what is maximised is the bin of lower scores.
    """
    inner = edges[:, 1:-1].astype(np.float32)
    rows = [
        row if objective.sign > 0 else np.nextafter(-row[::-1], np.float32(np.inf))
        for row, objective in zip(inner, objectives, strict=True)
    ]
    return np.pad(np.stack(rows), [(0, 0), (0, 1)], constant_values=np.inf)


def counts(below: np.ndarray, objectives: tuple[Objective, ...]) -> np.ndarray:
    """[objective, bin] designs in each bin, of how many are below each threshold."""
    ascending = np.diff(below, axis=1, prepend=0)
    return np.stack(
        [row if objective.sign > 0 else row[::-1] for row, objective in zip(ascending, objectives, strict=True)]
    )
