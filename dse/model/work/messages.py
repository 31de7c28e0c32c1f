"""Every message of a training step, as data: what is sent, to whom, how often, and what it may hide behind.

Time, energy and the waterfall are folds over this list, so that no volume is written twice. A new kind of
parallelism is a few lines here.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import choose
from dse.model.layout import Layout
from dse.model.work.parameters import head_parameters, parameter_count
from dse.types import (
    Design,
    Dimension,
    Group,
    Mapping,
    Message,
    MessageKind,
    Recompute,
    Scalar,
    Scope,
    SequenceParallel,
    Window,
)

_ALL_REDUCE, _ALL_GATHER = MessageKind.all_reduce, MessageKind.all_gather
_REDUCE_SCATTER, _SEND = MessageKind.reduce_scatter, MessageKind.send


def training_messages(design: Design, layout: Layout, parameters: Scalar) -> tuple[Message, ...]:
    """The messages of a step of ``design``, whose fullest device holds ``parameters``."""
    return (
        *tensor_messages(design, layout),
        *embedding_and_head_messages(design, layout),
        *context_messages(design, layout),
        *pipeline_messages(design, layout),
        *data_messages(design, layout, parameters),
    )


def tensor_messages(design: Design, layout: Layout) -> list[Message]:
    """Messages of ``T h`` activations of one layer.

    Two all-reduces a pass, or with sequence parallelism all-gathers and reduce-scatters: two of each a
    pass, and the backward gathers again those of the layer's two inputs that are not kept whole (Korthikanti et
    al. 2022, section 4.2). What the backward sends of the input gradients runs beside the weight gradients.
    """
    m, trained = design.mapping, design.workload.backward
    size = layout.element.activation * layout.tokens * design.workload.hidden
    # A layer whose norms are split counts in full, or only the layers before the boundary of a stage.
    at_boundaries = m.sequence_parallel == float(SequenceParallel.at_stage_boundaries)
    split = jnp.where(at_boundaries, boundary_layers(design), layout.split)
    whole = 2.0 * (1.0 - split)

    def message(name: str, kind: MessageKind, count: Scalar, window: Window, repeated: bool = False) -> Message:
        return Message(
            name, kind, Dimension.tensor, Scope.layer, layout.groups.tp, size, count, window=window,
            repeated=repeated, sums=kind != _ALL_GATHER,
        )  # fmt: skip

    forward, gradient = Window.matrix_forward, Window.matrix_weight_gradient
    return [
        message("forward_all_reduce", _ALL_REDUCE, whole, forward, repeated=True),
        message("forward_all_gather", _ALL_GATHER, 2.0 * split, forward, repeated=True),
        message("forward_reduce_scatter", _REDUCE_SCATTER, 2.0 * split, forward, repeated=True),
        message("inputs_all_gather", _ALL_GATHER, trained * gathers_again(m), Window.matrix_input_gradient),
        message("backward_all_reduce", _ALL_REDUCE, trained * whole, gradient),
        message("backward_all_gather", _ALL_GATHER, trained * 2.0 * split, gradient),
        message("backward_reduce_scatter", _REDUCE_SCATTER, trained * 2.0 * split, gradient),
    ]


def boundary_layers(design: Design) -> Scalar:
    """Share of the layers that end a model chunk at the boundary of a stage: one a chunk, none without a pipeline.

    A chunk of the embedding or of the loss alone has no layer.
    """
    m = design.mapping
    return jnp.where(m.pp > 1.0, jnp.minimum(m.pp * m.virtual_stages / design.workload.n_layers, 1.0), 0.0)


def gathers_again(mapping: Mapping) -> Scalar:
    """Inputs of a layer's first matrices that the backward gathers again: two, or those not kept whole."""
    kept = jnp.where(mapping.recompute == float(Recompute.selective), 1.0, 0.0)
    split = SequenceParallel
    by_choice: dict[SequenceParallel, Scalar] = {split.gather_again: 2.0, split.keep_gathered: kept}
    return choose(mapping.sequence_parallel, by_choice)


def embedding_and_head_messages(design: Design, layout: Layout) -> list[Message]:
    """Sums of ``T h`` over tp: of the look-up forward, of the head's input backward.

    A split sequence is scattered behind the look-up and gathered again in its backward; before the head it is
    gathered, in its backward gathered again and scattered.
    """
    size = layout.element.activation * layout.tokens * design.workload.hidden
    split = jnp.where(layout.split > 0.0, 1.0, 0.0)
    trained = design.workload.backward

    def message(scope: Scope, name: str, kind: MessageKind, count: Scalar) -> Message:
        count = layout.has_vocabulary * count
        return Message(name, kind, Dimension.tensor, scope, layout.groups.tp, size, count)

    return [
        message(Scope.embedding, "embedding_all_reduce", _ALL_REDUCE, 1.0 - split),
        message(Scope.embedding, "embedding_reduce_scatter", _REDUCE_SCATTER, split),
        message(Scope.embedding, "embedding_all_gather", _ALL_GATHER, split),
        message(Scope.head, "head_all_reduce", _ALL_REDUCE, trained * (1.0 - split)),
        message(Scope.head, "head_all_gather", _ALL_GATHER, trained * 2.0 * split),
        message(Scope.head, "head_reduce_scatter", _REDUCE_SCATTER, trained * split),
    ]


