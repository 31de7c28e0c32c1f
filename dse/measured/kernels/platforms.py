"""Clusters of the vidur tables."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from dse import types
from dse.designs import catalog
from dse.types import System


class Platform(NamedTuple):
    """A cluster known only by its rows, with effective figures fitted to them.

    The accelerator's own scale-up network joins ``local`` devices; beyond it ``bandwidth`` is per device.
    """

    accelerator: str  #: slug
    local: float  #: devices of a node
    bandwidth: float  #: B/s of a device between nodes
    latency: float  #: s between nodes


#: Name of a platform, followed by " apart" with one device per node.
PLATFORMS = {
    "a100_dgx": Platform("a100-sxm-80gb", 8.0, 6.1e9, 110e-6),
    "h100_dgx": Platform("h100-sxm-80gb", 8.0, 38.5e9, 8.5e-6),
    "a100_pairwise_nvlink": Platform("a100-sxm-80gb", 2.0, 9.4e9, 3.3e-6),
    "a100_pairwise_nvlink apart": Platform("a100-sxm-80gb", 1.0, 2.7e9, 2e-6),
    "h100_pairwise_nvlink": Platform("h100-sxm-80gb", 2.0, 20.9e9, 2e-6),
    "a40_pairwise_nvlink": Platform("a40", 1.0, 4.5e9, 1.2e-6),
    "a40_pairwise_nvlink apart": Platform("a40", 1.0, 2.9e9, 9.6e-6),
}


def platform(name: str) -> System:
    """Return the system of a platform, or of an accelerator's own node; InputError for an unknown name."""
    if name not in PLATFORMS:
        return catalog.record(types.System, name, fine=True)
    cluster = PLATFORMS[name]
    system = catalog.record(types.System, cluster.accelerator, fine=True)
    scale_out = dataclasses.replace(
        system.scale_out, bandwidth=cluster.bandwidth, latency=cluster.latency, efficiency=1.0, ramp=1e5
    )
    return dataclasses.replace(system, scale_out=scale_out)
