"""One level of the interconnect."""

from __future__ import annotations

from dse.types.choices import Topology
from dse.types.fields import (
    COUNT,
    POSITIVE,
    POSITIVE_SHARE,
    SHARE,
    SIGNED,
    YES_OR_NO,
    Bounds,
    Scalar,
    metadata,
    record,
)


@record
class Volumes:
    """Bytes of a collective of ``N`` members over a member's link, ``(a + b / N)`` times its message.

    An optional part of :class:`Network` for levels whose collectives are stated or measured that way: they take the
    level's latency once, without a choice of algorithm. A ring is ``a = 1, b = -1`` for an all-gather and ``2, -2`` for
    an all-reduce; a switch that reduces is ``1, 1`` for an all-reduce.
    """

    gather: Scalar = metadata("a", "1", "link bytes of an all-gather or reduce-scatter over the gathered bytes")
    gather_share: Scalar = metadata("b", "1", "what is added to that, times the members", bounds=SIGNED)
    reduce: Scalar = metadata("a", "1", "link bytes of an all-reduce over its message")
    reduce_share: Scalar = metadata("b", "1", "what is added to that, times the members", bounds=SIGNED)
    reduction_traffic: Scalar = metadata("", "1", "device-memory bytes of a reduction over its message")


@record
class CollectiveKernels:
    """Isolated collectives beyond :class:`Network`: launches, and all-reduces in one kernel.

    An optional part of :class:`Network`. ``direct_…``: an all-reduce of inference engines that reads the peers' memory.
    """

    launch: Scalar = metadata("", "s", "launch and completion of a collective of the library")
    pair_loss: Scalar = metadata("", "1", "share of the bandwidth that two members leave unused, less so more of them")
    flagged_share: Scalar = metadata(
        "", "1", "share of the bandwidth where each word carries its own flag (LL)", bounds=POSITIVE_SHARE
    )
    simple_latency: Scalar = metadata(
        "", "1", "latency of a step between barriers (Simple) over that of LL", bounds=POSITIVE
    )
    simple_floor: Scalar = metadata(
        "", "1", "least latency of a ring between barriers (Simple) over the launch", default=0.0
    )
    flagged_bytes: Scalar = metadata(
        "", "B", "most bytes of a step of a ring with flags (LL)", default=1e15, bounds=POSITIVE
    )
    exchange_latency: Scalar = metadata(
        "", "1", "latency of an all-to-all of more than 16 KiB a peer over that of a step", bounds=POSITIVE
    )
    exchange_rate: Scalar = metadata(
        "", "B/s", "rate of the channel that sends a peer less than that in an all-to-all", bounds=POSITIVE
    )
    exchange_efficiency: Scalar = metadata(
        "", "1", "share of the bandwidth of an all-to-all over that of a ring", bounds=POSITIVE
    )
    direct_launch: Scalar = metadata("", "1", "launch and completion of a direct all-reduce over the library's")
    lean_launch: Scalar = metadata("", "1", "the same of TensorRT-LLM's over that of the other engines'")
    direct_latency: Scalar = metadata("", "1", "latency of one shot of a direct all-reduce over that of a step")
    direct_rate: Scalar = metadata("", "B/s", "rate at which the blocks of a direct all-reduce load", bounds=POSITIVE)
    graph_efficiency: Scalar = metadata(
        "", "1", "share of the bandwidth of large messages in a graph over without", bounds=POSITIVE
    )
    eager_launch: Scalar = metadata("", "s", "time the host needs to launch a collective outside of a graph")


