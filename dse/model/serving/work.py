"""What one step of a serving engine does: the forward of a layer for some tokens, attention over a cache, messages."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model import links
from dse.model.choice import min_prefer_first, nothing, plus, times
from dse.model.groups import in_a_row, stage_domain, strides
from dse.model.layout import Layout, lay_out, with_balanced_experts
from dse.model.machine.rates import Rates, matrix_rate, rates_of, sixteen_bit_rate
from dse.model.serving.batch import Batch
from dse.model.serving.hybrid import in_hybrid
from dse.model.work.blocks import attention_of, feed_forward_of, shares_of, states_of
from dse.model.work.messages import copies_sent, dispatch_bytes, members_met, pipeline_messages, tensor_messages
from dse.model.work.operators import matmul_work
from dse.model.work.parameters import main_model
from dse.model.work.transformer import expert_layer_operators, layer_operators
from dse.types import (
    AllToAll,
    Design,
    Engine,
    Group,
    Message,
    MessageKind,
    Operator,
    OperatorKind,
    Requests,
    Scalar,
    Serving,
    Work,
    Workload,
)

#: Share of the tokens of a batch that choose experts as if at random: real traffic is skewed to fewer of them.
SKEW = 0.66


#: Rows of an output tile: libraries exchange rows and columns where there are few rows, so that tiles stay full.
TILE_ROWS = 16.0


class Exchange(NamedTuple):
    """What ranks send each other around the experts of a layer."""

    group: Group  # all whose tokens meet in the experts
    near: Scalar  # bytes that a rank sends of each of its tokens inside its domain, the mean of both ways
    far: Scalar  # and out of it


#: Of ranks that meet no others.
ALONE = Exchange(Group(1.0, 1.0), 0.0, 0.0)


class Stage(NamedTuple):
    """A stage of the engine, whatever it works on."""

    design: Design  # as one forward pass
    layout: Layout  # of one token
    rates: Rates
    exchange: Exchange  # of a mixture of experts


class Rank(NamedTuple):
    """One rank of data parallelism: what is asked of it, and how its engine works."""

    stage: Stage  # any of its stages
    met: Scalar  # ranks whose tokens meet in the same experts
    requests: Requests
    serving: Serving
    engine: Engine


class StepWork(NamedTuple):
    """The work of a stage of one engine step."""

    layer: tuple[Operator, ...]
    dense_layer: tuple[Operator, ...]  # of a mixture of experts, where it has none
    head: Operator
    messages: tuple[Message, ...]  # of a layer
    hand_over: tuple[Message, ...]  # of a pass, to the next stage


def stage_of(design: Design) -> Stage:
    """A stage of the engine of ``design``: of all that depends on no batch there is one."""
    forward = forward_of(design)
    accelerator, precision = design.system.accelerator, design.mapping.precision
    tile = min_prefer_first(accelerator.kernels.tile_rows, TILE_ROWS)
    small = dataclasses.replace(accelerator, kernels=dataclasses.replace(accelerator.kernels, tile_rows=tile))
    rates = expert_rates(rates_of(small, precision, design.software), design)
    layout = with_copies(lay_out(forward), design)
    return Stage(forward, layout, rates, exchange_of(forward, layout))


def with_copies(layout: Layout, design: Design) -> Layout:
    """The layout with the copies of experts that its devices hold beside one of each."""
    serving, experts = design.mapping.serving or Serving(), layout.experts
    copies = 0.0 if nothing(experts.local) else serving.redundant_experts / experts.ep.size
    return layout._replace(experts=experts._replace(local=plus(experts.local, copies)))


def exchange_of(design: Design, layout: Layout) -> Exchange:
    """What ranks exchange around experts: of ``e`` ranks each sends ``(e - 1) / e`` of the copies of its tokens.

    A copy goes to every expert, at most one to a rank; or one to every rank that is met, or to every domain, in which
    it is sent on (:func:`~dse.model.work.messages.copies_sent`). Where one expert is split over ``s = etp / tp`` ranks
    with tokens of their own, these gather each other's whole, and scatter the sums: ``(s - 1) tp`` shares of every copy
    more. Both are one message among all ``e s``, of as many bytes.
    """
    m, experts, mixture = design.mapping, design.mapping.experts, design.workload.experts
    if experts is None or mixture is None:
        return ALONE
    sharers, ep = jnp.maximum(experts.etp / m.tp, 1.0), layout.experts.ep
    size, domain = ep.size * sharers, stage_domain(m, design.system.scale_up.domain)
    group = in_a_row(size, experts.etp / sharers, domain, links.reach_in(design.system, m.tp))
    pairwise = jnp.minimum(mixture.top_k, ep.size)
    inside, across = copies_sent(experts.all_to_all, ep, mixture, pairwise)
    met = jnp.where(experts.all_to_all == float(AllToAll.pairwise), pairwise, members_met(ep.size, mixture))
    gathered = met * (sharers - 1.0) * m.tp / jnp.maximum(size - 1.0, 1.0)
    both_ways = 0.5 * (dispatch_bytes(design, layout) + layout.element.activation) * design.workload.hidden / m.tp
    return Exchange(
        group._replace(share=ep.share),
        near=both_ways * (inside + gathered * (group.local - 1.0)),
        far=both_ways * (across + gathered * (size - group.local)),
    )


def expert_rates(rates: Rates, design: Design) -> Rates:
    """The rates with that of experts whose weights have 4 bits, where the device has a matrix rate of such."""
    serving, accelerator = design.mapping.serving or Serving(), design.system.accelerator
    if OperatorKind.grouped not in rates.units:
        return rates
    four, unit = accelerator.matrix_rate.fp4, rates.units[OperatorKind.grouped]
    is_four = (serving.expert_bytes > 0.0) & (serving.expert_bytes < 1.0) & (four > 0.0)
    own = matrix_rate(accelerator, design.mapping.precision)
    time = unit.flop_time * jnp.where(is_four, own / jnp.maximum(four, 1.0), 1.0)
    return rates._replace(units={**rates.units, OperatorKind.grouped: unit._replace(flop_time=time)})


def forward_of(design: Design) -> Design:
    """The design as one forward pass over one token: nothing of training is left in it.

    Its ranks of data parallelism are those whose tokens meet in the experts.
    """
    ranks = ranks_of_experts(design)
    workload = dataclasses.replace(design.workload, backward=0.0, seq_len=1.0, global_batch=ranks, dropout=0.0)
    mapping = dataclasses.replace(
        design.mapping, dp=ranks, cp=1.0, micro_batch=1.0, virtual_stages=1.0, recompute=0.0, zero_stage=0.0,
        sequence_parallel=0.0, dp_replicate=1.0, offload_weights=0.0, offload_activations=0.0, offload_optimizer=0.0,
        sharding=None, tiers=None, context=None, schedule=None,
    )  # fmt: skip
    if mapping.experts is not None:
        width = width_split(mapping.tp, mapping.experts.ep, mapping.experts.etp)
        mapping = dataclasses.replace(mapping, experts=dataclasses.replace(mapping.experts, etp=width))
    # Tokens are drafted, if at all, by what the mapping says.
    return dataclasses.replace(design, workload=main_model(workload), mapping=mapping)


def width_split(tp: Scalar, ep: Scalar, etp: Scalar) -> Scalar:
    """Ranks that an expert's width is split over: those that are asked for, and the ranks of tp that ep leaves.

    No engine holds an expert more than once in the ranks of one tp.
    """
    return jnp.maximum(etp, tp / ep)


def ranks_of_experts(design: Design) -> Scalar:
    """Ranks of data parallelism whose tokens meet in the same experts: ``ep etp / tp``, at least one."""
    experts = design.mapping.experts
    return 1.0 if experts is None else jnp.maximum(experts.ep * experts.etp / design.mapping.tp, 1.0)


def step_work(
    stage: Stage, ranks: Scalar, serving: Serving, batch: Batch, rereads: Scalar = 0.0, is_mean: bool = False
) -> StepWork:
    """The work of one engine step of a stage, the tokens of ``ranks`` meeting in the experts.

    ``rereads`` as of :class:`~dse.types.Engine`: kernels from before grouped queries read a head's keys for each query.
    ``is_mean``: of the rank whose experts get as many rows as the mean, where time is that of the busiest.
    """
    forward = stage.design
    layout = with_experts_met(stage.layout, forward, batch, ranks)
    layout = with_balanced_experts(layout) if is_mean else layout
    core = attention_operators(forward, serving, layout, batch, rereads)
    recipe = stage.rates.operand_bytes
    layout = layout._replace(element=layout.element._replace(weight=bytes_a_weight(serving, recipe, False)))
    dense = tuple(in_hybrid(layer_operators(forward, layout, core), forward, layout, batch))

    def with_experts() -> tuple[Operator, ...]:
        listed = in_hybrid(expert_layer_operators(forward, layout, core), forward, layout, batch)
        return tuple(with_expert_format(operator, serving, recipe) for operator in listed)

    return StepWork(
        layer=feed_forward_of(forward.workload).usual(dense, with_experts),
        dense_layer=dense,
        head=head_operator(forward, layout, batch),
        messages=layer_messages(stage, layout, ranks),
        hand_over=hand_over_messages(forward, layout),
    )


def dense_layers(stage: Stage) -> Scalar:
    """Layers of a stage of a mixture that have no experts: the first ones, and all but one in ``moe_every`` behind.

    Of a model all of whose layers are dense none: they are as one another.
    """
    experts, layers = stage.layout.experts, stage.layout.layers
    first = times(experts.stated_first, 1.0 / stage.design.mapping.pp)
    return plus(first, times(experts.dense_share, layers - first))


def with_expert_format(operator: Operator, serving: Serving, recipe: Scalar) -> Operator:
    """The operator with weights of experts read in a format of their own, where they have one.

    Checkpoints in 4 bits quantise experts only, and compute in the recipe's format (MXFP4 on Hopper: in bf16).
    """
    if operator.kind is not OperatorKind.grouped:
        return operator
    work = operator.forward
    weights = work.batch * work.columns * work.depth
    less = (bytes_a_weight(serving, recipe, False) - bytes_a_weight(serving, recipe, True)) * weights
    return operator._replace(forward=work._replace(bytes=work.bytes - less))


def bytes_a_weight(serving: Serving, recipe: Scalar, of_expert: bool) -> Scalar:
    """Bytes of one weight of a matrix, of an expert or of another, where the recipe has ``recipe`` bytes.

    Kernels multiply narrower weights in the recipe's format (W4A16: AWQ, Lin et al. 2024; GPTQ, Frantar et al. 2023).
    """
    others = jnp.where(serving.weight_bytes > 0.0, serving.weight_bytes, recipe)
    return jnp.where(serving.expert_bytes > 0.0, serving.expert_bytes, others) if of_expert else others


def head_operator(design: Design, layout: Layout, batch: Batch) -> Operator:
    """The head for the rows whose next token is drawn: of a prompt the last one alone."""
    rows = batch.sequences * (1.0 + batch.drafts) + jnp.minimum(batch.prompt, 1.0)
    e, columns = layout.element.sixteen_bit(), jnp.maximum(layout.vocab, 1.0)
    work = matmul_work(rows, columns, design.workload.hidden, 1.0, e)
    return Operator("head", OperatorKind.matrix_16, work, None, None, 0.0, layout.has_vocabulary)


def with_experts_met(layout: Layout, design: Design, batch: Batch, ranks: Scalar) -> Layout:
    """The layout of a batch's tokens, with the rows and experts of a rank that they meet.

    Of ``E_l`` experts of a rank ``E_l (1 - (1 - k / E)^m)`` are read, by ``m`` tokens that choose apart; copies of one
    share its tokens. What the busiest rank has beyond the mean, ``i - 1``, is of its own experts: of ``R`` copies,
    taken of its ``E / e`` experts alike, each takes its share, which leaves ``(i - 1) / (1 + R e / E)`` (the load
    balancer of DeepSeek-AI 2024, section 3.4, copies those with most tokens).
    """
    layout = layout._replace(tokens=batch.tokens, norm_tokens=batch.tokens)
    experts, mixture, mapping = layout.experts, design.workload.experts, design.mapping.experts
    if mixture is None or mapping is None:
        return layout
    tokens = batch.tokens * ranks
    held = experts.local * mapping.ep
    unmet = (1.0 - mixture.top_k / held) ** (SKEW * tokens)
    met = jnp.maximum(experts.local * (1.0 - unmet), 1e-3)
    copies = 1.0 + (held - mixture.n_experts) * mapping.ep / mixture.n_experts
    rows, skew = tokens * mixture.top_k / mapping.ep, 1.0 + (mixture.imbalance - 1.0) / copies
    return layout._replace(
        experts=experts._replace(sent=batch.tokens * mixture.top_k, rows=rows * skew, mean_share=1.0 / skew, local=met)
    )


def cache_bytes(design: Design, serving: Serving, tokens: Scalar) -> Scalar:
    """Bytes that a device keeps of so many tokens of one sequence, for one layer; of a hybrid the mean of its blocks.

    A layer with a state keeps as much of any number of tokens.
    """
    w, tp = design.workload, design.mapping.tp
    return _mean_of_blocks(w, attention_of(w).kv_bytes(serving, tp, tokens), states_of(w).kept_bytes(tp))


def step_bytes(design: Design, serving: Serving, batch: Batch) -> Scalar:
    """Bytes of the cache that a layer reads and writes in a step; of a hybrid the mean of its blocks.

    States are read and written; of a prompt keys and values are written, and a state once.
    """
    w, tp = design.workload, design.mapping.tp
    kind = attention_of(w)
    kept = batch.sequences * kind.read_bytes(serving, tp, batch.context) + kind.kv_bytes(serving, tp, batch.prompt)
    states = times(2.0 * batch.sequences + jnp.minimum(batch.prompt, 1.0), states_of(w).kept_bytes(tp))
    return _mean_of_blocks(w, kept, states)


def _mean_of_blocks(workload: Workload, attends: Scalar, keeps: Scalar) -> Scalar:
    """The mean over blocks of what those have that attend, and those that keep a state."""
    shares = shares_of(workload)
    return plus(times(shares.attends, attends), times(shares.keeps, keeps))


def attention_operators(
    design: Design, serving: Serving, layout: Layout, batch: Batch, rereads: Scalar = 0.0
) -> list[Operator]:
    """Attention of decoding sequences over their cache, and of prompts; one layer of a device."""
    kind, tp, act = attention_of(design.workload), design.mapping.tp, layout.element.activation
    queries, scored = batch.sequences * (1.0 + batch.drafts), index_flops(design)
    of_cache, of_prompt, value = (layout.heads * columns for columns in kind.pair_columns)
    ends = act * (layout.query_width + value)  # queries and outputs
    reread = 1.0 if nothing(kind.sharing - 1.0) else kind.sharing**rereads
    read = times(reread, batch.sequences * kind.read_bytes(serving, tp, batch.context))
    decode = plus(queries * kind.seen(batch.context) * 2.0 * of_cache, times(scored, queries * batch.context))
    whole: Scalar = jnp.maximum(batch.prompt * 2.0 * of_prompt * kind.seen_by_prompt(batch.prompt_context), 0.0)
    whole = plus(whole, times(scored, batch.prompt * batch.prompt_context))
    moved = batch.prompt * ends + kind.kv_bytes(serving, tp, batch.prompt)
    works = {
        "decode_attention": Work(decode, read + queries * ends, 128.0 * 64.0),
        "prefill_attention": Work(whole, moved, jnp.maximum(2.0 * batch.prompt_context, 1.0)),
    }
    return [Operator(name, OperatorKind.flash, work, None, None, 0.0, core=True) for name, work in works.items()]


def index_flops(design: Design) -> Scalar:
    """FLOPs of an indexer for a query and a token, as many of 16 bits as take its time; its keys' format is theirs."""
    sparse, accelerator = attention_of(design.workload).sparse, design.system.accelerator
    if nothing(sparse.sparse_layers):
        return 0.0
    fp8 = accelerator.matrix_rate.fp8
    in_fp8 = (sparse.index_bytes < 2.0) & (fp8 > 0.0)
    wide = sixteen_bit_rate(accelerator, design.mapping.precision)
    faster = jnp.where(in_fp8, wide / jnp.maximum(fp8, 1.0), 1.0)
    return times(2.0 * sparse.sparse_layers, sparse.index_heads * sparse.index_dim * faster)


