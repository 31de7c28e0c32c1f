"""Messages of a training step as data: kind, group, bytes, count, and the compute that may hide them.

Time, energy and the waterfall are folds over this list. A new kind of parallelism is a few lines here.
Context parallelism has a ring of keys and values, a gather of them, or heads exchanged for sequence.
"""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import choose, nothing, plus, required, times, value_or
from dse.model.formats import operand_bytes
from dse.model.layout import ContextLayout, ExpertLayout, Layout, busiest_rank_ratio
from dse.model.work.adapters import TrainedWeights
from dse.model.work.blocks import attention_of, feed_forward_of
from dse.model.work.parameters import common_parameters, routed_parameters
from dse.model.work.replicas import data_messages, expert_state_messages
from dse.types import (
    AllToAll,
    Design,
    Dimension,
    Experts,
    Group,
    Mapping,
    Message,
    MessageKind,
    Precision,
    Recompute,
    Scalar,
    Scope,
    SequenceParallel,
    Window,
)

_ALL_REDUCE, _ALL_GATHER = MessageKind.all_reduce, MessageKind.all_gather
_REDUCE_SCATTER, _SEND = MessageKind.reduce_scatter, MessageKind.send


def training_messages(
    design: Design, layout: Layout, parameters: Scalar, expert_parameters: Scalar, trained: TrainedWeights
) -> tuple[Message, ...]:
    """Return all messages of a step, each with bytes, group and executions in its scope.

    Args:
        design: the design.
        layout: sizes and groups of the design.
        parameters: of the most loaded device, without routed experts.
        expert_parameters: of routed experts there.
        trained: trained weights.
    """
    return (
        *tensor_messages(design, layout),
        *embedding_and_head_messages(design, layout),
        *context_messages(design, layout),
        *pipeline_messages(design, layout),
        *data_messages(design, layout, parameters, trained),
        *expert_messages(design, layout, expert_parameters, trained),
    )


def tensor_messages(design: Design, layout: Layout) -> list[Message]:
    """Return the messages of tensor parallelism per layer and micro-batch, of ``T h`` activations each.

    Two all-reduces per pass, or with sequence parallelism two all-gathers and reduce-scatters; the backward gathers
    layer inputs that are not kept whole (Korthikanti et al. 2022, section 4.2). Input-gradient messages overlap with
    weight gradients; with frozen matrices they are exposed (Megatron-Core's LinearWithFrozenWeight). Parallel attention
    and feed-forward share an input and its gradient, but each output is summed by itself (MaxText constrains the
    sharding of each; from memory). Latent attention gathers the compressed columns (``LatentAttention.gathered``).
    """
    m, trained = design.mapping, design.workload.backward
    size = layout.element.activation * layout.tokens * design.workload.hidden
    # Split norms: in all layers, or only in those before a stage boundary.
    at_boundaries = m.sequence_parallel == float(SequenceParallel.at_stage_boundaries)
    split = jnp.where(at_boundaries, boundary_layers(design), layout.split)
    # Routed experts use the rows of a split sequence, a shared expert gathers the sequence like a dense layer.
    sums = 1.0 + layout.experts.gathers
    # In parallel blocks both parts share an input; outputs are summed one by one.
    serial_parts = plus(sums, times(-1.0, times(layout.experts.gathers, value_or(design.workload.parallel_block, 0.0))))
    columns = attention_of(design.workload).gathered
    gathered_inputs = columns + serial_parts - 1.0
    of_attention, of_others = regather_counts(m)
    regathers = columns * of_attention + (serial_parts - 1.0) * of_others
    if not design.workload.trains_all:  # inputs are gathered in the backward for weight gradients
        regathers = 0.0

    def message(name: str, kind: MessageKind, count: Scalar, window: Window) -> Message:
        tp, sums = layout.groups.tp, kind is not _ALL_GATHER
        return Message(name, kind, Dimension.tensor, Scope.layer, tp, size, count, window=window, sums=sums)

    forward, gradient = Window.matrix_forward, Window.matrix_weight_gradient
    return [
        message("forward_all_reduce", _ALL_REDUCE, sums * (1.0 - split), forward),
        message("forward_all_gather", _ALL_GATHER, gathered_inputs * split, forward),
        message("forward_reduce_scatter", _REDUCE_SCATTER, sums * split, forward),
        message("inputs_all_gather", _ALL_GATHER, trained * regathers, Window.matrix_input_gradient),
        message("backward_all_reduce", _ALL_REDUCE, trained * gathered_inputs * (1.0 - split), gradient),
        message("backward_all_gather", _ALL_GATHER, trained * serial_parts * split, gradient),
        message("backward_reduce_scatter", _REDUCE_SCATTER, trained * gathered_inputs * split, gradient),
    ]


