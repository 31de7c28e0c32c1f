"""Few designs: winners, or all of a small sweep. NumPy evaluates hundreds of thousands while XLA would compile."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from dse.doors.scalars import ScalarFunction
from dse.doors.scalars.operations import Operations
from dse.errors import InputError
from dse.sweep.engine.nesting import Nest
from dse.sweep.engine.point import Program, equations_of, evaluate_point
from dse.sweep.engine.reductions import Scores, below, counted
from dse.sweep.engine.staging import Output
from dse.types import Design


def evaluate_few(base: Design, values: Mapping[str, np.ndarray], *, program: Program) -> tuple[Any, tuple[Any, ...]]:
    """All metrics and the objectives of single designs.

    Args:
        base: the design that has every leaf not in ``values``.
        values: full path → values of leaves, in SI units; these or those of the base are arrays [design], or [outer, 1]
            and [1, inner].
        program: what is computed.

    Returns:
        The study's record of metrics and one array an objective, as :func:`~dse.sweep.engine.point.evaluate_point`
        has them, all of them arrays [design] or [outer, inner].
    """
    count = max(len(leaf) for leaf in jax.tree.leaves((values, base)) if np.ndim(leaf))
    return _function(program).over(count, base, dict(values))


def operations_of(program: Program, base: Design, values: Mapping[str, Any]) -> Operations:
    """The operations of :func:`evaluate_few` at leaves of this structure; InputError where JAX alone has them."""
    found = _function(program).operations(base, dict(values))
    if found is None:
        where, got = f"study {program.study.name}", "a model with operations that dse has no intervals of"
        raise InputError(where, got, "the operations of dse.doors.scalars", "search without --prove")
    return found


def joined(found: Sequence[tuple[np.ndarray, Any]]) -> Any:
    """Arrays [design] of all designs, of those of each structure with their places among all."""
    order = np.argsort(np.concatenate([places for places, _ in found]))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays)[order], *(outputs for _, outputs in found))


def evaluate_outer(nest: Nest, outer: range, *, program: Program) -> tuple[Any, tuple[Any, ...]]:
    """All metrics and the objectives of outer indices of a nest, an output each."""
    shape = *nest.parts_shape, len(outer)
    return jax.tree.map(lambda values: Output(values.T, shape), _evaluated(nest, outer, program))


def _evaluated(nest: Nest, outer: range, program: Program) -> tuple[Any, tuple[Any, ...]]:
    """All metrics and the objectives: arrays [outer, inner]."""
    digits = np.unravel_index(np.array(outer), nest.outer_shape)
    tables = zip(nest.outer_columns(), digits, strict=True)
    values = {path: column[at][:, None] for table, at in tables for path, column in table.items()}
    values |= {path: column[None] for path, column in nest.columns_along(nest.inner_axes).items()}
    return evaluate_few(nest.grid.base, values, program=program)


def score_outer(
    nest: Nest, outer: range, count: int, n_objectives: int, thresholds: np.ndarray | None, *, program: Program
) -> Scores:
    """Scores of outer indices of a nest, as those of :meth:`~dse.sweep.engine.engine.SweepEngine.scores`, of one group.

    Args:
        nest: the nest.
        outer: the outer indices.
        count: length of the arrays; past the last of the indices nothing is a mapping.
        n_objectives: objectives, the first ones of the program.
        thresholds: [objective, threshold] below which scores are counted; None for none.
        program: what is computed.
    """
    metrics, objectives = _evaluated(nest, outer, program)
    objectives, n = objectives[:n_objectives], len(outer)
    place = np.array(outer) % nest.n_places
    is_mapping = nest.mask[place][:, nest.mask_columns(nest.inner_axes)]
    can_win = is_mapping & metrics.feasible
    scores = np.full((len(objectives), count, nest.n_inner), np.inf, np.float32)
    for own, value in zip(scores, objectives, strict=True):
        own[:n] = np.where(can_win & np.isfinite(value), value, np.inf)
    ranked = np.asarray(np.isfinite(scores).all(axis=0))
    counts = counted(metrics.infeasible_reason[is_mapping], ranked[:n][is_mapping], program.study)
    as_computed = scores.transpose(0, 2, 1).reshape(len(scores), *nest.parts_shape, count)
    least = (scores.min(axis=1),)
    found = Scores((as_computed,), (), scores.min(axis=2), least, np.asarray(ranked.any(axis=1)), counts)
    if thresholds is None:
        return found
    return found._replace(below=below(scores.reshape(len(scores), -1), thresholds))


@functools.lru_cache(maxsize=32)
def _function(program: Program) -> ScalarFunction:
    """The model with its objectives; its equations are those of the sweep's own programs."""

    def traced(structure: jax.tree_util.PyTreeDef) -> tuple[Any, Any, None]:
        return *equations_of(program, structure), None

    made_from = f"designs {program}" if program.can_be_kept else None
    return ScalarFunction(lambda base, values: (evaluate_point(program, base, values), None), made_from, traced)
