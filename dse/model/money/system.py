"""What a system costs to buy and to run: devices, servers, networks counted from their topology, facility, power."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling, max_prefer_first
from dse.types import HOST, Network, Prices, Scalar, System

YEAR = 365.25 * 86400.0  # s


class Capital(NamedTuple):
    """USD that are paid for a device of a system, by part."""

    devices: Scalar
    servers: Scalar
    scale_up: Scalar
    scale_out: Scalar
    facility: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)

    @property
    def computers(self) -> Scalar:
        """All but the facility."""
        return self.devices + self.servers + self.scale_up + self.scale_out


class Spending(NamedTuple):
    """USD a second while a system works, by part."""

    devices: Scalar
    servers: Scalar
    scale_up: Scalar
    scale_out: Scalar
    facility: Scalar
    maintenance: Scalar
    electricity: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class Fabric(NamedTuple):
    """What a device has of a network: ports of switches, links of copper and of light."""

    ports: Scalar
    copper: Scalar
    optical: Scalar


def tree_levels(devices: Scalar, radix: Scalar) -> Scalar:
    """Levels of a fat tree of so many devices: the least ``l`` with ``2 (k / 2)^l >= N`` (Al-Fares et al. 2008)."""
    down = 0.5 * radix + 0.0 * devices  # a plain number has no precision of its own, its logarithm has
    wanted = jnp.log2(jnp.maximum(0.5 * devices, 1.0)) / jnp.log2(down)
    return ceiling(jnp.maximum(wanted - 1e-5, 1e-5))  # a whole number of levels never counts one more by rounding


def fabric(network: Network, devices: Scalar, radix: Scalar) -> Fabric:
    """Ports and links a device of a switched network.

    A tree of ``l`` levels has ``l`` links a device, the lowest of copper, and ``2 l - 1`` ports; above its pods only
    one of ``oversubscription`` of them. A balanced dragonfly (Kim et al., ISCA 2008) has, a device, a link to it, one
    within its group and half a global one: 4 ports.
    """
    levels, pods = tree_levels(devices, radix), network.pods
    if pods is None:
        return Fabric(2.0 * levels - 1.0, 1.0, levels - 1.0)
    several = devices > pods.size
    levels = jnp.where(several, jnp.maximum(levels, 2.0), levels)
    # A pod may need as many levels as all of them together: then the upper of them join the pods.
    below = jnp.minimum(tree_levels(pods.size, radix), jnp.where(several, levels - 1.0, levels))
    up = below - 1.0 + (levels - below) / pods.oversubscription
    across = 0.5 / pods.oversubscription
    dragonfly = pods.detour > 1.0
    return Fabric(
        jnp.where(dragonfly, 3.0 + 2.0 * across, 2.0 * up + 1.0),
        jnp.where(dragonfly, 2.0, 1.0),
        jnp.where(dragonfly, across, up),
    )


def scale_up_price(system: System, prices: Prices) -> Scalar:
    """USD of a device's share of what joins its domain: ports of switches, or cables to its neighbours."""
    network = system.scale_up
    if network.links is not None:
        each = 0.5 * prices.cable + prices.optical_share * prices.transceiver
    else:
        each = (1.0 - network.mesh) * prices.local_switch + network.mesh * 0.5 * prices.cable
    return jnp.where(network.domain > 1.0, network.bandwidth * each, 0.0)


def scale_out_price(system: System, prices: Prices) -> Scalar:
    """USD of a device's share of what joins domains: its network card, ports, cables, transceivers."""
    found = fabric(system.scale_out, system.n_devices, prices.radix)
    each = prices.nic_price + prices.switch * found.ports + prices.cable * (found.copper + found.optical)
    each = each + 2.0 * prices.transceiver * found.optical
    return jnp.where(system.n_devices > system.scale_up.domain, system.scale_out.bandwidth * each, 0.0)


def memory_price(system: System, prices: Prices) -> Scalar:
    """USD of a device's share of the host's memory beyond what the server has, and of far memory beyond the host's.

    A server with less is sold for no less.
    """
    host, far = system.host.capacity, system.far
    beyond = prices.host_byte_price * max_prefer_first(host - HOST.capacity, 0.0)
    return beyond if far is None else beyond + far.byte_price * max_prefer_first(far.capacity - host, 0.0)


def capital(system: System, prices: Prices, device: Scalar, watts: Scalar) -> Capital:
    """What a device of ``system`` costs: itself at a price of ``device`` USD, and its shares of the rest.

    ``watts``: what its computers are provisioned for, a device, without the facility's own.
    """
    return Capital(
        devices=device,
        servers=prices.server + memory_price(system, prices),
        scale_up=scale_up_price(system, prices),
        scale_out=scale_out_price(system, prices),
        facility=prices.facility * watts,
    )


def spending(paid: Capital, prices: Prices, devices: Scalar, power: Scalar) -> Spending:
    """USD a second of so many devices that draw ``power`` watts together, facility included, while they work.

    What was paid is written off evenly over the lifetimes, of which they work the share ``in_use``.
    """
    written_off = devices / (prices.lifetime * prices.in_use)
    return Spending(
        devices=paid.devices * written_off,
        servers=paid.servers * written_off,
        scale_up=paid.scale_up * written_off,
        scale_out=paid.scale_out * written_off,
        facility=paid.facility * devices / (prices.facility_lifetime * prices.in_use),
        maintenance=prices.maintenance * paid.computers * devices / prices.in_use,
        electricity=power * prices.electricity,
    )
