"""Kernels of DeepEP by chip, fitted to rows of ai-dynamo/aiconfigurator (sglang 0.5).

By least squares of the logarithms; leaving out three of ten rows within a node changes their median error from 7.0 to
7.0 %. Rows between nodes exist for H100 and H200 only.
"""

from __future__ import annotations

from typing import NamedTuple

from dse.measured.table import Skip
from dse.model.machine.exchange_kernels import ExchangeKernel


class ExchangeKernels(NamedTuple):
    """Dispatch and combine kernels of a chip, for many tokens and for few."""

    dispatch: ExchangeKernel
    combine: ExchangeKernel
    dispatch_low: ExchangeKernel  # low latency
    combine_low: ExchangeKernel


def _kernel(
    floor_us: float,
    token_ns: float,
    rate_gb_per_s: float,
    doubling_us: float = 0.0,
    link_gb_per_s: float = 1e3,
    crowding: float = 0.0,
) -> ExchangeKernel:
    """Return a kernel from microseconds, nanoseconds per token, and GB/s per core or device and per link."""
    return ExchangeKernel(
        1e-6 * floor_us, 1e-6 * doubling_us, 1e-9 * token_ns, 1e9 * rate_gb_per_s, 1e9 * link_gb_per_s, crowding
    )


_HOPPER = ExchangeKernels(
    _kernel(26.7, 13.0, 20.1), _kernel(38.2, 28.0, 23.0), _kernel(11.2, 0.0, 280.0), _kernel(10.9, 0.0, 250.0)
)
_HOPPER_INTER_NODE = ExchangeKernels(
    _kernel(21.6, 35.1, 19.2, 7.64, 53.0, 2.24),
    _kernel(50.2, 44.5, 14.7, 3.76, 52.0, 1.02),
    _kernel(17.1, 0.0, 1e3, 3.7, 47.8),
    _kernel(24.0, 0.0, 1e3, 0.8, 46.1),
)
_BLACKWELL = ExchangeKernels(
    _kernel(35.6, 23.7, 21.0), _kernel(48.1, 36.0, 25.4), _kernel(20.0, 0.0, 519.0), _kernel(18.9, 0.0, 663.0)
)
_GRACE_BLACKWELL = ExchangeKernels(
    _kernel(33.8, 27.5, 26.6), _kernel(40.2, 41.7, 32.6), _kernel(14.4, 0.0, 555.0), _kernel(13.7, 0.0, 736.0)
)
_INTRA_NODE = {
    "h100-sxm-80gb": _HOPPER,
    "h200-sxm-141gb": _HOPPER,
    "b200-sxm-180gb": _BLACKWELL,
    "b300-sxm-288gb": _BLACKWELL,
    "gb200-nvl72": _GRACE_BLACKWELL,
    "gb300-nvl72": _GRACE_BLACKWELL,
}

#: Suffix of a chip's name for kernels between nodes.
INTER_NODE_SUFFIX = " apart"
EXCHANGE_KERNELS = _INTRA_NODE | {
    f"{chip}{INTER_NODE_SUFFIX}": _HOPPER_INTER_NODE for chip in ("h100-sxm-80gb", "h200-sxm-141gb")
}


def exchange_kernels(name: str) -> ExchangeKernels:
    """Return the exchange kernels of a chip by its slug (+ ``INTER_NODE_SUFFIX``), or raise Skip if unmeasured."""
    if name not in EXCHANGE_KERNELS:
        raise Skip("no such kernels measured on this chip", name)
    return EXCHANGE_KERNELS[name]
