"""Offloading of weights, activations or optimiser state of the layers to the host's memory.

Two layers' buffers stay on the device: one in use, one in transfer. A share of the bytes may be offloaded, equal for
all layers, so memory and transfers are linear in it.
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


#: Of a mapping without offloading beyond the host.
NO_TIERS = Tiers()


class OnHost(NamedTuple):
    """Offloaded bytes per layer and device."""

    weights: Scalar
    activations: Scalar  # per micro-batch
    optimizer: Scalar


class TieredOffload(NamedTuple):
    """Storage, gradient offload and host update of a layer and device, in bytes unless stated."""

    weights: Scalar
    activations: Scalar  # per micro-batch
    optimizer: Scalar
    gradients: Scalar  # 16-bit gradients that leave for the host
    host_updated_parameters: Scalar  # parameters that the host updates
    update_bytes: Scalar  # their gradients (out) and new weights (in)
    host_state: Scalar  # their optimiser state, which does not cross the link


def on_host(mapping: Mapping, weights: Scalar, activations: Scalar, optimizer: Scalar) -> OnHost:
    """Return the offloaded bytes of one layer, of its ``weights``, ``activations`` and ``optimizer`` bytes."""
    return OnHost(
        weights=mapping.offload_weights * weights,
        activations=mapping.offload_activations * activations,
        optimizer=mapping.offload_optimizer * optimizer,
    )


def tiered_offload(design: Design, layer: OnHost, trained_parameters: Scalar) -> TieredOffload | None:
    """Return bytes on storage, offloaded gradients and host update of a layer, None where the mapping has no tiers.

    State that the host updates stays off the device. Gradients leave and weights return in 16 bits (ZeRO-Offload: Ren
    et al. 2021).
    """
    mapping, tiers = design.mapping, design.mapping.tiers
    if tiers is None:
        return None
    updated = tiers.host_update * layer.optimizer / optimizer_bytes(mapping.precision, design.software)
    return TieredOffload(
        weights=tiers.storage_weights * layer.weights,
        activations=tiers.storage_activations * layer.activations,
        optimizer=tiers.storage_optimizer * layer.optimizer,
        gradients=tiers.offload_gradients * activation_bytes(mapping.precision) * trained_parameters,
        host_updated_parameters=updated,
        update_bytes=activation_bytes(mapping.precision) * updated,
        host_state=tiers.host_update * layer.optimizer,
    )


def is_offloading(mapping: Mapping) -> bool | jax.Array:
    """Return true where the mapping offloads weights, activations or optimiser state."""
    return mapping.offload_weights + mapping.offload_activations + mapping.offload_optimizer > 0.0


def resident_layers(layers: Scalar, offloaded_share: Scalar) -> Scalar:
    """Return the count of layers (times micro-batches) on the device, of ``layers``.

    All but the offloaded share of those beyond two.
    """
    return layers - offloaded_share * jnp.maximum(layers - BUFFERED_LAYERS, 0.0)


def device_state_shares(mapping: Mapping) -> tuple[Scalar, Scalar]:
    """Return the shares of gradients and of optimiser state of the current layer that stay on the device."""
    tiers = mapping.tiers or NO_TIERS
    return 1.0 - tiers.offload_gradients, 1.0 - times(tiers.host_update, mapping.offload_optimizer)


def offloaded_bytes(layer: OnHost | TieredOffload, layers: Scalar, micro_batches: Scalar) -> Scalar:
    """Return the bytes of ``layers`` layers on the host, or on storage: weights, optimiser state, activations."""
    return layers * (layer.weights + layer.optimizer + micro_batches * layer.activations)
