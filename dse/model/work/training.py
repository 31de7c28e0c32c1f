"""Work of one training step: operators, messages, parameters and bytes as a ledger, without time."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus, times, where_on
from dse.model.layout import Layout, with_balanced_experts
from dse.model.work import offload
from dse.model.work.adapters import Trained, fine_tuned, frozen, trained_parameters, without_backward
from dse.model.work.blocks import feed_forward_of
from dse.model.work.ledger import Phase, Runs, Sends
from dse.model.work.messages import executions, training_messages
from dse.model.work.offload import Beyond, OnHost
from dse.model.work.parameters import (
    common_parameters,
    layer_expert_parameters,
    routed_parameters,
    stage_expert_parameters,
    stage_parameters,
    usual_layer_parameters,
)
from dse.model.work.state import Kept, StateBytes, kept_bytes, optimizer_traffic, state_bytes
from dse.model.work.transformer import embedding_operators, expert_layer_operators, head_operators, layer_operators
from dse.types import Design, Group, Message, Operator, OperatorKind, Scalar, Scope, Work


class Lists(NamedTuple):
    """Operators of a step, per micro-batch and device."""

    layer: tuple[Operator, ...]  # the usual layer; of a mixture one with experts
    first_layer: tuple[Operator, ...]  # with a dense feed-forward
    mean_layer: tuple[Operator, ...]  # on the rank with the mean rows of experts
    embedding: tuple[Operator, ...]
    head: tuple[Operator, ...]


class TrainingWork(NamedTuple):
    """Work of a step: operators per micro-batch and device, messages, and bytes."""

    lists: Lists
    messages: tuple[Message, ...]
    parameters: Scalar  # of the most loaded device, without routed experts
    routed: Scalar  # routed experts of the most loaded device
    state: StateBytes  # per trained parameter
    routed_state: StateBytes  # per parameter of a routed expert
    trained: Trained
    kept: Kept
    first_kept: Kept  # of a layer with a dense feed-forward
    on_host: OnHost
    beyond: Beyond | None  # on storage and of the host's update

    @property
    def layer(self) -> tuple[Operator, ...]:
        """Operators of the usual layer; of a mixture one with experts."""
        return self.lists.layer

    @property
    def embedding(self) -> tuple[Operator, ...]:
        """Operators of the first stage beyond its layers."""
        return self.lists.embedding

    @property
    def head(self) -> tuple[Operator, ...]:
        """Operators of the last stage beyond its layers."""
        return self.lists.head


def mean_kept(design: Design, layout: Layout, usual: Kept, dense: Kept) -> Kept:
    """Activation bytes of the layers after the first dense ones: mean stored, maximum recomputed."""
    recomputed = where_on(layout.experts.dense_share, jnp.maximum(usual.recomputed, dense.recomputed), usual.recomputed)
    return Kept(feed_forward_of(design.workload).behind_first(dense.mean, lambda: usual.mean), recomputed)


def training_work(design: Design, layout: Layout) -> TrainingWork:
    """Work of a training step of ``design``."""
    lists, state = operator_lists(design, layout), state_bytes(design, layout, layout.groups.dp)
    if not design.workload.trains_all:
        lists = with_adapters(lists, design, layout)
    trained = trained_parameters(lists.layer, design)
    parameters, routed = stage_parameters(design, layout), stage_expert_parameters(design, layout)
    a_layer, held = usual_layer_parameters(design.workload, design.mapping.tp), layer_expert_parameters(design, layout)
    routed_state = trained.of_model(state_bytes(design, layout, layout.experts.replicas))
    first_kept = kept_bytes(design, layout, lists.first_layer)
    kept = feed_forward_of(design.workload).usual(first_kept, lambda: kept_bytes(design, layout, lists.layer))
    kept = mean_kept(design, layout, kept, first_kept)
    changing = trained.of(a_layer)
    weights = plus(times(a_layer, trained.of_model(state).weights), times(trained.added, state.weights))
    on_host = offload.on_host(
        design.mapping,
        weights=plus(weights, times(held, routed_state.weights)),
        activations=kept.mean,
        optimizer=plus(changing * state.optimizer, times(held, routed_state.optimizer)),
    )
    return TrainingWork(
        lists=lists,
        messages=training_messages(design, layout, parameters, routed, trained),
        parameters=parameters,
        routed=routed,
        state=state,
        routed_state=routed_state,
        trained=trained,
        kept=kept,
        first_kept=first_kept,
        on_host=on_host,
        beyond=offload.beyond(design, on_host, changing * state.gradients / design.software.gradient_bytes),
    )


#: Scopes of the messages of a layer.
LAYER = (Scope.layer, Scope.expert_layer)


def layer_phase(design: Design, layout: Layout, work: TrainingWork) -> Phase:
    """Ledger of one layer and micro-batch of a device, on the busiest rank of experts."""
    messages = tuple(message for message in work.messages if message.scope in LAYER)
    runs = Runs(work.layer, 1.0, design.workload.backward, layout.recompute)
    return Phase((runs,), (Sends(messages, 1.0, layout.recompute),))


def step_phase(design: Design, layout: Layout, work: TrainingWork) -> Phase:
    """Ledger of a step, all devices: first dense layers, layers, embedding and head, the optimiser, all messages."""
    w, recompute = design.workload, layout.recompute
    often = executions(design, layout, work.parameters, work.routed)
    with_experts = often[Scope.expert_layer]
    dense = plus(often[Scope.layer], times(-1.0, with_experts))
    adapters = times(work.trained.added, w.blocks * design.mapping.tp)  # all devices of a stage
    updated = plus(times(work.trained.whole, common_parameters(w)), adapters) * layout.replicas
    routed = times(routed_parameters(w), layout.experts.holders)
    return Phase(
        runs=(
            Runs(work.lists.first_layer, dense, w.backward, recompute),
            Runs(work.lists.mean_layer, with_experts, w.backward, recompute),
            Runs((*work.embedding, *work.head), often[Scope.embedding], w.backward),
            *update_runs(design, layout, work.trained, w.backward * updated, times(w.backward, routed)),
        ),
        sends=tuple(
            Sends(tuple(m for m in work.messages if m.scope is scope), count, recompute)
            for scope, count in often.items()
        ),
    )


def update_runs(
    design: Design, layout: Layout, trained: Trained, parameters: Scalar, routed: Scalar
) -> tuple[Runs, Runs]:
    """Optimiser passes over ``parameters``, and over ``routed`` of routed experts where these are trained."""

    def update(count: Scalar, replicas: Group) -> Runs:
        moved = Work(0.0, optimizer_traffic(design, layout, replicas))
        return Runs((Operator("optimizer", OperatorKind.vector, moved, None, None, 0.0),), count)

    routed = times(trained.whole, routed)
    return update(parameters, layout.groups.dp), update(routed, layout.experts.replicas)


def operator_lists(design: Design, layout: Layout) -> Lists:
    """Operators of a step that trains all weights."""
    first, feed_forward = tuple(layer_operators(design, layout)), feed_forward_of(design.workload)
    return Lists(
        layer=feed_forward.usual(first, lambda: tuple(expert_layer_operators(design, layout))),
        first_layer=first,
        mean_layer=feed_forward.usual(
            first, lambda: tuple(expert_layer_operators(design, with_balanced_experts(layout)))
        ),
        embedding=tuple(embedding_operators(design, layout)),
        head=tuple(head_operators(design, layout)),
    )


def with_adapters(lists: Lists, design: Design, layout: Layout) -> Lists:
    """Operators of a step that trains adapters alone; without experts all layers share one list."""
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
