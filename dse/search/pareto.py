"""Fronts of several objectives, all of them to be made small: who is not dominated, and the hypervolume."""

from __future__ import annotations

import numpy as np

from dse.sweep.reduce.winners import pareto_front


def front(objectives: np.ndarray) -> np.ndarray:
    """Positions of the designs [design, objective] that no other dominates, one of equal designs, in their order."""
    return np.sort(pareto_front(np.ascontiguousarray(objectives.T), np.arange(len(objectives))))


def hypervolume(objectives: np.ndarray, reference: np.ndarray) -> float:
    """Volume that designs [design, objective] dominate below a reference point; exact for any number of objectives.

    By slices along the last objective, each the hypervolume of one objective fewer (While et al. 2006); designs
    that are not below the reference in every objective add nothing.
    """
    objectives, reference = np.asarray(objectives, float), np.asarray(reference, float)
    return _volume(objectives[np.all(objectives < reference, axis=1)], reference)


def _volume(points: np.ndarray, reference: np.ndarray) -> float:
    if not len(points):
        return 0.0
    if points.shape[1] == 1:
        return float(reference[0] - points.min())
    points = points[front(points)]
    if points.shape[1] == 2:
        points = points[np.argsort(points[:, 0])]
        above = np.concatenate([[reference[1]], points[:-1, 1]])
        return float(np.sum((reference[0] - points[:, 0]) * (above - points[:, 1])))
    points = points[np.argsort(points[:, -1], kind="stable")]
    depths = np.diff(np.append(points[:, -1], reference[-1]))
    return sum(
        depth * _volume(points[: i + 1, :-1], reference[:-1]) for i, depth in enumerate(depths) if depth > 0
    )
