"""Kernels and messages of the training step of one design as plain numbers: what a device runs, in order."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp

from dse.equations import ScalarFunction
from dse.model import lay_out, operate, training_work
from dse.model.choice import plus, times
from dse.model.layout import Recomputed
from dse.model.machine import technology
from dse.model.machine.messages import send_all
from dse.model.machine.rates import Rates, step_rates
from dse.model.machine.roofline import operator_times, roofline_terms
from dse.model.steps.layer import routing_time, small_kernels
from dse.types import Design, Dimension, Operator, OperatorKind, Scalar, Scope, Window, Work
from dse.types.trees import tree_map

#: Passes of an operator, in the order of :func:`dse.model.machine.roofline.operator_times`.
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = PASSES = ("forward", "input gradient", "weight gradient")


class KernelWork(NamedTuple):
    """A kernel of an operator: seconds and shape of its products, 1 where it has none."""

    seconds: float
    rows: float
    columns: float
    depth: float
    batch: float
    compute_bound: float  #: 1 where compute takes longer than device memory
    flops: float = 0.0
    bytes: float = 0.0  #: through device memory


class OperatorKernels(NamedTuple):
    """An operator with the kernel of each pass, by :data:`PASSES`, or None for a pass that it lacks."""

    section: str  #: ``layer``, ``first layer``, ``embedding`` or ``head``
    name: str
    kind: OperatorKind
    core: bool  #: of attention
    kernels: tuple[KernelWork | None, ...]
    repeated: float  #: share of the forward that the backward repeats, beyond layers with full recompute


class MessageTimes(NamedTuple):
    """Equal messages of one execution of their scope."""

    name: str
    kind: str  #: ``all_reduce``, ``all_gather``, …
    dimension: Dimension
    scope: Scope
    window: Window
    ranks: float  #: of the group
    domains: float  #: scale-up domains that the group spans
    size: float  #: B of each
    number: float
    seconds: float  #: of all, on the wire
    repeated: float  #: times that the backward repeats them

    @property
    def level(self) -> str:
        """Network that limits the messages: ``scale-up`` or ``scale-out``."""
        return "scale-out" if self.domains > 1.0 else "scale-up"


class StepLedger(NamedTuple):
    """Operators and messages of a step, and seconds of what has no operator."""

    operators: tuple[OperatorKernels, ...]
    messages: tuple[MessageTimes, ...]
    full_recompute_share: float  #: share of the layers that the backward repeats whole
    small_kernel_seconds: float  #: s of small kernels per layer and forward
    small_kernel_repeats: float  #: share of them that the backward repeats

    def section_operators(self, section: str) -> list[OperatorKernels]:
        """Return the operators of a section whose forward takes time."""
        return [operator for operator in self.operators if operator.section == section and operator.kernels[0]]


def step_ledger(design: Design) -> StepLedger:
    """Evaluate the kernels and messages of a training step of a design, at the clock of its step.

    Args:
        design: with plain numbers as leaves.

    Returns:
        Seconds, FLOPs and bytes of operators, and sizes of messages, by section of the step.
    """
    numbers, (operators, messages) = _program()(tree_map(float, design))
    return StepLedger(
        tuple(
            _operator(identity, pass_numbers, recompute_share)
            for identity, pass_numbers, recompute_share in zip(
                operators, numbers["kernels"], numbers["repeated"], strict=True
            )
        ),
        tuple(
            MessageTimes(*identity, *map(float, values))
            for identity, values in zip(messages, numbers["messages"], strict=True)
        ),
        *(float(numbers[name]) for name in ("full", "small", "repeats")),
    )


def _operator(identity: Any, pass_numbers: Any, recompute_share: Any) -> OperatorKernels:
    """Return an operator with its kernels as plain numbers, None for passes without time."""
    kernels = tuple(
        None if numbers is None or not float(numbers[0]) else KernelWork(*map(float, numbers))
        for numbers in pass_numbers
    )
    section, name, kind, core = identity
    return OperatorKernels(section, name, kind, core, kernels, float(recompute_share))


@functools.cache
def _program() -> ScalarFunction:
    """Return the compiled program of :func:`_numbers`."""
    return ScalarFunction(_numbers, "step ledger")


def _numbers(design: Design) -> tuple[dict[str, Any], tuple[Any, Any]]:
    """Return (numbers of kernels and messages of a step, their names and kinds), as a function to be traced."""
    design = technology.generated(design)
    layout = lay_out(design)
    work = training_work(design, layout)
    design = operate(design, layout, work).design
    rates, recompute = step_rates(design), layout.recompute
    message_times = send_all(work.messages, design.software, design.system)
    sections = {
        "layer": work.layer,
        "first layer": work.lists.first_layer,
        "embedding": work.embedding,
        "head": work.head,
    }
    section_operators = [(section, operator) for section, operators in sections.items() for operator in operators]
    numbers = {
        "kernels": [_kernels(operator, rates, design.workload.backward) for _, operator in section_operators],
        "repeated": [_repeated(op, recompute) if "layer" in section else 0.0 for section, op in section_operators],
        "messages": [
            (
                m.group.size,
                m.group.domains,
                plus(m.size, m.inter_domain) / m.pieces,
                m.times * m.pieces,
                time,
                recompute.sends(m.dimension) if m.repeated else 0.0,
            )
            for m, time in message_times
        ],
        "full": recompute.full,
        "small": plus(small_kernels(design, layout), routing_time(design, layout)),
        "repeats": recompute.forwards,
    }
    operator_keys = [(section, operator.name, operator.kind, operator.core) for section, operator in section_operators]
    return numbers, (operator_keys, [(m.name, m.kind.name, m.dimension, m.scope, m.window) for m, _ in message_times])


def _kernels(operator: Operator, rates: Rates, backward_share: Scalar) -> list[tuple[Scalar, ...] | None]:
    """Return the numbers of the kernel of each pass (forward, input and weight gradient), None without work."""
    works = operator.forward, operator.input_gradient, operator.weight_gradient
    seconds = operator_times(operator, rates)
    return [
        None
        if work is None
        else _kernel(operator.kind, work, rates, times(backward_share if index else 1.0, time), index > 0)
        for index, (work, time) in enumerate(zip(works, seconds, strict=True))
    ]


def _kernel(kind: OperatorKind, work: Work, rates: Rates, seconds: Scalar, backward: bool) -> tuple[Scalar, ...]:
    """Return seconds, rows, columns, depth, batch, 1 if compute-bound (else 0), FLOPs and bytes of a kernel."""
    compute_time, memory_time = roofline_terms(kind, work, rates, backward)
    bound = jnp.where(compute_time > memory_time, 1.0, 0.0)
    return seconds, work.rows, work.columns, work.depth, work.batch, bound, work.flops, work.bytes


def _repeated(operator: Operator, recompute: Recomputed) -> Scalar:
    """Return the share of a forward that the backward repeats, without full recompute."""
    core_share = recompute.core if operator.core else 0.0
    level_share = recompute.levels.get(operator.recomputed_from, 0.0) if operator.recomputed_from else 0.0
    return plus(core_share, times(recompute.operators, 1.0 - operator.retained_share), level_share)
