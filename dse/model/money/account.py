"""Metrics of money and carbon, shared by training and serving.

Embodied and operational emissions are kg of CO2 (ACT: Gupta et al., ISCA 2022).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine.power import power_limit
from dse.model.machine.rates import reciprocal
from dse.model.money.device import DeviceParts, making, parts_of, price_of
from dse.model.money.system import YEAR, Spending, capital, spending
from dse.types import Accelerator, Design, Emissions, Fab, Made, Prices, Process, Scalar, System
from dse.types.reliability import UNLIMITED


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


_HOUR = 3600.0


class Account(NamedTuple):
    """Metrics of money and carbon, and their rates per second."""

    metrics: dict[str, Scalar]
    spent: Spending
    emitted: Emitted


def account(design: Design, devices: Scalar, power: Scalar, tokens: Scalar) -> Account:
    """Money and carbon of a design.

    ``capital_cost``: all devices with stated spares; ``tco_per_year``: a year of owning them, in use for the share
    ``in_use``; ``cost_per_device_hour``: per device and hour of use.

    Args:
        design: the design.
        devices: devices in use.
        power: W that they draw, facility included.
        tokens: tokens/s that they produce.
    """
    system = design.system
    prices, emissions = system.prices or Prices(), system.emissions or Emissions()
    price, made = price_of(system.accelerator, prices)
    board = power_limit(system.accelerator.power)
    paid = capital(system, prices, price, board + system.host_power)
    bought = devices + spare_devices(system)
    paid_all = type(paid)(*(bought * part for part in paid))
    spent = spending(paid, prices, bought, power)
    embodied = device_carbon(system.accelerator, emissions)
    out = emitted(embodied, emissions, prices, bought, power)
    rate, total = spent.total, paid_all.total
    metrics = dict(
        device_price=price,
        device_cost=made.total,
        **{f"device_cost_{part}": value for part, value in made._asdict().items()},
        capital_cost=total,
        **{f"capital_cost_{part}": value for part, value in paid_all._asdict().items()},
        tco_per_year=rate * (prices.in_use * YEAR),
        cost_per_device_hour=_HOUR * rate * reciprocal(devices),
        tokens_per_cost=tokens * reciprocal(rate),
        tokens_per_second_per_dollar=tokens * reciprocal(total),
        device_carbon=embodied.total,
        **{f"device_carbon_{part}": value for part, value in embodied._asdict().items()},
    )
    return Account(metrics, spent, out)


def spare_devices(system: System) -> Scalar:
    """Devices of the spare nodes that a system states; default spares are not paid for."""
    reliability = system.reliability
    if reliability is None:
        return 0.0
    return jnp.where(reliability.spares < UNLIMITED, reliability.spares, 0.0) * reliability.node_devices


def integrate(each_second: Spending | Emitted, seconds: Scalar) -> dict[str, Scalar]:
    """Amount over ``seconds``: the total under an empty name, and ``_<part>`` by part."""
    parts = {f"_{name}": seconds * value for name, value in each_second._asdict().items()}
    return {"": sum(parts.values()), **parts}
