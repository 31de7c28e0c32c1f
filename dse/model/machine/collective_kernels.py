"""Time of isolated collectives as benchmarks measure them, with launches, and of all-reduces of frameworks.

Needs ``alone`` of the scale-up network, which training steps do not use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp

from dse.model.choice import required
from dse.model.machine.collectives import all_gather, all_reduce, all_to_all, direct_all_reduce, send
from dse.model.machine.overlap import overlapped
from dse.model.machine.routes import Route
from dse.types import Collective, Group, Network, Scalar, System

#: A send between two devices over their own link: share of the bandwidth, and of the ramp, of a ring.
SEND_EFFICIENCY, SEND_RAMP = 0.95, 0.05

#: Bytes to one peer up to which NCCL sends with flags in the data (``NCCL_P2P_LL_THRESHOLD``).
FLAGGED_EXCHANGE = 16384.0


def collective_time(operation: Scalar, size: Scalar, group: Group, launch: Scalar, system: System) -> Scalar:
    """Return the time of a library collective with its launch, s.

    ``operation`` 0: all-reduce, 1: all-gather, 2: reduce-scatter, 3: all-to-all, 4: send to a neighbour.

    Args:
        operation: 0 all-reduce, 1 all-gather, 2 reduce-scatter, 3 all-to-all, 4 send to a neighbour.
        size: bytes.
        group: members.
        launch: launch time in s, 0 for that of the network's library.
        system: with the parameters of ``scale_up.alone``.
    """
    network, kernels = system.scale_up, required(system.scale_up.alone, "scale_up.alone")
    direct_system = dataclasses.replace(
        system, scale_up=dataclasses.replace(network, efficiency=SEND_EFFICIENCY, ramp=SEND_RAMP * network.ramp)
    )
    system = _of_members(system, group.local)
    gather_time = jnp.where(
        operation < 0.5,
        _protocol_time(all_reduce, size, group, system),
        _protocol_time(all_gather, size, group, system),
    )
    pairwise_time = jnp.where(
        operation > 3.5, send(size, Route(group, direct_system)), _exchange_time(size, group, system)
    )
    return jnp.where(launch > 0.0, launch, kernels.launch) + jnp.where(operation > 2.5, pairwise_time, gather_time)


def _exchange_time(size: Scalar, group: Group, system: System) -> Scalar:
    """Return the time to exchange ``size`` bytes per member, s.

    Small messages take one channel with flags, larger ones all.

    All peers are served in parallel, yet the time grows with the logarithm of their number, as measured.
    """
    network, kernels = system.scale_up, required(system.scale_up.alone, "scale_up.alone")
    peer_bytes, synchronisation = size / group.size, jnp.log2(group.size) * network.latency
    scaled_network = dataclasses.replace(
        _scaled(network, kernels.exchange_efficiency), latency=kernels.exchange_latency * network.latency
    )
    simple = all_to_all(size, Route(group, dataclasses.replace(system, scale_up=scaled_network)))
    is_flagged = (peer_bytes <= FLAGGED_EXCHANGE) & (group.local >= group.size) & (group.size > 1.0)
    return synchronisation + jnp.where(is_flagged, jnp.minimum(peer_bytes / kernels.exchange_rate, simple), simple)


def _protocol_time(
    collective: Callable[[Scalar, Route, Scalar], Scalar], size: Scalar, group: Group, system: System
) -> Scalar:
    """Return the time of a collective, s, with the protocol that the library chooses, which may not be the fastest.

    The library takes barriers for faster than they are: beyond ``flagged_bytes`` a step of a ring it uses no flags,
    though these might take less.
    """
    network, kernels = system.scale_up, required(system.scale_up.alone, "scale_up.alone")
    auto = jnp.asarray(float(Collective.auto))
    flagged, simple = (collective(size, Route(group, protocol_system), auto) for protocol_system in protocols(system))
    steps = (group.size - 1.0) * (2.0 if collective is all_reduce else 1.0)
    simple = simple + jnp.maximum(
        kernels.simple_floor * kernels.launch - steps * kernels.simple_latency * network.latency, 0.0
    )
    return jnp.where(size / group.size <= kernels.flagged_bytes, jnp.minimum(flagged, simple), simple)


def protocols(system: System) -> tuple[System, System]:
    """Return the system twice, under two NCCL protocols: flags in the data (LL), then barriers (Simple).

    Flags cost bandwidth and save barriers, so a step is shorter. Switch reductions need barriers. The third protocol
    (LL128) lies between them and is not distinguished by the data (NVIDIA/nccl, ``src/graph/tuning.cc``).
    """
    network, kernels = system.scale_up, required(system.scale_up.alone, "scale_up.alone")
    flagged = dataclasses.replace(
        network, efficiency=kernels.flagged_share * network.efficiency, ramp=1.0, in_network_reduction=0.0
    )
    simple = dataclasses.replace(network, latency=kernels.simple_latency * network.latency)
    return dataclasses.replace(system, scale_up=flagged), dataclasses.replace(system, scale_up=simple)


def direct_time(size: Scalar, members: Scalar, is_eager: Scalar, is_lean: Scalar, system: System) -> Scalar:
    """Return the time of a framework's all-reduce, s: the shorter of direct loads and stores and the library's.

    In a graph the library uses registered buffers. Single launches are bound by the host.

    Args:
        size: bytes.
        members: devices of the group.
        is_eager: 1 for single launches, 0 within a graph.
        is_lean: 1 for an engine with a shorter launch.
        system: with the parameters of ``scale_up.alone``.
    """
    kernels = required(system.scale_up.alone, "scale_up.alone")
    system = _of_members(system, members)
    launch = kernels.launch * kernels.direct_launch * jnp.where(is_lean > 0.0, kernels.lean_launch, 1.0)
    # Plain loads have no ramp. Their rate and the link's are in series.
    network = system.scale_up
    loading = 1.0 / (1.0 + network.bandwidth * network.efficiency / kernels.direct_rate)
    direct = dataclasses.replace(_scaled(network, loading), latency=network.latency * kernels.direct_latency, ramp=1.0)
    small = launch + direct_all_reduce(size, members, direct)
    share = jnp.where(is_eager > 0.0, 1.0, kernels.graph_efficiency)
    graph = dataclasses.replace(system, scale_up=_scaled(system.scale_up, share))
    large = launch + _protocol_time(all_reduce, size, Group(members, members), graph)
    device = jnp.minimum(small, large)
    return jnp.where(is_eager > 0.0, overlapped(device, kernels.eager_launch, 0.1), device)


def _of_members(system: System, members: Scalar) -> System:
    """Return the system with the share of scale-up bandwidth that ``members`` devices use.

    Two devices have few channels.
    """
    kernels = required(system.scale_up.alone, "scale_up.alone")
    share = 1.0 - kernels.pair_loss / jnp.maximum(members - 1.0, 1.0)
    return dataclasses.replace(system, scale_up=_scaled(system.scale_up, share))


def _scaled(network: Network, share: Scalar) -> Network:
    """Return a network level at a share of its efficiency."""
    return dataclasses.replace(
        network, efficiency=network.efficiency * share, in_network_reduction=network.in_network_reduction * share
    )
