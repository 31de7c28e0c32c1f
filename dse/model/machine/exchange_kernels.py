"""Time of the all-to-all kernels of experts (DeepEP) as isolated benchmarks measure them.

Within a node cores copy tokens into the memory of peers; between nodes a token is sent once per node and forwarded
within it. Training steps use :func:`dse.model.machine.collectives.exchange`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.work.messages import distinct_draws
from dse.types import Scalar

#: Devices per node of the benchmarks, and maximum nodes per token (group-limited gating), beyond which links are
#: crowded.
NODE, REACH = 8.0, 4.0


class ExchangeKernel(NamedTuple):
    """A kernel of one phase and mode: seconds, and B/s."""

    floor: Scalar  # few tokens
    floor_doubling: Scalar  # increase per doubling of the nodes
    token: Scalar  # per token, of any width
    rate: Scalar  # all cores, over tokens and their copies; low latency: links of the device
    link: Scalar  # of a device to other nodes
    crowding: Scalar  # relative increase of the inter-node time per byte, per four nodes beyond four


def exchange_time(tokens: Scalar, width: Scalar, top_k: Scalar, nodes: Scalar, kernel: ExchangeKernel) -> Scalar:
    """Return the time in which a device dispatches, or combines, ``tokens`` of ``width`` bytes, s.

    ``floor + T (a + (intra^4 + inter^4)^(1/4))`` with ``intra = b (1 + copies) / r`` and ``inter`` the bytes to other
    nodes over the link: cores and link work in parallel, the slower one dominates.
    """
    reach = jnp.minimum(nodes, REACH)
    nodes_hit, is_leaving = distinct_draws(reach, top_k), jnp.where(nodes > 1.0, 1.0, 0.0)
    intra_node = width * (1.0 + distinct_draws(NODE * reach, top_k) + is_leaving * nodes_hit) / kernel.rate
    crowding_factor = 1.0 + kernel.crowding * jnp.maximum(nodes - REACH, 0.0) / REACH
    inter_node = width * nodes_hit * (nodes - 1.0) / nodes * crowding_factor / kernel.link
    ratio = jnp.minimum(intra_node, inter_node) / jnp.maximum(intra_node, inter_node)
    token_time = jnp.maximum(intra_node, inter_node) * (1.0 + ratio**4.0) ** 0.25
    return kernel.floor + kernel.floor_doubling * jnp.log2(nodes) + tokens * (kernel.token + token_time)


def low_latency_time(tokens: Scalar, width: Scalar, top_k: Scalar, nodes: Scalar, kernel: ExchangeKernel) -> Scalar:
    """Return the time of low-latency kernels, which send every copy separately: ``floor + T k b / r``, s.

    Args:
        tokens: of a device.
        width: bytes of a token.
        top_k: copies of a token.
        nodes: nodes of the group.
        kernel: parameters of the kernel.
    """
    is_intra_node = nodes <= 1.0
    rate = jnp.where(is_intra_node, kernel.rate, kernel.link)
    share = jnp.where(is_intra_node, 1.0, (nodes - 1.0) / nodes)
    return kernel.floor + kernel.floor_doubling * jnp.log2(nodes) + tokens * top_k * width * share / rate
