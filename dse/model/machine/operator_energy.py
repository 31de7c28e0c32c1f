"""Energy of operators on one device, at the nominal voltage."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine.power import flop_energy
from dse.types import OperatorKind, Power, Scalar, Work


class Joules(NamedTuple):
    """Energy of some work at the nominal voltage, by the unit that does it."""

    matrix: Scalar
    vector: Scalar
    cache: Scalar
    memory: Scalar  # device memory: does not follow the cores' voltage

    def plus(self, other: Joules, times: Scalar = 1.0) -> Joules:
        """The sum with ``times`` another."""
        return Joules(*(a + times * b for a, b in zip(self, other, strict=True)))

    @property
    def cores(self) -> Scalar:
        """What follows the cores' voltage."""
        return self.matrix + self.vector + self.cache


class FlopEnergy(NamedTuple):
    """Joules of a FLOP by the kind of operator, at the nominal voltage."""

    matrix: Scalar  # at the recipe's precision
    sixteen: Scalar  # what a narrower recipe leaves in 16 bits
    vector: Scalar


def flop_energies(precision: Scalar, power: Power) -> FlopEnergy:
    """Joules of a FLOP under a recipe."""
    matrix = flop_energy(precision, power)
    return FlopEnergy(matrix, jnp.maximum(matrix, power.matrix_energy), power.vector_energy)


def work_energy(works: list[tuple[OperatorKind, Scalar, Work | None]], flop: FlopEnergy, power: Power) -> Joules:
    """Joules of kernels given as (kind of operator, how often, work)."""
    there = [(kind, times, work) for kind, times, work in works if work is not None]

    def flops(*kinds: OperatorKind) -> Scalar:
        return sum((times * work.flops for kind, times, work in there if kind in kinds), 0.0)

    moved = sum((times * work.bytes for _, times, work in there), 0.0)
    sixteen = flops(OperatorKind.matrix_16, OperatorKind.flash)
    return Joules(
        matrix=flop.matrix * flops(OperatorKind.matrix) + flop.sixteen * sixteen,
        vector=flop.vector * flops(OperatorKind.vector),
        cache=power.cache_energy * moved,
        memory=power.memory_energy * moved,
    )
