"""Partial evaluation: the equations of a function some of whose inputs are known.

A feature that a sweep does not touch is a neutral element: a factor 1, a term 0, a choice whose condition is the same
for all designs. Its equations go before anything is compiled. Everything else keeps its order and its operands, so the
results are those of the whole list, to the bit, but for the sign of zeros.

The rules hold for finite numbers: ``0 * x`` is 0 and ``x / inf`` is 0. What would not be finite there would be no
number in the whole list, and the model gives none (``tests/model``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from dse.doors.equations import Atom, Constant, Equation, Equations, Merging, constant
from dse.doors.scalars.operations import PLAIN, WITH_PARAMETERS, function_of, named

#: Values of inputs that make equations neutral. Programs are compiled for which inputs have them, so there are few.
NEUTRAL = (0.0, 1.0, float("inf"))


def folded(whole: Equations, known: Mapping[int, float]) -> Equations:
    """The same function for the inputs that have the values ``known``, by their numbers; they stay inputs."""
    merging = Merging(whole.n_inputs)
    atoms: dict[int, Atom] = {i: i for i in range(whole.n_inputs)}
    atoms |= {i: _number(np.float32(value)) for i, value in known.items()}

    def read(atom: Atom) -> Atom:
        return atoms[atom] if isinstance(atom, int) else atom

    for equation in whole.equations:
        inputs = tuple(map(read, equation.inputs))
        found = None if equation.has_effect else _folded(equation, inputs)
        if found is None:
            results: Sequence[Atom] = merging.once(
                equation.primitive, equation.parameters, inputs, len(equation.outputs), equation.has_effect
            )
        else:
            results = (found,)
        atoms.update(zip(equation.outputs, results, strict=True))
    return merging.result(list(map(read, whole.outputs)))


def _folded(equation: Equation, inputs: tuple[Atom, ...]) -> Atom | None:
    """What the equation gives, where that is a constant or one of its inputs."""
    name = equation.primitive.name
    values = [_value(atom) for atom in inputs]
    if None not in values and (name in PLAIN or name in WITH_PARAMETERS):
        with np.errstate(all="ignore"):
            return _number(np.asarray(function_of(*named(equation))(*values))[()])
    rule = _RULES.get(name)
    return rule(inputs, values) if rule else None


def _number(value: Any) -> Constant:
    return constant(value, (value.tobytes(), f"{value.dtype}[]"))


def _value(atom: Atom) -> Any:
    """The value of a constant scalar, in its own precision; None for anything else."""
    if not isinstance(atom, Constant) or np.ndim(atom.value):
        return None
    return np.asarray(atom.value, getattr(atom.value, "dtype", None))[()]


# --- rules: (inputs, their values or None) → what the equation gives, or None ---------------------------------

_Rule = Callable[[Sequence[Atom], Sequence[Any]], Atom | None]


def _is(value: Any, number: float) -> bool:
    return value is not None and bool(value == number)


def _either(neutral: float, absorbing: float | None = None) -> _Rule:
    """Of a commutative operation: one operand is neutral, or decides."""

    def rule(inputs: Sequence[Atom], values: Sequence[Any]) -> Atom | None:
        for i in (0, 1):
            if _is(values[i], neutral):
                return inputs[1 - i]
            if absorbing is not None and _is(values[i], absorbing):
                return inputs[i]
        return None

    return rule


def _subtract(inputs: Sequence[Atom], values: Sequence[Any]) -> Atom | None:
    return inputs[0] if _is(values[1], 0.0) else None


def _divide(inputs: Sequence[Atom], values: Sequence[Any]) -> Atom | None:
    if _is(values[1], 1.0) or _is(values[0], 0.0):
        return inputs[0]
    return _number(values[1].dtype.type(0)) if _is(values[1], np.inf) else None


def _and(inputs: Sequence[Atom], values: Sequence[Any]) -> Atom | None:
    for i in (0, 1):
        if values[i] is not None:
            if not values[i]:
                return inputs[i]
            if values[i] == ~values[i].dtype.type(0):
                return inputs[1 - i]
    return None


def _or(inputs: Sequence[Atom], values: Sequence[Any]) -> Atom | None:
    for i in (0, 1):
        if values[i] is not None:
            if not values[i]:
                return inputs[1 - i]
            if values[i] == ~values[i].dtype.type(0):
                return inputs[i]
    return inputs[0] if inputs[0] == inputs[1] else None


def _select(inputs: Sequence[Atom], values: Sequence[Any]) -> Atom | None:
    cases = inputs[1:]
    if values[0] is not None:
        return cases[int(values[0])]
    same = all(_same(case, cases[0]) for case in cases)
    return cases[0] if same else None


def _same(a: Atom, b: Atom) -> bool:
    return a == b if isinstance(a, int) or isinstance(b, int) else a.key == b.key


_RULES: dict[str, _Rule] = {
    "add": _either(0.0), "add_any": _either(0.0), "sub": _subtract, "mul": _either(1.0, 0.0), "div": _divide,
    "max": _either(-np.inf, np.inf), "min": _either(np.inf, -np.inf), "and": _and, "or": _or, "select_n": _select,
}  # fmt: skip