@record
class Pods:
    """Pods of a scale-out network, joined by a top level with less bandwidth.

    An optional part of :class:`Network`; without it the network has full bisection bandwidth.
    """

    size: Scalar = metadata("P", "1", "devices at full bandwidth", default=1.0, bounds=COUNT)
    oversubscription: Scalar = metadata(
        "o",
        "1",
        "oversubscription of the pod; 1: full bisection",
        default=1.0,
        bounds=Bounds(low=1.0),
    )
    detour: Scalar = metadata(
        "",
        "1",
        "links per byte between pods: 1 tree, 2 dragonfly (Valiant)",
        default=1.0,
        bounds=Bounds(low=1.0),
    )
    pooled: Scalar = metadata(
        "",
        "1",
        "uplinks of a pod: 1 shared, 0 per device",
        default=1.0,
        bounds=YES_OR_NO,
    )


@record
class Links:
    """Links between the devices of a domain without a switch: a torus, a mesh, a hypercube.

    An optional part of a scale-up network, whose bandwidth is that of all links of a device. Devices in use form slices
    of at most a domain; those of a torus are numbered along x, then y, then z, and parallel dimensions are placed over
    them in the order of the mapping.
    """

    topology: Scalar = metadata("", "1", "link topology", default=0.0, enum=Topology)
    per_device: Scalar = metadata("", "1", "links per device: two per torus axis", default=4.0, bounds=COUNT)
    wrap: Scalar = metadata("", "1", "axis length multiple that wraps around", default=1.0, bounds=COUNT)
    x: Scalar = metadata(
        "",
        "1",
        "first axis of a slice, devices; 0: nearest to square or cube",
        default=0.0,
    )
    y: Scalar = metadata("", "1", "second axis of a slice, devices; the last axis follows", default=0.0)
    slice_loss: Scalar = metadata(
        "",
        "1",
        "share of compute lost per doubling of slices",
        default=0.0,
        bounds=SHARE,
    )


@record
class Package:
    """Devices on a package or a board with faster links between them than in the rest of their domain.

    An optional third level within a scale-up network, for groups that fit in it; other groups have the bandwidth of the
    network, since the slowest link of a ring sets the pace. With ``neighbours`` that bandwidth is one link of a device
    to one other package, and rings use all such links of the group (:func:`dse.model.links.reach_in`).
    """

    dies: Scalar = metadata("", "1", "devices per package", default=1.0, bounds=COUNT)
    speedup: Scalar = metadata("", "1", "bandwidth inside a package over the network's", default=1.0, bounds=POSITIVE)
    neighbours: Scalar = metadata(
        "",
        "1",
        "other packages that a device has a link to; 0: a switch joins packages",
        default=0.0,
        bounds=Bounds(is_integer=True),
    )


@record
class Network:
    """One level of the interconnect, as seen by one device."""

    bandwidth: Scalar = metadata("", "B/s", "bandwidth per device and direction", bounds=POSITIVE)
    latency: Scalar = metadata("alpha", "s", "latency of a collective step, with software")
    domain: Scalar = metadata("", "1", "devices of the domain", bounds=POSITIVE)
    efficiency: Scalar = metadata("", "1", "bandwidth efficiency, large messages", bounds=POSITIVE_SHARE)
    ramp: Scalar = metadata("S0", "B", "message size at half efficiency", bounds=POSITIVE)
    in_network_reduction: Scalar = metadata(
        "", "1", "in-switch reduction, share of the bandwidth; 0: none", bounds=SHARE
    )
    processor_usage: Scalar = metadata("", "1", "share of compute taken by communication", bounds=SHARE)
    energy: Scalar = metadata("", "J/B", "link energy per byte, both ends, with optics", default=0.0)
    mesh: Scalar = metadata(
        "",
        "1",
        "full mesh: 1, switch: 0",
        default=0.0,
        bounds=SHARE,
    )
    crowding: Scalar = metadata(
        "",
        "1",
        "bandwidth lost per member above two on shared host bridges",
        default=0.0,
    )
    bridged: Scalar = metadata(
        "",
        "1",
        "peers reached over bridges of the host (PCIe): 1, over links of their own: 0",
        default=0.0,
        bounds=YES_OR_NO,
    )
    pods: Pods | None = None
    links: Links | None = None
    package: Package | None = None
    volumes: Volumes | None = None
    alone: CollectiveKernels | None = None
