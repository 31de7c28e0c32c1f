"""A design laid out on its devices: what one device holds of it, and which devices it talks to."""

from __future__ import annotations

from collections import abc
from types import MappingProxyType
from typing import NamedTuple

import jax.numpy as jnp

from dse.model import links
from dse.model.choice import divides, min_prefer_first, nothing, plus, times, where_on
from dse.model.formats import activation_bytes, cast_reads, operand_bytes
from dse.model.groups import Groups, in_a_row, members_within, placed, ring_share, stage_domain
from dse.model.stage_layers import PipelineLayout, StageLayers, chunk_layers, folded_stages, named_schedule
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

#: Levels of recompute of a mixture of experts, each with all of those before.
EXPERT_LEVELS = (Recompute.norms, Recompute.expert_inner, Recompute.expert_block)


class Recomputed(NamedTuple):
    """How often the backward runs forwards of a layer again; by default never."""

    full: Scalar = 0.0  # whole layers, or the share of them that it does
    core: Scalar = 0.0  # 1 when it runs the attention core again (selective)
    operators: Scalar = 0.0  # 1 when it runs all again but the operators whose outputs are kept
    levels: abc.Mapping[int, Scalar] = MappingProxyType({})  # level of experts → 1 where it, or a later one, runs

    @property
    def most(self) -> Scalar:
        """Of forwards that are run again but for what is kept of them, small kernels among them."""
        return plus(self.full, self.operators)

    def sends(self, dimension: Dimension) -> Scalar:
        """How often messages of a forward are sent again: once where the operators that wait for them run again."""
        again = {Dimension.context: self.core, Dimension.expert: self.levels.get(Recompute.expert_block, 0.0)}
        return plus(self.full, again.get(dimension, 0.0))


#: Of a forward that no backward runs again.
NEVER = Recomputed()


class ExpertLayout(NamedTuple):
    """Sizes of a mixture of experts on one device, for one layer and one micro-batch."""

    sent: Scalar  # routed rows of the device's own tokens: T k, / t under a split sequence
    rows: Scalar  # routed rows that its experts get: those of all etp members, as many as the busiest rank has
    mean_share: Scalar  # rows of the mean rank over those of the busiest
    local: Scalar  # experts of a device
    ffn: Scalar  # width of one of them
    shared: Scalar  # width of the shared expert
    first: Scalar  # layers of the first stage that have a dense feed-forward
    dense_share: Scalar  # of the layers behind those, which have one too
    ep: Group
    etp: Group
    replicas: Group  # devices that share the state of the same experts: tp cp dp / (ep etp dp_replicate)
    copies: Group  # devices that hold the same share of it
    gathers: Scalar = 1.0  # inputs of a layer's feed-forward that tp gathers: of a mixture that of its shared expert
    holders: Scalar = 0.0  # devices that hold the same experts, or a share of their state
    stated_first: Scalar = 0.0  # first layers of the model that have a dense feed-forward

    @property
    def has_shared(self) -> Scalar:
        """1 where there is a shared expert."""
        return jnp.minimum(self.shared, 1.0)


#: Of a model all of whose layers have a dense feed-forward.
_ALONE = Group(1.0, 1.0)
NO_EXPERTS = ExpertLayout(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, _ALONE, _ALONE, _ALONE, _ALONE)


class Partitions(NamedTuple):
    """Parts of the data parallel replicas that ZeRO 3 splits over, and what joins them."""

    weights: Group
    gradients: Group
    weights_across: Group  # devices that hold the same share of the weights
    gradients_across: Group


class ContextLayout(NamedTuple):
    """How the ranks of context parallelism exchange; in a ring unless the mapping says so."""

    heads_over: Group  # ranks that exchange heads for sequence, neighbours
    ring: Group  # those that pass keys and values round
    gathers: Scalar  # 1 where keys and values are gathered instead
    kv_heads: Scalar  # heads of the keys that a rank has in its attention, one at least
    is_named: bool = True  # whether the mapping names its exchange


