"""The ledger: operators and messages with their execution counts, without time; all accounts are folds over it.

Training has a ledger per layer and one per step, serving one per pass of a stage. Counts multiply the sum of a group,
so that a group costs one product of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import jax

from dse.model.choice import nothing, plus, times
from dse.model.layout import NEVER, Recomputed
from dse.types import Message, Operator, OperatorKind, Scalar, Work

#: A number, or a record of numbers.
T = TypeVar("T")


class Runs(NamedTuple):
    """Operators that run one after the other, and their execution count."""

    operators: tuple[Operator, ...]
    times: Scalar = 1.0
    backward: Scalar = 0.0  # 1 where gradients are computed
    recompute: Recomputed = NEVER  # forward passes repeated in the backward

    def where(self, belongs: Callable[[Operator], bool]) -> Runs:
        """Return the runs of only the operators for which ``belongs`` holds, with the same counts."""
        return self._replace(operators=tuple(filter(belongs, self.operators)))


class Sends(NamedTuple):
    """Messages of one scope, and a count that multiplies those of the messages."""

    messages: tuple[Message, ...]
    times: Scalar = 1.0
    recompute: Recomputed = NEVER  # forward messages repeated in the backward


class Phase(NamedTuple):
    """A repeated part of the work of a device: a layer, a step, a pass of an engine."""

    runs: tuple[Runs, ...]
    sends: tuple[Sends, ...]


def sum_over_kernels(runs: Iterable[Runs], value: Callable[[OperatorKind, Work], T]) -> T:
    """Return the sum of ``value`` over all kernels, each times its executions, a number or a record.

    Args:
        runs: groups of operators, at least one of them not empty.
        value: of one kernel by kind and work: a number or a record of numbers, for example FLOPs.
    """
    active_runs = (group for group in runs if group.operators and not nothing(group.times))
    return sum_records(scale_record(group.times, sum_records(_kernel_values(group, value))) for group in active_runs)


def moved_bytes(runs: Iterable[Runs]) -> Scalar:
    """Return the bytes through device memory of all kernels, times their executions."""
    return sum_over_kernels(runs, lambda _, work: work.bytes)


def _kernel_values(runs: Runs, value: Callable[[OperatorKind, Work], T]) -> list[T]:
    """Return values whose sum is that of one execution of all kernels: forward, recomputed forward, gradients."""
    operators = runs.operators
    forward = [scale_record(o.present, value(o.kind, o.forward)) for o in operators]
    forwards = [*forward, *recomputed_values(operators, forward, runs.recompute)]
    gradients = () if nothing(runs.backward) else operators
    backward = [scale_record(o.present, value(o.kind, work)) for o in gradients for work in o.gradients]
    return [*forwards, scale_record(runs.backward, sum_records(backward))] if backward else forwards


def recomputed_values(operators: Sequence[Operator], forward: Sequence[T], recompute: Recomputed) -> list[T]:
    """Return terms, some negative, whose sum is the value of the forwards that the backward repeats.

    Args:
        operators: of one execution.
        forward: value per operator, for example seconds or joules.
        recompute: forward passes that the backward repeats.
    """
    valued = list(zip(operators, forward, strict=True))
    groups: list[tuple[Scalar, list[T]]] = [
        (recompute.forwards, [value for _, value in valued]),
        (recompute.core, [value for o, value in valued if o.core]),
        (
            times(-1.0, recompute.operators),
            [scale_record(o.retained_share, value) for o, value in valued if o.is_retained],
        ),
        *(
            (share, [value for o, value in valued if o.recomputed_from == level])
            for level, share in recompute.levels.items()
        ),
    ]
    return [scale_record(count, sum_records(values)) for count, values in groups if values and not nothing(count)]


def sum_records(values: Iterable[T]) -> T:
    """Return the sum of at least one number, or of records of numbers part by part."""
    total: T = jax.tree.map(lambda *parts: plus(*parts), *values)
    return total


def scale_record(count: Scalar, value: T) -> T:
    """Return ``count`` times a number or each part of a record."""
    product: T = jax.tree.map(lambda part: times(count, part), value)
    return product
