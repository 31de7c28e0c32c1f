"""Work of one training step: operators, messages, parameters and bytes as a ledger, without time."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus, times, where_on
from dse.model.formats import optimizer_bytes
from dse.model.layout import Layout, with_balanced_experts
from dse.model.work import offload
from dse.model.work.adapters import (
    TrainedWeights,
    fine_tuned_operators,
    frozen_operator,
    trained_parameters,
    without_backward,
)
from dse.model.work.blocks import feed_forward_of
from dse.model.work.ledger import Phase, Runs, Sends
from dse.model.work.messages import executions, training_messages
from dse.model.work.offload import OnHost, TieredOffload
from dse.model.work.parameters import (
    common_parameters,
    layer_expert_parameters,
    routed_parameters,
    stage_expert_parameters,
    stage_parameters,
    usual_layer_parameters,
)
from dse.model.work.state import StateBytes, StoredActivations, optimizer_traffic, state_bytes, stored_activations
from dse.model.work.transformer import embedding_operators, expert_layer_operators, head_operators, layer_operators
from dse.types import Design, Group, Message, Operator, OperatorKind, Scalar, Scope, Work


class OperatorLists(NamedTuple):
    """Operators of a step, per micro-batch and device."""

    layer: tuple[Operator, ...]  # the usual layer; of a mixture one with experts
    first_layer: tuple[Operator, ...]  # with a dense feed-forward
    mean_layer: tuple[Operator, ...]  # on the rank with the mean rows of experts
    embedding: tuple[Operator, ...]
    head: tuple[Operator, ...]


class TrainingWork(NamedTuple):
    """Work of a step: operators per micro-batch and device, messages, and bytes."""

    lists: OperatorLists
    messages: tuple[Message, ...]
    parameters: Scalar  # of the most loaded device, without routed experts
    routed: Scalar  # routed experts of the most loaded device
    state: StateBytes  # per trained parameter
    routed_state: StateBytes  # per parameter of a routed expert
    trained: TrainedWeights
    stored_activations: StoredActivations
    first_layer_activations: StoredActivations  # of a layer with a dense feed-forward
    on_host: OnHost
    tiered: TieredOffload | None  # on storage and of the host's update

    @property
    def layer(self) -> tuple[Operator, ...]:
        """Operators of the usual layer, of a mixture those of one with experts."""
        return self.lists.layer

    @property
    def embedding(self) -> tuple[Operator, ...]:
        """Operators of the first stage beyond its layers."""
        return self.lists.embedding

    @property
    def head(self) -> tuple[Operator, ...]:
        """Operators of the last stage beyond its layers."""
        return self.lists.head


def training_work(design: Design, layout: Layout) -> TrainingWork:
    """Return the operators, messages, parameter counts and state bytes of a training step of ``design``.

    Args:
        design: the design.
        layout: sizes and groups of the design.
    """
    lists, state = operator_lists(design, layout), state_bytes(design, layout, layout.groups.dp)
    if not design.workload.trains_all:
        lists = with_adapters(lists, design, layout)
    trained = trained_parameters(lists.layer, design)
    parameters, routed = stage_parameters(design, layout), stage_expert_parameters(design, layout)
    layer_parameters = usual_layer_parameters(design.workload, design.mapping.tp)
    expert_parameters = layer_expert_parameters(design, layout)
    routed_state = trained.of_model(state_bytes(design, layout, layout.experts.replicas))
    first_layer_activations = stored_activations(design, layout, lists.first_layer)
    activations = feed_forward_of(design.workload).usual(
        first_layer_activations, lambda: stored_activations(design, layout, lists.layer)
    )
    # Of the layers after the first dense ones: mean stored, maximum recomputed.
    stored = feed_forward_of(design.workload).after_first_dense(first_layer_activations.mean, lambda: activations.mean)
    most_recomputed = jnp.maximum(activations.recomputed, first_layer_activations.recomputed)
    recomputed = where_on(layout.experts.dense_share, most_recomputed, activations.recomputed)
    trained_per_layer = trained.trained_count(layer_parameters)
    weights = plus(
        times(layer_parameters, trained.of_model(state).weights), times(trained.adapter_parameters, state.weights)
    )
    on_host = offload.on_host(
        design.mapping,
        weights=plus(weights, times(expert_parameters, routed_state.weights)),
        activations=stored,
        optimizer=plus(trained_per_layer * state.optimizer, times(expert_parameters, routed_state.optimizer)),
    )
    gradient_shards = state.gradients / design.software.gradient_bytes
    ends = parameters - times(layout.pipeline.copies, layout.layers * layer_parameters)
    ends = times(trained.trains_model, ends / layout.layers)
    shards = gradient_shards, state.optimizer / optimizer_bytes(design.mapping.precision, design.software)
    return TrainingWork(
        lists=lists,
        messages=training_messages(design, layout, parameters, routed, trained),
        parameters=parameters,
        routed=routed,
        state=state,
        routed_state=routed_state,
        trained=trained,
        stored_activations=StoredActivations(stored, recomputed),
        first_layer_activations=first_layer_activations,
        on_host=on_host,
        tiered=offload.tiered_offload(design, on_host, trained_per_layer, ends, shards),
    )


#: Scopes of the messages of a layer.
LAYER = (Scope.layer, Scope.expert_layer)


def layer_phase(design: Design, layout: Layout, work: TrainingWork) -> Phase:
    """Return the runs and sends of one layer and micro-batch of a device, on the busiest rank of experts."""
    messages = tuple(message for message in work.messages if message.scope in LAYER)
    runs = Runs(work.layer, 1.0, design.workload.backward, layout.recompute)
    return Phase((runs,), (Sends(messages, 1.0, layout.recompute),))


def step_phase(design: Design, layout: Layout, work: TrainingWork) -> Phase:
    """Return the runs and sends of a step on all devices.

    First dense layers, layers, embedding and head, the optimiser, all messages.
    """
    w, recompute = design.workload, layout.recompute
    execution_counts = executions(design, layout, work.parameters, work.routed)
    with_experts = execution_counts[Scope.expert_layer]
    dense = plus(execution_counts[Scope.layer], times(-1.0, with_experts))
    adapters = times(work.trained.adapter_parameters, w.blocks * design.mapping.tp)  # all devices of a stage
    trained_parameters = plus(times(work.trained.trains_model, common_parameters(w)), adapters) * layout.replicas
    routed = times(routed_parameters(w), layout.experts.holders)
    return Phase(
        runs=(
            Runs(work.lists.first_layer, dense, w.backward, recompute),
            Runs(work.lists.mean_layer, with_experts, w.backward, recompute),
            Runs((*work.embedding, *work.head), execution_counts[Scope.embedding], w.backward),
            *update_runs(design, layout, work.trained, w.backward * trained_parameters, times(w.backward, routed)),
        ),
        sends=tuple(
            Sends(tuple(m for m in work.messages if m.scope is scope), count, recompute)
            for scope, count in execution_counts.items()
        ),
    )


def update_runs(
    design: Design, layout: Layout, trained: TrainedWeights, parameters: Scalar, routed: Scalar
) -> tuple[Runs, Runs]:
    """Return the optimiser's runs over ``parameters``, and over ``routed`` parameters of experts (0 if frozen)."""

    def update(count: Scalar, replicas: Group) -> Runs:
        traffic = Work(0.0, optimizer_traffic(design, layout, replicas))
        return Runs((Operator("optimizer", OperatorKind.vector, traffic, None, None, 0.0),), count)

    routed = times(trained.trains_model, routed)
    return update(parameters, layout.groups.dp), update(routed, layout.experts.replicas)


