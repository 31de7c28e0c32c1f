"""Work of one step of a serving engine: forward operators, attention over the cache, messages."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model import links
from dse.model.choice import nothing, plus, quotient, times
from dse.model.groups import exchange_share, in_a_row, stage_domain, strides
from dse.model.layout import NO_SHARERS, Layout, Sharers, lay_out, with_balanced_experts
from dse.model.machine.rates import Rates, sixteen_bit_rate
from dse.model.serving.hybrid import hybrid_operators
from dse.model.serving.kernels import engine_rates
from dse.model.serving.policy import busiest_over_mean, copies_in
from dse.model.work.batch import Batch
from dse.model.work.blocks import attention_of, feed_forward_of, shares_of, states_of
from dse.model.work.messages import copies_sent, dispatch_bytes, members_copied, pipeline_messages, tensor_messages
from dse.model.work.operators import Flops, elementwise, matmul_work
from dse.model.work.parameters import main_model
from dse.model.work.transformer import expert_layer_operators, layer_operators
from dse.types import (
    AllToAll,
    Design,
    Dimension,
    Engine,
    Group,
    Mapping,
    Message,
    MessageKind,
    Operator,
    OperatorKind,
    Requests,
    Scalar,
    Scope,
    Serving,
    Window,
    Workload,
)


class Exchange(NamedTuple):
    """All-to-all traffic of a layer: of its experts, or of a part in slices over several data-parallel ranks."""

    group: Group  # ranks whose tokens meet
    intra_domain: Scalar  # bytes per token that a rank sends within its domain, mean of both directions
    inter_domain: Scalar  # the same to other domains


#: Of ranks without a common expert.
NO_EXCHANGE = Exchange(Group(1.0, 1.0), 0.0, 0.0)


class Stage(NamedTuple):
    """A stage of the engine, independent of the batch."""

    design: Design  # as one forward pass
    layout: Layout  # for one token
    rates: Rates
    exchange: Exchange  # of experts


class Rank(NamedTuple):
    """One data-parallel rank with its requests and engine."""

    stage: Stage  # any of its stages
    experts_dp: Scalar  # ranks whose tokens meet in the same experts
    requests: Requests
    serving: Serving
    engine: Engine


class StepWork(NamedTuple):
    """Work of a stage in one engine step."""

    layer: tuple[Operator, ...]
    dense_layer: tuple[Operator, ...]  # layer without experts of a mixture
    head: tuple[Operator, ...]  # and what draws tokens from its logits
    messages: tuple[Message, ...]  # per layer
    hand_over: tuple[Message, ...]  # per pass: to the next stage, and around a head in slices


def stage_of(design: Design) -> Stage:
    """Return the batch-independent part of a pipeline stage of the engine of ``design``, as a forward pass."""
    forward = forward_of(design)
    layout = with_slices(with_copies(lay_out(forward), design), forward)
    return Stage(forward, layout, engine_rates(design), exchange_of(forward, layout))


def with_copies(layout: Layout, design: Design) -> Layout:
    """Return the layout with redundant copies of experts added to those of each device, none for dense models."""
    experts = layout.experts
    copies = 0.0 if nothing(experts.local) else copies_in(design.workload, design.mapping) / experts.ep.size
    return layout._replace(experts=experts._replace(local=plus(experts.local, copies)))


def sharers_of(mapping: Mapping) -> Sharers:
    """Return the data-parallel ranks that hold a part once: ``max(size / tp, 1)``; ``NO_SHARERS`` without slices."""
    slices, tp = mapping.slices, mapping.tp
    if slices is None:
        return NO_SHARERS
    return Sharers(*(jnp.maximum(size / tp, 1.0) for size in (slices.dense_tp, slices.shared_tp, slices.head_tp)))


def with_slices(layout: Layout, design: Design) -> Layout:
    """Return the layout with the widths of the slices of :class:`~dse.types.Slices`, unchanged without any."""
    sharers, experts = sharers_of(design.mapping), layout.experts
    if sharers is NO_SHARERS:
        return layout
    return layout._replace(
        ffn=layout.ffn / sharers.dense,
        experts=experts._replace(shared=quotient(experts.shared, sharers.shared)),
        sharers=sharers,
    )


def gather_of(design: Design, layout: Layout, ranks: Scalar) -> Exchange:
    """Return the traffic of a part in slices over ``ranks`` data-parallel ranks, B per token of a rank.

    They gather each other's tokens before it and scatter the sums after it, 16 bits an element: a rank sends ``ranks -
    1`` copies of its tokens, each member of its tp group its share, mean of both directions, in rings
    (:func:`in_rings`).
    """
    m, system = design.mapping, design.system
    domain, pods = stage_domain(m, system.scale_up.domain), system.scale_out.pods
    group = in_a_row(ranks, m.tp, domain, links.reach_in(system, m.tp))
    if pods is not None:
        to_other_pods = exchange_share(pods, stage_domain(m, pods.size), group, m.tp)
        group = group._replace(share=jnp.maximum(to_other_pods, 1e-6))
    copies, copy_bytes = ranks - 1.0, layout.element.activation * design.workload.hidden / m.tp
    crossing = in_rings(copies, ranks - group.local, group.local)
    return Exchange(group, copy_bytes * (copies - crossing), copy_bytes * crossing)


def in_rings(copies: Scalar, direct: Scalar, devices: Scalar) -> Scalar:
    """Return how many copies leave the domain where all members get all tokens: ``1 / q`` of them, at most the direct.

    Each of ``q`` devices of a domain has a ring, which leaves it once (NCCL's rings over network adapters).

    Args:
        copies: to all other members.
        direct: of them to members of other domains, 0 within one.
        devices: of a domain.
    """
    return jnp.minimum(direct, copies / devices)


def exchange_of(design: Design, layout: Layout) -> Exchange:
    """Return the all-to-all traffic of a layer's experts, B per token of a rank; ``NO_EXCHANGE`` for dense models.

    Each of ``e`` ranks sends ``(e - 1) / e`` of the copies of its tokens. A copy goes to every expert, at most one per
    rank; or to every rank or domain that has one of them, which forwards it
    (:func:`~dse.model.work.messages.copies_sent`). Where an expert is split over ``s = etp / tp`` ranks with tokens of
    their own, these gather each other's tokens and scatter the sums: ``(s - 1) tp`` further shares of every copy. Both
    are one message among all ``e s`` ranks with equal bytes. Where all ranks get all tokens, by the exchange or because
    each has slices of all experts, they go in rings (:func:`in_rings`).
    """
    m, experts, mixture = design.mapping, design.mapping.experts, design.workload.experts
    if experts is None or mixture is None:
        return NO_EXCHANGE
    sharers, ep = jnp.maximum(experts.etp / m.tp, 1.0), layout.experts.ep
    n_ranks, domain = ep.size * sharers, stage_domain(m, design.system.scale_up.domain)
    stride = experts.etp / sharers
    group = in_a_row(n_ranks, stride, domain, links.reach_in(design.system, m.tp))
    pairwise = jnp.minimum(mixture.top_k, ep.size)
    intra_copies, inter_copies = copies_sent(experts.all_to_all, ep, mixture, pairwise)
    reached = members_copied(experts.all_to_all, ep.size, mixture)
    copies = jnp.where(experts.all_to_all == float(AllToAll.pairwise), pairwise, reached)
    gathered = copies * (sharers - 1.0) * m.tp / jnp.maximum(n_ranks - 1.0, 1.0)
    intra_copies, inter_copies = (
        copies_of_experts + gathered * others
        for copies_of_experts, others in ((intra_copies, group.local - 1.0), (inter_copies, n_ranks - group.local))
    )
    copies = intra_copies + inter_copies
    is_gather = experts.all_to_all == float(AllToAll.gather)
    crossing = jnp.where(is_gather, in_rings(copies, inter_copies, group.local * stride), inter_copies)
    both_ways = 0.5 * (dispatch_bytes(design, layout) + layout.element.activation) * design.workload.hidden / m.tp
    return Exchange(
        group._replace(share=ep.share),
        intra_domain=both_ways * (copies - crossing),
        inter_domain=both_ways * crossing,
    )


#: Leaves of a mapping that only training reads, with their values in a forward pass.
_FORWARD_PASS: dict[str, Any] = {
    **dict.fromkeys(("cp", "micro_batch", "virtual_stages", "dp_replicate"), 1.0),
    **dict.fromkeys(("recompute", "zero_stage", "sequence_parallel"), 0.0),
    **dict.fromkeys(("offload_weights", "offload_activations", "offload_optimizer"), 0.0),
    **dict.fromkeys(("sharding", "tiers", "context", "schedule", "graph")),
}


def forward_of(design: Design) -> Design:
    """Return the design as one forward pass over one token, without anything of training.

    Its data-parallel ranks are those whose tokens meet in the experts.
    """
    ranks = ranks_of_experts(design)
    workload = dataclasses.replace(design.workload, backward=0.0, seq_len=1.0, global_batch=ranks, dropout=0.0)
    mapping = dataclasses.replace(design.mapping, dp=ranks, **_FORWARD_PASS)
    if mapping.experts is not None:
        width = width_split(mapping.tp, mapping.experts.ep, mapping.experts.etp)
        # Ranks that all hold slices of all experts have nobody to send rows to: they gather tokens.
        exchange = jnp.where(mapping.experts.ep > 1.0, mapping.experts.all_to_all, float(AllToAll.gather))
        experts = dataclasses.replace(mapping.experts, etp=width, all_to_all=exchange)
        mapping = dataclasses.replace(mapping, experts=experts)
    # Drafts follow the mapping, not the model.
    return dataclasses.replace(design, workload=main_model(workload), mapping=mapping)


def width_split(tp: Scalar, ep: Scalar, etp: Scalar) -> Scalar:
    """Return the count of ranks that split the width of an expert: ``max(etp, tp / ep)``.

    A tp group holds an expert at most once.
    """
    return jnp.maximum(etp, tp / ep)


def ranks_of_experts(design: Design) -> Scalar:
    """Return the count of data-parallel ranks whose tokens meet in the same experts: ``ep etp / tp``, at least 1.

    Of a dense model those that share its feed-forwards (:func:`sharers_of`).
    """
    experts = design.mapping.experts
    if experts is None:
        return sharers_of(design.mapping).dense
    return jnp.maximum(experts.ep * experts.etp / design.mapping.tp, 1.0)


def step_work(
    stage: Stage, ranks: Scalar, serving: Serving, batch: Batch, engine: Engine | None = None, is_mean: bool = False
) -> StepWork:
    """Return the operators and messages of one engine step of a stage, by kind of layer.

    Args:
        stage: a stage of the engine.
        ranks: data-parallel ranks whose tokens meet in the experts.
        serving: how the engine serves.
        batch: what the step works on.
        engine: how its kernels read the cache and draw tokens; None: each byte once, and no drawing.
        is_mean: of the rank with the mean rows of experts (energy), not of the busiest one (time).
    """
    forward = stage.design
    layout = with_active_experts(stage.layout, forward, batch, ranks, is_mean)
    layout = with_balanced_experts(layout) if is_mean else layout
    rereads: Scalar = 0.0 if engine is None else engine.cache_rereads
    core = attention_of(forward.workload).serving_core(serving, layout, batch, index_flops(forward), rereads)
    recipe = stage.rates.operand_bytes
    layout = layout._replace(element=layout.element._replace(weight=bytes_per_weight(serving, recipe, False)))
    dense = tuple(hybrid_operators(layer_operators(forward, layout, core), forward, layout, batch))

    def with_experts() -> tuple[Operator, ...]:
        operators = hybrid_operators(expert_layer_operators(forward, layout, core), forward, layout, batch)
        return tuple(with_expert_format(operator, serving, recipe) for operator in operators)

    return StepWork(
        layer=feed_forward_of(forward.workload).usual(dense, with_experts),
        dense_layer=dense,
        head=(head_operator(forward, layout, batch), *sampling_operators(forward, batch, engine)),
        messages=layer_messages(stage, layout, ranks),
        hand_over=(*hand_over_messages(forward, layout), *head_messages(forward, layout, batch)),
    )


def dense_layers(stage: Stage) -> Scalar:
    """Return the count of layers without experts in a stage of a mixture, 0 for dense models.

    The first ones, and all but one in ``moe_every`` after.
    """
    experts, layers = stage.layout.experts, stage.layout.layers
    first = times(experts.first_dense_layers, 1.0 / stage.design.mapping.pp)
    return plus(first, times(experts.dense_share, layers - first))


def with_expert_format(operator: Operator, serving: Serving, recipe: Scalar) -> Operator:
    """Return the operator with expert weights read in their own format, unchanged for other operators.

    4-bit checkpoints quantise experts only, and compute in the recipe's format (MXFP4 on Hopper: in bf16).
    """
    if operator.kind is not OperatorKind.grouped:
        return operator
    work = operator.forward
    weights = work.batch * work.columns * work.depth
    saved_bytes = (bytes_per_weight(serving, recipe, False) - bytes_per_weight(serving, recipe, True)) * weights
    return operator._replace(forward=work._replace(bytes=work.bytes - saved_bytes))


def bytes_per_weight(serving: Serving, recipe: Scalar, is_expert: bool) -> Scalar:
    """Return the bytes per weight of an expert or another matrix, ``recipe`` where the mapping gives none (0).

    Kernels multiply narrower weights in the recipe's format (W4A16: AWQ, Lin et al. 2024; GPTQ, Frantar et al. 2023).

    Args:
        serving: how the engine serves.
        recipe: bytes of the recipe's operands.
        is_expert: whether of an expert.
    """
    default_bytes = jnp.where(serving.weight_bytes > 0.0, serving.weight_bytes, recipe)
    return jnp.where(serving.expert_bytes > 0.0, serving.expert_bytes, default_bytes) if is_expert else default_bytes


def head_rows(batch: Batch) -> Scalar:
    """Return the count of rows whose next token is sampled: all decoding tokens, 1 for prompts, and padding."""
    return plus(batch.sequences * (1.0 + batch.drafts) + jnp.minimum(batch.prompt, 1.0), batch.padding)


def sampling_operators(design: Design, batch: Batch, engine: Engine | None) -> list[Operator]:
    """Return the operators of top-p sampling in a list, empty where no requests ask for it or without an engine.

    It sorts all logits of a row, whole on each device of a tp group.

    Softmax, sort, cumulative sum, scatter and the draw pass over the logits many times, in single precision
    (``sampler_bytes`` per logit); the largest one alone is found as it is read.
    """
    requests = design.workload.requests
    if engine is None or requests is None or requests.sampled is None:
        return []
    logits = requests.sampled * head_rows(batch) * design.workload.vocab
    return [elementwise("sampling", logits, engine.sampler_bytes, 0.0, 0.0, flops=Flops(0.0, 0.0))]


def head_operator(design: Design, layout: Layout, batch: Batch) -> Operator:
    """Return the operator of the head over the rows whose next token is sampled, of all ranks that share it."""
    sharers = layout.sharers.head
    rows = times(sharers, head_rows(batch))
    e, columns = layout.element.sixteen_bit(), jnp.maximum(quotient(layout.vocab, sharers), 1.0)
    work = matmul_work(rows, columns, design.workload.hidden, 1.0, e)
    return Operator("head", OperatorKind.matrix_16, work, None, None, 0.0, layout.has_vocabulary)


def with_active_experts(layout: Layout, design: Design, batch: Batch, ranks: Scalar, is_mean: bool = False) -> Layout:
    """Return the layout with a batch's tokens, and rows and active experts of the busiest or, ``is_mean``, a mean rank.

    Tokens read ``q E_l`` of the ``E_l`` experts of a rank, all but :func:`idle_expert_share`, and of the
    busiest rank as many more as binomial draws of standard deviation ``sqrt(q (1 - q) E_l)`` have; copies of an expert
    share its tokens. The busiest rank has :func:`busiest_rank` times the mean, less where experts are placed by load
    (:func:`~dse.model.serving.policy.busiest_over_mean`).
    """
    layout = layout._replace(tokens=batch.tokens, norm_tokens=batch.tokens)
    experts, mixture, mapping = layout.experts, design.workload.experts, design.mapping.experts
    if mixture is None or mapping is None:
        return layout
    tokens = batch.tokens * ranks
    held = experts.local * mapping.ep
    idle_share = idle_expert_share(tokens, mixture.top_k / held, design.workload)
    active_experts = jnp.maximum(experts.local * (1.0 - idle_share), 1e-3)
    if not is_mean:
        active_experts = jnp.minimum(
            active_experts + largest_deviate(mapping.ep) * jnp.sqrt(active_experts * idle_share), experts.local
        )
    unbalanced = busiest_rank(design.workload, mixture.n_experts, mapping.ep)
    skew = busiest_over_mean(design, held - mixture.n_experts, unbalanced)
    rows = tokens * mixture.top_k / mapping.ep
    return layout._replace(
        experts=experts._replace(
            sent_rows=batch.tokens * mixture.top_k, rows=rows * skew, mean_share=1.0 / skew, local=active_experts
        )
    )


def idle_expert_share(tokens: Scalar, chosen_share: Scalar, workload: Workload) -> Scalar:
    """Return the share of experts that no token goes to, where each token goes to a share ``q = chosen_share``.

    ``(1 + t u)^(-1 / s^2)`` for ``t`` tokens.

    Popularities of experts have a gamma distribution of standard deviation ``s`` over the mean (:func:`busiest_rank`),
    and ``u = (1 - q)^(-s^2) - 1``, so that one token leaves ``1 - q``. Without unequal ones ``t`` leave ``(1 - q)^t``.
    """
    log_miss, requests = jnp.log1p(-jnp.minimum(chosen_share, 1.0 - 1e-6)), workload.requests
    if requests is None or nothing(requests.expert_skew):
        return jnp.exp(tokens * log_miss)
    squared_skew = jnp.maximum(requests.expert_skew, 1e-2) ** 2
    return jnp.exp(-jnp.log1p(tokens * jnp.expm1(-squared_skew * log_miss)) / squared_skew)


def busiest_rank(workload: Workload, n_experts: Scalar, ep: Scalar) -> Scalar:
    """Return the ratio of the busiest of ``ep`` ranks' tokens to the mean: ``1 + s sqrt(ep / E) m``, at most ``ep``.

    Experts have unequal popularity.

    A rank has ``E / ep`` experts, whose sum varies by ``s / sqrt(E / ep)`` where one varies by ``s``; ``m`` is
    :func:`largest_deviate`. No router balances requests.
    """
    requests = workload.requests
    if requests is None or nothing(requests.expert_skew):
        return 1.0
    return jnp.minimum(1.0 + requests.expert_skew * jnp.sqrt(ep / n_experts) * largest_deviate(ep), ep)


def largest_deviate(n: Scalar) -> Scalar:
    """Return the mean of the largest of ``n`` standard normal deviates: ``0.75 ln(n)^0.8``.

    Within 6 % from 2 to 512.
    """
    return 0.75 * jnp.maximum(jnp.log(n), 1e-9) ** 0.8


def cache_bytes(design: Design, serving: Serving, tokens: Scalar) -> Scalar:
    """Return the cache bytes of one sequence of ``tokens`` tokens per layer and device.

    A hybrid has the mean over its blocks.

    A state has the same bytes for any number of tokens.

    Args:
        design: of an engine.
        serving: how it serves.
        tokens: of the sequence.
    """
    w, tp = design.workload, design.mapping.tp
    return _mean_of_blocks(w, attention_of(w).kv_bytes(serving, tp, tokens), states_of(w).cache_bytes(tp))


def step_bytes(design: Design, serving: Serving, batch: Batch) -> Scalar:
    """Return the cache bytes that a layer reads and writes in a step, per device.

    A hybrid has the mean over its blocks.

    States are read and written once per sequence; prompts write keys and values, and one state.

    Args:
        design: of an engine.
        serving: how it serves.
        batch: what the step works on.
    """
    w, tp = design.workload, design.mapping.tp
    kv = attention_of(w).step_bytes(serving, tp, batch)
    states = times(2.0 * batch.sequences + jnp.minimum(batch.prompt, 1.0), states_of(w).cache_bytes(tp))
    return _mean_of_blocks(w, kv, states)


def _mean_of_blocks(workload: Workload, attends: Scalar, keeps: Scalar) -> Scalar:
    """Return the mean of a value over the blocks of a hybrid, that of attention blocks for other models.

    Args:
        workload: the model.
        attends: value of attention blocks.
        keeps: value of blocks with a state.
    """
    shares = shares_of(workload)
    return plus(times(shares.attends, attends), times(shares.keeps, keeps))


def index_flops(design: Design) -> Scalar:
    """Return the FLOPs per query and token of an indexer, as 16-bit ones of the same time where its keys are fp8.

    0 without sparse attention.
    """
    sparse, accelerator = attention_of(design.workload).sparse, design.system.accelerator
    if nothing(sparse.sparse_layers):
        return 0.0
    fp8 = accelerator.matrix_rate.fp8
    in_fp8 = (sparse.index_bytes < 2.0) & (fp8 > 0.0)
    wide = sixteen_bit_rate(accelerator, design.mapping.precision)
    time_ratio = jnp.where(in_fp8, wide / jnp.maximum(fp8, 1.0), 1.0)
    return times(2.0 * sparse.sparse_layers, sparse.index_heads * sparse.index_dim * time_ratio)


def head_messages(design: Design, layout: Layout, batch: Batch) -> tuple[Message, ...]:
    """Return the messages around a head in slices, per pass of a stage; empty without slices.

    Its ranks gather each other's rows, and then the logits of all rows whole, of which each keeps its own
    (``LogitsProcessor`` of SGLang, logits_processor.py): ``h`` and ``V`` columns in 16 bits.
    """
    if layout.sharers is NO_SHARERS:
        return ()
    m, ranks = design.mapping, layout.sharers.head
    # A slice has V / (tp ranks) columns for the rows of all ranks, as many logits as V / tp columns for its own.
    columns = 1.0 + layout.vocab * m.tp / design.workload.hidden
    count = jnp.where(ranks > 1.0, (1.0 + batch.drafting) / m.pp, 0.0)
    return (exchange_message("head_gather", gather_of(design, layout, ranks), head_rows(batch) * columns, count),)


def exchange_message(name: str, exchange: Exchange, tokens: Scalar, count: Scalar) -> Message:
    """Return the message of an exchange of a rank's ``tokens``, ``count`` times, 0 for none."""
    return Message(
        name,
        MessageKind.all_to_all,
        Dimension.tensor,
        Scope.layer,
        exchange.group,
        tokens * exchange.intra_domain,
        count,
        window=Window.matrix_forward,
        inter_domain=tokens * exchange.inter_domain,
    )


def layer_messages(stage: Stage, layout: Layout, ranks: Scalar) -> tuple[Message, ...]:
    """Return the messages of a layer's forward: sums over tp, then the exchanges among data-parallel ranks, if any.

    Ranks of a tp group have the same tokens and sum the outputs of experts like a dense layer. Where tokens of other
    ranks meet in the experts, each rank sends its share of the tokens and gathers the results. So do ranks that share a
    dense feed-forward or a shared expert in slices; the latter has the tokens where the exchange of routed experts
    brings all of them to all.
    """
    design, experts = stage.design, layout.experts
    # Share of layers in which tokens of several ranks meet in experts.
    dense_share = dense_layers(stage) / stage.layout.layers
    meeting_share = jnp.where(ranks > 1.0, 1.0 - dense_share, 0.0)
    sliced_dense, sliced_shared = sliced_shares(layout)
    # The sum after attention, that of a shared expert, and half a sum for the gather after an exchange. A hybrid has
    # one after each part of a block.
    own_sums = times(1.0 - sliced_shared, experts.gathers)
    sums = feed_forward_of(design.workload).usual(
        2.0 - 0.5 * sliced_dense,
        lambda: plus(2.0 + meeting_share * (own_sums - 0.5), times(-0.5 * sliced_dense, dense_share)),
    )
    sums = times(0.5 * shares_of(design.workload).norms, sums)
    messages = [
        m._replace(times=sums)
        for m in tensor_messages(design, layout)
        if m.repeated and m.kind is MessageKind.all_reduce
    ]
    if stage.exchange is not NO_EXCHANGE:
        messages.append(exchange_message("dispatch_and_combine", stage.exchange, layout.tokens, 2.0 * meeting_share))
    return (*messages, *slice_messages(design, layout, dense_share))


def sliced_shares(layout: Layout) -> tuple[Scalar, Scalar]:
    """Return 1 where dense feed-forwards, and where shared experts, are in slices over several ranks; else 0."""
    sharers = layout.sharers
    if sharers is NO_SHARERS:
        return 0.0, 0.0
    return jnp.where(sharers.dense > 1.0, 1.0, 0.0), jnp.where(sharers.shared > 1.0, 1.0, 0.0)


def slice_messages(design: Design, layout: Layout, dense_share: Scalar) -> list[Message]:
    """Return the messages per layer around dense feed-forwards and shared experts in slices, empty without slices.

    Args:
        design: as one forward pass.
        layout: of the tokens of a step.
        dense_share: of the layers of a mixture that have a dense feed-forward.
    """
    if layout.sharers is NO_SHARERS:
        return []
    sliced_dense, sliced_shared = sliced_shares(layout)
    w, mapping = design.workload, design.mapping.experts
    dense_count = times(sliced_dense, feed_forward_of(w).usual(shares_of(w).feeds, lambda: dense_share))
    gather = gather_of(design, layout, layout.sharers.dense)
    messages = [exchange_message("dense_gather_and_scatter", gather, layout.tokens, 2.0 * dense_count)]
    if mapping is not None:
        own = jnp.where(
            mapping.all_to_all == float(AllToAll.gather),
            0.0,
            (1.0 - dense_share) * layout.experts.gathers * sliced_shared,
        )
        gather = gather_of(design, layout, layout.sharers.shared)
        messages.append(exchange_message("shared_gather_and_scatter", gather, layout.tokens, 2.0 * own))
    return messages


def hand_over_messages(design: Design, layout: Layout) -> tuple[Message, ...]:
    """Return a stage's messages to the next one per pass: within a domain, between domains, and the gather after.

    ``p`` stages have ``p - 1`` borders, few of them between domains.

    A request meets each border once; in training the slowest border sets the pace.
    """
    m = design.mapping
    passed, gathered = pipeline_messages(design, layout)
    stages_per_domain = jnp.maximum(jnp.floor(design.system.scale_up.domain / strides(m)[1]), 1.0)
    stage_share = 1.0 / m.pp
    domains_per_stage = stage_share * jnp.ceil(m.pp / stages_per_domain)
    return (
        passed._replace(group=passed.group._replace(local=2.0), times=1.0 - domains_per_stage),
        passed._replace(
            name="stage_output_across", group=passed.group._replace(local=1.0), times=domains_per_stage - stage_share
        ),
        gathered._replace(times=gathered.times * (1.0 - stage_share)),
    )
