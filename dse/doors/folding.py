"""Partial evaluation: the equations of a function some of whose inputs are known.

A feature that a sweep does not touch is a neutral element: a factor 1, a term 0, a choice whose condition is the same
for all designs. Its equations go before anything is compiled. Everything else keeps its order and its operands, so the
results are those of the whole list, to the bit, but for the sign of zeros.

The rules are those of :func:`dse.doors.scalars.operations.equal_input`, for finite numbers.

A sweep also has ranges: what its leaves lie between decides further choices (:mod:`dse.doors.ranges`). These, too, are
told a program one by one, so that sweeps which decide the same share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dse.doors.equations import Atom, Constant, Equation, EquationMerger, Equations, number
from dse.doors.ranges import Decision, Ranges
from dse.doors.scalars.operations import PLAIN, WITH_PARAMETERS, equal_input, name_and_parameters, numpy_function

#: Values of inputs that make equations neutral. Programs are compiled for which inputs have them, so there are few.
NEUTRAL = (0.0, 1.0, float("inf"))


#: (variable, position of the input of its equation that it equals or None, the constant that it equals or None).
DecidedVariable = tuple[int, int | None, float | None]

#: Count of equations after which the ranges of variables without further use are dropped.
_FORGET_EVERY = 100


def fold(
    equations: Equations, input_values: Mapping[int, float], decided_variables: Iterable[DecidedVariable] = ()
) -> Equations:
    """Return the equations simplified for known values of some inputs; the inputs and their numbers stay the same.

    Args:
        equations: function to simplify.
        input_values: index of an input → its value.
        decided_variables: further variables that equal an input or a constant (:func:`decisions`).
    """
    decisions_by_variable = {variable: (position, value) for variable, position, value in decided_variables}
    return _rewrite(equations, input_values, lambda equation, _: decisions_by_variable.get(equation.outputs[0]))


def decisions(equations: Equations, input_values: Mapping[int, float], ranges: Ranges) -> tuple[DecidedVariable, ...]:
    """Return (variable, equal input position or None, constant or None) of variables decided within the ranges.

    Args:
        equations: function to simplify.
        input_values: index of an input → its value, the same for all designs.
        ranges: intervals of the other inputs; those of other variables are added while it runs.
    """
    decided_variables: list[DecidedVariable] = []

    def decide(equation: Equation, inputs: tuple[Atom, ...]) -> Decision | None:
        decision = ranges.decision(equation, inputs)
        if decision is not None:
            decided_variables.append((equation.outputs[0], *decision))
        return decision

    _rewrite(equations, input_values, decide, ranges)
    return tuple(decided_variables)


def _rewrite(
    equations: Equations,
    input_values: Mapping[int, float],
    decide: Callable[[Equation, tuple[Atom, ...]], Decision | None],
    ranges: Ranges | None = None,
) -> Equations:
    """Return the equations simplified by ``input_values`` and ``decide``; ``ranges`` take in those that stay.

    ``decide`` gives what the output of an equation at its simplified inputs equals, None where it varies.
    """
    merger = EquationMerger(equations.n_inputs)
    atoms: dict[int, Atom] = {i: i for i in range(equations.n_inputs)}
    atoms |= {i: number(np.float32(value)) for i, value in input_values.items()}
    last_use = {
        atom: index
        for index, equation in enumerate(equations.equations)
        for atom in equation.inputs
        if isinstance(atom, int)
    }
    last_use |= dict.fromkeys((atom for atom in equations.outputs if isinstance(atom, int)), len(equations.equations))

    def read(atom: Atom) -> Atom:
        return atoms[atom] if isinstance(atom, int) else atom

    for index, equation in enumerate(equations.equations):
        inputs, replacement = tuple(map(read, equation.inputs)), None
        if not equation.has_effect:
            replacement = _folded_atom(equation, inputs)
            if replacement is None and (decision := decide(equation, inputs)) is not None:
                position, value = decision
                replacement = _constant(value) if position is None else inputs[position]
        if replacement is None:
            output_atoms: Sequence[Atom] = merger.add_equation(
                equation.primitive, equation.parameters, inputs, len(equation.outputs), equation.has_effect
            )
            if ranges:
                ranges.follow(output_atoms)
        else:
            output_atoms = (replacement,)
        atoms.update(zip(equation.outputs, output_atoms, strict=True))
        if ranges and index % _FORGET_EVERY == 0:
            atoms = {variable: atom for variable, atom in atoms.items() if last_use.get(variable, -1) > index}
            ranges.forget(set(atoms.values()))
    return merger.to_equations(list(map(read, equations.outputs)))


def _constant(value: float | None) -> Constant:
    """Return a constant atom of a decided value: a Boolean for a bool, else single precision."""
    return number(np.bool_(value) if isinstance(value, bool) else np.float32(value))


def _folded_atom(equation: Equation, inputs: tuple[Atom, ...]) -> Atom | None:
    """Return the constant or input that an equation's only output equals, None where it equals none."""
    name = equation.primitive.name
    values = [_scalar_value(atom) for atom in inputs]
    if None not in values and (name in PLAIN or name in WITH_PARAMETERS):
        with np.errstate(all="ignore"):
            return number(np.asarray(numpy_function(*name_and_parameters(equation))(*values))[()])
    position = equal_input(name, values)
    if position is not None:
        return inputs[position]
    if name == "div" and values[1] is not None and values[1] == np.inf:
        return number(values[1].dtype.type(0))
    cases = inputs[1:] if name == "select_n" else inputs if name in ("and", "or", "max", "min") else ()
    return cases[0] if cases and all(_is_same_atom(case, cases[0]) for case in cases) else None


def _is_same_atom(a: Atom, b: Atom) -> bool:
    """True for the same variable, or for constants of equal keys."""
    return a == b if isinstance(a, int) or isinstance(b, int) else a.key == b.key


def _scalar_value(atom: Atom) -> Any:
    """Return the NumPy scalar of a constant in its own precision, None for a variable or an array."""
    if not isinstance(atom, Constant) or np.ndim(atom.value):
        return None
    return np.asarray(atom.value, getattr(atom.value, "dtype", None))[()]
