"""Energy of one pass of a stage through a batch, and the share of its time in which the cores have clocks."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine.messages import link_energy
from dse.model.machine.operator_energy import operators_energy
from dse.model.serving.batch import Batch
from dse.model.serving.step import StepTime, far_energy, read_again
from dse.model.serving.work import Stage, dense_layers, step_work
from dse.types import Engine, Operator, Scalar, Serving


class Joules(NamedTuple):
    """Joules of a device in a pass of its stage: of the cores, of memory, of links and what lies behind them."""

    cores: Scalar
    memory: Scalar
    network: Scalar

    def less(self, other: Joules) -> Joules:
        """What this takes more than another, nothing at least."""
        return Joules(*(jnp.maximum(a - b, 0.0) for a, b in zip(self, other, strict=True)))


def joules_of(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> Joules:
    """One pass of a stage, with its share of the head, on the device whose experts get as many rows as the mean."""
    stage = of_mean_rank(stage)
    design, pp = stage.design, stage.design.mapping.pp
    layers, heads = stage.layout.layers + batch.drafting / pp, (1.0 + batch.drafting) / pp
    work = step_work(stage, ranks, serving, batch, engine.cache_rereads)

    def joules(operators: tuple[Operator, ...]) -> tuple[Scalar, Scalar]:
        forward = [o._replace(input_gradient=None, weight_gradient=None) for o in operators]
        found = operators_energy(forward, design)
        return found.cores, found.memory

    layer, head = joules(work.layer), joules((work.head,))
    sent, handed = (link_energy(m, design.system, stage.layout) for m in (work.messages, work.hand_over))
    links = layers * sum(sent.values()) + sum(handed.values())
    if stage.layout.experts is None:
        both = [layers * a + heads * b for a, b in zip(layer, head, strict=True)]
    else:
        plain, dense = dense_layers(stage), joules(work.dense_layer)
        both = [(layers - plain) * a + plain * b + heads * c for a, b, c in zip(layer, dense, head, strict=True)]
    if design.mapping.spill is not None:
        links = links + far_energy(stage, design.mapping.spill, serving, batch)
    if design.mapping.nano is not None:
        power, again = design.system.accelerator.power, read_again(stage, serving)
        both = [both[0] + power.cache_energy * again, both[1] + power.memory_energy * again]
    return Joules(engine.kernel_energy * both[0], engine.kernel_energy * both[1], links)


def of_mean_rank(stage: Stage) -> Stage:
    """The stage whose experts get the rows of the mean rank, where its time is that of the busiest."""
    experts = stage.design.workload.experts
    if experts is None:
        return stage
    workload = dataclasses.replace(stage.design.workload, experts=dataclasses.replace(experts, imbalance=1.0))
    return stage._replace(design=dataclasses.replace(stage.design, workload=workload))


def working_share(time: StepTime, engine: Engine) -> Scalar:
    """Share of a step in which the cores have clocks: kernels, those of collectives too, which wait inside.

    What an engine adds counts as far as it is small kernels in a graph; while a host launches, the device waits.
    """
    waiting = (1.0 - engine.device_share) * time.host
    return 1.0 - waiting / jnp.maximum(time.total, 1e-12)
