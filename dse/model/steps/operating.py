"""The machine of a design as it runs: its clock set, and lowered where a power limit asks for it."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import least
from dse.model.layout import Layout
from dse.model.machine.messages import layer_links, link_energy
from dse.model.machine.operator_energy import operators_energy
from dse.model.machine.power import Demand, at_clock, busy_power, clock_ratio, clock_under_limit, power_limit
from dse.model.steps.layer import LayerTime, launch_time, layer_time
from dse.model.work.training import TrainingWork
from dse.types import Accelerator, Design, Scalar

#: Clock over the nominal one at which a layer is timed again, to tell what of its time follows the clock.
_SLOW = 0.5
#: Clock over the nominal one up to which chips run; what is above it is rounding.
HIGHEST_CLOCK = 1.0 + 1e-5


class Operating(NamedTuple):
    """A design with the rates that its clock leaves."""

    design: Design
    ratio: Scalar  # clock over the nominal one
    clock_infeasible: Scalar  # whether no clock meets the limit, or the one that is set is above the nominal one


def with_accelerator(design: Design, accelerator: Accelerator) -> Design:
    """A copy of the design with another accelerator."""
    return dataclasses.replace(design, system=dataclasses.replace(design.system, accelerator=accelerator))


def operate(design: Design, layout: Layout, work: TrainingWork) -> Operating:
    """The design at the clock that is set, or at the lower one that its power limit leaves.

    A limit that is set, and the budget of a generated chip, hold for one layer and micro-batch that the device
    repeats. Times of a chip that is sold are measured ones, with whatever clock its own limit left: a limit that is
    set counts over the clock that this one leaves for the same work in the same time. Without a limit the clock that
    is set counts over the nominal one. No clock above the nominal one can be had, so slopes by a clock at its
    nominal one are those of lower clocks.
    """
    accelerator = design.system.accelerator
    power, wanted = accelerator.power, clock_ratio(accelerator.power)
    above = wanted > HIGHEST_CLOCK
    generated = accelerator.chip is not None
    if power.limit is None and not generated and accelerator.board is None:
        return Operating(with_accelerator(design, at_clock(accelerator, wanted)), wanted, above)

    def layer(ratio: float) -> LayerTime:
        slowed = with_accelerator(design, at_clock(accelerator, ratio))
        return layer_time(slowed, layout, work)

    one = layer(1.0)
    whole = jnp.maximum(one.total, 1e-12)
    active = one.working(power.polling) / whole
    core = jnp.clip((layer(_SLOW).total - whole) / (1.0 / _SLOW - 1.0), 0.0, whole)
    energy = operators_energy(work.layer, design, layout)
    links = layer_links(link_energy(work.messages, design.system, layout), layout)
    other = (1.0 + power.memory_cooling) * energy.memory + links
    host = launch_time(design, layout)
    as_sold: Scalar = jnp.ones_like(whole)
    if power.limit is not None and not generated:
        measured = Demand(jnp.zeros_like(whole), whole, energy.cores, other, active, host)
        bought = clock_under_limit(measured, power.tdp, as_sold, power)
        as_sold = bought if accelerator.board is None else jnp.where(accelerator.board.holds_clock > 0.0, 1.0, bought)
    demand = Demand(core * as_sold, whole - core, energy.cores, other, active, host)
    limit = power_limit(power)
    limited = clock_under_limit(demand, limit, least(wanted, as_sold), power)
    # Clocks are exact to a thousandth, so that a limit is met to within a few.
    over = busy_power(demand, limited, power) > 1.01 * limit
    if power.limit is None and accelerator.board is not None:  # one of stated rates has no limit but its own
        held = accelerator.board.holds_clock > 0.0
        limited, over = jnp.where(held, limited, wanted), held & over
    slower = with_accelerator(design, at_clock(accelerator, limited / as_sold))
    return Operating(slower, limited, above | over)
