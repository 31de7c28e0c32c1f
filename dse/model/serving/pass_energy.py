"""Energy of one pass of a stage over a batch, and the share of its time with running core clocks."""

from __future__ import annotations

import jax.numpy as jnp

from dse.model.choice import plus
from dse.model.machine.operator_energy import PassJoules, phase_energy
from dse.model.serving.nano_batches import SINGLE_BATCH, nano_batch, nano_batches_of
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.step import EngineStepTime, far_energy
from dse.model.serving.work import Stage, step_work
from dse.model.work.batch import Batch
from dse.model.work.ledger import scale_record
from dse.types import Engine, Scalar, Serving


def joules_of(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> PassJoules:
    """Return the energy of one pass of a stage with its share of the head, J per device.

    On the device with the mean rows of experts. Each nano-batch reads the weights.
    """
    nano, part = nano_batches_of(stage), nano_batch(stage, batch)
    work = step_work(stage, ranks, serving, part, engine, is_mean=True)
    joules = phase_energy(stage_pass(stage, work, part).phase, stage.design)
    link_joules = plus(joules.network, far_energy(stage, serving, part))
    scale = engine.kernel_energy
    total = PassJoules(scale * joules.cores, scale * joules.cache, scale * joules.memory, link_joules)
    return total if nano is SINGLE_BATCH else scale_record(nano.nano_batches, total)


def working_share(time: EngineStepTime, engine: Engine) -> Scalar:
    """Return the share of a step's time with running core clocks: kernels, including waiting collective kernels.

    ``1 - (1 - device_share) t_host / T``.

    Overheads count where they are small kernels of a graph; during host launches the device idles.
    """
    host_wait = (1.0 - engine.device_share) * time.host
    return 1.0 - host_wait / jnp.maximum(time.total, 1e-12)
