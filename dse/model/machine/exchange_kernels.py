"""Time of the kernels that send tokens to experts and back (DeepEP), as benchmarks measure them alone.

Inside a node cores copy tokens into their peers' memory; between nodes a token is sent once to each that it meets and
forwarded inside. Training steps have :func:`dse.model.machine.collectives.exchange` instead.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.work.messages import distinct_draws
from dse.types import Scalar

#: Devices of a node of the benchmarks, nodes that a token of theirs may reach (their group-limited gating), and nodes
#: from which on links are crowded.
NODE, REACH = 8.0, 4.0


class ExchangeKernel(NamedTuple):
    """A kernel of one phase and mode: seconds, and bytes a second."""

    floor: Scalar  # of a few tokens
    floor_doubling: Scalar  # more for twice the nodes
    token: Scalar  # of a token, whatever its width
    rate: Scalar  # of one core, of its tokens and their copies; of low latency, of the device's links
    link: Scalar  # of a device to other nodes
    crowding: Scalar  # what is added to the time of a byte to them for every four nodes beyond four, as a share


def exchange_time(tokens: Scalar, width: Scalar, top_k: Scalar, nodes: Scalar, kernel: ExchangeKernel) -> Scalar:
    """Seconds in which a device dispatches, or combines, so many ``tokens`` of ``width`` bytes; ``rate`` of all cores.

    ``floor + T (a + (near^4 + far^4)^(1/4))`` with ``near = b (1 + copies) / r`` and ``far`` what goes to other
    nodes over the link: cores and link work side by side, the slower one sets the pace.
    """
    reach = jnp.minimum(nodes, REACH)
    met, leaving = distinct_draws(reach, top_k), jnp.where(nodes > 1.0, 1.0, 0.0)
    near = width * (1.0 + distinct_draws(NODE * reach, top_k) + leaving * met) / kernel.rate
    crowded = 1.0 + kernel.crowding * jnp.maximum(nodes - REACH, 0.0) / REACH
    far = width * met * (nodes - 1.0) / nodes * crowded / kernel.link
    ratio = jnp.minimum(near, far) / jnp.maximum(near, far)
    each = jnp.maximum(near, far) * (1.0 + ratio**4.0) ** 0.25
    return kernel.floor + kernel.floor_doubling * jnp.log2(nodes) + tokens * (kernel.token + each)


def low_latency_time(
    tokens: Scalar, width: Scalar, top_k: Scalar, nodes: Scalar, kernel: ExchangeKernel
) -> Scalar:
    """The same of kernels for few tokens, which send every copy by itself: ``floor + T k b / r``."""
    inside = nodes <= 1.0
    rate = jnp.where(inside, kernel.rate, kernel.link)
    share = jnp.where(inside, 1.0, (nodes - 1.0) / nodes)
    return kernel.floor + kernel.floor_doubling * jnp.log2(nodes) + tokens * top_k * width * share / rate
