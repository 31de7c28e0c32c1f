"""What gradients say of steps along the leaves of a design, for methods that use them."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

#: Gradients by the logarithm of a leaf beyond this are cut: what is steeper is the edge of something.
STEEPEST = 10.0


def cut(slope: Array) -> Array:
    """A slope within the steepest; 0 for one that is not a number."""
    return jnp.clip(jnp.nan_to_num(slope), -STEEPEST, STEEPEST)


def predicted_change(by_leaf: dict[str, Array], here: dict[str, Array], there: dict[str, Array]) -> Array:
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
