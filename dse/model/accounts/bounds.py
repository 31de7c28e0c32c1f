"""Step time by bound: compute, device memory, links between dies, network, rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import nothing, plus, times
from dse.model.layout import Layout
from dse.model.machine.die_links import crossing_time
from dse.model.machine.messages import scope_time, send_all
from dse.model.machine.rates import Rates, step_rates
from dse.model.machine.roofline import moving_time, operator_times, roofline_terms
from dse.model.steps.layer import routing_time, small_kernels
from dse.model.steps.training import StepTime
from dse.model.work.ledger import recomputed_values, scale_record, sum_records
from dse.model.work.training import TrainingWork
from dse.types import Design, Operator, OperatorKind, Scalar, Scope, Work

#: Minimum seconds of a divisor, so that empty parts divide by more than zero.
_MIN_SECONDS = 1e-30


class BoundBy(NamedTuple):
    """Seconds of one step by bound, which add up to its time."""

    compute: Scalar  # kernels on the compute side of their roofline
    memory: Scalar  # kernels on the memory side, and the optimiser's traffic
    network: Scalar  # exposed messages
    rest: Scalar  # kernel floors, small kernels, host waits, bubble, synchronization, transfers to the host
    die_links: Scalar = 0.0  # kernels on the memory side whose bytes take longer between the dies of a device

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return plus(*self)


def kernel_bound(kind: OperatorKind, works: Sequence[Work], time: Scalar, rates: Rates) -> BoundBy:
    """Return the bound of a pass, 1 in its field: the rest where floors are over half of ``time``, else the longer one.

    Args:
        kind: of the operator.
        works: kernels of the pass.
        time: their seconds in the step.
        rates: of the device.
    """
    terms = [roofline_terms(kind, work, rates) for work in works]
    by_compute = jnp.where(sum(c for c, _ in terms) >= sum(m for _, m in terms), 1.0, 0.0)
    above_floor: Scalar = 1.0
    if not nothing(rates.kernels.kernel_floor):
        above_floor = jnp.where(len(works) * rates.kernels.kernel_floor > 0.5 * time, 0.0, 1.0)
    compute = times(above_floor, by_compute)
    memory = above_floor - compute
    if rates.die_links is None:
        return BoundBy(compute, memory, 0.0, 1.0 - above_floor)
    crossing = sum(crossing_time(kind, work, rates.die_links) for work in works)
    links = jnp.where(crossing > sum(moving_time(work.bytes, rates) for work in works), memory, 0.0)
    return BoundBy(compute, memory - links, 0.0, 1.0 - above_floor, links)


def step_bounds(design: Design, layout: Layout, work: TrainingWork, step: StepTime) -> BoundBy:
    """Return the seconds of a step by bound.

    Forward, backward, recompute, and embedding with head are divided like the seconds of their operators, each pass of
    an operator counted to one bound (:func:`kernel_bound`). Seconds independent of any rate (kernel floors, small
    kernels, host work per step) are the rest.

    Args:
        design: at the clock that its power allows.
        layout: sizes and groups of the design.
        work: its ledger.
        step: its time by part.
    """
    rates, software, trained = step_rates(design), design.software, design.workload.backward
    small_kernel_time = plus(small_kernels(design, layout), routing_time(design, layout))
    forward, backward = zip(*(_pass_bounds(operator, rates) for operator in work.layer), strict=True)
    messages = send_all(work.messages, software, design.system)
    message_time = scope_time(messages, Scope.embedding) + scope_time(messages, Scope.head)
    end_passes = [_pass_bounds(operator, rates) for operator in (*work.embedding, *work.head)]
    update_overhead = trained * software.step_overhead
    return sum_records(
        [
            proportional(step.forward, [*forward, _as_rest(small_kernel_time)]),
            proportional(step.backward, [*backward, _as_rest(2.0 * small_kernel_time)]),
            proportional(
                step.recompute,
                [
                    *recomputed_values(work.layer, forward, layout.recompute),
                    _as_rest(layout.recompute.forwards * small_kernel_time),
                ],
            ),
            proportional(
                step.embedding_and_head,
                [
                    *(first for first, _ in end_passes),
                    *(scale_record(trained, second) for _, second in end_passes),
                    BoundBy(0.0, 0.0, message_time, 0.0),
                ],
            ),
            BoundBy(
                0.0,
                step.optimizer - update_overhead,
                step.messages,
                plus(update_overhead + step.host + step.bubble + step.offload, step.synchronization),
            ),
        ]
    )


def _pass_bounds(operator: Operator, rates: Rates) -> tuple[BoundBy, BoundBy]:
    """Return the seconds of an operator's forward and of its backward by bound."""
    forward, *gradients = operator_times(operator, rates)
    return (
        bound_by(operator.kind, [operator.forward], forward, rates),
        bound_by(operator.kind, operator.gradients, sum(gradients), rates),
    )


def bound_by(kind: OperatorKind, works: Sequence[Work], time: Scalar, rates: Rates) -> BoundBy:
    """Return the ``time`` of the kernels ``works`` of one pass, s, all of it in the field of their bound."""
    return scale_record(time, kernel_bound(kind, works, time, rates))


def proportional(seconds_of_part: Scalar, seconds: Iterable[BoundBy]) -> BoundBy:
    """Return the seconds of a part of a step by bound, in proportion to the sum of ``seconds``."""
    total = sum_records(seconds)
    return scale_record(seconds_of_part / jnp.maximum(total.total, _MIN_SECONDS), total)


def _as_rest(seconds: Scalar) -> BoundBy:
    """Return a record with all ``seconds`` counted as rest."""
    return BoundBy(0.0, 0.0, 0.0, seconds)
