"""One training step: compute, communication, bubble and optimiser of a design, by part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.model.machine.messages import Sent, send_all, time_of
from dse.model.machine.passes import run_passes
from dse.model.machine.rates import Rates, step_rates
from dse.model.machine.roofline import moving_time
from dse.model.parallel import pipeline
from dse.model.parallel.data import Windows, data_parallel_time
from dse.model.steps.layer import LayerTime, first_layer, launch_time, run_layer
from dse.model.work import offload
from dse.model.work.state import optimizer_traffic
from dse.model.work.training import TrainingWork
from dse.types import Design, Scalar, Scope


class StepTime(NamedTuple):
    """Seconds of one training step by part; the parts add up to ``total``."""

    forward: Scalar
    backward: Scalar
    recompute: Scalar
    embedding_and_head: Scalar
    host: Scalar
    tensor_parallel: Scalar
    context_parallel: Scalar
    bubble: Scalar
    pipeline_parallel: Scalar
    data_parallel: Scalar
    optimizer: Scalar
    offload: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)

    @property
    def waiting(self) -> Scalar:
        """Seconds for which a device has no work but to poll for others: exposed messages, and the bubble."""
        messages = self.tensor_parallel + self.context_parallel + self.pipeline_parallel + self.data_parallel
        return messages + self.bubble


class Intervals(NamedTuple):
    """Between two micro-batches on the slowest stage: how long it is, and what it is made of."""

    stages: pipeline.Stages
    stall: Scalar  # of a stage without embedding and head, whose device waits for its host
    embedding_and_head: Scalar  # what the slower of the two adds, beyond a layer that its stage may lack
    host: Scalar  # what the stage that has it waits for its host


def step_time(design: Design, layout: Layout, work: TrainingWork) -> tuple[StepTime, LayerTime]:
    """One step, and one layer and micro-batch of it.

    ``n`` intervals of the slowest stage, the bubble, exposed communication, the optimiser.
    """
    w, m = design.workload, design.mapping
    n, layers = layout.n_micro_batches, layout.layers
    sent = send_all(work.messages, design.software, design.system)
    rates = step_rates(design)
    run = run_layer(design, layout, work, rates, sent)
    one = run.time
    ends = embedding_and_head_time(work, rates, sent, w.backward)
    if layout.experts is not None:  # layers of the first stage that are not as the others are
        first = first_layer(design, layout, work, rates, sent).time.total
        ends = (ends[0] + jnp.where(m.pp > 1.0, layout.experts.first, 0.0) * (first - one.total), ends[1])
    interval = stage_intervals(design, layout, one, ends)
    windows = Windows(layers * run.forward, layers * run.backward, interval.stall + layers * one.offload)
    sends = pipeline.exposed_sends(m.pp, m.virtual_stages, n, design.software.pp_overlap)
    step = StepTime(
        forward=n * layers * one.forward,
        backward=n * layers * one.backward,
        recompute=n * layers * one.recompute,
        embedding_and_head=n * interval.embedding_and_head,
        host=n * interval.host,
        tensor_parallel=n * layers * one.tensor_parallel,
        context_parallel=n * layers * one.context_parallel,
        bubble=pipeline.bubble_time(interval.stages, m.pp, m.virtual_stages),
        pipeline_parallel=0.5 * (1.0 + w.backward) * sends * time_of(sent, Scope.stage_boundary),
        data_parallel=data_parallel_time(design, layout, sent, windows),
        optimizer=w.backward * optimizer_time(design, layout, work, rates),
        offload=n * layers * one.offload + layers * run.update,
    )
    return step, one


def stage_intervals(
    design: Design, layout: Layout, one: LayerTime, ends: tuple[Scalar, Scalar]
) -> Intervals:
    """Intervals of the stages, whose layers take ``one`` each and whose ``ends`` the embedding and the head.

    A stage's host launches ahead of its device, so an interval is the longer of what both need for a micro-batch:
    on a host-bound stage embedding and head hide in the wait.
    """
    layers, split, launch = layout.layers, design.mapping.pp > 1.0, launch_time(design, layout)
    first_lacks, last_lacks = layout.stages.first_lacks, layout.stages.last_lacks
    device, launches = layers * one.total, layers * launch
    plain = jnp.maximum(device, launches)
    # Embedding and head have about as many launches as a layer each, and are not recomputed. A single stage has both.
    end_launches = (1.0 + design.workload.backward) * design.software.host_time * layout.has_vocabulary
    first = jnp.where(split, ends[0], sum(ends)) - first_lacks * one.total
    first_launches = jnp.where(split, 1.0, 2.0) * end_launches - first_lacks * launch
    last = jnp.where(split, ends[1], 0.0) - last_lacks * one.total
    last_launches = jnp.where(split, end_launches, 0.0) - last_lacks * launch
    stages = pipeline.Stages(
        middle=plain,
        first=jnp.maximum(device + first, launches + first_launches) - plain,
        last=jnp.maximum(device + last, launches + last_launches) - plain,
        spare=layout.stages.others / layers * plain,
    )
    longer = jnp.maximum(jnp.maximum(first, last), 0.0)
    most_launches = launches + jnp.maximum(jnp.maximum(first_launches, last_launches), 0.0)
    return Intervals(
        stages=stages,
        stall=plain - device,
        embedding_and_head=longer,
        host=jnp.maximum(most_launches - device - longer, 0.0),
    )


def embedding_and_head_time(
    work: TrainingWork, rates: Rates, sent: Sequence[Sent], trained: Scalar
) -> tuple[Scalar, Scalar]:
    """Seconds a micro-batch that the first stage (embedding) and the last (head, loss) add."""
    first, last = run_passes(work.embedding, rates, trained), run_passes(work.head, rates, trained)
    return (
        first.forward + first.backward + time_of(sent, Scope.embedding),
        last.forward + last.backward + time_of(sent, Scope.head),
    )


def optimizer_time(design: Design, layout: Layout, work: TrainingWork, rates: Rates) -> Scalar:
    """Seconds of the Adam step, bound by memory, and of what the host does once a step."""
    changing = work.parameters if work.trained is None else work.trained.stage
    moved = changing * optimizer_traffic(design, layout, layout.groups.dp)
    if layout.experts is not None and work.experts is not None and work.trained is None:
        moved = moved + work.experts.parameters * optimizer_traffic(design, layout, layout.experts.replicas)
    if design.mapping.tiers is not None:  # what the host updates, the device does not
        moved = moved * offload.state_left(design.mapping)[1]
    return moving_time(moved, rates) + design.software.step_overhead
