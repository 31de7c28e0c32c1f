"""What a group of devices has of a domain that no switch joins: axes of a torus, dimensions of a hypercube, packages.

A group is given as runs ``(stride, size)``: every ``stride``-th device, ``size`` of them, the innermost run first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.choice import divides, even_part, power_of_two
from dse.types import Links, Package, Reach, Scalar, System, Topology

Run = tuple[Scalar, Scalar]

#: By how much the logarithm of a power of two may miss a whole number.
_ROUNDING = 1e-3


class TorusAxis(NamedTuple):
    """Members of a group along one axis of a torus."""

    members: Scalar
    sharing: Scalar  # groups that lie between each other's members and share the axis
    ways: Scalar  # 2 where it wraps around, 1 for a line


def reach_in(system: System, tp: Scalar) -> Callable[..., Reach | None]:
    """What says of a group, by its runs, what it has of a system's scale-up domain; nothing where a switch joins it.

    ``tp`` is the innermost dimension of the mapping.
    """
    network = system.scale_up
    links, package = network.links, network.package
    if links is not None:
        edges = axis_edges(links, slice_size(system), tp)
        return lambda *runs: _choose(links, edges, runs)
    if package is not None:
        return lambda *runs: _in_package(package, network.domain, runs)
    return lambda *runs: None


def slice_size(system: System) -> Scalar:
    """Devices of a slice: all that are in use, at most those of a domain."""
    return jnp.minimum(system.n_devices, system.scale_up.domain)


def axis_edges(links: Links, devices: Scalar, tp: Scalar = 1.0) -> tuple[Scalar, ...]:
    """Devices from one to the next along x, y and z of a torus of so many, and all of them.

    Axes that are not stated are the largest powers of two up to the square root (two axes) or cube root of what is
    left: 64 are 4 x 4 x 4, 192 are 4 x 4 x 12, 128 are 8 x 16. Slices are asked for in shapes that suit the innermost
    dimension: of three axes the first is ``tp`` long where such an axis wraps around and leaves two that do. Else the
    shortest comes first, of two axes the shortest that holds ``tp`` whole.
    """
    three = links.per_device > 4.0
    first = _side(devices, jnp.where(three, 1.0 / 3.0, 0.5))
    second = jnp.where(three, _side(devices / first, 0.5), devices / first)
    third = devices / (first * second)
    fits = divides(links.wrap, tp) & divides(tp * links.wrap * links.wrap, devices) & (tp <= third)
    of_three = jnp.where(fits, tp, first)
    of_two = jnp.where((tp > first) & (tp <= second), second, first)
    x = jnp.where(links.x > 0.0, links.x, jnp.where(three, of_three, of_two))
    left = jnp.maximum(devices / x, 1.0)  # an x beyond the slice fills none, and leaves numbers that can be told
    y = jnp.where(links.y > 0.0, links.y, jnp.where(three, _side(left, 0.5), left))
    return 1.0, x, x * y, devices


def _side(devices: Scalar, exponent: Scalar) -> Scalar:
    """The largest power of two that divides so many devices and is at most this root of them."""
    root = devices**exponent * (1.0 + 1e-5)  # that of a power of two may come out a little below it
    return jnp.minimum(power_of_two(root), even_part(devices))


def fills(system: System, tp: Scalar) -> Any:
    """Whether a slice can be built of the links of its devices, with ``tp`` as of :func:`reach_in`.

    The axes of a torus divide it, and a device inside of each needs two links, one where the axis is a pair. A
    hypercube is a power of two devices, each with a link a dimension.
    """
    links = system.scale_up.links
    assert links is not None
    edges = axis_edges(links, slice_size(system), tp)
    _, x, xy, devices = edges
    needed: Scalar = 0.0
    for low, high in itertools.pairwise(edges):
        needed = needed + jnp.minimum(jnp.maximum(high / low - 1.0, 0.0), 2.0)
    torus = divides(x, devices) & divides(xy, devices) & (needed <= links.per_device)
    cube = (even_part(devices) == devices) & (jnp.log2(devices) <= links.per_device + _ROUNDING)
    return (torus & (links.topology == float(Topology.torus))) | (cube & (links.topology == float(Topology.hypercube)))


def _choose(links: Links, edges: tuple[Scalar, ...], runs: tuple[Run, ...]) -> Reach:
    cube, torus = _on_hypercube(links, edges[-1], runs), _on_torus(links, edges, runs)
    is_torus = links.topology == float(Topology.torus)
    return Reach(*(jnp.where(is_torus, a, b) for a, b in zip(torus, cube, strict=True)))


def along(links: Links, low: Scalar, high: Scalar, runs: tuple[Run, ...]) -> TorusAxis:
    """The members of a group on the axis whose devices are ``low`` apart and which is ``high`` devices long."""
    members: Scalar = 1.0
    for stride, size in runs:
        members = members * _within(stride * size, low, high) / _within(stride, low, high)
    stride, size = runs[-1]
    span, length = _within(stride * size, low, high) / low, high / low
    around = divides(links.wrap, length) & (span >= length)
    return TorusAxis(members, span / members, jnp.where(around, 2.0, 1.0))


def _within(value: Scalar, low: Scalar, high: Scalar) -> Scalar:
    return jnp.minimum(jnp.maximum(value, low), high)


def _on_torus(links: Links, edges: tuple[Scalar, ...], runs: tuple[Run, ...]) -> Reach:
    """Shares of a device's links on the axes that a group occupies.

    Rings along every axis at once, each with its part of the bytes, use every link of the group that is not at the end
    of a line: two an axis that wraps around, one of a line (multi-ring; Sack and Gropp 2015, Jouppi et al. 2023). An
    all-to-all is bound by the cut through the longest axis: of ``V`` bytes a member, on an axis of ``k`` with links of
    ``b``, ``V k / (8 b)`` around and ``V k / (4 b)`` on a line. Groups that lie between each other's members share.
    """
    axes = [along(links, low, high, runs) for low, high in itertools.pairwise(edges)]
    one = 1.0 / links.per_device
    nothing: Scalar = 0.0
    own = slowest = steps = hops = nothing
    size: Scalar = 1.0
    sharing: Scalar = 1.0
    for axis in axes:
        used = axis.members > 1.0
        around = axis.ways > 1.0
        own = own + jnp.where(used, axis.ways / axis.sharing, 0.0)
        slowest = jnp.maximum(slowest, jnp.where(used, axis.sharing * axis.members / (4.0 * axis.ways), 0.0))
        steps = steps + jnp.where(around, 0.5 * axis.members, axis.members - 1.0) * jnp.where(used, 1.0, 0.0)
        distance = jnp.where(around, axis.members / 4.0, (axis.members - 1.0 / axis.members) / 3.0)
        hops = hops + jnp.where(used, axis.sharing * distance, 0.0)
        sharing = jnp.maximum(sharing, jnp.where(used, axis.sharing, 1.0))
        size = size * axis.members
    ring = one * jnp.where(own > 0.0, own, 1.0)  # a group of one sends nothing, and divides by nothing
    cut = one * (1.0 - 1.0 / size) / jnp.where(slowest > 0.0, slowest, 1.0)
    return Reach(ring, jnp.where(slowest > 0.0, jnp.minimum(cut, ring), ring), one / sharing, steps, hops)


def _on_hypercube(links: Links, devices: Scalar, runs: tuple[Run, ...]) -> Reach:
    """A link a dimension: a group of ``2^n`` has ``n``, and half of its bytes cross each in an all-to-all."""
    size: Scalar = 1.0
    for _, members in runs:
        size = size * members
    size = jnp.minimum(size, devices)
    dimensions = jnp.log2(jnp.maximum(size, 1.0))
    one = 1.0 / links.per_device
    ring = one * jnp.minimum(jnp.maximum(dimensions, 1.0), links.per_device)
    cut = one * 2.0 * (1.0 - 1.0 / jnp.maximum(size, 2.0))
    return Reach(ring, jnp.minimum(cut, ring), one, dimensions, 0.5 * dimensions)


def _in_package(package: Package, domain: Scalar, runs: tuple[Run, ...]) -> Reach:
    """All of the faster links for a group that fits in one package, else the plain share of one."""
    size: Scalar = 1.0
    for _, members in runs:
        size = size * members
    stride, members = runs[-1]
    share = jnp.where(stride * members <= package.dies, package.speedup, 1.0)
    return Reach(share, share, share, jnp.minimum(size, domain) - 1.0, 1.0)
