"""Seconds of a step by what bounds them: compute, device memory, the network, or none of these."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.layout import Layout
from dse.model.machine.messages import send_all, time_of
from dse.model.machine.rates import Rates, step_rates
from dse.model.machine.roofline import operator_times, roofline_terms
from dse.model.steps.layer import routing_time, small_kernels
from dse.model.steps.training import StepTime
from dse.model.work.training import TrainingWork
from dse.types import Design, Operator, OperatorKind, Scalar, Scope, Work

#: Seconds below which a part of the step is none.
_NOTHING = 1e-30


class BoundBy(NamedTuple):
    """Seconds of one step by what bounds them; they add up to its time."""

    compute: Scalar  # kernels on the compute side of their roofline
    memory: Scalar  # kernels on the memory side, and the optimiser's traffic
    network: Scalar  # exposed messages
    rest: Scalar  # kernel floors and small kernels, waits for the host, the bubble, transfers to the host

    @property
    def total(self) -> Scalar:
        """Sum of the parts."""
        return sum(self)


class KernelBound(NamedTuple):
    """What bounds the kernels of one pass of an operator: 1 for one of the three, 0 for the others."""

    compute: Scalar
    memory: Scalar
    floor: Scalar


def kernel_bound(kind: OperatorKind, works: Sequence[Work], time: Scalar, rates: Rates) -> KernelBound:
    """What most of a pass's ``time`` is spent on: kernel floors, else the longer of the roofline's two terms."""
    terms = [roofline_terms(kind, work, rates) for work in works]
    above = jnp.where(len(works) * rates.kernels.kernel_floor > 0.5 * time, 0.0, 1.0)
    compute = above * jnp.where(sum(c for c, _ in terms) >= sum(m for _, m in terms), 1.0, 0.0)
    return KernelBound(compute, above - compute, 1.0 - above)


def step_bounds(design: Design, layout: Layout, work: TrainingWork, step: StepTime) -> BoundBy:
    """The parts of a step by what bounds them.

    Forward, backward, recompute, and embedding with head are divided as the seconds of their operators are, each pass
    of an operator whole to the side of the roofline that its kernels are on (:func:`kernel_bound`); of recompute the
    operators that run again, of embedding and head both, with their messages. Seconds that no rate shortens (kernel
    floors, small kernels, what the host does once a step) are the rest.

    Args:
        design: at the clock that its power allows.
        layout: its own.
        work: its own.
        step: its time by part.
    """
    rates, software, trained = step_rates(design), design.software, design.workload.backward
    small = small_kernels(design, layout)
    if software.experts is not None:
        small = small + routing_time(design, layout, software.experts)
    forward, backward = [], []
    for operator in work.layer:
        one, other = _passes(operator, rates)
        forward.append(one)
        backward.append(other)
    again = [scaled(seconds, _repeated(o, layout)) for o, seconds in zip(work.layer, forward, strict=True)]
    whole_again = layout.full + layout.selective_op  # as opposed to the attention core alone
    messages = send_all(work.messages, software, design.system)
    sent = time_of(messages, Scope.embedding) + time_of(messages, Scope.head)
    ends = [seconds for o in (*work.embedding, *work.head) for seconds in _trained(_passes(o, rates), trained)]
    once = trained * software.step_overhead
    exposed = step.tensor_parallel + step.context_parallel + step.pipeline_parallel + step.data_parallel
    return summed([
        divided(step.forward, [*forward, _rest(small)]),
        divided(step.backward, [*backward, _rest(2.0 * small)]),
        divided(step.recompute, [*again, _rest(whole_again * small)]),
        divided(step.embedding_and_head, [*ends, BoundBy(0.0, 0.0, sent, 0.0)]),
        BoundBy(0.0, step.optimizer - once, exposed, once + step.host + step.bubble + step.offload),
    ])  # fmt: skip


def _passes(operator: Operator, rates: Rates) -> tuple[BoundBy, BoundBy]:
    """Seconds of an operator's forward and backward, each whole to what bounds it."""
    forward, *gradients = operator_times(operator, rates)
    return (
        _bound(operator.kind, [operator.forward], forward, rates),
        _bound(operator.kind, operator.gradients, sum(gradients), rates),
    )


def _bound(kind: OperatorKind, works: Sequence[Work], time: Scalar, rates: Rates) -> BoundBy:
    bound = kernel_bound(kind, works, time, rates)
    return BoundBy(time * bound.compute, time * bound.memory, 0.0, time * bound.floor)


def _trained(passes: tuple[BoundBy, BoundBy], trained: Scalar) -> tuple[BoundBy, BoundBy]:
    """The backward's seconds only where there is one."""
    return passes[0], scaled(passes[1], trained)


def _repeated(operator: Operator, layout: Layout) -> Scalar:
    """How much of an operator's forward the backward runs again."""
    core = layout.selective if operator.core else 0.0
    by_level = 0.0 if layout.experts is None or not operator.again else layout.experts.again[operator.again]
    return layout.full + core + layout.selective_op * (1.0 - operator.kept) + by_level


def divided(part: Scalar, seconds: Iterable[BoundBy]) -> BoundBy:
    """A part of a step, divided as these seconds are."""
    found = summed(seconds)
    return scaled(found, part / jnp.maximum(found.total, _NOTHING))


def _rest(seconds: Scalar) -> BoundBy:
    return BoundBy(0.0, 0.0, 0.0, seconds)


def scaled(seconds: BoundBy, factor: Scalar) -> BoundBy:
    """So many times these seconds."""
    return BoundBy(*(factor * one for one in seconds))


def summed(seconds: Iterable[BoundBy]) -> BoundBy:
    """Their sum, part by part."""
    return BoundBy(*map(sum, zip(*seconds, strict=True)))