class Layout(NamedTuple):
    """Sizes on one device, for one layer and one micro-batch, and the groups it belongs to."""

    tokens: Scalar  # b s / c, rows of every linear layer
    norm_tokens: Scalar  # rows of norms, dropout and residuals: / t with sequence parallelism
    heads: Scalar  # query heads
    kv_heads: Scalar  # key/value heads (at least one)
    query_width: Scalar  # heads x head size
    kv_width: Scalar  # key/value heads x head size
    ffn: Scalar  # feed-forward width
    vocab: Scalar  # vocabulary rows
    stages: StageLayers
    zero: Scalar  # ZeRO stage as it runs
    n_micro_batches: Scalar
    replicas: Scalar  # devices that hold the same weights, or a share of them: dp x cp
    devices: Scalar
    groups: Groups
    element: Element
    flash: Scalar  # 1 for flash attention
    fused: Scalar  # 1 for fused element-wise chains
    eager: Scalar  # 1 when unfused attention runs its softmax as single kernels
    split: Scalar  # 1 when the sequence is split over tp in norms, dropout and residuals
    has_vocabulary: Scalar  # 1 when there is an embedding and a head
    outputs: Scalar  # heads with their losses: 1 or none, and one for each further token that is predicted
    recompute: Recomputed
    value_width: Scalar  # columns of the values of its key/value heads
    context_width: Scalar  # columns of the attention's output
    experts: ExpertLayout
    context: ContextLayout
    pipeline: PipelineLayout
    partitions: Partitions | None = None  # where ZeRO 3 splits over a part of the replicas

    @property
    def ring(self) -> Scalar:
        """Steps in which a device meets all keys and values, 1 where they are there at once."""
        return where_on(self.context.gathers, 1.0, self.context.ring.size)

    @property
    def keys_and_values(self) -> Scalar:
        """Columns of keys and values."""
        return self.kv_width + self.value_width

    @property
    def layers(self) -> Scalar:
        """Layers of the fullest stage."""
        return self.stages.fullest


def lay_out(design: Design) -> Layout:
    """Sizes and groups of a design."""
    w, m, software = design.workload, design.mapping, design.software
    tokens = m.micro_batch * w.seq_len / m.cp
    heads = w.n_heads / m.tp
    kv_heads = jnp.maximum(w.n_kv_heads / m.tp, 1.0)
    split = splits_sequence(m.sequence_parallel)
    norm_tokens = tokens / jnp.where(split > 0.0, m.tp, 1.0)
    has_vocabulary = jnp.minimum(w.vocab, 1.0)
    named, groups = named_schedule(m), placed(m, design.system, named_schedule(m).copies)
    stages = folded_stages(chunk_layers(w, m), m.pp, named)
    value_width: Scalar = kv_heads * w.head_dim
    context_width: Scalar = heads * w.head_dim
    if w.latent is not None:  # every head has keys and values of its own
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
        replicas=times(named.copies, m.dp * m.cp),
        devices=m.tp * m.cp * m.pp * m.dp,
        groups=groups,
        element=Element(
            operand=operand_bytes(m.precision),
            activation=activation_bytes(m.precision),
            gradient=software.gradient_bytes,
            cache=design.system.accelerator.cache,
            reads=cast_reads(m.precision),
        ),
        flash=jnp.where(software.attention == float(Attention.flash), 1.0, 0.0),
        fused=software.fused_elementwise,
        eager=eager_softmax(m.micro_batch * heads, software),
        split=split,
        has_vocabulary=has_vocabulary,
        outputs=times(has_vocabulary, plus(1.0, w.predicted)),
        recompute=lay_out_recompute(design),
        value_width=value_width,
        context_width=context_width,
        experts=experts_in_pods(lay_out_experts(design, norm_tokens, stages, named), design),
        context=lay_out_context(design, groups, kv_heads),
        partitions=lay_out_partitions(design, named),
        pipeline=named,
    )