def context_messages(design: Design, layout: Layout) -> list[Message]:
    """Ring attention (Liu et al. 2023): ``c - 1`` steps of keys and values, backward of their gradients too."""
    group, trained = layout.groups.cp, design.workload.backward
    block = 2.0 * layout.element.activation * layout.tokens * layout.kv_width
    steps = group.size - 1.0
    forward, backward = (
        Message("keys_and_values", _SEND, Dimension.context, Scope.layer, group, block, steps,
                window=Window.attention_forward, repeated=True),
        Message("keys_values_and_gradients", _SEND, Dimension.context, Scope.layer, group, block,
                2.0 * trained * steps, window=Window.attention_backward),
    )  # fmt: skip
    return [forward, backward]


def pipeline_messages(design: Design, layout: Layout) -> list[Message]:
    """What crosses the boundary of a stage: ``T h`` activations, or their gradient.

    A split sequence, or one that is split at the boundary, is sent in shares. Else each tp rank sends all of it,
    or its share, which is gathered again (scatter/gather, Narayanan et al. 2021, section 4.1).
    """
    m = design.mapping
    size = layout.element.activation * layout.tokens * design.workload.hidden
    split, shares = m.sequence_parallel > 0.0, design.software.scatter_gather > 0.0
    sent = size / jnp.where(split | shares, m.tp, 1.0)
    gathered = jnp.where(shares & ~split, 1.0, 0.0)

    def message(name: str, kind: MessageKind, group: Group, size: Scalar, count: Scalar) -> Message:
        return Message(name, kind, Dimension.pipeline, Scope.stage_boundary, group, size, count)

    return [
        message("stage_output", _SEND, layout.groups.pp, sent, 1.0),
        message("stage_output_all_gather", _ALL_GATHER, layout.groups.tp, size, gathered),
    ]


def data_messages(design: Design, layout: Layout, parameters: Scalar) -> list[Message]:
    """Gradients and weights between the replicas of ``parameters`` weights.

    Where several copies of the state exist, each share of the gradients is summed over them once a step (hybrid
    sharding: Zhao et al. 2023, section 3.2.2).

    ZeRO 0: one all-reduce of gradients. ZeRO 1: reduce-scatter, then all-gather of the new weights.
    ZeRO 2: a reduce-scatter every micro-batch (under a pipeline it is ZeRO 1, see ``layout.zero_stage``). ZeRO 3:
    also a gather of the weights for every forward and every backward (Rajbhandari et al. 2020), layer by layer
    (and embedding or head): as many messages, each with its own latency and ramp. The forward alone sends its gathers
    of ZeRO 3 only.
    """
    w, m, n = design.workload, design.mapping, layout.n_micro_batches
    stage, trained = layout.zero, design.workload.backward
    gradients = parameters * design.software.gradient_message_bytes
    weights = parameters * layout.element.activation
    pieces = jnp.where(stage >= 3.0, layout.layers + 1.0, 1.0)
    dp, copies, sharded = layout.groups.dp, layout.groups.copies, stage >= 1.0
    # Without ZeRO every replica is a copy, of all of the state.
    every_copy = Group(jnp.where(sharded, copies.size, dp.size), jnp.where(sharded, copies.local, dp.local))
    if copies.share is not None and dp.share is not None:
        every_copy = every_copy._replace(share=jnp.where(sharded, copies.share, dp.share))

    def message(name: str, kind: MessageKind, size: Scalar, times: Scalar, window: Window, group: Group) -> Message:
        return Message(name, kind, Dimension.data, Scope.weights, group, size, times, pieces, window)

    before = jnp.where(stage >= 3.0, n, jnp.where(stage >= 1.0, trained, 0.0))
    again = jnp.where(stage >= 3.0, trained * n, 0.0)
    own_gradients = jnp.where(sharded, gradients / dp.size, gradients)
    scatters = trained * jnp.where(stage >= 2.0, n, jnp.where(stage >= 1.0, 1.0, 0.0))
    forward, backward = Window.stage_forward, Window.stage_backward
    tied = jnp.where((m.pp > 1.0) & (w.tied_embeddings > 0.0), trained, 0.0)
    return [
        message("weights_all_gather", _ALL_GATHER, weights, before, forward, dp),
        message("gradients_all_reduce", _ALL_REDUCE, own_gradients, trained, backward, every_copy),
        message("gradients_reduce_scatter", _REDUCE_SCATTER, gradients, scatters, backward, dp),
        message("weights_all_gather_again", _ALL_GATHER, weights, again, backward, dp),
        # First and last stage sum the gradient of an embedding that they share.
        Message(
            "tied_embedding_exchange", _SEND, Dimension.data, Scope.tied_embedding, layout.groups.pp,
            design.software.gradient_message_bytes * head_parameters(w, m.tp), tied,
        ),
    ]  # fmt: skip


def executions(design: Design, layout: Layout, parameters: Scalar) -> dict[Scope, Scalar]:
    """How often a device sends the messages of a scope in one step, summed over all devices of the system.

    Weights count as devices of the fullest stage, of which the others hold a part.
    """
    w, m = design.workload, design.mapping
    a_stage = layout.n_micro_batches * m.dp * m.cp * m.tp
    return {
        Scope.layer: a_stage * w.n_layers,
        Scope.embedding: a_stage,
        Scope.head: a_stage,
        Scope.stage_boundary: a_stage * (m.pp * m.virtual_stages - 1.0) * (1.0 + w.backward),
        Scope.weights: layout.replicas * parameter_count(w) / parameters,
        Scope.tied_embedding: 2.0 * m.dp * m.cp * m.tp,
    }
