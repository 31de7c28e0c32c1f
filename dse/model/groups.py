"""Communicators of a mapping, and their shares of the networks.

A group of ``P`` members has ``q`` of them in one scale-up domain and spans ``P / q`` domains, depending on the order of
placement of the parallel dimensions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model import links
from dse.model.choice import divides, even_part, min_prefer_first, power_of_two, times
from dse.types import Group, Mapping, Placement, Pods, Reach, Scalar, System


class Groups(NamedTuple):
    """Communicators of a mapping."""

    tp: Group
    cp: Group
    dp: Group  # replicas of a weight that share its ZeRO state: dp x cp / dp_replicate
    copies: Group  # devices with the same share of the state
    pp: Group  # two neighbouring stages


def communicators(mapping: Mapping, system: System, copies: Scalar = 1.0) -> Groups:
    """Return the communicators of a mapping with their shares of a system's networks.

    The innermost dimension has stride 1. Of over-subscribed pods they have their shares of scale-out bandwidth
    (:func:`ring_shares`); tp and cp are assumed within pods.

    Args:
        mapping: degrees and placement.
        system: with its networks.
        copies: stages per device whose weights, and so state and gradients, are shared by more devices.
    """
    tp, cp, pp, replicates = mapping.tp, mapping.cp, mapping.pp, mapping.dp_replicate
    domain, reach, ring = system.scale_up.domain, links.reach_in(system, tp), ring_shares(system.scale_out.pods)
    dp_stride, pp_stride = strides(mapping)
    shards, extent, local_cp = mapping.dp / replicates, dp_stride * mapping.dp, members_within(cp, tp, domain)
    shards_extent, dp_run = extent / replicates, (dp_stride, shards)
    return Groups(
        tp=Group(tp, members_within(tp, 1.0, domain), reach=reach((1.0, tp))),
        cp=Group(cp, local_cp, reach=reach((tp, cp))),
        dp=Group(
            times(copies, shards * cp),
            local_cp * members_within(shards, dp_stride, domain),
            ring(cp, dp_stride, shards_extent),
            reach((tp, cp), dp_run),
        ),
        # All or none: one stage that leaves its domain sets the pace, and copies are whole shards apart.
        copies=Group(
            replicates,
            jnp.where(extent <= domain, replicates, 1.0),
            ring(1.0, shards_extent, extent),
            reach((dp_stride * shards, replicates)),
        ),
        pp=Group(
            2.0,
            jnp.where(pp_stride * pp <= domain, 2.0, 1.0),
            ring(1.0, pp_stride, pp_stride * pp),
            reach((pp_stride, pp)),
        ),
    )


def strides(mapping: Mapping) -> tuple[Scalar, Scalar]:
    """Return the strides in devices: between members of a data-parallel group, and between stages."""
    inner, outermost = mapping.tp * mapping.cp, mapping.placement == float(Placement.tp_cp_pp_dp)
    return jnp.where(outermost, inner * mapping.pp, inner), jnp.where(outermost, inner, inner * mapping.dp)


def stage_domain(mapping: Mapping, domain: Scalar) -> Scalar:
    """Return how many devices of a scale-up domain one stage has: all, or with stages inside dp those of its rows."""
    inner = mapping.tp * mapping.cp
    rows = jnp.maximum(jnp.floor(domain / (inner * mapping.pp)), 1.0)
    devices_in_rows = jnp.minimum(domain, inner * rows)
    return jnp.where(mapping.placement == float(Placement.tp_cp_pp_dp), devices_in_rows, domain)


def in_a_row(size: Scalar, stride: Scalar, domain: Scalar, reach: Callable[..., Reach | None]) -> Group:
    """Return the group of ``size`` devices at distances of ``stride``.

    Args:
        size: members.
        stride: devices between two members.
        domain: devices of a scale-up domain.
        reach: as :func:`dse.model.links.reach_in` returns it.
    """
    return Group(size, members_within(size, stride, domain), reach=reach((stride, size)))


def ring_shares(pods: Pods | None, mapping: Mapping | None = None) -> Callable[..., Scalar | None]:
    """Return the function from adjacent positions, stride and extent of a ring to its :func:`ring_share`.

    Without pods that function returns None. With a mapping, rings are those among the devices of one stage.

    A pod of ``P`` devices has ``m = max(P / s, 1)`` members ``s`` devices apart (shards: ``c m``, with context
    parallelism inside). A ring leaves a pod once, and the rings of all groups of a pod share its uplinks, ``1 / o`` of
    its links: each member has ``min(m / o, 1)`` of its own link. A group within one pod has all of it. In a dragonfly
    bytes to the next pod take a detour through a third one, which doubles the traffic between pods (Kim et al., ISCA
    2008). Clusters joined by slower NICs are pods with ``1 / o`` per device, for the one ring through them (Holmes,
    Yang et al. 2023).
    """
    if pods is None:
        return lambda *ring: None
    size = pods.size if mapping is None else stage_domain(mapping, pods.size)
    return lambda positions, stride, extent: ring_share(pods, size, positions, stride, extent)


def ring_share(pods: Pods, pod_size: Scalar, positions: Scalar, stride: Scalar, extent: Scalar) -> Scalar:
    """Return the share, 0 to 1, of a member's bandwidth between pods, for a ring over ``extent`` devices.

    ``positions`` adjacent members of a group every ``stride`` devices.

    Args:
        pods: over-subscribed level.
        pod_size: devices of a pod.
        positions: adjacent members of a group.
        stride: devices between two such rows.
        extent: devices that the group spans.
    """
    single_ring = positions * (1.0 / (pods.oversubscription * pods.detour))
    pooled_rings = jnp.where(pods.pooled > 0.0, jnp.maximum(pod_size / stride, 1.0), 1.0)
    return jnp.where(extent > pod_size, min_prefer_first(single_ring * pooled_rings, 1.0), 1.0)


def exchange_share(pods: Pods, pod_size: Scalar, members: Group, stride: Scalar) -> Scalar:
    """Return the share from 0 to 1 of a member's bandwidth between pods in an all-to-all of ``members``.

    What a member sends out of its domain is proportional to the members there, and what it sends to other pods, over
    ``1 / o`` of the links, to those.

    Args:
        pods: over-subscribed level.
        pod_size: devices of a pod.
        members: the group.
        stride: devices between two members.
    """
    other_members = jnp.maximum(members.size - members_within(members.size, stride, pod_size), 1.0)
    uplink_demand = other_members * pods.oversubscription * pods.detour
    leaves_pod = members.size * stride > pod_size
    return jnp.where(leaves_pod, min_prefer_first((members.size - members.local) / uplink_demand, 1.0), 1.0)


def members_within(size: Scalar, stride: Scalar, domain: Scalar) -> Scalar:
    """Return the count of members in one domain, of a group of ``size`` members at distances of ``stride`` devices.

    All of them where they fit. Otherwise groups are aligned to domains, as schedulers place them: the members per
    domain divide the group, and some devices may be left to others (of 72 in a rack, 64 serve groups of 16).
    """
    return largest_divisor(size, jnp.maximum(jnp.floor(domain / stride), 1.0))


def largest_divisor(number: Scalar, most: Scalar) -> Scalar:
    """Return the largest divisor of ``number`` up to ``most`` among ``f 2^i`` with f = 1, 3 and the odd part.

    The largest of all if the odd part of ``number`` is 1, 3, 9 or a prime. It grows with ``most``. Numbers are whole,
    held in floats, below 2^24.
    """
    even, most_even = even_part(number), power_of_two(most)
    odd = number / even
    # The largest power of two whose triple is at most ``most``; below 1 there is none.
    third = jnp.where(most >= 1.5 * most_even, 0.5, 0.25) * most_even
    triple = jnp.where(divides(3.0, odd) & (third >= 1.0), 3.0 * jnp.minimum(even, third), 1.0)
    with_odd = jnp.where(odd <= most, odd * jnp.minimum(even, power_of_two(most / odd)), 1.0)
    return jnp.maximum(jnp.maximum(jnp.minimum(even, most_even), triple), with_odd)
