"""Layout of a design: sizes per device, and communicators."""

from __future__ import annotations

from collections import abc
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp

from dse.model import links
from dse.model.choice import divides, min_prefer_first, plus, times, where_on
from dse.model.formats import activation_bytes, cast_reads, operand_bytes, transposed_casts
from dse.model.groups import Groups, communicators, exchange_share, in_a_row, ring_shares, stage_domain
from dse.model.stage_layers import PipelineLayout, StageLayers, chunk_layers, folded_stages, schedule_layout
from dse.types import (
    Attention,
    ContextExchange,
    Design,
    Dimension,
    Element,
    Experts,
    Group,
    Mapping,
    Recompute,
    Scalar,
    SequenceParallel,
    Software,
)

#: Levels of expert recompute, each including those before.
EXPERT_LEVELS = (Recompute.norms, Recompute.expert_inner, Recompute.expert_block)


class Recomputed(NamedTuple):
    """Forward passes of a layer that the backward repeats."""

    full: Scalar = 0.0  # whole layers, or the share of them with full recompute
    core: Scalar = 0.0  # 1 for the attention core (selective)
    operators: Scalar = 0.0  # 1 for all operators but those with stored outputs
    levels: abc.Mapping[int, Scalar] = MappingProxyType({})  # level of experts → 1 where it, or a later one, is active

    @property
    def forwards(self) -> Scalar:
        """Count of repeated forward passes of a layer with its small kernels."""
        return plus(self.full, self.operators)

    def sends(self, dimension: Dimension) -> Scalar:
        """Return how often the backward repeats forward messages of ``dimension``.

        1 where the operators that need them are recomputed.
        """
        by_dimension = {Dimension.context: self.core, Dimension.expert: self.levels.get(Recompute.expert_block, 0.0)}
        return plus(self.full, by_dimension.get(dimension, 0.0))


#: Without recompute.
NEVER = Recomputed()


class ExpertLayout(NamedTuple):
    """Sizes of a mixture of experts per device, layer and micro-batch."""

    sent_rows: Scalar  # routed rows of the device's own tokens: T k, / t with a split sequence
    rows: Scalar  # routed rows of its experts, on the busiest rank, those of all etp members
    mean_share: Scalar  # rows of the mean rank over those of the busiest
    local: Scalar  # experts per device
    ffn: Scalar  # width of an expert
    shared: Scalar  # width of the shared expert
    first: Scalar  # layers of the first stage with a dense feed-forward
    dense_share: Scalar  # share of the layers after those that are dense too
    ep: Group
    etp: Group
    replicas: Group  # devices that share the state of the same experts: tp cp dp / (ep etp dp_replicate)
    copies: Group  # devices with the same share of it
    gathers: Scalar = 1.0  # feed-forward inputs per layer that tp gathers: of a mixture that of its shared expert
    holders: Scalar = 0.0  # devices with the same experts, or a share of their state
    first_dense_layers: Scalar = 0.0  # first layers of the model with a dense feed-forward


#: Of a dense model.
_SINGLE = Group(1.0, 1.0)
NO_EXPERTS = ExpertLayout(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, _SINGLE, _SINGLE, _SINGLE, _SINGLE)


class Partitions(NamedTuple):
    """Partitions of the data-parallel replicas for ZeRO 3, and the groups across them."""

    weights: Group
    gradients: Group
    weights_across: Group  # devices with the same share of the weights
    gradients_across: Group


class Sharers(NamedTuple):
    """Data-parallel ranks that hold a part of the model once, each a slice, and compute it for the tokens of all."""

    dense: Scalar = 1.0  # dense feed-forwards
    shared: Scalar = 1.0  # shared experts
    head: Scalar = 1.0


#: Of a mapping whose tp groups hold all but the routed experts.
NO_SHARERS = Sharers()


class ContextLayout(NamedTuple):
    """Exchange of context parallelism, by default a ring."""

    head_exchange: Group  # neighbouring ranks that exchange heads for sequence
    ring: Group  # ranks that pass on keys and values
    gathers: Scalar  # 1 where keys and values are gathered instead
    kv_heads: Scalar  # key/value heads per rank in attention, at least 1
    is_named: bool = True  # whether the mapping names its exchange


