"""Offloading of weights, activations or optimiser state of the layers to the host's memory.

Buffers stay on the device: of the layer in use, and of each that is in transfer ahead of it, usually one. A share of
the bytes may be offloaded, equal for all layers, so memory and transfers are linear in it.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dse.model.choice import times
from dse.model.formats import activation_bytes, optimizer_bytes
from dse.types import Design, Mapping, Scalar, Tiers

#: Of a mapping without offloading beyond the host.
NO_TIERS = Tiers()


def least_layers() -> Scalar:
    """Return the least layers of a stage that offloads: one in use, one in transfer, and one on the host."""
    return 2.0 + NO_TIERS.prefetch_depth


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
    gradients: Scalar  # gradients that leave for the host
    stored_gradients: Scalar  # of these on storage
    offloaded_parameters: Scalar  # parameters whose optimiser state is offloaded
    host_updated_parameters: Scalar  # parameters that the host updates, with a share of embedding and head
    update_bytes: Scalar  # their gradients (out) and new weights (in)
    bytes_per_update: Scalar  # of host memory per updated parameter: state in and out, gradient, new weight
    host_state: Scalar  # their optimiser state, which does not cross the link
    end_state: Scalar  # optimiser state of embedding and head on the host, divided by the layers of the stage
    sub_group: Scalar  # state and gradient on storage of one parameter, in buffers of the host


#: Of a mapping without tiers.
NOT_TIERED = TieredOffload(*[0.0] * len(TieredOffload._fields))


def on_host(mapping: Mapping, weights: Scalar, activations: Scalar, optimizer: Scalar) -> OnHost:
    """Return the offloaded bytes of one layer, of its ``weights``, ``activations`` and ``optimizer`` bytes."""
    return OnHost(
        weights=mapping.offload_weights * weights,
        activations=mapping.offload_activations * activations,
        optimizer=mapping.offload_optimizer * optimizer,
    )


def tiered_offload(
    design: Design, layer: OnHost, trained: Scalar, ends: Scalar, shares: tuple[Scalar, Scalar]
) -> TieredOffload | None:
    """Return bytes on storage, offloaded gradients and host update of a layer, None where the mapping has no tiers.

    State that the host updates stays off the device. Weights return in 16 bits, as gradients leave unless they are cast
    on the device (ZeRO-Offload: Ren et al. 2021). The host updates as much of embedding and head.

    Args:
        design: the design.
        layer: offloaded bytes of a layer.
        trained: trained parameters of a layer.
        ends: parameters of embedding and head, divided by the layers of the stage.
        shares: of them per device, by shards of gradients and of the optimiser.
    """
    mapping, tiers = design.mapping, design.mapping.tiers
    if tiers is None:
        return None
    state, weight = optimizer_bytes(mapping.precision, design.software), activation_bytes(mapping.precision)
    gradient_share, optimizer_share = shares
    offloaded = layer.optimizer / state
    updated_ends = tiers.host_update * mapping.offload_optimizer * (ends * optimizer_share)
    updated = tiers.host_update * offloaded + updated_ends
    gradients = tiers.offload_gradients * (trained * gradient_share + ends * gradient_share)
    return TieredOffload(
        weights=tiers.storage_weights * layer.weights,
        activations=tiers.storage_activations * layer.activations,
        optimizer=tiers.storage_optimizer * layer.optimizer,
        gradients=tiers.gradient_copy_bytes * gradients,
        stored_gradients=tiers.storage_gradients * (tiers.gradient_copy_bytes * gradients),
        offloaded_parameters=offloaded,
        host_updated_parameters=updated,
        update_bytes=weight * updated,
        bytes_per_update=2.0 * state + tiers.gradient_copy_bytes + weight,
        host_state=tiers.host_update * layer.optimizer,
        end_state=state * updated_ends,
        sub_group=tiers.storage_optimizer * (state + tiers.storage_gradients * tiers.gradient_copy_bytes),
    )


def is_offloading(mapping: Mapping) -> bool | jax.Array:
    """Return true where the mapping offloads weights, activations or optimiser state."""
    return mapping.offload_weights + mapping.offload_activations + mapping.offload_optimizer > 0.0


def resident_layers(layers: Scalar, offloaded_share: Scalar, depth: Scalar = NO_TIERS.prefetch_depth) -> Scalar:
    """Return the count of layers (times micro-batches) on the device, of ``layers``.

    All but the offloaded share of those beyond the one in use and the ``depth`` in transfer.
    """
    return layers - offloaded_share * jnp.maximum(layers - (1.0 + depth), 0.0)


def sub_group_buffers(design: Design, tiered: TieredOffload, layers: Scalar) -> Scalar:
    """Return the bytes per device of host buffers of sub-groups whose state is on storage.

    One in use, one more for each of a read ahead and a write behind, none larger than all of it.

    Args:
        design: the design.
        tiered: bytes of a layer.
        layers: of the stage.
    """
    tiers = design.mapping.tiers or NO_TIERS
    buffers = (1.0 + tiers.pipeline_read + tiers.pipeline_write) * tiers.sub_group_size
    return tiered.sub_group * jnp.minimum(buffers, layers * tiered.offloaded_parameters)


def device_state_shares(mapping: Mapping) -> tuple[Scalar, Scalar]:
    """Return the shares of gradients and of optimiser state of the current layer that stay on the device."""
    tiers = mapping.tiers or NO_TIERS
    return 1.0 - tiers.offload_gradients, 1.0 - times(tiers.host_update, mapping.offload_optimizer)


def offloaded_bytes(layer: OnHost | TieredOffload, layers: Scalar, micro_batches: Scalar) -> Scalar:
    """Return the bytes of ``layers`` layers on the host, or on storage: weights, optimiser state, activations."""
    return layers * (layer.weights + layer.optimizer + micro_batches * layer.activations)
