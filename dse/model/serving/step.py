"""Time of one engine step: ``T = D + h - o min(h, D)``.

The device takes ``D = s (kernels) + messages + layers a_layer``, the host ``h = a_step + n a_sequence``.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus, quotient, times, value_or
from dse.model.machine.messages import send_all
from dse.model.machine.rates import Rates
from dse.model.machine.roofline import kernels_time
from dse.model.machine.routes import mesh_share
from dse.model.serving.memory import NO_SPILL, FarReads, far_tier, weight_bytes
from dse.model.serving.nano_batches import (
    SINGLE_BATCH,
    in_two_halves,
    nano_batch,
    nano_batches_of,
    resource_times,
    side_by_side,
)
from dse.model.serving.policy import with_halves
from dse.model.serving.stage_pass import StagePass, stage_pass
from dse.model.serving.work import Stage, StepWork, bytes_per_weight, step_bytes, step_work
from dse.model.work.batch import Batch, split_batch
from dse.model.work.blocks import attention_of, shares_of
from dse.types import Design, Engine, Mapping, Message, MessageKind, OperatorKind, Scalar, Serving


class EngineStepTime(NamedTuple):
    """Time of an engine step by part, or time per output token, in seconds."""

    matrix: Scalar
    attention: Scalar
    communication: Scalar
    host: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts, s."""
        return self.matrix + self.attention + self.communication + self.host

    def scaled(self, factor: Scalar) -> EngineStepTime:
        """Return the time by part, each times ``factor``."""
        return EngineStepTime(*(factor * part for part in self))

    def per(self, count: Scalar) -> EngineStepTime:
        """Return the time by part, each divided by ``count``."""
        return EngineStepTime(*(part / count for part in self))