class Layout(NamedTuple):
    """Sizes per device, layer and micro-batch, and communicators."""

    tokens: Scalar  # b s / c, rows of every linear layer
    norm_tokens: Scalar  # rows of norms, dropout and residuals: / t with sequence parallelism
    heads: Scalar  # query heads
    kv_heads: Scalar  # key/value heads, at least 1
    query_width: Scalar  # heads x head size
    kv_width: Scalar  # key/value heads x head size
    ffn: Scalar  # feed-forward width
    vocab: Scalar  # vocabulary rows
    stages: StageLayers
    zero: Scalar  # effective ZeRO stage
    n_micro_batches: Scalar
    replicas: Scalar  # devices with the same weights, or a share of them: dp x cp
    devices: Scalar
    groups: Groups
    element: Element
    flash: Scalar  # 1 for flash attention
    fused: Scalar  # 1 for fused element-wise chains
    eager: Scalar  # 1 for a softmax of single kernels in unfused attention
    split: Scalar  # 1 where norms, dropout and residuals split the sequence over tp
    has_vocabulary: Scalar  # 1 with an embedding and a head
    outputs: Scalar  # heads with losses: 0 or 1, and one per token of multi-token prediction
    recompute: Recomputed
    value_width: Scalar  # columns of values
    context_width: Scalar  # columns of the attention output
    experts: ExpertLayout
    context: ContextLayout
    pipeline: PipelineLayout
    partitions: Partitions | None = None  # of ZeRO 3 over parts of the replicas
    sharers: Sharers = NO_SHARERS

    @property
    def ring(self) -> Scalar:
        """Steps of a ring over all keys and values, 1 where they are gathered."""
        return where_on(self.context.gathers, 1.0, self.context.ring.size)

    @property
    def keys_and_values(self) -> Scalar:
        """Columns of keys and values per device."""
        return self.kv_width + self.value_width

    @property
    def layers(self) -> Scalar:
        """Count of layers of the largest stage."""
        return self.stages.fullest


def lay_out(design: Design) -> Layout:
    """Return the sizes per device, layer and micro-batch, and the communicators of a design."""
    w, m, software = design.workload, design.mapping, design.software
    tokens = m.micro_batch * w.seq_len / m.cp
    heads = w.n_heads / m.tp
    kv_heads = jnp.maximum(w.n_kv_heads / m.tp, 1.0)
    split = splits_sequence(m.sequence_parallel)
    norm_tokens = tokens / jnp.where(split > 0.0, m.tp, 1.0)
    has_vocabulary = jnp.minimum(w.vocab, 1.0)
    schedule, groups = schedule_layout(m), communicators(m, design.system, schedule_layout(m).copies)
    stages = folded_stages(chunk_layers(w, m), m.pp, schedule)
    value_width: Scalar = kv_heads * w.head_dim
    context_width: Scalar = heads * w.head_dim
    if w.latent is not None:  # every head has its own keys and values
        value_width = context_width = heads * w.latent.v_dim
    return Layout(
        tokens=tokens,
        norm_tokens=norm_tokens,
        heads=heads,
        kv_heads=kv_heads,
        query_width=heads * w.head_dim,
        kv_width=kv_heads * w.head_dim,
        ffn=w.ffn_hidden / m.tp,
        vocab=w.vocab / m.tp,
        stages=stages,
        zero=zero_stage(m, software),
        n_micro_batches=w.global_batch / (m.dp * m.micro_batch),
        replicas=times(schedule.copies, m.dp * m.cp),
        devices=m.tp * m.cp * m.pp * m.dp,
        groups=groups,
        element=Element(
            operand=operand_bytes(m.precision),
            activation=activation_bytes(m.precision),
            gradient=software.gradient_bytes,
            cache=design.system.accelerator.cache,
            reads=cast_reads(m.precision),
            transposed_casts=transposed_casts(m.precision),
        ),
        flash=jnp.where(runs_flash(w.head_dim, software), 1.0, 0.0),
        fused=software.fused_elementwise,
        eager=eager_softmax(m.micro_batch * heads, software, runs_flash(w.head_dim, software)),
        split=split,
        has_vocabulary=has_vocabulary,
        outputs=times(has_vocabulary, plus(1.0, w.predicted)),
        recompute=lay_out_recompute(design),
        value_width=value_width,
        context_width=context_width,
        experts=lay_out_experts(design, norm_tokens, stages, schedule),
        context=lay_out_context(design, groups, kv_heads),
        partitions=lay_out_partitions(design, schedule),
        pipeline=schedule,
    )


