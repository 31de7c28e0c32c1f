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
    """Bytes that a collective of ``N`` members takes over a member's link, ``(a + b / N)`` times its message.

    An optional part of :class:`Network` for levels whose collectives are stated or measured that way: they
    take the level's latency once, and no algorithm is chosen. A ring is ``a = 1, b = -1`` for an all-gather
    and ``2, -2`` for an all-reduce; a switch that reduces, ``1, 1`` for an all-reduce.
    """

    gather: Scalar = metadata("a", "1", "link bytes of an all-gather or reduce-scatter over the gathered bytes")
    gather_share: Scalar = metadata("b", "1", "what is added to that, times the members", bounds=SIGNED)
    reduce: Scalar = metadata("a", "1", "link bytes of an all-reduce over its message")
    reduce_share: Scalar = metadata("b", "1", "what is added to that, times the members", bounds=SIGNED)
    reduction_traffic: Scalar = metadata("", "1", "device-memory bytes of a reduction over its message")


@record
class CollectiveKernels:
    """What collectives measured alone show beyond :class:`Network`: launches, and all-reduces in one kernel.

    An optional part of :class:`Network`; a design without it has none of these leaves. ``direct_…`` is an
    all-reduce that reads the peers' memory, as inference engines bring along.
    """

    launch: Scalar = metadata("", "s", "launch and completion of a collective of the library")
    pair_loss: Scalar = metadata("", "1", "share of the bandwidth that two members leave unused, less so more of them")
    flagged_share: Scalar = metadata(
        "", "1", "share of the bandwidth where each word carries its own flag (LL)", bounds=POSITIVE_SHARE
    )
    simple_latency: Scalar = metadata(
        "", "1", "latency of a step between barriers (Simple) over that of LL", bounds=POSITIVE
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
    """Pods of a scale-out network whose top level, which joins them, has less bandwidth than they have below.

    An optional part of :class:`Network`; a design without it has full bisection bandwidth and none of these leaves.
    """

    size: Scalar = metadata("P", "1", "devices that reach each other at full bandwidth", default=1.0, bounds=COUNT)
    oversubscription: Scalar = metadata(
        "o", "1", "bandwidth into a pod's devices over that out of the pod; 1: full bisection", default=1.0,
        bounds=Bounds(low=1.0),
    )  # fmt: skip
    detour: Scalar = metadata(
        "", "1", "links between pods that a byte to the next pod takes: 1 of a tree, 2 of a dragonfly (Valiant)",
        default=1.0, bounds=Bounds(low=1.0),
    )  # fmt: skip
    pooled: Scalar = metadata(
        "", "1", "1 where the rings of a pod share what leads out of it, 0 where each device has its own slow link",
        default=1.0, bounds=YES_OR_NO,
    )  # fmt: skip


@record
class Links:
    """Links between the devices of a domain that no switch joins: a torus, a mesh, a hypercube.

    An optional part of a scale-up network, whose bandwidth is that of all links of a device; a switched one has none of
    these leaves. Devices in use form slices of at most a domain; those of a torus are numbered along x, then y, then z,
    and the parallel dimensions are laid over them in the order of the mapping: lengths of axes say which lies where.
    """

    topology: Scalar = metadata("", "1", "how the links are laid out", default=0.0, enum=Topology)
    per_device: Scalar = metadata(
        "", "1", "links of a device: two an axis of a torus, which has three axes above four", default=4.0, bounds=COUNT
    )
    wrap: Scalar = metadata(
        "", "1", "an axis wraps around where its length is a multiple of this", default=1.0, bounds=COUNT
    )
    x: Scalar = metadata(
        "", "1", "devices along the first axis of a slice; 0: as near to a square or cube as powers of two come",
        default=0.0,
    )  # fmt: skip
    y: Scalar = metadata("", "1", "the same of the second axis; the last one follows", default=0.0)
    slice_loss: Scalar = metadata(
        "", "1", "share of a step's compute that slices lose to waiting for each other, a doubling of their number",
        default=0.0, bounds=SHARE,
    )  # fmt: skip


@record
class Package:
    """Devices that share a package or a board and have faster links between them than the rest of their domain.

    An optional third level inside of a scale-up network, for groups that fit in it: a group that leaves it goes at the
    pace of the network, as rings do whose slowest link sets the pace.
    """

    dies: Scalar = metadata("", "1", "devices of a package", default=1.0, bounds=COUNT)
    speedup: Scalar = metadata(
        "", "1", "bandwidth between devices of a package over that of the network", default=1.0, bounds=POSITIVE
    )


@record
class Network:
    """One level of the interconnect, as one device sees it."""

    bandwidth: Scalar = metadata("", "B/s", "bandwidth a device and direction", bounds=POSITIVE)
    latency: Scalar = metadata("alpha", "s", "latency of one step of a collective, software included")
    domain: Scalar = metadata("", "1", "devices that this level joins", bounds=POSITIVE)
    efficiency: Scalar = metadata("", "1", "share of the bandwidth that large messages reach", bounds=POSITIVE_SHARE)
    ramp: Scalar = metadata("S0", "B", "message size that doubles the time on the wire", bounds=POSITIVE)
    in_network_reduction: Scalar = metadata(
        "", "1", "share of the bandwidth of reduction in the switch; 0: none", bounds=SHARE
    )
    processor_usage: Scalar = metadata("", "1", "share of the device's compute that communication takes", bounds=SHARE)
    energy: Scalar = metadata("", "J/B", "energy of a byte over the link, both ends, optics included", default=0.0)
    mesh: Scalar = metadata(
        "", "1", "1 where each pair of devices has a link of its own (full mesh), 0 for a switch", default=0.0,
        bounds=SHARE,
    )  # fmt: skip
    crowding: Scalar = metadata(
        "", "1", "what each member beyond two takes of the others' bandwidth on bridges of the host that they share; "
        "0 behind a switch and with links of their own", default=0.0,
    )  # fmt: skip
    pods: Pods | None = None
    links: Links | None = None
    package: Package | None = None
    volumes: Volumes | None = None
    alone: CollectiveKernels | None = None
