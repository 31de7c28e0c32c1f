"""One level of the interconnect."""

from __future__ import annotations

from dse.types.choices import Topology
from dse.types.fields import (
    SIGNED,
    Bounds,
    Scalar,
    choice,
    count,
    integer,
    number,
    positive,
    positive_share,
    record,
    share,
    yes_or_no,
)


@record
class Volumes:
    """Bytes of a collective of ``N`` members over a member's link, ``(a + b / N)`` times its message.

    An optional part of :class:`Network` for levels whose collectives are stated or measured that way: they take the
    level's latency once, without a choice of algorithm. A ring is ``a = 1, b = -1`` for an all-gather and ``2, -2`` for
    an all-reduce; a switch that reduces is ``1, 1`` for an all-reduce.
    """

    gather: Scalar = number("link bytes of an all-gather or reduce-scatter over the gathered bytes", symbol="a")
    gather_share: Scalar = number("what is added to that, times the members", bounds=SIGNED, symbol="b")
    reduce: Scalar = number("link bytes of an all-reduce over its message", symbol="a")
    reduce_share: Scalar = number("what is added to that, times the members", bounds=SIGNED, symbol="b")
    reduction_traffic: Scalar = number("device-memory bytes of a reduction over its message")


@record
class CollectiveKernels:
    """Isolated collectives beyond :class:`Network`: launches, and all-reduces in one kernel.

    An optional part of :class:`Network`. ``direct_…``: an all-reduce of inference engines that reads the peers' memory.
    """

    launch: Scalar = number("launch and completion of a collective of the library", "s")
    pair_loss: Scalar = number("share of the bandwidth that two members leave unused, less so more of them")
    flagged_share: Scalar = positive_share("share of the bandwidth where each word carries its own flag (LL)")
    simple_latency: Scalar = positive("latency of a step between barriers (Simple) over that of LL")
    simple_floor: Scalar = number("least latency of a ring between barriers (Simple) over the launch", default=0.0)
    flagged_bytes: Scalar = positive("most bytes of a step of a ring with flags (LL)", "B", default=1e15)
    exchange_latency: Scalar = positive("latency of an all-to-all of more than 16 KiB a peer over that of a step")
    exchange_rate: Scalar = positive("rate of the channel that sends a peer less than that in an all-to-all", "B/s")
    exchange_efficiency: Scalar = positive("share of the bandwidth of an all-to-all over that of a ring")
    direct_launch: Scalar = number("launch and completion of a direct all-reduce over the library's")
    lean_launch: Scalar = number("the same of TensorRT-LLM's over that of the other engines'")
    direct_latency: Scalar = number("latency of one shot of a direct all-reduce over that of a step")
    direct_rate: Scalar = positive("rate at which the blocks of a direct all-reduce load", "B/s")
    graph_efficiency: Scalar = positive("share of the bandwidth of large messages in a graph over without")
    eager_launch: Scalar = number("time the host needs to launch a collective outside of a graph", "s")


@record
class Pods:
    """Pods of a scale-out network, joined by a top level with less bandwidth.

    An optional part of :class:`Network`; without it the network has full bisection bandwidth.
    """

    size: Scalar = count("devices at full bandwidth", default=1.0, symbol="P")
    oversubscription: Scalar = number(
        "oversubscription of the pod; 1: full bisection", default=1.0, bounds=Bounds(low=1.0), symbol="o"
    )
    detour: Scalar = number(
        "links per byte between pods: 1 tree, 2 dragonfly (Valiant)", default=1.0, bounds=Bounds(low=1.0)
    )
    pooled: Scalar = yes_or_no("uplinks of a pod: 1 shared, 0 per device", default=1.0)


@record
class Links:
    """Links between the devices of a domain without a switch: a torus, a mesh, a hypercube.

    An optional part of a scale-up network, whose bandwidth is that of all links of a device. Devices in use form slices
    of at most a domain; those of a torus are numbered along x, then y, then z, and parallel dimensions are placed over
    them in the order of the mapping.
    """

    topology: Scalar = choice("link topology", Topology, default=0.0)
    per_device: Scalar = count("links per device: two per torus axis", default=4.0)
    wrap: Scalar = count("axis length multiple that wraps around", default=1.0)
    x: Scalar = number("first axis of a slice, devices; 0: nearest to square or cube", default=0.0)
    y: Scalar = number("second axis of a slice, devices; the last axis follows", default=0.0)
    slice_loss: Scalar = share("share of compute lost per doubling of slices", default=0.0)


@record
class Package:
    """Devices on a package or a board with faster links between them than in the rest of their domain.

    An optional third level within a scale-up network, for groups that fit in it; other groups have the bandwidth of the
    network, since the slowest link of a ring sets the pace. With ``neighbours`` that bandwidth is one link of a device
    to one other package, and rings use all such links of the group (:func:`dse.model.links.reach_in`).
    """

    dies: Scalar = count("devices per package", default=1.0)
    speedup: Scalar = positive("bandwidth inside a package over the network's", default=1.0)
    neighbours: Scalar = integer("other packages that a device has a link to; 0: a switch joins packages", default=0.0)


@record
class Network:
    """One level of the interconnect, as seen by one device."""

    bandwidth: Scalar = positive("bandwidth per device and direction", "B/s")
    latency: Scalar = number("latency of a collective step, with software", "s", symbol="alpha")
    domain: Scalar = positive("devices of the domain")
    efficiency: Scalar = positive_share("bandwidth efficiency, large messages")
    ramp: Scalar = positive("message size at half efficiency", "B", symbol="S0")
    in_network_reduction: Scalar = share("in-switch reduction, share of the bandwidth; 0: none")
    processor_usage: Scalar = share("share of compute taken by communication")
    energy: Scalar = number("link energy per byte, both ends, with optics", "J/B", default=0.0)
    mesh: Scalar = share("full mesh: 1, switch: 0", default=0.0)
    crowding: Scalar = number("bandwidth lost per member above two on shared host bridges", default=0.0)
    bridged: Scalar = yes_or_no(
        "peers reached over bridges of the host (PCIe): 1, over links of their own: 0", default=0.0
    )
    pods: Pods | None = None
    links: Links | None = None
    package: Package | None = None
    volumes: Volumes | None = None
    alone: CollectiveKernels | None = None
