"""Messages of data parallelism: gradients and gathered weights over all replicas, or over parts of them."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import nothing, plus, required, select, times
from dse.model.layout import Layout
from dse.model.work.adapters import TrainedWeights
from dse.model.work.parameters import head_parameters
from dse.types import Design, Dimension, Group, Message, MessageKind, Scalar, Scope, Window

_ALL_REDUCE, _ALL_GATHER = MessageKind.all_reduce, MessageKind.all_gather
_REDUCE_SCATTER, _SEND = MessageKind.reduce_scatter, MessageKind.send


def data_messages(design: Design, layout: Layout, parameters: Scalar, trained_of: TrainedWeights) -> list[Message]:
    """Return the messages of gradients and weights between the replicas of ``parameters`` weights, per step.

    With several copies of the state, each share of the gradients is summed over the copies once a step, layer by layer
    (hybrid sharding: Zhao et al. 2023, section 3.2.2). Frozen weights are only gathered.
    """
    w, m = design.workload, design.mapping
    trained = w.backward
    changing = trained_of.trained_count(parameters, layout.layers)
    shared, predicted = w.tied_embeddings > 0.0, w.predicted
    if not nothing(predicted):  # multi-token prediction: the last stage has an embedding of its own
        shared = shared | (predicted > 0.0)
    tied_times: Scalar = jnp.where((m.pp > 1.0) & shared, times(trained_of.trains_model, trained), 0.0)
    tied_times = times(1.0 - layout.pipeline.folded, tied_times)
    tied_bytes = design.software.gradient_message_bytes * head_parameters(w, m.tp)
    messages = state_messages(design, layout, parameters, Scope.weights, trained_of)
    if m.sharding is not None:
        messages = partitioned_messages(messages, design, layout, changing)
    return [
        *messages,
        copies_message(design, layout, changing, Scope.weights),
        # First and last stage sum the gradients of a shared embedding.
        _message("tied_embedding_exchange", _SEND, Scope.tied_embedding, layout.groups.pp, tied_bytes, tied_times),
    ]


def _message(
    name: str,
    kind: MessageKind,
    scope: Scope,
    group: Group,
    size: Scalar,
    times: Scalar,
    pieces: Scalar = 1.0,
    window: Window = Window.none,
) -> Message:
    """Return a message between replicas, with the name prefix of its scope."""
    return Message(_PREFIX.get(scope, "") + name, kind, Dimension.data, scope, group, size, times, pieces, window)


def _sharers(layout: Layout, scope: Scope) -> tuple[Group, Group]:
    """Return the group that shares the state of the weights of a scope, and the group with the same share of it."""
    if scope is Scope.weights:
        return layout.groups.dp, layout.groups.copies
    return layout.experts.replicas, layout.experts.copies


#: Name prefix of the messages of a scope.
_PREFIX = {Scope.expert_weights: "expert_"}


def copies_message(design: Design, layout: Layout, parameters: Scalar, scope: Scope) -> Message:
    """Return the message that all-reduces a share of the gradients over the copies of the state, once a step."""
    shards, copies = _sharers(layout, scope)
    size = parameters * design.software.gradient_message_bytes / shards.size
    counts = design.workload.backward, layout.layers + 1.0
    return _message("copies_all_reduce", _ALL_REDUCE, scope, copies, size, *counts, Window.stage_backward)


def state_messages(
    design: Design, layout: Layout, parameters: Scalar, scope: Scope, trained_of: TrainedWeights
) -> list[Message]:
    """Return the messages between the replicas of ``parameters`` weights that share their state.

    ZeRO 0: one all-reduce of gradients. ZeRO 1: reduce-scatter, then all-gather of the new weights.
    ZeRO 2: a reduce-scatter every micro-batch (under a pipeline it is ZeRO 1, see ``layout.zero_stage``). ZeRO 3:
    also a gather of the weights for every forward and every backward (Rajbhandari et al. 2020), one message per layer
    (and embedding or head) with its own latency and ramp. Without a backward only the gathers of ZeRO 3 are sent; with
    adapters they are of all weights, and the gradients are those of the adapters.
    """
    n, stage, trained = layout.n_micro_batches, layout.zero, design.workload.backward
    trained_parameters = trained_of.trained_count(parameters, layout.layers)
    frozen = times(parameters, trained_of.frozen_bytes)
    gradients = trained_parameters * design.software.gradient_message_bytes
    weights = plus(
        times(jnp.where(stage >= 3.0, 1.0, 0.0), frozen), trained_parameters * weight_message_bytes(design, layout)
    )
    pieces, (shards, _) = jnp.where(stage >= 3.0, layout.layers + 1.0, 1.0), _sharers(layout, scope)

    def message(name: str, kind: MessageKind, size: Scalar, times: Scalar, window: Window) -> Message:
        return _message(name, kind, scope, shards, size, times, pieces, window)

    forward_gathers = jnp.where(stage >= 3.0, n, jnp.where(stage >= 1.0, trained, 0.0))
    backward_gathers = jnp.where(stage >= 3.0, trained * n, 0.0)
    scatters = trained * jnp.where(stage >= 2.0, n, jnp.where(stage >= 1.0, 1.0, 0.0))
    all_reduces = trained * jnp.where(stage >= 1.0, 0.0, 1.0)
    forward, backward = Window.stage_forward, Window.stage_backward
    return [
        message("weights_all_gather", _ALL_GATHER, weights, forward_gathers, forward),
        message("gradients_all_reduce", _ALL_REDUCE, gradients, all_reduces, backward)._replace(pieces=1.0),
        message("gradients_reduce_scatter", _REDUCE_SCATTER, gradients, scatters, backward),
        message("weights_all_gather_again", _ALL_GATHER, weights, backward_gathers, backward),
    ]


def weight_message_bytes(design: Design, layout: Layout) -> Scalar:
    """Return the message bytes per gathered weight.

    Those of an activation, or of 8 bits where a stack gathers what it multiplies.

    Recipes with narrow operands may gather the weights after their cast (fp8_param_gather of Megatron-Core).
    """
    act, software_bytes = layout.element.activation, design.software.weight_message_bytes
    return act if software_bytes is None else jnp.where(layout.element.operand < act, software_bytes, act)


def expert_state_messages(
    design: Design, layout: Layout, parameters: Scalar, trained_of: TrainedWeights
) -> list[Message]:
    """Return the messages between the replicas of ``parameters`` of routed experts.

    With adapters they are the gathers of ZeRO 3 alone.
    """
    scope = Scope.expert_weights
    messages = state_messages(design, layout, parameters, scope, TrainedWeights())
    if trained_of.trains_model:
        return [*messages, copies_message(design, layout, parameters, scope)]
    gathers, frozen_size = jnp.where(layout.zero >= 3.0, 1.0, 0.0), parameters * trained_of.frozen_bytes
    return [m._replace(times=m.times * gathers, size=frozen_size) for m in messages if m.kind is _ALL_GATHER]


#: Messages of ZeRO 3 whose elements may be sent in fewer bits.
_SCATTERED_OR_GATHERED = ("weights_all_gather", "weights_all_gather_again", "gradients_reduce_scatter")


def converted_bytes(message: Message, group: Group, size_ratio: Scalar) -> Scalar:
    """Return the bytes that kernels read and write to send a message of ``size_ratio`` times its bytes, 0 for 1.

    One kernel reads all elements and writes them in fewer bits, another one reads these and writes elements. Of ``V``
    bytes, ``r V`` of them sent, a member casts its share before a gather and all of them after it: ``V (1 + r) (1 + 1 /
    N)``. Before a scatter it casts all, and sums all that it receives into its share: ``V (1 + 2 r + 1 / N)``
    (Wang et al. 2023, sections 3.1 and 3.3: quantised weights and gradients).
    """
    share = 1.0 / group.size
    is_gather = message.kind is _ALL_GATHER
    passes = (1.0 + size_ratio) * (1.0 + share) if is_gather else 1.0 + 2.0 * size_ratio + share
    return jnp.where(size_ratio < 1.0, message.size * passes, 0.0)


def partitioned_messages(
    messages: list[Message], design: Design, layout: Layout, trained_parameters: Scalar
) -> list[Message]:
    """Return the messages with weights and gradients of ZeRO 3 split over parts of the replicas, two messages added.

    The optimiser is split over all replicas.

    Every micro-batch gathers weights and scatters gradients within the partitions; once a step the gradients are
    scattered over the partitions and the new weights gathered over them. With a secondary copy of the weights for the
    backward, only the forward gathers over all replicas (ZeRO++: Wang et al. 2023; three levels: Xu et al. 2025).
    Messages may have fewer bytes per element, with kernels before and after them (:func:`converted_bytes`).
    """
    sharding, zero_3 = required(design.mapping.sharding, "mapping.sharding"), layout.zero >= 3.0
    parts = required(layout.partitions, "mapping.sharding")
    trained, dp = design.workload.backward, layout.groups.dp
    secondary = sharding.secondary > 0.0
    usual = design.software.gradient_message_bytes
    reduce_bytes = jnp.where(zero_3 & (sharding.scattered_bytes > 0.0), sharding.scattered_bytes, usual)
    gather_ratio = jnp.where(zero_3, sharding.gathered_bytes / weight_message_bytes(design, layout), 1.0)
    forward_group = select(secondary, dp, parts.weights)
    group_and_size_ratio: dict[str, tuple[Group, Scalar]] = {
        "weights_all_gather": (forward_group, gather_ratio),
        "weights_all_gather_again": (parts.weights, gather_ratio),
        "gradients_reduce_scatter": (parts.gradients, reduce_bytes / usual),
        "gradients_all_reduce": (dp, 1.0),
    }
    partition_messages = [
        m._replace(
            group=group,
            size=m.size * size_ratio,
            converted=times(1.0 if m.name in _SCATTERED_OR_GATHERED else 0.0, converted_bytes(m, group, size_ratio)),
        )
        for m, (group, size_ratio) in ((m, group_and_size_ratio[m.name]) for m in messages)
    ]
    step_runs, pieces = jnp.where(zero_3, trained, 0.0), layout.layers + 1.0
    gradient_shard_bytes = trained_parameters * usual / parts.gradients.size
    weight_shard_bytes = trained_parameters * weight_message_bytes(design, layout) / parts.weights.size

    def across(name: str, kind: MessageKind, group: Group, size: Scalar, count: Scalar, window: Window) -> Message:
        return _message(name, kind, Scope.weights, group, size, count, pieces, window)

    gathers, forward, backward = jnp.where(secondary, 0.0, step_runs), Window.stage_forward, Window.stage_backward
    scatter, gather = "gradients_reduce_scatter_across", "new_weights_all_gather"
    return [
        *partition_messages,
        across(scatter, _REDUCE_SCATTER, parts.gradients_across, gradient_shard_bytes, step_runs, backward),
        across(gather, _ALL_GATHER, parts.weights_across, weight_shard_bytes, gathers, forward),
    ]