def lay_out_recompute(design: Design) -> Recomputed:
    """What the mapping has the backward run again."""
    w, m = design.workload, design.mapping
    levels = () if w.experts is None else EXPERT_LEVELS
    return Recomputed(
        full=w.backward * _is(m.recompute, Recompute.full) * m.recompute_share,
        core=w.backward * _is(m.recompute, Recompute.selective),
        operators=w.backward * _is(m.recompute, Recompute.selective_op),
        levels={level: w.backward * jnp.where(m.recompute >= level, 1.0, 0.0) for level in levels},
    )


def lay_out_context(design: Design, groups: Groups, kv_heads: Scalar) -> ContextLayout:
    """Groups of the exchange that a mapping names for context parallelism; tp lies inside, then heads, then rings."""
    w, m, exchange = design.workload, design.mapping, design.mapping.context
    if exchange is None:
        return ContextLayout(_ALONE, groups.cp, 0.0, kv_heads, is_named=False)
    kind, domain = exchange.cp_comm_type, design.system.scale_up.domain
    inner = jnp.where(kind == float(ContextExchange.a2a_p2p), min_prefer_first(exchange.a2a_size, m.cp), 1.0)
    heads_over = jnp.where(kind == float(ContextExchange.a2a), m.cp, inner)
    ring = m.cp / heads_over
    reach = links.reach_in(design.system, m.tp)
    return ContextLayout(
        heads_over=in_a_row(heads_over, m.tp, domain, reach),
        ring=in_a_row(ring, m.tp * heads_over, domain, reach),
        gathers=_is(kind, ContextExchange.all_gather),
        kv_heads=jnp.maximum(w.n_kv_heads / (m.tp * heads_over), 1.0),
    )


def lay_out_partitions(design: Design, named: PipelineLayout) -> Partitions | None:
    """Parts of the replicas over which ZeRO 3 splits weights and gradients; neighbours, tp apart."""
    m = design.mapping
    if m.sharding is None:
        return None
    replicas = times(named.copies, m.cp * m.dp / m.dp_replicate)
    domain = stage_domain(m, design.system.scale_up.domain)
    zero_3, reach = zero_stage(m, design.software) >= 3.0, links.reach_in(design.system, m.tp)
    pods = design.system.scale_out.pods

    def row(size: Scalar, stride: Scalar) -> Group:
        found = in_a_row(size, stride, domain, reach)
        if pods is None:
            return found
        return found._replace(share=ring_share(pods, stage_domain(m, pods.size), 1.0, stride, stride * size))

    def part(most: Scalar) -> tuple[Group, Group]:
        size = jnp.where(zero_3, min_prefer_first(most, replicas), replicas)
        return row(size, m.tp), row(replicas / size, m.tp * size)

    weights, gradients = part(m.sharding.weights_over), part(m.sharding.gradients_over)
    return Partitions(weights[0], gradients[0], weights[1], gradients[1])


def lay_out_experts(
    design: Design, tokens: Scalar, stages: StageLayers, named: PipelineLayout
) -> ExpertLayout:
    """Sizes and groups of the experts of a design, for so many tokens of a device.

    Members of an expert are neighbours, then those of ep, then copies, over the devices of a stage.
    """
    experts, m = design.workload.experts, design.mapping
    if experts is None or m.experts is None:
        return NO_EXPERTS
    ep, etp, copies = m.experts.ep, m.experts.etp, m.dp_replicate
    domain, stage = stage_domain(m, design.system.scale_up.domain), m.tp * m.cp * m.dp
    shards, reach = jnp.maximum(stage / (ep * etp * copies), 1.0), links.reach_in(design.system, m.tp)
    replicas = in_a_row(shards, ep * etp, domain, reach)
    replicas, shared = replicas._replace(size=times(named.copies, replicas.size)), experts.shared_ffn / m.tp
    return ExpertLayout(
        sent=tokens * experts.top_k,
        rows=tokens * experts.top_k * etp * busiest(experts),
        mean_share=jnp.where(experts.capacity > 0.0, 1.0, 1.0 / experts.imbalance),
        local=experts.n_experts / ep,
        ffn=experts.expert_ffn / etp,
        shared=shared,
        first=jnp.minimum(experts.first_dense, stages.fullest - stages.first_lacks),
        dense_share=1.0 - 1.0 / experts.moe_every,
        ep=in_a_row(ep, etp, domain, reach),
        etp=in_a_row(etp, 1.0, domain, reach),
        replicas=replicas,
        copies=Group(copies, jnp.where(stage <= domain, copies, 1.0), reach=reach((stage / copies, copies))),
        gathers=jnp.minimum(shared, 1.0),
        holders=replicas.size * copies,
        stated_first=experts.first_dense,
    )


