"""Operating point of a design: its clock as set, or lower under a power limit."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dse.model.choice import min_prefer_first
from dse.model.layout import Layout
from dse.model.machine.operator_energy import Joules, PassJoules, phase_energy, repeated_demand
from dse.model.machine.power import (
    Demand,
    at_clock,
    busy_power,
    clock_ratio,
    clock_under_limit,
    power_limit,
)
from dse.model.machine.rates import reciprocal
from dse.model.steps.layer import LayerTime, host_launches, layer_time
from dse.model.work.training import TrainingWork, layer_phase
from dse.types import Accelerator, Design, Scalar

#: Clock over the nominal one of a second timing, which separates core time from other time.
SLOW_CLOCK = 0.5
#: Maximum clock over the nominal one, with a margin for rounding.
HIGHEST_CLOCK = 1.0 + 1e-5


class DesignAtClock(NamedTuple):
    """A design at its clock."""

    design: Design
    ratio: Scalar  # clock over the nominal one
    clock_infeasible: Scalar  # whether no clock meets the power limit, or the set clock exceeds the nominal one


def with_accelerator(design: Design, accelerator: Accelerator) -> Design:
    """Return a copy of the design with ``accelerator`` in its system."""
    return dataclasses.replace(design, system=dataclasses.replace(design.system, accelerator=accelerator))


class SolvedClock(NamedTuple):
    """Clock under a limit over the nominal one, and under the TDP for the same measured time."""

    ratio: Scalar
    as_sold: Scalar
    violates_limit: Any  # whether no clock meets the limit


def repeated_work(
    accelerator: Accelerator, energy: Joules | PassJoules, nominal_time: Scalar, slow_time: Scalar, active: Scalar
) -> Demand:
    """Return the demand of repeated work, with its seconds split into core, other and memory time by their slope.

    Its memory time is at most that in which device memory at its bandwidth moves its bytes.

    Args:
        accelerator: at its nominal clock.
        energy: J of the work.
        nominal_time: seconds of the work at that clock.
        slow_time: seconds at :data:`SLOW_CLOCK` times that clock.
        active: share of the cores' time with work.
    """
    power, bandwidth = accelerator.power, accelerator.memory.bandwidth
    knee = bandwidth * reciprocal(power.feed)
    reading_time = energy.memory / jnp.maximum(power.memory_energy, 1e-18) * reciprocal(bandwidth)
    memory = jnp.minimum(reading_time, nominal_time)
    starved = memory * jnp.maximum(knee / SLOW_CLOCK - 1.0, 0.0)
    core = jnp.clip((slow_time - nominal_time - starved) / (1.0 / SLOW_CLOCK - 1.0), 0.0, nominal_time)
    other = nominal_time - core
    return repeated_demand(energy, nominal_time, power)._replace(
        core_time=core, other_time=other, memory_time=jnp.minimum(memory, other), knee=knee, active=active
    )


def limited_clock(accelerator: Accelerator, measured_time: Scalar, nominal: Demand) -> SolvedClock:
    """Return the clock of repeated work under the power limit and as sold, over the nominal one.

    An operator's limit, and the budget of a generated chip, apply to the repeated work. Times of a sold chip, and the
    bandwidth that its memory reaches, are measured under its TDP: an operator's limit counts relative to the clock that
    the TDP leaves for the same work and time, so a limit at the TDP changes nothing. Without a limit the set clock
    counts over the nominal one.

    Args:
        accelerator: at its nominal clock.
        measured_time: seconds of the work as measured.
        nominal: the same with its seconds split into core and other time.
    """
    power = accelerator.power
    set_ratio = clock_ratio(power)
    sold_ratio: Scalar = jnp.ones_like(measured_time)
    is_sold = accelerator.solves_clock and not accelerator.is_generated
    if is_sold:
        measured = nominal._replace(core_time=jnp.zeros_like(measured_time), other_time=measured_time, memory_time=0.0)
        sold_ratio = clock_under_limit(measured, power.tdp, sold_ratio, power)
    demand = nominal._replace(core_time=nominal.core_time * sold_ratio, knee=nominal.knee * sold_ratio)
    limit, highest = power_limit(power), min_prefer_first(set_ratio, sold_ratio)
    limited_ratio = clock_under_limit(demand, limit, highest, power)
    if is_sold:  # the slope at the TDP stays that of lower limits
        limited_ratio += jax.lax.stop_gradient(jnp.where(limit >= power.tdp, highest - limited_ratio, 0.0))
    # Clocks are exact to a thousandth, so the power limit is met within a few.
    violates_limit = busy_power(demand, limited_ratio, power) > 1.01 * limit
    return SolvedClock(limited_ratio, sold_ratio, violates_limit)


def operate(design: Design, layout: Layout, work: TrainingWork) -> DesignAtClock:
    """Return the design at its set or limited clock, that clock over the nominal one, and whether it is infeasible.

    The limit applies to one layer and micro-batch in repetition (:func:`limited_clock`). Clocks above the nominal one
    are infeasible, so the slope at the nominal clock is that of lower clocks.

    Args:
        design: at its nominal clock.
        layout: sizes and groups of the design.
        work: its ledger.
    """
    accelerator = design.system.accelerator
    power, set_ratio = accelerator.power, clock_ratio(accelerator.power)
    is_above_nominal = set_ratio > HIGHEST_CLOCK
    if not accelerator.solves_clock:
        return DesignAtClock(with_accelerator(design, at_clock(accelerator, set_ratio)), set_ratio, is_above_nominal)

    def layer(ratio: float) -> LayerTime:
        slowed = with_accelerator(design, at_clock(accelerator, ratio))
        return layer_time(slowed, layout, work)

    nominal_layer = layer(1.0)
    layer_seconds = jnp.maximum(nominal_layer.total, 1e-12)
    active = nominal_layer.working(power.polling) / layer_seconds
    energy = phase_energy(layer_phase(design, layout, work), design)
    demand = repeated_work(accelerator, energy, layer_seconds, layer(SLOW_CLOCK).total, active)
    demand = demand._replace(host_time=host_launches(design, layout))
    limited_ratio, sold_ratio, violates_limit = limited_clock(accelerator, layer_seconds, demand)
    slower_design = with_accelerator(design, at_clock(accelerator, limited_ratio / sold_ratio))
    return DesignAtClock(slower_design, limited_ratio, is_above_nominal | violates_limit)
