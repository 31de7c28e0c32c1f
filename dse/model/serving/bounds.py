"""Engine step time by bound: compute, device memory, links between dies, network, rest."""

from __future__ import annotations

from typing import NamedTuple

from dse.model.accounts.bounds import BoundBy, bound_by, divided
from dse.model.machine.roofline import isolated_time
from dse.model.serving.intake import tokens_of_a_step
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.steady import EnginePhase, Phases, Served
from dse.model.serving.step import of_narrow_formats, without_floors
from dse.model.serving.work import step_work
from dse.model.work.ledger import over_kernels, scaled, summed
from dse.types import Engine, OperatorKind, Scalar, Serving, Work


class PhaseBounds(NamedTuple):
    """Step time in seconds by bound, of each kind of step."""

    decode: BoundBy
    prefill: BoundBy


def phase_bounds(ranks: Scalar, serving: Serving, engine: Engine, phases: Phases) -> PhaseBounds:
    """Bounds of a decode step and of a step with prompts; each adds up to the time of its step, s."""
    return PhaseBounds(*(_step_bounds(ranks, serving, engine, phase) for phase in (phases.decode, phases.mixed)))


def token_bounds(serving: Serving, found: Served, steps: PhaseBounds) -> BoundBy:
    """Time per output token by bound, s: decode steps and the delay by prompts, divided like the steps they consist of.

    Time lost to preemption has no bound and counts as rest.
    """
    decode = scaled(1.0 / tokens_of_a_step(serving), steps.decode)
    waits = BoundBy(0.0, 0.0, 0.0, found.preempted)
    return summed([decode, divided(found.prefill, [steps.prefill]), waits])


def _step_bounds(ranks: Scalar, serving: Serving, engine: Engine, phase: EnginePhase) -> BoundBy:
    """Matrices and attention by the roofline side of each kernel, s; communication is network, host time is rest."""
    stage, time = phase.clock.stage, phase.time
    rates = without_floors(of_narrow_formats(stage.rates, engine))
    ran = stage_pass(stage, step_work(stage, ranks, serving, phase.batch, engine), phase.batch)

    def bound(kind: OperatorKind, work: Work) -> BoundBy:
        return bound_by(kind, [work], isolated_time(kind, work, rates), rates)

    return summed(
        [
            divided(time.matrix, [over_kernels(ran.others, bound)]),
            divided(time.attention, [over_kernels([ran.attention], bound)]),
            BoundBy(0.0, 0.0, time.communication, time.host),
        ]
    )
