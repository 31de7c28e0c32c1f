"""Fronts of several objectives, all of them to be made small: who is not dominated, and the hypervolume."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from dse.optimizers.judging import Evaluation
from dse.optimizers.space import Point
from dse.sweep.reduce.winners import pareto_front

#: Volumes of more objectives, or of more designs with three, take too long: each more multiplies by their number.
_MOST_BY_OBJECTIVES = {2: 1 << 30, 3: 3_000}


class ParetoFront(NamedTuple):
    """Designs that can run, of which none dominates another."""

    points: Point[np.ndarray]  #: [design] in their space
    objectives: np.ndarray  #: [design, objective]


def of_evaluated(points: Point[np.ndarray], evaluation: Evaluation[np.ndarray]) -> ParetoFront:
    """Return the front of the feasible among evaluated designs [...]; empty where none is."""
    feasible = evaluation.reason == 0
    return merge_fronts(jax.tree.map(lambda array: array[feasible], ParetoFront(points, evaluation.objectives)))


def merge_fronts(*fronts: ParetoFront) -> ParetoFront:
    """Return the front of all designs of several fronts, with the first of equal designs."""
    designs = jax.tree.map(lambda *arrays: np.concatenate(arrays), *fronts)
    indices = front(designs.objectives)
    return jax.tree.map(lambda array: array[indices], designs)


def front(objectives: np.ndarray) -> np.ndarray:
    """Return indices of the designs [design, objective] that no other dominates, ascending, one for equal designs.

    Args:
        objectives: all minimised.

    Returns:
        Positions in ascending order, one for equal designs.
    """
    return np.sort(pareto_front(np.ascontiguousarray(objectives.T), np.arange(len(objectives))))


def hypervolume(objectives: np.ndarray, reference: np.ndarray) -> float:
    """Return the volume that designs [design, objective] dominate below a reference point.

    By slices along the last objective, each the hypervolume of one objective fewer (While et al. 2006); designs
    that are not below the reference in every objective add nothing.

    Args:
        objectives: all minimised.
        reference: [objective].
    """
    objectives, reference = np.asarray(objectives, float), np.asarray(reference, float)
    return _volume(objectives[np.all(objectives < reference, axis=1)], reference)


def _volume(points: np.ndarray, reference: np.ndarray) -> float:
    """Return the hypervolume of points [design, objective], all below ``reference``; 0 for none."""
    if not len(points):
        return 0.0
    if points.shape[1] == 1:
        return float(reference[0] - points.min())
    points = points[front(points)]
    if points.shape[1] == 2:
        points = points[np.argsort(points[:, 0])]
        upper = np.concatenate([[reference[1]], points[:-1, 1]])
        return float(np.sum((reference[0] - points[:, 0]) * (upper - points[:, 1])))
    points = points[np.argsort(points[:, -1], kind="stable")]
    depths = np.diff(np.append(points[:, -1], reference[-1]))
    return sum(depth * _volume(points[: i + 1, :-1], reference[:-1]) for i, depth in enumerate(depths) if depth > 0)


def reference(front: np.ndarray) -> np.ndarray:
    """Return the point [objective] from which volumes are measured: the worst of a front, plus a tenth of its size."""
    worst = np.max(front, axis=0)
    return worst + 0.1 * np.abs(worst)


def shares(fronts: list[np.ndarray]) -> list[float | None]:
    """Return the share that each front dominates of the box from the best to the :func:`reference` of all fronts.

    None where there are too many objectives, or too many designs, to say so exactly, and where there is no box.

    Args:
        fronts: objectives [design, objective] of each front.
    """
    all_objectives = np.concatenate(fronts).astype(float)
    if not len(all_objectives) or len(all_objectives) > _MOST_BY_OBJECTIVES.get(all_objectives.shape[1], 0):
        return [None] * len(fronts)
    bound = reference(all_objectives[front(all_objectives)])
    box = float(np.prod(bound - all_objectives.min(axis=0)))
    return [hypervolume(objectives, bound) / box if box > 0.0 else None for objectives in fronts]
