"""What evaluation says of designs to a search, and which of them is better.

The feasible come first, then those that violate least (constraint domination).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array


class Evaluation(NamedTuple):
    """What searchers see of designs: arrays [...]."""

    objectives: Array  #: [..., objective] signed so that small is good
    violation: Array  #: 0 for the feasible, else how far they are from it, the sum over what is violated
    reason: Array  #: bits of Infeasible, and the engine's bit for constraints of the specification


class Judgement(NamedTuple):
    """What a searcher of one value sees of points: arrays [batch]. Compare by violation, then by value."""

    violation: Array  #: 0 for the feasible
    value: Array  #: small is good
    evaluation: Evaluation


def better(one: tuple[Array, Array], other: tuple[Array, Array]) -> Array:
    """Whether (violation, value) is better: less violation, then the smaller value (constraint domination)."""
    return (one[0] < other[0]) | ((one[0] == other[0]) & (one[1] < other[1]))


def order(violation: Array, value: Array) -> Array:
    """Positions from best to worst along the last axis; equals keep their order."""
    return jnp.lexsort((value, violation), axis=-1)


def best_position(violation: Array, value: Array, digits: Array) -> Array:
    """Position of the best of [point]: of equals the one with the lowest digits, then the first."""
    left = violation == jnp.min(violation)
    for key in (value, *jnp.moveaxis(digits, -1, 0)):
        worst = jnp.inf if jnp.issubdtype(key.dtype, jnp.floating) else jnp.iinfo(key.dtype).max
        masked = jnp.where(left, key, worst)
        left = left & (masked == jnp.min(masked))
    return jnp.argmax(left)
