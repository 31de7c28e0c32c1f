"""The clocks that a power limit leaves an engine: one for steps that decode, one for those that carry prompts.

Prompts keep the matrix units busy and draw near the limit as sold; decoding waits for memory and draws less (POLCA,
Patel et al. 2024). A limit that is set slows each kind of step as far as it has to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.model.machine.power import at_clock, clock_ratio, repeats
from dse.model.serving.batch import Batch
from dse.model.serving.pass_energy import joules_of, working_share
from dse.model.serving.step import EngineStepTime, cut_where_it_pays, engine_step, per_stage_batch
from dse.model.serving.work import Stage, stage_of
from dse.model.steps.operating import SLOW, demanded, is_limited, limited_clock, reading_time, with_accelerator
from dse.types import Engine, Scalar, Serving


class Running(NamedTuple):
    """A stage with the rates of its clock."""

    stage: Stage
    ratio: Scalar  # clock over the nominal one
    over: Any  # whether no clock meets the limit


def at_limit(stage: Stage, ranks: Scalar, serving: Serving, engine: Engine, batch: Batch) -> Running:
    """The stage as it runs steps of this batch: as it is, or at the clock that its power limit leaves.

    A stage that is limited comes at its nominal clock.
    """
    accelerator = stage.design.system.accelerator
    stage = cut_where_it_pays(stage, ranks, serving, engine, batch)
    if not is_limited(accelerator):
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
    limited, as_sold, over = limited_clock(accelerator, whole, demand)
    return Running(at(limited / as_sold), limited, over)
