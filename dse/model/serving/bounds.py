"""Seconds of an engine's steps by what bounds them: compute, device memory, the network, or none of these."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.accounts.bounds import BoundBy, divided, scaled, summed
from dse.model.machine.rates import Rates
from dse.model.machine.roofline import isolated_time, roofline_terms
from dse.model.serving.stage_pass import Runs, stage_pass
from dse.model.serving.steady import Phase, Phases, Served, tokens_of_a_step
from dse.model.serving.step import of_narrow_formats
from dse.model.serving.work import step_work
from dse.types import Engine, Operator, Scalar, Serving


class PhaseBounds(NamedTuple):
    """Seconds of a step of each kind."""

    decode: BoundBy
    prefill: BoundBy


def phase_bounds(ranks: Scalar, serving: Serving, engine: Engine, phases: Phases) -> PhaseBounds:
    """What bounds a step that decodes, and one that carries prompts; each adds up to the time of the step."""
    return PhaseBounds(*(_step_bounds(ranks, serving, engine, phase) for phase in (phases.decode, phases.mixed)))


def token_bounds(serving: Serving, found: Served, steps: PhaseBounds) -> BoundBy:
    """The time of an output token: steps that decode, and what prompts of others add, divided as their steps are.

    Waiting for memory in the middle of an answer is bound by none of these.
    """
    decode = scaled(steps.decode, 1.0 / tokens_of_a_step(serving))
    waits = BoundBy(0.0, 0.0, 0.0, found.preempted)
    return summed([decode, divided(found.prefill, [steps.prefill]), waits])


def _step_bounds(ranks: Scalar, serving: Serving, engine: Engine, phase: Phase) -> BoundBy:
    """Matrices and attention divided as their kernels are, each kernel whole to its side of the roofline."""
    stage, time = phase.clock.stage, phase.time
    rates = of_narrow_formats(stage.rates, engine)
    ran = stage_pass(stage, step_work(stage, ranks, serving, phase.batch, engine.cache_rereads), phase.batch)
    return summed([
        divided(time.matrix, _kernels(ran.others, rates)),
        divided(time.attention, _kernels([ran.attention], rates)),
        BoundBy(0.0, 0.0, time.communication, time.host),
    ])  # fmt: skip


def _kernels(ran: Iterable[Runs], rates: Rates) -> list[BoundBy]:
    """Seconds of every operator that runs."""
    return [_kernel(operator, times, rates) for operators, times in ran for operator in operators]


def _kernel(operator: Operator, times: Scalar, rates: Rates) -> BoundBy:
    """Seconds of an operator's forward, whole to compute or memory."""
    seconds = times * operator.present * isolated_time(operator.kind, operator.forward, rates)
    compute, memory = roofline_terms(operator.kind, operator.forward, rates)
    bound = jnp.where(compute >= memory, 1.0, 0.0)
    return BoundBy(seconds * bound, seconds * (1.0 - bound), 0.0, 0.0)