def boundary_layers(design: Design) -> Scalar:
    """Return the share of layers that end a chunk at a stage boundary: one layer per chunk, 0 without a pipeline.

    Chunks of only the embedding or the loss have no layer.
    """
    m = design.mapping
    return jnp.where(m.pp > 1.0, jnp.minimum(m.pp * m.virtual_stages / design.workload.blocks, 1.0), 0.0)


def regather_counts(mapping: Mapping) -> tuple[Scalar, Scalar]:
    """Return the counts of all-gathers in the backward, per layer: of attention's input, and of each other input.

    1 where the input is not stored entirely, else 0.
    """
    outputs = jnp.where(mapping.recompute == float(Recompute.selective_op), 1.0, 0.0)  # are kept, and no input
    selective = jnp.where(mapping.recompute == float(Recompute.selective), 1.0, outputs)
    split = SequenceParallel
    attention: dict[SequenceParallel, Scalar] = {split.gather_again: 1.0, split.keep_gathered: selective}
    other_inputs: dict[SequenceParallel, Scalar] = {split.gather_again: 1.0, split.keep_gathered: outputs}
    return choose(mapping.sequence_parallel, attention), choose(mapping.sequence_parallel, other_inputs)


def embedding_and_head_messages(design: Design, layout: Layout) -> list[Message]:
    """Return the messages per micro-batch of ``T h`` activations over tp: embedding output, head input gradient.

    With sequence parallelism the embedding reduce-scatters, and gathers in its backward; the head gathers, and in its
    backward gathers and reduce-scatters.
    """
    size = layout.element.activation * layout.tokens * design.workload.hidden
    split = jnp.where(layout.split > 0.0, 1.0, 0.0)
    trained = design.workload.backward

    def message(scope: Scope, name: str, kind: MessageKind, count: Scalar) -> Message:
        count = (layout.outputs if scope is Scope.head else layout.has_vocabulary) * count
        return Message(name, kind, Dimension.tensor, scope, layout.groups.tp, size, count)

    return [
        message(Scope.embedding, "embedding_all_reduce", _ALL_REDUCE, 1.0 - split),
        message(Scope.embedding, "embedding_reduce_scatter", _REDUCE_SCATTER, split),
        message(Scope.embedding, "embedding_all_gather", _ALL_GATHER, split),
        message(Scope.head, "head_all_reduce", _ALL_REDUCE, trained * (1.0 - split)),
        message(Scope.head, "head_all_gather", _ALL_GATHER, trained * 2.0 * split),
        message(Scope.head, "head_reduce_scatter", _REDUCE_SCATTER, trained * split),
    ]


