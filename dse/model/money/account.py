"""Metrics of money and carbon, shared by training and serving."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine.power import power_limit
from dse.model.machine.rates import reciprocal
from dse.model.money.carbon import Emitted, device_carbon, emitted
from dse.model.money.device import price_of
from dse.model.money.system import YEAR, Spending, capital, spending
from dse.types import Design, Emissions, Prices, Scalar, System
from dse.types.reliability import UNLIMITED

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
