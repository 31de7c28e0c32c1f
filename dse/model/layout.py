"""A design laid out on its devices: what one device holds of it, and which devices talk to each other.

A group of ``P`` members has ``q`` of them in one scale-up domain and spans ``P / q`` domains; which these are
follows from the order in which the parallel dimensions are placed.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import ceiling, divides, even_part, least, power_of_two
from dse.model.formats import activation_bytes, cast_reads, operand_bytes
from dse.types import (
    Attention,
    Design,
    Element,
    Group,
    Mapping,
    Placement,
    Pods,
    Recompute,
    Scalar,
    SequenceParallel,
    Software,
)

#: Levels of recompute of a mixture of experts, each with all of those before.
EXPERT_LEVELS = (Recompute.norms, Recompute.expert_inner, Recompute.expert_block)


class Groups(NamedTuple):
    """The communicators of a mapping."""

    tp: Group
    cp: Group
    dp: Group  # replicas of one weight that share its state with ZeRO, dp x cp / dp_replicate
    copies: Group  # devices that hold the same share of the state
    pp: Group  # two neighbouring stages


class ExpertLayout(NamedTuple):
    """Sizes of a mixture of experts on one device, for one layer and one micro-batch."""

    sent: Scalar  # routed rows of the device's own tokens: T k, / t under a split sequence
    rows: Scalar  # routed rows that its experts get: those of all etp members, as many as the busiest rank has
    local: Scalar  # experts of a device
    ffn: Scalar  # width of one of them
    shared: Scalar  # width of the shared expert
    first: Scalar  # layers of the first stage that have a dense feed-forward
    ep: Group
    etp: Group
    replicas: Group  # devices that hold the same experts: tp cp dp / (ep etp)
    again: dict[int, Scalar]  # level of recompute → 1 where the backward runs again what it says, or a later one

    @property
    def has_shared(self) -> Scalar:
        """1 where there is a shared expert."""
        return jnp.minimum(self.shared, 1.0)


class StageLayers(NamedTuple):
    """Layers of the stages of a pipeline and of their chunks, in which the ends may have fewer than the others."""

    fullest: Scalar  # layers of the fullest stage
    chunks: Scalar  # layers of a stage whose chunks all have as many as the fullest one
    short_first: Scalar  # 1 where the first chunk has a layer less than the fullest, else 0
    short_last: Scalar  # the same of the last chunk
    others: Scalar  # layers that the other stages have less than the fullest, all together

    @property
    def first_lacks(self) -> Scalar:
        """Layers that the first stage has less than the fullest one."""
        return self.short_first - (self.chunks - self.fullest)

    @property
    def last_lacks(self) -> Scalar:
        """The same of the last stage."""
        return self.short_last - (self.chunks - self.fullest)


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
    full: Scalar  # 1 when the backward runs whole layers again, or the share of them that it does
    selective: Scalar  # 1 when it runs the attention core again
    selective_op: Scalar  # 1 when it runs all again but the operators whose outputs are kept
    value_width: Scalar | None = None  # heads x size of a value, where it has another size than a key
    experts: ExpertLayout | None = None  # of a mixture of experts

    @property
    def keys_and_values(self) -> Scalar:
        """Columns of keys and values."""
        return 2.0 * self.kv_width if self.value_width is None else self.kv_width + self.value_width

    @property
    def context_width(self) -> Scalar:
        """Columns of the attention's output."""
        return self.query_width if self.value_width is None else self.value_width

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
    stages = stage_layers(w.n_layers, m.pp, m.virtual_stages)
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
        replicas=m.dp * m.cp,
        devices=m.tp * m.cp * m.pp * m.dp,
        groups=in_pods(groups(m, design.system.scale_up.domain), m, design.system.scale_out.pods),
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
        has_vocabulary=jnp.minimum(w.vocab, 1.0),
        full=w.backward * _is(m.recompute, Recompute.full) * m.recompute_share,
        selective=w.backward * _is(m.recompute, Recompute.selective),
        selective_op=w.backward * _is(m.recompute, Recompute.selective_op),
        value_width=None if w.latent is None else heads * w.latent.v_dim,
        experts=lay_out_experts(design, norm_tokens, stages),
    )