def lay_out_recompute(design: Design) -> Recomputed:
    """Return the forward passes that a mapping recomputes, as counts of repeats, 0 without a backward."""
    w, m = design.workload, design.mapping
    levels = () if w.experts is None else EXPERT_LEVELS
    return Recomputed(
        full=w.backward * _indicator(m.recompute, Recompute.full) * m.recompute_share,
        core=w.backward * _indicator(m.recompute, Recompute.selective),
        operators=w.backward * _indicator(m.recompute, Recompute.selective_op),
        levels={level: w.backward * jnp.where(m.recompute >= level, 1.0, 0.0) for level in levels},
    )


def lay_out_context(design: Design, groups: Groups, kv_heads: Scalar) -> ContextLayout:
    """Return the groups and key/value heads of the exchange of context parallelism.

    tp is innermost, then exchanges of heads, then rings.
    """
    w, m, exchange = design.workload, design.mapping, design.mapping.context
    if exchange is None:
        return ContextLayout(_SINGLE, groups.cp, 0.0, kv_heads, is_named=False)
    kind, domain = exchange.cp_comm_type, design.system.scale_up.domain
    inner = jnp.where(kind == float(ContextExchange.a2a_p2p), min_prefer_first(exchange.a2a_size, m.cp), 1.0)
    exchange_degree = jnp.where(kind == float(ContextExchange.a2a), m.cp, inner)
    ring = m.cp / exchange_degree
    reach = links.reach_in(design.system, m.tp)
    return ContextLayout(
        head_exchange=in_a_row(exchange_degree, m.tp, domain, reach),
        ring=in_a_row(ring, m.tp * exchange_degree, domain, reach),
        gathers=_indicator(kind, ContextExchange.all_gather),
        kv_heads=jnp.maximum(w.n_kv_heads / (m.tp * exchange_degree), 1.0),
    )


def lay_out_partitions(design: Design, schedule: PipelineLayout) -> Partitions | None:
    """Return the partitions of the replicas for ZeRO 3, of devices at distances of tp; None without ``sharding``."""
    m = design.mapping
    if m.sharding is None:
        return None
    replicas = times(schedule.copies, m.cp * m.dp / m.dp_replicate)
    domain = stage_domain(m, design.system.scale_up.domain)
    zero_3, reach = zero_stage(m, design.software) >= 3.0, links.reach_in(design.system, m.tp)
    ring = ring_shares(design.system.scale_out.pods, m)

    def group_at_stride(size: Scalar, stride: Scalar) -> Group:
        return in_a_row(size, stride, domain, reach)._replace(share=ring(1.0, stride, stride * size))

    def partition_groups(most: Scalar) -> tuple[Group, Group]:
        size = jnp.where(zero_3, min_prefer_first(most, replicas), replicas)
        return group_at_stride(size, m.tp), group_at_stride(replicas / size, m.tp * size)

    weights, weights_across = partition_groups(m.sharding.weights_over)
    gradients, gradients_across = partition_groups(m.sharding.gradients_over)
    return Partitions(weights, gradients, weights_across, gradients_across)


