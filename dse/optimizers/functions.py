"""Evaluation of one design of a search as a pure function: objectives, violation, reasons, and slopes.

The same functions are evaluated by NumPy (:func:`numbers`, :func:`penalised`) and compiled
(:func:`by_equations`, :func:`with_slopes`).
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dse.designs.leaves import replace
from dse.doors import recording
from dse.doors.equations import Equations
from dse.doors.folding import folded
from dse.doors.scalars import ScalarFunction
from dse.doors.scalars.operations import UnknownPrimitiveError, lowered
from dse.io.files import search_digest
from dse.optimizers.judging import Evaluation, logarithm
from dse.sweep.engine.gradients import Differentiated
from dse.sweep.engine.point import Program, evaluate_point
from dse.types import Design, Scalar

#: An excess that rounding hides still counts as one.
_LEAST = 1e-6

#: Programs whose functions of scalars a process holds.
_MOST_HELD = 4


class Penalty(NamedTuple):
    """What slopes are of: ``ln(value) + multiplier violation + stiffness / 2 violation^2`` of each design."""

    weights: Any  #: [design, objective] of the geometric mean; by NumPy a tuple of [design]
    multiplier: Array  #: [design]
    stiffness: Array  #: [design]


def evaluated(program: Program, base: Design, values: dict[str, Scalar]) -> Evaluation:
    """Objectives, violation and reasons of one design; differentiable."""
    objectives, far, reason = _judged(program, base, values)
    return Evaluation(jnp.stack(objectives), far, reason)


def _judged(program: Program, base: Design, values: dict[str, Scalar]) -> tuple[tuple[Scalar, ...], Scalar, Scalar]:
    """:func:`evaluated` in scalars."""
    metrics, objectives = evaluate_point(dataclasses.replace(program, metrics=None), base, values)
    far = violation(program, replace(base, values), metrics)
    return objectives, far, metrics.infeasible_reason


@functools.lru_cache(maxsize=_MOST_HELD)
def numbers(program: Program) -> ScalarFunction:
    """The evaluation of designs by NumPy."""
    return _kept("evaluations of a search", program, functools.partial(_judged, program))


@functools.lru_cache(maxsize=_MOST_HELD)
def penalised(program: Program) -> ScalarFunction:
    """What slopes are of, then the evaluation, of designs by NumPy; weights are a tuple."""
    return _kept("slopes of a search", program, functools.partial(_penalised, program))


def _penalised(program: Program, base: Design, values: dict[str, Scalar], own: Penalty) -> Any:
    found = _judged(program, base, values)
    objectives, far, _ = found
    value = objectives[0]
    if len(objectives) > 1:  # the weighted geometric mean, as :func:`~dse.optimizers.judging.scalar` has it
        logarithms = [logarithm(one) * weight for one, weight in zip(objectives, own.weights, strict=True)]
        value = jnp.exp(functools.reduce(operator.add, logarithms))
    total = logarithm(value) + own.multiplier * far
    return total + 0.5 * own.stiffness * far * far, found


def _kept(name: str, program: Program, function: Callable[..., Any]) -> ScalarFunction:
    """A function of scalars by NumPy, in single precision as programs are."""

    def traced(structure: jax.tree_util.PyTreeDef) -> tuple[Any, Any, None]:
        scalars = [jax.ShapeDtypeStruct((), jnp.float32)] * structure.num_leaves
        return *recording.trace(function, *jax.tree.unflatten(structure, scalars)), None

    made_from = f"{name} {search_digest()} {program}" if program.can_be_kept else None
    return ScalarFunction(lambda *arguments: (function(*arguments), None), made_from, traced)


def stacked(judged: tuple[Any, ...]) -> Evaluation:
    """What :func:`_judged` gives of many designs, as arrays [design, ...]."""
    objectives, violation, reason = judged
    return Evaluation(np.stack(objectives, axis=1), violation, reason)


def violation(program: Program, design: Design, metrics: Any) -> Array:
    """How far a design is from feasible, 0 where it is.

    The logarithm of what it needs over what there is for the reasons that have a degree (memory, say), 1 for every
    other reason of the study, and for each constraint the relative difference of its sides.
    """
    study = program.study
    lookup = study.lookup(design, metrics)
    total: Array = jnp.float32(0.0)
    for constraint in program.constraints:
        total = total + constraint.excess(lookup)
    graded = study.shortfalls(design, metrics)
    for bit in study.reasons:
        is_set = (metrics.infeasible_reason & int(bit)) != 0
        total = total + jnp.where(is_set, jnp.maximum(graded.get(bit, 1.0), _LEAST), 0.0)
    return total


def by_equations(program: Program, base: Design, values: dict[str, Scalar]) -> Evaluation:
    """:func:`evaluated` in a form that compiles faster; pure, for use under ``jit``, ``vmap`` and ``grad``."""
    inputs, structure = jax.tree.flatten((base, values))
    run, outputs = _equations(functools.partial(evaluated, program), structure, program.known)
    return jax.tree.unflatten(outputs, run(*(jnp.asarray(value, jnp.float32) for value in inputs)))


def _equations(
    function: Callable[..., Any], inputs: jax.tree_util.PyTreeDef, known: Iterable[tuple[int, float]]
) -> tuple[Equations, jax.tree_util.PyTreeDef]:
    scalars = jax.tree.unflatten(inputs, [jax.ShapeDtypeStruct((), jnp.float32)] * inputs.num_leaves)
    whole, outputs = recording.trace(function, *scalars)
    return folded(whole, dict(known)), outputs


def with_slopes(
    program: Program, base: Design, values: dict[str, Scalar], own: Penalty
) -> tuple[Evaluation, dict[str, Scalar]]:
    """The evaluation of one design and slopes of what :class:`Penalty` says, by rules of our own where they are known.

    With those of JAX alone the program takes several times as long to trace and to compile.
    """
    arguments = values, base, own._replace(weights=tuple(own.weights))
    given, structure = jax.tree.flatten(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), arguments))

    def function(values: dict[str, Scalar], base: Design, own: Penalty) -> Any:
        return _penalised(program, base, values, own)

    whole, outputs = _equations(function, structure, [(len(values) + i, value) for i, value in program.known])
    try:
        numbers, slopes = Differentiated(lowered(whole, outputs, None, "float32"), len(values))(given, ())
    except UnknownPrimitiveError:

        def value(by: list[Any]) -> tuple[Any, list[Any]]:
            numbers = whole(*by, *given[len(values) :])
            return numbers[0], numbers

        slopes, numbers = jax.grad(value, has_aux=True)(given[: len(values)])
    _, (objectives, far, reason) = jax.tree.unflatten(outputs, numbers)
    return Evaluation(jnp.stack(objectives), far, reason), dict(zip(sorted(values), slopes, strict=True))
