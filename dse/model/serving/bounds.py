"""Seconds of an engine's steps by what bounds them: compute, device memory, the network, or none of these."""

from __future__ import annotations

from typing import NamedTuple

from dse.model.accounts.bounds import BoundBy, bound_by, divided
from dse.model.machine.roofline import isolated_time
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.steady import EnginePhase, Phases, Served, tokens_of_a_step
from dse.model.serving.step import of_narrow_formats, without_floors
from dse.model.serving.work import step_work
from dse.model.work.ledger import over_kernels, scaled, summed
from dse.types import Engine, OperatorKind, Scalar, Serving, Work


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
    decode = scaled(1.0 / tokens_of_a_step(serving), steps.decode)
    waits = BoundBy(0.0, 0.0, 0.0, found.preempted)
    return summed([decode, divided(found.prefill, [steps.prefill]), waits])


def _step_bounds(ranks: Scalar, serving: Serving, engine: Engine, phase: EnginePhase) -> BoundBy:
    """Matrices and attention divided as their kernels are, each kernel whole to its side of the roofline."""
    stage, time = phase.clock.stage, phase.time
    rates = without_floors(of_narrow_formats(stage.rates, engine))
    ran = stage_pass(stage, step_work(stage, ranks, serving, phase.batch, engine.cache_rereads), phase.batch)

    def bound(kind: OperatorKind, work: Work) -> BoundBy:
        return bound_by(kind, [work], isolated_time(kind, work, rates), rates)

    return summed([
        divided(time.matrix, [over_kernels(ran.others, bound)]),
        divided(time.attention, [over_kernels([ran.attention], bound)]),
        BoundBy(0.0, 0.0, time.communication, time.host),
    ])  # fmt: skip