def operator_lists(design: Design, layout: Layout) -> OperatorLists:
    """Return the operators of a step that trains all weights, by layer kind and model end."""
    first, feed_forward = tuple(layer_operators(design, layout)), feed_forward_of(design.workload)
    return OperatorLists(
        layer=feed_forward.usual(first, lambda: tuple(expert_layer_operators(design, layout))),
        first_layer=first,
        mean_layer=feed_forward.usual(
            first, lambda: tuple(expert_layer_operators(design, with_balanced_experts(layout)))
        ),
        embedding=tuple(embedding_operators(design, layout)),
        head=tuple(head_operators(design, layout)),
    )


def with_adapters(lists: OperatorLists, design: Design, layout: Layout) -> OperatorLists:
    """Return the lists with frozen weights and adapters, for a step that trains adapters alone.

    Without experts all layers share one list.
    """
    layers = lists.layer, lists.first_layer, lists.mean_layer
    tuned_operators = {
        key: fine_tuned_operators(operators, design, layout)
        for key, operators in {id(operators): operators for operators in layers}.items()
    }
    layer, first, mean = (tuned_operators[id(operators)] for operators in layers)
    return OperatorLists(
        layer=layer,
        first_layer=first,
        mean_layer=mean,
        embedding=without_backward(lists.embedding),
        head=tuple(frozen_operator(operator, layout) for operator in lists.head),
    )
