"""Results of a sweep as labelled arrays, before any library of datasets knows them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np


class Variable(NamedTuple):
    """Values along named dimensions, with attributes."""

    dims: tuple[str, ...]
    values: np.ndarray
    attrs: dict[str, Any]


def numbers(dims: tuple[str, ...], values: Any, long_name: str, units: str = "1") -> Variable:
    """Return numbers along dimensions as a variable with units and long name."""
    return Variable(dims, np.asarray(values), {"units": units, "long_name": long_name})


@dataclasses.dataclass(frozen=True)
class Labelled:
    """Results of a sweep, by name."""

    data: dict[str, Variable]
    coords: dict[str, Variable]
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)
    overview: Labelled | None = None  #: the overview of all designs, kept or not
    reducible: frozenset[str] = frozenset()  #: names of data that files have without dimensions of constant values

    @property
    def sizes(self) -> dict[str, int]:
        """Dimension → its length."""
        variables = [*self.coords.values(), *self.data.values()]
        return {dim: size for v in variables for dim, size in zip(v.dims, v.values.shape, strict=True)}