def pipeline_messages(design: Design, layout: Layout) -> list[Message]:
    """Return the messages at a stage boundary per micro-batch and direction: ``T h`` activations, or their gradient.

    Split sequences are sent in shares. Otherwise each tp rank sends all, or its share with an all-gather after it
    (scatter/gather, Narayanan et al. 2021, section 4.1).
    """
    m = design.mapping
    size = layout.element.activation * layout.tokens * design.workload.hidden
    split, shares = m.sequence_parallel > 0.0, design.software.scatter_gather > 0.0
    sent_bytes = size / jnp.where(split | shares, m.tp, 1.0)
    gathered = jnp.where(split, 0.0, jnp.where(shares, 1.0, 0.0))

    def message(name: str, kind: MessageKind, group: Group, size: Scalar, count: Scalar) -> Message:
        return Message(name, kind, Dimension.pipeline, Scope.stage_boundary, group, size, count)

    return [
        message("stage_output", _SEND, layout.groups.pp, sent_bytes, 1.0),
        message("stage_output_all_gather", _ALL_GATHER, layout.groups.tp, size, gathered),
    ]


def expert_messages(design: Design, layout: Layout, parameters: Scalar, trained_of: TrainedWeights) -> list[Message]:
    """Return the messages of a layer with experts, and of the replicas of ``parameters`` of routed experts.

    Dispatch and combine of tokens, in the backward of their gradients (Lepikhin et al. 2021, section 3). Members of one
    expert (etp) gather each other's rows, and scatter the sums. Time is that of the busiest rank, energy of the mean
    one.
    """
    w, experts = design.workload, layout.experts
    if nothing(experts.rows):
        return []
    act, trained = layout.element.activation, w.backward
    rows = act * experts.rows * w.hidden

    def message(name: str, kind: MessageKind, size: Scalar, times: Scalar, forward: bool) -> Message:
        group = experts.ep if kind is MessageKind.all_to_all else experts.etp
        window = Window.experts_forward if forward else Window.experts_backward
        sent = Message(name, kind, Dimension.expert, Scope.expert_layer, group, size, times, window=window)
        return sent._replace(mean_share=experts.mean_share)

    exchanges, link_share = [], exchange_link_share(design)
    for name, element in {"dispatch": dispatch_bytes(design, layout), "combine": act}.items():
        intra_domain, inter_domain = (element * w.hidden * tokens for tokens in tokens_sent(design, experts))
        for suffix, count, forward in (("", 1.0, True), ("_backward", trained, False)):
            exchange = message(name + suffix, MessageKind.all_to_all, intra_domain, count, forward)
            exchanges.append(exchange._replace(inter_domain=inter_domain, link_share=link_share))
    return [
        *exchanges,
        message("rows_all_gather", _ALL_GATHER, rows, 1.0, True),
        message("rows_reduce_scatter", _REDUCE_SCATTER, rows, 1.0, True),
        message("rows_all_gather_backward", _ALL_GATHER, rows, trained, False),
        message("rows_reduce_scatter_backward", _REDUCE_SCATTER, rows, trained, False),
        *expert_state_messages(design, layout, parameters, trained_of),
    ]


def dispatch_bytes(design: Design, layout: Layout) -> Scalar:
    """Return the bytes per element sent to experts, with its share of a scale where it is narrower than activations."""
    mapping, act = required(design.mapping.experts, "mapping.experts"), layout.element.activation
    narrow = mapping.dispatch_precision != float(Precision.bf16)
    return jnp.where(narrow, jnp.minimum(operand_bytes(mapping.dispatch_precision), act), act)


def exchange_link_share(design: Design) -> Scalar:
    """Return the share of link bandwidth that exchange kernels reach, 0 for exchanges by library or without a value."""
    mapping, kernels = required(design.mapping.experts, "mapping.experts"), design.software.experts
    if kernels is None or kernels.exchange_efficiency is None:
        return 0.0
    is_library = (mapping.all_to_all == float(AllToAll.pairwise)) | (mapping.all_to_all == float(AllToAll.gather))
    return jnp.where(is_library, 0.0, kernels.exchange_efficiency)


