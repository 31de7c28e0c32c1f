"""Failures of a cluster, their cost, and checkpoints."""

from __future__ import annotations

from dse.types.choices import Checkpoint
from dse.types.fields import COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Scalar, metadata, record

#: Spare nodes that never run out: those of a larger cluster, which the job does not pay.
UNLIMITED = 2.0**20


@record
class Reliability:
    """Failures and checkpoints of a training run; an optional part of a system.

    Times between failures are those of Llama 3 405B: 54 days on 16,384 H100s in 2,048 nodes, 419 unexpected
    interruptions, of which 268 by devices and their memory, 49 by NICs, switches and cables, 46 by the rest of the
    nodes, 56 by software (Llama team 2024, table 5).
    """

    device_mtbf: Scalar = metadata("", "s", "mean time between failures, device", default=2.85e8, bounds=POSITIVE)
    link_mtbf: Scalar = metadata(
        "",
        "s",
        "mean time between failures, NIC with cables and switches",
        default=1.56e9,
        bounds=POSITIVE,
    )
    node_mtbf: Scalar = metadata(
        "", "s", "mean time between failures, node without devices and NICs", default=2.08e8, bounds=POSITIVE
    )
    software_mtbf: Scalar = metadata(
        "", "s", "mean time between failures, software, per device", default=1.365e9, bounds=POSITIVE
    )
    node_devices: Scalar = metadata("", "1", "devices per replaceable node", default=8.0, bounds=COUNT)
    # MegaScale detects and diagnoses a failure in less than 10 minutes (Jiang et al. 2024, section 6.3).
    detection_time: Scalar = metadata("", "s", "failure detection time (estimate)", default=300.0)
    # MegaScale's communicators took 361 s to start on 2,048 devices, and less than 30 s once improved (section 4).
    restart_time: Scalar = metadata("", "s", "restart time without checkpoint load (estimate)", default=300.0)
    spares: Scalar = metadata(
        "",
        "1",
        "spare nodes, bought; absent: enough, not paid; 0: wait for repair",
        default=UNLIMITED,
        bounds=NOT_NEGATIVE,
    )
    repair_time: Scalar = metadata("", "s", "node repair time (estimate)", default=86400.0)
    checkpoint: Scalar = metadata("", "1", "checkpoint method", default=float(Checkpoint.asynchronous), enum=Checkpoint)
    checkpoint_every: Scalar = metadata("", "s", "checkpoint interval, 0 optimal", default=0.0)
    storage_bandwidth: Scalar = metadata(
        "", "B/s", "storage bandwidth of the cluster, 0 by its size", default=0.0, bounds=NOT_NEGATIVE
    )
    # 20 GB/s for a node of eight: the best class of NVIDIA's reference architecture of the DGX SuperPOD H100.
    device_storage_bandwidth: Scalar = metadata(
        "",
        "B/s",
        "storage bandwidth per device",
        default=2.5e9,
        bounds=POSITIVE,
    )
    # MegaScale's ranks stop for several seconds to copy 0.2 GB each to their hosts, which PCIe takes in ten
    # milliseconds (Jiang et al. 2024, on fast checkpoints); ByteCheckpoint's for less than one (Wan et al. 2024).
    checkpoint_overhead: Scalar = metadata(
        "",
        "s",
        "fixed stall per checkpoint (estimate)",
        default=1.0,
    )
    copy_interference: Scalar = metadata(
        "",
        "1",
        "slowdown by hidden copies, share of their time (estimate)",
        default=0.05,
        bounds=SHARE,
    )
    # MegaScale: some 0.5 % of the machines took 10 % longer for the same computations (Jiang et al. 2024, section 5.1).
    slow_nodes: Scalar = metadata("", "1", "share of slow nodes (estimate)", default=0.005, bounds=SHARE)
    straggler_slowdown: Scalar = metadata(
        "", "1", "slowdown of the passes of a slow node (estimate)", default=0.1, bounds=NOT_NEGATIVE
    )
    congestion: Scalar = metadata("", "1", "slowdown of exposed cp, pp, dp messages by congestion", default=0.0)
