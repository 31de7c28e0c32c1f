"""Time of collectives over two switched network levels (scale-up domain, scale-out fabric).

Every cost is ``alpha x steps + bytes / bandwidth`` (Hockney 1994; Thakur et al. 2005), with a
bandwidth that ramps up with message size. A group of ``P`` members has ``q`` of them in one
scale-up domain and spans ``P / q`` domains. All functions return 0 for a group of one.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import choose
from dse.model.machine.rates import reciprocal
from dse.model.machine.roofline import memory_time
from dse.types import Collective, Group, MessageKind, Network, Scalar, System


def wire_time(size: Scalar, network: Network) -> Scalar:
    """Seconds to move ``size`` bytes out of a device over one level.

    Large messages reach ``efficiency``; smaller ones take ``1 + sqrt(ramp / size)`` times as long:
    ``(size + sqrt(ramp size)) / (efficiency bandwidth)``.
    """
    # A square root of zero would have no finite gradient; a thousandth of a byte is no time.
    slow = jnp.sqrt(jnp.maximum(network.ramp * size, 1e-6))
    return (size + slow) * reciprocal(network.bandwidth * network.efficiency)


def _slowest_ring(size: Scalar, group: Group, system: System) -> Scalar:
    """Wire time of ``size`` bytes along a ring through all members: the slower level sets the pace.

    Inside a domain every member has its own scale-out link, so ``local`` rings cross in parallel, each
    with its share of the bytes.
    """
    inside = wire_time(size, system.scale_up)
    across = wire_time(size * reciprocal(group.local), system.scale_out)
    return jnp.where(group.domains > 1.0, jnp.maximum(inside, across), inside)


def _step_latency(group: Group, system: System) -> Scalar:
    """Latency of one synchronous step over the whole group."""
    return jnp.where(group.domains > 1.0, system.scale_out.latency, system.scale_up.latency)


def _one_way(size: Scalar, group: Group, system: System) -> tuple[Scalar, Scalar]:
    """Ring and hierarchical time of an all-gather (or reduce-scatter) of ``size`` gathered bytes."""
    members, local, domains = group.size, group.local, group.domains
    ring = (members - 1.0) * _step_latency(group, system) + _slowest_ring(size * ring_fraction(members), group, system)
    inside = (local - 1.0) * system.scale_up.latency + wire_time(size * ring_fraction(local), system.scale_up)
    across = (domains - 1.0) * system.scale_out.latency + wire_time(
        size * reciprocal(local) * ring_fraction(domains), system.scale_out
    )
    return ring, inside + across


def ring_fraction(members: Scalar) -> Scalar:
    """Share of a ring's bytes that one member sends: ``(N - 1) / N``."""
    return 1.0 - reciprocal(members)


def _tree_latency(group: Group, system: System) -> Scalar:
    """Latency up or down a tree: a chain through the members inside, logarithmic in domains across (as in NCCL)."""
    inside = (group.local - 1.0) * system.scale_up.latency
    return inside + jnp.log2(group.domains) * system.scale_out.latency


def stated_time(size: Scalar, members: Scalar, network: Network, volume: Scalar, share: Scalar) -> Scalar:
    """Seconds of a collective of stated volume ``(volume + share / N)`` over one level; 0 for one member."""
    moved = size * (volume + share / members)
    return jnp.where(members > 1.0, network.latency + wire_time(moved, network), 0.0)


def stated_one_way(size: Scalar, group: Group, system: System) -> Scalar | None:
    """All-gather by stated volumes, first across domains, then inside; None where no level states them."""
    up, out = system.scale_up, system.scale_out
    if up.volumes is None or out.volumes is None:
        return None
    across = stated_time(size / group.local, group.domains, out, out.volumes.gather, out.volumes.gather_share)
    return across + stated_time(size, group.local, up, up.volumes.gather, up.volumes.gather_share)


