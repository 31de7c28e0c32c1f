"""Energy of the ledger at the nominal voltage."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus, times
from dse.model.formats import trait
from dse.model.machine.die_links import die_links, served_bytes
from dse.model.machine.messages import converted_bytes, link_energy
from dse.model.machine.power import Demand, flop_energy
from dse.model.work.ledger import Phase, sum_over_kernels
from dse.types import Design, OperatorKind, Power, Scalar, Work


class Joules(NamedTuple):
    """Energy at the nominal voltage by unit, J."""

    matrix: Scalar
    vector: Scalar
    cache: Scalar  # last-level cache, whose arrays have a voltage of their own
    memory: Scalar  # device memory
    network: Scalar  # links

    @property
    def cores(self) -> Scalar:
        """Energy that follows the cores' voltage, J."""
        return self.matrix + self.vector


class PassJoules(NamedTuple):
    """Joules per device and pass of a stage: cores, last-level cache, memory and links."""

    cores: Scalar
    cache: Scalar
    memory: Scalar
    network: Scalar


def repeated_demand(energy: Joules | PassJoules, seconds: Scalar, power: Power) -> Demand:
    """Return the time (s) and energy (J) demand of repeated work, with all ``seconds`` independent of the clock.

    ``E_other = (1 + cooling) E_cache + (1 + memory cooling) E_memory + E_network``, with ``E_core`` apart.
    """
    stored = (1.0 + power.cooling) * energy.cache + (1.0 + power.memory_cooling) * energy.memory
    return Demand(0.0, seconds, energy.cores, stored + energy.network)


class FlopEnergy(NamedTuple):
    """Energy per FLOP by kind of operator at the nominal voltage, J."""

    matrix: Scalar  # at the recipe's precision
    sixteen: Scalar  # 16-bit operators of a narrower recipe
    vector: Scalar


def flop_energies(precision: Scalar, power: Power) -> FlopEnergy:
    """Return the J per matrix, 16-bit and vector FLOP; matrix is a mean over layers where some are in 16 bits."""
    matrix, sixteen_bit_share = flop_energy(precision, power), trait(precision, lambda recipe: recipe.sixteen_bit)
    sixteen = jnp.maximum(matrix, power.matrix_energy)
    return FlopEnergy(matrix + sixteen_bit_share * (sixteen - matrix), sixteen, power.vector_energy)


class WorkTotals(NamedTuple):
    """FLOPs by unit, and device-memory bytes."""

    matrix: Scalar = 0.0
    sixteen: Scalar = 0.0
    vector: Scalar = 0.0
    bytes: Scalar = 0.0


#: Kind of operator → unit of its FLOPs.
_UNITS = {
    OperatorKind.matrix: "matrix",
    OperatorKind.grouped: "matrix",
    OperatorKind.matrix_16: "sixteen",
    OperatorKind.flash: "sixteen",
    OperatorKind.context: "sixteen",
    OperatorKind.vector: "vector",
}


def work_totals(kind: OperatorKind, work: Work) -> WorkTotals:
    """Return the FLOPs of one kernel, in the field of its unit, and its bytes."""
    return WorkTotals(**{_UNITS[kind]: work.flops}, bytes=work.bytes)


def phase_energy(phase: Phase, design: Design) -> Joules:
    """Return the energy of a phase by unit, J, at the nominal voltage, with that of casts of messages."""
    totals = sum_over_kernels(phase.runs, work_totals)
    cast_bytes = converted_bytes(phase.sends)
    accelerator = design.system.accelerator
    power, links = accelerator.power, die_links(accelerator)
    crossing: Scalar = 0.0
    if links is not None:
        served_total = sum_over_kernels(phase.runs, lambda kind, work: served_bytes(kind, work, links.dies))
        crossing = links.byte_energy * plus(served_total, cast_bytes)
    flop, memory_bytes = flop_energies(design.mapping.precision, power), plus(totals.bytes, cast_bytes)
    return Joules(
        matrix=plus(times(flop.matrix, totals.matrix), times(flop.sixteen, totals.sixteen)),
        vector=flop.vector * totals.vector,
        cache=plus(power.cache_energy * memory_bytes, crossing),
        memory=power.memory_energy * memory_bytes,
        network=link_energy(phase.sends, design.system),
    )
