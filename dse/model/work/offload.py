"""Weights, activations or optimiser state of the layers that live in the host's memory.

Of what is offloaded, two layers' buffers stay on the device: one in use, one on its way. A share of the bytes may
be offloaded, the same of every layer: bytes on either side and over the link are linear in it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.types import Mapping, Scalar

#: Layers whose offloaded tensors are on the device at a time.
BUFFERED_LAYERS = 2.0


class OnHost(NamedTuple):
    """Bytes of one layer of one device that live on the host; 0 for what stays on the device."""

    weights: Scalar
    activations: Scalar  # of one micro-batch
    optimizer: Scalar


def on_host(mapping: Mapping, weights: Scalar, activations: Scalar, optimizer: Scalar) -> OnHost:
    """What the mapping offloads of one layer's bytes."""
    return OnHost(
        weights=mapping.offload_weights * weights,
        activations=mapping.offload_activations * activations,
        optimizer=mapping.offload_optimizer * optimizer,
    )


def anything(mapping: Mapping) -> bool | jax.Array:
    """Whether the mapping offloads anything."""
    return mapping.offload_weights + mapping.offload_activations + mapping.offload_optimizer > 0.0


def resident(held: Scalar, offloaded: Scalar) -> Scalar:
    """Layers (times micro-batches) on the device of ``held`` ones: all but a share of those past two."""
    return held - offloaded * jnp.maximum(held - BUFFERED_LAYERS, 0.0)


def host_bytes(layer: OnHost, layers: Scalar, micro_batches: Scalar) -> Scalar:
    """Bytes a device keeps on the host."""
    return layers * (layer.weights + layer.optimizer + micro_batches * layer.activations)
