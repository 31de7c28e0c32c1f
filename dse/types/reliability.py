"""Failures of a cluster, their cost, and checkpoints."""

from __future__ import annotations

from dse.types.choices import Checkpoint
from dse.types.fields import Scalar, choice, count, number, positive, record, share

#: Spare nodes that never run out: those of a larger cluster, which the job does not pay.
UNLIMITED = 2.0**20


@record
class Reliability:
    """Failures and checkpoints of a training run; an optional part of a system.

    Times between failures are those of Llama 3 405B: 54 days on 16,384 H100s in 2,048 nodes, 419 unexpected
    interruptions, of which 268 by devices and their memory, 49 by NICs, switches and cables, 46 by the rest of the
    nodes, 56 by software (Llama team 2024, table 5).
    """

    device_mtbf: Scalar = positive("mean time between failures, device", "s", default=2.85e8)
    link_mtbf: Scalar = positive("mean time between failures, NIC with cables and switches", "s", default=1.56e9)
    node_mtbf: Scalar = positive("mean time between failures, node without devices and NICs", "s", default=2.08e8)
    software_mtbf: Scalar = positive("mean time between failures, software, per device", "s", default=1.365e9)
    node_devices: Scalar = count("devices per replaceable node", default=8.0)
    # MegaScale detects and diagnoses a failure in less than 10 minutes (Jiang et al. 2024, section 6.3).
    detection_time: Scalar = number("failure detection time (estimate)", "s", default=300.0)
    # MegaScale's communicators took 361 s to start on 2,048 devices, and less than 30 s once improved (section 4).
    restart_time: Scalar = number("restart time without checkpoint load (estimate)", "s", default=300.0)
    spares: Scalar = number("spare nodes, bought; absent: enough, not paid; 0: wait for repair", default=UNLIMITED)
    repair_time: Scalar = number("node repair time (estimate)", "s", default=86400.0)
    checkpoint: Scalar = choice("checkpoint method", Checkpoint, default=float(Checkpoint.asynchronous))
    checkpoint_every: Scalar = number("checkpoint interval, 0 optimal", "s", default=0.0)
    storage_bandwidth: Scalar = number("storage bandwidth of the cluster, 0 by its size", "B/s", default=0.0)
    # 20 GB/s for a node of eight: the best class of NVIDIA's reference architecture of the DGX SuperPOD H100.
    device_storage_bandwidth: Scalar = positive("storage bandwidth per device", "B/s", default=2.5e9)
    # MegaScale's ranks stop for several seconds to copy 0.2 GB each to their hosts, which PCIe takes in ten
    # milliseconds (Jiang et al. 2024, on fast checkpoints); ByteCheckpoint's for less than one (Wan et al. 2024).
    checkpoint_overhead: Scalar = number("fixed stall per checkpoint (estimate)", "s", default=1.0)
    copy_interference: Scalar = share("slowdown by hidden copies, share of their time (estimate)", default=0.05)
    # MegaScale: some 0.5 % of the machines took 10 % longer for the same computations (Jiang et al. 2024, section 5.1).
    slow_nodes: Scalar = share("share of slow nodes (estimate)", default=0.005)
    straggler_slowdown: Scalar = number("slowdown of the passes of a slow node (estimate)", default=0.1)
    congestion: Scalar = number("slowdown of exposed cp, pp, dp messages by congestion", default=0.0)
