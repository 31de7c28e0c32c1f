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
from dse.sweep.engine.tables import host_values
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


def evaluate_lines(nest: Nest, lines: range, *, program: Program) -> tuple[Any, tuple[Any, ...]]:
    """All metrics and the objectives of lines of a nest: arrays [outer, inner]."""
    outer = {path: values[:, None] for path, values in host_values(nest, _digits(nest, lines)).items()}
    inner = {path: column[None] for path, column in nest.inner_columns().items()}
    return evaluate_few(nest.grid.base, outer | inner, program=program)


def score_lines(
    nest: Nest, lines: range, n_outer: int, n_objectives: int, thresholds: np.ndarray | None, *, program: Program
) -> Scores:  # fmt: skip
    """Scores of lines of a nest, as those of :meth:`~dse.sweep.engine.engine.SweepEngine.scores`.

    Args:
        nest: what they are lines of.
        lines: they.
        n_outer: outer indices of the arrays, past the last of the lines nothing is a mapping.
        n_objectives: the first so many.
        thresholds: [objective, threshold], how many scores are below each is told; None for none.
        program: what is computed.
    """
    metrics, objectives = evaluate_lines(nest, lines, program=program)
    objectives = objectives[:n_objectives]
    row, *options = _digits(nest, lines)[len(nest.outer_dimensions) :]
    is_mapping = nest.distinct[(row, *options)]
    is_mapping = np.tile(is_mapping, nest.n_inner // is_mapping.shape[1])
    can_win = is_mapping & metrics.feasible
    scores = np.full((len(objectives), n_outer, nest.n_inner), np.inf, np.float32)
    for own, value in zip(scores, objectives, strict=True):
        own[: len(row)] = np.where(can_win & np.isfinite(value), value, np.inf)
    ranked = np.asarray(np.isfinite(scores).all(axis=0))
    counts = counted(metrics.infeasible_reason[is_mapping], ranked[: len(row)][is_mapping], program.study)
    found = Scores(scores, scores.min(axis=2), scores.min(axis=1), np.asarray(ranked.any(axis=1)), counts)
    if thresholds is None:
        return found
    return found._replace(below=below(scores.reshape(len(scores), -1), thresholds))


def _digits(nest: Nest, lines: range) -> tuple[np.ndarray, ...]:
    """Digits of the outer indices of lines."""
    outer = np.arange(lines.start * nest.outer_a_line, lines.stop * nest.outer_a_line)
    return np.unravel_index(outer, nest.outer_shape)


@functools.lru_cache(maxsize=32)
def _function(program: Program) -> ScalarFunction:
    """The model with its objectives; its equations are those of the sweep's own programs."""

    def traced(structure: jax.tree_util.PyTreeDef) -> tuple[Any, Any, None]:
        return *equations_of(program, structure), None

    made_from = f"designs {program}" if program.can_be_kept else None
    return ScalarFunction(lambda base, values: (evaluate_point(program, base, values), None), made_from, traced)
