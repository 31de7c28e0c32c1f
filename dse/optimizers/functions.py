"""Evaluation of one design of a search as a pure function: objectives, violation, reasons, and slopes.

The same functions are evaluated by NumPy (:func:`evaluation_by_numpy`, :func:`slopes_by_numpy`) and compiled
(:func:`by_equations`, :func:`with_slopes`).
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.designs import replace
from dse.equations import ScalarFunction, fold
from dse.equations.operations import lower_equations
from dse.equations.primitives import RefusedPrimitiveError
from dse.io.files import search_digest
from dse.optimizers.judging import Evaluation, logarithm
from dse.sweep.engine.gradients import Differentiated
from dse.sweep.engine.point import Program, evaluate_point, traced
from dse.types import Design, Scalar

#: An excess that rounding hides still counts as one.
_MIN_EXCESS = 1e-6

#: Programs whose functions of scalars a process holds.
_MAX_PROGRAMS = 4


class Penalty(NamedTuple):
    """Terms of the function that slopes are of: ``ln(value) + multiplier violation + stiffness / 2 violation^2``."""

    weights: Any  #: [design, objective] of the geometric mean; by NumPy a tuple of [design]
    multiplier: Array  #: [design]
    stiffness: Array  #: [design]


def evaluate(program: Program, base: Design, values: dict[str, Scalar]) -> Evaluation:
    """Return minimised objectives [objective], violation and reasons of the base with ``values``; differentiable."""
    objectives, distance, reason = _evaluate_scalars(program, base, values)
    return Evaluation(jnp.stack(objectives), distance, reason)


def _evaluate_scalars(
    program: Program, base: Design, values: dict[str, Scalar]
) -> tuple[tuple[Scalar, ...], Scalar, Scalar]:
    """Return minimised objectives, violation and reason bits of one design as scalars."""
    metrics, objectives = evaluate_point(dataclasses.replace(program, metrics=None), base, values)
    distance = violation(program, replace(base, values), metrics)
    return objectives, distance, metrics.infeasible_reason


@functools.lru_cache(maxsize=_MAX_PROGRAMS)
def evaluation_by_numpy(program: Program) -> ScalarFunction:
    """Return the function (base, values) → :func:`_evaluate_scalars` by NumPy; kept for the program."""
    return _scalar_function("evaluations of a search", program, functools.partial(_evaluate_scalars, program))


@functools.lru_cache(maxsize=_MAX_PROGRAMS)
def slopes_by_numpy(program: Program) -> ScalarFunction:
    """Return the NumPy function (base, values, penalty) → penalised logarithm, with the evaluation beside it.

    ``penalty.weights`` is a tuple, a scalar for each objective.
    """
    return _scalar_function("slopes of a search", program, functools.partial(_penalised, program))


def _penalised(program: Program, base: Design, values: dict[str, Scalar], penalty: Penalty) -> Any:
    """Return the penalised logarithm of one design, and the scalars of its evaluation."""
    outputs = _evaluate_scalars(program, base, values)
    objectives, distance, _ = outputs
    value = objectives[0]
    if len(objectives) > 1:  # the weighted geometric mean, as :func:`~dse.optimizers.judging.scalar` has it
        logarithms = [
            logarithm(objective) * weight for objective, weight in zip(objectives, penalty.weights, strict=True)
        ]
        value = jnp.exp(functools.reduce(operator.add, logarithms))
    penalised_logarithm = logarithm(value) + penalty.multiplier * distance
    return penalised_logarithm + 0.5 * penalty.stiffness * distance * distance, outputs


def _scalar_function(name: str, program: Program, function: Callable[..., Any]) -> ScalarFunction:
    """Return ``function`` of scalars by NumPy, in single precision as programs are."""
    cache_key = f"{name} {search_digest()} {program}" if program.is_cacheable else None
    return ScalarFunction(
        lambda *arguments: (function(*arguments), None), cache_key, lambda inputs: (*traced(function, inputs), None)
    )


def stack_outputs(outputs: tuple[Any, ...]) -> Evaluation:
    """Return the outputs of :func:`_evaluate_scalars` of many designs as arrays [design, ...]."""
    objectives, violation, reason = outputs
    return Evaluation(np.stack(objectives, axis=1), violation, reason)


def violation(program: Program, design: Design, metrics: Any) -> Array:
    """Return how far a design is from feasible, 0 where it is.

    The logarithm of what it needs over what there is for the reasons that have a degree (memory, say), 1 for every
    other reason of the study, and for each constraint the relative difference of its sides.
    """
    study = program.study
    lookup = study.lookup(design, metrics)
    total_violation: Array = jnp.float32(0.0)
    for constraint in program.constraints:
        total_violation = total_violation + constraint.excess(lookup)
    graded = study.shortfalls(design, metrics)
    for bit in study.reasons:
        is_set = (metrics.infeasible_reason & int(bit)) != 0
        total_violation = total_violation + jnp.where(is_set, jnp.maximum(graded.get(bit, 1.0), _MIN_EXCESS), 0.0)
    return total_violation


def by_equations(program: Program, base: Design, values: dict[str, Scalar]) -> Evaluation:
    """Return :func:`evaluate` of one design in a form that compiles faster, under ``jit``, ``vmap`` and ``grad``."""
    inputs, structure = jax.tree.flatten((base, values))
    equations, outputs = traced(functools.partial(evaluate, program), structure)
    values_of_outputs = fold(equations, dict(program.neutral_inputs))(*(jnp.asarray(v, jnp.float32) for v in inputs))
    return jax.tree.unflatten(outputs, values_of_outputs)


def with_slopes(
    program: Program, base: Design, values: dict[str, Scalar], penalty: Penalty
) -> tuple[Evaluation, dict[str, Scalar]]:
    """Return the evaluation of one design, and path → slope of the function of :class:`Penalty` by leaf of ``values``.

    With those of JAX alone the program takes several times as long to trace and to compile.
    """
    arguments = values, base, penalty._replace(weights=tuple(penalty.weights))
    inputs, structure = jax.tree.flatten(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), arguments))

    def function(values: dict[str, Scalar], base: Design, penalty: Penalty) -> Any:
        return _penalised(program, base, values, penalty)

    equations, outputs = traced(function, structure)
    equations = fold(equations, {len(values) + i: value for i, value in program.neutral_inputs})
    try:
        output_values, slopes = Differentiated(lower_equations(equations, outputs, None, "float32"), len(values))(
            inputs, ()
        )
    except RefusedPrimitiveError:

        def value(variables: list[Any]) -> tuple[Any, list[Any]]:
            output_values = equations(*variables, *inputs[len(values) :])
            return output_values[0], output_values

        slopes, output_values = jax.grad(value, has_aux=True)(inputs[: len(values)])
    _, (objectives, distance, reason) = jax.tree.unflatten(outputs, output_values)
    return Evaluation(jnp.stack(objectives), distance, reason), dict(zip(sorted(values), slopes, strict=True))
