"""The machine of a design as it runs: its clock set, and lowered where a power limit asks for it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.collectives import Groups
from dse.model.energy import layer_link_energy, run_energy
from dse.model.offload import OneLayer
from dse.model.operators import Operator
from dse.model.power import LOWEST_CLOCK, Demand, at_clock, clock_ratio, clock_under_limit, power_limit
from dse.model.training import layer_launch_time, layer_time
from dse.model.transformer import Local
from dse.types import Accelerator, Design, Scalar

#: Clock over the nominal one at which a layer is timed again, to tell what of its time follows the clock.
_SLOW = 0.5


class Operating(NamedTuple):
    """A design with the rates that its clock leaves."""

    design: Design
    ratio: Scalar  # clock over the nominal one
    stuck: Scalar  # whether the device draws more than its limit at the lowest clock too


def with_accelerator(design: Design, accelerator: Accelerator) -> Design:
    """A copy of the design with another accelerator."""
    return dataclasses.replace(design, system=dataclasses.replace(design.system, accelerator=accelerator))


def operate(
    design: Design, local: Local, groups: Groups, layer: list[Operator], on_host: OneLayer
) -> Operating:
    """The design at the clock that is set, or at the lower one that its power limit leaves.

    Where a limit is set, one layer and micro-batch is what the device repeats. Times are those of chips under the
    limit they are sold with: of measured clocks, whatever they were. So the clock counts over the one that limit
    leaves for the same work in the same time. Without a limit it counts over the nominal one, for less work: beside
    the clock of a chip that its own limit slows down, set that limit too.
    """
    accelerator = design.system.accelerator
    power, wanted = accelerator.power, clock_ratio(accelerator.power)
    if power.limit is None:
        return Operating(with_accelerator(design, at_clock(accelerator, wanted)), wanted, wanted <= 0.0)

    def seconds(ratio: float) -> Scalar:
        slowed = with_accelerator(design, at_clock(accelerator, ratio))
        return layer_time(slowed, local, groups, layer, on_host).total

    whole = jnp.maximum(seconds(1.0), 1e-12)
    core = jnp.clip((seconds(_SLOW) - whole) / (1.0 / _SLOW - 1.0), 0.0, whole)
    energy = run_energy(layer, design, repeated=True)
    other = energy.memory + layer_link_energy(design, local, groups)
    host = layer_launch_time(design, local)
    measured = Demand(jnp.zeros_like(whole), whole, energy.cores, other, host_time=host)
    as_sold = clock_under_limit(measured, power.tdp, jnp.ones_like(wanted), power)
    demand = Demand(core * as_sold, whole - core, energy.cores, other, host_time=host)
    limited = clock_under_limit(demand, power_limit(power), jnp.minimum(wanted, as_sold), power)
    slower = with_accelerator(design, at_clock(accelerator, limited / as_sold))
    return Operating(slower, limited, limited <= LOWEST_CLOCK)
