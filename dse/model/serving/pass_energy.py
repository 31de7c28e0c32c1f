"""Energy of one pass of a stage over a batch, and the share of its time with running core clocks."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus
from dse.model.machine.operator_energy import phase_energy
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.step import EngineStepTime, far_energy, reread_bytes
from dse.model.serving.work import Stage, step_work
from dse.model.work.batch import Batch
from dse.types import Engine, Scalar, Serving


class PassJoules(NamedTuple):
    """Joules per device and pass of a stage: cores, last-level cache, memory and links."""

    cores: Scalar
    cache: Scalar
    memory: Scalar
    network: Scalar

    def excess_over(self, other: PassJoules) -> PassJoules:
        """Return the excess over another pass by part, J, each at least 0."""
        return PassJoules(*(jnp.maximum(a - b, 0.0) for a, b in zip(self, other, strict=True)))


def joules_of(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> PassJoules:
    """Return the energy of one pass of a stage with its share of the head, J per device.

    On the device with the mean rows of experts.
    """
    design = stage.design
    work = step_work(stage, ranks, serving, batch, engine, is_mean=True)
    joules = phase_energy(stage_pass(stage, work, batch).phase, design, reread_bytes(stage, serving))
    link_joules = plus(joules.network, far_energy(stage, serving, batch))
    cores, cache, memory = (engine.kernel_energy * part for part in (joules.cores, joules.cache, joules.memory))
    return PassJoules(cores, cache, memory, link_joules)


def working_share(time: EngineStepTime, engine: Engine) -> Scalar:
    """Return the share of a step's time with running core clocks: kernels, including waiting collective kernels.

    ``1 - (1 - device_share) t_host / T``.

    Overheads count where they are small kernels of a graph; during host launches the device idles.
    """
    host_wait = (1.0 - engine.device_share) * time.host
    return 1.0 - host_wait / jnp.maximum(time.total, 1e-12)
