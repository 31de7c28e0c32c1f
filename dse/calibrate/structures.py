"""Designs of measured rows as arrays, by structure: those with an optional record apart from those without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dse.measured.prediction import alike
from dse.types import Design


class Alike(NamedTuple):
    """Designs of one structure (with a limit of power, say), as rows of leaves."""

    members: list[int]  #: which rows these are
    leaves: np.ndarray
    structure: Any


def rows_alike(designs: Sequence[Design]) -> list[Alike]:
    """Designs by structure."""
    return [
        Alike(members, np.stack(jax.tree.leaves(stack), axis=1), jax.tree.structure(stack))
        for members, stack in alike(designs)
    ]


def by_structure(
    groups: Iterable[Alike], function: Callable[..., Any], shape: tuple[int, ...], *by_row: np.ndarray
) -> np.ndarray:
    """A function of leaves and of what else is known ``by_row``, over all rows, in an array of ``shape``."""
    found = np.zeros(shape)
    for members, leaves, structure in groups:
        found[members] = function(leaves, *(values[members] for values in by_row), structure=structure)
    return found
