"""Exact fronts and hypervolumes beside those of pymoo, an independent implementation."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.search import suite
from benchmarks.search.exact import Optimum
from dse import sweep
from dse.optimizers import pareto

#: pymoo is given the feasible designs in groups of this many, then the fronts of the groups together.
_GROUP = 2_000


def beside_pymoo(name: str, optimum: Optimum) -> dict[str, Any]:
    """Size and hypervolume of the front of all feasible designs of a space, by the engine and by pymoo."""
    from pymoo.indicators.hv import HV

    spec = sweep.read(suite.path(name))
    found = sweep.execute(spec, False, keep="feasible")[0]
    points = np.stack([found[o.expression.text].values for o in spec.objectives], axis=1).astype(float)
    theirs, ours = _front_of(points), np.array(optimum.front)
    bound = pareto.reference(ours)
    return {
        "designs": len(points),
        "ours": len(ours),
        "theirs": len(theirs),
        "same": theirs.shape == ours.shape and bool(np.allclose(theirs, ours, rtol=1e-6)),
        "our_volume": pareto.hypervolume(ours, bound),
        "their_volume": float(HV(ref_point=bound)(ours)),
    }


def _front_of(points: np.ndarray) -> np.ndarray:
    """The front by pymoo's sorting, each distinct point once, ascending by the first objective."""
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    def sorted_out(group: np.ndarray) -> np.ndarray:
        return np.unique(group[NonDominatedSorting().do(group, only_non_dominated_front=True)], axis=0)

    while len(points) > _GROUP:
        groups = np.array_split(points, -(-len(points) // _GROUP))
        fewer = np.concatenate([sorted_out(group) for group in groups])
        if len(fewer) == len(points):
            break
        points = fewer
    return sorted_out(points)