def stated_all_reduce(size: Scalar, group: Group, system: System) -> Scalar | None:
    """All-reduce by stated volumes: inside each domain, then of the shards across; None where none are stated."""
    up, out = system.scale_up, system.scale_out
    if up.volumes is None or out.volumes is None:
        return None
    across = stated_time(size / group.local, group.domains, out, out.volumes.reduce, out.volumes.reduce_share)
    inside = stated_time(size, group.local, up, up.volumes.reduce, up.volumes.reduce_share)
    return across + inside


def all_gather(size: Scalar, group: Group, system: System, algorithm: Scalar) -> Scalar:
    """Seconds to gather ``size`` bytes (the gathered total) on every member. A reduce-scatter costs the same."""
    stated = stated_one_way(size, group, system)
    if stated is not None:
        return stated
    ring, hierarchical = _one_way(size, group, system)
    fastest = jnp.minimum(ring, hierarchical)
    is_ring = (algorithm == float(Collective.ring)) | (algorithm == float(Collective.tree))
    chosen = jnp.where(is_ring, ring, jnp.where(algorithm == float(Collective.auto), fastest, hierarchical))
    return jnp.where(group.size > 1.0, chosen, 0.0)


reduce_scatter = all_gather


def summing_time(size: Scalar, group: Group, system: System) -> Scalar:
    """Seconds that the sums of a reduction add to its time on the wire; 0 where they hide behind it."""
    volumes = system.scale_up.volumes
    if volumes is None:
        return 0.0
    return jnp.where(group.size > 1.0, memory_time(volumes.reduction_traffic * size, system.accelerator), 0.0)


def all_reduce(size: Scalar, group: Group, system: System, algorithm: Scalar) -> Scalar:
    """Seconds to sum ``size`` bytes over all members, result everywhere.

    Ring: twice a reduce-scatter. Tree: each byte up and down once, logarithmic latency (Sanders et al. 2009).
    Hierarchical: reduce-scatter inside, all-reduce of the shards across, all-gather inside.
    In-switch (NVLS, SHARP): each byte crosses a link once each way, at once; allowed where a level reduces.
    """
    stated = stated_all_reduce(size, group, system)
    if stated is not None:
        return stated
    ring_once, hierarchical_once = _one_way(size, group, system)
    ring, hierarchical = 2.0 * ring_once, 2.0 * hierarchical_once
    tree = 2.0 * _tree_latency(group, system) + _slowest_ring(2.0 * size, group, system)
    in_switch = _in_switch_all_reduce(size, group, system)
    fastest = jnp.minimum(jnp.minimum(ring, tree), jnp.minimum(hierarchical, in_switch))
    chosen = choose(
        algorithm,
        {
            Collective.auto: fastest,
            Collective.ring: ring,
            Collective.tree: tree,
            Collective.hierarchical: hierarchical,
            Collective.in_switch: in_switch,
        },
    )
    return jnp.where(group.size > 1.0, chosen, 0.0)


def _in_switch_all_reduce(size: Scalar, group: Group, system: System) -> Scalar:
    """Hierarchical all-reduce whose levels reduce in the switch where they can, else by ring."""
    up, out = system.scale_up, system.scale_out
    local, domains = group.local, group.domains
    shard = size * reciprocal(local)
    ring_in = 2.0 * ((local - 1.0) * up.latency + wire_time(size * ring_fraction(local), up))
    ring_out = 2.0 * ((domains - 1.0) * out.latency + wire_time(shard * ring_fraction(domains), out))
    # A switch that reduces takes each byte once up and, at the same time, once down, between two barriers
    # (there and back through a tree).
    switch_in = 4.0 * jnp.log2(local) * up.latency + _switch_time(size * (1.0 + reciprocal(local)), up)
    switch_out = 4.0 * jnp.log2(domains) * out.latency + _switch_time(shard, out)
    inside = jnp.where((up.in_network_reduction > 0.0), jnp.minimum(ring_in, switch_in), ring_in)
    across = jnp.where((out.in_network_reduction > 0.0), jnp.minimum(ring_out, switch_out), ring_out)
    return jnp.where(local > 1.0, inside, 0.0) + jnp.where(domains > 1.0, across, 0.0)


