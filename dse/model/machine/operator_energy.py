"""Energy of operators on one device, at the nominal voltage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine.power import flop_energy
from dse.types import Design, Operator, OperatorKind, Power, Recompute, Scalar, Work


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


def operators_energy(operators: Sequence[Operator], design: Design, repeated: bool = False) -> Joules:
    """Joules of a list of operators, forward and backward, on one device for one micro-batch.

    With ``repeated`` also of what the mapping's recompute policy runs again.
    """
    w, m, power = design.workload, design.mapping, design.system.accelerator.power
    flop = flop_energies(m.precision, power)
    forward = work_energy([(o.kind, o.present, o.forward) for o in operators], flop, power)
    backward = work_energy([(o.kind, o.present, work) for o in operators for work in o.gradients], flop, power)
    total = forward.plus(backward, w.backward)
    if not repeated:
        return total
    core = work_energy([(o.kind, o.present, o.forward) for o in operators if o.core], flop, power)
    full = jnp.where(m.recompute == float(Recompute.full), w.backward, 0.0)
    selective = jnp.where(m.recompute == float(Recompute.selective), w.backward, 0.0)
    return total.plus(forward, full).plus(core, selective)
