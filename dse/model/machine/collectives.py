"""Time and energy of collectives over two switched network levels (scale-up domain, scale-out fabric).

Every cost is ``alpha x steps + bytes / bandwidth`` (Hockney 1994; Thakur et al. 2005), with a bandwidth that ramps up
with message size. All functions return 0 for a group of one, except :func:`send`.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import choose, nothing, times
from dse.model.machine.rates import reciprocal
from dse.model.machine.roofline import memory_time
from dse.model.machine.routes import Level, Route, domain_level
from dse.types import Collective, Group, MessageKind, Network, Scalar, System, Volumes


def time(kind: MessageKind, size: Scalar, route: Route, algorithm: Scalar) -> Scalar:
    """Return the time of a message in a group, s.

    Args:
        kind: collective.
        size: all bytes, of an all-to-all or a send the bytes per member.
        route: the group on its networks.
        algorithm: code of :class:`~dse.types.Collective`.
    """
    match kind:
        case MessageKind.all_reduce:
            return all_reduce(size, route, algorithm)
        case MessageKind.all_gather | MessageKind.reduce_scatter:
            return all_gather(size, route, algorithm)
        case MessageKind.all_to_all:
            return all_to_all(size, route)
        case MessageKind.send:
            return send(size, route)


def energy(kind: MessageKind, size: Scalar, route: Route) -> Scalar:
    """Return the link energy of one member of a group for a message of ``size`` bytes, J.

    Along a ring, except in an all-to-all, where each pair exchanges bytes of its own.

    Args:
        kind: collective.
        size: bytes.
        route: the group on its networks.
    """
    match kind:
        case MessageKind.all_reduce:
            return 2.0 * size * route.ring_energy
        case MessageKind.send:
            return size * route.byte_energy
        case MessageKind.all_to_all:
            return size * route.pair_energy
        case _:
            return size * route.ring_energy


def sent_bytes(kind: MessageKind, size: Scalar, route: Route) -> Scalar:
    """Return the bytes that one member of a group sends for a message of ``size`` bytes, B; it receives as many.

    Args:
        kind: collective.
        size: bytes, as of :func:`time`.
        route: the group on its networks.
    """
    match kind:
        case MessageKind.all_reduce:
            return 2.0 * size * route.fraction
        case MessageKind.send:
            return size
        case _:
            return size * route.fraction


# Algorithms


def all_gather(size: Scalar, route: Route, algorithm: Scalar) -> Scalar:
    """Return the time to gather ``size`` bytes, the gathered total, on every member, s.

    A reduce-scatter takes as long.

    Ring: one hop into every other domain, so its latency grows with their number. Hierarchical: a ring across, then
    one inside. Doubling: ``log2`` steps across (Thakur et al. 2005, section 4.1; the parallel aggregated trees of NCCL
    2.23, for one device per node only, so that ``auto`` leaves it out), then a ring inside. A single ring enters every
    other domain over one link of its devices.
    """
    if volumes := _calibrated_volumes(route.system):
        up, out = ((level.gather, level.gather_share) for level in volumes)
        return _volume_time(size * route.shard, route.across, *out) + _volume_time(size, route.intra_domain, *up)
    ring = route.round_latency + route.slowest_ring(size * route.fraction, route.ring_share(algorithm))
    hierarchical = route.intra_domain.ring_time(size) + _across_time(size, route, algorithm)
    is_ring = (algorithm == float(Collective.ring)) | (algorithm == float(Collective.tree))
    is_ring |= algorithm == float(Collective.single_ring)
    fastest = jnp.minimum(ring, hierarchical)
    chosen = jnp.where(is_ring, ring, jnp.where(algorithm == float(Collective.auto), fastest, hierarchical))
    return jnp.where(route.group.size > 1.0, chosen, 0.0)


def all_reduce(size: Scalar, route: Route, algorithm: Scalar) -> Scalar:
    """Return the time to sum ``size`` bytes over all members, result everywhere, s.

    Ring: twice a reduce-scatter. Tree: each byte up and down once, logarithmic latency (Sanders et al. 2009), but a
    chain through the members inside (as in NCCL).
    Hierarchical: reduce-scatter inside, all-reduce of the shards across, all-gather inside.
    In-switch (NVLS, SHARP): each byte crosses a link once per direction; allowed where a level reduces.

    Args:
        size: bytes of a member.
        route: the group on its networks.
        algorithm: code of :class:`~dse.types.Collective`.
    """
    if volumes := _calibrated_volumes(route.system):
        up, out = ((level.reduce, level.reduce_share) for level in volumes)
        return _volume_time(size * route.shard, route.across, *out) + _volume_time(size, route.intra_domain, *up)
    intra, inter = route.intra_domain, route.across
    shard = size * route.shard
    ring_inside, ring_across = 2.0 * intra.ring_time(size), 2.0 * _across_time(size, route, algorithm)
    ring = 2.0 * (route.round_latency + route.slowest_ring(size * route.fraction, route.ring_share(algorithm)))
    tree = 2.0 * (intra.round_latency + inter.tree_latency) + route.slowest_ring(2.0 * size)
    hierarchical = ring_inside + ring_across
    # A switch that reduces takes each byte once up and, in parallel, once down.
    in_switch = _best_reduction(intra, ring_inside, size * (1.0 + route.shard)) + _best_reduction(
        inter, ring_across, shard
    )
    fastest = jnp.minimum(jnp.minimum(ring, tree), jnp.minimum(hierarchical, in_switch))
    chosen = choose(
        algorithm,
        {
            Collective.auto: fastest,
            Collective.ring: ring,
            Collective.tree: tree,
            Collective.hierarchical: hierarchical,
            Collective.in_switch: in_switch,
            Collective.doubling: hierarchical,
            Collective.single_ring: ring,
        },
    )
    return jnp.where(route.group.size > 1.0, chosen, 0.0)


def _across_time(size: Scalar, route: Route, algorithm: Scalar) -> Scalar:
    """Return the time of the part across domains of an all-gather of ``size`` bytes, s: a ring of each member's shard.

    Doubling takes ``log2`` of the domains steps, each sending twice as much.
    """
    across = route.across
    is_doubling = algorithm == float(Collective.doubling)
    latency = jnp.where(is_doubling, across.tree_latency, across.round_latency)
    return latency + across.wire_time(size * route.shard * across.fraction)


def _best_reduction(level: Level, ring: Scalar, size: Scalar) -> Scalar:
    """Return the time of an all-reduce of one level, s: in the switch where it reduces and is faster, else by ring."""
    reduces = level.network.in_network_reduction > 0.0
    best = jnp.where(reduces, jnp.minimum(ring, level.switch_time(size)), ring)
    return jnp.where(level.members > 1.0, best, 0.0)


def all_to_all(size: Scalar, route: Route) -> Scalar:
    """Return the time to exchange ``size`` bytes per member, ``1 / members`` of them with each other member, s.

    ``max(alpha + wire(s (N - 1) / N), alpha' + wire'(s (N - q) / N))`` over both levels, with ``q`` members in a
    domain.
    """
    members = route.group.size
    intra_time = route.exchange.send_time(size * (members - 1.0) / members)
    inter_time = route.across.send_time(size * (members - route.group.local) / members)
    return jnp.where(members > 1.0, jnp.where(route.leaves, jnp.maximum(intra_time, inter_time), intra_time), 0.0)


def exchange(intra_domain: Scalar, inter_domain: Scalar, route: Route, link_share: Scalar = 0.0) -> Scalar:
    """Return the time in which every member sends its bytes within its domain and out of it, s.

    Args:
        intra_domain: bytes that a member sends within its domain.
        inter_domain: bytes that it sends out of it.
        route: the group on its networks.
        link_share: share of a link's bandwidth that kernels which write into remote memory reach at any size; 0: the
            rates of collectives.
    """

    def send_time(size: Scalar, level: Level) -> Scalar:
        library_time = level.send_time(size)
        if nothing(link_share):
            return library_time
        bandwidth = times(level.share, level.network.bandwidth * jnp.maximum(link_share, 1e-3))
        return jnp.where(link_share > 0.0, level.network.latency + size * reciprocal(bandwidth), library_time)

    intra_time = jnp.where(route.group.local > 1.0, send_time(intra_domain, route.exchange), 0.0)
    return jnp.where(route.leaves, jnp.maximum(intra_time, send_time(inter_domain, route.across)), intra_time)


def exchange_energy(intra_domain: Scalar, inter_domain: Scalar, route: Route) -> Scalar:
    """Return the link energy of one member, J, from its bytes within the domain and out of it (:func:`exchange`)."""
    return intra_domain * route.intra_domain_energy + inter_domain * route.system.scale_out.energy


def send(size: Scalar, route: Route) -> Scalar:
    """Return the time of a send of ``size`` bytes to the next member, s.

    Over scale-up links if no pair spans domains, else over scale-out ones.
    """
    return jnp.where(route.leaves, route.across.send_time(size), route.neighbour.send_time(size))


def direct_all_reduce(size: Scalar, members: Scalar, network: Network) -> Scalar:
    """Return the time of an all-reduce in one kernel over loads and stores between peers of one domain, s.

    ``min(alpha + wire(s (N - 1)), 2 (alpha + wire(s (N - 1) / N)))``.

    One shot: every member reads the data of all others. Two shots: it reads and sums its share, then gathers the sums;
    twice the latency, 2 / members of the bytes (as in TensorRT-LLM and vLLM).
    """
    level = domain_level(network, members)
    one_shot, two_shots = level.send_time(size * (members - 1.0)), 2.0 * level.send_time(size * level.fraction)
    return jnp.where(members > 1.0, jnp.minimum(one_shot, two_shots), 0.0)


# Stated volumes


def _calibrated_volumes(system: System) -> tuple[Volumes, Volumes] | None:
    """Return the volumes (bytes sent per byte) within a domain and across domains, None unless both are stated."""
    up, out = system.scale_up.volumes, system.scale_out.volumes
    return (up, out) if up and out else None


def _volume_time(size: Scalar, level: Level, volume: Scalar, share: Scalar) -> Scalar:
    """Return the time of a collective of volume ``size (volume + share / N)`` over one level, s.

    0 for one member.
    """
    moved_bytes = size * (volume + share / level.members)
    return jnp.where(level.members > 1.0, level.send_time(moved_bytes), 0.0)


def summing_time(size: Scalar, group: Group, system: System) -> Scalar:
    """Return the seconds that the sums of a reduction add to its time on the wire, 0 where they overlap with it."""
    volumes = system.scale_up.volumes
    if volumes is None:
        return 0.0
    return jnp.where(group.size > 1.0, memory_time(volumes.reduction_traffic * size, system.accelerator), 0.0)


# Overlap with compute


def usage(group: Group, system: System) -> Scalar:
    """Return the share, 0 to 1, of the device's compute that a collective over this group uses."""
    return jnp.where(group.domains > 1.0, system.scale_out.processor_usage, system.scale_up.processor_usage)


def exposed(communication: Scalar, window: Scalar, overlap: Scalar, processor_usage: Scalar) -> Scalar:
    """Return the exposed seconds of communication that overlaps with compute of ``window`` seconds.

    ``max(t_comm - t_window, (1 - overlap) t_comm)``, and ``processor_usage`` of the hidden time, which slows compute.

    Args:
        communication: seconds of messages.
        window: seconds of compute that can hide them.
        overlap: share of the messages that may overlap.
        processor_usage: share of the compute that the collective uses.
    """
    hidden = jnp.minimum(overlap * communication, window)
    return communication - (1.0 - processor_usage) * hidden
