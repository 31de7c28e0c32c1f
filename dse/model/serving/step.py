"""Time of one engine step: ``T = s (kernels) + messages + layers a_layer + a_step + n a_sequence``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine.messages import send_all
from dse.model.machine.rates import Rates
from dse.model.machine.roofline import isolated_time
from dse.model.serving.work import Batch, Stage, StepWork, step_work
from dse.types import Design, Engine, Message, MessageKind, Operator, OperatorKind, Scalar, Serving


class StepTime(NamedTuple):
    """Seconds between two tokens of a sequence that decodes in such steps, by part."""

    matrix: Scalar
    attention: Scalar
    communication: Scalar
    host: Scalar

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return self.matrix + self.attention + self.communication + self.host

    def plus(self, other: StepTime, weight: Scalar) -> StepTime:
        """The sum of both, of the other one a share."""
        return StepTime(*(a + weight * b for a, b in zip(self, other, strict=True)))


def engine_step(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> StepTime:
    """One engine step of a batch, whose tokens meet those of ``ranks`` in the experts.

    Under a pipeline the batch is cut into as many as there are stages: each sequence goes through all of them, while
    the others work on its neighbours. What has fewer sequences than stages leaves some idle.
    """
    stages = stage.design.mapping.pp
    each = of_one_pass(batch, stages)
    one = stage_time(stage, engine, step_work(stage, ranks, serving, each, engine.cache_rereads), each)
    return StepTime(*(stages * part for part in one))


def of_one_pass(batch: Batch, stages: Scalar) -> Batch:
    """What of a batch goes through a stage at once."""
    apart = jnp.where(batch.sequences > 0.0, jnp.maximum(batch.sequences / stages, 1.0), 0.0)
    return batch._replace(sequences=jnp.where(stages > 1.0, apart, batch.sequences), prompt=batch.prompt / stages)


def stage_time(stage: Stage, engine: Engine, work: StepWork, batch: Batch) -> StepTime:
    """One stage of an engine step; the head is the last stage's, and counted as a share of it in each."""
    layout, rates, pp, s = stage.layout, stage.rates, stage.design.mapping.pp, engine.kernel_slowdown
    layers, mixture = layout.layers, stage.design.workload.experts
    rates = of_narrow_formats(rates, engine)
    is_core = [o.name.endswith("_attention") for o in work.layer]
    core = [o for o, attends in zip(work.layer, is_core, strict=True) if attends]
    others = [o for o, attends in zip(work.layer, is_core, strict=True) if not attends]
    matrices = layers * kernels_time(others, rates)
    if layout.experts is not None:  # kernels of narrow shards of experts are slower
        grouped = kernels_time([o for o in others if o.kind is OperatorKind.grouped], rates)
        matrices = matrices + layers * engine.narrow_expert / layout.experts.ffn * grouped
    added = layers * engine.layer_time
    if stage.design.workload.latent is not None:
        added = added + layers * engine.latent_layer_time
    if mixture is not None:
        known = {id(o) for o in core}
        first = mixture.first_dense / pp
        dense = kernels_time([o for o in work.first_layer if id(o) not in known], rates)
        matrices = matrices + first * (dense - matrices / layers)
        casts = jnp.where(rates.operand_bytes < 1.9, engine.cast_layer_time, 0.0)
        added = added + (layers - first) * (engine.expert_layer_time + casts)
    matrices = matrices + kernels_time([work.head], rates) / pp
    return StepTime(
        matrix=s * matrices,
        attention=s * layers * kernels_time(core, rates),
        communication=layers * messages_time(stage.design, engine, work),
        host=added + engine.host_step_time / pp + batch.sequences * engine.sequence_time,
    )


def of_narrow_formats(rates: Rates, engine: Engine) -> Rates:
    """The rates with matrices of 8 and 4 bits at the share of their peak that they reach."""
    size = rates.operand_bytes
    share = jnp.where(size < 0.9, engine.narrow_rate**2, jnp.where(size < 1.9, engine.narrow_rate, 1.0))
    narrow = (OperatorKind.matrix, OperatorKind.grouped)
    units = {
        kind: unit._replace(flop_time=unit.flop_time / share) if kind in narrow else unit
        for kind, unit in rates.units.items()
    }
    return rates._replace(units=units)


def kernels_time(operators: Iterable[Operator], rates: Rates) -> Scalar:
    """Seconds of the forward of a list of operators, without the floors of single kernels."""
    return sum(o.present * isolated_time(o.kind, o.forward, rates) for o in operators)


def messages_time(design: Design, engine: Engine, work: StepWork) -> Scalar:
    """Seconds of the messages of a layer.

    Inside a scale-up domain engines have kernels of their own, which read the memory of the other devices: a short time
    and the bytes over the link, in place of the steps of a library.
    """
    link, software = design.system.scale_up, design.software
    sent = send_all(work.messages, software, design.system)

    def own(message: Message) -> Scalar:
        n = message.group.size
        volume = (n - 1.0) / n * message.size * (2.0 if message.kind is MessageKind.all_reduce else 1.0)
        return message.times * (engine.small_message_time + volume / (link.bandwidth * link.efficiency))

    return sum(
        jnp.where(s.time > 0.0, jnp.where(s.message.group.size <= link.domain, own(s.message), s.time), 0.0)
        for s in sent
    )
