"""Notes on constraints that no design of a sweep meets: how often each is violated, and the nearest values."""

from __future__ import annotations

from typing import Any

import numpy as np

from dse.designs.leaves import leaf
from dse.designs.records import PLAIN_EXPERTS
from dse.doors.study import Lookup
from dse.io.quantities import counted, quantity
from dse.spec.expression import Expression
from dse.sweep.engine.numpy_backend import evaluate_few, joined
from dse.sweep.engine.point import Program
from dse.sweep.grid.grid import Grid

#: Maximum number of designs that are evaluated, evenly spaced over the sweep.
_MOST = 4096


def unmet_notes(grid: Grid) -> tuple[str, ...]:
    """Per constraint a line with the number of otherwise feasible designs that violate it, and the nearest value.

    Above 4,096 designs a sample of this size is evaluated, and the lines say so.
    """
    if not grid.constraints:
        return ()
    count, study = min(grid.n_designs, _MOST), grid.spec.study
    index = grid.indices(np.linspace(0, grid.n_designs - 1, count).astype(np.int64))
    values = grid.values(index)
    metrics, _ = joined(
        [
            (places, evaluate_few(one.base, one.values(own), program=Program(study)))
            for places, one, own in grid.by_structure(index)
        ]
    )
    runs = np.flatnonzero(np.broadcast_to(np.asarray(metrics.infeasible_reason) == 0, count))

    def lookup(name: str) -> Any:
        found = getattr(metrics, name) if name in study.units else values.get(name)
        if name in PLAIN_EXPERTS and found is not None:
            found = np.where(np.isnan(found), PLAIN_EXPERTS[name], found)
        return np.broadcast_to(leaf(grid.base, name) if found is None else found, count)[runs]

    spread = "" if count == grid.n_designs else " spread over the sweep"
    of = f"{len(runs):,} of {counted(count, 'design')}{spread}"
    head = f"{of} can run but for the constraints{':' if len(runs) else ''}"
    return (head, *(_of_one(constraint, lookup, len(runs)) for constraint in grid.constraints if len(runs)))


def _of_one(constraint: Expression, lookup: Lookup, count: int) -> str:
    """The line of one constraint; ``count``: number of otherwise feasible designs."""
    missed = count - int(np.count_nonzero(np.broadcast_to(constraint(lookup), count)))
    text = f"{constraint.text}: {missed:,} miss it"
    name, is_upper = constraint.bound or ("", False)
    units = constraint.study.written.get(name)
    if not missed or units is None:
        return text
    nearest = float(np.min(lookup(name)) if is_upper else np.max(lookup(name)))
    return f"{text}; the {'least' if is_upper else 'largest'} {name} is {quantity(nearest, units)}"
