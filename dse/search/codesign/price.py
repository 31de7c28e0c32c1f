"""What a generated chip costs to make: its die from the wafer, and its memory.

A simple price, for budgets of co-design: neither package, test, board nor design are counted.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from dse import catalog
from dse.errors import InputError
from dse.types import Scalar

#: Wafer of 300 mm, edge that holds no dies, and scribe line between dies, in m.
_DIAMETER, _EDGE, _SCRIBE = 0.3, 5e-3, 0.2e-3

#: Clustering of defects of logic dies (chiplet actuary, DAC 2022).
_CLUSTERING = 10.0


@dataclasses.dataclass(frozen=True)
class Price:
    """Prices of what a chip is made of."""

    wafer: float  #: USD of a wafer
    defects: float  #: defects on an area, 1/m^2
    memory: float  #: USD of a unit of memory

    def die(self, area: Scalar) -> Scalar:
        """USD of a known good die of this area in m^2: ``wafer / (dies a wafer x yield)``."""
        return self.wafer / (dies_per_wafer(area) * die_yield(area, self.defects))

    def chip(self, area: Scalar, units: Scalar) -> Scalar:
        """USD of one die and its units of memory."""
        return self.die(area) + units * self.memory


def dies_per_wafer(area: Scalar) -> Scalar:
    """Square dies of an area in m^2 on a wafer of 300 mm, a smooth count (chiplet actuary, DAC 2022).

    ``N = pi (D / 2 - e)^2 / A' - pi (D - 2 e) / sqrt(2 A')`` with ``A' = A + 2 s sqrt(A) + s^2``.
    """
    usable = _DIAMETER - 2.0 * _EDGE
    side = jnp.sqrt(area) + _SCRIBE
    return jnp.pi * (0.5 * usable / side) ** 2 - jnp.pi * usable / (jnp.sqrt(2.0) * side)


def die_yield(area: Scalar, defects: Scalar) -> Scalar:
    """Share of good dies, negative binomial: ``(1 + D0 A / alpha)^-alpha`` with alpha = 10."""
    return (1.0 + defects * area / _CLUSTERING) ** -_CLUSTERING


def price(node: str, memory: str, where: str) -> Price:
    """Prices of a node and a memory of the catalogue; an InputError where one has none."""
    found = {}
    for kind, name, field in (
        ("node", node, "wafer_price"), ("node", node, "defect_density"), ("memory", memory, "unit_price")
    ):  # fmt: skip
        value = catalog.entry(kind, name, where).value(field)
        if value is None:
            raise InputError(where, f"{kind} {name} without {field}", f"one that has {field}", f"add {field} to it")
        found[field] = value
    return Price(found["wafer_price"], found["defect_density"], found["unit_price"])