def tokens_sent(design: Design, layout: ExpertLayout) -> tuple[Scalar, Scalar]:
    """Return the counts of token copies that a device sends within its domain, and to others, per exchange."""
    experts = required(design.workload.experts, "workload.experts")
    mapping = required(design.mapping.experts, "mapping.experts")
    tokens = layout.sent_rows / experts.top_k * busiest_rank_ratio(experts)
    intra_copies, inter_copies = copies_sent(mapping.all_to_all, layout.ep, experts, experts.top_k)
    return tokens * intra_copies, tokens * inter_copies


def copies_sent(flavour: Scalar, group: Group, experts: Experts, pairwise: Scalar) -> tuple[Scalar, Scalar]:
    """Return the counts of copies of a token sent to other members in the same domain, and to other domains.

    Pairwise, and gathered: of the copies, one per expert or per device, ``(P - local) / P`` leave the domain. By node:
    one copy to each other domain used, forwarded there to every other device used.
    """
    copies = jnp.where(flavour == float(AllToAll.pairwise), pairwise, members_copied(flavour, group.size, experts))
    by_node = flavour == float(AllToAll.by_node)
    intra_copies = copies * (group.local - 1.0) / jnp.where(by_node, group.local, group.size)
    domain_copies = members_hit(group.domains, experts) * (group.domains - 1.0) / group.domains
    return intra_copies, jnp.where(by_node, domain_copies, copies * (group.size - group.local) / group.size)


def members_copied(flavour: Scalar, members: Scalar, experts: Experts) -> Scalar:
    """Return the count of members that get one copy of a token: all, or those used (:func:`members_hit`)."""
    return jnp.where(flavour == float(AllToAll.gather), members, members_hit(members, experts))


def members_hit(members: Scalar, experts: Experts) -> Scalar:
    """Return the expected count of ``members`` (equal shares of experts) that a token uses: ``n (1 - (1 - 1 / n)^k)``.

    ``n`` are all members, or those with one of ``g`` of ``G`` groups of experts (DeepSeek-AI 2024, section 2.1.2).
    Fewer members than groups hold ``c = G / P`` each, of which a token uses ``h`` in all, drawn without replacement: it
    misses a member with ``(1 - h / (G - (c - 1) / 2))^c``, the hypergeometric share within 0.01.
    """
    n_groups, limit = experts.n_groups, jnp.maximum(experts.group_limit, 1.0)
    per_member = jnp.maximum(n_groups / members, 1.0)
    groups_hit = distinct_draws(limit, experts.top_k)
    missed = jnp.maximum(1.0 - groups_hit / (n_groups - 0.5 * (per_member - 1.0)), 0.0) ** per_member
    spread = distinct_draws(jnp.maximum(limit * members / n_groups, 1.0), experts.top_k)
    grouped = jnp.where(members < n_groups, members * (1.0 - missed), spread)
    return jnp.where(experts.group_limit > 0.0, grouped, distinct_draws(members, experts.top_k))


def distinct_draws(members: Scalar, draws: Scalar) -> Scalar:
    """Return the expected count of distinct members among ``draws`` with replacement: ``n (1 - (1 - 1 / n)^k)``.

    Experts are drawn without replacement, so that devices with several experts count a few per cent too low.
    """
    return members * (1.0 - (1.0 - 1.0 / members) ** draws)


def executions(
    design: Design, layout: Layout, parameters: Scalar, expert_parameters: Scalar = 0.0
) -> dict[Scope, Scalar]:
    """Return scope → executions of its messages per step, summed over all devices of the system.

    Weights count in devices of the most loaded stage, of which the others hold a part.
    """
    w, m = design.workload, design.mapping
    stage_runs = layout.n_micro_batches * m.dp * m.cp * m.tp
    borders = m.pp * m.virtual_stages - 1.0
    # Two chunks per device along the stages and back: one border lies within a device.
    borders = plus(borders, times(-1.0, times(layout.pipeline.folded, m.virtual_stages - 1.0)))
    expert_parameter_copies = times(layout.experts.holders, routed_parameters(w))
    return {
        Scope.expert_layer: times(stage_runs, feed_forward_of(w).layers(0.0, lambda: 1.0)),
        # 0 where all layers are dense.
        Scope.expert_weights: times(expert_parameter_copies, 1.0 / jnp.maximum(expert_parameters, 1.0)),
        Scope.layer: stage_runs * w.blocks,
        Scope.embedding: stage_runs,
        Scope.head: stage_runs,
        Scope.stage_boundary: stage_runs * borders * (1.0 + w.backward),
        Scope.weights: layout.replicas * common_parameters(w) / parameters,
        Scope.tied_embedding: 2.0 * m.dp * m.cp * m.tp,
    }


