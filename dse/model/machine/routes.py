"""A group of devices on the networks, with all values that its messages share.

A group of ``P`` members has ``q`` of them in one scale-up domain and spans ``P / q`` domains.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import jax.numpy as jnp

from dse.model.choice import times, value_or
from dse.model.machine.rates import reciprocal
from dse.types import Collective, Group, Network, Scalar, System


def _ramped(size: Scalar, ramp: Scalar) -> Scalar:
    """Return the bytes that take as long at full bandwidth as ``size`` bytes on a ramp of ``ramp`` bytes."""
    # The square root of zero has no finite gradient; a thousandth of a byte takes no time.
    return size + jnp.sqrt(jnp.maximum(ramp * size, 1e-6))


def mesh_share(network: Network, members: Scalar) -> Scalar:
    """Return the share of a device's bandwidth to the other ``members``: 1 behind a switch.

    In a full mesh of ``D`` devices each of the ``D - 1`` others has a link of its own: ``(N - 1) / (D - 1)``.
    """
    other_members, links = jnp.maximum(members - 1.0, 1.0), jnp.maximum(network.domain - 1.0, 1.0)
    return jnp.minimum(1.0 - network.mesh + network.mesh * reciprocal(links) * other_members, 1.0)


def crowding_factor(network: Network, members: Scalar) -> Scalar:
    """Return the time per byte among ``members`` over that between two devices: ``1 + c (N - 2)``, 1 behind a switch.

    With shared bridges, as root ports and sockets of a host with PCIe cards, each member beyond two takes bandwidth
    from the others: ``N`` together have at most the larger of the bandwidth of two and ``1 / c`` of that of one.
    """
    other_members = jnp.maximum(members - 1.0, 1.0)
    return 1.0 - network.crowding + network.crowding * other_members


def ring_fraction(members: Scalar) -> Scalar:
    """Return the share of a ring's bytes sent by one member: ``(N - 1) / N``."""
    return 1.0 - reciprocal(members)


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """One network level with the ``members`` of a group on it. Values are computed when they are first read."""

    network: Network
    members: Scalar
    share: Scalar = 1.0  # of the bandwidth, to the other members
    steps: Scalar | None = None  # of a ring; None: one to each other member

    @cached_property
    def byte_time(self) -> Scalar:
        """Seconds per byte of a large message."""
        return reciprocal(times(self.share, self.network.bandwidth * self.network.efficiency))

    @cached_property
    def switch_byte_time(self) -> Scalar:
        """Seconds per byte where the switch reduces, a large number where it does not."""
        reached = self.network.efficiency * reciprocal(jnp.maximum(self.network.in_network_reduction, 1e-3))
        return self.byte_time * reached

    @cached_property
    def fraction(self) -> Scalar:
        """Share of a ring's bytes sent by one member."""
        return ring_fraction(self.members)

    @cached_property
    def round_latency(self) -> Scalar:
        """Latency of a ring over all members, s."""
        return value_or(self.steps, self.members - 1.0) * self.network.latency

    @cached_property
    def tree_latency(self) -> Scalar:
        """Latency of a tree of the members, up or down, s."""
        return jnp.log2(self.members) * self.network.latency

    def wire_time(self, size: Scalar) -> Scalar:
        """Return the time to move ``size`` bytes out of a device over this level, s.

        Large messages reach ``efficiency``; smaller ones take ``1 + sqrt(ramp / size)`` times as long:
        ``(size + sqrt(ramp size)) / (efficiency bandwidth)``.
        """
        return _ramped(size, self.network.ramp) * self.byte_time

    def ring_time(self, size: Scalar) -> Scalar:
        """Return the time of a ring all-gather (or reduce-scatter) of ``size`` gathered bytes, s.

        ``alpha (N - 1) + wire((N - 1) / N size)`` (Thakur et al. 2005).
        """
        return self.round_latency + self.wire_time(size * self.fraction)

    def switch_time(self, size: Scalar) -> Scalar:
        """Return the time of an all-reduce of ``size`` bytes in the switch, s: up and down between two barriers.

        ``4 alpha log2(N) + size' / rate`` with the ramped bytes ``size'`` (:func:`_ramped`).
        """
        return 4.0 * self.tree_latency + _ramped(size, self.network.ramp) * self.switch_byte_time

    def send_time(self, size: Scalar) -> Scalar:
        """Return the time of one message of ``size`` bytes to another device, s.

        ``alpha + wire(size)`` (Hockney 1994).
        """
        return self.network.latency + self.wire_time(size)