def layer_messages(stage: Stage, layout: Layout, ranks: Scalar) -> tuple[Message, ...]:
    """Messages of a layer's forward: sums over tp, and the exchange between ranks that share experts.

    Ranks of one tp group have the same tokens: they sum what their experts give as they sum a dense layer, and nothing
    travels. Where tokens of other ranks meet in the experts, each sends its share of them, and gathers the results.
    """
    design, experts = stage.design, layout.experts
    # Share of the layers in which tokens of several ranks meet in experts.
    meeting = jnp.where(ranks > 1.0, 1.0 - dense_layers(stage) / stage.layout.layers, 0.0)
    # Beside the sum behind attention that of a shared expert, and half a one: what gathers sends half as much. Of a
    # hybrid one behind every part of a block.
    dense: Scalar = 2.0
    sums = feed_forward_of(design.workload).usual(dense, lambda: dense + meeting * (experts.gathers - 0.5))
    sums = times(0.5 * shares_of(design.workload).norms, sums)
    found = [
        m._replace(times=sums) for m in tensor_messages(design, layout)
        if m.repeated and m.kind is MessageKind.all_reduce
    ]
    if stage.exchange is ALONE:
        return tuple(found)
    group, near, far = stage.exchange
    exchange = found[0]._replace(
        name="dispatch_and_combine", kind=MessageKind.all_to_all, group=group, size=layout.tokens * near,
        far=layout.tokens * far, times=2.0 * meeting, sums=False,
    )  # fmt: skip
    return (*found, exchange)


def hand_over_messages(design: Design, layout: Layout) -> tuple[Message, ...]:
    """What a stage sends on in a pass: ``p`` of them have ``p - 1`` borders, of which few lie between domains.

    A request meets each border once, where in training the slowest one sets the pace of all.
    """
    m = design.mapping
    passed, gathered = pipeline_messages(design, layout)
    a_domain = jnp.maximum(jnp.floor(design.system.scale_up.domain / strides(m)[1]), 1.0)
    of_one = 1.0 / m.pp
    domains = of_one * jnp.ceil(m.pp / a_domain)
    return (
        passed._replace(group=passed.group._replace(local=2.0), times=1.0 - domains),
        passed._replace(name="stage_output_across", group=passed.group._replace(local=1.0), times=domains - of_one),
        gathered._replace(times=gathered.times * (1.0 - of_one)),
    )
