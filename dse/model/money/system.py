"""Capital and running cost of a system: devices, servers, networks by topology, facility, power."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling, max_prefer_first
from dse.types import HOST, Network, Prices, Scalar, System

YEAR = 365.25 * 86400.0  # s


class Capital(NamedTuple):
    """Capital cost per device of a system by part, USD."""

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
        """Capital cost without the facility, USD per device."""
        return self.devices + self.servers + self.scale_up + self.scale_out


class Spending(NamedTuple):
    """Cost of a system in use by part, USD/s."""

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
    """Switch ports, copper links and optical links per device of a network."""

    ports: Scalar
    copper: Scalar
    optical: Scalar


def tree_levels(devices: Scalar, radix: Scalar) -> Scalar:
    """Return the count of levels of a fat tree of ``devices``: the least ``l`` with ``2 (k / 2)^l >= N``.

    Al-Fares et al. 2008.
    """
    down = 0.5 * radix + 0.0 * devices  # gives the logarithm the precision of ``devices``
    levels = jnp.log2(jnp.maximum(0.5 * devices, 1.0)) / jnp.log2(down)
    return ceiling(jnp.maximum(levels - 1e-5, 1e-5))  # rounding never adds a level


def fabric(network: Network, devices: Scalar, radix: Scalar) -> Fabric:
    """Return the counts of ports, copper links and optical links per device of a switched network.

    A tree of ``l`` levels has ``l`` links per device, the lowest of copper, and ``2 l - 1`` ports; above pods these are
    divided by ``oversubscription``. A balanced dragonfly (Kim et al., ISCA 2008) has, per device, one link to it, one
    within its group and half a global one: 4 ports.
    """
    levels, pods = tree_levels(devices, radix), network.pods
    if pods is None:
        return Fabric(2.0 * levels - 1.0, 1.0, levels - 1.0)
    has_pods = devices > pods.size
    levels = jnp.where(has_pods, jnp.maximum(levels, 2.0), levels)
    # A pod may need as many levels as the whole tree; then the top level joins the pods.
    pod_levels = jnp.minimum(tree_levels(pods.size, radix), jnp.where(has_pods, levels - 1.0, levels))
    upper_links = pod_levels - 1.0 + (levels - pod_levels) / pods.oversubscription
    across = 0.5 / pods.oversubscription
    dragonfly = pods.detour > 1.0
    return Fabric(
        jnp.where(dragonfly, 3.0 + 2.0 * across, 2.0 * upper_links + 1.0),
        jnp.where(dragonfly, 2.0, 1.0),
        jnp.where(dragonfly, across, upper_links),
    )


def scale_up_price(system: System, prices: Prices) -> Scalar:
    """Return the price of the scale-up network per device, USD: switch ports, or cables; 0 for one device a domain."""
    network = system.scale_up
    if network.links is not None:
        price_per_bandwidth = 0.5 * prices.cable + prices.optical_share * prices.transceiver
    else:
        price_per_bandwidth = (1.0 - network.mesh) * prices.local_switch + network.mesh * 0.5 * prices.cable
    return jnp.where(network.domain > 1.0, network.bandwidth * price_per_bandwidth, 0.0)


def scale_out_price(system: System, prices: Prices) -> Scalar:
    """Return the price of the scale-out network per device, USD, with card and transceivers; 0 within one domain."""
    ports_and_links = fabric(system.scale_out, system.n_devices, prices.radix)
    price_per_bandwidth = (
        prices.nic_price
        + prices.switch * ports_and_links.ports
        + prices.cable * (ports_and_links.copper + ports_and_links.optical)
    )
    price_per_bandwidth = price_per_bandwidth + 2.0 * prices.transceiver * ports_and_links.optical
    return jnp.where(system.n_devices > system.scale_up.domain, system.scale_out.bandwidth * price_per_bandwidth, 0.0)


def memory_price(system: System, prices: Prices) -> Scalar:
    """Return the price per device of host memory beyond a standard server's and of far memory beyond the host's, USD.

    Less memory than standard is not cheaper.
    """
    host, far = system.host.capacity, system.far
    host_price = prices.host_byte_price * max_prefer_first(host - HOST.capacity, 0.0)
    return host_price if far is None else host_price + far.byte_price * max_prefer_first(far.capacity - host, 0.0)


def capital(system: System, prices: Prices, device: Scalar, watts: Scalar) -> Capital:
    """Return the capital cost per device of ``system`` by part, USD.

    Args:
        system: devices, servers and networks.
        prices: of all but the device.
        device: price of the device, USD.
        watts: provisioned power per device, W, without the facility's own.
    """
    return Capital(
        devices=device,
        servers=prices.server + memory_price(system, prices),
        scale_up=scale_up_price(system, prices),
        scale_out=scale_out_price(system, prices),
        facility=prices.facility * watts,
    )


def spending(capital_per_device: Capital, prices: Prices, devices: Scalar, power: Scalar) -> Spending:
    """Return the cost by part of ``devices`` in use that draw ``power`` W together, facility included, USD/s.

    ``n C / (T u)`` of each part ``C`` with lifetime ``T`` and share in use ``u``, maintenance, and power times its
    price.

    Capital is written off over the lifetimes, of which the devices are in use for the share ``in_use``.
    """
    write_off_rate = devices / (prices.lifetime * prices.in_use)
    devices_cost, servers, scale_up, scale_out = (part * write_off_rate for part in capital_per_device[:4])
    return Spending(
        devices_cost,
        servers,
        scale_up,
        scale_out,
        facility=capital_per_device.facility * devices / (prices.facility_lifetime * prices.in_use),
        maintenance=prices.maintenance * capital_per_device.computers * devices / prices.in_use,
        electricity=power * prices.electricity,
    )
