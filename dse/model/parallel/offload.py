"""Transfers of what lives on the host: they cross the host link while another layer computes.

Isaev et al., SC 2023, section 3; ZeRO-Offload, Ren et al. 2021.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.work.offload import Beyond, OnHost
from dse.types import HostTiers, MemoryTier, Scalar


class Transfers(NamedTuple):
    """Seconds on the host link for one layer."""

    forward: Scalar
    backward: Scalar
    last_backward: Scalar  # of a step's last micro-batch: with what of the optimiser's update hides behind it
    update: Scalar  # what of the update does not


def transfers(layer: OnHost, host: MemoryTier, overlap: Scalar) -> Transfers:
    """A full-duplex link: weights come in while activations go out; the backward needs both in.

    Optimiser state comes in and goes out at once: an ``overlap`` of it beside the last backward, layer by layer as its
    gradients are there, and the rest after it, where the update waits for the norm of all gradients.
    """
    backward = layer.weights + layer.activations
    return Transfers(
        forward=jnp.maximum(layer.weights, layer.activations) / host.bandwidth,
        backward=backward / host.bandwidth,
        last_backward=(backward + overlap * layer.optimizer) / host.bandwidth,
        update=(1.0 - overlap) * layer.optimizer / host.bandwidth,
    )


def through_tiers(moved: Transfers, layer: Beyond, tiers: HostTiers, host: MemoryTier, overlap: Scalar) -> Transfers:
    """The same where a part goes on to storage, which is read and written in turn while the link is in use.

    Each pass takes the longer of link and storage (ZeRO-Infinity: Rajbhandari et al. 2021, section 6.2). Optimiser
    state that the host updates does not cross the link, only its gradients and new weights do, one each way. Gradients
    that leave as they are made go the other way than what comes in.
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
    """Seconds that a transfer adds to a pass of this ``duration``, of which kernels use device memory ``memory``.

    The transfer needs device memory too: ``max(0, t_transfer + t_memory - t_pass)``.
    """
    return jnp.maximum(jnp.where(transfer > 0.0, transfer + memory - duration, 0.0), 0.0)
