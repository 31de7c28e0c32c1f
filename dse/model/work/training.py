"""What one training step has to do, without time: operators, messages, parameters, bytes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.model.work import offload
from dse.model.work.messages import training_messages
from dse.model.work.offload import OnHost
from dse.model.work.parameters import (
    behind_first,
    layer_expert_parameters,
    stage_expert_parameters,
    stage_parameters,
    usual_layer_parameters,
)
from dse.model.work.state import Kept, StateBytes, kept_bytes, state_bytes
from dse.model.work.transformer import embedding_operators, expert_layer_operators, head_operators, layer_operators
from dse.types import Design, Message, Operator, Scalar


class ExpertWork(NamedTuple):
    """What a mixture of experts has beside the work of a dense model."""

    first_layer: tuple[Operator, ...]  # of the layers in front, with a dense feed-forward
    first_kept: Kept
    parameters: Scalar  # of routed experts, on the device that holds most
    state: StateBytes  # of one of them


class TrainingWork(NamedTuple):
    """The work of a step: lists of operators for one micro-batch on one device, messages, and bytes."""

    layer: tuple[Operator, ...]  # of any layer, or any but the first ones of a mixture of experts
    embedding: tuple[Operator, ...]
    head: tuple[Operator, ...]
    messages: tuple[Message, ...]
    parameters: Scalar  # of the device that holds most, but for routed experts
    state: StateBytes  # of one parameter
    kept: Kept
    on_host: OnHost
    experts: ExpertWork | None = None


def mean_kept(design: Design, usual: Kept, dense: Kept) -> Kept:
    """What the layers behind the first dense ones keep, in the mean, and what the largest of them brings back."""
    experts = design.workload.experts
    if experts is None:
        return usual
    again = jnp.where(experts.moe_every > 1.0, jnp.maximum(usual.again, dense.again), usual.again)
    return Kept(behind_first(design.workload, dense.mean, usual.mean), again)


def training_work(design: Design, layout: Layout) -> TrainingWork:
    """The work of a step of ``design``."""
    dense = tuple(layer_operators(design, layout))
    layer = dense if layout.experts is None else tuple(expert_layer_operators(design, layout))
    parameters, routed = stage_parameters(design, layout), stage_expert_parameters(design, layout)
    a_layer = usual_layer_parameters(design.workload, design.mapping.tp)
    kept, state = kept_bytes(design, layout, layer), state_bytes(design, layout, layout.groups.dp)
    experts, offloaded = None, (a_layer * state.weights, a_layer * state.optimizer)
    if layout.experts is not None:
        first_kept = kept_bytes(design, layout, dense)
        kept = mean_kept(design, kept, first_kept)
        experts = ExpertWork(
            first_layer=dense,
            first_kept=first_kept,
            parameters=routed,
            state=state_bytes(design, layout, layout.experts.replicas),
        )
        held = layer_expert_parameters(design, layout)
        offloaded = (offloaded[0] + held * experts.state.weights, offloaded[1] + held * experts.state.optimizer)
    return TrainingWork(
        layer=layer,
        embedding=tuple(embedding_operators(design, layout)),
        head=tuple(head_operators(design, layout)),
        messages=training_messages(design, layout, parameters, routed),
        parameters=parameters,
        state=state,
        kept=kept,
        on_host=offload.on_host(design.mapping, offloaded[0], kept.mean, offloaded[1]),
        experts=experts,
    )
