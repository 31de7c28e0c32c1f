"""Energy of one pass of a stage through a batch, and the share of its time in which the cores have clocks."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus
from dse.model.machine.operator_energy import phase_energy
from dse.model.serving.batch import Batch
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.step import EngineStepTime, far_energy, read_again
from dse.model.serving.work import Stage, step_work
from dse.types import Engine, Scalar, Serving


class PassJoules(NamedTuple):
    """Joules of a device in a pass of its stage: of the cores, of memory, of links and what lies behind them."""

    cores: Scalar
    memory: Scalar
    network: Scalar

    def less(self, other: PassJoules) -> PassJoules:
        """What this takes more than another, nothing at least."""
        return PassJoules(*(jnp.maximum(a - b, 0.0) for a, b in zip(self, other, strict=True)))


def joules_of(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> PassJoules:
    """One pass of a stage, with its share of the head, on the device whose experts get as many rows as the mean."""
    design = stage.design
    work = step_work(stage, ranks, serving, batch, engine.cache_rereads, is_mean=True)
    spent = phase_energy(stage_pass(stage, work, batch).phase, design, read_again(stage, serving))
    links = plus(spent.network, far_energy(stage, serving, batch))
    return PassJoules(engine.kernel_energy * spent.cores, engine.kernel_energy * spent.memory, links)


def working_share(time: EngineStepTime, engine: Engine) -> Scalar:
    """Share of a step in which the cores have clocks: kernels, those of collectives too, which wait inside.

    What an engine adds counts as far as it is small kernels in a graph; while a host launches, the device waits.
    """
    waiting = (1.0 - engine.device_share) * time.host
    return 1.0 - waiting / jnp.maximum(time.total, 1e-12)
