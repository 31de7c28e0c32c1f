"""Devices of measured kernels: accelerators, platforms known only by their rows, exchange kernels of chips."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple

from dse import types
from dse.designs import catalog
from dse.errors import InputError
from dse.io import toml
from dse.measured.table import Skip
from dse.model.machine.exchange_kernels import ExchangeKernel
from dse.types import System

#: Rows of ``kernels.toml``.
KERNEL_ROWS = toml.table(Path(__file__).with_name("kernels.toml"))


class Platform(NamedTuple):
    """A cluster known only by its rows, with effective figures fitted to them (``kernels.toml``)."""

    accelerator: str  #: slug
    local: float  #: devices of a node
    bandwidth: float  #: B/s of a device between nodes
    latency: float  #: s between nodes


#: Name of a platform, followed by :data:`INTER_NODE_SUFFIX` with one device per node.
PLATFORMS = {name: Platform(**fields) for name, fields in KERNEL_ROWS["platforms"].items()}

#: Suffix of a chip's or a platform's name for kernels between nodes.
INTER_NODE_SUFFIX = " apart"


class ExchangeKernels(NamedTuple):
    """Dispatch and combine kernels of a chip, for many tokens and for few (low latency)."""

    dispatch: ExchangeKernel
    combine: ExchangeKernel
    dispatch_low: ExchangeKernel
    combine_low: ExchangeKernel


def _exchange_kernel(
    floor_us: float,
    rate_gb_per_s: float,
    token_ns: float = 0.0,
    doubling_us: float = 0.0,
    link_gb_per_s: float = 1e3,
    crowding: float = 0.0,
) -> ExchangeKernel:
    """Return a kernel from microseconds, nanoseconds per token, and GB/s per core or device and per link."""
    return ExchangeKernel(
        1e-6 * floor_us, 1e-6 * doubling_us, 1e-9 * token_ns, 1e9 * rate_gb_per_s, 1e9 * link_gb_per_s, crowding
    )


@functools.cache
def device_of(kind: str, name: str) -> Any:
    """Return what the formula of a kind runs on: a system for collectives, exchange kernels, else an accelerator.

    Args:
        kind: of the kernels, a key of :data:`dse.measured.kernels.FORMULAS`.
        name: slug of an accelerator, or of collectives also a platform; of exchange kernels between nodes with
            ``INTER_NODE_SUFFIX``.

    Raises:
        Skip: for an unknown name.
    """
    try:
        if kind in ("collective", "direct"):
            return _platform(name)
        if kind == "exchange":
            return _exchange_kernels(name)
        return catalog.record(types.Accelerator, name)
    except InputError as error:
        raise Skip("unknown accelerator" if "node" not in error.where else "no switched node", name) from None


def _exchange_kernels(name: str) -> ExchangeKernels:
    """Return the exchange kernels of a chip, or raise Skip if unmeasured."""
    row = next((row for row in KERNEL_ROWS["exchange"] if name in row["chips"]), None)
    if row is None:
        raise Skip("no such kernels measured on this chip", name)
    return ExchangeKernels(*(_exchange_kernel(**row[field]) for field in ExchangeKernels._fields))


def _platform(name: str) -> System:
    """Return the system of a platform, or of an accelerator's own node; InputError for an unknown name."""
    if name not in PLATFORMS:
        return catalog.record(types.System, name, fine=True)
    cluster = PLATFORMS[name]
    system = catalog.record(types.System, cluster.accelerator, fine=True)
    scale_out = dataclasses.replace(
        system.scale_out, bandwidth=cluster.bandwidth, latency=cluster.latency, efficiency=1.0, ramp=1e5
    )
    return dataclasses.replace(system, scale_out=scale_out)
