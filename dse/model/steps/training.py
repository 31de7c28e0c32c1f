"""Time of one training step by part: compute, communication, bubble, synchronization, optimiser.

For event-driven schedules, :class:`Stages` has the times per stage, pass and micro-batch of a pipeline; the closed
forms need only their sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus, times
from dse.model.layout import Layout
from dse.model.machine import collectives
from dse.model.machine.messages import TimedMessage, scope_time, send_all
from dse.model.machine.passes import Passes, run_passes
from dse.model.machine.rates import Rates, step_rates
from dse.model.machine.roofline import moving_time
from dse.model.parallel import pipeline
from dse.model.parallel.data import Windows, data_parallel_time, synchronization_time
from dse.model.parallel.pipeline import PassTime, pairs_passes
from dse.model.stage_layers import chunk_layers
from dse.model.steps.layer import (
    LayerPasses,
    LayerRun,
    LayerTime,
    awaited_forward,
    end_launch_time,
    first_layer,
    launch_time,
    run_layer,
)
from dse.model.work import offload
from dse.model.work.ledger import moved_bytes
from dse.model.work.training import TrainingWork, update_runs
from dse.types import Design, Scalar, Scope


class StepTime(NamedTuple):
    """Seconds of one training step by part, which add up to ``total``."""

    forward: Scalar
    backward: Scalar
    recompute: Scalar
    embedding_and_head: Scalar
    host: Scalar
    tensor_parallel: Scalar
    expert_parallel: Scalar
    context_parallel: Scalar
    bubble: Scalar
    pipeline_parallel: Scalar
    synchronization: Scalar
    data_parallel: Scalar
    optimizer: Scalar
    offload: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return plus(*self[:5], plus(self.tensor_parallel, self.expert_parallel), *self[7:])

    @property
    def messages(self) -> Scalar:
        """Seconds of exposed messages."""
        layer_messages = plus(self.tensor_parallel, self.expert_parallel, self.context_parallel)
        return plus(layer_messages, self.pipeline_parallel, self.data_parallel)

    @property
    def waiting(self) -> Scalar:
        """Seconds without work, in which a device polls for others: exposed messages, bubble, synchronization."""
        return plus(self.messages + self.bubble, self.synchronization)


class StageIntervals(NamedTuple):
    """Interval between two micro-batches on the slowest stage, s, by part."""

    stages: pipeline.PipelineStages
    embedding_and_head: Scalar  # of the slower of the two, beyond a layer that its stage may lack
    host: Scalar  # wait for the host on that stage


def step_time(design: Design, layout: Layout, work: TrainingWork) -> tuple[StepTime, LayerTime]:
    """Return the time of a training step, and of one layer and micro-batch of it, by part in s.

    ``n`` intervals of the slowest stage, the bubble, exposed messages, the wait for other replicas, the optimiser.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        work: its ledger.
    """
    w, m = design.workload, design.mapping
    n, layers = layout.n_micro_batches, layout.layers
    messages = send_all(work.messages, design.software, design.system)
    rates = step_rates(design)
    run = run_layer(design, layout, work, rates, messages)
    layer = run.time
    end_times = embedding_and_head_time(work, rates, messages, w.backward)
    hidden = hidden_messages(design, layout, run)
    layer = layer._replace(expert_parallel=plus(layer.expert_parallel, times(-1.0, hidden)))
    if not nothing(layout.experts.first):  # first dense layers of a mixture
        first = first_layer(design, layout, work, rates, messages).time.total
        first_end, last_end = end_times
        first_end = first_end + jnp.where(m.pp > 1.0, layout.experts.first, 0.0) * (first - layer.total)
        end_times = first_end, last_end
    interval = stage_intervals(design, layout, layer, end_times, run.passes.forward)
    waits = pipeline_waits(design, layout, interval, run, hidden)
    windows = Windows(layers * run.forward, layers * run.backward, interval.host + layers * layer.offload)
    step = StepTime(
        forward=n * layers * layer.forward,
        backward=n * layers * layer.backward,
        recompute=n * layers * layer.recompute,
        embedding_and_head=n * interval.embedding_and_head,
        host=n * interval.host,
        tensor_parallel=n * layers * layer.tensor_parallel,
        expert_parallel=plus(times(n * layers, layer.expert_parallel), waits.unpaired),
        context_parallel=n * layers * layer.context_parallel,
        bubble=waits.bubble,
        pipeline_parallel=0.5 * (1.0 + w.backward) * waits.sends * scope_time(messages, Scope.stage_boundary),
        synchronization=synchronization_time(
            design, layout, layers * layer.total + interval.embedding_and_head + interval.host
        ),
        data_parallel=data_parallel_time(design, layout, messages, windows),
        optimizer=w.backward * optimizer_time(design, layout, work, rates),
        offload=n * layers * layer.offload + layers * run.update,
    )
    return step, layer


class PipelineWaits(NamedTuple):
    """Seconds and messages that the schedule of a pipeline adds to the intervals of the slowest stage."""

    bubble: Scalar
    sends: Scalar  # exposed one-way messages between stages
    unpaired: Scalar = 0.0  # seconds of messages exposed in unpaired passes


def pipeline_waits(
    design: Design, layout: Layout, interval: StageIntervals, run: LayerRun, hidden: Scalar
) -> PipelineWaits:
    """Return the bubble in s, count of exposed sends, and seconds of unpaired messages of a step.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        interval: intervals of the slowest stage.
        run: one layer and micro-batch.
        hidden: seconds per layer of :func:`hidden_messages`.
    """
    m, n, overlap = design.mapping, layout.n_micro_batches, design.software.pp_overlap
    if m.schedule is None:
        bubble = pipeline.bubble_time(interval.stages, m.pp, m.virtual_stages)
        return PipelineWaits(bubble, pipeline.exposed_sends(m.pp, m.virtual_stages, n, overlap))
    hidden_per_stage = times(layout.layers, hidden)
    return PipelineWaits(
        bubble=pipeline.named_bubble_time(m, interval.stages, pass_time(run), n, hidden_per_stage),
        sends=pipeline.exposed_sends(m.pp, m.virtual_stages, n, jnp.maximum(overlap, pipeline.pairs_passes(m))),
        unpaired=times(jnp.minimum(pipeline.unpaired_micro_batches(m), n), hidden_per_stage),
    )


def pass_time(run: LayerRun) -> pipeline.PassTime:
    """Return the seconds by pass of one layer and micro-batch, exposed messages included."""
    forward, weight = run.passes.forward, run.passes.weight_gradient
    return pipeline.PassTime(forward, run.time.total - forward - weight, weight)


def hidden_messages(design: Design, layout: Layout, run: LayerRun) -> Scalar:
    """Return the seconds per layer and micro-batch of expert messages that paired passes hide, 0 without pairing.

    DualPipe runs the messages of a forward and of a backward in parallel with the compute of the other (DeepSeek-V3
    report 2024, figure 4), whose cores their kernels share.
    """
    message_time = run.passes.experts_forward + run.passes.experts_backward
    pairing = pipeline.pairs_passes(design.mapping)
    if nothing(message_time) or nothing(pairing):
        return 0.0
    compute = run.time.forward + run.time.backward + run.time.recompute
    usage = collectives.usage(layout.experts.ep, design.system)
    return pairing * (message_time - collectives.exposed(message_time, compute, 1.0, usage))


def stage_intervals(
    design: Design, layout: Layout, layer: LayerTime, end_times: tuple[Scalar, Scalar], forward: Scalar
) -> StageIntervals:
    """Return the seconds between two micro-batches of the stages, and of the slowest one embedding, head and host.

    The host launches ahead of the device, so an interval is the longer of both per micro-batch; on a host-bound stage
    embedding and head hide in the wait.
    """
    layers, is_pipelined, launch = layout.layers, design.mapping.pp > 1.0, launch_time(design, layout, layer, forward)
    first_lacks, last_lacks = layout.stages.first_lacks, layout.stages.last_lacks
    device, launches = layers * layer.total, layers * launch
    interval, wait = jnp.maximum(device, launches), launches - device
    end_launches = end_launch_time(design, layout)  # of embedding or head; a single stage has both
    end_times = pipeline.end_values(*layout.pipeline, *end_times)
    (first_time, last_time), both_times = end_times, sum(end_times)
    launches_of_first, launches_of_last = pipeline.end_values(*layout.pipeline, end_launches, end_launches)
    first = jnp.where(is_pipelined, first_time, both_times) - first_lacks * layer.total
    first_launches = jnp.where(is_pipelined, launches_of_first, 2.0 * end_launches) - first_lacks * launch
    last = jnp.where(is_pipelined, last_time, 0.0) - last_lacks * layer.total
    last_launches = jnp.where(is_pipelined, launches_of_last, 0.0) - last_lacks * launch
    stages = pipeline.PipelineStages(
        middle=interval,
        first=_interval_increase(wait, first, first_launches),
        last=_interval_increase(wait, last, last_launches),
        spare=layout.stages.middle_lacks / layers * interval,
    )
    end_increase = jnp.maximum(jnp.maximum(first, last), 0.0)
    more_launches = jnp.maximum(jnp.maximum(first_launches, last_launches), 0.0)
    return StageIntervals(
        stages=stages,
        embedding_and_head=end_increase,
        host=jnp.maximum(wait + more_launches - end_increase, 0.0),
    )


def _interval_increase(wait: Scalar, device: Scalar, launches: Scalar) -> Scalar:
    """Return the seconds by which an end makes an interval longer: ``max(d + device, l + launches) - max(d, l)``.

    A function of ``wait = l - d`` alone, because an end is small against ``d`` and ``l``.
    """
    return jnp.maximum(device - jnp.maximum(wait, 0.0), launches + jnp.minimum(wait, 0.0))


def embedding_and_head_time(
    work: TrainingWork, rates: Rates, messages: Sequence[TimedMessage], trained: Scalar
) -> tuple[Scalar, Scalar]:
    """Return the seconds per micro-batch of embedding (first stage) and of head and loss (last stage)."""
    first, last = run_passes(work.embedding, rates, trained), run_passes(work.head, rates, trained)
    return (
        first.forward + first.backward + scope_time(messages, Scope.embedding),
        last.forward + last.backward + scope_time(messages, Scope.head),
    )


def optimizer_time(design: Design, layout: Layout, work: TrainingWork, rates: Rates) -> Scalar:
    """Return the time of the Adam step on the device, s: its memory traffic, and host work once per step.

    ``bytes / bandwidth + step_overhead``.
    """
    trained_parameters = work.trained.trained_count(work.parameters, layout.layers)
    traffic = moved_bytes(update_runs(design, layout, work.trained, trained_parameters, work.routed))
    _, optimizer_share = offload.device_state_shares(design.mapping)
    traffic = times(optimizer_share, traffic)  # without the host's share
    return moving_time(traffic, rates) + design.software.step_overhead


class Stages(NamedTuple):
    """Layers per chunk of a pipeline, and seconds of passes per micro-batch."""

    micro_batches: Scalar
    chunk_layers: Scalar  # of the largest chunk
    first_lacks: Scalar  # layers that the model's first chunk has less
    last_lacks: Scalar
    dense_layers: Scalar  # first dense layers of a mixture of experts
    layer: PassTime
    dense_layer: PassTime
    embedding: PassTime
    head: PassTime
    exposed: LayerPasses  # passes of a layer, and its exposed messages
    hidden: Scalar  # seconds of a layer's messages hidden by a paired pass
    launch: Scalar  # host launch time per layer
    awaited: Scalar  # of its forward, where the host waits within it, else 0
    end_launch: Scalar  # host launch time of embedding or head
    message: Scalar  # per stage boundary
    waited: Scalar  # exposed share of it
    update: Scalar  # seconds per step of loading the optimiser state
    synchronization: Scalar
    data_parallel: Scalar
    optimizer: Scalar
    step_time: Scalar  # by the closed forms


def stages_of(design: Design, layout: Layout, work: TrainingWork, step: StepTime) -> Stages:
    """Return layers and seconds of chunks and passes, with messages of embedding and head in forward or backward.

    Args:
        design: at its clock.
        layout: sizes and groups of the design.
        work: its ledger.
        step: time of a step by part.
    """
    w, m, software = design.workload, design.mapping, design.software
    messages, rates = send_all(work.messages, software, design.system), step_rates(design)
    run = run_layer(design, layout, work, rates, messages)
    dense = run if nothing(layout.experts.first) else first_layer(design, layout, work, rates, messages)
    chunks = chunk_layers(w, m)
    hidden, overlap = 0.0 * step.forward + hidden_messages(design, layout, run), software.pp_overlap
    overlap = plus(overlap, times(1.0 - overlap, pairs_passes(m)))
    embedding = _pass_seconds(run_passes(work.embedding, rates, w.backward))
    head = _pass_seconds(run_passes(work.head, rates, w.backward))
    return Stages(
        micro_batches=layout.n_micro_batches,
        chunk_layers=chunks.chunks / m.virtual_stages,
        first_lacks=chunks.short_first,
        last_lacks=chunks.short_last,
        dense_layers=layout.experts.first,
        layer=pass_time(run),
        dense_layer=pass_time(dense),
        embedding=embedding._replace(forward=embedding.forward + scope_time(messages, Scope.embedding)),
        head=head._replace(input_gradient=head.input_gradient + scope_time(messages, Scope.head)),
        exposed=run.passes,
        hidden=hidden,
        launch=launch_time(design, layout, run.time, run.passes.forward),
        awaited=0.0 * step.forward + awaited_forward(design, layout),
        end_launch=0.0 * step.forward + end_launch_time(design, layout),
        message=scope_time(messages, Scope.stage_boundary),
        waited=1.0 - overlap,
        update=layout.layers * run.update,
        synchronization=0.0 * step.forward + step.synchronization,
        data_parallel=step.data_parallel,
        optimizer=step.optimizer,
        step_time=step.total,
    )


def _pass_seconds(passes: Passes) -> PassTime:
    """Return the seconds of embedding or head by pass, without messages."""
    return PassTime(passes.forward, passes.input_gradient, passes.weight_gradient)
