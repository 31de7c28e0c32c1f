"""Low-rank adapters: what a list of operators is when every matrix is frozen and some have a pair of small ones beside.

A frozen matrix has no weight gradient, so nothing of its input is kept for one; its input gradient stays, for the
layers below. Adapters are linear layers like any other, in 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax.numpy as jnp

from dse.model.choice import plus, required, times
from dse.model.formats import parameter_bytes
from dse.model.layout import Layout
from dse.model.work.operators import Flops, elementwise, linear
from dse.model.work.state import StateBytes
from dse.types import Adapters, Design, Operator, OperatorKind, Scalar

#: How the names of an adapter's operators begin.
PREFIX = "adapter_"

#: Operators whose outputs are summed over tp: each rank has a share of their inputs.
_SUMMED = ("projection", "ffn_down", "shared_down")


class Trained(NamedTuple):
    """What of a model is trained: all of it, or adapters beside it."""

    whole: float = 1.0  # 1 where the model's own weights are trained, else 0
    added: Scalar = 0.0  # parameters of adapters beside those of a layer, on one device
    frozen_bytes: Scalar = 0.0  # of a weight that is not trained, in a message
    narrow: Scalar = 1.0  # bytes of such a weight over those of one that is

    def of(self, parameters: Scalar, layers: Scalar = 1.0) -> Scalar:
        """What is trained of so many parameters in so many layers, with their adapters."""
        return plus(times(self.whole, parameters), times(layers, self.added))

    def of_model(self, state: StateBytes) -> StateBytes:
        """Bytes of a parameter of the model itself: ``state`` where it is trained, else its weight alone."""
        return StateBytes(
            times(self.narrow, state.weights), times(self.whole, state.gradients), times(self.whole, state.optimizer)
        )


def fine_tuned(operators: Sequence[Operator], design: Design, layout: Layout) -> tuple[Operator, ...]:
    """The operators of a layer as they are with its matrices frozen and the adapters of ``design`` beside them."""
    adapters = required(design.workload.adapters, "workload.adapters")
    has = _adapted(adapters)
    found: list[Operator] = []
    for operator in operators:
        found.append(frozen(operator, layout))
        if operator.name in has:
            found += _adapter(operator, has[operator.name], adapters.rank, layout)
    return tuple(found)


def frozen(operator: Operator, layout: Layout) -> Operator:
    """An operator whose weights are not trained: without weight gradient, and without what it keeps for one.

    The attention's backward needs its output itself, in 16 bits, whatever becomes of the projection. Casts to a
    narrower format are written once: the transposed copies are those of weight gradients.
    """
    e = layout.element
    if operator.name == "quantization":
        once = (e.activation + e.operand) / (e.activation + 2.0 * e.operand)
        forward, back = operator.forward, required(operator.input_gradient, "an input gradient")
        return operator._replace(
            forward=forward._replace(bytes=once * forward.bytes), input_gradient=back._replace(bytes=once * back.bytes)
        )
    if operator.weight_gradient is None:
        return operator
    context = operator.name == "projection"
    stored = e.activation * layout.tokens * layout.context_width if context else 0.0
    return operator._replace(weight_gradient=None, stored=stored)


def without_backward(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Operators below the first trained weight (the embedding): nothing asks for their gradients."""
    return tuple(operator._replace(input_gradient=None, weight_gradient=None) for operator in operators)


def trained_parameters(operators: Iterable[Operator], design: Design) -> Trained:
    """What is trained, by the adapters among a layer's operators."""
    adapters = design.workload.adapters
    if adapters is None:
        return Trained()
    layer = sum(
        operator.present * operator.forward.columns * operator.forward.depth
        for operator in operators
        if operator.name.startswith(PREFIX) and operator.kind is not OperatorKind.vector
    )
    narrow = adapters.frozen_bytes / parameter_bytes(design.mapping.precision, design.software)
    return Trained(0.0, layer, adapters.frozen_bytes, narrow)


def _adapted(adapters: Adapters) -> dict[str, Scalar]:
    """Operator → 1 where it has an adapter; of latent attention every projection of queries, keys and values."""
    inputs = dict.fromkeys(("qkv", "q_down", "q_up", "kv_down", "kv_up"), adapters.qkv)
    forward = dict.fromkeys(("ffn_up", "ffn_down", "shared_up", "shared_down"), adapters.feed_forward)
    return inputs | {"projection": adapters.projection} | forward


def _adapter(operator: Operator, has: Scalar, rank: Scalar, layout: Layout) -> list[Operator]:
    """The adapter beside one operator: down to the rank, up again, added to the output.

    It keeps its input in 16 bits, where the attention does not keep it anyway, and what is between its matrices.
    Both matrices are split over tp, whose ranks exchange the few columns between them: the first by its columns where
    the frozen one is, the second where that one sums over ranks, and adds to a share of a split sequence then
    (Megatron-Bridge, ``ParallelLinearAdapter``).
    """
    e, present = layout.element.sixteen_bit(), has * operator.present
    tokens, outputs, inputs = operator.forward.rows, operator.forward.columns, operator.forward.depth
    sums, ranks = operator.name in _SUMMED, layout.groups.tp.size
    stored = 0.0 if operator.name == "projection" else operator.stored * e.activation / layout.element.operand
    name = PREFIX + operator.name
    moved = 3.0 * e.activation
    added = (layout.norm_tokens if sums else tokens) * outputs
    # The gradient of its input is added to that of the frozen matrix, as its output is to the other output.
    back = moved * tokens * inputs / jnp.maximum(added, 1.0)
    columns, outputs = (rank, outputs / ranks) if sums else (rank / ranks, outputs)
    kept = e.activation * tokens * rank
    return [
        linear(f"{name}_down", tokens, columns, inputs, e, stored, OperatorKind.matrix_16, present),
        linear(f"{name}_up", tokens, outputs, rank, e, kept, OperatorKind.matrix_16, present),
        elementwise(f"{name}_sum", added, moved, back, 0.0, flops=Flops(1.0, 1.0), present=present),
    ]
