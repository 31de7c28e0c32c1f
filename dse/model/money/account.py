"""Metrics of money and carbon, shared by training and serving.

Embodied and operational emissions are kg of CO2 (ACT: Gupta et al., ISCA 2022).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.machine.power import power_limit
from dse.model.machine.rates import reciprocal
from dse.model.money.device import DeviceParts, manufacture, parts_of, price_of
from dse.model.money.system import YEAR, Spending, capital, spending
from dse.types import Accelerator, Design, Emissions, Fab, Manufacture, Prices, Process, Scalar, System
from dse.types.reliability import UNLIMITED


class EmbodiedCarbon(NamedTuple):
    """Embodied emissions of one accelerator by part, kg."""

    dies: Scalar
    memory: Scalar
    package: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class EmissionRates(NamedTuple):
    """Emissions of a system in use by part, kg/s."""

    operation: Scalar
    devices: Scalar
    servers: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


def die_carbon(area: Scalar, good: Scalar, process: Process, emissions: Emissions) -> Scalar:
    """Return the emissions of dies of ``area`` m^2 with yield ``good`` (0 to 1), kg.

    ``A / Y (CI_fab EPA + GPA + MPA)`` (ACT).
    """
    return area / good * (emissions.fab_grid * process.fab_energy + process.fab_gas + emissions.materials)


def device_carbon(accelerator: Accelerator, emissions: Emissions) -> EmbodiedCarbon:
    """Return the embodied emissions of one ``accelerator`` by part, kg.

    Where its dies are unknown, their emissions are in proportion to its TDP.
    """
    manufacturing, fab = accelerator.made, accelerator.fab or Fab()
    by_power = emissions.watt * accelerator.power.tdp
    if not accelerator.has_die_data:
        return EmbodiedCarbon(by_power, emissions.memory_intensity * accelerator.memory.capacity, 0.0)
    manufacturing = manufacturing or Manufacture()
    parts = parts_of(accelerator, manufacturing, fab)
    embodied = _carbon_of_parts(parts, manufacturing, fab, emissions)
    if accelerator.is_generated:
        return embodied
    has_area = manufacturing.logic_area > 0.0
    return EmbodiedCarbon(
        jnp.where(has_area, embodied.dies, by_power), embodied.memory, jnp.where(has_area, embodied.package, 0.0)
    )


def _carbon_of_parts(parts: DeviceParts, manufacturing: Manufacture, fab: Fab, emissions: Emissions) -> EmbodiedCarbon:
    """Return the embodied emissions of one accelerator's dies, memory and package, kg."""
    products = manufacture(parts, manufacturing, fab)
    dies = die_carbon(products.linked, products.compute.good, parts.process, emissions)
    dies = dies + die_carbon(parts.base, products.base.good, parts.base_process, emissions)
    carrier_area = jnp.maximum(products.linked, parts.base) + parts.memory_area
    return EmbodiedCarbon(dies, emissions.memory_intensity * parts.memory_bytes, emissions.carrier * carrier_area)


def emission_rates(
    embodied: EmbodiedCarbon, emissions: Emissions, prices: Prices, devices: Scalar, power: Scalar
) -> EmissionRates:
    """Return the emissions of ``devices`` in use that draw ``power`` W together, facility included, kg/s.

    ``CI P + n (C_device + C_server) / (T u)`` with lifetime ``T`` and share in use ``u`` (ACT: Gupta et al. 2022).

    Embodied emissions are written off over the lifetime, of which the devices are in use for the share ``in_use``.
    """
    lifetimes_per_second = devices / (prices.lifetime * prices.in_use)
    return EmissionRates(
        emissions.grid * power, embodied.total * lifetimes_per_second, emissions.server * lifetimes_per_second
    )


_HOUR = 3600.0


class Account(NamedTuple):
    """Metrics of money and carbon (those with parts as total and parts), and their rates per second."""

    metrics: dict[str, Any]
    running_costs: Spending
    emitted: EmissionRates


def account(design: Design, devices: Scalar, power: Scalar, tokens: Scalar) -> Account:
    """Return metrics of money and carbon of a design, its USD/s and its kg/s by part.

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
    price, costs = price_of(system.accelerator, prices)
    board = power_limit(system.accelerator.power)
    capital_per_device = capital(system, prices, price, board + system.host_power)
    devices_paid = devices + spare_devices(system)
    total_capital = type(capital_per_device)(*(devices_paid * part for part in capital_per_device))
    running_costs = spending(capital_per_device, prices, devices_paid, power)
    embodied = device_carbon(system.accelerator, emissions)
    emissions_per_second = emission_rates(embodied, emissions, prices, devices_paid, power)
    rate, total = running_costs.total, total_capital.total
    metrics = dict(
        device_price=price,
        device_cost=(costs.total, costs),
        capital_cost=(total, total_capital),
        tco_per_year=rate * (prices.in_use * YEAR),
        cost_per_device_hour=_HOUR * rate * reciprocal(devices),
        tokens_per_cost=tokens * reciprocal(rate),
        tokens_per_second_per_dollar=tokens * reciprocal(total),
        device_carbon=(embodied.total, embodied),
    )
    return Account(metrics, running_costs, emissions_per_second)


def spare_devices(system: System) -> Scalar:
    """Return the count of devices in a system's spare nodes, 0 for default spares, which are not paid for."""
    reliability = system.reliability
    if reliability is None:
        return 0.0
    return jnp.where(reliability.spares < UNLIMITED, reliability.spares, 0.0) * reliability.node_devices


def integrate(each_second: Spending | EmissionRates, seconds: Scalar) -> tuple[Scalar, dict[str, Scalar]]:
    """Return (total, part → amount) over ``seconds``, in USD or kg.

    Args:
        each_second: amounts per second by part.
        seconds: duration, s.
    """
    parts = {part: seconds * value for part, value in each_second._asdict().items()}
    return sum(parts.values()), parts