def _switch_time(size: Scalar, network: Network) -> Scalar:
    """Wire time at the share of the bandwidth that reduction in the switch reaches; large where there is none."""
    reached = network.efficiency * reciprocal(jnp.maximum(network.in_network_reduction, 1e-3))
    return wire_time(size, network) * reached


def all_to_all(size: Scalar, group: Group, system: System) -> Scalar:
    """Seconds to exchange ``size`` bytes a member, ``1 / members`` of them with each other one, all at once."""
    members = group.size
    moved = size * (members - 1.0) / members
    leaving = size * (members - group.local) / members
    inside = system.scale_up.latency + wire_time(moved, system.scale_up)
    across = system.scale_out.latency + wire_time(leaving, system.scale_out)
    return jnp.where(members > 1.0, jnp.where(group.domains > 1.0, jnp.maximum(inside, across), inside), 0.0)


def direct_all_reduce(size: Scalar, members: Scalar, network: Network) -> Scalar:
    """Seconds of an all-reduce in one kernel over loads and stores between peers, inside one domain.

    One shot: every member reads all of the others' data. Two shots: it reads and sums its share, then
    gathers the sums; twice the latency, 2 / members of the bytes (as in TensorRT-LLM and vLLM).
    """
    one = network.latency + wire_time(size * (members - 1.0), network)
    two = 2.0 * (network.latency + wire_time(size * (members - 1.0) / members, network))
    return jnp.where(members > 1.0, jnp.minimum(one, two), 0.0)


def send(size: Scalar, group: Group, system: System) -> Scalar:
    """Seconds in which every member sends ``size`` bytes to the next one: over scale-up where no pair is apart."""
    inside = system.scale_up.latency + wire_time(size, system.scale_up)
    across = system.scale_out.latency + wire_time(size, system.scale_out)
    return jnp.where(group.domains > 1.0, across, inside)


def time(kind: MessageKind, size: Scalar, group: Group, system: System, algorithm: Scalar) -> Scalar:
    """Seconds of a message of ``size`` bytes in a group, 0 in a group of one (but for a send).

    ``size`` is the whole of what is reduced, gathered or scattered, or what a member exchanges or sends.
    """
    match kind:
        case MessageKind.all_reduce:
            return all_reduce(size, group, system, algorithm)
        case MessageKind.all_gather | MessageKind.reduce_scatter:
            return all_gather(size, group, system, algorithm)
        case MessageKind.all_to_all:
            return all_to_all(size, group, system)
        case MessageKind.send:
            return send(size, group, system)


def sent_bytes(kind: MessageKind, size: Scalar, group: Group) -> Scalar:
    """Bytes that one member sends for a message of ``size`` bytes (as :func:`time` counts them), along a ring."""
    match kind:
        case MessageKind.send:
            return size
        case MessageKind.all_reduce:
            return 2.0 * size * ring_fraction(group.size)
        case _:
            return size * ring_fraction(group.size)


def byte_energy(group: Group, system: System) -> Scalar:
    """Joules of a byte that a member of a group sends along a ring: one hop in ``local`` leaves the domain."""
    outside = jnp.where(group.domains > 1.0, 1.0 / group.local, 0.0)
    return system.scale_up.energy * (1.0 - outside) + system.scale_out.energy * outside


def energy(kind: MessageKind, size: Scalar, group: Group, system: System) -> Scalar:
    """Joules that one member of a group spends on a message of ``size`` bytes."""
    return sent_bytes(kind, size, group) * byte_energy(group, system)


def usage(group: Group, system: System) -> Scalar:
    """Share of the device's compute that a collective over this group takes while it runs."""
    return jnp.where(group.domains > 1.0, system.scale_out.processor_usage, system.scale_up.processor_usage)


def exposed(communication: Scalar, window: Scalar, overlap: Scalar, processor_usage: Scalar) -> Scalar:
    """Seconds that communication adds to the compute ``window`` it may hide behind.

    At most a share ``overlap`` of it hides, and no more than the window holds:
    ``max(t_comm - t_window, (1 - overlap) t_comm)``; what hides takes ``processor_usage`` of the compute.
    """
    hidden = jnp.minimum(overlap * communication, window)
    return communication - (1.0 - processor_usage) * hidden
