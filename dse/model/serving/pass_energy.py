"""Energy of one pass of a stage through a batch, and the share of its time in which the cores have clocks."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.machine.messages import link_energy
from dse.model.machine.operator_energy import Done, energy_of, work_done
from dse.model.serving.batch import Batch
from dse.model.serving.stage_pass import Runs, stage_pass
from dse.model.serving.step import StepTime, far_energy, read_again
from dse.model.serving.work import Stage, step_work
from dse.types import Engine, Scalar, Serving


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
    design = stage.design
    work = step_work(stage, ranks, serving, batch, engine.cache_rereads)
    ran = stage_pass(stage, work, batch)
    first, *others = ran.runs
    done = _forwards(first).repeated(first.times)
    for runs in others:
        done = done.plus(_forwards(runs), runs.times)
    if design.mapping.nano is not None:
        done = done._replace(moved=done.moved + read_again(stage, serving))
    spent = energy_of(done, design)
    sent, handed = (link_energy(m, design.system, stage.layout) for m in (work.messages, work.hand_over))
    links = ran.layers * sum(sent.values()) + sum(handed.values())
    if design.mapping.spill is not None:
        links = links + far_energy(stage, design.mapping.spill, serving, batch)
    return Joules(engine.kernel_energy * spent.cores, engine.kernel_energy * spent.memory, links)


def _forwards(runs: Runs) -> Done:
    """What operators that run do each time."""
    return work_done([(o.kind, o.present, o.forward) for o in runs.operators])


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