def lay_out_experts(design: Design, tokens: Scalar, stages: StageLayers, schedule: PipelineLayout) -> ExpertLayout:
    """Return the sizes and groups of experts, for ``tokens`` of a device; those of no experts in a dense design.

    Placement over the devices of a stage: members of an expert, then ep, then replicas; etp is assumed within pods.
    """
    experts, m = design.workload.experts, design.mapping
    if experts is None or m.experts is None:
        return NO_EXPERTS
    ep, etp, copies = m.experts.ep, m.experts.etp, m.dp_replicate
    domain, stage = stage_domain(m, design.system.scale_up.domain), m.tp * m.cp * m.dp
    stride, pods = ep * etp, design.system.scale_out.pods
    shards, reach = jnp.maximum(stage / (stride * copies), 1.0), links.reach_in(design.system, m.tp)
    ring, shared, n_replicas = ring_shares(pods, m), experts.shared_ffn / m.tp, times(schedule.copies, shards)
    replicas = in_a_row(shards, stride, domain, reach)._replace(size=n_replicas)
    copies_stride, ep_group = stride * n_replicas, in_a_row(ep, etp, domain, reach)
    if pods is not None:
        to_other_pods = exchange_share(pods, stage_domain(m, pods.size), ep_group, etp)
        # A group within one domain sends nothing to others, so any positive share will do.
        ep_group = ep_group._replace(share=jnp.maximum(to_other_pods, 1e-6))
    return ExpertLayout(
        sent_rows=tokens * experts.top_k,
        rows=tokens * experts.top_k * etp * busiest_rank_ratio(experts),
        mean_share=jnp.where(experts.capacity > 0.0, 1.0, 1.0 / experts.imbalance),
        local=experts.n_experts / ep,
        ffn=experts.expert_ffn / etp,
        shared=shared,
        first=jnp.minimum(experts.first_dense, stages.fullest - stages.first_lacks),
        dense_share=1.0 - 1.0 / experts.moe_every,
        ep=ep_group,
        etp=in_a_row(etp, 1.0, domain, reach),
        replicas=replicas._replace(share=ring(1.0, stride, copies_stride)),
        copies=Group(
            copies,
            jnp.where(stage <= domain, copies, 1.0),
            ring(1.0, copies_stride, copies_stride * copies),
            reach((stage / copies, copies)),
        ),
        gathers=jnp.minimum(shared, 1.0),
        holders=replicas.size * copies,
        first_dense_layers=experts.first_dense,
    )


def with_balanced_experts(layout: Layout) -> Layout:
    """Return the layout with the routed rows of the mean rank of experts in place of the busiest one."""
    experts = layout.experts
    return layout._replace(experts=experts._replace(rows=times(experts.mean_share, experts.rows), mean_share=1.0))


def busiest_rank_ratio(experts: Experts) -> Scalar:
    """Return the ratio of the busiest rank's routed rows to the mean, or the capacity factor where above 0."""
    return jnp.where(experts.capacity > 0.0, experts.capacity, experts.imbalance)


def _indicator(code: Scalar, choice: int) -> Scalar:
    """Return 1 where a code is ``choice``, else 0."""
    return jnp.where(code == float(choice), 1.0, 0.0)


def zero_stage(mapping: Mapping, software: Software) -> Scalar:
    """Return the effective ZeRO stage: under a pipeline 2 runs as 1, and 3 in a stack that does not reshard.

    A stage accumulates the gradients of all its micro-batches and reduces them once a step, so they stay whole until
    then (Megatron-LM's distributed optimizer; DeepSpeed refuses ZeRO 2 and 3 with pipelines). FSDP may also keep its
    weights whole between micro-batches (``reshard_after_forward`` of torchtitan, Llama 3).
    """
    max_first_stage = 3.0 - software.pipeline_resharding
    accumulates = (mapping.pp > 1.0) & (mapping.zero_stage >= 2.0) & (mapping.zero_stage <= max_first_stage)
    return jnp.where(accumulates, 1.0, mapping.zero_stage)


def splits_sequence(choice: Scalar) -> Scalar:
    """Return 1 where this kind of :class:`SequenceParallel` splits norms, dropout and residuals over tp, else 0."""
    is_split = (choice > 0.0) & (choice != float(SequenceParallel.at_stage_boundaries))
    return jnp.where(is_split, 1.0, 0.0)


def runs_flash(head_dim: Scalar, software: Software) -> Scalar:
    """Return whether attention over heads of ``head_dim`` columns is the flash kernel of the stack.

    A kernel may lack wide heads (128 columns at most in flash-attention 2.0.4 for ROCm), which then run unfused.
    """
    is_flash, most = software.attention == float(Attention.flash), software.flash_most_head
    return is_flash if most is None else is_flash & (head_dim <= most)


def eager_softmax(batch: Scalar, software: Software, flash: Scalar) -> Scalar:
    """Return 1 where unfused attention over ``batch`` sequences x heads uses a softmax of single kernels, else 0.

    The fused kernel needs a multiple of its batch (four in Megatron-LM's ``fused_softmax``). ``flash``: whether
    attention is the flash kernel.
    """
    fused = divides(software.softmax_batch, batch) | flash
    return jnp.where(fused, 0.0, 1.0)
