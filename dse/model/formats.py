"""Number formats of a traced precision: operand bytes, casts, and optimiser state, from its recipe."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp

from dse.model.choice import value_or, where_on
from dse.model.recipes import RECIPES, Recipe
from dse.types import Precision, Scalar, Software


def trait(precision: Scalar, attribute: Callable[[Recipe], float]) -> Scalar:
    """Return an attribute of the recipe of a traced precision, that of bf16 for an unknown code.

    Args:
        precision: code of the recipe.
        attribute: from a recipe to the number.
    """
    usual = attribute(RECIPES[Precision.bf16])
    selected: Scalar = usual
    for code, recipe in RECIPES.items():
        if attribute(recipe) != usual:
            selected = jnp.where(precision == float(code), attribute(recipe), selected)
    return selected


def operand_bytes(precision: Scalar) -> Scalar:
    """Return the bytes per matrix operand, with its share of block scales."""
    return trait(precision, lambda recipe: recipe.operand + recipe.scales)


def cast_reads(precision: Scalar) -> Scalar:
    """Return how often an activation is read per cast to matrix operands."""
    return trait(precision, lambda recipe: recipe.reads)


def transposed_casts(precision: Scalar) -> Scalar:
    """Return 1 where training casts transposed operands separately (:func:`dse.model.work.operators.casts`), else 0."""
    return trait(precision, lambda recipe: recipe.transposed_casts)


def activation_bytes(precision: Scalar) -> Scalar:
    """Return the bytes per activation: 4 in fp32 and tf32 training, 2 in every mixed-precision recipe."""
    full = (precision == float(Precision.fp32)) | (precision == float(Precision.tf32))
    return jnp.where(full, 4.0, 2.0)


def parameter_bytes(precision: Scalar, software: Software) -> Scalar:
    """Return the bytes per weight on a device: those of an activation, or of weights that are updated in place."""
    in_place_bytes = value_or(software.parameter_bytes, 0.0)
    return where_on(in_place_bytes, in_place_bytes, activation_bytes(precision))


def optimizer_bytes(precision: Scalar, software: Software) -> Scalar:
    """Return the bytes of Adam state per parameter: two moments, fp32 unless stated, and an fp32 master copy.

    Without a copy where the weights are fp32, or are updated in place.
    """
    moments = 2.0 * value_or(software.moment_bytes, 4.0)
    usual = moments + 8.0 - 2.0 * activation_bytes(precision)
    return where_on(value_or(software.parameter_bytes, 0.0), moments, usual)
