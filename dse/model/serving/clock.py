"""Clock of an engine under a power limit, one for decode steps and one for steps with prompts.

Prefill keeps the matrix units busy and draws close to the TDP; decode waits for memory and draws less (POLCA, Patel et
al. 2024), so a limit slows each kind of step differently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.machine.power import at_clock, clock_ratio, repeats
from dse.model.serving.pass_energy import joules_of, working_share
from dse.model.serving.step import EngineStepTime, cut_where_it_pays, engine_step, per_stage_batch
from dse.model.serving.work import Stage, stage_of
from dse.model.steps.operating import SLOW, demanded, limited_clock, reading_time, with_accelerator
from dse.model.work.batch import Batch
from dse.types import Engine, Scalar, Serving


class Running(NamedTuple):
    """A stage at its clock."""

    stage: Stage
    ratio: Scalar  # clock over nominal clock
    violates_limit: Any  # whether even the lowest clock exceeds the power limit


def at_limit(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> Running:
    """The stage at the clock of its power limit for steps of ``batch``; unchanged without a limit.

    Args:
        stage: at its nominal clock where its accelerator has a limit.
        ranks: data-parallel ranks whose tokens meet in the experts.
        serving: how the engine serves.
        engine: parameters of the engine.
        batch: what an engine step works on.
    """
    accelerator = stage.design.system.accelerator
    stage = cut_where_it_pays(stage, ranks, serving, engine, batch)
    if not accelerator.solves_clock:
        return Running(stage, clock_ratio(accelerator.power), False)

    def at(ratio: Scalar) -> Stage:
        return stage_of(with_accelerator(stage.design, at_clock(accelerator, ratio)))

    def step(timed: Stage) -> EngineStepTime:
        return engine_step(timed, ranks, serving, engine, batch)

    stages = stage.design.mapping.pp
    nominal = step(stage)
    whole = jnp.maximum(nominal.total / stages, 1e-12)  # of one pass
    spent = joules_of(stage, ranks, serving, engine, per_stage_batch(batch, stages))
    active, reading = working_share(nominal, engine), reading_time(spent.memory, accelerator)
    joules = repeats(spent, whole, accelerator.power)._replace(active=active, memory_time=reading)
    demand = demanded(accelerator, whole, step(at(SLOW)).total / stages, joules)
    limited, as_sold, violates_limit = limited_clock(accelerator, whole, demand)
    return Running(at(limited / as_sold), limited, violates_limit)
