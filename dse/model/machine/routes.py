"""A group of devices on the networks: what all of its messages share, computed once.

A group of ``P`` members has ``q`` of them in one scale-up domain and spans ``P / q`` domains.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property

import jax.numpy as jnp

from dse.model.choice import given, times
from dse.model.machine.rates import reciprocal
from dse.types import Collective, Group, Network, Scalar, System


def _ramped(size: Scalar, ramp: Scalar) -> Scalar:
    """Bytes that take as long at full bandwidth as ``size`` ones do."""
    # A square root of zero would have no finite gradient; a thousandth of a byte is no time.
    return size + jnp.sqrt(jnp.maximum(ramp * size, 1e-6))


def mesh_share(network: Network, members: Scalar) -> Scalar:
    """Share of a device's bandwidth that leads to the other ``members``: all of it to a switch.

    In a full mesh of ``D`` devices each of the ``D - 1`` others has a link of its own: ``(N - 1) / (D - 1)``.
    """
    others, links = jnp.maximum(members - 1.0, 1.0), jnp.maximum(network.domain - 1.0, 1.0)
    return jnp.minimum(1.0 - network.mesh + network.mesh * reciprocal(links) * others, 1.0)


def crowd(network: Network, members: Scalar) -> Scalar:
    """How many times as long ``members`` take for a byte as two of them: ``1 + c (N - 2)``, once behind a switch.

    Behind bridges that they share, as the root ports and the sockets of a host with cards on PCIe, each beyond two
    takes bandwidth of the others: all ``N`` together have no more than the larger of two's and ``1 / c`` of one's.
    """
    others = jnp.maximum(members - 1.0, 1.0)
    return 1.0 - network.crowding + network.crowding * others


def ring_fraction(members: Scalar) -> Scalar:
    """Share of a ring's bytes that one member sends: ``(N - 1) / N``."""
    return 1.0 - reciprocal(members)


@dataclasses.dataclass(frozen=True, eq=False)
class Level:
    """One network level with the ``members`` of a group that it joins. Values are computed when first asked for."""

    network: Network
    members: Scalar
    share: Scalar = 1.0  # of the bandwidth that leads to the other members
    steps: Scalar | None = None  # of a message that goes around, one to each other member where None

    @cached_property
    def byte_time(self) -> Scalar:
        """Seconds of one byte of a large message."""
        return reciprocal(times(self.share, self.network.bandwidth * self.network.efficiency))

    @cached_property
    def switch_byte_time(self) -> Scalar:
        """The same where the switch reduces; large where none does."""
        reached = self.network.efficiency * reciprocal(jnp.maximum(self.network.in_network_reduction, 1e-3))
        return self.byte_time * reached

    @cached_property
    def fraction(self) -> Scalar:
        """Share of a ring's bytes that one member sends."""
        return ring_fraction(self.members)

    @cached_property
    def round_latency(self) -> Scalar:
        """Latency of a message that goes around from member to member."""
        return given(self.steps, self.members - 1.0) * self.network.latency

    @cached_property
    def tree_latency(self) -> Scalar:
        """Latency of a message up or down a tree of the members."""
        return jnp.log2(self.members) * self.network.latency

    def wire_time(self, size: Scalar) -> Scalar:
        """Seconds to move ``size`` bytes out of a device over this level.

        Large messages reach ``efficiency``; smaller ones take ``1 + sqrt(ramp / size)`` times as long:
        ``(size + sqrt(ramp size)) / (efficiency bandwidth)``.
        """
        return _ramped(size, self.network.ramp) * self.byte_time

    def ring_time(self, size: Scalar) -> Scalar:
        """Seconds of an all-gather (or reduce-scatter) of ``size`` gathered bytes along a ring of the members."""
        return self.round_latency + self.wire_time(size * self.fraction)

    def switch_time(self, size: Scalar) -> Scalar:
        """Seconds of ``size`` bytes through a switch that reduces, there and back between two barriers."""
        return 4.0 * self.tree_latency + _ramped(size, self.network.ramp) * self.switch_byte_time

    def send_time(self, size: Scalar) -> Scalar:
        """Seconds of one message of ``size`` bytes to another device."""
        return self.network.latency + self.wire_time(size)


