"""The ledger: what runs and what is sent, how often, without time. Every account of both doors is a fold over it.

Training writes one for a layer and one for a step, serving one for a pass of an engine's stage. How often a group runs
multiplies the sum over the group, so that a group costs a program one product.
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
    """Operators that run one after the other, and how often they do."""

    operators: tuple[Operator, ...]
    times: Scalar = 1.0
    backward: Scalar = 0.0  # 1 where their gradients are computed as well
    recompute: Recomputed = NEVER  # how often the backward runs their forwards again

    def where(self, belongs: Callable[[Operator], bool]) -> Runs:
        """Those of the operators that belong, as often."""
        return self._replace(operators=tuple(filter(belongs, self.operators)))


class Sends(NamedTuple):
    """Messages of one scope, and how often each is sent as often as it says itself."""

    messages: tuple[Message, ...]
    times: Scalar = 1.0
    recompute: Recomputed = NEVER  # how often the backward sends messages of the forward again


class Phase(NamedTuple):
    """A part of what a device does that repeats: a layer, a step, a pass of an engine."""

    runs: tuple[Runs, ...]
    sends: tuple[Sends, ...]


def over_kernels(runs: Iterable[Runs], value: Callable[[OperatorKind, Work], T]) -> T:
    """``Σ times x value`` over all kernels, part by part.

    Args:
        runs: at least one of which has operators.
        value: of one kernel by its kind and its work: a number or a record of numbers, for example its FLOPs.
    """
    there = (one for one in runs if one.operators and not nothing(one.times))
    return summed(scaled(one.times, summed(_once(one, value))) for one in there)


def moved_bytes(runs: Iterable[Runs]) -> Scalar:
    """Bytes through device memory."""
    return over_kernels(runs, lambda _, work: work.bytes)


def _once(runs: Runs, value: Callable[[OperatorKind, Work], T]) -> list[T]:
    """The values of all kernels that run once: forwards, those that run again, gradients."""
    operators = runs.operators
    forward = [scaled(o.present, value(o.kind, o.forward)) for o in operators]
    found = [*forward, *recomputed(operators, forward, runs.recompute)]
    gradients = () if nothing(runs.backward) else operators
    backward = [scaled(o.present, value(o.kind, work)) for o in gradients for work in o.gradients]
    return [*found, scaled(runs.backward, summed(backward))] if backward else found


def recomputed(operators: Sequence[Operator], forward: Sequence[T], recompute: Recomputed) -> list[T]:
    """What of their forwards operators run again in the backward, as terms of a sum.

    ``forward``: the value of each operator's forward, seconds or joules for example.
    """
    valued = list(zip(operators, forward, strict=True))
    groups: list[tuple[Scalar, list[T]]] = [
        (recompute.most, [value for _, value in valued]),
        (recompute.core, [value for o, value in valued if o.core]),
        (times(-1.0, recompute.operators), [scaled(o.kept, value) for o, value in valued if o.is_kept]),
        *((share, [value for o, value in valued if o.again == level]) for level, share in recompute.levels.items()),
    ]
    return [scaled(often, summed(values)) for often, values in groups if values and not nothing(often)]


def summed(values: Iterable[T]) -> T:
    """The sum of numbers, or of records of numbers part by part; of one at least."""
    found: T = jax.tree.map(lambda *parts: plus(*parts), *values)
    return found


def scaled(often: Scalar, value: T) -> T:
    """``often`` times a number or each part of a record."""
    found: T = jax.tree.map(lambda part: times(often, part), value)
    return found
