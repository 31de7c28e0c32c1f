"""Bytes of model state and of what operators keep for the backward pass, and the traffic of the optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import choose, given, plus, where_on
from dse.model.formats import optimizer_bytes, parameter_bytes
from dse.model.layout import Layout
from dse.model.work.blocks import attention_of
from dse.model.work.parameters import serial_block
from dse.types import Design, Group, Operator, Recompute, Scalar


class StateBytes(NamedTuple):
    """Bytes a parameter on one device of weights, gradients and optimiser state, after ZeRO."""

    weights: Scalar
    gradients: Scalar
    optimizer: Scalar

    @property
    def total(self) -> Scalar:
        """All model state of one parameter."""
        return plus(*self)


def state_bytes(design: Design, layout: Layout, replicas: Group) -> StateBytes:
    """Bytes a parameter after ZeRO (Rajbhandari et al. 2020), of weights that these replicas share.

    Stage 1 splits the optimiser over the replicas, 2 the gradients too, 3 the weights too; with ``dp_replicate`` over
    those of one copy of the state. Unsplit mixed precision: 2 + 4 + 12 = 18; 4 + 4 + 8 = 16 where the optimiser updates
    fp32 weights in place, that are cast as they are gathered.
    """
    trained = design.workload.backward

    def split(stage: float) -> Scalar:
        return jnp.where(layout.zero >= stage, replicas.size, 1.0)

    whole = parameter_bytes(design.mapping.precision, design.software)
    weights, gradients = whole / split(3.0), design.software.gradient_bytes / split(2.0)
    sharding, parts = design.mapping.sharding, layout.partitions
    if sharding is not None and parts is not None:
        secondary = jnp.where((layout.zero >= 3.0) & (sharding.secondary > 0.0), weights, 0.0)
        weights = jnp.where(layout.zero >= 3.0, whole / parts.weights.size + secondary, weights)
        gradients = jnp.where(layout.zero >= 3.0, design.software.gradient_bytes / parts.gradients.size, gradients)
    return StateBytes(
        weights=weights,
        gradients=trained * gradients,
        optimizer=trained * optimizer_bytes(design.mapping.precision, design.software) / split(1.0),
    )


def optimizer_traffic(design: Design, layout: Layout, replicas: Group) -> Scalar:
    """Bytes of device memory that the Adam step moves for one parameter of a device.

    Its state is shared by the ``replicas``. Gradients of experts, which see tokens of every rank, are scaled as those
    of all else even where one device alone holds an expert (Megatron-LM's expert_gradient_scaling_factor).

    Every state is read and written once, gradients read twice (norm, update), weights written once, and read where they
    are their own master copy; all split over the replicas from ZeRO 1 on. Gradients are zeroed and, between replicas,
    scaled before they are summed: whole until ZeRO 2 splits them.
    """
    m, software = design.mapping, design.software
    states = 2.0 * optimizer_bytes(m.precision, software)
    weights = parameter_bytes(m.precision, software)
    weights = where_on(given(software.parameter_bytes, 0.0), 2.0 * weights, weights)
    moved = states + 2.0 * software.gradient_bytes + weights
    scaled = jnp.where(layout.replicas > 1.0, 3.0, 1.0) * software.gradient_bytes
    share = moved / jnp.where(layout.zero >= 1.0, replicas.size, 1.0)
    whole = scaled / jnp.where(layout.zero >= 2.0, replicas.size, 1.0)
    return share + whole


# Activations


def stored_bytes(operators: Sequence[Operator], core_only: bool = False) -> Scalar:
    """Bytes that the operators keep for the backward pass."""
    return sum(o.present * o.stored for o in operators if o.core or not core_only)


def recomputed_core_bytes(operators: Sequence[Operator], layout: Layout) -> Scalar:
    """What selective recompute frees: all that the core keeps, but for its inputs (queries, keys, values)."""
    inputs = layout.element.activation * layout.tokens * (layout.query_width + layout.keys_and_values)
    return stored_bytes(operators, core_only=True) - inputs


class Kept(NamedTuple):
    """Bytes of the activations of one layer and micro-batch."""

    mean: Scalar  # kept for the backward, over the layers of a stage
    again: Scalar  # brought back for the backward of a layer that is run again


def kept_bytes(design: Design, layout: Layout, operators: Sequence[Operator]) -> Kept:
    """What layers keep under the recompute policy (Korthikanti et al. 2022, table 2)."""
    everything = stored_bytes(operators)
    without_core = everything - recomputed_core_bytes(operators, layout)
    layer_input = layout.element.activation * layout.norm_tokens * design.workload.hidden
    by_policy: dict[Recompute, Scalar] = {
        Recompute.none: everything, Recompute.selective: without_core, Recompute.full: layer_input,
        Recompute.selective_op: layer_input + kept_outputs(design, layout),
    }  # fmt: skip
    m, trained = design.mapping, design.workload.backward
    for level in layout.recompute.levels:
        by_policy[Recompute(level)] = everything - freed_bytes(design, layout, operators, level)
    again = everything - trained * choose(m.recompute, by_policy)
    share = jnp.where(m.recompute == float(Recompute.full), m.recompute_share, 1.0)
    return Kept(trained * (everything - share * again), again)


def freed_bytes(design: Design, layout: Layout, operators: Sequence[Operator], level: int) -> Scalar:
    """What a level of recompute of experts frees: what operators say, and queries, keys and values projected up."""
    freed = sum(o.present * o.stored for o in operators if 0 < o.freed <= level)
    return plus(freed, attention_of(design.workload).freed(layout))


def kept_outputs(design: Design, layout: Layout) -> Scalar:
    """Bytes of the outputs of a layer that recompute operator by operator keeps.

    Of the products query, key, value, output, gate, up and down every other one, from the first; and the flash kernel
    (torchtitan's ``selective_ac_option = "op"``). Two matrices in the feed-forward leave down out. Or all products that
    the backward needs, which down is not, and no flash kernel (``checkpoint_dots_with_no_batch_dims`` of JAX, MaxText's
    ``minimal``; from memory).
    """
    w = design.workload
    every_other = _every_other(design, layout)
    inside = layout.tokens * (layout.query_width + layout.keys_and_values + (1.0 + w.gated) * layout.ffn)
    between = serial_block(w) * layout.norm_tokens * w.hidden  # the attention's, for the norm behind it
    products = layout.element.activation * (inside + between)
    return where_on(given(design.software.keeps_products, 0.0), products, every_other)


def _every_other(design: Design, layout: Layout) -> Scalar:
    """Bytes of the outputs of every other product, and of the flash kernel."""
    w = design.workload
    attention = (1.0 + layout.flash) * layout.query_width + layout.kv_width
    return layout.element.activation * layout.tokens * (attention + layout.ffn + w.gated * w.hidden)
