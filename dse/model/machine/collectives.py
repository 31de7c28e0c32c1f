"""Time and energy of collectives over two switched network levels (scale-up domain, scale-out fabric).

Every cost is ``alpha x steps + bytes / bandwidth`` (Hockney 1994; Thakur et al. 2005), with a
bandwidth that ramps up with message size. All functions return 0 for a group of one, but for a send.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import choose
from dse.model.machine.roofline import memory_time
from dse.model.machine.routes import Level, Route, joined
from dse.types import Collective, Group, MessageKind, Network, Scalar, System


def time(kind: MessageKind, size: Scalar, route: Route, algorithm: Scalar) -> Scalar:
    """Seconds of a message of ``size`` bytes in a group.

    ``size`` is the whole of what is reduced, gathered or scattered, or what a member exchanges or sends.
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
    """Joules that one member of a group spends on the links for a message of ``size`` bytes.

    Along a ring, but for an all-to-all, in which each pair exchanges its own bytes.
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


# Algorithms


def all_gather(size: Scalar, route: Route, algorithm: Scalar) -> Scalar:
    """Seconds to gather ``size`` bytes (the gathered total) on every member. A reduce-scatter costs the same.

    Ring: one hop into every other domain, so its latency grows with their number. Hierarchical: a ring across, then
    one inside. Doubling: ``log2`` steps across (Thakur et al. 2005, section 4.1; the parallel aggregated trees of NCCL
    2.23, for one device a node only, so that ``auto`` leaves it out), then a ring inside. A single ring enters every
    other domain over one link, whatever others its devices have.
    """
    stated = _stated_one_way(size, route)
    if stated is not None:
        return stated
    ring = route.round_latency + route.slowest_ring(size * route.fraction, route.ring_share(algorithm))
    hierarchical = route.inside.ring_time(size) + _across_time(size, route, algorithm)
    is_ring = (algorithm == float(Collective.ring)) | (algorithm == float(Collective.tree))
    is_ring |= algorithm == float(Collective.single_ring)
    fastest = jnp.minimum(ring, hierarchical)
    chosen = jnp.where(is_ring, ring, jnp.where(algorithm == float(Collective.auto), fastest, hierarchical))
    return jnp.where(route.group.size > 1.0, chosen, 0.0)


def all_reduce(size: Scalar, route: Route, algorithm: Scalar) -> Scalar:
    """Seconds to sum ``size`` bytes over all members, result everywhere.

    Ring: twice a reduce-scatter. Tree: each byte up and down once, logarithmic latency (Sanders et al. 2009), but a
    chain through the members inside (as in NCCL).
    Hierarchical: reduce-scatter inside, all-reduce of the shards across, all-gather inside.
    In-switch (NVLS, SHARP): each byte crosses a link once each way, at once; allowed where a level reduces.
    """
    stated = _stated_all_reduce(size, route)
    if stated is not None:
        return stated
    inside, across = route.inside, route.across
    shard = size * route.shard
    ring_inside, ring_across = 2.0 * inside.ring_time(size), 2.0 * _across_time(size, route, algorithm)
    ring = 2.0 * (route.round_latency + route.slowest_ring(size * route.fraction, route.ring_share(algorithm)))
    tree = 2.0 * (inside.round_latency + across.tree_latency) + route.slowest_ring(2.0 * size)
    hierarchical = ring_inside + ring_across
    # A switch that reduces takes each byte once up and, at the same time, once down.
    in_switch = _best_reduction(inside, ring_inside, size * (1.0 + route.shard)) + _best_reduction(
        across, ring_across, shard
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
    """Seconds of the part across domains of an all-gather of ``size`` bytes: a ring of each member's own shard.

    By doubling it takes as many steps as the logarithm of the domains, each sending twice as much.
    """
    across = route.across
    is_doubling = algorithm == float(Collective.doubling)
    latency = jnp.where(is_doubling, across.tree_latency, across.round_latency)
    return latency + across.wire_time(size * route.shard * across.fraction)


def _best_reduction(level: Level, ring: Scalar, size: Scalar) -> Scalar:
    """Seconds of an all-reduce of one level: in the switch where it can reduce and is faster, else by ring."""
    reduces = level.network.in_network_reduction > 0.0
    best = jnp.where(reduces, jnp.minimum(ring, level.switch_time(size)), ring)
    return jnp.where(level.members > 1.0, best, 0.0)


def all_to_all(size: Scalar, route: Route) -> Scalar:
    """Seconds to exchange ``size`` bytes a member, ``1 / members`` of them with each other one, all at once."""
    members = route.group.size
    inside = route.exchange.send_time(size * (members - 1.0) / members)
    across = route.across.send_time(size * (members - route.group.local) / members)
    return jnp.where(members > 1.0, jnp.where(route.leaves, jnp.maximum(inside, across), inside), 0.0)


def exchange(near: Scalar, far: Scalar, route: Route) -> Scalar:
    """Seconds in which every member sends ``near`` bytes inside its domain and ``far`` ones out of it, all at once."""
    inside = jnp.where(route.group.local > 1.0, route.exchange.send_time(near), 0.0)
    return jnp.where(route.leaves, jnp.maximum(inside, route.across.send_time(far)), inside)


def exchange_energy(near: Scalar, far: Scalar, route: Route) -> Scalar:
    """Joules that one member spends on the links for them."""
    return near * route.near_energy + far * route.system.scale_out.energy


def send(size: Scalar, route: Route) -> Scalar:
    """Seconds in which every member sends ``size`` bytes to the next one: over scale-up where no pair is apart."""
    return jnp.where(route.leaves, route.across.send_time(size), route.neighbour.send_time(size))


def direct_all_reduce(size: Scalar, members: Scalar, network: Network) -> Scalar:
    """Seconds of an all-reduce in one kernel over loads and stores between peers, inside one domain.

    One shot: every member reads all of the others' data. Two shots: it reads and sums its share, then
    gathers the sums; twice the latency, 2 / members of the bytes (as in TensorRT-LLM and vLLM).
    """
    level = joined(network, members)
    one, two = level.send_time(size * (members - 1.0)), 2.0 * level.send_time(size * level.fraction)
    return jnp.where(members > 1.0, jnp.minimum(one, two), 0.0)


# Stated volumes


def _stated_one_way(size: Scalar, route: Route) -> Scalar | None:
    """All-gather by stated volumes, first across domains, then inside; None where no level states them."""
    up, out = route.system.scale_up.volumes, route.system.scale_out.volumes
    if up is None or out is None:
        return None
    across = _stated_time(size * route.shard, route.across, out.gather, out.gather_share)
    return across + _stated_time(size, route.inside, up.gather, up.gather_share)


def _stated_all_reduce(size: Scalar, route: Route) -> Scalar | None:
    """All-reduce by stated volumes: inside each domain, then of the shards across; None where none are stated."""
    up, out = route.system.scale_up.volumes, route.system.scale_out.volumes
    if up is None or out is None:
        return None
    across = _stated_time(size * route.shard, route.across, out.reduce, out.reduce_share)
    return across + _stated_time(size, route.inside, up.reduce, up.reduce_share)


def _stated_time(size: Scalar, level: Level, volume: Scalar, share: Scalar) -> Scalar:
    """Seconds of a collective of stated volume ``(volume + share / N)`` over one level; 0 for one member."""
    moved = size * (volume + share / level.members)
    return jnp.where(level.members > 1.0, level.send_time(moved), 0.0)


def summing_time(size: Scalar, group: Group, system: System) -> Scalar:
    """Seconds that the sums of a reduction add to its time on the wire; 0 where they hide behind it."""
    volumes = system.scale_up.volumes
    if volumes is None:
        return 0.0
    return jnp.where(group.size > 1.0, memory_time(volumes.reduction_traffic * size, system.accelerator), 0.0)


# Beside compute


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
