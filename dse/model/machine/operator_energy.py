"""Energy of operators on one device, at the nominal voltage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.formats import trait
from dse.model.layout import Layout
from dse.model.machine.power import flop_energy
from dse.types import Design, Operator, OperatorKind, Power, Scalar, Work


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
    """Joules of a FLOP under a recipe; of one that leaves some layers in 16 bits the mean over its layers."""
    matrix, left = flop_energy(precision, power), trait(precision, lambda recipe: recipe.sixteen_bit)
    sixteen = jnp.maximum(matrix, power.matrix_energy)
    return FlopEnergy(matrix + left * (sixteen - matrix), sixteen, power.vector_energy)


class Done(NamedTuple):
    """FLOPs by the units that do them, and bytes of device memory."""

    matrix: Scalar
    sixteen: Scalar
    vector: Scalar
    moved: Scalar

    def repeated(self, times: Scalar) -> Done:
        """As often."""
        return Done(*(times * part for part in self))

    def plus(self, other: Done, times: Scalar) -> Done:
        """The sum with ``times`` another."""
        return Done(*(a + times * b for a, b in zip(self, other, strict=True)))


def work_done(works: list[tuple[OperatorKind, Scalar, Work | None]]) -> Done:
    """The work of kernels given as (kind of operator, how often, work)."""
    there = [(kind, times, work) for kind, times, work in works if work is not None]

    def flops(*kinds: OperatorKind) -> Scalar:
        return sum((times * work.flops for kind, times, work in there if kind in kinds), 0.0)

    return Done(
        matrix=flops(OperatorKind.matrix, OperatorKind.grouped),
        sixteen=flops(OperatorKind.matrix_16, OperatorKind.flash),
        vector=flops(OperatorKind.vector),
        moved=sum((times * work.bytes for _, times, work in there), 0.0),
    )


def operators_energy(operators: Sequence[Operator], design: Design, again: Layout | None = None) -> Joules:
    """Joules of a list of operators, forward and backward, on one device for one micro-batch.

    With a layout, ``again``, also of what recompute runs again under it.
    """
    forward = work_done([(o.kind, o.present, o.forward) for o in operators])
    backward = work_done([(o.kind, o.present, work) for o in operators for work in o.gradients])
    total = forward.plus(backward, design.workload.backward)
    if again is not None:
        core = work_done([(o.kind, o.present, o.forward) for o in operators if o.core])
        kept = work_done([(o.kind, o.present * o.kept, o.forward) for o in operators if o.is_kept])
        total = total.plus(forward, again.full + again.selective_op)
        total = total.plus(core, again.selective).plus(kept, -again.selective_op)
        if again.experts is not None:
            levels = again.experts.again
            repeated = work_done([(o.kind, o.present * levels[o.again], o.forward) for o in operators if o.again])
            total = total.plus(repeated, 1.0)
    return energy_of(total, design)


def energy_of(total: Done, design: Design) -> Joules:
    """Joules of work, by the units that do it."""
    power = design.system.accelerator.power
    flop = flop_energies(design.mapping.precision, power)
    return Joules(
        matrix=flop.matrix * total.matrix + flop.sixteen * total.sixteen,
        vector=flop.vector * total.vector,
        cache=power.cache_energy * total.moved,
        memory=power.memory_energy * total.moved,
    )