def domain_level(network: Network, members: Scalar) -> Level:
    """Return the network level of ``members`` of one domain, with their share of its bandwidth."""
    return Level(network, members, mesh_share(network, members) / crowding_factor(network, members))


@dataclasses.dataclass(frozen=True, eq=False)
class Route:
    """A group on a system's networks. Values are computed when first read, so that its messages share them."""

    group: Group
    system: System

    @cached_property
    def _levels(self) -> tuple[Level, Level, Level]:
        """Members that share a scale-up domain: in collectives, in all-to-alls, in sends to the neighbour."""
        network, local, reach = self.system.scale_up, self.group.local, self.group.reach
        if reach is None:
            return (domain_level(network, local),) * 3
        ring = Level(network, local, reach.ring, reach.steps)
        return ring, Level(network, local, reach.exchange), Level(network, local, reach.neighbour)

    @property
    def intra_domain(self) -> Level:
        """Members that share a scale-up domain, in a collective."""
        return self._levels[0]

    @property
    def exchange(self) -> Level:
        """Members that share a scale-up domain, in an all-to-all."""
        return self._levels[1]

    @property
    def neighbour(self) -> Level:
        """Members that share a scale-up domain, where each sends to the next one."""
        return self._levels[2]

    @cached_property
    def across(self) -> Level:
        """Level of the scale-out network, with the domains of the group as its members."""
        return Level(self.system.scale_out, self.group.domains, value_or(self.group.share, 1.0))

    @cached_property
    def leaves(self) -> Scalar:
        """True where the group spans more than one domain."""
        return self.across.members > 1.0

    @cached_property
    def shard(self) -> Scalar:
        """Share of a message per member of a domain, sent over its own link to other domains."""
        return reciprocal(self.group.local)

    @cached_property
    def fraction(self) -> Scalar:
        """Share of a ring's bytes sent by one member."""
        return ring_fraction(self.group.size)

    @cached_property
    def round_latency(self) -> Scalar:
        """Latency of a ring through all members with one hop into every other domain, s."""
        reach = self.group.reach
        intra_hops = self.group.size - self.across.members if reach is None else reach.steps * self.across.members
        return intra_hops * self.system.scale_up.latency + self.across.round_latency

    @cached_property
    def byte_energy(self) -> Scalar:
        """Joules per byte that a member sends along a ring: one hop in ``local`` leaves the domain."""
        leaving_share = jnp.where(self.leaves, self.shard, 0.0)
        return self.system.scale_up.energy * (1.0 - leaving_share) + self.system.scale_out.energy * leaving_share

    @cached_property
    def ring_energy(self) -> Scalar:
        """Joules per member and byte of a message that goes around a ring once."""
        return self.fraction * self.byte_energy

    @cached_property
    def pair_energy(self) -> Scalar:
        """Joules per member and byte of a message with equal parts for all members."""
        local, size = self.group.local, self.group.size
        return self.intra_domain_energy * ((local - 1.0) / size) + self.system.scale_out.energy * (1.0 - local / size)

    @cached_property
    def intra_domain_energy(self) -> Scalar:
        """Joules per byte to another member of the domain, mean over members: one hop, or several links in a row."""
        reach = self.group.reach
        return self.system.scale_up.energy * (1.0 if reach is None else reach.hops)

    def slowest_ring(self, size: Scalar, share: Scalar | None = None) -> Scalar:
        """Return the wire time of ``size`` bytes along rings through all members, the slower level of the two, s.

        Every member has its own scale-out link, so ``local`` rings cross between domains in parallel, each with
        ``share`` of the bytes, by default :attr:`shard`.
        """
        intra_time = self.intra_domain.wire_time(size)
        inter_time = self.across.wire_time(size * value_or(share, self.shard))
        return jnp.where(self.leaves, jnp.maximum(intra_time, inter_time), intra_time)

    def ring_share(self, algorithm: Scalar) -> Scalar:
        """Return the share of the bytes per ring across domains: 1 for a single ring, else :attr:`shard`."""
        return jnp.where(algorithm == float(Collective.single_ring), 1.0, self.shard)