def experts_in_pods(found: ExpertLayout, design: Design) -> ExpertLayout:
    """Groups of experts with their share of scale-out bandwidth (:func:`in_pods`); etp is taken to be within pods.

    Of what a member of ep sends to all others alike, those in other pods get as much as they are many, over ``1 / o``
    of the links.
    """
    pods, m = design.system.scale_out.pods, design.mapping
    if pods is None or nothing(found.rows):
        return found
    whole, ep, replicas, copies = stage_domain(m, pods.size), found.ep, found.replicas, found.copies
    stride = ep.size * found.etp.size
    others = jnp.maximum(ep.size - members_within(ep.size, found.etp.size, whole), 1.0)
    outside = others * pods.oversubscription * pods.detour
    alike = jnp.where(stride > whole, min_prefer_first((ep.size - ep.local) / outside, 1.0), 1.0)

    def ring(stride: Scalar, size: Scalar) -> Scalar:
        return ring_share(pods, whole, 1.0, stride, stride * size)

    # A group that is alone in its domain sends nothing out of it: any share will do.
    return found._replace(
        ep=ep._replace(share=jnp.maximum(alike, 1e-6)),
        replicas=replicas._replace(share=ring(stride, replicas.size)),
        copies=copies._replace(share=ring(stride * replicas.size, copies.size)),
    )


def with_balanced_experts(layout: Layout) -> Layout:
    """The layout with the rows of the mean rank of experts: all devices together do so much.

    Every rank waits for the busiest one, whose work a step's time is; joules are of what is done.
    """
    experts = layout.experts
    return layout._replace(experts=experts._replace(rows=times(experts.mean_share, experts.rows), mean_share=1.0))


def busiest(experts: Experts) -> Scalar:
    """Routed rows of the busiest rank over the mean: of all ranks as many, where they are cut to a capacity."""
    return jnp.where(experts.capacity > 0.0, experts.capacity, experts.imbalance)


def _is(code: Scalar, choice: int) -> Scalar:
    return jnp.where(code == float(choice), 1.0, 0.0)


def zero_stage(mapping: Mapping, software: Software) -> Scalar:
    """The ZeRO stage that runs: under a pipeline stage 2 is stage 1, and so is 3 in a stack that does not reshard.

    A stage accumulates the gradients of all its micro-batches and reduces them once a step, so they stay whole until
    then (Megatron-LM's distributed optimizer; DeepSpeed refuses ZeRO 2 and 3 with pipelines). FSDP may keep its weights
    whole between micro-batches too (``reshard_after_forward`` of torchtitan, Llama 3).
    """
    as_first = 3.0 - software.pipeline_resharding
    accumulates = (mapping.pp > 1.0) & (mapping.zero_stage >= 2.0) & (mapping.zero_stage <= as_first)
    return jnp.where(accumulates, 1.0, mapping.zero_stage)


def splits_sequence(choice: Scalar) -> Scalar:
    """1 where this choice of :class:`SequenceParallel` splits norms, dropout and residuals over tp, else 0."""
    inside = (choice > 0.0) & (choice != float(SequenceParallel.at_stage_boundaries))
    return jnp.where(inside, 1.0, 0.0)


def eager_softmax(batch: Scalar, software: Software) -> Scalar:
    """1 where unfused attention over ``batch`` sequences x heads falls back on a softmax of single kernels, else 0.

    The fused kernel works on several of them at a time (four in Megatron-LM's ``fused_softmax``).
    """
    fused = divides(software.softmax_batch, batch) | (software.attention == float(Attention.flash))
    return jnp.where(fused, 0.0, 1.0)
