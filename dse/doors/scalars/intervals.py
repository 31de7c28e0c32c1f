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
    """Return the function that computes the interval of an operation from those of its operands.

    Args:
        name: operation.
        parameters: what else the operation needs.

    Raises:
        KeyError: for an operation without a rule.
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
    """Move ends outwards by some units in the last place, where an operand is more than one number."""
    is_single = functools.reduce(np.logical_and, (a == b for a, b in operands))
    step = np.float32(_UNITS) * np.finfo(low.dtype).eps
    return np.where(is_single, low, low - step * abs(low)), np.where(is_single, high, high + step * abs(high))


def hull(values: list[Any]) -> Pair:
    """Return the interval of several ends, NaN where one of them is NaN."""
    return functools.reduce(np.minimum, values), functools.reduce(np.maximum, values)


def contains(x: Pair, number: float = 0.0) -> Any:
    """True where a number may be among the values [block]."""
    return ~((x[0] > number) | (x[1] < number))


def _convert(function: Callable[..., Any], dtype: Any, x: Pair) -> Pair:
    if dtype.kind == "b":
        return _not(_equal(x, (x[0].dtype.type(0),) * 2))
    low, high = function(x[0]), function(x[1])
    if dtype.kind in "iu" and x[0].dtype.kind == "f":
        unknown, ends = np.isnan(x[0]) | np.isnan(x[1]), np.iinfo(dtype)
        return np.where(unknown, ends.min, low).astype(dtype), np.where(unknown, ends.max, high).astype(dtype)
    return low, high


def _subtract(x: Pair, y: Pair) -> Pair:
    return x[0] - y[1], x[1] - y[0]


def _multiply(x: Pair, y: Pair) -> Pair:
    if (x[0] >= 0).all() and (y[0] >= 0).all():
        return x[0] * y[0], x[1] * y[1]
    return hull([x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]])


def _divide(x: Pair, y: Pair) -> Pair:
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
    low, high = magnitude(x)
    return low * low, high * high


def _integer_power(function: Callable[..., Any], exponent: int, x: Pair) -> Pair:
    base = magnitude(x) if exponent % 2 == 0 else x
    if exponent >= 0:
        low, high = (np.broadcast_to(function(end), end.shape) for end in base)
        return low, high
    unknown = contains(base)
    low, high = (np.where(unknown, np.nan, function(end)).astype(end.dtype) for end in (base[1], base[0]))
    return low, high


def _power(x: Pair, y: Pair) -> Pair:
    return widened(*hull([np.power(a, b) for a in x for b in y]), x, y)


def _less_than(x: Pair, y: Pair) -> Pair:
    return x[1] < y[0], ~(x[0] >= y[1])


def _at_most(x: Pair, y: Pair) -> Pair:
    return x[1] <= y[0], ~(x[0] > y[1])


def _equal(x: Pair, y: Pair) -> Pair:
    return (x[0] == x[1]) & (y[0] == y[1]) & (x[0] == y[0]), ~((x[1] < y[0]) | (x[0] > y[1]))


def _not(x: Pair) -> Pair:
    if x[0].dtype != bool:
        return ~x[1], ~x[0]
    return np.invert(x[1]), np.invert(x[0])


def _and(x: Pair, y: Pair) -> Pair:
    """Return the interval of a bitwise and: a mask of upper bits keeps the order of integers that are not negative."""
    if x[0].dtype == bool:
        return x[0] & y[0], x[1] & y[1]
    for value, mask in ((x, y), (y, x)):
        if mask[0] is mask[1] and (value[0] >= 0).all() and np.all(_clears_low_bits(mask[0])):
            return value[0] & mask[0], value[1] & mask[0]
    raise NotImplementedError("bits of whole numbers of several values by another mask")


def _clears_low_bits(mask: Any) -> Any:
    """True where a mask clears only low bits."""
    most = np.iinfo(mask.dtype).max
    cleared = most & ~mask
    return (cleared & (cleared + 1)) == 0


def _or(x: Pair, y: Pair) -> Pair:
    """Return the interval of a bitwise or: for integers that are not negative from the larger one to the sum."""
    if x[0].dtype == bool:
        return x[0] | y[0], x[1] | y[1]
    is_single = (x[0] == x[1]) & (y[0] == y[1])
    exact = x[0] | y[0]
    return np.where(is_single, exact, np.maximum(x[0], y[0])), np.where(is_single, exact, x[1] + y[1])


def _bits(function: Callable[..., Any], x: Pair) -> Pair:
    """Return the interval of bits, which have the order of the numbers where these are not negative."""
    if not (x[0] >= 0).all():
        raise NotImplementedError("bits of negative numbers of several values")
    return function(x[0]), function(x[1])


def select(condition: Pair, *cases: Pair) -> Pair:
    """Return the interval of the selected case, or of all cases where the condition is open."""
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
    least, most = hull([if_false[0], if_true[0]])[0], hull([if_false[1], if_true[1]])[1]
    return np.where(is_open, least, low), np.where(is_open, most, high)


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
