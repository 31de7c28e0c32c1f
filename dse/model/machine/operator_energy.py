"""Energy of what the ledger holds, at the nominal voltage."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus, times
from dse.model.formats import trait
from dse.model.machine.messages import link_energy
from dse.model.machine.power import flop_energy
from dse.model.work.ledger import Phase, over_kernels
from dse.types import Design, OperatorKind, Power, Scalar, Work


class Joules(NamedTuple):
    """Energy of some work at the nominal voltage, by the unit that does it."""

    matrix: Scalar
    vector: Scalar
    cache: Scalar
    memory: Scalar  # device memory: does not follow the cores' voltage
    network: Scalar  # links, neither

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

    matrix: Scalar = 0.0
    sixteen: Scalar = 0.0
    vector: Scalar = 0.0
    moved: Scalar = 0.0


#: Kind of operator → the units that do its FLOPs.
_UNITS = {
    OperatorKind.matrix: "matrix", OperatorKind.grouped: "matrix", OperatorKind.matrix_16: "sixteen",
    OperatorKind.flash: "sixteen", OperatorKind.vector: "vector",
}  # fmt: skip


def work_done(kind: OperatorKind, work: Work) -> Done:
    """What one kernel does."""
    return Done(**{_UNITS[kind]: work.flops}, moved=work.bytes)


def phase_energy(phase: Phase, design: Design, read_again: Scalar = 0.0) -> Joules:
    """Joules of a phase on the devices that its counts are of, ``read_again`` bytes beside those of its operators."""
    done = over_kernels(phase.runs, work_done)
    power = design.system.accelerator.power
    flop, moved = flop_energies(design.mapping.precision, power), plus(done.moved, read_again)
    return Joules(
        matrix=plus(times(flop.matrix, done.matrix), times(flop.sixteen, done.sixteen)),
        vector=flop.vector * done.vector,
        cache=power.cache_energy * moved,
        memory=power.memory_energy * moved,
        network=link_energy(phase.sends, design.system),
    )
