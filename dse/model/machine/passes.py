"""Device seconds of operators by pass, and the compute that can hide messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dse.model.choice import plus, times
from dse.model.layout import NEVER, Recomputed
from dse.model.machine.rates import Rates
from dse.model.machine.roofline import moving_time, operator_times
from dse.model.work.ledger import Runs, moved_bytes, recomputed_values
from dse.types import Design, Operator, OperatorKind, Scalar, Window


class Passes(NamedTuple):
    """Device seconds of a list of operators per micro-batch."""

    forward: Scalar
    input_gradient: Scalar
    weight_gradient: Scalar
    recompute: Scalar  # recomputed forward
    core_forward: Scalar  # attention core, which hides context-parallel messages
    core_backward: Scalar
    matrix_forward: Scalar  # matrices, which hide tensor-parallel messages
    matrix_input_gradient: Scalar
    matrix_weight_gradient: Scalar
    memory_forward: Scalar  # device memory in use, if each pass were one long kernel
    memory_backward: Scalar

    @property
    def backward(self) -> Scalar:
        """Seconds of input and weight gradients, recompute left out."""
        return self.input_gradient + self.weight_gradient

    def window(self, window: Window) -> Scalar:
        """Return the seconds of the compute of a layer that can hide messages of ``window``."""
        return {
            Window.matrix_forward: self.matrix_forward,
            Window.matrix_input_gradient: self.matrix_input_gradient,
            Window.matrix_weight_gradient: self.matrix_weight_gradient,
            Window.attention_forward: self.core_forward,
            Window.attention_backward: self.core_backward,
        }[window]


def run_passes(operators: Sequence[Operator], rates: Rates, trained: Scalar, recompute: Recomputed = NEVER) -> Passes:
    """Return the total seconds of the operators by pass.

    Args:
        operators: of one micro-batch.
        rates: of the device.
        trained: 1 with a backward, 0 for the forward alone.
        recompute: forward passes that the backward repeats.
    """
    timed = [(o, operator_times(o, rates)) for o in operators]
    moved_backward = sum(o.present * sum(work.bytes for work in o.gradients) for o in operators)

    def fold(index: int, keep: Callable[[Operator], bool] = lambda o: True) -> Scalar:
        total = sum((t[index] for o, t in timed if keep(o)))
        return total if index == 0 else trained * total

    def dense(o: Operator) -> bool:
        return o.kind is OperatorKind.matrix

    def core(o: Operator) -> bool:
        return o.core

    return Passes(
        forward=fold(0),
        input_gradient=fold(1),
        weight_gradient=fold(2),
        recompute=plus(*recomputed_values(operators, [t[0] for _, t in timed], recompute)),
        core_forward=fold(0, core),
        core_backward=fold(1, core),
        matrix_forward=fold(0, dense),
        matrix_input_gradient=fold(1, dense),
        matrix_weight_gradient=fold(2, dense),
        memory_forward=moving_time(moved_bytes([Runs(tuple(operators))]), rates),
        memory_backward=moving_time(trained * moved_backward, rates),
    )


def with_small_kernels(passes: Passes, design: Design, seconds: Scalar, repeats: Scalar) -> Passes:
    """Return the passes with ``seconds`` more per forward for kernels without an operator.

    These are casts, copies, transposes and routing.

    A backward has about twice as many; recompute repeats ``repeats`` forwards.
    """
    return passes._replace(
        forward=plus(passes.forward, seconds),
        input_gradient=plus(passes.input_gradient, times(2.0 * design.workload.backward, seconds)),
        recompute=plus(passes.recompute, times(repeats, seconds)),
    )
