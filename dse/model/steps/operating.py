"""The machine of a design as it runs: its clock set, and lowered where a power limit asks for it."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.choice import min_prefer_first
from dse.model.layout import Layout
from dse.model.machine.operator_energy import phase_energy
from dse.model.machine.power import Demand, at_clock, busy_power, clock_ratio, clock_under_limit, power_limit, repeats
from dse.model.machine.rates import byte_time, reciprocal
from dse.model.steps.layer import LayerTime, launch_time, layer_time
from dse.model.work.training import TrainingWork, layer_phase
from dse.types import Accelerator, Design, Scalar

#: Clock over the nominal one at which work is timed again, to tell what of its time follows the clock.
SLOW = 0.5
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


class Solved(NamedTuple):
    """The clock that a limit leaves of the nominal one, and the one that times as measured had."""

    ratio: Scalar
    as_sold: Scalar
    over: Any  # whether none meets the limit


def is_limited(accelerator: Accelerator) -> bool:
    """Whether another limit than the one as sold holds, so that the clock has to be solved for."""
    return accelerator.power.limit is not None or accelerator.chip is not None


def demanded(accelerator: Accelerator, whole: Scalar, slow: Scalar, spent: Demand) -> Demand:
    """What a device repeats, by what of it follows the clock of the cores.

    Args:
        accelerator: at its nominal clock.
        whole: seconds of the work at that clock.
        slow: the same at :data:`SLOW` times it.
        spent: joules, and whatever else is known; of its seconds that of the memory at most.
    """
    knee = accelerator.memory.bandwidth * reciprocal(accelerator.power.feed)
    memory = jnp.minimum(spent.memory_time, whole)
    starved = memory * jnp.maximum(knee / SLOW - 1.0, 0.0)
    core = jnp.clip((slow - whole - starved) / (1.0 / SLOW - 1.0), 0.0, whole)
    other = whole - core
    return spent._replace(core_time=core, other_time=other, memory_time=jnp.minimum(memory, other), knee=knee)


def reading_time(joules: Scalar, accelerator: Accelerator) -> Scalar:
    """Seconds that device memory takes for what it spends so many joules on."""
    return joules / jnp.maximum(accelerator.power.memory_energy, 1e-18) * byte_time(accelerator)


def limited_clock(accelerator: Accelerator, whole: Scalar, nominal: Demand) -> Solved:
    """The clock at which the device repeats some work under its limit.

    A limit that is set, and the budget of a generated chip, hold for what the device repeats. Times of a chip that is
    sold are measured ones, with whatever clock its own limit left: a limit that is set counts over the clock that this
    one leaves for the same work in the same time. Without a limit the clock that is set counts over the nominal one.

    Args:
        accelerator: at its nominal clock.
        whole: seconds of the work as measured.
        nominal: the same with its seconds split into those of the cores and others.
    """
    power = accelerator.power
    wanted, generated = clock_ratio(power), accelerator.chip is not None
    as_sold: Scalar = jnp.ones_like(whole)
    if power.limit is not None and not generated:
        measured = nominal._replace(core_time=jnp.zeros_like(whole), other_time=whole, memory_time=0.0)
        as_sold = clock_under_limit(measured, power.tdp, as_sold, power)
    demand = nominal._replace(core_time=nominal.core_time * as_sold)
    limit = power_limit(power)
    limited = clock_under_limit(demand, limit, min_prefer_first(wanted, as_sold), power)
    # Clocks are exact to a thousandth, so that a limit is met to within a few.
    over = busy_power(demand, limited, power) > 1.01 * limit
    return Solved(limited, as_sold, over)


def operate(design: Design, layout: Layout, work: TrainingWork) -> Operating:
    """The design at the clock that is set, or at the lower one that its power limit leaves.

    A limit holds for one layer and micro-batch that the device repeats (:func:`limited_clock`). No clock above the
    nominal one can be had, so slopes by a clock at its nominal one are those of lower clocks.
    """
    accelerator = design.system.accelerator
    power, wanted = accelerator.power, clock_ratio(accelerator.power)
    above = wanted > HIGHEST_CLOCK
    if not is_limited(accelerator):
        return Operating(with_accelerator(design, at_clock(accelerator, wanted)), wanted, above)

    def layer(ratio: float) -> LayerTime:
        slowed = with_accelerator(design, at_clock(accelerator, ratio))
        return layer_time(slowed, layout, work)

    one = layer(1.0)
    whole = jnp.maximum(one.total, 1e-12)
    active = one.working(power.polling) / whole
    energy = phase_energy(layer_phase(design, layout, work), design)
    reading = reading_time(energy.memory, accelerator)
    spent = repeats(energy, whole, power)._replace(
        active=active, host_time=launch_time(design, layout), memory_time=reading
    )
    demand = demanded(accelerator, whole, layer(SLOW).total, spent)
    limited, as_sold, over = limited_clock(accelerator, whole, demand)
    slower = with_accelerator(design, at_clock(accelerator, limited / as_sold))
    return Operating(slower, limited, above | over)
