"""Shares of a scale-up domain without a switch: axes of a torus, dimensions of a hypercube, quads, packages.

A group is given as runs ``(stride, size)``: every ``stride``-th device, ``size`` of them, the innermost run first.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose, divides, even_part, power_of_two
from dse.types import Links, Package, Reach, Scalar, System, Topology

Run = tuple[Scalar, Scalar]

#: Tolerance of the logarithm of a power of two.
_ROUNDING = 1e-3


class TorusAxis(NamedTuple):
    """Members of a group along one axis of a torus."""

    members: Scalar
    sharing: Scalar  # interleaved groups that share the axis
    directions: Scalar  # 2 for a ring, 1 for a line


def reach_in(system: System, tp: Scalar) -> Callable[..., Reach | None]:
    """Return the function from a group's runs, each (stride, size), to its shares of scale-up links.

    Behind a switch that function returns None.

    ``tp`` is the innermost dimension of the mapping.
    """
    network = system.scale_up
    links, package = network.links, network.package
    if links is not None:
        edges = axis_edges(links, slice_size(system), tp)
        return lambda *runs: _reach_by_topology(links, edges, runs)
    if package is not None:
        return lambda *runs: _in_package(package, network.domain, runs)
    return lambda *runs: None


def slice_size(system: System) -> Scalar:
    """Return the count of devices of a slice: all devices in use, at most those of a domain."""
    return jnp.minimum(system.n_devices, system.scale_up.domain)


def axis_edges(links: Links, devices: Scalar, tp: Scalar = 1.0) -> tuple[Scalar, ...]:
    """Return the strides in devices along x, y and z of a torus of ``devices``, and their number.

    Axes that are not stated are the largest powers of two up to the square root (two axes) or cube root of the
    remaining devices: 64 are 4 x 4 x 4, 192 are 4 x 4 x 12, 128 are 8 x 16. The innermost dimension decides the order:
    of three axes the first is ``tp`` long if that axis wraps around and leaves two that do; else the shortest comes
    first, of two axes the shortest with at least ``tp``.

    Args:
        links: of the torus.
        devices: devices of the slice.
        tp: innermost degree of the mapping.

    Returns:
        Devices between neighbours along x, y and z, and the devices of the slice.
    """
    three = links.per_device > 4.0
    first = _axis_length(devices, jnp.where(three, 1.0 / 3.0, 0.5))
    second = jnp.where(three, _axis_length(devices / first, 0.5), devices / first)
    third = devices / (first * second)
    fits = divides(links.wrap, tp) & divides(tp * links.wrap * links.wrap, devices) & (tp <= third)
    of_three = jnp.where(fits, tp, first)
    of_two = jnp.where((tp > first) & (tp <= second), second, first)
    x = jnp.where(links.x > 0.0, links.x, jnp.where(three, of_three, of_two))
    remaining = jnp.maximum(devices / x, 1.0)  # an x beyond the slice is a fault, and leaves finite numbers
    y = jnp.where(links.y > 0.0, links.y, jnp.where(three, _axis_length(remaining, 0.5), remaining))
    return 1.0, x, x * y, devices


def _axis_length(devices: Scalar, exponent: Scalar) -> Scalar:
    """Return the largest power of two that divides ``devices``, up to ``devices**exponent``."""
    root = devices**exponent * (1.0 + 1e-5)  # may be rounded to just below a power of two
    return jnp.minimum(power_of_two(root), even_part(devices))


def faults(system: System, tp: Scalar) -> list[Any]:
    """Return a list with one value, true where the links do not form a slice; an empty list behind a switch.

    The axes of a torus divide the slice, and a device inside of each needs two links, one for an axis of two. A
    hypercube is a power of two devices with one link per dimension, a cube mesh up to eight with four links or more.
    ``tp`` as of :func:`reach_in`.
    """
    links = system.scale_up.links
    if links is None:
        return []
    edges = axis_edges(links, slice_size(system), tp)
    _, x, xy, devices = edges
    links_needed: Scalar = 0.0
    for low, high in itertools.pairwise(edges):
        links_needed = links_needed + jnp.minimum(jnp.maximum(high / low - 1.0, 0.0), 2.0)
    torus = divides(x, devices) & divides(xy, devices) & (links_needed <= links.per_device)
    cube = (even_part(devices) == devices) & (jnp.log2(devices) <= links.per_device + _ROUNDING)
    quads = (devices <= 8.0) & (links.per_device >= 4.0)
    built = {Topology.torus: torus, Topology.hypercube: cube, Topology.cube_mesh: quads}
    return [~functools.reduce(operator.or_, ((links.topology == float(code)) & fits for code, fits in built.items()))]


def _reach_by_topology(links: Links, edges: tuple[Scalar, ...], runs: tuple[Run, ...]) -> Reach:
    """Return the shares of links of a group under the traced topology of the links."""
    reach_by_topology = {
        Topology.torus: _on_torus(links, edges, runs), Topology.hypercube: _on_hypercube(links, edges[-1], runs),
        Topology.cube_mesh: _on_cube_mesh(links, edges[-1], runs),
    }  # fmt: skip
    return choose(links.topology, reach_by_topology)


def torus_axis(links: Links, low: Scalar, high: Scalar, runs: tuple[Run, ...]) -> TorusAxis:
    """Return the members of a group on an axis, devices that share it, and directions of its rings.

    Neighbours on the axis are ``low`` devices from each other, its ends ``high``.
    """
    members: Scalar = 1.0
    for stride, size in runs:
        members = members * _clip(stride * size, low, high) / _clip(stride, low, high)
    stride, size = runs[-1]
    span, length = _clip(stride * size, low, high) / low, high / low
    wraps = divides(links.wrap, length) & (span >= length)
    return TorusAxis(members, span / members, jnp.where(wraps, 2.0, 1.0))


def _clip(value: Scalar, low: Scalar, high: Scalar) -> Scalar:
    """Return ``value`` limited to ``low`` and ``high``."""
    return jnp.minimum(jnp.maximum(value, low), high)


def _to_others(size: Scalar) -> Scalar:
    """Return the mean distance to the ``size - 1`` other members over the mean with the distance 0 to itself."""
    return size / jnp.maximum(size - 1.0, 1.0)


def _on_torus(links: Links, edges: tuple[Scalar, ...], runs: tuple[Run, ...]) -> Reach:
    """Return the shares of a device's links on the axes of a group.

    Parallel rings along every axis use all links of the group: two per axis that wraps around, one per line
    (multi-ring; Sack and Gropp 2015, Jouppi et al. 2023). An all-to-all is bound by the cut through the longest axis:
    with ``V`` bytes per member, an axis of ``k`` and links of ``b``, ``V k / (8 b)`` around and ``V k / (4 b)`` on a
    line. Interleaved groups share an axis.
    """
    axes = [torus_axis(links, low, high, runs) for low, high in itertools.pairwise(edges)]
    link_share = 1.0 / links.per_device
    nothing: Scalar = 0.0
    ring_links = slowest = steps = hops = nothing
    size: Scalar = 1.0
    sharing: Scalar = 1.0
    for axis in axes:
        is_used = axis.members > 1.0
        wraps = axis.directions > 1.0
        ring_links = ring_links + jnp.where(is_used, axis.directions / axis.sharing, 0.0)
        slowest = jnp.maximum(slowest, jnp.where(is_used, axis.sharing * axis.members / (4.0 * axis.directions), 0.0))
        steps = steps + jnp.where(wraps, 0.5 * axis.members, axis.members - 1.0) * jnp.where(is_used, 1.0, 0.0)
        distance = jnp.where(wraps, axis.members / 4.0, (axis.members - 1.0 / axis.members) / 3.0)
        hops = hops + jnp.where(is_used, axis.sharing * distance, 0.0)
        sharing = jnp.maximum(sharing, jnp.where(is_used, axis.sharing, 1.0))
        size = size * axis.members
    hops = hops * _to_others(size)
    ring = link_share * jnp.where(ring_links > 0.0, ring_links, 1.0)  # avoids a division by zero for a group of one
    cut = link_share * (1.0 - 1.0 / size) / jnp.where(slowest > 0.0, slowest, 1.0)
    return Reach(ring, jnp.where(slowest > 0.0, jnp.minimum(cut, ring), ring), link_share / sharing, steps, hops)


def _on_cube_mesh(links: Links, devices: Scalar, runs: tuple[Run, ...]) -> Reach:
    """Return the shares of a device's links for a group on two quads, each with links of all pairs.

    Of six links rings of a library have one for a pair, two for three, four for a quad and six for all eight.

    Half of the links and one more lead into the quad. Between them, of five to seven, rings have the links of a quad.
    In an all-to-all of a quad each pair has one link; of eight, three of seven peers are two links away.
    """
    size = _member_count(devices, runs)
    link_share, other_members = 1.0 / links.per_device, jnp.maximum(size - 1.0, 1.0)
    quad_links = jnp.where(size > 3.0, 0.5 * links.per_device + 1.0, other_members)
    ring = link_share * jnp.where(size > 7.0, links.per_device, quad_links)
    hops = 1.0 + jnp.maximum(size - 5.0, 0.0) / other_members
    exchange = jnp.where(size > 4.0, ring / hops, link_share * other_members)
    return Reach(ring, jnp.minimum(exchange, ring), link_share, other_members, hops)


def _member_count(devices: Scalar, runs: tuple[Run, ...]) -> Scalar:
    """Return the count of members of a group within a slice of ``devices``."""
    size: Scalar = 1.0
    for _, members in runs:
        size = size * members
    return jnp.minimum(size, devices)


def _on_hypercube(links: Links, devices: Scalar, runs: tuple[Run, ...]) -> Reach:
    """Return the shares of a device's links for a group of ``2^n`` devices, which has a link per dimension (of ``n``).

    Half of its bytes cross each in an all-to-all.
    """
    size = _member_count(devices, runs)
    dimensions = jnp.log2(jnp.maximum(size, 1.0))
    link_share = 1.0 / links.per_device
    ring = link_share * jnp.minimum(jnp.maximum(dimensions, 1.0), links.per_device)
    cut = link_share * 2.0 * (1.0 - 1.0 / jnp.maximum(size, 2.0))
    return Reach(ring, jnp.minimum(cut, ring), link_share, dimensions, 0.5 * dimensions * _to_others(size))


def _in_package(package: Package, domain: Scalar, runs: tuple[Run, ...]) -> Reach:
    """Return the shares of a group on packages of ``d`` devices, of the bandwidth of one link to another package.

    Within one package ``speedup``; 1 beyond it where a switch joins packages. With ``n`` links of a device to ``n``
    other packages, of which those to the ``M - 1`` others of the group count, ``k = min(M - 1, n)``:

    - rings pass every package by ``q`` of its devices, in by one and out by another, and run both ways around, so that
      each device sends ``q k`` links' worth, at most what goes through a package: ``min(q k, speedup)``;
    - in an all-to-all a device sends ``(N - q) / (N - 1)`` of its bytes out of its package over ``k`` links;
    - a send to the next member has one link.

    ``q`` members of a group are in one package, ``M = N / q`` packages hold the ``N`` members of a domain.
    """
    size: Scalar = 1.0
    in_package: Scalar = 1.0
    for stride, members in runs:
        size = size * members
        in_package = in_package * _clip(stride * members, 1.0, package.dies) / _clip(stride, 1.0, package.dies)
    stride, members = runs[-1]
    is_inside = stride * members <= package.dies
    size = jnp.minimum(size, domain)
    other_packages = jnp.maximum(size / in_package - 1.0, 1.0)
    has_links, links_used = package.neighbours > 0.0, jnp.minimum(other_packages, package.neighbours)
    leaving = jnp.maximum(size - in_package, 1.0) / jnp.maximum(size - 1.0, 1.0)

    def share(by_links: Scalar) -> Scalar:
        outside = jnp.where(has_links, jnp.minimum(by_links, package.speedup), 1.0)
        return jnp.where(is_inside, package.speedup, outside)

    return Reach(share(in_package * links_used), share(links_used / leaving), share(1.0), size - 1.0, 1.0)
