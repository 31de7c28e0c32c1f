"""The compiled programs of a sweep: a chunk of outer indices x the inner product, by two nested ``vmap``s.

What an inner axis does not touch is computed once (see :mod:`dse.sweep.engine.nesting`). Tables, radices and the start
are traced: one program serves all chunks, and every sweep of the same axes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import NamedSharding

from dse.sweep.engine.decoding import decode, values_at
from dse.sweep.engine.point import Program, run_point
from dse.sweep.engine.programs import persistent_jit
from dse.sweep.engine.tables import Tables
from dse.types import Scalar


def _nested(function: Callable[..., Any], outer: Any, inner: Any, n_inner: int) -> Any:
    """``function`` of outer values x inner values: arrays [outer, inner]."""
    along_inner = jax.vmap(function, in_axes=(None, 0), axis_size=n_inner)
    return jax.vmap(along_inner, in_axes=(0, None))(outer, inner)


@persistent_jit("count", "sharding")
def outer_chunk(
    grid: Tables, start: Array, n_valid: Array, *, count: int, sharding: NamedSharding
) -> tuple[dict[str, Array], Array]:
    """Leaf path → values of ``count`` outer indices from ``start``, and the words of their masks, spread over devices.

    A program apart from those that compute with the values, because XLA would look each value up at every use.
    Past the first ``n_valid`` nothing is a mapping.
    """
    digits = decode(start, grid.radices, count)
    words = grid.mask.at[tuple(digits[1 - grid.mask.ndim :])].get(mode="promise_in_bounds")
    words = jnp.where((jnp.arange(count) < n_valid)[:, None], words, 0)
    return lax.with_sharding_constraint((values_at(grid.outer, digits), words), sharding)


@persistent_jit("program")
def evaluate_chunk(grid: Tables, values: dict[str, Array], *, program: Program) -> tuple[Any, tuple[Array, ...]]:
    """All metrics and the objectives of outer values x the inner product: arrays [outer, inner]."""
    return _nested(lambda o, i: run_point(program, grid.base, o | i), values, grid.inner, len(grid.bit))


@persistent_jit("program")
def score_chunk(grid: Tables, values: dict[str, Array], words: Array, *, program: Program) -> tuple[Array, Array]:
    """Scores and reasons of what :func:`outer_chunk` gives x the inner product.

    Returns:
        [objective, outer, inner] scores, the smaller the better, infinite for what is infeasible or no mapping.
        [outer, inner] bits of the reasons, ``Study.feasible_bit`` where there is none, 0 for what is no mapping.
    """

    def score(outer: Any, inner: Any) -> tuple[tuple[Scalar, ...], Scalar]:
        (values, words), (options, word, bit) = outer, inner
        metrics, objectives = run_point(program, grid.base, values | options)
        is_mapping = (_word(words, word) >> bit) & 1 != 0
        can_win = is_mapping & metrics.feasible
        reason = jnp.where(metrics.feasible, program.study.feasible_bit, metrics.infeasible_reason)
        scores = tuple(jnp.where(can_win & jnp.isfinite(value), value, jnp.inf) for value in objectives)
        return scores, jnp.where(is_mapping, reason, 0)

    inner = grid.inner, grid.word, grid.bit
    scores, reasons = _nested(score, (values, tuple(words.T)), inner, len(grid.bit))
    return jnp.stack(scores), reasons


def _word(words: tuple[Scalar, ...], position: Scalar) -> Scalar:
    """The word at a traced position."""
    return functools.reduce(lambda found, k: jnp.where(position == k, words[k], found), range(len(words)), words[0])
