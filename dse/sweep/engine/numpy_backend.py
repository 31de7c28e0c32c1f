"""Few designs by NumPy: winners, or all of a small sweep, hundreds of thousands in the time that XLA compiles."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dse.equations import ScalarFunction
from dse.equations.operations import Operations
from dse.errors import InputError
from dse.sweep.engine.nesting import Nest
from dse.sweep.engine.point import Program, equations_of, evaluate_point
from dse.sweep.engine.scores import Output, Scores, count_below_on_host, count_on_host
from dse.types import Design
from dse.types.trees import Structure, tree_leaves, tree_map


def evaluate_few(base: Design, values: Mapping[str, np.ndarray], *, program: Program) -> tuple[Any, tuple[Any, ...]]:
    """Return all metrics and the objectives of single designs, evaluated by NumPy.

    Args:
        base: the design that has every leaf not in ``values``.
        values: full path → values of leaves, in SI units; these or those of the base are arrays [design], or [outer, 1]
            and [1, inner].
        program: what is computed.

    Returns:
        The study's record of metrics and one array an objective, as :func:`~dse.sweep.engine.point.evaluate_point`
        has them, all of them arrays [design] or [outer, inner].
    """
    count = max(len(leaf) for leaf in tree_leaves((values, base)) if np.ndim(leaf))
    return _function(program).batch_values(count, base, dict(values))


def operations_of(program: Program, base: Design, values: Mapping[str, Any]) -> Operations:
    """Return the operations of :func:`evaluate_few` for leaves of this structure.

    Raises:
        InputError: for a model with operations that NumPy does not have here.
    """
    operations = _function(program).operations(base, dict(values))
    if operations is None:
        where, got = f"study {program.study.name}", "a model with operations that dse has no intervals of"
        raise InputError(where, got, "the primitives of dse.equations", "search without --prove")
    return operations


def merge_structures(outputs_by_structure: Sequence[tuple[np.ndarray, Any]]) -> Any:
    """Return the outputs of several structures merged, in the order of all designs.

    Args:
        outputs_by_structure: (indices among all designs, outputs as arrays [design]) of each structure.

    Returns:
        The outputs of all designs, arrays [design].
    """
    order = np.argsort(np.concatenate([positions for positions, _ in outputs_by_structure]))
    return tree_map(lambda *arrays: np.concatenate(arrays)[order], *(outputs for _, outputs in outputs_by_structure))


def evaluate_outer(nest: Nest, outer: range, *, program: Program) -> tuple[Any, tuple[Any, ...]]:
    """Return all metrics and the objectives of outer indices of a nest, an ``Output`` each."""
    shape = *nest.factor_sizes, len(outer)
    return tree_map(lambda values: Output(values.T, shape), _outer_outputs(nest, outer, program))


def _outer_outputs(nest: Nest, outer: range, program: Program) -> tuple[Any, tuple[Any, ...]]:
    """Return all metrics and the objectives of outer indices as arrays [outer, inner]."""
    digits = np.unravel_index(np.array(outer), nest.outer_shape)
    tables = zip(nest.outer_columns(), digits, strict=True)
    values = {path: column[index][:, None] for table, index in tables for path, column in table.items()}
    values |= {path: column[None] for path, column in nest.columns_along(nest.inner_axes).items()}
    return evaluate_few(nest.grid.base, values, program=program)


def score_outer(
    nest: Nest, outer: range, count: int, n_objectives: int, thresholds: np.ndarray | None, *, program: Program
) -> Scores:
    """Return the scores of outer indices as :meth:`~dse.sweep.engine.engine.SweepEngine.scores`, in one group.

    Args:
        nest: the nest.
        outer: the outer indices.
        count: length of the arrays; past the last of ``outer`` nothing is a mapping.
        n_objectives: number of objectives, the first ones of the program.
        thresholds: [objective, threshold] below which scores are counted; None for none.
        program: what is computed.
    """
    metrics, objectives = _outer_outputs(nest, outer, program)
    objectives, n = objectives[:n_objectives], len(outer)
    mask_row = np.array(outer) % nest.n_mask_rows
    is_mapping = nest.mask[mask_row][:, nest.mask_columns(nest.inner_axes)]
    can_win = is_mapping & metrics.feasible
    scores = np.full((len(objectives), count, nest.n_inner), np.inf, np.float32)
    for objective_scores, value in zip(scores, objectives, strict=True):
        objective_scores[:n] = np.where(can_win & np.isfinite(value), value, np.inf)
    ranked = np.asarray(np.isfinite(scores).all(axis=0))
    counts = count_on_host(metrics.infeasible_reason[is_mapping], ranked[:n][is_mapping], program.study)
    scores_by_factor = scores.transpose(0, 2, 1).reshape(len(scores), *nest.factor_sizes, count)
    inner_best = (scores.min(axis=1),)
    chunk_scores = Scores(
        (scores_by_factor,), (), scores.min(axis=2), inner_best, np.asarray(ranked.any(axis=1)), counts
    )
    if thresholds is None:
        return chunk_scores
    return chunk_scores._replace(below=count_below_on_host(scores.reshape(len(scores), -1), thresholds))


@functools.lru_cache(maxsize=32)
def _function(program: Program) -> ScalarFunction:
    """Return the model with its objectives as a function of scalars, with the equations of the sweep's programs."""

    def traced(structure: Structure) -> tuple[Any, Any, None]:
        return *equations_of(program, structure.to_jax()), None

    cache_key = f"designs {program}" if program.is_cacheable else None
    return ScalarFunction(lambda base, values: (evaluate_point(program, base, values), None), cache_key, traced)
