"""Gradients of what a search optimises, for methods that use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
from jax import Array

from dse.search import space as spaces
from dse.search.judging import Judgement
from dse.search.space import Point, Space
from dse.types import Scalar

if TYPE_CHECKING:
    from dse.search.problem import Problem


def logarithm(value: Scalar) -> Scalar:
    """Logarithm of a value that is to be made small; of a negative one, which is to be made large, with its sign."""
    return jnp.sign(value) * jnp.log(jnp.maximum(jnp.abs(value), jnp.finfo(jnp.float32).tiny))


#: Gradients by the logarithm of a leaf beyond this are cut: what is steeper is the edge of something.
STEEPEST = 10.0


def cut(slope: Array) -> Array:
    """A slope within the steepest; 0 for one that is not a number."""
    return jnp.clip(jnp.nan_to_num(slope), -STEEPEST, STEEPEST)


def foretold(by_leaf: dict[str, Array], here: dict[str, Array], there: dict[str, Array]) -> Array:
    """First-order change of what the gradient is of, from the leaves ``here`` to ``there`` [...].

    Along the logarithms of leaves that are positive at both ends (``df = df/dln x ln(y/x)``), else along the leaves.
    """
    total = jnp.float32(0.0)
    for path, slope in by_leaf.items():
        old, new = here[path], there[path]
        positive = (old > 0.0) & (new > 0.0)
        ratio = jnp.where(positive, new, 1.0) / jnp.where(positive, old, 1.0)
        total = total + jnp.where(positive, cut(slope * old) * jnp.log(ratio), cut(slope) * (new - old))
    return total


def judged_with_slopes(
    problem: Problem, space: Space, worth: Callable[[Array], Array], points: Point, multiplier: Array,
    stiffness: Array,
) -> tuple[Judgement, dict[str, Array]]:  # fmt: skip
    """Points [batch] judged, and the gradient of their augmented Lagrangian by the leaves that the space sets.

    ``ln(value) + multiplier violation + stiffness / 2 violation^2``, with one multiplier a point. Leaf path → [batch].
    ``worth`` makes one value of the objectives.
    """

    def lagrangian(values: dict[str, Scalar], multiplier: Scalar) -> tuple[Scalar, tuple]:
        found = problem.by_equations(values)
        value = worth(found.objectives)
        total = logarithm(value) + multiplier * found.violation + 0.5 * stiffness * found.violation * found.violation
        return total, (found, value)

    slope = jax.vmap(jax.grad(lagrangian, has_aux=True))
    by_leaf, (found, value) = slope(spaces.values(space, points), multiplier)
    return Judgement(found.violation, value, found), by_leaf
