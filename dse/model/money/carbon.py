"""Embodied and operational emissions, in kg of CO2 (ACT: Gupta et al., ISCA 2022)."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.money.device import DeviceParts, making, parts_of
from dse.types import Accelerator, Emissions, Fab, Made, Prices, Process, Scalar


class Embodied(NamedTuple):
    """Embodied emissions of one accelerator by part, kg."""

    dies: Scalar
    memory: Scalar
    package: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class Emitted(NamedTuple):
    """Emissions of a system in use by part, kg/s."""

    operation: Scalar
    devices: Scalar
    servers: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


def die_carbon(area: Scalar, good: Scalar, process: Process, emissions: Emissions) -> Scalar:
    """Emissions of dies of ``area`` m^2 with yield ``good``, kg: ``A / Y (CI_fab EPA + GPA + MPA)`` (ACT)."""
    return area / good * (emissions.fab_grid * process.fab_energy + process.fab_gas + emissions.materials)


def device_carbon(accelerator: Accelerator, emissions: Emissions) -> Embodied:
    """Embodied emissions of ``accelerator``, kg; where its dies are unknown, in proportion to its TDP."""
    made, fab = accelerator.made, accelerator.fab or Fab()
    by_power = emissions.watt * accelerator.power.tdp
    if not accelerator.has_known_dies:
        return Embodied(by_power, emissions.memory_intensity * accelerator.memory.capacity, 0.0)
    made = made or Made()
    parts = parts_of(accelerator, made, fab)
    found = _of_parts(parts, made, fab, emissions)
    if accelerator.is_generated:
        return found
    known = made.logic_area > 0.0
    return Embodied(jnp.where(known, found.dies, by_power), found.memory, jnp.where(known, found.package, 0.0))


def _of_parts(parts: DeviceParts, made: Made, fab: Fab, emissions: Emissions) -> Embodied:
    done = making(parts, made, fab)
    dies = die_carbon(done.linked, done.compute.good, parts.process, emissions)
    dies = dies + die_carbon(parts.base, done.base.good, parts.base_process, emissions)
    stands = jnp.maximum(done.linked, parts.base) + parts.memory_area
    return Embodied(dies, emissions.memory_intensity * parts.memory_bytes, emissions.carrier * stands)


def emitted(embodied: Embodied, emissions: Emissions, prices: Prices, devices: Scalar, power: Scalar) -> Emitted:
    """Emissions of ``devices`` in use that draw ``power`` W together, facility included, kg/s.

    Embodied emissions are written off over the lifetime, of which the devices are in use for the share ``in_use``.
    """
    each = devices / (prices.lifetime * prices.in_use)
    return Emitted(emissions.grid * power, embodied.total * each, emissions.server * each)
