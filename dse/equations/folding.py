"""Partial evaluation: the equations of a function some of whose inputs are known.

A feature that a sweep does not touch is a neutral element: a factor 1, a term 0, a choice whose condition is the same
for all designs. Its equations go before anything is compiled. Everything else keeps its order and its operands, so the
results are those of the whole list, to the bit, but for the sign of zeros.

The rules are those of :func:`dse.equations.primitives.decision`, for finite numbers.

A sweep also has ranges: what its leaves lie between decides further choices. A sweep is cut into blocks, each with a
range of every input; a value is a pair of arrays, its least and its most in each block. A comparison that holds in all
blocks is a constant, a maximum whose first operand is never the smaller is that operand. What is decided is told a
program one by one, so that sweeps which decide the same share it.

Compilers round otherwise than NumPy here and there (a product that is added is not rounded on the way). So ends of
what is rounded are moved outwards, and what is decided holds for every way of compiling. Whole numbers below 2^24 are
exact in all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dse.equations.equation import Atom, Constant, Equation, EquationMerger, Equations, number
from dse.equations.primitives import (
    PRIMITIVES,
    Decision,
    Primitive,
    decision,
    name_and_parameters,
    numpy_function,
    range_function,
)
from dse.equations.rules import Pair

#: Values of inputs that make equations neutral. Programs are compiled for which inputs have them, so there are few.
NEUTRAL = (0.0, 1.0, float("inf"))


#: (variable, position of the input of its equation that it equals or None, the constant that it equals or None).
DecidedVariable = tuple[int, int | None, float | None]

#: Count of equations after which the ranges of variables without further use are dropped.
_FORGET_EVERY = 100

_EPSILON = np.finfo(np.float32).eps

#: Integers up to this one are exact in single precision.
_MAX_EXACT_INTEGER = 2.0**24

#: The range of an unknown Boolean.
_UNKNOWN_BOOLEAN = np.array(False), np.array(True)

#: An unknown range, and that its values are not exact integers.
_UNKNOWN_RANGE: tuple[Pair | None, bool] = None, False


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
        decided = ranges.decision(equation, inputs)
        if decided is not None:
            decided_variables.append((equation.outputs[0], *decided))
        return decided

    _rewrite(equations, input_values, decide, ranges)
    return tuple(decided_variables)


@np.errstate(all="ignore")
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
            if replacement is None and (decided := decide(equation, inputs)) is not None:
                position, value = decided
                replacement = _constant(value) if position is None else inputs[position]
        if replacement is None:
            output_atoms: Sequence[Atom] = merger.add_equation(
                equation.primitive,
                equation.parameters,
                inputs,
                len(equation.outputs),
                equation.has_effect,
                equation.key,
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
    if name not in PRIMITIVES:
        return None
    values = [_scalar_value(atom) for atom in inputs]
    if (decided := decision(*name_and_parameters(equation), values)) is not None:
        position, value = decided
        return number(np.asarray(value)[()]) if position is None else inputs[position]
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


# --- ranges -------------------------------------------------------------------------------------------------


class Ranges:
    """Intervals of the variables of a function, first those of its inputs and then equation by equation.

    Args:
        inputs: variable → lowest and highest value in each block, arrays that can be broadcast against each other; one
            array twice where they are the same.
        integer_inputs: inputs that are integers below 2^24 for all designs.
    """

    def __init__(self, inputs: Mapping[int, Pair], integer_inputs: Iterable[int]) -> None:
        self._pairs: dict[int, Pair | None] = dict(inputs)
        self._inputs, self._integers = set(inputs), set(integer_inputs)
        self._last_range = _UNKNOWN_RANGE

    def decision(self, equation: Equation, inputs: tuple[Atom, ...]) -> Decision | None:
        """Return what the next equation's output equals for all designs: (input position, None) or (None, constant).

        None where it varies; its range then waits for :meth:`follow`.

        Args:
            equation: next equation of the function.
            inputs: its inputs after simplification.
        """
        name, operands = equation.primitive.name, [self._pair(atom) for atom in inputs]
        self._last_range = _UNKNOWN_RANGE
        if name in PRIMITIVES and PRIMITIVES[name].is_identity:
            return 0, None
        if name == "sub" and isinstance(inputs[0], int) and inputs[0] == inputs[1]:
            return None, 0.0
        if name == "div" and self._inputs.issuperset(inputs) and _are_equal(operands):
            return None, 1.0
        if name in ("max", "min") and (position := _deciding_operand(name, operands)) is not None:
            return position, None
        are_integer = [self._is_integer(atom) for atom in inputs[name == "select_n" :]]
        output_range = pair, _ = _output_range(equation, operands, are_integer)
        if pair is not None and (value := _constant_value(pair)) is not None:
            return None, value
        self._last_range = output_range
        return None

    def follow(self, outputs: Sequence[Atom]) -> None:
        """Store the range of the last undecided equation under those of its output variables that have none."""
        for output in outputs:
            if isinstance(output, int) and output not in self._pairs:
                self._pairs[output], is_integer = self._last_range
                if is_integer:
                    self._integers.add(output)
        self._last_range = _UNKNOWN_RANGE

    def forget(self, live_atoms: Container[Atom]) -> None:
        """Drop the ranges of all variables that are not in ``live_atoms``."""
        self._pairs = {variable: pair for variable, pair in self._pairs.items() if variable in live_atoms}

    def _pair(self, atom: Atom) -> Pair | None:
        """Return lowest and highest value of an atom in each block, None where unknown and for constant arrays."""
        if isinstance(atom, Constant):
            value = np.asarray(atom.value, getattr(atom.value, "dtype", None))
            return None if value.ndim else (value, value)
        return self._pairs[atom]

    def _is_integer(self, atom: Atom) -> bool:
        """True for an atom that is an exact integer, or a constant scalar of no floating type, for all designs."""
        if isinstance(atom, Constant):
            pair = self._pair(atom)
            return pair is not None and (pair[0].dtype.kind != "f" or are_integers(pair[0]))
        return atom in self._integers


def _constant_value(pair: Pair) -> float | None:
    """Return the Boolean, or the number 0.0 or 1.0, that all values of a range equal, else None."""
    first_value = pair[0].reshape(-1)[0]
    if pair[0].dtype == bool or (pair[0].dtype.kind == "f" and first_value in (0.0, 1.0)):
        value: float = first_value.item()
        return value if all((end == first_value).all() for end in pair) else None
    return None


def _are_equal(operands: list[Pair | None]) -> bool:
    """True where two operands are the same nonzero number in each block."""
    first, second = operands
    if first is None or second is None or first[0] is not first[1] or second[0] is not second[1]:
        return False
    return bool(((first[0] == second[0]) & (first[0] != 0.0)).all())


def _deciding_operand(name: str, operands: list[Pair | None]) -> int | None:
    """Return the position, 0 or 1, of the operand that a ``max`` or ``min`` equals for all designs, else None."""
    first_pair, second_pair = operands
    if first_pair is None or second_pair is None:
        return None
    (first_low, first_high), (second_low, second_high) = first_pair, second_pair
    if_first_larger, if_second_larger = (0, 1) if name == "max" else (1, 0)
    return (
        if_first_larger
        if (first_low >= second_high).all()
        else if_second_larger
        if (first_high <= second_low).all()
        else None
    )


def _output_range(equation: Equation, operands: list[Pair | None], are_integer: list[bool]) -> tuple[Pair | None, bool]:
    """Return (range of an output or None where unknown, whether it is an exact integer for all designs)."""
    row = PRIMITIVES.get(equation.primitive.name)
    unknown_range = (_UNKNOWN_BOOLEAN if row and row.is_truth else None), False
    pairs = [pair for pair in operands if pair is not None]
    if row is None or len(pairs) < len(operands):
        return unknown_range
    operation = name_and_parameters(equation)
    try:
        if all(low is high for low, high in pairs):
            value = np.asarray(numpy_function(*operation)(*(low for low, _ in pairs)))
            output = value, value
        else:
            output = range_function(*operation)(*pairs)
    except NotImplementedError:  # a row without a range, or inputs that its rule does not cover
        return unknown_range
    if output[0].dtype.kind != "f" or _is_exact_integer(row, are_integer, output):
        return output, True
    return (_widen(output, np.float32(_EPSILON * row.rounding)) if row.rounding else output), False


def _is_exact_integer(row: Primitive, are_integer: list[bool], output: Pair) -> bool:
    """True where the real result of a primitive is an exact integer, given which operands are."""
    low, high = output
    if row.rounding > 1.0 or not (row.is_integral or all(are_integer)):
        return False
    if row.is_integral is False:
        return low is high and are_integers(low)
    return bool((abs(low) <= _MAX_EXACT_INTEGER).all() and (abs(high) <= _MAX_EXACT_INTEGER).all())


def _widen(pair: Pair, units: Any) -> Pair:
    """Return an interval whose ends are moved outwards by ``units`` times their magnitude."""
    low, high = pair
    return low - units * abs(low), high + units * abs(high)


def are_integers(values: Any) -> bool:
    """True where all values are integers of magnitude up to 2^24, which single precision holds exactly."""
    with np.errstate(invalid="ignore"):
        return bool((values == np.floor(values)).all() and (abs(values) <= _MAX_EXACT_INTEGER).all())