def engine_step(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> EngineStepTime:
    """Return the time of one engine step through all stages by part, s.

    Under a pipeline the batch is split over the stages: each sequence passes all stages while they work on other
    sequences. Fewer sequences than stages leave some stages idle.

    Args:
        stage: a stage of the engine.
        ranks: data-parallel ranks whose tokens meet in the experts.
        serving: how the engine serves.
        engine: parameters of the engine.
        batch: what the step works on, of one rank.
    """
    stages = stage.design.mapping.pp
    stage_batch = split_batch(batch, stages)
    work = step_work(stage, ranks, serving, nano_batch(stage, stage_batch), engine)
    return stage_time(stage, serving, engine, work, stage_batch).scaled(stages)


def stage_time(stage: Stage, serving: Serving, engine: Engine, work: StepWork, batch: Batch) -> EngineStepTime:
    """Return the time by part, s, of one stage of an engine step, with ``1 / pp`` of the head of the last stage.

    Args:
        stage: a stage of the engine.
        serving: how the engine serves.
        engine: parameters of the engine.
        work: of one nano-batch of the step, of all of it without nano-batches.
        batch: what the whole step works on.
    """
    layout, slowdown, part = stage.layout, engine.kernel_slowdown, nano_batch(stage, batch)
    rates, ledger = with_narrow_formats(stage.rates, engine), stage_pass(stage, work, part)
    matrices, overhead = kernels_time(ledger.other_operators, rates), ledger.layers * engine.layer_time
    w = stage.design.workload
    overhead = times(0.5 * shares_of(w).norms, overhead)
    overhead = plus(overhead, times(attention_of(w).compressed, ledger.layers * engine.latent_layer_time))
    expert_time: Scalar = 0.0
    if not nothing(layout.experts.local):
        grouped = [runs.where(lambda o: o.kind is OperatorKind.grouped) for runs in ledger.other_operators]
        grouped_time, narrow = kernels_time(grouped, rates), narrow_shard_slowdown(engine, stage, rates)
        matrices = matrices + narrow * grouped_time
        casts = jnp.where(rates.operand_bytes < 1.9, engine.cast_layer_time, 0.0)
        expert_overhead = ledger.expert_layers * (engine.expert_layer_time + casts)
        expert_time = slowdown * (1.0 + narrow) * grouped_time + expert_overhead
        overhead = overhead + expert_overhead
    hand_over_time = sum(
        message.time for message in send_all(work.hand_over, stage.design.software, stage.design.system)
    )
    nano, far = nano_batches_of(stage), far_reads(stage, serving, part)
    step = with_far_memory(
        far,
        EngineStepTime(
            matrix=slowdown * matrices,
            attention=plus(slowdown * kernels_time([ledger.attention], rates), latent_chain_time(stage, ledger, part)),
            communication=ledger.layers * layer_message_time(stage.design, engine, work) + hand_over_time,
            host=overhead,
        ),
    )
    chain_time = jnp.maximum(step.total, 1e-12)
    if nano is not SINGLE_BATCH and stage.design.mapping.nano is None:
        exchange = work._replace(messages=work.messages[-1:])  # the last one, of the experts
        exchange_time = ledger.layers * layer_message_time(stage.design, engine, exchange)
        halved_time = in_two_halves(nano.nano_batches, chain_time, expert_time, exchange_time)
        step, overhead = step.scaled(halved_time / chain_time), nano.nano_batches * overhead
    elif nano is not SINGLE_BATCH:
        resources = resource_times(
            stage,
            ledger,
            work,
            rates_in(engine, stage),
            message_time=step.communication,
            launch_time=overhead,
            far=far,
        )
        step = step.scaled(side_by_side(nano.nano_batches, chain_time, resources) / chain_time)
        overhead = nano.nano_batches * overhead
    launched = times(value_or(stage.design.system.host_slowdown, 1.0), overhead)
    exposed = exposed_launches(serving, engine, batch, launched, step.total)
    return step._replace(host=plus(step.host, exposed) + exposed_host_time(stage.design, engine, batch, step.total))


def latent_chain_time(stage: Stage, ledger: StagePass, batch: Batch) -> Scalar:
    """Return the time by which chains of keys outlast the reads of decode over latent attention in a step, s.

    ``layers tokens t_key``: a kernel that splits a sequence over few cores visits its keys one after the other, however
    few sequences there are (:attr:`~dse.types.AttentionKernels.latent_key`). With sparse attention they are the
    attended ones.
    """
    kernels, attention = stage.rates.kernels.attention, attention_of(stage.design.workload)
    if kernels is None or not attention.compressed:
        return 0.0
    tokens = jnp.minimum(batch.sequences, 1.0) * attention.attended_tokens(batch.context)
    return ledger.layers * tokens * kernels.latent_key


def exposed_launches(
    serving: Serving, engine: Engine, batch: Batch, overhead_time: Scalar, device_time: Scalar
) -> Scalar:
    """Return the seconds by which launches outlast the kernels of a step without a graph: ``max(r a - D, 0)``.

    A host launches the kernels of a step with prompts one by one, unless it has captured a graph of as many tokens;
    those of all steps where ``graphs`` are off. Launches of a layer take ``r`` times its overhead ``a`` in a graph,
    longer on a slow host.
    """
    if nothing(batch.prompt) and serving.graphs is None:
        return 0.0
    is_captured = True if nothing(batch.prompt) else batch.tokens <= engine.graph_tokens
    if serving.graphs is not None:
        is_captured = jnp.logical_and(is_captured, serving.graphs > 0.0)
    launches = jnp.where(is_captured, 0.0, engine.launch_ratio * overhead_time)
    return jnp.maximum(launches - device_time, 0.0)


def exposed_host_time(design: Design, engine: Engine, batch: Batch, device_time: Scalar) -> Scalar:
    """Return the host time of a stage's step that its kernels do not hide, s: ``h - o min(h, device_time)``.

    The host schedules a step, prepares each sequence, and hands the inputs to every further rank of a tp group; with
    asynchronous scheduling while the device works on the step before (vLLM, SGLang, TensorRT-LLM since 2025). Engines
    are fitted to hosts with x86 processors; others take ``host_slowdown`` times as long.
    """
    per_step = engine.host_step_time + engine.rank_time * (design.mapping.tp - 1.0)
    host_time = per_step / design.mapping.pp + batch.sequences * engine.sequence_time
    host_time = times(value_or(design.system.host_slowdown, 1.0), host_time)
    return host_time - engine.host_overlap * jnp.minimum(host_time, device_time)


def far_reads(stage: Stage, serving: Serving, batch: Batch) -> FarReads:
    """Return the reads of weights and cache from far memory, s.

    Near-memory attention reads the cache at the rate of that memory, and the device skips its share.
    """
    design, size = stage.design, far_bytes(stage, serving, batch)
    if nothing(size.weights) and nothing(size.cache):
        return FarReads(0.0, 0.0, 0.0)
    tier, spill = far_tier(design.system), design.mapping.spill or NO_SPILL
    is_near = tier.near_bandwidth > 0.0
    rate = jnp.where(is_near, tier.near_bandwidth, tier.bandwidth)
    return FarReads(size.weights / tier.bandwidth, size.cache / rate, jnp.where(is_near, spill.far_cache, 0.0))


def with_far_memory(far: FarReads, near: EngineStepTime) -> EngineStepTime:
    """Return the step time by part, s, with reads from far memory that overlap with kernels: ``max(kernels, far)``."""
    if nothing(far.weights) and nothing(far.cache):
        return near
    attention = near.attention * (1.0 - far.attention_share)
    far_excess = jnp.maximum(far.weights + far.cache - near.matrix - attention, 0.0)
    cache_share = far.cache / jnp.maximum(far.weights + far.cache, 1e-12)
    return near._replace(
        matrix=near.matrix + (1.0 - cache_share) * far_excess, attention=attention + cache_share * far_excess
    )


class FarBytes(NamedTuple):
    """Bytes that a stage reads from far memory per nano-batch."""

    weights: Scalar
    cache: Scalar


def far_bytes(stage: Stage, serving: Serving, batch: Batch) -> FarBytes:
    """Return the bytes of weights and cache that a stage reads from far memory for one nano-batch; 0 without any.

    Weights that are far are read once per step, for all of its nano-batches.
    """
    spill, nano = stage.design.mapping.spill or NO_SPILL, nano_batches_of(stage)
    if spill is NO_SPILL:
        return FarBytes(0.0, 0.0)
    return FarBytes(
        quotient(spill.far_weights * weight_bytes(stage.design, stage.layout, serving), nano.nano_batches),
        spill.far_cache * stage.layout.layers * step_bytes(stage.design, serving, batch),
    )


def far_energy(stage: Stage, serving: Serving, batch: Batch) -> Scalar:
    """Return the energy of a stage's reads from far memory and of its link, J per nano-batch.

    Near-memory attention does not use the link.
    """
    size, tier = far_bytes(stage, serving, batch), far_tier(stage.design.system)
    if nothing(size.weights) and nothing(size.cache):
        return 0.0
    link_bytes = size.weights + jnp.where(tier.near_bandwidth > 0.0, 0.0, size.cache)
    return tier.read_energy * (size.weights + size.cache) + tier.transfer_energy * link_bytes


def with_step_parts(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> Stage:
    """Return the stage with the parts of a step on ``batch``.

    Nano-batches of its mapping where they save time at its clock, else 1 batch; halves as ``step_overlap`` has them.
    """
    if stage.design.mapping.nano is None:
        return stage._replace(design=with_halves(stage.design, split_batch(batch, stage.design.mapping.pp).tokens))
    nano = nano_batches_of(stage)

    def in_parts(parts: Scalar) -> Stage:
        cut = dataclasses.replace(nano, nano_batches=parts)
        return with_mapping(stage, dataclasses.replace(stage.design.mapping, nano=cut))

    cut_time, single_time = (
        engine_step(candidate, ranks, serving, engine, batch).total for candidate in (stage, in_parts(1.0))
    )
    return in_parts(jnp.where(cut_time < single_time, nano.nano_batches, 1.0))


def with_mapping(stage: Stage, mapping: Mapping) -> Stage:
    """Return the stage with the mapping of its design replaced; layout and rates stay."""
    return stage._replace(design=dataclasses.replace(stage.design, mapping=mapping))


def with_narrow_formats(rates: Rates, engine: Engine) -> Rates:
    """Return the rates with matrix products of 8 and 4 bits at the share of their peak that the engine reaches."""
    operand_bytes = rates.operand_bytes
    peak_share = jnp.where(
        operand_bytes < 0.9, engine.narrow_rate**2, jnp.where(operand_bytes < 1.9, engine.narrow_rate, 1.0)
    )
    narrow_kinds = (OperatorKind.matrix, OperatorKind.grouped)
    units = {
        kind: unit._replace(flop_time=unit.flop_time / peak_share) if kind in narrow_kinds else unit
        for kind, unit in rates.units.items()
    }
    return rates._replace(units=units)


def rates_in(engine: Engine, stage: Stage) -> Rates:
    """Return the rates of single kernels in an engine: its slow-downs, without launch floors.

    :func:`stage_time` counts launches per layer, not per kernel.
    """
    rates = with_narrow_formats(stage.rates, engine)
    added_slowdowns = {OperatorKind.grouped: narrow_shard_slowdown(engine, stage, rates)}
    units = {
        kind: unit._replace(slowdown=engine.kernel_slowdown * (1.0 + added_slowdowns.get(kind, 0.0)), floor=0.0)
        for kind, unit in rates.units.items()
    }
    return without_floors(rates._replace(units=units))


def without_floors(rates: Rates) -> Rates:
    """Return the rates of kernels in a graph, without the launch floor in seconds."""
    return rates._replace(kernels=dataclasses.replace(rates.kernels, kernel_floor=0.0))


def narrow_shard_slowdown(engine: Engine, stage: Stage, rates: Rates) -> Scalar:
    """Return the added share of time of expert kernels with narrow shards: ``(b / (f w))^2``, 0 without experts.

    A shard has ``f`` weights of ``w`` bytes side by side.

    As fused kernels alone show (aiconfigurator, H100 to B200): with 384 bytes they are as fast as with whole experts.
    """
    width = stage.layout.experts.ffn
    if nothing(width):
        return 0.0
    serving = stage.design.mapping.serving or Serving()
    width_ratio = engine.narrow_expert / (width * bytes_per_weight(serving, rates.operand_bytes, True))
    return width_ratio * width_ratio


def layer_message_time(design: Design, engine: Engine, work: StepWork) -> Scalar:
    """Return the time of all messages of a layer, s.

    Within a scale-up domain engines use kernels of their own that read the memory of their peers: the bytes over the
    links to these, without the steps of a library. Their all-reduces are for small messages; larger ones, and engines
    without such kernels, use the library. Where more than two members sum in one shot, each reads the messages of all
    others whole, and the largest such message falls with their number (``one_shot_bytes``). Groups behind the bridges
    of a host use the library: vLLM has no kernel for more than two devices there (``custom_all_reduce.py``, from
    memory), and those for two take as long as the library (229 and 222 us for 4 MB on L40S). So do links without a
    switch (TPUs use XLA, vLLM wants every pair linked). Each message waits for the slowest device.

    A sum over several nodes passes threads of their hosts, which post what the kernel hands over: 20 to 28 us beyond
    steps over the network (530B on 16 and 32 A100 by FasterTransformer, a request of 8 tokens).
    """
    link, software = design.system.scale_up, design.software

    def on_links(message: Message, library_time: Scalar) -> Scalar:
        group, sums = message.group, message.kind is MessageKind.all_reduce
        if sums:
            library_time = library_time + jnp.where(group.domains > 1.0, message.times * engine.crossing_time, 0.0)
        if link.links is not None:
            return library_time
        n, reach = group.size, group.reach
        share = mesh_share(link, n) if reach is None else (reach.ring if sums else reach.exchange)
        volume_share = 2.0 / n if engine.one_shot_bytes is None else 1.0
        volume = volume_share * (n - 1.0) * message.size if sums else message.size
        kernel_time = message.times * volume / (link.bandwidth * link.efficiency * share)
        has_kernel = (group.domains <= 1.0) & (link.bridged <= 0.0) & (link.crowding <= 0.0)
        if sums:
            largest_bytes = engine.own_message_bytes
            if engine.one_shot_bytes is not None:
                largest_bytes = jnp.where(n > 2.0, jnp.minimum(engine.one_shot_bytes / n, largest_bytes), largest_bytes)
            has_kernel = has_kernel & (message.size <= largest_bytes)
        return jnp.where(has_kernel, kernel_time, library_time)

    return sum(
        jnp.where(s.time > 0.0, s.message.times * engine.small_message_time + on_links(s.message, s.time), 0.0)
        for s in send_all(work.messages, software, design.system)
    )
