"""Keeping weights, activations or optimiser state of the layers in the host's memory.

Two layers' buffers stay on the device: one in use, one on its way. What a layer needs crosses the
host link while another layer computes (Isaev et al., SC 2023, section 3; ZeRO-Offload, Ren et al. 2021).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.types import Mapping, MemoryTier, Scalar

#: Layers whose offloaded tensors are on the device at a time.
BUFFERED_LAYERS = 2.0


class OneLayer(NamedTuple):
    """Bytes of one layer on one device that live on the host; 0 for what stays on the device."""

    weights: Scalar
    activations: Scalar  # of one micro-batch
    optimizer: Scalar


def on_host(mapping: Mapping, weights: Scalar, activations: Scalar, optimizer: Scalar) -> OneLayer:
    """What the mapping offloads of one layer's bytes."""
    return OneLayer(
        weights=mapping.offload_weights * weights,
        activations=mapping.offload_activations * activations,
        optimizer=mapping.offload_optimizer * optimizer,
    )


def anything(mapping: Mapping) -> Scalar:
    """Whether the mapping offloads anything."""
    return mapping.offload_weights + mapping.offload_activations + mapping.offload_optimizer > 0.0


def resident(held: Scalar, offloaded: Scalar) -> Scalar:
    """Layers (times micro-batches) on the device of ``held`` ones: all, or two when they are offloaded."""
    return jnp.where(offloaded > 0.0, jnp.minimum(held, BUFFERED_LAYERS), held)


def host_bytes(layer: OneLayer, layers: Scalar, micro_batches: Scalar) -> Scalar:
    """Bytes a device keeps on the host."""
    return layers * (layer.weights + layer.optimizer + micro_batches * layer.activations)


class Transfers(NamedTuple):
    """Seconds on the host link for one layer."""

    forward: Scalar
    backward: Scalar
    last_backward: Scalar  # of a step's last micro-batch: the optimiser's update too


def transfers(layer: OneLayer, host: MemoryTier) -> Transfers:
    """A full-duplex link: weights come in while activations go out; the backward needs both in.

    Optimiser state comes in and goes out at once, beside the last backward, which finishes the gradients.
    """
    backward = layer.weights + layer.activations
    return Transfers(
        forward=jnp.maximum(layer.weights, layer.activations) / host.bandwidth,
        backward=backward / host.bandwidth,
        last_backward=(backward + layer.optimizer) / host.bandwidth,
    )


def exposed(transfer: Scalar, duration: Scalar, memory: Scalar) -> Scalar:
    """Seconds that a transfer adds to a pass of this ``duration``, of which kernels use device memory ``memory``.

    The transfer needs device memory too: ``max(0, t_transfer + t_memory - t_pass)``.
    """
    return jnp.maximum(jnp.where(transfer > 0.0, transfer + memory - duration, 0.0), 0.0)
