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
from dse.doors.scalars.operations import UnknownPrimitiveError, function_of, named

#: Operations whose result is rounded to the nearest number, and those that are off by some units in the last place.
_ROUNDED = frozenset({"add", "add_any", "sub", "mul", "div", "square", "integer_pow", "sqrt"})
_LOOSE = frozenset({"exp", "exp2", "log", "log2", "log1p", "expm1", "tanh", "pow"})
_UNIT = np.finfo(np.float32).eps

_COMPARED = frozenset({"lt", "le", "gt", "ge", "eq", "ne"})

#: Operations that make whole numbers, and those of whole numbers that may give others.
_ROUNDING = frozenset({"floor", "ceil", "round"})
_DIVIDING = frozenset({"div", "integer_pow", "sqrt", "bitcast_convert_type"})

#: Whole numbers up to here are exact.
_MOST_WHOLE = 2.0**24

#: A truth value of which nothing is known.
_OPEN = np.array(False), np.array(True)

#: A range of which nothing is known, and that its values are no whole numbers.
_NOTHING: tuple[Pair | None, bool] = None, False

#: What an output is: (position of the input that it equals, None) or (None, the constant that it is).
Decision = tuple[int | None, float | None]


class Ranges:
    """Ranges of values by their numbers, input by input and then equation by equation.

    Args:
        inputs: number → least and most in each block, arrays that can be broadcast against each other; one array twice
            where they are the same.
        whole: inputs that are whole numbers below 2^24 for all designs.
    """

    def __init__(self, inputs: Mapping[int, Pair], whole: Iterable[int]) -> None:
        self._pairs: dict[int, Pair | None] = dict(inputs)
        self._inputs, self._whole = set(inputs), set(whole)
        self._last = _NOTHING

    def decision(self, equation: Equation, inputs: tuple[Atom, ...]) -> Decision | None:
        """What the output of the next equation is for all designs; None where that is open."""
        name, operands, self._last = equation.primitive.name, [self._of(atom) for atom in inputs], _NOTHING
        if name in ("stop_gradient", "copy"):
            return 0, None
        if name == "sub" and isinstance(inputs[0], int) and inputs[0] == inputs[1]:
            return None, 0.0
        if name == "div" and self._inputs.issuperset(inputs) and _are_one(operands):
            return None, 1.0
        if name in ("max", "min") and (position := _extreme(name, operands)) is not None:
            return position, None
        found = pair, _ = _found(equation, operands, [self._is_whole(atom) for atom in inputs])
        if pair is not None and (value := _one_of(pair)) is not None:
            return None, value
        self._last = found
        return None

    def follow(self, outputs: Sequence[Atom]) -> None:
        """Take that equation in, which is left open, with these outputs."""
        for output in outputs:
            if isinstance(output, int) and output not in self._pairs:
                self._pairs[output], is_whole = self._last
                if is_whole:
                    self._whole.add(output)
        self._last = _NOTHING

    def forget(self, needed: Container[Atom]) -> None:
        """Let go of the ranges of all values but these."""
        self._pairs = {number: pair for number, pair in self._pairs.items() if number in needed}

    def _of(self, atom: Atom) -> Pair | None:
        if isinstance(atom, Constant):
            value = np.asarray(atom.value, getattr(atom.value, "dtype", None))
            return None if value.ndim else (value, value)
        return self._pairs[atom]

    def _is_whole(self, atom: Atom) -> bool:
        if isinstance(atom, Constant):
            pair = self._of(atom)
            return pair is not None and (pair[0].dtype.kind != "f" or are_whole(pair[0]))
        return atom in self._whole


def _one_of(pair: Pair) -> float | None:
    """The truth value, or the neutral number, that all values of a range are."""
    first = pair[0].reshape(-1)[0]
    if pair[0].dtype == bool or (pair[0].dtype.kind == "f" and first in (0.0, 1.0)):
        value: float = first.item()
        return value if all((end == first).all() for end in pair) else None
    return None


def _are_one(operands: list[Pair | None]) -> bool:
    """Whether two operands are the same number in each block."""
    first, second = operands
    if first is None or second is None or first[0] is not first[1] or second[0] is not second[1]:
        return False
    return bool(((first[0] == second[0]) & (first[0] != 0.0)).all())


def _extreme(name: str, operands: list[Pair | None]) -> int | None:
    """Which of two operands is the larger one, or the smaller one, for all designs."""
    first, second = operands
    if first is None or second is None:
        return None
    (low, high), (least, most) = first, second
    above, below = (0, 1) if name == "max" else (1, 0)
    return above if (low >= most).all() else below if (high <= least).all() else None


def _found(equation: Equation, operands: list[Pair | None], of_whole: list[bool]) -> tuple[Pair | None, bool]:
    """The range of an output, None where nothing is known, and whether it is an exact whole number for all designs."""
    name = equation.primitive.name
    unknown = (_OPEN if name in _COMPARED else None), False
    known = [pair for pair in operands if pair is not None]
    if len(known) < len(operands):
        return unknown
    try:
        with np.errstate(all="ignore"):
            found = _by_rule(equation, known)
    except (UnknownPrimitiveError, KeyError, NotImplementedError):
        return unknown
    if found[0].dtype.kind != "f":
        return found, True
    if _stays_whole(name, of_whole[name == "select_n" :], found):
        return found, True
    units = _UNIT * (1.0 if name in _ROUNDED else 4.0 if name in _LOOSE else 0.0)
    return (_widened(found, np.float32(units)) if units else found), False


def _stays_whole(name: str, of_whole: list[bool], found: Pair) -> bool:
    """Whether the result of an operation is a whole number, by which of its operands are, and exact."""
    low, high = found
    if name in _LOOSE or not (name in _ROUNDING or all(of_whole)):
        return False
    if name in _DIVIDING:
        return low is high and are_whole(low)
    return bool((abs(low) <= _MOST_WHOLE).all() and (abs(high) <= _MOST_WHOLE).all())


def _by_rule(equation: Equation, operands: list[Pair]) -> Pair:
    operation = named(equation)
    if all(low is high for low, high in operands):
        value = np.asarray(function_of(*operation)(*(low for low, _ in operands)))
        return value, value
    return intervals.operation(*operation)(*operands)


def _widened(pair: Pair, units: Any) -> Pair:
    low, high = pair
    with np.errstate(all="ignore"):
        return low - units * abs(low), high + units * abs(high)


def are_whole(values: Any) -> bool:
    """Whether all values are whole numbers that are exact."""
    with np.errstate(invalid="ignore"):
        return bool((values == np.floor(values)).all() and (abs(values) <= _MOST_WHOLE).all())
