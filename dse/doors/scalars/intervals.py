"""Interval arithmetic over the operations of :mod:`dse.doors.scalars`: what values lie between, of many blocks at once.

A value is a pair of arrays [block], its least and its most; of a value that no block moves both are one array. Operands
and results are in the precision of the model, and every operation is that of the model: rounding is monotone, so what
the model computes at a design of a block, rounding included, lies within its interval. Operations that are not rounded
to the nearest number (exponentials, logarithms, powers) are widened by four units in the last place.

An end that is no number says that nothing is known: comparisons with it are open, and what is computed with it is
unknown too. So a design whose model divides 0 by 0 on the way is covered.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from dse.doors.scalars.operations import numpy_function

#: Least and most, arrays alike: [block], or [1] of what is the same for all blocks.
Pair = tuple[Any, Any]

#: Operations that rise, or stay, with every operand.
RISING = frozenset({
    "add", "add_any", "max", "min", "sqrt", "floor", "ceil", "round", "sign", "clamp", "convert_element_type", "copy",
    "stop_gradient",
})  # fmt: skip

#: Operations that rise with every operand, but are not rounded to the nearest number.
_RISING_INEXACT = frozenset({"exp", "exp2", "log", "log2", "log1p", "expm1", "tanh"})

_UNITS = 4.0


def operation(name: str, parameters: tuple[Any, ...]) -> Callable[..., Pair]:
    """Return the function from operand intervals to the result's interval, for an operation by name.

    Args:
        name: operation.
        parameters: plain values that the operation needs besides operands, as of ``name_and_parameters``.

    Raises:
        KeyError: for an operation without a rule or NumPy function. The function returned raises NotImplementedError
            for operands that its rule does not cover.
    """
    function = numpy_function(name, parameters)
    rule = _rule(name, parameters, function)

    def run(*operands: Pair) -> Pair:
        if all(low is high for low, high in operands):
            value = function(*(low for low, _ in operands))
            return value, value
        return rule(*operands)

    return run


def _rule(name: str, parameters: tuple[Any, ...], function: Callable[..., Any]) -> Callable[..., Pair]:
    """Return the interval rule of an operation, for operands of which at least one is more than one number."""
    if name == "convert_element_type":
        return lambda x: _convert(function, np.dtype(*parameters), x)
    if name in RISING:
        return lambda *operands: (function(*(low for low, _ in operands)), function(*(high for _, high in operands)))
    if name in _RISING_INEXACT:
        return lambda x: widened(function(x[0]), function(x[1]), x)
    if name == "integer_pow":
        return lambda x: _integer_power(function, parameters[0], x)
    if name == "bitcast_convert_type":
        return lambda x: _bits(function, x)
    return RULES[name]


def widened(low: Any, high: Any, *operands: Pair) -> Pair:
    """Return an interval with ends moved outwards by four units in the last place, unless all operands are single."""
    is_single = functools.reduce(np.logical_and, (a == b for a, b in operands))
    relative_step = np.float32(_UNITS) * np.finfo(low.dtype).eps
    return np.where(is_single, low, low - relative_step * abs(low)), np.where(
        is_single, high, high + relative_step * abs(high)
    )


def hull(values: list[Any]) -> Pair:
    """Return the interval from the least to the greatest of arrays [block], NaN where one of them is NaN."""
    return functools.reduce(np.minimum, values), functools.reduce(np.maximum, values)


def contains(x: Pair, number: float = 0.0) -> Any:
    """Return a mask [block], true where an interval may contain ``number`` or is unknown."""
    return ~((x[0] > number) | (x[1] < number))


def _convert(function: Callable[..., Any], dtype: Any, x: Pair) -> Pair:
    """Return the interval after a conversion to a data type; unknown ends give the whole range of integers."""
    if dtype.kind == "b":
        return _not(_equal(x, (x[0].dtype.type(0),) * 2))
    low, high = function(x[0]), function(x[1])
    if dtype.kind in "iu" and x[0].dtype.kind == "f":
        unknown, ends = np.isnan(x[0]) | np.isnan(x[1]), np.iinfo(dtype)
        return np.where(unknown, ends.min, low).astype(dtype), np.where(unknown, ends.max, high).astype(dtype)
    return low, high


def _subtract(x: Pair, y: Pair) -> Pair:
    """Return the interval of a difference."""
    return x[0] - y[1], x[1] - y[0]


def _multiply(x: Pair, y: Pair) -> Pair:
    """Return the interval of a product, NaN where that of any two ends is NaN."""
    if (x[0] >= 0).all() and (y[0] >= 0).all():
        return x[0] * y[0], x[1] * y[1]
    return hull([x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]])


def _divide(x: Pair, y: Pair) -> Pair:
    """Return the interval of a quotient, NaN where the divisor may be 0; NotImplementedError for integers."""
    if x[0].dtype.kind != "f":
        raise NotImplementedError("a quotient of whole numbers of several values")
    if (x[0] >= 0).all() and (y[0] > 0).all():
        return x[0] / y[1], x[1] / y[0]
    low, high = hull([x[0] / y[0], x[0] / y[1], x[1] / y[0], x[1] / y[1]])
    unknown = contains(y) & ~((y[0] == 0) & (x[0] > 0))
    return np.where(unknown, np.nan, low).astype(low.dtype), np.where(unknown, np.nan, high).astype(low.dtype)


def magnitude(x: Pair) -> Pair:
    """Return the interval of the absolute value."""
    low, high = abs(x[0]), abs(x[1])
    has_none = contains(x) & (low == low) & (high == high)
    return np.where(has_none, low.dtype.type(0), np.minimum(low, high)), np.maximum(low, high)


def _square(x: Pair) -> Pair:
    """Return the interval of the square."""
    low, high = magnitude(x)
    return low * low, high * high


def _integer_power(function: Callable[..., Any], exponent: int, x: Pair) -> Pair:
    """Return the interval of an integer power, NaN where a negative exponent meets a base that may be 0."""
    base = magnitude(x) if exponent % 2 == 0 else x
    if exponent >= 0:
        low, high = (np.broadcast_to(function(end), end.shape) for end in base)
        return low, high
    unknown = contains(base)
    low, high = (np.where(unknown, np.nan, function(end)).astype(end.dtype) for end in (base[1], base[0]))
    return low, high


def _power(x: Pair, y: Pair) -> Pair:
    """Return the interval of a real power, widened by its rounding."""
    return widened(*hull([np.power(a, b) for a in x for b in y]), x, y)


def _less_than(x: Pair, y: Pair) -> Pair:
    """Return the interval of ``x < y`` as Booleans: (surely, possibly)."""
    return x[1] < y[0], ~(x[0] >= y[1])


def _at_most(x: Pair, y: Pair) -> Pair:
    """Return the interval of ``x <= y`` as Booleans: (surely, possibly)."""
    return x[1] <= y[0], ~(x[0] > y[1])


def _equal(x: Pair, y: Pair) -> Pair:
    """Return the interval of ``x == y`` as Booleans: (surely, possibly)."""
    return (x[0] == x[1]) & (y[0] == y[1]) & (x[0] == y[0]), ~((x[1] < y[0]) | (x[0] > y[1]))


def _not(x: Pair) -> Pair:
    """Return the interval of the negation of Booleans, or of the inverted bits of integers."""
    if x[0].dtype != bool:
        return ~x[1], ~x[0]
    return np.invert(x[1]), np.invert(x[0])


def _and(x: Pair, y: Pair) -> Pair:
    """Return the interval of a bitwise and: of Booleans, or of integers at least 0 with a mask that clears low bits.

    Such a mask keeps the order of the integers; NotImplementedError for any other.
    """
    if x[0].dtype == bool:
        return x[0] & y[0], x[1] & y[1]
    for value, mask in ((x, y), (y, x)):
        if mask[0] is mask[1] and (value[0] >= 0).all() and np.all(_clears_low_bits(mask[0])):
            return value[0] & mask[0], value[1] & mask[0]
    raise NotImplementedError("bits of whole numbers of several values by another mask")


def _clears_low_bits(mask: Any) -> Any:
    """Return a mask, true where the bits that an integer mask clears are the lowest ones alone."""
    max_integer = np.iinfo(mask.dtype).max
    cleared_bits = max_integer & ~mask
    return (cleared_bits & (cleared_bits + 1)) == 0


def _or(x: Pair, y: Pair) -> Pair:
    """Return the interval of a bitwise or: for integers that are not negative from the larger one to the sum."""
    if x[0].dtype == bool:
        return x[0] | y[0], x[1] | y[1]
    is_single = (x[0] == x[1]) & (y[0] == y[1])
    exact = x[0] | y[0]
    return np.where(is_single, exact, np.maximum(x[0], y[0])), np.where(is_single, exact, x[1] + y[1])


def _bits(function: Callable[..., Any], x: Pair) -> Pair:
    """Return the interval of a float's bits as integers, in the order of the numbers from 0 on.

    NotImplementedError where a number is negative.
    """
    if not (x[0] >= 0).all():
        raise NotImplementedError("bits of negative numbers of several values")
    return function(x[0]), function(x[1])


def select(condition: Pair, *cases: Pair) -> Pair:
    """Return the interval of the case that a Boolean or an index selects, the hull of all cases where it is open."""
    if condition[0] is condition[1]:
        choose = numpy_function("select_n", ())
        low, high = (
            choose(condition[0], *(case[0] for case in cases)),
            choose(condition[0], *(case[1] for case in cases)),
        )
        return low, high
    if condition[0].dtype != bool:
        return hull([end for case in cases for end in case])
    if_false, if_true = cases
    is_surely, may_be = condition
    low, high = np.where(is_surely, if_true[0], if_false[0]), np.where(is_surely, if_true[1], if_false[1])
    is_open = may_be & ~is_surely
    if not is_open.any():
        return low, high
    open_low, open_high = hull([if_false[0], if_true[0]])[0], hull([if_false[1], if_true[1]])[1]
    return np.where(is_open, open_low, low), np.where(is_open, open_high, high)


#: Operation → its rule.
RULES: dict[str, Callable[..., Pair]] = {
    "sub": _subtract,
    "mul": _multiply,
    "div": _divide,
    "neg": lambda x: (-x[1], -x[0]),
    "abs": magnitude,
    "square": _square,
    "pow": _power,
    "lt": _less_than,
    "le": _at_most,
    "gt": lambda x, y: _less_than(y, x),
    "ge": lambda x, y: _at_most(y, x),
    "eq": _equal,
    "ne": lambda x, y: _not(_equal(x, y)),
    "not": _not,
    "and": _and,
    "or": _or,
    "select_n": select,
}
