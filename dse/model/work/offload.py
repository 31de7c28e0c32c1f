"""Weights, activations or optimiser state of the layers that live in the host's memory.

Of what is offloaded, two layers' buffers stay on the device: one in use, one on its way. A share of the bytes may
be offloaded, the same of every layer: bytes on either side and over the link are linear in it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.model.choice import times
from dse.model.formats import activation_bytes, optimizer_bytes
from dse.types import Design, Mapping, Scalar, Tiers

#: Layers whose offloaded tensors are on the device at a time.
BUFFERED_LAYERS = 2.0


#: Of a mapping whose offloading ends in the host's memory.
NO_TIERS = Tiers()


class OnHost(NamedTuple):
    """Bytes of one layer of one device that live on the host; 0 for what stays on the device."""

    weights: Scalar
    activations: Scalar  # of one micro-batch
    optimizer: Scalar


class Beyond(NamedTuple):
    """What else of one layer of one device leaves it: to storage behind the host, as gradients, for the host's update.

    Bytes, but for ``updated``.
    """

    weights: Scalar
    activations: Scalar  # of one micro-batch
    optimizer: Scalar
    gradients: Scalar  # that leave for the host, 16 bits each
    updated: Scalar  # parameters that the host's processors update
    update_bytes: Scalar  # of their gradients, which leave the device, and of the weights that come back
    stays: Scalar  # bytes of their state, which does not cross the link


def on_host(mapping: Mapping, weights: Scalar, activations: Scalar, optimizer: Scalar) -> OnHost:
    """What the mapping offloads of one layer's bytes."""
    return OnHost(
        weights=mapping.offload_weights * weights,
        activations=mapping.offload_activations * activations,
        optimizer=mapping.offload_optimizer * optimizer,
    )


def beyond(design: Design, layer: OnHost, changing: Scalar) -> Beyond | None:
    """What the tiers of a mapping do with a layer of which ``changing`` parameters have gradients on this device.

    State that the host updates stays off the device. Gradients leave and weights return in 16 bits (ZeRO-Offload: Ren
    et al. 2021).
    """
    mapping, tiers = design.mapping, design.mapping.tiers
    if tiers is None:
        return None
    updated = tiers.host_update * layer.optimizer / optimizer_bytes(mapping.precision, design.software)
    return Beyond(
        weights=tiers.storage_weights * layer.weights,
        activations=tiers.storage_activations * layer.activations,
        optimizer=tiers.storage_optimizer * layer.optimizer,
        gradients=tiers.offload_gradients * activation_bytes(mapping.precision) * changing,
        updated=updated,
        update_bytes=activation_bytes(mapping.precision) * updated,
        stays=tiers.host_update * layer.optimizer,
    )


def anything(mapping: Mapping) -> bool | jax.Array:
    """Whether the mapping offloads anything."""
    return mapping.offload_weights + mapping.offload_activations + mapping.offload_optimizer > 0.0


def resident(held: Scalar, offloaded: Scalar) -> Scalar:
    """Layers (times micro-batches) on the device of ``held`` ones: all but a share of those past two."""
    return held - offloaded * jnp.maximum(held - BUFFERED_LAYERS, 0.0)


def state_left(mapping: Mapping) -> tuple[Scalar, Scalar]:
    """Shares of gradients and of optimiser state that a device has of what it works on: none of what the host has."""
    tiers = mapping.tiers or NO_TIERS
    return 1.0 - tiers.offload_gradients, 1.0 - times(tiers.host_update, mapping.offload_optimizer)


def kept_bytes(layer: OnHost | Beyond, layers: Scalar, micro_batches: Scalar) -> Scalar:
    """Bytes of a device's layers that are kept on the host, or on storage behind it."""
    return layers * (layer.weights + layer.optimizer + micro_batches * layer.activations)
