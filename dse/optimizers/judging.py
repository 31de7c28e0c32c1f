"""What evaluation says of designs to a search, and which of them is better.

The feasible come first, then those that violate least (constraint domination).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.optimizers.space import ArrayT
from dse.types import Scalar


class Evaluation(NamedTuple, Generic[ArrayT]):
    """Objectives, violation and reasons of designs: arrays [...]."""

    objectives: ArrayT  #: [..., objective], maximised objectives negated
    violation: ArrayT  #: 0 for the feasible, else how far they are from it, the sum over what is violated
    reason: ArrayT  #: bits of the study's reasons, and its bit for constraints of the specification


class Judgement(NamedTuple):
    """Violation and value of points [batch], compared in this order."""

    violation: Array  #: 0 for the feasible
    value: Array  #: small is good


def better(candidate: tuple[ArrayT, ArrayT], incumbent: tuple[ArrayT, ArrayT]) -> ArrayT:
    """True where a (violation, value) is better than another: less violation, then the smaller value.

    This is constraint domination; arrays are compared entry by entry.
    """
    return (candidate[0] < incumbent[0]) | ((candidate[0] == incumbent[0]) & (candidate[1] < incumbent[1]))


def order(violation: Array, value: Array) -> Array:
    """Return indices from best to worst along the last axis: by violation, then value; equals keep their order."""
    return jnp.lexsort((value, violation), axis=-1)


def best_position(violation: np.ndarray, value: np.ndarray, digits: np.ndarray) -> np.ndarray:
    """Return the index of the best along the last axis, of equals the one with the lowest digits [..., digit].

    The first of equal designs counts.
    """
    is_best = violation == violation.min(axis=-1, keepdims=True)
    for key in (value, *np.moveaxis(digits, -1, 0)):
        filler = np.inf if np.issubdtype(key.dtype, np.floating) else np.iinfo(key.dtype).max
        candidates = np.where(is_best, key, filler)
        is_best = is_best & (candidates == candidates.min(axis=-1, keepdims=True))
    return is_best.argmax(axis=-1)


def logarithm(value: Scalar) -> Scalar:
    """Return the logarithm of a positive value, minus that of the size of a negative (maximised) one."""
    return jnp.sign(value) * jnp.log(jnp.maximum(jnp.abs(value), jnp.finfo(jnp.float32).tiny))


def scalar(objectives: Array, weights: Array) -> Array:
    """Return one value [...] of minimised objectives [..., objective]: the weighted geometric mean of several.

    Any scale of an objective leaves the order as it is; a maximised one counts by its inverse.
    """
    if objectives.shape[-1] == 1:
        return objectives[..., 0]
    log_size = jnp.log(jnp.maximum(jnp.abs(objectives), jnp.finfo(jnp.float32).tiny))
    return jnp.exp((jnp.sign(objectives) * log_size) @ weights)


def scalar_by_numpy(objectives: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return :func:`scalar` of NumPy arrays, elementwise so that a design has one value in any batch."""
    if objectives.shape[-1] == 1:
        return objectives[..., 0]
    log_size = np.log(np.maximum(np.abs(objectives.astype(np.float64)), np.finfo(np.float32).tiny))
    terms = np.moveaxis(np.sign(objectives) * log_size * weights, -1, 0)
    return np.exp(sum(terms)).astype(np.float32)


def weights_of(seeds: Sequence[int], n_objectives: int) -> np.ndarray:
    """Return the weights [seed, objective] of each seed, which add up to 1, spread over the simplex.

    Args:
        seeds: of a method.
        n_objectives: one has the weight 1.
    """
    if n_objectives == 1:
        return np.ones((len(seeds), 1), np.float32)
    if n_objectives == 2:
        first = [((seed * 0.6180339887498949) + 0.5) % 1.0 for seed in seeds]  # golden ratio: even for any count
        return np.array([(share, 1.0 - share) for share in first], np.float32)
    weights = [np.random.default_rng([n_objectives, seed]).dirichlet(np.ones(n_objectives)) for seed in seeds]
    return np.array(weights, np.float32)