def lay_out_experts(design: Design, tokens: Scalar, stages: StageLayers) -> ExpertLayout | None:
    """Sizes and groups of the experts of a design that has any, for so many tokens of a device.

    Members of an expert are neighbours, then those of ep, then copies, over the devices of a stage.
    """
    experts, m = design.workload.experts, design.mapping
    if experts is None or m.experts is None:
        return None
    ep, etp = m.experts.ep, m.experts.etp
    domain, copies = stage_domain(m, design.system.scale_up.domain), m.tp * m.cp * m.dp / (ep * etp)
    return ExpertLayout(
        sent=tokens * experts.top_k,
        rows=tokens * experts.top_k * etp * experts.imbalance,
        local=experts.n_experts / ep,
        ffn=experts.expert_ffn / etp,
        shared=experts.shared_ffn / m.tp,
        first=jnp.minimum(experts.first_dense, stages.fullest - stages.first_lacks),
        ep=Group(ep, members_within(ep, etp, domain)),
        etp=Group(etp, members_within(etp, 1.0, domain)),
        replicas=Group(copies, members_within(copies, ep * etp, domain)),
        again={level: design.workload.backward * jnp.where(m.recompute >= level, 1.0, 0.0) for level in EXPERT_LEVELS},
    )


def stage_domain(mapping: Mapping, domain: Scalar) -> Scalar:
    """Devices of one stage in a scale-up domain of so many: all, or where stages lie inside dp those of its rows."""
    inner = mapping.tp * mapping.cp
    rows = jnp.maximum(jnp.floor(domain / (inner * mapping.pp)), 1.0)
    inside = jnp.minimum(domain, inner * rows)
    return jnp.where(mapping.placement == float(Placement.tp_cp_pp_dp), inside, domain)


def _is(code: Scalar, choice: int) -> Scalar:
    return jnp.where(code == float(choice), 1.0, 0.0)


def stage_layers(n_layers: Scalar, pp: Scalar, virtual_stages: Scalar) -> StageLayers:
    """How the layers spread over ``p`` stages of ``v`` chunks: at most ``ceil(L / (p v))`` in a chunk.

    Of chunks with a layer less than that the last is the first one, for its head and loss, then the first, for its
    embedding (Megatron-LM's account_for_loss_in_pipeline_split and account_for_embedding_in_pipeline_split; Llama team
    2024, section 3.3.2). More of them run only where they are whole stages. Two stages that both have a short chunk
    are equal.
    """
    chunks = virtual_stages * most_layers(n_layers, pp * virtual_stages)
    spare = pp * chunks - n_layers
    both = jnp.clip(spare - 1.0, 0.0, 1.0)
    return StageLayers(
        fullest=chunks - jnp.where(pp == 2.0, both, 0.0),
        chunks=chunks,
        short_first=both,
        short_last=jnp.minimum(spare, 1.0),
        others=jnp.maximum(spare - 2.0, 0.0),
    )


def most_layers(n_layers: Scalar, parts: Scalar) -> Scalar:
    """Layers of the fullest part: ``ceil(L / parts)``.

    Where ``parts`` is constant a compiler may multiply by its reciprocal: 21 sevenths are then a little over 3.
    """
    return ceiling(n_layers / parts * (1.0 - 2.0**-21))


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


# Groups


