"""Bytes of model state and of activations stored for the backward pass, and memory traffic of the optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose, plus, value_or, where_on
from dse.model.formats import optimizer_bytes, parameter_bytes
from dse.model.layout import Layout
from dse.model.work.blocks import attention_of
from dse.model.work.parameters import serial_block
from dse.types import Design, Group, Operator, Recompute, Scalar


class StateBytes(NamedTuple):
    """Bytes per parameter and device of weights, gradients and optimiser state, after ZeRO."""

    weights: Scalar
    gradients: Scalar
    optimizer: Scalar

    @property
    def total(self) -> Scalar:
        """Bytes of all model state per parameter."""
        return plus(*self)


def state_bytes(design: Design, layout: Layout, replicas: Group) -> StateBytes:
    """Return the state bytes per parameter after ZeRO (Rajbhandari et al. 2020).

    Stage 1 splits the optimiser over the ``replicas``, 2 also the gradients, 3 also the weights. Unsplit mixed
    precision: 2 + 4 + 12 = 18; or 4 + 4 + 8 = 16 where the optimiser updates fp32 weights in place, cast when gathered.

    Args:
        design: the design.
        layout: sizes and groups of the design.
        replicas: devices that share the state.
    """
    trained = design.workload.backward

    def split(stage: float) -> Scalar:
        return jnp.where(layout.zero >= stage, replicas.size, 1.0)

    unsplit_weights = parameter_bytes(design.mapping.precision, design.software)
    weights, gradients = unsplit_weights / split(3.0), design.software.gradient_bytes / split(2.0)
    sharding, parts = design.mapping.sharding, layout.partitions
    if sharding is not None and parts is not None:
        secondary = jnp.where((layout.zero >= 3.0) & (sharding.secondary > 0.0), weights, 0.0)
        weights = jnp.where(layout.zero >= 3.0, unsplit_weights / parts.weights.size + secondary, weights)
        gradients = jnp.where(layout.zero >= 3.0, design.software.gradient_bytes / parts.gradients.size, gradients)
    return StateBytes(
        weights=weights,
        gradients=trained * gradients,
        optimizer=trained * optimizer_bytes(design.mapping.precision, design.software) / split(1.0),
    )


def optimizer_traffic(design: Design, layout: Layout, replicas: Group) -> Scalar:
    """Return the device-memory bytes that one Adam step moves per parameter of a device.

    Optimiser states are read and written once, gradients read twice (norm, update), weights written once, and read if
    they are their own master copy; all split over the ``replicas`` from ZeRO 1 on. Gradients are zeroed and, with
    several replicas, scaled before they are summed: whole until ZeRO 2 splits them. Expert gradients are scaled even
    where one device alone holds an expert (Megatron-LM's expert_gradient_scaling_factor).
    """
    m, software = design.mapping, design.software
    states = 2.0 * optimizer_bytes(m.precision, software)
    weights = parameter_bytes(m.precision, software)
    weights = where_on(value_or(software.parameter_bytes, 0.0), 2.0 * weights, weights)
    update_bytes = states + 2.0 * software.gradient_bytes + weights
    scaled = jnp.where(layout.replicas > 1.0, 3.0, 1.0) * software.gradient_bytes
    update_share = update_bytes / jnp.where(layout.zero >= 1.0, replicas.size, 1.0)
    scaling_bytes = scaled / jnp.where(layout.zero >= 2.0, replicas.size, 1.0)
    return update_share + scaling_bytes


# Activations


def stored_bytes(operators: Sequence[Operator], core_only: bool = False) -> Scalar:
    """Return the bytes that the operators store for the backward pass."""
    return sum(o.present * o.stored for o in operators if o.core or not core_only)


def recomputed_core_bytes(operators: Sequence[Operator], layout: Layout) -> Scalar:
    """Return the bytes per layer and micro-batch saved by selective recompute.

    All that the core stores except its inputs (queries, keys, values).
    """
    inputs = layout.element.activation * layout.tokens * (layout.query_width + layout.keys_and_values)
    return stored_bytes(operators, core_only=True) - inputs


class StoredActivations(NamedTuple):
    """Activation bytes of one layer and micro-batch."""

    mean: Scalar  # stored for the backward, mean over the layers of a stage
    recomputed: Scalar  # recomputed for the backward of one layer


def stored_activations(design: Design, layout: Layout, operators: Sequence[Operator]) -> StoredActivations:
    """Return the activation bytes of a layer under the recompute policy (Korthikanti et al. 2022, table 2)."""
    all_stored = stored_bytes(operators)
    without_core = all_stored - recomputed_core_bytes(operators, layout)
    layer_input = layout.element.activation * layout.norm_tokens * design.workload.hidden
    by_policy: dict[Recompute, Scalar] = {
        Recompute.none: all_stored,
        Recompute.selective: without_core,
        Recompute.full: layer_input,
        Recompute.selective_op: layer_input + stored_output_bytes(design, layout),
    }
    m, trained = design.mapping, design.workload.backward
    for level in layout.recompute.levels:
        by_policy[Recompute(level)] = all_stored - not_stored_bytes(design, layout, operators, level)
    recomputed = all_stored - trained * choose(m.recompute, by_policy)
    share = jnp.where(m.recompute == float(Recompute.full), m.recompute_share, 1.0)
    return StoredActivations(trained * (all_stored - share * recomputed), recomputed)


def not_stored_bytes(design: Design, layout: Layout, operators: Sequence[Operator], level: int) -> Scalar:
    """Return the bytes per layer that a level of expert recompute does not store.

    Those of operators, and of projected queries, keys and values.
    """
    not_stored = sum(o.present * o.stored for o in operators if 0 < o.not_stored_from <= level)
    return plus(not_stored, attention_of(design.workload).not_stored(layout))


def stored_output_bytes(design: Design, layout: Layout) -> Scalar:
    """Return the bytes of the outputs of a layer that recompute operator by operator stores.

    Every other product of query, key, value, output, gate, up and down, from the first, and the flash kernel
    (torchtitan's ``selective_ac_option = "op"``); without a gate the down projection is left out. Or all products that
    the backward needs (not down) and no flash kernel (``checkpoint_dots_with_no_batch_dims`` of JAX, MaxText's
    ``minimal``; from memory).
    """
    w = design.workload
    alternate_bytes = _alternate_output_bytes(design, layout)
    tp_split_columns = layout.tokens * (layout.query_width + layout.keys_and_values + (1.0 + w.gated) * layout.ffn)
    residual_columns = serial_block(w) * layout.norm_tokens * w.hidden  # attention output, input of the next norm
    products = layout.element.activation * (tp_split_columns + residual_columns)
    return where_on(value_or(design.software.keeps_products, 0.0), products, alternate_bytes)


def _alternate_output_bytes(design: Design, layout: Layout) -> Scalar:
    """Return the bytes of the outputs of every other product of a layer, and of the flash kernel."""
    w = design.workload
    attention = (1.0 + layout.flash) * layout.query_width + layout.kv_width
    return layout.element.activation * layout.tokens * (attention + layout.ffn + w.gated * w.hidden)
