"""Transfers of offloaded tensors over the host link, which overlap with the compute of another layer.

Isaev et al., SC 2023, section 3; ZeRO-Offload, Ren et al. 2021.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.work.offload import Beyond, OnHost
from dse.types import HostTiers, MemoryTier, Scalar


class Transfers(NamedTuple):
    """Seconds per layer on the host link."""

    forward: Scalar
    backward: Scalar
    last_backward: Scalar  # last micro-batch of a step, with the hidden part of the optimiser's update
    update: Scalar  # exposed part of the update


def transfers(layer: OnHost, host: MemoryTier, overlap: Scalar) -> Transfers:
    """Transfers of one layer over a full-duplex link: weights in, activations out; the backward needs both in.

    Optimiser state moves in and out in parallel: a share ``overlap`` during the last backward, layer by layer with its
    gradients, and the rest after it, where the update waits for the gradient norm.
    """
    backward = layer.weights + layer.activations
    return Transfers(
        forward=jnp.maximum(layer.weights, layer.activations) / host.bandwidth,
        backward=backward / host.bandwidth,
        last_backward=(backward + overlap * layer.optimizer) / host.bandwidth,
        update=(1.0 - overlap) * layer.optimizer / host.bandwidth,
    )


def through_tiers(moved: Transfers, layer: Beyond, tiers: HostTiers, host: MemoryTier, overlap: Scalar) -> Transfers:
    """The transfers with parts on storage, which reads and writes in turn in parallel with the link.

    Each pass takes the longer of link and storage (ZeRO-Infinity: Rajbhandari et al. 2021, section 6.2). For state that
    the host updates, only gradients (out) and new weights (in) cross the link. Offloaded gradients go against the
    incoming traffic.
    """
    reads, writes = 1.0 / tiers.storage_read, 1.0 / tiers.storage_write
    backward = (layer.weights + layer.activations) * reads
    added = (layer.update_bytes - layer.stays) / host.bandwidth
    stored = layer.optimizer * (reads + writes)
    return Transfers(
        forward=jnp.maximum(moved.forward, layer.weights * reads + layer.activations * writes),
        backward=jnp.maximum(jnp.maximum(moved.backward, backward), layer.gradients / host.bandwidth),
        last_backward=jnp.maximum(
            jnp.maximum(moved.last_backward + overlap * added, backward + overlap * stored),
            layer.gradients / host.bandwidth,
        ),
        update=jnp.maximum(moved.update + (1.0 - overlap) * added, (1.0 - overlap) * stored),
    )


def exposed(transfer: Scalar, duration: Scalar, memory: Scalar) -> Scalar:
    """Seconds that a transfer adds to a pass of ``duration``; ``memory``: device-memory seconds of its kernels.

    The transfer uses device memory too: ``max(0, t_transfer + t_memory - t_pass)``.
    """
    return jnp.maximum(jnp.where(transfer > 0.0, transfer + memory - duration, 0.0), 0.0)
