"""Clock of an engine under a power limit, one for decode steps and one for steps with prompts.

Prefill keeps the matrix units busy and draws close to the TDP; decode waits for memory and draws less (POLCA, Patel et
al. 2024), so a limit slows each kind of step differently.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.machine.power import at_clock, clock_ratio
from dse.model.serving.pass_energy import joules_of, working_share
from dse.model.serving.step import EngineStepTime, engine_step, with_step_parts
from dse.model.serving.work import Stage, stage_of
from dse.model.steps.operating import SLOW_CLOCK, limited_clock, repeated_work, with_accelerator
from dse.model.work.batch import Batch, split_batch
from dse.types import Engine, Scalar, Serving


class StageAtClock(NamedTuple):
    """A stage at its clock."""

    stage: Stage
    ratio: Scalar  # clock over nominal clock
    violates_limit: Any  # whether even the lowest clock exceeds the power limit


def stage_at_power_limit(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> StageAtClock:
    """Return the stage at the clock of its power limit for steps of ``batch``, with the parts of such steps.

    Without a limit that sets the clock its rates stay as they are.

    Args:
        stage: at its nominal clock where its accelerator has a limit.
        ranks: data-parallel ranks whose tokens meet in the experts.
        serving: how the engine serves.
        engine: parameters of the engine.
        batch: what an engine step works on.
    """
    accelerator = stage.design.system.accelerator
    stage = with_step_parts(stage, ranks, serving, engine, batch)
    if not accelerator.solves_clock:
        return StageAtClock(stage, clock_ratio(accelerator.power), False)

    def stage_at(ratio: Scalar) -> Stage:
        return stage_of(with_accelerator(stage.design, at_clock(accelerator, ratio)))

    def timed_step(clocked: Stage) -> EngineStepTime:
        return engine_step(clocked, ranks, serving, engine, batch)

    stages = stage.design.mapping.pp
    nominal = timed_step(stage)
    pass_time = jnp.maximum(nominal.total / stages, 1e-12)  # of one pass
    pass_joules = joules_of(stage, ranks, serving, engine, split_batch(batch, stages))
    slow_time = timed_step(stage_at(SLOW_CLOCK)).total / stages
    demand = repeated_work(accelerator, pass_joules, pass_time, slow_time, working_share(nominal, engine))
    limited_ratio, sold_ratio, violates_limit = limited_clock(accelerator, pass_time, demand)
    return StageAtClock(stage_at(limited_ratio / sold_ratio), limited_ratio, violates_limit)