def joined(network: Network, members: Scalar) -> Level:
    """Members of one domain, on its switch, behind its bridges or over the links between each pair of them."""
    return Level(network, members, mesh_share(network, members) / crowd(network, members))


@dataclasses.dataclass(frozen=True, eq=False)
class Route:
    """A group on a system's networks. Values are computed when first asked for, once for all messages."""

    group: Group
    system: System

    @cached_property
    def inside(self) -> Level:
        """The members that share a scale-up domain, on its network."""
        reach = self.group.reach
        if reach is None:
            return joined(self.system.scale_up, self.group.local)
        return Level(self.system.scale_up, self.group.local, reach.ring, reach.steps)

    @cached_property
    def exchange(self) -> Level:
        """The same members where each sends to each other one."""
        reach = self.group.reach
        return self.inside if reach is None else Level(self.system.scale_up, self.group.local, reach.exchange)

    @cached_property
    def neighbour(self) -> Level:
        """The same where each sends to the next one."""
        reach = self.group.reach
        return self.inside if reach is None else Level(self.system.scale_up, self.group.local, reach.neighbour)

    @cached_property
    def across(self) -> Level:
        """The domains of the group, on the scale-out network."""
        return Level(self.system.scale_out, self.group.domains, given(self.group.share, 1.0))

    @cached_property
    def leaves(self) -> Scalar:
        """Whether the group spans more than one domain."""
        return self.across.members > 1.0

    @cached_property
    def shard(self) -> Scalar:
        """Share of a message that each member of a domain sends to the other ones, over a link of its own."""
        return reciprocal(self.group.local)

    @cached_property
    def fraction(self) -> Scalar:
        """Share of a ring's bytes that one member sends."""
        return ring_fraction(self.group.size)

    @cached_property
    def round_latency(self) -> Scalar:
        """Latency of a part that goes around a ring through all members: one hop into every other domain."""
        reach = self.group.reach
        inside = self.group.size - self.across.members if reach is None else reach.steps * self.across.members
        return inside * self.system.scale_up.latency + self.across.round_latency

    @cached_property
    def byte_energy(self) -> Scalar:
        """Joules of a byte that a member sends along a ring: one hop in ``local`` leaves the domain."""
        outside = jnp.where(self.leaves, self.shard, 0.0)
        return self.system.scale_up.energy * (1.0 - outside) + self.system.scale_out.energy * outside

    @cached_property
    def ring_energy(self) -> Scalar:
        """Joules that a member spends on each byte of a message that goes around a ring once."""
        return self.fraction * self.byte_energy

    @cached_property
    def pair_energy(self) -> Scalar:
        """Joules that a member spends on each byte of a message of which it sends every member an equal part."""
        near, far = (self.group.local - 1.0) / self.group.size, 1.0 - self.group.local / self.group.size
        return self.near_energy * near + self.system.scale_out.energy * far

    @cached_property
    def near_energy(self) -> Scalar:
        """Joules of a byte to another member of the own domain, any as often: one hop, or some links in a row."""
        reach, local = self.group.reach, self.group.local
        hops = 1.0 if reach is None else reach.hops * local / jnp.maximum(local - 1.0, 1.0)
        return self.system.scale_up.energy * hops

    def slowest_ring(self, size: Scalar, share: Scalar | None = None) -> Scalar:
        """Wire time of ``size`` bytes along rings through all members: the slower level sets the pace.

        Inside a domain every member has its own scale-out link, so ``local`` rings cross in parallel, each
        with its ``share`` of the bytes, unless another one is stated.
        """
        inside, across = self.inside.wire_time(size), self.across.wire_time(size * given(share, self.shard))
        return jnp.where(self.leaves, jnp.maximum(inside, across), inside)

    def ring_share(self, algorithm: Scalar) -> Scalar:
        """Share of the bytes that each ring takes across domains: all of them where there is a single one."""
        return jnp.where(algorithm == float(Collective.single_ring), 1.0, self.shard)
