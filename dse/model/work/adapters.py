"""Low-rank adapters: operators of a layer with frozen matrices and a pair of small linear layers next to some of them.

A frozen matrix has no weight gradient and keeps no input for one; its input gradient stays, for the layers below.
Adapters are linear layers in 16 bits.
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

#: Name prefix of an adapter's operators.
PREFIX = "adapter_"

#: Operators whose outputs are summed over tp; each rank has a share of their inputs.
_ROW_PARALLEL = ("projection", "ffn_down", "shared_down")


class TrainedWeights(NamedTuple):
    """Trained weights of a model: all of them, or adapters alone."""

    trains_model: float = 1.0  # 1 where the model's own weights are trained, else 0
    adapter_parameters: Scalar = 0.0  # adapter parameters per layer and device
    frozen_bytes: Scalar = 0.0  # message bytes per frozen weight
    frozen_ratio: Scalar = 1.0  # bytes of a frozen weight over those of a trained one

    def trained_count(self, model_parameters: Scalar, layers: Scalar = 1.0) -> Scalar:
        """Return the count of trained parameters: all or none of ``model_parameters``, and adapters of ``layers``."""
        return plus(times(self.trains_model, model_parameters), times(layers, self.adapter_parameters))

    def of_model(self, state: StateBytes) -> StateBytes:
        """Return the state bytes per parameter of the model itself: ``state`` where trained, else its weight alone."""
        return StateBytes(
            times(self.frozen_ratio, state.weights),
            times(self.trains_model, state.gradients),
            times(self.trains_model, state.optimizer),
        )


def fine_tuned_operators(operators: Sequence[Operator], design: Design, layout: Layout) -> tuple[Operator, ...]:
    """Return the operators of a layer with frozen matrices and the adapters of ``design``."""
    adapters = required(design.workload.adapters, "workload.adapters")
    adapter_flags = _adapter_flags(adapters)
    tuned_operators: list[Operator] = []
    for operator in operators:
        tuned_operators.append(frozen_operator(operator, layout))
        if operator.name in adapter_flags:
            tuned_operators += _adapter(operator, adapter_flags[operator.name], adapters.rank, layout)
    return tuple(tuned_operators)


def frozen_operator(operator: Operator, layout: Layout) -> Operator:
    """Return an operator without weight gradient and the input stored for it; unchanged where it has none.

    Attention's backward still needs its own output, in 16 bits. Casts to a narrower format write no transposed operands
    (:func:`dse.model.work.operators.casts`), which serve weight gradients.
    """
    e = layout.element
    if operator.weight_gradient is None:
        return operator
    context = operator.name == "projection"
    stored = e.activation * layout.tokens * layout.context_width if context else 0.0
    return operator._replace(weight_gradient=None, stored=stored)


def without_backward(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """Return the operators below the first trained weight (the embedding), without gradients."""
    return tuple(operator._replace(input_gradient=None, weight_gradient=None) for operator in operators)


def trained_parameters(operators: Iterable[Operator], design: Design) -> TrainedWeights:
    """Return what trains: the model's weights or its adapters, from the operators of a layer.

    Without adapters, the values of a model that trains whole. With them: adapter parameters per layer and device, and
    bytes of frozen weights.
    """
    adapters = design.workload.adapters
    if adapters is None:
        return TrainedWeights()
    parameters_per_layer = sum(
        operator.present * operator.forward.columns * operator.forward.depth
        for operator in operators
        if operator.name.startswith(PREFIX) and operator.kind is not OperatorKind.vector
    )
    frozen_ratio = adapters.frozen_bytes / parameter_bytes(design.mapping.precision, design.software)
    return TrainedWeights(0.0, parameters_per_layer, adapters.frozen_bytes, frozen_ratio)


def _adapter_flags(adapters: Adapters) -> dict[str, Scalar]:
    """Return name of operator → 1 where it has an adapter, with latent attention every projection of q, k and v."""
    inputs = dict.fromkeys(("qkv", "q_down", "q_up", "kv_down", "kv_up"), adapters.qkv)
    forward = dict.fromkeys(("ffn_up", "ffn_down", "shared_up", "shared_down"), adapters.feed_forward)
    return inputs | {"projection": adapters.projection} | forward


def _adapter(operator: Operator, flag: Scalar, rank: Scalar, layout: Layout) -> list[Operator]:
    """Return the three operators of the adapter of ``operator``: down to the rank, up, sum with its output.

    Stored: its input in 16 bits, unless attention stores it anyway, and its inner columns. tp splits both matrices and
    exchanges the inner columns: the first by columns where the frozen matrix is split by columns, the second where the
    frozen one sums over ranks, then adding to a share of a split sequence (Megatron-Bridge, ``ParallelLinearAdapter``).
    """
    e, present = layout.element.sixteen_bit(), flag * operator.present
    tokens, outputs, inputs = operator.forward.rows, operator.forward.columns, operator.forward.depth
    sums, ranks = operator.name in _ROW_PARALLEL, layout.groups.tp.size
    stored = 0.0 if operator.name == "projection" else operator.stored * e.activation / layout.element.stored_input
    name = PREFIX + operator.name
    bytes_per_output = 3.0 * e.activation
    sum_elements = (layout.norm_tokens if sums else tokens) * outputs
    # Backward adds its input gradient to that of the frozen matrix.
    backward_bytes = bytes_per_output * tokens * inputs / jnp.maximum(sum_elements, 1.0)
    columns, outputs = (rank, outputs / ranks) if sums else (rank / ranks, outputs)
    inner_bytes = e.activation * tokens * rank
    return [
        linear(f"{name}_down", tokens, columns, inputs, e, stored, OperatorKind.matrix_16, present),
        linear(f"{name}_up", tokens, outputs, rank, e, inner_bytes, OperatorKind.matrix_16, present),
        elementwise(
            f"{name}_sum", sum_elements, bytes_per_output, backward_bytes, 0.0, flops=Flops(1.0, 1.0), present=present
        ),
    ]
