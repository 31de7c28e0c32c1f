"""Engine step time by bound: compute, device memory, links between dies, network, rest."""

from __future__ import annotations

from typing import NamedTuple

from dse.model.accounts.bounds import BoundBy, bound_by, proportional
from dse.model.machine.roofline import isolated_time
from dse.model.serving.intake import output_tokens_per_step
from dse.model.serving.nano_batches import nano_batch
from dse.model.serving.stage_pass import stage_pass
from dse.model.serving.steady import EnginePhase, Phases, SteadyState
from dse.model.serving.step import with_narrow_formats, without_floors
from dse.model.serving.work import step_work
from dse.model.work.ledger import scale_record, sum_over_kernels, sum_records
from dse.types import Engine, OperatorKind, Scalar, Serving, Work


class PhaseBounds(NamedTuple):
    """Step time in seconds by bound, of each kind of step."""

    decode: BoundBy
    prefill: BoundBy


def phase_bounds(ranks: Scalar, serving: Serving, engine: Engine, phases: Phases) -> PhaseBounds:
    """Return the times of a decode step and of a step with prompts by what bounds them, s; each adds up to its step.

    Args:
        ranks: data-parallel ranks whose tokens meet in the experts.
        serving: how the engine serves.
        engine: parameters of the engine.
        phases: kinds of engine steps.
    """
    return PhaseBounds(*(_step_bounds(ranks, serving, engine, phase) for phase in (phases.decode, phases.mixed)))


def token_bounds(serving: Serving, state: SteadyState, steps: PhaseBounds) -> BoundBy:
    """Return the mean time per output token by what bounds it, s.

    Decode steps and the delay by prompts are divided like the steps they consist of.

    Time lost to preemption has no bound and counts as rest.

    Args:
        serving: how the engine serves.
        state: latencies of the rank.
        steps: bounds of its kinds of steps.
    """
    decode = scale_record(1.0 / output_tokens_per_step(serving), steps.decode)
    preemption = BoundBy(0.0, 0.0, 0.0, state.preempted)
    return sum_records([decode, proportional(state.prefill, [steps.prefill]), preemption])


def _step_bounds(ranks: Scalar, serving: Serving, engine: Engine, phase: EnginePhase) -> BoundBy:
    """Return the time of one kind of engine step by what bounds it, s.

    Matrices and attention go by the roofline side of each kernel, communication is network, and host time is rest.
    """
    stage, time = phase.clock.stage, phase.time
    rates = without_floors(with_narrow_formats(stage.rates, engine))
    part = nano_batch(stage, phase.batch)
    ledger = stage_pass(stage, step_work(stage, ranks, serving, part, engine), part)

    def bound(kind: OperatorKind, work: Work) -> BoundBy:
        return bound_by(kind, [work], isolated_time(kind, work, rates), rates)

    return sum_records(
        [
            proportional(time.matrix, [sum_over_kernels(ledger.other_operators, bound)]),
            proportional(time.attention, [sum_over_kernels([ledger.attention], bound)]),
            BoundBy(0.0, 0.0, time.communication, time.host),
        ]
    )