def groups(mapping: Mapping, domain: Scalar) -> Groups:
    """Communicators of a mapping in scale-up domains of so many devices; the innermost dimension has stride 1."""
    tp, cp, pp, dp = mapping.tp, mapping.cp, mapping.pp, mapping.dp
    dp_stride, pp_stride = strides(mapping)
    copies = mapping.dp_replicate
    shards, local_cp = dp / copies, members_within(cp, tp, domain)
    return Groups(
        tp=Group(tp, members_within(tp, 1.0, domain)),
        cp=Group(cp, local_cp),
        dp=Group(shards * cp, local_cp * members_within(shards, dp_stride, domain)),
        # All or none of these: one stage that leaves its domain sets the pace, and copies are apart by whole shards.
        copies=Group(copies, jnp.where(dp_stride * dp <= domain, copies, 1.0)),
        pp=Group(2.0, jnp.where(pp_stride * pp <= domain, 2.0, 1.0)),
    )


def strides(mapping: Mapping) -> tuple[Scalar, Scalar]:
    """Devices from a member of a data parallel group to the next, and from a stage to the next."""
    inner, outermost = mapping.tp * mapping.cp, mapping.placement == float(Placement.tp_cp_pp_dp)
    return jnp.where(outermost, inner * mapping.pp, inner), jnp.where(outermost, inner, inner * mapping.dp)


def in_pods(found: Groups, mapping: Mapping, pods: Pods | None) -> Groups:
    """Groups with the share of their scale-out bandwidth that an over-subscribed level above pods leaves them.

    Members ``s`` devices apart are ``m = max(P / s, 1)`` to a pod of ``P`` (shards: ``c m``, context parallelism lies
    inside). A ring leaves a pod once, and as many rings as a pod has groups share what leads out of it, ``1 / o`` of
    its links: each member has ``min(m / o, 1)`` of its own. A group within one pod has all of it. Groups of tp and cp
    are taken to be within pods.
    """
    if pods is None:
        return found
    whole, above = pods.size, 1.0 / pods.oversubscription
    dp_stride, pp_stride = strides(mapping)
    dp_extent = dp_stride * mapping.dp
    shards_extent = dp_extent / mapping.dp_replicate

    def share(alone: Scalar, stride: Scalar, extent: Scalar) -> Scalar:
        """Of a member's bandwidth: ``alone`` where one position of its group lies in a pod."""
        leaving = least(alone * jnp.maximum(whole / stride, 1.0), 1.0)
        return jnp.where(extent > whole, leaving, 1.0)

    return found._replace(
        dp=found.dp._replace(share=share(mapping.cp * above, dp_stride, shards_extent)),
        copies=found.copies._replace(share=share(above, shards_extent, dp_extent)),
        pp=found.pp._replace(share=share(above, pp_stride, pp_stride * mapping.pp)),
    )


def members_within(size: Scalar, stride: Scalar, domain: Scalar) -> Scalar:
    """How many of ``size`` members placed ``stride`` devices apart share a domain.

    All of them where they fit. Else groups are aligned to domains, as schedulers place them: a domain takes as many
    members as divide the group, and may leave devices to others (of 72 in a rack, 64 serve groups of 16).
    """
    return largest_divisor(size, jnp.maximum(jnp.floor(domain / stride), 1.0))


def largest_divisor(whole: Scalar, most: Scalar) -> Scalar:
    """The largest divisor of ``whole`` up to ``most`` (1 or more) among ``f 2^i`` with f = 1, 3 and the odd part.

    That is the largest of all where the odd part of ``whole`` is 1, 3, 9 or a prime; it grows with ``most``. Whole
    numbers held in floats, below 2^24.
    """
    even, most_even = even_part(whole), power_of_two(most)
    odd = whole / even
    # The largest power of two whose triple is within ``most``; below 1 there is none.
    third = jnp.where(most >= 1.5 * most_even, 0.5, 0.25) * most_even
    triple = jnp.where(divides(3.0, odd) & (third >= 1.0), 3.0 * jnp.minimum(even, third), 1.0)
    with_odd = jnp.where(odd <= most, odd * jnp.minimum(even, power_of_two(most / odd)), 1.0)
    return jnp.maximum(jnp.maximum(jnp.minimum(even, most_even), triple), with_odd)
