"""What the values of equations lie between over all designs of a sweep, and which choices that decides.

A sweep is cut into blocks, each with a range of every input; a value is a pair of arrays, its least and its most in
each block (:mod:`dse.doors.scalars.intervals`). A comparison that holds in all blocks is a constant, a maximum whose
first operand is never the smaller is that operand.

Compilers round otherwise than NumPy here and there (a product that is added is not rounded on the way). So ends of
what is rounded are moved outwards, and what is decided holds for every way of compiling. Whole numbers below 2^24 are
exact in all of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dse.doors.equations import Atom, Constant, Equation
from dse.doors.scalars import intervals
from dse.doors.scalars.intervals import Pair
from dse.doors.scalars.operations import UnknownPrimitiveError, name_and_parameters, numpy_function

#: Operations whose result is rounded to the nearest number, and those with an error of some units in the last place.
_CORRECTLY_ROUNDED = frozenset({"add", "add_any", "sub", "mul", "div", "square", "integer_pow", "sqrt"})
_LOOSELY_ROUNDED = frozenset({"exp", "exp2", "log", "log2", "log1p", "expm1", "tanh", "pow"})
_EPSILON = np.finfo(np.float32).eps

_COMPARISONS = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})

#: Operations whose results are integers, and those of integers whose results may be fractions.
_INTEGER_RESULTS = frozenset({"floor", "ceil", "round"})
_FRACTIONAL_RESULTS = frozenset({"div", "integer_pow", "sqrt", "bitcast_convert_type"})

#: Integers up to this one are exact in single precision.
_MAX_EXACT_INTEGER = 2.0**24

#: The range of an unknown Boolean.
_UNKNOWN_BOOLEAN = np.array(False), np.array(True)

#: An unknown range, and that its values are not exact integers.
_UNKNOWN_RANGE: tuple[Pair | None, bool] = None, False

#: What an output equals: (position of an input, None) or (None, a constant).
Decision = tuple[int | None, float | None]


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
        name, operands, self._last_range = (
            equation.primitive.name,
            [self._interval(atom) for atom in inputs],
            _UNKNOWN_RANGE,
        )
        if name in ("stop_gradient", "copy"):
            return 0, None
        if name == "sub" and isinstance(inputs[0], int) and inputs[0] == inputs[1]:
            return None, 0.0
        if name == "div" and self._inputs.issuperset(inputs) and _are_equal(operands):
            return None, 1.0
        if name in ("max", "min") and (position := _deciding_operand(name, operands)) is not None:
            return position, None
        output_range = pair, _ = _output_range(equation, operands, [self._is_integer(atom) for atom in inputs])
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

    def _interval(self, atom: Atom) -> Pair | None:
        """Return lowest and highest value of an atom in each block, None where unknown and for constant arrays."""
        if isinstance(atom, Constant):
            value = np.asarray(atom.value, getattr(atom.value, "dtype", None))
            return None if value.ndim else (value, value)
        return self._pairs[atom]

    def _is_integer(self, atom: Atom) -> bool:
        """True for an atom that is an exact integer, or a constant scalar of no floating type, for all designs."""
        if isinstance(atom, Constant):
            pair = self._interval(atom)
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
    name = equation.primitive.name
    unknown_range = (_UNKNOWN_BOOLEAN if name in _COMPARISONS else None), False
    intervals_in = [pair for pair in operands if pair is not None]
    if len(intervals_in) < len(operands):
        return unknown_range
    try:
        with np.errstate(all="ignore"):
            interval = _interval_by_rule(equation, intervals_in)
    except (UnknownPrimitiveError, KeyError, NotImplementedError):
        return unknown_range
    if interval[0].dtype.kind != "f":
        return interval, True
    if _is_exact_integer(name, are_integer[name == "select_n" :], interval):
        return interval, True
    units = _EPSILON * (1.0 if name in _CORRECTLY_ROUNDED else 4.0 if name in _LOOSELY_ROUNDED else 0.0)
    return (_widen(interval, np.float32(units)) if units else interval), False


def _is_exact_integer(name: str, are_integer: list[bool], interval: Pair) -> bool:
    """True where the result of an operation is an exact integer, given which operands are."""
    low, high = interval
    if name in _LOOSELY_ROUNDED or not (name in _INTEGER_RESULTS or all(are_integer)):
        return False
    if name in _FRACTIONAL_RESULTS:
        return low is high and are_integers(low)
    return bool((abs(low) <= _MAX_EXACT_INTEGER).all() and (abs(high) <= _MAX_EXACT_INTEGER).all())


def _interval_by_rule(equation: Equation, operands: list[Pair]) -> Pair:
    """Return the interval of an equation's output before rounding, from those of its operands.

    Raises what :func:`~dse.doors.scalars.intervals.operation` and its rules raise for operations without a rule.
    """
    operation = name_and_parameters(equation)
    if all(low is high for low, high in operands):
        value = np.asarray(numpy_function(*operation)(*(low for low, _ in operands)))
        return value, value
    return intervals.operation(*operation)(*operands)


def _widen(pair: Pair, units: Any) -> Pair:
    """Return an interval whose ends are moved outwards by ``units`` times their magnitude."""
    low, high = pair
    with np.errstate(all="ignore"):
        return low - units * abs(low), high + units * abs(high)


def are_integers(values: Any) -> bool:
    """True where all values are integers of magnitude up to 2^24, which single precision holds exactly."""
    with np.errstate(invalid="ignore"):
        return bool((values == np.floor(values)).all() and (abs(values) <= _MAX_EXACT_INTEGER).all())