def context_messages(design: Design, layout: Layout) -> list[Message]:
    """Return the messages of context parallelism per layer, by default of ring attention (Liu et al. 2023).

    A ring has ``c - 1`` steps of keys and values, in the backward of their gradients too.
    """
    act = layout.element.activation
    if layout.context.is_named:
        return exchanged_messages(design, layout, layout.context)
    block = act * layout.tokens * layout.keys_and_values
    return _ring(layout.groups.cp, block, layout.groups.cp.size - 1.0, design.workload.backward)


def _ring(group: Group, block_bytes: Scalar, steps: Scalar, trained: Scalar) -> list[Message]:
    """Return two messages of a ring of keys and values per layer, sends of ``block_bytes`` forward and backward."""

    def message(name: str, count: Scalar, window: Window) -> Message:
        return Message(name, _SEND, Dimension.context, Scope.layer, group, block_bytes, count, window=window)

    return [
        message("keys_and_values", steps, Window.attention_forward),
        message("keys_values_and_gradients", 2.0 * trained * steps, Window.attention_backward),
    ]


def exchanged_messages(design: Design, layout: Layout, context: ContextLayout) -> list[Message]:
    """Return the messages of the exchange that the mapping names, per layer and micro-batch.

    All-to-all of heads for sequence: queries, keys and values before attention, its output after it, and their
    gradients in the backward; a rank sends all but its own share. All-gather: keys and values before attention, again
    in the backward, which also reduce-scatters their gradients.
    """
    trained, act, m = design.workload.backward, layout.element.activation, design.mapping
    heads, keys_and_values = context.head_exchange, layout.keys_and_values
    # Ranks beyond the key/value heads hold copies of a head, which multiply the bytes of keys and values.
    copies = context.kv_heads * heads.size / layout.kv_heads
    sent_bytes = act * layout.tokens * (layout.query_width + copies * keys_and_values + layout.context_width)
    block = act * layout.tokens * copies * keys_and_values
    gathered_bytes = act * layout.tokens * m.cp * keys_and_values
    exchanges = jnp.where(heads.size > 1.0, 1.0, 0.0)

    def message(name: str, kind: MessageKind, size: Scalar, times: Scalar, forward: bool) -> Message:
        group = heads if kind is MessageKind.all_to_all else layout.groups.cp
        window = Window.before_attention if forward else Window.before_attention_backward
        sums = kind is _REDUCE_SCATTER
        return Message(name, kind, Dimension.context, Scope.layer, group, size, times, window=window, sums=sums)

    exchange, gather = MessageKind.all_to_all, _ALL_GATHER
    return [
        *_ring(context.ring, block, (1.0 - context.gathers) * (context.ring.size - 1.0), trained),
        message("heads_for_sequence", exchange, sent_bytes, exchanges, True),
        message("heads_for_sequence_backward", exchange, sent_bytes, trained * exchanges, False),
        message("keys_values_all_gather", gather, gathered_bytes, context.gathers, True),
        message("keys_values_all_gather_again", gather, gathered_bytes, trained * context.gathers, False),
        message("keys_values_reduce_scatter", _REDUCE_SCATTER, gathered_bytes, trained * context.gathers, False),
    ]
