"""Time per stage, pass and micro-batch of a pipeline, for event-driven schedules.

The closed forms of :mod:`dse.model.steps.training` need only their sums.
"""

from __future__ import annotations

from typing import NamedTuple

from dse.model.choice import nothing, plus, times
from dse.model.layout import Layout
from dse.model.machine.messages import send_all, time_of
from dse.model.machine.passes import Passes, run_passes
from dse.model.machine.rates import step_rates
from dse.model.parallel.pipeline import PassTime, pairs
from dse.model.stage_layers import chunk_layers
from dse.model.steps.layer import LayerPasses, awaited_forward, first_layer, launch_time, run_layer
from dse.model.steps.training import StepTime, hidden_messages, pass_time
from dse.model.work.training import TrainingWork
from dse.types import Design, Scalar, Scope


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
    data_parallel: Scalar
    optimizer: Scalar
    step_time: Scalar  # by the closed forms


def stages_of(design: Design, layout: Layout, work: TrainingWork, step: StepTime) -> Stages:
    """Chunks and passes of a design; messages of embedding and head count to their forward or backward."""
    w, m, software = design.workload, design.mapping, design.software
    sent, rates = send_all(work.messages, software, design.system), step_rates(design)
    run = run_layer(design, layout, work, rates, sent)
    dense = run if nothing(layout.experts.first) else first_layer(design, layout, work, rates, sent)
    chunks = chunk_layers(w, m)
    hidden, overlap = 0.0 * step.forward + hidden_messages(design, layout, run), software.pp_overlap
    overlap = plus(overlap, times(1.0 - overlap, pairs(m)))
    embedding = _alone(run_passes(work.embedding, rates, w.backward))
    head = _alone(run_passes(work.head, rates, w.backward))
    return Stages(
        micro_batches=layout.n_micro_batches,
        chunk_layers=chunks.chunks / m.virtual_stages,
        first_lacks=chunks.short_first,
        last_lacks=chunks.short_last,
        dense_layers=layout.experts.first,
        layer=pass_time(run),
        dense_layer=pass_time(dense),
        embedding=embedding._replace(forward=embedding.forward + time_of(sent, Scope.embedding)),
        head=head._replace(input_gradient=head.input_gradient + time_of(sent, Scope.head)),
        exposed=run.passes,
        hidden=hidden,
        launch=launch_time(design, layout, run.time, run.passes.forward),
        awaited=0.0 * step.forward + awaited_forward(design, layout),
        end_launch=(1.0 + w.backward) * software.host_time * layout.has_vocabulary,
        message=time_of(sent, Scope.stage_boundary),
        waited=1.0 - overlap,
        update=layout.layers * run.update,
        data_parallel=step.data_parallel,
        optimizer=step.optimizer,
        step_time=step.total,
    )


def _alone(passes: Passes) -> PassTime:
    return PassTime(passes.forward, passes.input_gradient, passes.weight_gradient)
