"""What one training step has to do, without time: operators, messages, parameters, bytes."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.model.work import offload
from dse.model.work.adapters import Trained, fine_tuned, frozen, trained_parameters, without_backward
from dse.model.work.experts import of_mean_rank
from dse.model.work.messages import training_messages
from dse.model.work.offload import Beyond, OnHost
from dse.model.work.parameters import (
    behind_first,
    layer_expert_parameters,
    stage_expert_parameters,
    stage_parameters,
    usual_layer_parameters,
)
from dse.model.work.state import Kept, StateBytes, frozen_state, kept_bytes, state_bytes
from dse.model.work.transformer import embedding_operators, expert_layer_operators, head_operators, layer_operators
from dse.types import Design, Message, Operator, Scalar


class ExpertWork(NamedTuple):
    """What a mixture of experts has beside the work of a dense model."""

    first_layer: tuple[Operator, ...]  # of the layers in front, with a dense feed-forward
    first_kept: Kept
    mean_layer: tuple[Operator, ...]  # of a layer with experts, on the rank that has as many rows as all in the mean
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
    beyond: Beyond | None  # what else leaves the device
    experts: ExpertWork | None = None
    trained: Trained | None = None  # where most parameters are frozen


class Lists(NamedTuple):
    """The operators of a step, for one micro-batch on one device."""

    layer: tuple[Operator, ...]
    first_layer: tuple[Operator, ...]  # with a dense feed-forward
    mean_layer: tuple[Operator, ...]  # of the rank that has as many rows of experts as all in the mean
    embedding: tuple[Operator, ...]
    head: tuple[Operator, ...]


def mean_kept(design: Design, usual: Kept, dense: Kept) -> Kept:
    """What the layers behind the first dense ones keep, in the mean, and what the largest of them brings back."""
    experts = design.workload.experts
    if experts is None:
        return usual
    again = jnp.where(experts.moe_every > 1.0, jnp.maximum(usual.again, dense.again), usual.again)
    return Kept(behind_first(design.workload, dense.mean, usual.mean), again)


def training_work(design: Design, layout: Layout) -> TrainingWork:
    """The work of a step of ``design``."""
    lists, state, trained = operator_lists(design, layout), state_bytes(design, layout, layout.groups.dp), None
    if design.workload.adapters is not None:
        lists = with_adapters(lists, design, layout)
        trained = trained_parameters(lists.layer, layout, frozen_state(state, design, layout))
    parameters, routed = stage_parameters(design, layout), stage_expert_parameters(design, layout)
    a_layer = usual_layer_parameters(design.workload, design.mapping.tp)
    kept = kept_bytes(design, layout, lists.layer)
    weights, optimizer = a_layer * state.weights, a_layer * state.optimizer
    if trained is not None:
        weights = a_layer * trained.frozen.weights + trained.layer * state.weights
        optimizer = trained.layer * state.optimizer
    gradients = (a_layer if trained is None else trained.layer) * state.gradients
    experts = None
    if layout.experts is not None:
        of_experts = state_bytes(design, layout, layout.experts.replicas)
        first_kept = kept_bytes(design, layout, lists.first_layer)
        kept = mean_kept(design, kept, first_kept)
        experts = ExpertWork(
            first_layer=lists.first_layer,
            first_kept=first_kept,
            mean_layer=lists.mean_layer,
            parameters=routed,
            state=of_experts if trained is None else frozen_state(of_experts, design, layout),
        )
        held = layer_expert_parameters(design, layout)
        weights, optimizer = weights + held * experts.state.weights, optimizer + held * experts.state.optimizer
    on_host = offload.on_host(design.mapping, weights, kept.mean, optimizer)
    return TrainingWork(
        layer=lists.layer,
        embedding=lists.embedding,
        head=lists.head,
        messages=training_messages(design, layout, parameters, routed, trained),
        parameters=parameters,
        state=state,
        kept=kept,
        on_host=on_host,
        beyond=offload.beyond(design, on_host, gradients / design.software.gradient_bytes),
        experts=experts,
        trained=trained,
    )


def operator_lists(design: Design, layout: Layout) -> Lists:
    """The operators of a step that trains all weights."""
    dense = tuple(layer_operators(design, layout))
    layer = dense if layout.experts is None else tuple(expert_layer_operators(design, layout))
    return Lists(
        layer=layer,
        first_layer=dense,
        mean_layer=of_mean_rank(layer, design, layout),
        embedding=tuple(embedding_operators(design, layout)),
        head=tuple(head_operators(design, layout)),
    )


def with_adapters(lists: Lists, design: Design, layout: Layout) -> Lists:
    """The same where adapters alone are trained; without experts its layers are one list."""
    layers = lists.layer, lists.first_layer, lists.mean_layer
    tuned = {key: fine_tuned(each, design, layout) for key, each in {id(each): each for each in layers}.items()}
    layer, first, mean = (tuned[id(each)] for each in layers)
    return Lists(
        layer=layer,
        first_layer=first,
        mean_layer=mean,
        embedding=without_backward(lists.embedding),
        head=tuple(frozen(operator, layout) for operator in lists.head),
    )
